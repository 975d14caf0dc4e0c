package handlers_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
	"semel/ops"
	"semel/upkeep"
)

// A door is a whole server as a program meets it: HTTP, SQLite, and two models:
// "demo", and "tap", whose words come when the test says so.
type door struct {
	t        testing.TB
	url      string
	client   *http.Client
	handler  *handlers.Server
	engine   *engine.Engine
	ops      *ops.Monitor
	db       *db.DB
	file     string
	demo     *llm.Demo
	tap      *tap
	listener *pipes // in a bubble
	drained  bool
}

// A setup is what a test may change of a door.
type setup struct {
	keeper   *upkeep.Options // nil: there is none
	engine   engine.Options
	handlers handlers.Options
	ops      ops.Options
	file     string // an earlier door's; "" is a new one
	faults   *dbtest.Faults
}

// openDoor opens a server on a real socket.
func openDoor(t testing.TB, change ...func(*setup)) *door {
	t.Helper()
	d := newDoor(t, change)
	srv := httptest.NewServer(d.handler)
	d.url = srv.URL
	d.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, CheckRedirect: noRedirect}
	t.Cleanup(func() {
		d.drain()
		d.handler.Close()
		d.client.CloseIdleConnections()
		srv.Close()
	})
	return d
}

// inBubble runs test in a bubble of fake time with a server whose connections are
// pipes. The bubble ends only when every goroutine in it has: nothing leaks.
func inBubble(t *testing.T, test func(t *testing.T, d *door), change ...func(*setup)) {
	t.Helper()
	t.Parallel()
	emptyFile() // its lock is not the bubble's
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, change)
		d.listener = &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
		d.url = "http://127.0.0.1:8787"
		d.client = &http.Client{CheckRedirect: noRedirect, Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return d.listener.dial() },
		}}
		srv := &http.Server{Handler: d.handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 60 * time.Second}
		go srv.Serve(d.listener)
		defer func() {
			d.drain()
			d.handler.Close()
			d.client.CloseIdleConnections()
			srv.Close()
		}()
		test(t, d)
	})
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func newDoor(t testing.TB, change []func(*setup)) *door {
	t.Helper()
	d := &door{t: t, demo: llm.NewDemo(), tap: &tap{calls: map[string]chan any{}}}
	s := setup{
		engine: engine.Options{Models: []engine.Model{
			{Name: "demo", Client: d.demo, Price: dbtest.DemoPrice, Rerun: true, Concurrency: 64},
			{Name: "tap", Client: d.tap, Price: dbtest.DemoPrice, Concurrency: 64},
		}},
		handlers: handlers.Options{Lab: &drill{}},
	}
	for _, c := range change {
		c(&s)
	}
	if d.file = s.file; d.file == "" {
		d.file = filepath.Join(t.TempDir(), "test.db")
		if err := os.WriteFile(d.file, emptyFile(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.db = dbtest.OpenAt(t, d.file, s.faults)
	s.engine.DB, s.handlers.DB = d.db, d.db
	s.engine.Meter = ops.NewMeter()
	if s.ops.Calls == nil {
		s.ops.Calls = func() int64 { return d.demo.Calls() + int64(d.tap.asked()) }
	}
	s.ops.DB, s.ops.Meter = d.db, s.engine.Meter
	var err error
	if d.ops, err = ops.New(t.Context(), s.ops); err != nil {
		t.Fatal(err)
	}
	s.handlers.Ops = d.ops
	if s.keeper != nil {
		s.keeper.DB = d.db
		s.handlers.Keeper = upkeep.New(*s.keeper)
		t.Cleanup(s.handlers.Keeper.Stop)
	}
	e, err := engine.New(s.engine)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	d.engine, s.handlers.Engine = e, e
	s.handlers.Catalog = openCatalog(t, d.db, d.file+".key", e)
	d.handler = handlers.New(s.handlers)
	t.Cleanup(func() { d.drain() }) // before the database closes, also when the test failed early
	return d
}

// drain ends the engine without waiting for answers, and looks at what it left.
func (d *door) drain() {
	if d.drained {
		return
	}
	d.drained = true
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	d.engine.Drain(ctx)
	dbtest.Check(d.t, d.db)
}

// emptyFile is a new database, made once: SQLite needs a while for the schema.
var emptyFile = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "semel-handlers")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		panic(err)
	}
	file := filepath.Join(dir, "empty.db")
	d, err := db.Open(db.Options{Path: file, Schema: string(schema)})
	if err != nil {
		panic(err)
	}
	if err := d.Close(); err != nil {
		panic(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	return b
})

// pipes is a listener without a network.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accept <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8787} }

// A tap is a model that says what the test pours, in calls named by request and
// attempt.
type tap struct {
	mu    sync.Mutex
	calls map[string]chan any
	count int
}

func (t *tap) of(id string, attempt int64) chan any {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := fmt.Sprint(id, " ", attempt)
	if t.calls[k] == nil {
		t.calls[k] = make(chan any, 4096)
	}
	return t.calls[k]
}

// pour hands the call what it does next: a string is a piece of the answer, an
// [llm.Piece] may be a thought, a [chat.Finish] is its end, an error its failure.
func (t *tap) pour(id string, attempt int64, what ...any) {
	for _, w := range what {
		t.of(id, attempt) <- w
	}
}

// asked is how often the tap was called.
func (t *tap) asked() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

func (t *tap) Stream(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	t.mu.Lock()
	t.count++
	t.mu.Unlock()
	var text, thought string
	for from := t.of(c.RequestID, c.Attempt); ; {
		select {
		case <-ctx.Done():
			return llm.Answer{}, ctx.Err()
		case what := <-from:
			switch w := what.(type) {
			case string:
				text += w
				emit(llm.Piece{Text: w})
			case llm.Piece:
				thought += w.Reasoning
				emit(w)
			case error:
				return llm.Answer{}, w
			case chat.Finish:
				return llm.Answer{Content: text, Reasoning: thought, Finish: w, Usage: chat.Usage{InputTokens: 10, OutputTokens: 10}}, nil
			}
		}
	}
}

var (
	errBusyForLong = &llm.Error{Outcome: chat.OutcomeDefinite, Transient: true, Status: 429, RetryAfter: time.Hour, Code: "provider_busy", Detail: "Busy."}
	errLost        = &llm.Error{Outcome: chat.OutcomeUnknown, Code: "line_lost", Detail: "The line was lost."}
	errDenied      = &llm.Error{Outcome: chat.OutcomeDefinite, Status: 401, Code: "provider_refused", Detail: "Denied."}
)

// A reply is an answer as it was read.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// limit is how long a test waits for anything before it gives up.
const limit = 2 * time.Minute

// open sends a request. body is a string as it is, nil for none, or else JSON.
// header are names and values in turn.
func (d *door) open(method, path string, body any, header ...string) *http.Response {
	d.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	case io.Reader:
		reader = b
	default:
		j, err := json.Marshal(b)
		if err != nil {
			d.t.Fatal(err)
		}
		reader = bytes.NewReader(j)
	}
	patience := limit
	if d.listener != nil {
		patience = time.Hour // of a bubble's time, which costs nothing
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	d.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, reader)
	if err != nil {
		d.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		switch name, value := header[i], header[i+1]; {
		case name == "Host":
			req.Host = value
		case value == "" && name == "Content-Type":
			req.Header.Del(name)
		case name == "Content-Type":
			req.Header.Set(name, value)
		default:
			req.Header.Add(name, value)
		}
	}
	res, err := d.client.Do(req)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

func (d *door) call(method, path string, body any, header ...string) reply {
	d.t.Helper()
	res := d.open(method, path, body, header...)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	r := reply{d.t, res.StatusCode, res.Header, b}
	r.wellFormed(method + " " + path)
	return r
}

func (d *door) get(path string, header ...string) reply {
	d.t.Helper()
	return d.call("GET", path, nil, header...)
}

func (d *door) post(path string, body any, header ...string) reply {
	d.t.Helper()
	return d.call("POST", path, body, header...)
}

// A doc is a JSON object to be sent.
type doc = map[string]any

// ask is a question to be posted to /api/chat.
func ask(session, id, content string, more ...any) doc {
	b := doc{"sessionId": session, "requestId": id, "content": content}
	for i := 0; i < len(more); i += 2 {
		b[more[i].(string)] = more[i+1]
	}
	return b
}

// chat posts a question.
func (d *door) chat(body any, header ...string) reply {
	d.t.Helper()
	return d.post("/api/chat", body, header...)
}

// answered asks a question, waits, and returns its session, its id and its record.
func (d *door) answered(content string) (session, id string, rec chat.Record) {
	d.t.Helper()
	session, id = chat.NewID(), chat.NewID()
	return session, id, d.chat(ask(session, id, content)).wants(200).record()
}

// tapped asks the tap and returns once its call is on its way.
func (d *door) tapped(session, id string) {
	d.t.Helper()
	d.chat(ask(session, id, "Pour.", "model", "tap"), "Prefer", "wait=0").wants(202)
}

func statusPath(session, id string) string {
	return "/api/chat/status/" + id + "?sessionId=" + url.QueryEscape(session)
}

func streamPath(session, id string) string {
	return "/api/chat/stream/" + id + "?sessionId=" + url.QueryEscape(session)
}

func receiptPath(session, id string) string {
	return "/api/chat/receipt/" + id + "?sessionId=" + url.QueryEscape(session)
}

// wellFormed checks what holds for every answer there is.
func (r reply) wellFormed(what string) {
	r.t.Helper()
	checkHeaders(r.t, what, r.header)
	if r.status >= 400 && r.header.Get("Content-Type") != "text/html; charset=utf-8" && len(r.body) > 0 {
		if got := r.header.Get("Content-Type"); got != "application/problem+json; charset=utf-8" {
			r.t.Errorf("%s: a refusal (%d) of type %q", what, r.status, got)
			return
		}
		p := r.problem()
		if p.Status != r.status || p.Code == "" || p.Type != "urn:semel:problem:"+p.Code || p.Title == "" || p.Title == chat.Title("?") || p.Detail == "" || p.Retry == "" {
			r.t.Errorf("%s: status %d with an incomplete problem: %+v", what, r.status, p)
		}
	}
}

const wantCSP = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'; trusted-types semel"

// wantFileCSP is on the files that people uploaded.
const wantFileCSP = "default-src 'none'; sandbox"

func checkHeaders(t testing.TB, what string, h http.Header) {
	t.Helper()
	csp, kept := wantCSP, strings.Contains(h.Get("Cache-Control"), "immutable")
	if strings.HasPrefix(h.Get("Content-Disposition"), "inline") {
		csp, kept = wantFileCSP, h.Get("Cache-Control") == "private, no-cache"
	}
	if _, timed := chat.IDTime(h.Get("X-Trace-Id")); !timed {
		t.Errorf("%s: X-Trace-Id %q", what, h.Get("X-Trace-Id"))
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": csp, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := h.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s: %q, want %q", what, name, got, want)
		}
	}
	if c := h.Get("Cache-Control"); !strings.Contains(c, "no-store") && !kept {
		t.Errorf("%s: Cache-Control %q", what, c)
	}
}

