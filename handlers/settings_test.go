package handlers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"semel/chat"
	"semel/db"
	"semel/llm/llmtest"
)

const canary = "sk-canary-in-no-answer-7777"

// form posts a form and returns the answer.
func (d *door) form(path string, fields ...string) reply {
	d.t.Helper()
	v := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		v.Set(fields[i], fields[i+1])
	}
	return d.call("POST", path, v.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html")
}

// connecting is a form that connects a model.
func connecting(address string, more ...string) []string {
	return append([]string{"do", "save", "requestId", chat.NewID(), "preset", "", "url", address, "key", canary, "upstream_model", "model-a", "name", "afar"}, more...)
}

func (d *door) models() string {
	d.t.Helper()
	var out struct {
		Models []struct {
			Name, Source string
			Default      bool
		}
	}
	d.get("/api/models").wants(200).into(&out)
	var s []string
	for _, m := range out.Models {
		what := m.Name + " " + m.Source
		if m.Default {
			what += " default"
		}
		s = append(s, what)
	}
	return strings.Join(s, ", ")
}

func TestSettingsOverTheAPI(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	var got doc
	d.get("/api/settings").wants(200).into(&got)
	if want := "map[language:auto model: params:map[] sendKey:enter systemPrompt: theme:system]"; fmt.Sprint(got) != want {
		t.Errorf("at first %v, want %s", got, want)
	}
	for _, bad := range []string{
		`{"theme": "pink"}`, `{"language": "tlh"}`, `{"sendKey": "space"}`, `{"params": {"temperature": 3}}`, `{"key": "x"}`, `{"theme": 1}`, `[]`, `{"theme": "dark", "theme": "light"}`,
	} {
		d.call("PATCH", "/api/settings", bad).refused(400, "bad_request")
	}
	d.call("PATCH", "/api/settings", `{"model": "nobody"}`).refused(422, "model_unknown")
	d.call("PATCH", "/api/settings", doc{"systemPrompt": strings.Repeat("x", 300_000)}).refused(413, "too_large")
	d.call("PATCH", "/api/settings", `{"theme": "dark", "model": "tap", "systemPrompt": "Be brief.", "params": {"temperature": 0.5, "top_p": 0.9}}`).wants(200)
	d.call("PATCH", "/api/settings", `{"language": "zh-CN"}`).wants(200).into(&got)
	if want := "map[language:zh-CN model:tap params:map[temperature:0.5 top_p:0.9] sendKey:enter systemPrompt:Be brief. theme:dark]"; fmt.Sprint(got) != want {
		t.Errorf("then %v, want %s", got, want)
	}
	if got := d.models(); got != "demo file, tap file default" {
		t.Errorf("models: %s", got)
	}
	page := string(d.get("/", "Accept-Language", "en").wants(200).body)
	if !strings.Contains(page, `<html lang="zh-CN" data-theme="dark"`) {
		t.Error("the page is not as its user chose")
	}
	// A form leaves the parameters that it does not show.
	d.form("/settings", "section", "setup", "model", "", "systemPrompt", "Be long.\r\n", "temperature", "1", "maxTokens", "").wants(303)
	d.get("/api/settings").wants(200).into(&got)
	if want := "map[language:zh-CN model: params:map[temperature:1 top_p:0.9] sendKey:enter systemPrompt:Be long. theme:dark]"; fmt.Sprint(got) != want {
		t.Errorf("after the form %v, want %s", got, want)
	}
	for _, wrong := range [][]string{{"temperature", "hot"}, {"temperature", "NaN"}, {"temperature", "-1"}, {"maxTokens", "0"}, {"maxTokens", "1.5"}} {
		r := d.form("/settings", append([]string{"section", "setup", "systemPrompt", "typed"}, wrong...)...).wants(422)
		if !strings.Contains(string(r.body), ">typed</textarea>") || !strings.Contains(string(r.body), `role="alert"`) {
			t.Errorf("%v: what was typed is lost, or nothing is said", wrong)
		}
	}
}

