package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/chat"
)

// An intent is one question of a client, with the id it keeps for ever.
type intent struct {
	session, id string
	kind        chat.Kind
	content     string
	parent      string
	model       string
}

func (in *intent) body() []byte {
	b, err := json.Marshal(map[string]any{
		"sessionId": in.session, "requestId": in.id, "kind": in.kind, "content": in.content, "parentId": in.parent, "model": in.model,
	})
	if err != nil {
		panic(err) // strings
	}
	return b
}

func (in *intent) url(what string) string {
	return "/api/chat/" + what + "/" + in.id + "?sessionId=" + in.session
}

// A told is what one answer of the server says about a request.
type told struct {
	HTTP      int
	Header    http.Header     `json:"-"`
	State     chat.State      `json:"state"`
	Attempt   int64           `json:"attempt"`
	Content   string          `json:"content"`
	FromCache bool            `json:"fromCache"`
	Message   json.RawMessage `json:"message"`
	Code      string          `json:"code"`  // of a problem
	Retry     chat.Retry      `json:"retry"` // of a problem
	Error     *chat.Problem   `json:"error"` // of a record
}

// accepted reports whether the server has said that it has the question.
func (a *told) accepted() bool { return a.State != "" }

// digest is the SHA-256 of the message object, byte for byte; "" without one.
func (a *told) digest() string {
	if a.Message == nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(a.Message))
}

func (a *told) messageID(t testing.TB) string {
	var m chat.RecordMessage
	if err := json.Unmarshal(a.Message, &m); err != nil {
		t.Errorf("message %s: %v", a.Message, err)
	}
	return m.ID
}

// A note is a line of the journal: what a client was told, and between which two
// moments that was true.
type note struct {
	began, ended time.Duration
	what         string
	http         int
	state        chat.State
	attempt      int64
	accepted     bool
	message      string // SHA-256 of the bytes of the message object, "" when there was none
	code         string
}

func (n note) String() string {
	return fmt.Sprintf("%9.3f–%9.3f s %-12s %3d %-12s attempt %d %.12s %s", n.began.Seconds(), n.ended.Seconds(), n.what, n.http, n.state, n.attempt, n.message, n.code)
}

// A world is clients, their journal, and the one file that is served to them by
// one life after the other.
type world struct {
	t     testing.TB
	start time.Time
	over  chan struct{} // closed when the test gives up

	mu      sync.Mutex
	life    *life
	arrived chan struct{} // closed while there is a life
	intents []*intent
	notes   map[*intent][]note
	asked   map[*intent]time.Duration // when it was sent for the first time, heard or not
	retried map[*intent]bool          // somebody pressed Retry, heard or not
}

func newWorld(t testing.TB) *world {
	return &world{
		t: t, start: time.Now(), over: make(chan struct{}), arrived: make(chan struct{}),
		notes: map[*intent][]note{}, asked: map[*intent]time.Duration{}, retried: map[*intent]bool{},
	}
}

// isOver reports whether the test has given up.
func (w *world) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// begin lets clients talk to l; end takes it away from them.
func (w *world) begin(l *life) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.life = l
	close(w.arrived)
}

func (w *world) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life != nil {
		w.life, w.arrived = nil, make(chan struct{})
	}
}

// current waits for a life; nil when the test is over.
func (w *world) current() *life {
	for !w.isOver() {
		w.mu.Lock()
		l, arrived := w.life, w.arrived
		w.mu.Unlock()
		if l != nil {
			return l
		}
		select {
		case <-arrived:
		case <-w.over:
		}
	}
	return nil
}

func (w *world) newIntent(in intent) *intent {
	in.id = chat.NewID()
	if in.kind == "" {
		in.kind = chat.KindMessage
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intents = append(w.intents, &in)
	return &in
}

// call sends one HTTP request about an intent to whoever serves now and writes
// down what it was told. It returns nil when nobody answered.
func (w *world) call(in *intent, what, method, path string, body []byte, header ...string) *told {
	l := w.current()
	if l == nil {
		return nil
	}
	began := w.now(in)
	res, err := w.send(l, method, path, body, header...)
	if err != nil {
		return nil
	}
	b, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil
	}
	a := &told{HTTP: res.StatusCode, Header: res.Header}
	w.read(in, what, a, b)
	if a.State == chat.StateFailed && a.Error == nil { // a problem: its attempt is in the header
		a.Attempt, err = strconv.ParseInt(res.Header.Get("X-Attempt"), 10, 64)
		if err != nil {
			w.t.Errorf("%s %s: X-Attempt: %v", what, in.id, err)
		}
	}
	w.note(in, what, began, a)
	return a
}

