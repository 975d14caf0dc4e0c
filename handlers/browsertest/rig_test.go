package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
	"semel/ops"
	"semel/views"
)

// A server is what a browser may talk to, through a proxy.
type server struct {
	t     *testing.T
	proxy *proxy
	url   string // of the proxy
}

// get asks the server itself, past the proxy.
func (s *server) get(path string, v any) (status int) {
	s.t.Helper()
	return s.api(http.MethodGet, path, nil, v)
}

func (s *server) api(method, path string, body, v any) (status int) {
	s.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.proxy.backend.Load().(string)+path, strings.NewReader(string(b)))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	b, err = io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if v != nil && res.StatusCode < 300 {
		if err := json.Unmarshal(b, v); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, b)
		}
	}
	return res.StatusCode
}

// ask puts a question past the browser and waits for its answer.
func (s *server) ask(session, content string) (id string) {
	s.t.Helper()
	id = chat.NewID()
	if status := s.api(http.MethodPost, "/api/chat", map[string]string{"sessionId": session, "requestId": id, "content": content}, nil); status != http.StatusOK {
		s.t.Fatalf("ask %q: got %d, want 200", content, status)
	}
	return id
}

// A thread is GET /api/conversations/{id} as far as a page shows it.
type thread struct {
	Title    string
	Messages []struct {
		Role, RequestID, Content, Finish string
		Seq                              int64
	}
	Requests []struct {
		RequestID, State, Content string
		Error                     *chat.Problem
	}
}

// shown is what a page must show of a conversation.
func (t thread) shown() (list []article) {
	for _, m := range t.Messages {
		a := article{Role: m.Role, Request: m.RequestID, Seq: fmt.Sprint(m.Seq)}
		if m.Role == "assistant" {
			a.HTML = normal(views.Markdown(m.Content))
			if m.Finish == "stopped" {
				a.Partial = "stopped"
			}
			list = append(list, a)
			continue
		}
		a.Text, a.Mark = m.Content, "answered"
		list = append(list, a)
		for _, r := range t.Requests {
			if r.RequestID != m.RequestID {
				continue
			}
			asked := &list[len(list)-1]
			asked.Mark = "received"
			if r.State == "generating" {
				asked.Mark = "answering"
			}
			partial := ""
			if r.Error != nil {
				asked.Mark, partial = "failed", "interrupted"
				if r.Error.Outcome == chat.OutcomeUnknown {
					asked.Mark = "unknown"
				}
				if r.Error.Code == "stopped" {
					partial = "stopped"
				}
			}
			if r.Content != "" {
				list = append(list, article{Role: "assistant", Request: m.RequestID, HTML: normal(views.Markdown(r.Content)), Partial: partial})
			}
		}
	}
	return list
}

// normal is HTML as one writer would write it.
func normal(s string) string {
	nodes, err := html.ParseFragment(strings.NewReader(s), &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div})
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, n := range nodes {
		if err := html.Render(&b, n); err != nil {
			return err.Error()
		}
	}
	return strings.TrimSpace(b.String())
}

// same waits until every tab shows what the server says its conversation holds,
// and has nothing left to send.
func (s *server) same(tabs ...*tab) {
	s.t.Helper()
	for _, tb := range tabs {
		diff := ""
		holds := func() bool {
			diff = s.differ(tb)
			return diff == ""
		}
		for deadline := time.Now().Add(*patience); !holds(); time.Sleep(25 * time.Millisecond) {
			if time.Now().After(deadline) {
				s.t.Fatalf("the page does not show what the database holds: %s", diff)
			}
		}
		tb.silent()
	}
}