func TestAConversationIsSetUpByItsPanel(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, _, _ := d.answered("[[echo yes]]")
	d.form("/c/"+session+"/setup", "model", "tap", "systemPrompt", "Be brief.", "temperature", "0,5", "maxTokens", "9").wants(303)
	var c struct {
		Model, SystemPrompt string
		Params              doc
	}
	d.get("/api/conversations/" + session).wants(200).into(&c)
	if c.Model != "tap" || c.SystemPrompt != "Be brief." || fmt.Sprint(c.Params) != "map[max_tokens:9 temperature:0.5]" {
		t.Errorf("got %+v", c)
	}
	d.form("/c/"+session+"/setup", "model", "nobody").wants(422)
	d.form("/c/"+session+"/setup", "temperature", "9").wants(400)
	d.form("/c/"+chat.NewID()+"/setup", "model", "tap").wants(404)
}

// E: the key goes to its provider. That it is in nothing else says the test of X20.
func TestAModelIsTriedConnectedChangedAndRemovedByItsForm(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	provider := llmtest.NewServer(t, llmtest.Chat)
	provider.Play(llmtest.Script{Text: []string{"from afar"}})
	tells := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error": {"message": "Incorrect API key provided: %s."}}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}))
	defer tells.Close()

	d.form("/settings/models", connecting(provider.URL, "do", "test")...).wants(200)
	r := d.form("/settings/models", connecting(tells.URL+"/v1", "do", "test")...).wants(200)
	if !strings.Contains(string(r.body), `data-verdict="key"`) || !strings.Contains(string(r.body), "Incorrect API key provided: ***.") {
		t.Error("a refused key is not told so")
	}
	d.form("/settings/models", connecting("ftp://x")...).wants(422)
	d.form("/settings/models", connecting(provider.URL, "key", canary+" x")...).wants(422)
	d.form("/settings/models", connecting(provider.URL, "name", "demo")...).wants(422)
	first := connecting(provider.URL)
	d.form("/settings/models", first...).wants(303)
	d.form("/settings/models", first...).wants(303) // the second click
	d.form("/settings/models", append(first, "name", "another")...).wants(409)
	d.form("/settings/models", connecting(provider.URL)...).wants(422) // the name is taken
	d.form("/settings/models", connecting(provider.URL+"/x", "editing", "afar", "key", "")...).wants(422)
	d.form("/settings/models", connecting(provider.URL, "editing", "afar", "key", "", "do", "test")...).wants(200)
	d.form("/settings/models", connecting(provider.URL, "editing", "afar", "key", "", "context", "4096")...).wants(303)
	d.form("/settings/models", "do", "default", "name", "afar").wants(303)
	if got := d.models(); got != "demo file, tap file, afar settings default" {
		t.Errorf("models: %s", got)
	}
	if r := d.get("/settings?edit=afar").wants(200); !strings.Contains(string(r.body), "••••7777") {
		t.Error("the form does not show how the key ends")
	}
	if _, _, rec := d.answered("hello"); rec.Content != "from afar" || rec.Model != "afar" {
		t.Errorf("got %q of %s", rec.Content, rec.Model)
	}
	got := 0
	for _, r := range provider.Requests() {
		if r.Header.Get("Authorization") == "Bearer "+canary {
			got++
		}
	}
	if got < 3 {
		t.Errorf("the provider got the key %d times", got)
	}
	d.form("/settings/models", "do", "remove", "name", "afar").wants(303)
	d.form("/settings/models", "do", "remove", "name", "afar").wants(303)
	d.form("/settings/models", first...).wants(409) // the first form, late
	if got := d.models(); got != "demo file default, tap file" {
		t.Errorf("after the removal: %s", got)
	}
}