func (r reply) wants(status int) reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	return r
}

// refused checks that it is a problem of this status and code, and returns it.
func (r reply) refused(status int, code string) chat.Problem {
	r.t.Helper()
	p := r.wants(status).problem()
	if p.Code != code {
		r.t.Fatalf("problem %s, want %s: %s", p.Code, code, r.body)
	}
	return p
}

func (r reply) into(v any) {
	r.t.Helper()
	if err := json.Unmarshal(r.body, v); err != nil {
		r.t.Fatalf("%v in %s", err, r.body)
	}
}

func (r reply) record() (rec chat.Record) {
	r.t.Helper()
	r.into(&rec)
	return rec
}

func (r reply) problem() (p chat.Problem) {
	r.t.Helper()
	r.into(&p)
	return p
}

// has checks headers, names and values in turn; "" is absent, "*" is present.
func (r reply) has(header ...string) reply {
	r.t.Helper()
	hasHeaders(r.t, r.header, header...)
	return r
}

func hasHeaders(t testing.TB, h http.Header, header ...string) {
	t.Helper()
	for i := 0; i < len(header); i += 2 {
		got := h.Get(header[i])
		if want := header[i+1]; got != want && !(want == "*" && got != "") {
			t.Errorf("%s: %q, want %q", header[i], got, want)
		}
	}
}

