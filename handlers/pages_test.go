package handlers_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
	"semel/ops"
	"semel/views"
)

// A room is a whole server as a browser without scripts sees it.
type room struct {
	t    *testing.T
	url  string
	http *http.Client
	db   *db.DB
	demo *llm.Demo
}

func openRoom(t *testing.T) *room {
	t.Helper()
	d, demo := dbtest.Open(t), llm.NewDemo()
	meter := ops.NewMeter()
	monitor, err := ops.New(t.Context(), ops.Options{DB: d, Meter: meter, Calls: demo.Calls})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{DB: d, Meter: meter, Models: []engine.Model{{Name: "demo", Client: demo, Price: dbtest.DemoPrice, Rerun: true, Concurrency: 64}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	h := handlers.New(handlers.Options{Engine: e, DB: d, Ops: monitor, MessageBytes: 4096})
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond) // nobody waits for what still runs
		defer cancel()
		e.Drain(ctx)
		h.Close()
		srv.Close()
		dbtest.Check(t, d)
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &room{t: t, url: srv.URL, db: d, demo: demo, http: &http.Client{
		Jar:           jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// A sight is an answer as it was read.
type sight struct {
	status int
	header http.Header
	body   string
}

func (r *room) do(method, path, contentType, body string, header ...string) sight {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return sight{resp.StatusCode, resp.Header, string(b)}
}

func (r *room) get(path string) sight { return r.do("GET", path, "", "") }

func (r *room) post(path string, pairs ...string) sight {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return r.do("POST", path, "application/x-www-form-urlencoded", v.Encode())
}

var (
	formAction = regexp.MustCompile(`<form id="composer" method="post" action="([^"]+)"`)
	formID     = regexp.MustCompile(`name="requestId" value="([^"]+)"`)
)

// form returns where the form of a page goes and which id it carries.
func (r *room) form(s sight) (action, id string) {
	r.t.Helper()
	a, b := formAction.FindStringSubmatch(s.body), formID.FindStringSubmatch(s.body)
	if a == nil || b == nil {
		r.t.Fatalf("status %d, no form in %s", s.status, s.body)
	}
	return a[1], b[1]
}

// eventually reads a page until it contains text.
func (r *room) eventually(path, text string) sight {
	r.t.Helper()
	for deadline := time.Now().Add(limit); ; {
		s := r.get(path)
		if strings.Contains(s.body, text) {
			return s
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s never contained %q: %s", path, text, s.body)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAFormSentTwiceIsOneQuestion(t *testing.T) {
	r := openRoom(t)
	action, id := r.form(r.get("/"))
	for range 3 {
		s := r.post(action, "content", "[[echo One **answer**.]]", "requestId", id)
		if s.status != http.StatusSeeOther || s.header.Get("Location") != action {
			t.Fatalf("got %d to %q, want 303 to %q", s.status, s.header.Get("Location"), action)
		}
	}
	page := r.eventually(action, "One <strong>answer</strong>.")
	if n := strings.Count(page.body, `<article class="message" data-role="user" data-request="`+id); n != 1 {
		t.Errorf("the question is shown %d times", n)
	}
	if n := r.demo.Calls(); n != 1 {
		t.Errorf("%d model calls", n)
	}
	if _, next := r.form(page); next == id {
		t.Error("the next form carries the id that was used")
	}
}

func TestTheSameWordsByFormAndByScriptAreTheSameIntent(t *testing.T) {
	r := openRoom(t)
	action, id := r.form(r.get("/"))
	if s := r.post(action, "content", "[[rate 0]] one\r\ntwo", "requestId", id); s.status != http.StatusSeeOther {
		t.Fatalf("got %d", s.status)
	}
	body, _ := json.Marshal(map[string]string{"sessionId": strings.TrimPrefix(action, "/c/"), "requestId": id, "content": "[[rate 0]] one\ntwo"})
	s := r.do("POST", "/api/chat", "application/json", string(body))
	if s.status != http.StatusOK && s.status != http.StatusAccepted {
		t.Fatalf("got %d %s", s.status, s.body)
	}
}

func TestARefusedFormComesBackWithItsTextAndAFreshID(t *testing.T) {
	r := openRoom(t)
	action, used := r.form(r.get("/"))
	r.post(action, "content", "[[echo first]]", "requestId", used)
	for _, test := range []struct {
		name, id, content string
		status            int
	}{
		{"empty", chat.NewID(), "  \r\n ", 400},
		{"too long", chat.NewID(), strings.Repeat("x", 4097), 413},
		{"an id that names other words", used, "other words", 422},
		{"no id", "", "some words", 400},
		{"a bad id", "<b>", "some words", 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := r.post(action, "content", test.content, "requestId", test.id)
			if s.status != test.status {
				t.Fatalf("got %d, want %d: %s", s.status, test.status, s.body)
			}
			again, id := r.form(s)
			if again != action || id == test.id {
				t.Errorf("the form goes to %s with id %s; it was %s and %s", again, id, action, test.id)
			}
			if text := strings.TrimSpace(test.content); !strings.Contains(s.body, ">"+text+"</textarea>") {
				t.Errorf("the text did not come back: %s", s.body)
			}
			if strings.Contains(s.body, `id="notice" role="alert" hidden`) {
				t.Error("the page does not say why")
			}
		})
	}
	if n := r.demo.Calls(); n > 1 {
		t.Errorf("%d model calls", n)
	}
}

func TestADeletedConversation(t *testing.T) {
	r := openRoom(t)
	action, id := r.form(r.get("/"))
	r.post(action, "content", "[[echo hello]]", "requestId", id)
	r.eventually(action, "hello")
	session := strings.TrimPrefix(action, "/c/")
	if s := r.do("DELETE", "/api/conversations/"+session, "", ""); s.status != http.StatusOK {
		t.Fatalf("delete: %d %s", s.status, s.body)
	}
	s := r.get(action)
	if s.status != http.StatusGone || !strings.Contains(s.body, `<form method="post" action="/c/`+session+`/manage"><button class="primary" name="do" value="restore">`) || !strings.Contains(s.body, `data-session="`+session) {
		t.Errorf("got %d %s", s.status, s.body)
	}
	s = r.post(action, "content", "too late", "requestId", chat.NewID())
	again, _ := r.form(s)
	if s.status != http.StatusGone || again == action || !strings.Contains(s.body, ">too late</textarea>") {
		t.Errorf("got %d, a form to %s", s.status, again)
	}
}

func TestPagesThatAreNotThere(t *testing.T) {
	r := openRoom(t)
	for _, path := range []string{"/c/" + chat.NewID(), "/c/x", "/c/%3Cscript%3E"} {
		s := r.get(path)
		if s.status != http.StatusNotFound || !strings.HasPrefix(s.header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: got %d %s", path, s.status, s.header.Get("Content-Type"))
		}
	}
}

func TestAPageIsPrivateAndOfOneShowing(t *testing.T) {
	r := openRoom(t)
	a, b := r.get("/"), r.get("/")
	if got := a.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	if csp := a.header.Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self';") || !strings.Contains(csp, "style-src 'self';") || strings.Contains(csp, "unsafe") {
		t.Errorf("Content-Security-Policy %q", csp)
	}
	action1, id1 := r.form(a)
	action2, id2 := r.form(b)
	if action1 == action2 || id1 == id2 {
		t.Error("two showings share an id")
	}
}

func TestAPageThatWaitsReloadsItself(t *testing.T) {
	r := openRoom(t)
	action, id := r.form(r.get("/"))
	r.post(action, "content", "[[wait 60000]]", "requestId", id)
	s := r.eventually(action, `data-mark="answering"`)
	if !strings.Contains(s.body, `http-equiv="refresh"`) {
		t.Error("no refresh")
	}
}

func TestLanguage(t *testing.T) {
	r := openRoom(t)
	if s := r.do("GET", "/", "", "", "Accept-Language", "zh-CN"); !strings.Contains(s.body, `<html lang="zh-CN"`) {
		t.Error("Accept-Language is not heard")
	}
	s := r.post("/language", "lang", "zh-CN", "to", "/c/S1234567")
	if s.status != http.StatusSeeOther || s.header.Get("Location") != "/c/S1234567" {
		t.Fatalf("got %d to %q", s.status, s.header.Get("Location"))
	}
	if s := r.do("GET", "/", "", "", "Accept-Language", "en"); !strings.Contains(s.body, `<html lang="zh-CN"`) {
		t.Error("the choice is not kept")
	}
	if s := r.post("/language", "lang", "tlh", "to", "/"); s.status != http.StatusBadRequest {
		t.Errorf("an unknown language: %d", s.status)
	}
	for _, to := range []string{"https://evil.example/", "//evil.example", `/\evil.example`, "javascript:alert(1)", "/\tevil", "", "c", "/%2f%2fevil.example"} {
		s := r.post("/language", "lang", "en", "to", to)
		if got := s.header.Get("Location"); got != "/" {
			t.Errorf("to %q leads to %q", to, got)
		}
	}
}

func TestAnotherSiteCannotSendTheForm(t *testing.T) {
	r := openRoom(t)
	action, id := r.form(r.get("/"))
	s := r.do("POST", action, "application/x-www-form-urlencoded", "content=x&requestId="+id, "Sec-Fetch-Site", "cross-site")
	if s.status != http.StatusForbidden {
		t.Errorf("got %d", s.status)
	}
	if n := r.demo.Calls(); n != 0 {
		t.Errorf("%d model calls", n)
	}
}

// What a page gets block by block is what it would get whole.
func TestTheBlocksOfAStreamAreTheAnswer(t *testing.T) {
	r := openRoom(t)
	session, id := chat.NewID(), chat.NewID()
	body, _ := json.Marshal(map[string]string{"sessionId": session, "requestId": id, "content": "Explain it with a table, a list and code. [[tokens 300]] [[rate 3000]]"})
	r.do("POST", "/api/chat", "application/json", string(body), "Prefer", "wait=0")
	s := r.do("GET", "/api/chat/stream/"+id+"?sessionId="+session+"&as=html", "", "")
	var blocks []string
	var end chat.Record
	for event := range strings.SplitSeq(s.body, "\n\n") {
		_, data, _ := strings.Cut(event, "data: ")
		switch {
		case strings.HasPrefix(event, "event: delta"):
			var b views.Block
			if err := json.Unmarshal([]byte(data), &b); err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks[:b.Index], b.HTML)
		case strings.HasPrefix(event, "event: end"):
			if err := json.Unmarshal([]byte(data), &end); err != nil {
				t.Fatal(err)
			}
		}
	}
	if end.HTML == "" || strings.Join(blocks, "") != end.HTML || end.HTML != views.Markdown(end.Content) {
		t.Errorf("blocks\n%s\nend\n%s", strings.Join(blocks, ""), end.HTML)
	}
}