// The addresses are those that the configuration accepts, and a redirect leads nowhere.
func TestAnAddressIsCheckedAsInTheConfiguration(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	inside := llmtest.NewServer(t, llmtest.Chat)
	leads := httptest.NewServer(http.RedirectHandler(inside.URL+"/models", http.StatusFound))
	defer leads.Close()
	for _, address := range []string{
		"", "x", "//a/v1", "file:///etc/passwd", "gopher://a/v1", "ftp://a/v1", "javascript:alert(1)", "http://", "http:///v1", "https://u:p@a/v1", "https://a/v1?x=1", "https://a/v1#x",
		"http://a:99999/v1", "http://a b/v1", "http://[::1/v1", "http://a/\nv1", "http://a%0d%0a/v1",
	} {
		for _, do := range []string{"test", "save"} {
			r := d.form("/settings/models", connecting(address, "do", do)...)
			if r.status != 422 || !strings.Contains(string(r.body), `id="wrong-url"`) {
				t.Errorf("%s of %q: %d", do, address, r.status)
			}
		}
	}
	r := d.form("/settings/models", connecting(leads.URL+"/v1", "do", "test")...).wants(200)
	if !strings.Contains(string(r.body), `data-verdict="address"`) || len(inside.Requests()) != 0 {
		t.Errorf("a redirect: %d requests inside", len(inside.Requests()))
	}
	if rows, err := d.db.Models(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("stored: %v %v", rows, err)
	}
}

func TestAFormThatConnectsTwiceAtOnceConnectsOne(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	id := regexp.MustCompile(`name="requestId" value="(\w{26})"`).FindStringSubmatch(string(d.get("/settings").wants(200).body))
	if id == nil {
		t.Fatal("the form has no id")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			d.form("/settings/models", connecting("http://127.0.0.1:9/v1", "requestId", id[1])...).wants(303)
		})
	}
	all.Wait()
	if rows, err := d.db.Models(t.Context()); err != nil || len(rows) != 1 {
		t.Errorf("%d models (%v), want 1", len(rows), err)
	}
	for _, bad := range []string{"", "x", "order-2026-0001"} {
		d.form("/settings/models", connecting("http://127.0.0.1:9/v1", "requestId", bad, "name", "other")...).wants(400)
	}
}

func TestPricesAreTypedAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for _, c := range []struct {
		in, out, cached string
		want            string
	}{
		{"0.25", "2", "", "{250000 250000 2000000}"}, {"0,25", "2.000001", "0.1", "{250000 100000 2000001}"}, {"0", "0", "", "{0 0 0}"}, {".5", "1.", "", "{500000 500000 1000000}"},
		{"1", "", "", ""}, {"", "1", "", ""}, {"-1", "1", "", ""}, {"1e3", "1", "", ""}, {"0.0000001", "1", "", ""}, {"12345678901", "1", "", ""}, {"1.2.3", "1", "", ""}, {".", "1", "", ""},
	} {
		form := connecting("http://127.0.0.1:9/v1", "price.input", c.in, "price.output", c.out, "price.cached", c.cached)
		if c.want == "" {
			d.form("/settings/models", form...).wants(422)
			continue
		}
		d.form("/settings/models", form...).wants(303)
		rows, err := d.db.Models(t.Context())
		if err != nil || len(rows) != 1 || fmt.Sprint(*rows[0].Price) != c.want {
			t.Errorf("%+v: stored %+v %v", c, rows, err)
		}
		d.form("/settings/models", "do", "remove", "name", "afar").wants(303)
	}
}

func TestAnotherSiteCannotConnectAModel(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for _, path := range []string{"/settings", "/settings/models", "/c/S1234567/setup"} {
		r := d.call("POST", path, "do=save&section=page&theme=dark", "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "cross-site")
		r.refused(403, "forbidden_origin")
	}
	if s, err := d.db.Settings(t.Context(), db.LocalUser); err != nil || s.Theme != "system" {
		t.Errorf("settings: %+v %v", s, err)
	}
}
