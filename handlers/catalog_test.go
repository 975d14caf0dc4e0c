package handlers_test

import (
	"testing"

	"semel/catalog"
	"semel/config"
	"semel/db"
	"semel/engine"
	"semel/llm"
	"semel/seal"
)

var testPresets = []config.Preset{{Name: "anthropic", Provider: "anthropic", URL: "https://api.anthropic.example/v1"}, {Name: "ollama", Provider: "openai", URL: "http://localhost:11434/v1"}}

// openCatalog returns a catalog whose configuration has e's models, and connects the
// others as the program does.
func openCatalog(t testing.TB, d *db.DB, keyFile string, e *engine.Engine) *catalog.Catalog {
	t.Helper()
	transport := llm.NewTransport()
	t.Cleanup(transport.Close)
	given := map[string]engine.Model{}
	o := catalog.Options{DB: d, Box: seal.At(keyFile), Presets: testPresets}
	for _, m := range e.Models() {
		given[m.Name] = m
		o.File = append(o.File, config.Model{Name: m.Name, Provider: config.ProviderDemo, Price: m.Price})
	}
	o.Build = func(m config.Model) engine.Model {
		if known, ok := given[m.Name]; ok {
			return known
		}
		at := llm.Endpoint{URL: m.URL, Key: string(m.Key)}
		out := engine.Model{Name: m.Name, Upstream: m.UpstreamModel, Client: llm.NewOpenAI(transport, at), Price: m.Price, Rerun: m.OnUnknown == config.OnUnknownRerun}
		if m.Provider == config.ProviderAnthropic {
			out.Client = llm.NewAnthropic(transport, at)
		}
		return out
	}
	c, err := catalog.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c.Serve(e)
	return c
}