// An event of a stream; a comment has only a text.
type event struct {
	name, id, data string
	comment        string
}

func (e event) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.data), v); err != nil {
		t.Fatalf("%v in event %+v", err, e)
	}
}

func (e event) text(t testing.TB) string {
	t.Helper()
	var d struct{ Text string }
	e.into(t, &d)
	return d.Text
}

// A feed is an open stream.
type feed struct {
	t   testing.TB
	res *http.Response
	in  *bufio.Reader
}

// stream opens a stream by GET or, with a body, by POST.
func (d *door) stream(path string, body any, header ...string) *feed {
	d.t.Helper()
	method := "GET"
	if body != nil {
		method = "POST"
	}
	res := d.open(method, path, body, append([]string{"Accept", "text/event-stream"}, header...)...)
	d.t.Cleanup(func() { res.Body.Close() })
	f := &feed{d.t, res, bufio.NewReader(res.Body)}
	checkHeaders(d.t, path, res.Header)
	if res.StatusCode != 200 {
		b, _ := io.ReadAll(res.Body)
		d.t.Fatalf("%s: status %d: %s", path, res.StatusCode, b)
	}
	// S66: no proxy may buffer, change or keep it.
	hasHeaders(d.t, res.Header, "Content-Type", "text/event-stream; charset=utf-8", "X-Accel-Buffering", "no",
		"Cache-Control", "no-store, no-transform", "Content-Length", "", "Content-Encoding", "")
	return f
}