// now is the time on the journal's clock, at which something is sent about in.
func (w *world) now(in *intent) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.start)
	if _, ok := w.asked[in]; !ok {
		w.asked[in] = now
	}
	return now
}

func (w *world) send(l *life, method, path string, body []byte, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(l.ctx, method, l.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return l.http.Do(req)
}

// read decodes a record or a problem; their members do not collide but for
// status, which is not read.
func (w *world) read(in *intent, what string, a *told, b []byte) {
	if err := json.Unmarshal(b, a); err != nil {
		w.t.Errorf("%s %s: HTTP %d, %v: %.200s", what, in.id, a.HTTP, err, b)
	}
	if string(a.Message) == "null" {
		a.Message = nil
	}
}

func (w *world) note(in *intent, what string, began time.Duration, a *told) {
	n := note{
		began: began, ended: time.Since(w.start), what: what, http: a.HTTP, state: a.State, attempt: a.Attempt,
		accepted: a.accepted(), message: a.digest(), code: a.Code,
	}
	if a.Error != nil {
		n.code = a.Error.Code
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[in] = append(w.notes[in], n)
}

// acceptedNote writes down that a stream began: the question is accepted, its
// state is not said.
func (w *world) acceptedNote(in *intent, began time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[in] = append(w.notes[in], note{began: began, ended: time.Since(w.start), what: "stream began", http: http.StatusOK, accepted: true})
}

// journal is everything clients were told about in, for a message of a test.
func (w *world) journal(in *intent) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %q model %q", in.session, in.id, in.kind, in.content, in.model)
	for _, n := range w.notes[in] {
		fmt.Fprintf(&b, "\n  %s", n)
	}
	return b.String()
}

// post asks and waits for the answer as long as seconds say.
func (w *world) post(in *intent, seconds int) *told {
	return w.call(in, "post", http.MethodPost, "/api/chat", in.body(), "Prefer", fmt.Sprintf("wait=%d", seconds))
}

func (w *world) status(in *intent) *told {
	return w.call(in, "status", http.MethodGet, in.url("status"), nil)
}

func (w *world) stop(in *intent, attempt int64) *told {
	return w.call(in, "stop", http.MethodPost, "/api/chat/stop/"+in.id,
		fmt.Appendf(nil, `{"sessionId":%q,"attempt":%d}`, in.session, attempt))
}

func (w *world) retry(in *intent, attempt int64, seconds int) *told {
	w.mu.Lock()
	w.retried[in] = true
	w.mu.Unlock()
	return w.call(in, "retry", http.MethodPost, "/api/chat/retry/"+in.id,
		fmt.Appendf(nil, `{"sessionId":%q,"attempt":%d}`, in.session, attempt), "Prefer", fmt.Sprintf("wait=%d", seconds))
}

// A reader follows the stream of one intent from life to life.
type reader struct {
	w       *world
	in      *intent
	last    string // event id
	attempt int64
	text    []byte // of that attempt
	cut     bool   // it was cut at least once
}

// follow returns what the stream ended with. Cut streams are resumed where they
// were; when the test is over it returns nil.
func (r *reader) follow() *told {
	for {
		l := r.w.current()
		if l == nil {
			return nil
		}
		began := r.w.now(r.in)
		var res *http.Response
		var err error
		if r.last == "" {
			res, err = r.w.send(l, http.MethodPost, "/api/chat", r.in.body(), "Accept", "text/event-stream")
		} else {
			res, err = r.w.send(l, http.MethodGet, r.in.url("stream"), nil, "Last-Event-ID", r.last)
		}
		if err == nil {
			a := r.read(res, began)
			_ = res.Body.Close() // the process may be gone
			if a != nil {
				return a
			}
		}
		r.cut = true
	}
}

// read returns the end of the stream, nil when it is cut.
func (r *reader) read(res *http.Response, began time.Duration) *told {
	if res.StatusCode != http.StatusOK {
		b, err := io.ReadAll(res.Body)
		if err == nil {
			a := &told{HTTP: res.StatusCode, Header: res.Header}
			r.w.read(r.in, "stream", a, b)
			r.w.note(r.in, "stream", began, a)
			return a
		}
		return nil
	}
	s := bufio.NewScanner(res.Body)
	s.Buffer(nil, 1<<20)
	var event, id string
	var data []byte
	for s.Scan() {
		name, value, _ := strings.Cut(s.Text(), ": ")
		switch name {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			data = []byte(value)
		case "":
			if value != "" || event == "" {
				continue // a comment
			}
			if id != "" {
				r.last = id
			}
			if a := r.take(event, id, data, began); a != nil {
				return a
			}
			event, id, data = "", "", nil
		}
	}
	return nil
}

// take handles one event and returns what the stream ends with.
func (r *reader) take(event, id string, data []byte, began time.Duration) *told {
	var d struct {
		Text    string `json:"text"`
		Attempt int64  `json:"attempt"`
	}
	a := &told{HTTP: http.StatusOK}
	switch event {
	case "accepted", "attempt", "delta":
		if err := json.Unmarshal(data, &d); err != nil {
			r.w.t.Errorf("stream %s: %s %s: %v", r.in.id, event, data, err)
		}
		switch event {
		case "accepted":
			r.w.acceptedNote(r.in, began)
		case "attempt":
			r.attempt, r.text = d.Attempt, nil
		default:
			r.text = append(r.text, d.Text...)
		}
		return nil
	case "end":
		r.w.read(r.in, "stream", a, data)
		stopped := bytes.Contains(a.Message, []byte(`"finish":"stopped"`))
		// What a killed process had sent of a stopped answer and not stored is gone.
		if a.Attempt == r.attempt && !(r.cut && stopped) && string(r.text) != a.Content {
			r.w.t.Errorf("the pieces of attempt %d of %s are %q, and the answer is %q", a.Attempt, r.in.id, r.text, a.Content)
		}
	case "error":
		r.w.read(r.in, "stream", a, data)
		attempt, _, _ := strings.Cut(id, ".")
		var err error
		if a.Attempt, err = strconv.ParseInt(attempt, 10, 64); err != nil {
			r.w.t.Errorf("stream %s: the id of an error is %q", r.in.id, id)
		}
	default:
		return nil
	}
	r.w.note(r.in, "stream", began, a)
	return a
}

// A client is a person who asks, loses the line, asks again, stops and retries.
type client struct {
	*world
	rng    *rand.Rand
	shared func() string // a conversation that others use, too
	own    string
	answer string // the last message of own, "" when there is none
}

// scripts are questions with what they do to the demo model, by weight in a
// hundred, and whether their client stops them.
var scripts = []struct {
	weight  int
	content string
	stop    bool
}{
	{14, "Be quick. [[tokens 20]] [[rate 0]]", false},
	{8, "[[echo Exactly this.]]", false},
	{12, "Take half a second. [[tokens 40]] [[rate 90]]", false},
	{10, "Take your time. [[tokens 150]] [[rate 80]]", false},
	{8, "Think first. [[wait 300]] [[tokens 10]] [[rate 0]]", false},
	{14, "Be busy once. [[fail 503 once]] [[tokens 12]] [[rate 0]]", false},
	{3, "Be busy. [[fail 503]]", false},
	{4, "Break once. [[fail 500 once]] [[tokens 12]] [[rate 0]]", false},
	{3, "Be wrong. [[fail 400]]", false},
	{8, "Lose the line once. [[cut 12 once]] [[tokens 30]] [[rate 100]]", false},
	{2, "Refuse this. [[refuse]]", false},
	{6, "Say nothing. [[hang]]", true},
	{8, "Go on for long. [[tokens 400]] [[rate 200]]", true},
}

// live asks one question after the other until enough is closed.
func (c *client) live(enough <-chan struct{}) {
	for !c.isOver() {
		select {
		case <-enough:
			return
		default:
			c.askOne()
		}
	}
}

func (c *client) askOne() {
	in := intent{session: c.own}
	if c.own == "" || c.rng.IntN(6) == 0 {
		c.own, c.answer = chat.NewID(), ""
		in.session = c.own
	}
	own := true
	if c.rng.IntN(4) == 0 {
		in.session, own = c.shared(), false
	}
	if c.rng.IntN(5) == 0 {
		in.model = "ask"
	}
	pick := c.rng.IntN(100)
	s := scripts[0]
	for _, x := range scripts {
		if pick -= x.weight; pick < 0 {
			s = x
			break
		}
	}
	in.content = s.content
	if own && c.answer != "" && c.rng.IntN(4) == 0 {
		in.parent = c.answer
		in.kind = []chat.Kind{chat.KindRegenerate, chat.KindEdit, chat.KindContinue}[c.rng.IntN(3)]
		if in.kind != chat.KindEdit {
			in.content = ""
		}
	}
	if a := c.pursue(c.newIntent(in), s.stop); a != nil && a.Message != nil && own {
		c.answer = a.messageID(c.t)
	}
}

// pursue sees to it that in gets its answer, or a failure that this client takes
// as final. It returns the last it was told; nil when it gave up listening.
func (c *client) pursue(in *intent, stop bool) *told {
	switch c.rng.IntN(8) {
	case 0: // a closed tab: somebody asks at the end
		c.post(in, 0)
		return nil
	case 1, 2: // several at once, by any way
		var all sync.WaitGroup
		for range 2 + c.rng.IntN(4) {
			way := c.rng.IntN(3)
			all.Go(func() { c.once(in, way) })
		}
		if stop {
			all.Go(func() { c.stopSoon(in, 0) })
		}
		all.Wait()
	}
	for restarts := 0; !c.isOver(); {
		way := c.rng.IntN(3)
		if stop {
			way = 1
			c.stopSoon(in, c.rng.IntN(8))
		}
		switch a := c.once(in, way); {
		case a == nil || a.State.Live():
			// Nobody answered, or it takes longer: again with the same id.
		case !a.accepted():
			c.t.Errorf("the first answer is no acceptance: HTTP %d %s\n%s", a.HTTP, a.Code, c.journal(in))
			return nil
		case a.State.Answered():
			c.afterwards(in)
			return a
		default:
			if restarts++; restarts > 2 || c.rng.IntN(3) == 0 {
				return a
			}
			c.again(in, a)
		}
	}
	return nil
}

// once asks in one of three ways and returns the last it was told.
func (c *client) once(in *intent, way int) *told {
	switch way {
	case 0:
		return c.post(in, 2)
	case 1:
		a := c.post(in, 0)
		for range 100 {
			if a == nil || !a.State.Live() {
				break
			}
			c.pause(20 * time.Millisecond)
			a = c.status(in)
		}
		return a
	}
	return (&reader{w: c.world, in: in}).follow()
}

// pause waits between two looks.
func (c *client) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.over:
	}
}

