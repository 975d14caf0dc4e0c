package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"semel/chat"
)

var testPresets = []Preset{
	{Name: "ollama", Provider: "openai", URL: "http://127.0.0.1:11434/v1"},
	{Name: "claude", Provider: "anthropic", URL: "https://api.anthropic.com/v1"},
	{Name: "vllm", Provider: "openai"},
}

// loadWith loads a file and an environment.
func loadWith(toml string, environ ...string) (*Config, error) {
	env, err := readEnviron(environ)
	if err != nil {
		return nil, err
	}
	return load("semel.toml", []byte(toml), env, Source{Presets: testPresets})
}

func TestEveryKeyOfAModelCanBeSet(t *testing.T) {
	c, err := loadWith(`
[[models]]
name = "big"
provider = "openai-responses"
url = "https://api.example.com/v1"
key = "sk-1"
upstream_model = "big-2"
price = { input = 1, cached = 2, output = 3 }
context = 4
stream = true
background = true
max_attempts = 5
max_crash_reruns = 6
on_unknown = "rerun"
first_token_timeout = "7s"
idle_timeout = "8s"
concurrency = 9
[[models]]
name = "plain"
provider = "openai"
url = "http://[::1]:8080"
stream = false
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Model{
		{Name: "big", Provider: "openai-responses", URL: "https://api.example.com/v1", Key: "sk-1", UpstreamModel: "big-2",
			Price: chat.Price{Input: 1, Cached: 2, Output: 3}, Context: 4, Stream: true, Images: true, Background: true, MaxAttempts: 5, MaxCrashReruns: 6,
			OnUnknown: "rerun", FirstTokenTimeout: 7 * time.Second, IdleTimeout: 8 * time.Second, Concurrency: 9},
		{Name: "plain", Provider: "openai", URL: "http://[::1]:8080", Images: true, MaxAttempts: 3, MaxCrashReruns: 20,
			OnUnknown: "rerun", FirstTokenTimeout: 300 * time.Second, IdleTimeout: 120 * time.Second, Concurrency: 8},
	}
	if !reflect.DeepEqual(c.Models, want) {
		t.Errorf("got  %+v\nwant %+v", c.Models, want)
	}
}

func TestAPresetGivesWhatIsNotGiven(t *testing.T) {
	for _, tt := range []struct {
		toml                              string
		provider, url, unknown            string
		presetFrom, providerFrom, urlFrom string
	}{
		{`preset = "ollama"`, "openai", "http://127.0.0.1:11434/v1", "rerun", "semel.toml:3", "preset ollama", "preset ollama"},
		{`preset = "claude"`, "anthropic", "https://api.anthropic.com/v1", "ask", "semel.toml:3", "preset claude", "preset claude"},
		{"url = \"http://10.0.0.1/v1\"\npreset = \"ollama\"", "openai", "http://10.0.0.1/v1", "rerun", "semel.toml:4", "preset ollama", "semel.toml:3"},
		{"preset = \"ollama\"\nprovider = \"openai-responses\"", "openai-responses", "http://127.0.0.1:11434/v1", "rerun", "semel.toml:3", "semel.toml:4", "preset ollama"},
		{"preset = \"vllm\"\nurl = \"http://gpu/v1\"", "openai", "http://gpu/v1", "ask", "semel.toml:3", "preset vllm", "semel.toml:4"},
	} {
		c, err := loadWith("[[models]]\nname = \"m\"\n" + tt.toml)
		if err != nil {
			t.Errorf("%s: %v", tt.toml, err)
			continue
		}
		m := c.Models[0]
		if m.Preset == "" || m.Provider != tt.provider || m.URL != tt.url || m.OnUnknown != tt.unknown {
			t.Errorf("%s: got %+v", tt.toml, m)
		}
		for key, want := range map[string]string{"preset": tt.presetFrom, "provider": tt.providerFrom, "url": tt.urlFrom} {
			if got := c.Origin("models[0]." + key); got != want {
				t.Errorf("%s: %s comes from %q, want %q", tt.toml, key, got, want)
			}
		}
	}
}

func TestWhatIsWrongWithAModelIsNamed(t *testing.T) {
	demo := "[[models]]\nname = \"m\"\nprovider = \"demo\"\n"
	other := "[[models]]\nname = \"m\"\nprovider = \"openai\"\n"
	full := other + "url = \"http://127.0.0.1/v1\"\n"
	for _, tt := range []struct{ toml, want string }{
		{"[[models]]\nname = \"m\"\nprovider = \"openal\"", `models[0].provider = "openal" (semel.toml:3): must be one of demo, openai, openai-responses, anthropic`},
		{"[[models]]\nname = \"m\"\nprovider = 1", `models[0].provider = 1 (semel.toml:3): must be a string`},
		{"[[models]]\nname = \"m\"\nurl = \"http://127.0.0.1/v1\"", `models[0] (semel.toml:1): provider is missing`},
		{other, `models[0] (semel.toml:1): url is missing, or a preset that has one`},
		{"[[models]]\nname = \"m\"\nprovider = \"anthropic\"", `url is missing`},
		{"[[models]]\nname = \"m\"\nprovider = \"openai-responses\"", `url is missing`},
		{"[[models]]\nname = \"m\"\npreset = \"vllm\"", `models[0] (semel.toml:1): url is missing`},
		{"[[models]]\nname = \"m\"\npreset = \"olama\"", `models[0].preset = "olama" (semel.toml:3): there is no such preset; there are ollama, claude, vllm`},
		{"[[models]]\nname = \"m\"\npreset = 1", `models[0].preset = 1 (semel.toml:3): must be a string`},
		{demo + "preset = \"ollama\"", `models[0].preset (semel.toml:4): the provider "demo" has no use for it`},
		{demo + "upstream_model = \"x\"", `models[0].upstream_model (semel.toml:4): the provider "demo" has no use for it`},
		{demo + "stream = false", `models[0].stream (semel.toml:4): only servers of the provider "openai" may lack streams`},
		{"[[models]]\nname = \"m\"\npreset = \"claude\"\nstream = false", `models[0].stream (semel.toml:4): only servers of the provider "openai"`},
		{demo + "background = true", `models[0].background (semel.toml:4): only the provider "openai-responses" keeps runs`},
		{full + "background = true", `models[0].background (semel.toml:5): only the provider "openai-responses" keeps runs`},
		{full + "background = \"yes\"", `models[0].background = "yes" (semel.toml:5): must be true or false`},
		{full + "stream = 0", `models[0].stream = 0 (semel.toml:5): must be true or false`},
		{other + "url = \"api.example.com/v1\"", `models[0].url = "api.example.com/v1" (semel.toml:4): must be an http or https address`},
		{other + "url = \"file:///etc/passwd\"", `must be an http or https address`},
		{other + "url = \"http://:80/v1\"", `must be an http or https address`},
		{other + "url = \"http://a b/v1\"", `must be an http or https address`},
		{other + "url = \"http://a:65536/v1\"", `the port must be a number from 0 to 65535`},
		{other + "url = \"https://api.example.com/v1#x\"", `must end with its path`},
		{other + "url = \"https://api.example.com/v1?key=hunter2\"", `models[0].url = *** (semel.toml:4): must end with its path`},
		{other + "url = \"https://me:hunter2@api.example.com/v1\"", `models[0].url = *** (semel.toml:4): must have no user or password`},
		{other + "url = \"https://" + strings.Repeat("a", 2000) + "\"", `must be at most 2000 bytes`},
		{full + "key = \"\"", `models[0].key = *** (semel.toml:5): must be 1 to 4096 visible ASCII characters`},
		{full + "key = \"Bearer hunter2\"", `models[0].key = *** (semel.toml:5): must be 1 to 4096 visible`},
		{full + "key = \"hunter2\\n\"", `must be 1 to 4096 visible`},
		{full + "key = \"hunter2é\"", `must be 1 to 4096 visible`},
		{full + "key = \"hunter2\"\nkey_file = \"x\"", `models[0] (semel.toml:1): key and key_file are both given`},
		{full + "key_file = \"\"", `models[0].key_file = "" (semel.toml:5): must be a file path`},
		{full + "key_file = \"a\\u0000b\"", `must be a file path`},
		{full + "key_file = \"no-such-file\"", `models[0].key_file (semel.toml:5): `},
		{full + "upstream_model = \"\"", `models[0].upstream_model = "" (semel.toml:5): must be 1 to 200 bytes`},
		{full + "upstream_model = \"" + strings.Repeat("m", 201) + "\"", `must be 1 to 200 bytes`},
		{full + "upstream_model = \"a\\tb\"", `without control characters`},
		{full + "concurrency = 0", `models[0].concurrency = 0 (semel.toml:5): must be between 1 and 100000`},
		{full + "concurrency = 100001", `must be between 1 and 100000`},
		{full + "context = -1", `must be between 0 and`},
		{full + "price.input = 1000000000001\nprice.output = 1", `must be between 0 and 1000000000000`},
		{full + "presett = \"x\"", `unknown key "models.presett" (semel.toml:5); the nearest known key is "models.preset"`},
	} {
		c, err := loadWith(tt.toml)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got error %v, want one with %q", tt.toml, err, tt.want)
		}
		if c != nil {
			t.Errorf("%q: got a config beside the error", tt.toml)
		}
	}
}

func TestOneMistakeInAModelIsOneFinding(t *testing.T) {
	for _, toml := range []string{
		"[[models]]\nname = \"m\"\nprovider = \"openal\"",
		"[[models]]\nname = \"m\"\npreset = \"olama\"",
		"[[models]]\nname = \"m\"\nprovider = \"openai\"\nurl = \"x\"",
	} {
		if _, err := loadWith(toml); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want one finding", toml, err)
		}
	}
}

func TestTheEnvironmentAddsTheDefaultModel(t *testing.T) {
	const file = "[[models]]\nname = \"own\"\npreset = \"claude\"\n"
	url, model := "SEMEL_LLM_URL=http://127.0.0.1:11434/v1", "SEMEL_LLM_MODEL=qwen3:8b"
	for _, tt := range []struct {
		name, toml string
		environ    []string
		want       []string // names
		provider   string   // of the first
		key        Secret
		unknown    string
	}{
		{"alone, the demo model stays", "", []string{url, model}, []string{"qwen3:8b", "demo"}, "openai", "", "rerun"},
		{"before those of the file, which has no demo", file, []string{url, model}, []string{"qwen3:8b", "own"}, "openai", "", "rerun"},
		{"nothing given", file, []string{"SEMEL_LLM_URL=", "SEMEL_LLM_KEY=", "SEMEL_LLM_KEY_FILE=", "SEMEL_LLM_MODEL="}, []string{"own"}, "anthropic", "", "ask"},
		{"a key", "", []string{"SEMEL_LLM_URL=https://api.example.com/v1", model, "SEMEL_LLM_KEY=hunter2", "SEMEL_LLM_KEY_FILE="}, []string{"qwen3:8b", "demo"}, "openai", "hunter2", "ask"},
		{"Anthropic", "", []string{"SEMEL_LLM_URL=https://API.anthropic.com/v1", model}, []string{"qwen3:8b", "demo"}, "anthropic", "", "ask"},
		{"not Anthropic", "", []string{"SEMEL_LLM_URL=https://notanthropic.com/anthropic.com", model}, []string{"qwen3:8b", "demo"}, "openai", "", "ask"},
	} {
		c, err := loadWith(tt.toml, tt.environ...)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, m := range c.Models {
			got = append(got, m.Name)
		}
		if m := c.Models[0]; !reflect.DeepEqual(got, tt.want) || m.Provider != tt.provider || m.Key != tt.key || m.OnUnknown != tt.unknown {
			t.Errorf("%s: got %v, the first %+v, want %+v", tt.name, got, m, tt)
		}
	}
}

func TestOriginsStayWithTheirModels(t *testing.T) {
	c, err := loadWith("[[models]]\nname = \"own\"\nprovider = \"demo\"\n", "SEMEL_LLM_URL=http://127.0.0.1/v1", "SEMEL_LLM_MODEL=m", "SEMEL_LLM_KEY=hunter2")
	if err != nil {
		t.Fatal(err)
	}
	got := printed(t, c, true)
	for _, want := range []string{
		"name = \"m\"  # env SEMEL_LLM_MODEL\n", "provider = \"openai\"  # env SEMEL_LLM_URL\n", "url = \"http://127.0.0.1/v1\"  # env SEMEL_LLM_URL\n",
		"key = \"***\"  # env SEMEL_LLM_KEY\n", "stream = true  # default\n", "name = \"own\"  # semel.toml:2\n", "provider = \"demo\"  # semel.toml:3\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant it to contain %q", got, want)
		}
	}
	if strings.Contains(got, "hunter2") {
		t.Errorf("the key is shown:\n%s", got)
	}
}

func TestAPriceThatIsNotGivenIsNotPrinted(t *testing.T) {
	const model = "[[models]]\nname = \"m\"\nprovider = \"openai\"\nurl = \"https://api.example.com/v1\"\n"
	for toml, want := range map[string]int{model: 0, model + "price = { input = 0, output = 0 }": 2, model + "price = { input = 1, output = 0 }": 3} {
		c, err := loadWith(toml)
		if err != nil {
			t.Fatal(err)
		}
		// A price of 0 would say that nobody pays.
		if got := strings.Count(printed(t, c, true), "\nprice."); got != want {
			t.Errorf("%s: got %d lines of a price, want %d:\n%s", toml, got, want, printed(t, c, true))
		}
	}
}

func TestHalfAModelInTheEnvironmentIsAnError(t *testing.T) {
	url, model := "SEMEL_LLM_URL=http://127.0.0.1/v1", "SEMEL_LLM_MODEL=m"
	for _, tt := range []struct {
		toml    string
		environ []string
		want    string
	}{
		{"", []string{url}, "SEMEL_LLM_MODEL is missing: SEMEL_LLM_URL says nothing without it"},
		{"", []string{model}, "SEMEL_LLM_URL is missing: SEMEL_LLM_MODEL says nothing without it"},
		{"", []string{model, "SEMEL_LLM_URL="}, "SEMEL_LLM_URL is missing: SEMEL_LLM_MODEL says nothing without it"},
		{"", []string{"SEMEL_LLM_KEY=hunter2"}, "SEMEL_LLM_URL is missing: SEMEL_LLM_KEY says nothing without it"},
		{"", []string{"SEMEL_LLM_KEY_FILE=x"}, "SEMEL_LLM_MODEL is missing: SEMEL_LLM_KEY_FILE says nothing without it"},
		{"", []string{url, model, "SEMEL_LLM_KEY=hunter2", "SEMEL_LLM_KEY_FILE=x"}, "SEMEL_LLM_KEY and SEMEL_LLM_KEY_FILE are both given"},
		{"", []string{url, model, "SEMEL_LLM_KEY=hunter 2"}, "models[0].key = *** (env SEMEL_LLM_KEY): must be 1 to 4096 visible"},
		{"", []string{url, model, "SEMEL_LLM_KEY_FILE=no-such-file"}, "models[0].key_file (env SEMEL_LLM_KEY_FILE): "},
		{"", []string{"SEMEL_LLM_URL=127.0.0.1:11434", model}, `models[0].url = "127.0.0.1:11434" (env SEMEL_LLM_URL): must be an http or https address`},
		{"", []string{"SEMEL_LLM_URL=http://me:hunter2@x/v1", model}, `models[0].url = *** (env SEMEL_LLM_URL): must have no user`},
		{"", []string{url, "SEMEL_LLM_MODEL=\xff"}, `(env SEMEL_LLM_MODEL): must be UTF-8`},
		{"", []string{url, "SEMEL_LLM_MODEL= m"}, `models[0].name = " m" (env SEMEL_LLM_MODEL): must be 1 to 100 bytes`},
		{"", []string{url, "SEMEL_LLM_MODEL=demo"}, `SEMEL_LLM_MODEL = "demo": there is another model named so, the built-in one`},
		{"[[models]]\nname = \"m\"\nprovider = \"demo\"", []string{url, model}, `models[1] (semel.toml:1): there is another model named "m"`},
		{"", []string{"SEMEL_LLM_MODLE=m"}, "unknown environment variable SEMEL_LLM_MODLE; the nearest known one is SEMEL_LLM_MODEL"},
	} {
		_, err := loadWith(tt.toml, tt.environ...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%v: got error %v, want one with %q", tt.environ, err, tt.want)
		}
	}
}

func TestAKeyFileOfTheEnvironmentIsInTheWorkingFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "key", "hunter2\n")
	c, err := Load(Source{
		Flags:   map[string]string{"db": filepath.Join(t.TempDir(), "x.db")},
		Environ: []string{"SEMEL_LLM_URL=http://127.0.0.1/v1", "SEMEL_LLM_MODEL=m", "SEMEL_LLM_KEY_FILE=key"},
	})
	if err != nil || c.Models[0].Key != "hunter2" {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestKeyFileHoldsTheKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	write(t, path, "hunter2\r\n")
	given := table{settings: []setting{
		{"name", value{val: "m"}}, {"provider", value{val: "openai"}}, {"url", value{val: "http://127.0.0.1:1/v1"}}, {"key_file", value{val: "key"}},
	}}
	m, _, wrong := loadModel(given, dir, "models[0]", nil)
	if len(wrong) > 0 || string(m.Key) != "hunter2" || m.KeyFile != path {
		t.Errorf("got key %q from %s, %v, want it from %s", string(m.Key), m.KeyFile, wrong, path)
	}
	for content, want := range map[string]string{
		"\n":                          "is empty",
		"Bearer hunter2":              "visible ASCII",
		"hunter2\nhunter2":            "visible ASCII",
		"\xef\xbb\xbfhunter2":         "visible ASCII",
		strings.Repeat("h", 4097):     "visible ASCII",
		strings.Repeat("h", 64<<10+1): "larger than",
	} {
		write(t, path, content)
		_, _, wrong := loadModel(given, dir, "models[0]", nil)
		if got := fmt.Sprint(wrong); !strings.Contains(got, want) || !strings.Contains(got, path) || strings.Contains(got, "hunter2") {
			t.Errorf("a key file with %.30q: got %v, want %q", content, wrong, want)
		}
	}
}

func TestOnUnknownRerunsOnlyWhereNobodyPays(t *testing.T) {
	free, paid := &chat.Price{}, &chat.Price{Output: 1}
	for _, tt := range []struct {
		provider string
		price    *chat.Price
		url      string
		want     string
	}{
		{"demo", nil, "", "rerun"},
		{"demo", paid, "", "rerun"},
		{"openai", free, "https://api.example.com/v1", "rerun"},
		{"openai", paid, "http://127.0.0.1:11434/v1", "ask"},
		{"openai", nil, "https://api.example.com/v1", "ask"},
		{"openai", nil, "http://127.0.0.1:11434/v1", "rerun"},
		{"openai", nil, "http://localhost:11434", "rerun"},
		{"openai", nil, "http://[::1]:11434", "rerun"},
		{"openai", nil, "http://10.1.2.3/v1", "rerun"},
		{"openai", nil, "http://192.168.0.9", "rerun"},
		{"openai", nil, "http://[fd00::1]/", "rerun"},
		{"openai", nil, "http://[::ffff:10.0.0.1]/", "rerun"},
		{"openai", nil, "http://172.32.0.1/", "ask"},
		{"openai", nil, "http://localhost.example.com", "ask"},
		{"openai", nil, "http://127.0.0.1.example.com", "ask"},
		{"openai", nil, "http://127.0.0.1@example.com", "ask"},
		{"openai", nil, "http://ollama:11434", "ask"},
		{"openai", nil, "", "ask"},
		{"openai", nil, "http://%zz", "ask"},
	} {
		if got := OnUnknownDefault(tt.provider, tt.price, tt.url); got != tt.want {
			t.Errorf("%s, price %v, %s: got %s, want %s", tt.provider, tt.price, tt.url, got, tt.want)
		}
	}
}