func (f *feed) close() { f.res.Body.Close() }

// next returns the next event, and whether there is one: false is a clean close.
func (f *feed) next() (ev event, ok bool) {
	f.t.Helper()
	any := false
	for {
		line, err := f.in.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF) && line == "" && !any:
			return ev, false
		case err != nil:
			f.t.Fatalf("the stream broke off: %v, after %+v", err, ev)
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return ev, true
		}
		any = true
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "event":
			ev.name = value
		case "id":
			ev.id = value
		case "data":
			ev.data = value
		case "":
			ev.comment = value
		default:
			f.t.Fatalf("line %q", line)
		}
	}
}

// until reads up to the first event of this name and returns all, that one last.
func (f *feed) until(name string) (list []event) {
	f.t.Helper()
	for {
		ev, ok := f.next()
		if !ok {
			f.t.Fatalf("the stream ended without %q: %+v", name, list)
		}
		list = append(list, ev)
		if ev.name == name {
			return list
		}
	}
}

// rest reads to the end of the stream.
func (f *feed) rest() (list []event) {
	f.t.Helper()
	for {
		ev, ok := f.next()
		if !ok {
			return list
		}
		list = append(list, ev)
	}
}

// texts reads until the deltas add up to want.
func (f *feed) texts(want string) {
	f.t.Helper()
	got := ""
	for got != want {
		ev := f.until("delta")
		if got += ev[len(ev)-1].text(f.t); !strings.HasPrefix(want, got) {
			f.t.Fatalf("deltas %q, want %q", got, want)
		}
	}
}

// joined is the text of all deltas, of the last attempt.
func joined(t testing.TB, list []event) string {
	t.Helper()
	text := ""
	for _, ev := range list {
		switch ev.name {
		case "attempt":
			text = ""
		case "delta":
			text += ev.text(t)
		}
	}
	return text
}

func named(list []event, name string) (of []event) {
	for _, ev := range list {
		if ev.name == name {
			of = append(of, ev)
		}
	}
	return of
}

// only returns the one event of this name.
func only(t testing.TB, list []event, name string) event {
	t.Helper()
	of := named(list, name)
	if len(of) != 1 {
		t.Fatalf("%d events %q in %+v", len(of), name, list)
	}
	return of[0]
}

// settled waits until the request is no longer waiting.
func (d *door) settled(session, id string) chat.Record {
	d.t.Helper()
	r, err := d.db.Find(d.t.Context(), chat.Key{UserID: db.LocalUser, SessionID: session, RequestID: id})
	if err == nil {
		err = d.engine.Wait(d.t.Context(), r.ID)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return d.get(statusPath(session, id)).wants(200).record()
}

// generating waits until a call of the model is on its way.
func (d *door) generating(session, id string) {
	d.t.Helper()
	f := d.stream(streamPath(session, id), nil)
	defer f.close()
	for {
		list := f.until("state")
		if strings.Contains(list[len(list)-1].data, `"generating"`) {
			return
		}
	}
}

func newReader(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }
