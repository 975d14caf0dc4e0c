package config

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"semel/chat"
)

var formPresets = []Preset{{Name: "house", Provider: ProviderOpenAI, URL: "https://house.example/v1"}}

func TestAModelFromAFormIsOneFromAFile(t *testing.T) {
	m, wrong := CheckModel(map[string]string{
		"name": "mine", "preset": "house", "key": "sk-1", "upstream_model": "big", "context": "4096", "price.input": "100", "price.output": "200", "on_unknown": "",
	}, formPresets)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	if m.Provider != ProviderOpenAI || m.URL != "https://house.example/v1" || m.Key != "sk-1" || m.Context != 4096 || m.OnUnknown != OnUnknownAsk ||
		m.Price != (chat.Price{Input: 100, Cached: 100, Output: 200}) || m.Concurrency != 8 || !m.Stream {
		t.Errorf("got %+v", m)
	}
	m, wrong = CheckModel(map[string]string{"name": "local", "provider": "openai", "url": "http://127.0.0.1:1/v1"}, nil)
	if len(wrong) > 0 || m.OnUnknown != OnUnknownRerun {
		t.Errorf("on loopback, without a price: %+v %v", m, wrong)
	}
}

func TestWhatIsWrongWithAFormIsSaidByField(t *testing.T) {
	good := map[string]string{"name": "mine", "provider": "openai", "url": "https://a.example/v1"}
	for _, c := range []struct{ key, value, wrong string }{
		{"name", "", "name"}, {"name", " mine", "name"}, {"name", "a\nb", "name"}, {"name", strings.Repeat("n", 101), "name"}, {"name", "\xff", "name"},
		{"provider", "", "provider"}, {"provider", "nobody", "provider"}, {"preset", "nobody", "preset"},
		{"url", "", "url"}, {"url", "ftp://a/v1", "url"}, {"url", "a.example/v1", "url"}, {"url", "https://u:p@a.example/v1", "url"}, {"url", "https://a.example/v1?k=1", "url"},
		{"url", "https://a.example/v1#x", "url"}, {"url", "https://", "url"}, {"url", "https://a:99999/v1", "url"}, {"url", "file:///etc/passwd", "url"}, {"url", "javascript:1", "url"},
		{"url", "http://a b/v1", "url"}, {"url", "https://" + strings.Repeat("a", 2000), "url"},
		{"key", "a b", "key"}, {"key", "ключ", "key"}, {"key", "a\r\nX-Evil: 1", "key"}, {"key", strings.Repeat("k", 4097), "key"},
		{"upstream_model", " x", "upstream_model"}, {"context", "-1", "context"}, {"context", "many", "context"}, {"context", "1e9", "context"},
		{"price.input", "1", "price.output"}, {"price.output", "1", "price.input"}, {"price.cached", "1", "price.input price.output"}, {"price.input", "-1", "price.input price.output"},
		{"on_unknown", "maybe", "on_unknown"}, {"background", "x", "background"},
	} {
		given := maps.Clone(good)
		given[c.key] = c.value
		m, wrong := CheckModel(given, formPresets)
		if got := strings.Join(slices.Sorted(maps.Keys(wrong)), " "); got != c.wrong || m != (Model{}) {
			t.Errorf("%s = %q: wrong is %q (%v), want %q", c.key, c.value, got, wrong, c.wrong)
		}
		for key, err := range wrong {
			if c.value == "" && !errors.Is(err, ErrMissing) || strings.Contains(err.Error(), "u:p") {
				t.Errorf("%s = %q: %v", key, c.value, err)
			}
		}
	}
	if _, wrong := CheckModel(map[string]string{"name": "x", "provider": "demo", "url": "https://a.example/v1"}, nil); wrong[""] == nil {
		t.Error("a demo model with an address is accepted")
	}
}
