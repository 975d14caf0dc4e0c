package browsertest

import (
	"path/filepath"
	"testing"

	"semel/catalog"
	"semel/config"
	"semel/db"
	"semel/engine"
	"semel/llm"
	"semel/seal"
)

// openCatalog returns a catalog whose configuration has e's models, and connects
// others to servers that speak chat completions.
func openCatalog(t *testing.T, d *db.DB, e *engine.Engine) *catalog.Catalog {
	t.Helper()
	transport := llm.NewTransport()
	t.Cleanup(transport.Close)
	given := map[string]engine.Model{}
	o := catalog.Options{DB: d, Box: seal.At(filepath.Join(t.TempDir(), "test.db.key"))}
	for _, p := range llm.Presets {
		o.Presets = append(o.Presets, config.Preset{Name: p.Name, Provider: p.Provider, URL: p.URL})
	}
	for _, m := range e.Models() {
		given[m.Name] = m
		o.File = append(o.File, config.Model{Name: m.Name, Provider: config.ProviderDemo, Price: m.Price})
	}
	o.Build = func(m config.Model) engine.Model {
		if known, ok := given[m.Name]; ok {
			return known
		}
		client := llm.NewOpenAI(transport, llm.Endpoint{URL: m.URL, Key: string(m.Key)})
		return engine.Model{Name: m.Name, Upstream: m.UpstreamModel, Client: client, Price: m.Price}
	}
	c, err := catalog.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c.Serve(e)
	return c
}
