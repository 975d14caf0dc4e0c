package llm

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestEveryPresetCanBeUsedAsItIs(t *testing.T) {
	var names []string
	for _, p := range Presets {
		names = append(names, p.Name)
		u, err := url.Parse(p.URL)
		if err != nil || u.Host == "" || u.RawQuery != "" || u.User != nil || strings.HasSuffix(p.URL, "/") {
			t.Errorf("%s: the address %q cannot be added to", p.Name, p.URL)
			continue
		}
		if local := u.Hostname() == "localhost"; (u.Scheme == "https") == local {
			t.Errorf("%s: %q: a key goes over TLS, or stays on this machine", p.Name, p.URL)
		}
		if p.Title == "" || p.Name != strings.ToLower(p.Name) || strings.ContainsAny(p.Name, " /") {
			t.Errorf("%+v is not fit for a list", p)
		}
		if !slices.Contains([]string{"openai", "openai-responses", "anthropic"}, p.Provider) {
			t.Errorf("%s: no wire format %q", p.Name, p.Provider)
		}
		if !slices.Contains([]Continuation{ContinueAsk, ContinuePrefill, ContinuePartial, ContinueFinal}, p.Quirks.Continue) {
			t.Errorf("%s: nobody continues by %q", p.Name, p.Quirks.Continue)
		}
		if got, ok := PresetByName(p.Name); !ok || got != p {
			t.Errorf("%s: got %+v, %v", p.Name, got, ok)
		}
	}
	slices.Sort(names)
	if u := slices.Compact(slices.Clone(names)); len(u) != len(names) {
		t.Errorf("a name is there twice: %v", names)
	}
	for _, want := range []string{"openai", "openai-responses", "anthropic", "deepseek", "qwen", "glm", "kimi", "openrouter", "ollama", "llama.cpp", "vllm", "lmstudio"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestAPresetThatIsNotThereIsNotFound(t *testing.T) {
	for _, name := range []string{"", "OpenAI", "demo"} {
		if p, ok := PresetByName(name); ok {
			t.Errorf("%q: got %+v", name, p)
		}
	}
}