// differ says how a page differs from the database, "" when it does not.
func (s *server) differ(tb *tab) string {
	var t thread
	session := tb.session()
	if status := s.get("/api/conversations/"+session, &t); status != http.StatusOK && status != http.StatusNotFound {
		return fmt.Sprintf("conversation %s: status %d", session, status)
	}
	want := t.shown()
	got, err := tb.articles()
	if err != nil {
		return err.Error()
	}
	for i := range got {
		a := &got[i]
		if a.Streaming {
			return "an answer still streams"
		}
		if i < len(want) && a.Seq == "" { // a message made in the page has no number until it is rendered anew
			want[i].Seq = ""
		}
		a.State = ""
		if a.Role == "assistant" {
			a.HTML, a.Text, a.Mark = normal(a.HTML), "", ""
		} else {
			a.HTML = ""
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Sprintf("\n got %+v\nwant %+v", got, want)
	}
	var page struct {
		Title, Link string
		Stop        bool
		Outbox      []string
	}
	if err := tb.eval(`({Title: document.querySelector('#title').textContent, Link: document.querySelector('#conversations [aria-current=page]')?.textContent.trim() ?? '',
		Stop: !document.querySelector('#stop').hidden, Outbox: Object.keys(localStorage).filter((k) => k.startsWith('semel.outbox.'))})`, &page); err != nil {
		return err.Error()
	}
	switch {
	case len(page.Outbox) > 0:
		return fmt.Sprintf("left to send: %v", page.Outbox)
	case page.Stop:
		return "there is something to stop"
	case len(want) > 0 && (page.Title != t.Title || page.Link != t.Title):
		return fmt.Sprintf("title %q, link %q, want %q", page.Title, page.Link, t.Title)
	}
	return ""
}

// reads fails the test unless the tab shows exactly these messages, a question
// as "? text" and an answer as "! text"; "! *" is any answer that is not empty.
func (tb *tab) reads(want ...string) {
	tb.t.Helper()
	list, err := tb.articles()
	if err != nil {
		tb.t.Fatal(err)
	}
	var got []string
	for i, a := range list {
		s := "? " + a.Text
		if a.Role == "assistant" {
			s = "! " + strings.TrimSpace(a.Text)
			if i < len(want) && want[i] == "! *" && s != "! " {
				s = "! *"
			}
		}
		got = append(got, s)
	}
	if !slices.Equal(got, want) {
		tb.t.Fatalf("the page reads\n%q, want\n%q", got, want)
	}
}

// The rig

// A rig is the real server in this process: a file, the engine, the handlers, a
// listener.
type rig struct {
	server
	db      *db.DB
	engine  *engine.Engine
	model   *model
	handler *handlers.Server
	before  map[string]int // attempts by request that a backup had, of another rig's model
	stop    func()         // ends the server, once; the test's end does it, too
}

// newRig starts a server of its own for a test, beside those of other tests.
func newRig(t *testing.T, change ...func(*engine.Options, *handlers.Options)) *rig {
	t.Helper()
	t.Parallel()
	return openRig(t, dbtest.Open(t), change...)
}

// openRig starts a server over a file.
func openRig(t *testing.T, d *db.DB, change ...func(*engine.Options, *handlers.Options)) *rig {
	t.Helper()
	m := newModel()
	eo := engine.Options{DB: d, Models: []engine.Model{{Name: "demo", Client: m, Price: dbtest.DemoPrice, Rerun: true, FirstTokenTimeout: time.Hour, IdleTimeout: time.Hour}}} // a test may hold an answer long
	ho := handlers.Options{DB: d, MessageBytes: 20_000, Language: "auto"}
	for _, c := range change {
		c(&eo, &ho)
	}
	eo.Meter = ops.NewMeter()
	monitor, err := ops.New(t.Context(), ops.Options{DB: d, Meter: eo.Meter})
	if err != nil {
		t.Fatal(err)
	}
	ho.Ops = monitor
	e, err := engine.New(eo)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ho.Engine, ho.Catalog = e, openCatalog(t, d, e)
	h := handlers.New(ho)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(listener) // ends with Close
	}()
	stop := sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		e.Drain(ctx)
		h.Close()
		_ = srv.Close()
		<-served
	})
	t.Cleanup(stop)
	p := newProxy(t, listener.Addr().String())
	return &rig{server{t, p, "http://" + p.addr}, d, e, m, h, nil, stop}
}

// A model is the built-in one, watched and held: how far answers grow is decided
// by the test and not by time.
type model struct {
	demo   *llm.Demo
	mu     sync.Mutex
	calls  []*watched    // under mu
	limit  int           // under mu; bytes that an answer may have
	raised chan struct{} // under mu; closed when limit changes
}

func newModel() *model {
	return &model{demo: llm.NewDemo(), limit: whole, raised: make(chan struct{})}
}

// A watched call is one call to the model. Its fields are under model.mu.
type watched struct {
	llm.Call
	emitted   int // bytes of text
	text      string
	held      bool // all that was let through is with the engine
	ended     time.Time
	cancelled bool // before it ended
}

// whole is no limit.
const whole = 1 << 30

// upTo lets answers grow to about n bytes and holds them there.
func (m *model) upTo(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = n
	close(m.raised)
	m.raised = make(chan struct{})
}

// Stream implements [llm.Client].
func (m *model) Stream(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	w := &watched{Call: c}
	note := func(f func()) {
		m.mu.Lock()
		defer m.mu.Unlock()
		f()
	}
	note(func() { m.calls = append(m.calls, w) })
	defer note(func() { w.ended, w.cancelled = time.Now(), ctx.Err() != nil })
	a, err := m.demo.Stream(ctx, c, func(p llm.Piece) {
		for _, word := range strings.SplitAfter(p.Text, " ") {
			if !m.mayGrow(ctx, w, word) {
				return
			}
			emit(llm.Piece{Text: word})
		}
	})
	if ctx.Err() != nil {
		return llm.Answer{}, ctx.Err() // words may be missing
	}
	return a, err
}

// mayGrow waits until an answer may have a word more; not, when ctx ends.
func (m *model) mayGrow(ctx context.Context, w *watched, word string) bool {
	for {
		m.mu.Lock()
		grows, raised := w.emitted < m.limit, m.raised
		w.held = !grows
		if grows {
			w.emitted += len(word)
			w.text += word
		}
		m.mu.Unlock()
		if grows {
			return true
		}
		select {
		case <-raised:
		case <-ctx.Done():
			return false
		}
	}
}