// stopSoon stops a question after a few looks at it.
func (c *client) stopSoon(in *intent, looks int) {
	a := c.post(in, 0)
	for ; looks > 0 && a != nil && a.State.Live(); looks-- {
		c.pause(20 * time.Millisecond)
		a = c.status(in)
	}
	if a != nil {
		c.stop(in, a.Attempt)
	}
}

// again is what a person does about a failure: a plain repeat where that starts
// it anew, else a repeat that must change nothing, and then the button.
func (c *client) again(in *intent, failed *told) {
	p := problemIn(failed)
	if p == chat.RetryAuto {
		c.post(in, 1)
		return
	}
	if a := c.post(in, 0); a != nil && (a.State != chat.StateFailed || a.Attempt != failed.Attempt || a.Header.Get("X-Idempotent-Replayed") != "true") {
		c.t.Errorf("a plain repeat of a failure that a person decides about is answered with %s, attempt %d\n%s", a.State, a.Attempt, c.journal(in))
	}
	var tabs sync.WaitGroup
	for range 1 + c.rng.IntN(2) {
		tabs.Go(func() { c.retry(in, failed.Attempt, 1) })
	}
	tabs.Wait()
}

func problemIn(a *told) chat.Retry {
	if a.Error != nil {
		return a.Error.Retry
	}
	return a.Retry
}

// afterwards asks sometimes again for what is answered, and once in a while for
// something else under the same id.
func (c *client) afterwards(in *intent) {
	switch c.rng.IntN(8) {
	case 0, 1:
		a := c.post(in, 0)
		if a != nil && (a.HTTP != http.StatusOK || !a.FromCache || a.Header.Get("X-Idempotent-Replayed") != "true") {
			c.t.Errorf("a repeat of an answered question is answered with %d, fromCache %v, %v\n%s", a.HTTP, a.FromCache, a.Header, c.journal(in))
		}
	case 2:
		other := *in
		other.kind, other.content, other.parent = chat.KindMessage, "Something else.", ""
		a := c.call(in, "other words", http.MethodPost, "/api/chat", other.body())
		if a != nil && (a.HTTP != http.StatusUnprocessableEntity || a.Code != "key_reused") {
			c.t.Errorf("other words under an answered id are answered with %d %s\n%s", a.HTTP, a.Code, c.journal(in))
		}
	}
}
