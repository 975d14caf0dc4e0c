package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/config"
	"semel/llm"
	"semel/llm/llmtest"
)

const secretKey = "sk-hunter2"

// environOf configures a model of a played provider by the environment.
func environOf(s *llmtest.Server) []string {
	return []string{"SEMEL_LLM_URL=" + s.URL, "SEMEL_LLM_MODEL=model-b", "SEMEL_LLM_KEY=" + secretKey}
}

func TestModelsTestCallsTheProviderOnceAndTellsHowItWent(t *testing.T) {
	t.Chdir(t.TempDir())
	s := llmtest.NewServer(t, llmtest.Chat)
	s.Play(llmtest.Script{Text: []string{"Hello", " there.\x1b[31m\n", "Bye."}})
	code, stdout, stderr := semel(t, environOf(s), "models", "test")
	if code != 0 || stderr != "" || s.Calls() != 1 {
		t.Fatalf("got exit %d after %d calls: %s%s", code, s.Calls(), stdout, stderr)
	}
	want := `^model-b: openai, 127\.0\.0\.1:\d+, as model-b
It has 2 models: model-a, model-b
Calling it once, with a tiny prompt\. The provider may bill it\.
First token after \S+s, the end after \S+s\.
Tokens: [1-9]\d* in, of which 0 cached, and [1-9]\d* out\.
It says: Hello there\.\x{FFFD}\[31m Bye\.
$`
	if !regexp.MustCompile(want).MatchString(stdout) {
		t.Errorf("got\n%swant\n%s", stdout, want)
	}
	if strings.Contains(stdout, secretKey) {
		t.Errorf("the key is shown:\n%s", stdout)
	}
	for _, r := range s.Requests() {
		if got := r.Header.Get("Authorization"); got != "Bearer "+secretKey {
			t.Errorf("%s %s came with Authorization %q", r.Method, r.Path, got)
		}
		if r.Header.Get("Idempotency-Key") != "" {
			t.Errorf("%s %s came with an idempotency key", r.Method, r.Path)
		}
	}
	if entries, _ := os.ReadDir("."); len(entries) > 0 {
		t.Errorf("it left %s behind", entries[0].Name())
	}
}

func TestModelsTestSaysWhatIsKnownOfAFailure(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		name   string
		script llmtest.Script
		limit  string
		want   []string
	}{
		{"a wrong key", llmtest.Script{Refuse: &llmtest.Failure{Status: 401, Message: "Wrong key " + secretKey + "."}}, "1m",
			[]string{"outcome definite", "status 401", "Wrong key ***."}},
		{"no such model", llmtest.Script{Refuse: &llmtest.Failure{Status: 404, Message: "Who?"}}, "1m",
			[]string{"outcome definite", "status 404", `is there a model "model-b"?`}},
		{"busy", llmtest.Script{Refuse: &llmtest.Failure{Status: 429}}, "1m", []string{"outcome definite", "status 429"}},
		{"cut", llmtest.Script{Text: []string{"Hel", "lo"}, Cut: llmtest.CutReset, CutAt: 1}, "1m",
			[]string{"outcome unknown", "Nobody can know"}},
		{"silent", llmtest.Script{Hang: llmtest.BeforeHeaders}, "50ms",
			[]string{"it took longer than 50ms", "outcome unknown", "Nobody can know"}},
	} {
		s := llmtest.NewServer(t, llmtest.Chat)
		s.Play(tt.script)
		code, stdout, stderr := semel(t, environOf(s), "models", "test", "--timeout", tt.limit)
		if code != 1 || s.Calls() != 1 {
			t.Errorf("%s: got exit %d after %d calls, want 1 after 1", tt.name, code, s.Calls())
		}
		for _, want := range tt.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: got %q, want %q in it", tt.name, stderr, want)
			}
		}
		if strings.Contains(stdout+stderr, secretKey) {
			t.Errorf("%s: the key is shown: %s%s", tt.name, stdout, stderr)
		}
	}
}

func TestModelsTestOfAnAddressWhereNobodyListens(t *testing.T) {
	t.Chdir(t.TempDir())
	s := llmtest.NewServer(t, llmtest.Chat)
	s.Close()
	code, stdout, stderr := semel(t, environOf(s), "models", "test")
	if code != 1 || !strings.Contains(stdout, "It does not say which models it has") || !strings.Contains(stderr, "outcome none") {
		t.Errorf("got exit %d, %q and %q", code, stdout, stderr)
	}
}

func TestModelsTestSaysWhenTheModelIsNotAmongThoseOffered(t *testing.T) {
	t.Chdir(t.TempDir())
	s := llmtest.NewServer(t, llmtest.Chat)
	toml := "[[models]]\nname = \"first\"\nprovider = \"demo\"\n[[models]]\nname = \"mine\"\nprovider = \"openai\"\nupstream_model = \"model-c\"\nurl = \"" + s.URL + "\"\n"
	if err := os.WriteFile("semel.toml", []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := semel(t, nil, "models", "test", "mine")
	if code != 0 || !strings.Contains(stdout, "mine: openai, ") || !strings.Contains(stdout, "\nmodel-c is not among them.\n") {
		t.Errorf("got exit %d, %s%s", code, stdout, stderr)
	}
	sent := s.Requests()
	if got := string(sent[len(sent)-1].Body); !strings.Contains(got, `"model-c"`) || strings.Contains(got, "mine") {
		t.Errorf("the provider was asked for another model: %s", got)
	}
}

func TestModelsTestEndsTheRunThatItLeaves(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "POST /v1/responses":
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"status\":\"queued\"}}\n\n")
		case "GET /v1/responses/resp_1": // the line was lost, and it looks for its run
			cancel()
			<-r.Context().Done()
		case "POST /v1/responses/resp_1/cancel":
			ended <- "resp_1"
			io.WriteString(w, `{"id": "resp_1", "status": "cancelled"}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	err := testModel(ctx, config.Model{Name: "m", Provider: config.ProviderResponses, URL: s.URL + "/v1", Stream: true, Background: true}, time.Minute, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "outcome unknown") {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	select {
	case <-ended:
	default:
		t.Error("the run goes on")
	}
}

func TestModelsTestOfTheDemoModelCostsNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		code, stdout, stderr := semel(t, nil, "models", "test", "demo")
		if code != 0 || !strings.HasPrefix(stdout, "demo: demo, built in, as demo\n") || !strings.Contains(stdout, "It costs nothing.") || !strings.Contains(stdout, "\nIt says: ") {
			t.Errorf("got exit %d, %s%s", code, stdout, stderr)
		}
	})
}

func TestModelsListShowsEachModelAndNoKey(t *testing.T) {
	t.Chdir(t.TempDir())
	toml := "[[models]]\nname = \"local\"\npreset = \"ollama\"\nupstream_model = \"qwen3:8b\"\nconcurrency = 2\n"
	if err := os.WriteFile("semel.toml", []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"SEMEL_LLM_URL=https://api.anthropic.com/v1", "SEMEL_LLM_MODEL=claude", "SEMEL_LLM_KEY=" + secretKey}
	code, stdout, stderr := semel(t, environ, "models", "list")
	var got []string
	for line := range strings.Lines(stdout) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	ollama, ok := llm.PresetByName("ollama")
	if !ok {
		t.Fatal("there is no preset ollama")
	}
	want := []string{"NAME PROVIDER HOST ITS NAME THERE KEY ON UNKNOWN", "claude anthropic api.anthropic.com claude yes ask",
		"local openai " + host(config.Model{URL: ollama.URL}) + " qwen3:8b no rerun"}
	if code != 0 || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got exit %d, %s\n%s\nwant\n%s", code, stderr, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	code, stdout, stderr = semel(t, environ, "models", "list", "--json")
	var list []map[string]any
	if err := json.Unmarshal([]byte(stdout), &list); code != 0 || err != nil || len(list) != 2 {
		t.Fatalf("got exit %d, %v: %s%s", code, err, stdout, stderr)
	}
	for key, want := range map[string]any{"name": "local", "preset": "ollama", "provider": "openai", "url": ollama.URL,
		"upstreamModel": "qwen3:8b", "hasKey": false, "concurrency": 2.0, "onUnknown": "rerun", "stream": true} {
		if list[1][key] != want {
			t.Errorf("%s: got %v, want %v", key, list[1][key], want)
		}
	}
	if list[0]["hasKey"] != true || strings.Contains(stdout, secretKey) {
		t.Errorf("a key that is hidden, but there, is meant to be shown as that: %s", stdout)
	}
}

func TestEveryPresetMakesAModel(t *testing.T) {
	transport := llm.NewTransport()
	defer transport.Close()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range llm.Presets {
		if !strings.Contains(string(readme), "`"+p.Name+"`") {
			t.Errorf("%s: README.md does not name it", p.Name)
		}
		toml := filepath.Join(t.TempDir(), "semel.toml")
		content := "[[models]]\nname = \"m\"\npreset = \"" + p.Name + "\"\n"
		if p.URL == "" {
			content += "url = \"http://127.0.0.1:1/v1\"\n"
		}
		if err := os.WriteFile(toml, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Source{File: toml, Presets: presets()})
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		if m := builder(transport, llm.NewDemo())(cfg.Models[0]); len(cfg.Models) != 1 || m.Client == nil {
			t.Errorf("%s: got %+v", p.Name, cfg.Models)
		}
	}
}

func TestTheQuirksOfAModelAreThoseOfItsPresetOrItsAddress(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    config.Model
		want llm.Quirks
	}{
		{"a preset", config.Model{Preset: "kimi", Provider: "openai", URL: "https://proxy.example.com/v1", Stream: true}, llm.Quirks{MaxCompletionTokens: true, Continue: llm.ContinuePartial}},
		{"an address", config.Model{Provider: "openai", URL: "https://api.openai.com/v1/", Stream: true}, llm.Quirks{MaxCompletionTokens: true}},
		{"another address", config.Model{Provider: "openai", URL: "https://api.openai.com/v2", Stream: true}, llm.Quirks{}},
		{"a port of this machine", config.Model{Provider: "openai", URL: "http://localhost:8000/v1", Stream: true}, llm.Quirks{}},
		{"another provider", config.Model{Preset: "kimi", Provider: "anthropic", Stream: true}, llm.Quirks{}},
		{"no streams", config.Model{Preset: "openai", Provider: "openai"}, llm.Quirks{MaxCompletionTokens: true, NoStream: true}},
	} {
		if got := quirks(tt.m); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// serving runs the server with cfg until the test ends, and returns its address
// and what it logged until it served.
func serving(t *testing.T, cfg *config.Config) (url string, lines []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serve(ctx, cfg, slog.New(slog.NewTextHandler(w, nil)))
		w.Close()
		ended <- err
	}()
	log := bufio.NewScanner(r)
	t.Cleanup(func() {
		stop()
		for log.Scan() {
		}
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	for log.Scan() {
		lines = append(lines, log.Text())
		if found := regexp.MustCompile(`msg=serving url=(\S+)`).FindStringSubmatch(log.Text()); found != nil {
			go func() { // what follows must not wait for a reader
				io.Copy(io.Discard, r)
			}()
			return found[1], lines
		}
	}
	t.Fatalf("the server did not serve:\n%s", strings.Join(lines, "\n"))
	return "", nil
}

func TestAProvidersAnswerComesThroughTheServerOnce(t *testing.T) {
	for _, tt := range []struct {
		format   llmtest.Format
		provider string
		more     string
		stream   bool // asked of the provider
		keep     bool
	}{
		{llmtest.Chat, "openai", "", true, false},
		{llmtest.Chat, "openai", "stream = false\n", false, false},
		{llmtest.Responses, "openai-responses", "", true, false},
		{llmtest.Responses, "openai-responses", "background = true\n", true, true},
		{llmtest.Anthropic, "anthropic", "", true, false},
	} {
		t.Run(strings.TrimSpace(tt.provider+" "+tt.more), func(t *testing.T) {
			s := llmtest.NewServer(t, tt.format)
			s.Play(llmtest.Script{Text: []string{"Rhine", ", Nile"}})
			dir := t.TempDir()
			file := filepath.Join(dir, "semel.toml")
			content := "listen = \"127.0.0.1:0\"\n[[models]]\nname = \"m\"\nprovider = \"" + tt.provider + "\"\nkey = \"" + secretKey + "\"\nurl = \"" + s.URL + "\"\nupstream_model = \"model-a\"\n" + tt.more
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load(config.Source{File: file, Flags: map[string]string{"db": filepath.Join(dir, "semel.db")}})
			if err != nil {
				t.Fatal(err)
			}
			url, lines := serving(t, cfg)
			log := strings.Join(lines, "\n")
			want := "msg=model name=m provider=" + tt.provider + " host=" + strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/v1")
			if !strings.Contains(log, want) || strings.Contains(log, secretKey) {
				t.Errorf("got the log\n%s\nwant %q in it, and no key", log, want)
			}
			for range 2 {
				if status, body := postQuestion(t, url); status != http.StatusOK || !strings.Contains(body, `"Rhine, Nile"`) {
					t.Errorf("got %d %s", status, body)
				}
			}
			if s.Calls() != 1 {
				t.Errorf("the provider was called %d times, want once", s.Calls())
			}
			var asked struct {
				Model              string
				Stream, Background bool
			}
			if err := json.Unmarshal(s.Requests()[0].Body, &asked); err != nil || asked.Model != "model-a" || asked.Stream != tt.stream || asked.Background != tt.keep {
				t.Errorf("the provider was asked for %+v, %v", asked, err)
			}
			if strings.Contains(everyFile(t, dir, file), secretKey) {
				t.Error("the key is in a file of the database")
			}
		})
	}
}

// postQuestion asks the same question under the same id each time.
func postQuestion(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/chat", strings.NewReader(`{"sessionId": "my-first-chat", "content": "Name rivers."}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "order-2026-0001")
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// everyFile is the content of all files in dir but one.
func everyFile(t *testing.T, dir, but string) string {
	t.Helper()
	var all strings.Builder
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if path == but {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// Ollama takes a name without a tag and lists it with one.
func TestANameWithoutItsTagIsAmongThem(t *testing.T) {
	for name, missing := range map[string]bool{"tiny": false, "tiny:latest": false, "tin": true} {
		if got := strings.Contains(offered(t.Context(), lister{"tiny:latest", "other"}, name), "not among them"); got != missing {
			t.Errorf("%s is said to be missing: %v", name, got)
		}
	}
}

type lister []string

func (l lister) Models(context.Context) ([]string, error) { return l, nil }