// of returns the calls of one request as they stand.
func (m *model) of(id string) (list []watched) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.calls {
		if w.RequestID == id {
			list = append(list, *w)
		}
	}
	return list
}

// level waits until the model is held and a page shows all that it wrote of an answer,
// and returns that: until then the text on the page grows by what is on its way.
func (r *rig) level(tb *tab, id string) (text string) {
	r.t.Helper()
	until(r.t, "the model is held", func() (held bool) {
		text, held = r.model.holds(id)
		return held
	})
	got, want := "", letters(views.Markdown(text))
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the page shows\n%s, the model wrote\n%s", got, want)
		}
	}()
	until(r.t, "the page shows what the model wrote", func() bool {
		list, err := tb.articles()
		if i := slices.IndexFunc(list, func(a article) bool { return a.Role == "assistant" && a.Request == id }); err == nil && i >= 0 {
			got = letters(list[i].HTML)
		}
		return got == want
	})
	return text
}

// letters is the text of HTML, without white space.
func letters(s string) string {
	var b strings.Builder
	for z := html.NewTokenizer(strings.NewReader(s)); ; {
		switch z.Next() {
		case html.ErrorToken:
			return strings.Join(strings.Fields(b.String()), "")
		case html.TextToken:
			b.Write(z.Text())
		}
	}
}

// holds returns what was written of the last answer to a request, when no more of it
// will come before the limit is raised.
func (m *model) holds(id string) (text string, held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.calls {
		if w.RequestID == id {
			text, held = w.text, w.held && w.emitted >= m.limit
		}
	}
	return text, held
}

func (m *model) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls)
}

// check is what holds after every scenario: nothing is unfinished, every
// invariant holds, each id has one question and at most one answer and one
// charge, the model was called as often as attempts say and calls in all, and
// every tab shows what the database holds.
func (r *rig) check(calls int, tabs ...*tab) {
	r.t.Helper()
	until(r.t, "nothing is unfinished", func() bool {
		list, err := r.db.Unfinished(r.t.Context())
		return err == nil && len(list) == 0
	})
	r.same(tabs...)
	checkFile(r.t, r.db, func(id string, attempts int) {
		if got := len(r.model.of(id)) + r.before[id]; got != attempts {
			r.t.Errorf("request %s: the model was called %d times, %d attempts are on record", id, got, attempts)
		}
	})
	if got := r.model.count(); got != calls {
		r.t.Errorf("model calls: got %d, want %d", got, calls)
	}
}

// checkFile checks every request of a database; each is told of its attempts.
func checkFile(t *testing.T, d *db.DB, each func(id string, attempts int)) {
	t.Helper()
	dbtest.Check(t, d)
	ctx := t.Context()
	conversations, _, err := d.Conversations(ctx, db.LocalUser, db.List{Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conversations {
		th, err := d.Thread(ctx, db.LocalUser, c.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, m := range th.Messages {
			seen[m.Role+" "+m.RequestID]++
			if n := seen[m.Role+" "+m.RequestID]; n > 1 {
				t.Errorf("request %s has %d messages of the %s", m.RequestID, n, m.Role)
			}
			if m.Role != "user" {
				continue
			}
			rc, err := d.Receipt(ctx, chat.Key{UserID: db.LocalUser, SessionID: c.SessionID, RequestID: m.RequestID})
			if err != nil {
				t.Fatal(err)
			}
			charges := 0
			for _, l := range rc.Ledger {
				if l.Kind == "charge" {
					charges++
				}
			}
			if want := map[bool]int{true: 1}[rc.Request.State.Answered()]; charges != want {
				t.Errorf("request %s is %s with %d charges", m.RequestID, rc.Request.State, charges)
			}
			each(m.RequestID, len(rc.Attempts))
		}
	}
}

// receipt returns everything about a request, every arrival so far included.
func (r *rig) receipt(session, id string) db.Receipt {
	r.t.Helper()
	if err := r.engine.FlushArrivals(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	rc, err := r.db.Receipt(r.t.Context(), chat.Key{UserID: db.LocalUser, SessionID: session, RequestID: id})
	if err != nil {
		r.t.Fatal(err)
	}
	return rc
}

// decisions counts what was done with the arrivals of a request.
func (r *rig) decisions(session, id string) map[chat.Decision]int {
	r.t.Helper()
	n := map[chat.Decision]int{}
	for _, a := range r.receipt(session, id).Arrivals {
		n[a.Decision]++
	}
	return n
}

// accepted returns how many questions the database holds.
func (r *rig) accepted() (n int) {
	r.t.Helper()
	conversations, _, err := r.db.Conversations(r.t.Context(), db.LocalUser, db.List{Limit: 200})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range conversations {
		th, err := r.db.Thread(r.t.Context(), db.LocalUser, c.SessionID)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, m := range th.Messages {
			if m.Role == "user" {
				n++
			}
		}
	}
	return n
}
