package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"semel/chat"
	"semel/sink"
)

// Price is what the model costs: that of the built-in one, which nobody pays.
var Price = chat.Price{Input: 150_000, Cached: 75_000, Output: 600_000}

// A lane is one application with everything around it.
type lane struct {
	name   Lane
	file   string // its database
	dir    string
	args   []string // of its child
	lab    *Lab
	ctx    context.Context // of the run: children end with it
	seed   uint64
	secret string

	child    *child
	proxy    *proxy
	provider *provider
	sink     *sink.Sink
	sinkSrv  *httptest.Server
	gate     *gate
	http     *http.Client

	clicks   []*click
	flying   sync.WaitGroup  // questions that a step left under way
	last     Board           // as it was read last
	held     *hold           // the call of the model that a step has stopped
	verdicts int             // that the third party gives about each effect
	heard    map[string]bool // effects by webhook-id whose verdicts were all given
}

// A click is one intent of the user: what its browser has kept, to send it again.
type click struct {
	name    string
	session string
	id      string // of the request
	words   string
	sent    atomic.Int64 // how often, so far
	queued  bool         // it is a message of a queue, and not acknowledged
	gone    bool         // its conversation was deleted
}

// open makes a lane in dir and starts its application.
func (l *Lab) open(ctx context.Context, name Lane, dir string, seed uint64) (_ *lane, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	key := sha256.Sum256(strconv.AppendUint([]byte("the secret of a lab "), seed, 10))
	n := &lane{
		name: name, dir: dir, lab: l, ctx: ctx, seed: seed, secret: "whsec_" + base64.StdEncoding.EncodeToString(key[:]),
		proxy: newProxy(), provider: newProvider(seed), verdicts: 1, heard: map[string]bool{},
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, MaxConnsPerHost: 200}},
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	n.sink, err = sink.New(sink.Options{
		Secrets: []string{n.secret}, Callback: n.proxy.srv.URL, Behaviour: sink.DefaultBehaviour(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	n.gate = &gate{next: n.sink.Handler()}
	n.sinkSrv = httptest.NewServer(n.gate)
	switch name {
	case Naive:
		n.file = filepath.Join(dir, "naive.jsonl")
		n.args = []string{"lab-naive", "--file", n.file, "--model", n.provider.url(), "--sink", n.sinkSrv.URL, "--secret", n.secret}
	case Semel:
		n.proxy.rewrite = l.o.rewrite
		n.file = filepath.Join(dir, "semel.db")
		config := filepath.Join(dir, "semel.toml")
		if err := os.WriteFile(config, []byte(n.config()), 0o600); err != nil {
			return nil, err
		}
		n.args = []string{"serve", "--db", n.file, "--config", config, "--listen", "127.0.0.1:0"}
	}
	return n, n.start()
}

// config is that of the right lane. Limits that are for the many users of a real server
// are out of the way, and what waits between tries is short.
func (n *lane) config() string {
	return fmt.Sprintf(`
[limits]
per_user_per_minute = 0
running_per_user = 0

[[models]]
name = "demo"
provider = "openai"
url = %[1]q
price = { input = %[2]d, cached = %[3]d, output = %[4]d }
on_unknown = "rerun"

[[actions]]
name = "sign_contract"
description = "Have a contract signed"
parameters = '''{"type":"object","required":["title","party"],"properties":{"title":{"type":"string"},"party":{"type":"string"}},"additionalProperties":false}'''
approval = "auto"
await_callback = true
destination = { kind = "webhook", url = "%[5]s/sign", secrets = [%[6]q], allow = ["127.0.0.0/8"], backoff = "5ms", max_attempts = 100 }
compensate = { kind = "webhook", url = "%[5]s/void", secrets = [%[6]q], allow = ["127.0.0.0/8"], backoff = "5ms", max_attempts = 100 }
`, n.provider.url(), Price.Input, Price.Cached, Price.Output, n.sinkSrv.URL, n.secret)
}

func (n *lane) start() (err error) {
	if n.child, err = startChild(n.ctx, n.lab.o.Binary, n.dir, n.lab.o.Output, n.args...); err != nil {
		return err
	}
	n.proxy.setUpstream(n.child.address)
	return nil
}

func (n *lane) kill() {
	n.proxy.setUpstream("")
	if n.child != nil {
		n.child.kill()
	}
}

func (n *lane) close() {
	n.kill()
	n.proxy.releaseCallbacks()
	n.provider.release()
	if n.gate != nil {
		n.gate.release()
	}
	n.flying.Wait()
	n.provider.close()
	if n.sinkSrv != nil {
		n.sink.Close()
		n.sinkSrv.CloseClientConnections()
		n.sinkSrv.Close()
	}
	n.proxy.close()
	n.http.CloseIdleConnections()
}

// random is the source of chance of one step: the same in both lanes.
func (n *lane) random(step int) *rand.Rand {
	return rand.New(rand.NewPCG(n.seed, uint64(step)))
}

// The client

// A reply is what the client saw.
type reply struct {
	lost     bool // none that it could read
	status   int
	replayed bool
	joined   bool
	code     string // of a problem
	date     time.Time
}

// ask sends one request and reads the reply.
func (n *lane) ask(method, path string, body any) (r reply, b []byte, err error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return r, nil, err
	}
	req, err := http.NewRequestWithContext(n.ctx, method, n.proxy.srv.URL+path, bytes.NewReader(raw))
	if err != nil {
		return r, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Prefer", "wait=60") // the answer, not the address at which it will be
	res, err := n.http.Do(req)
	if err != nil {
		return reply{lost: true}, nil, n.ctx.Err()
	}
	b, err = io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return reply{lost: true}, nil, n.ctx.Err()
	}
	r = reply{
		status: res.StatusCode, replayed: res.Header.Get("X-Idempotent-Replayed") != "", joined: res.Header.Get("X-Idempotent-Joined") != "",
	}
	r.date, _ = http.ParseTime(res.Header.Get("Date")) // zero where there is none
	var p chat.Problem
	if r.status >= 400 && json.Unmarshal(b, &p) == nil {
		r.code = p.Code
	}
	return r, b, nil
}

// get reads v from the application, beside what is counted.
func (n *lane) get(path string, v any) error {
	r, b, err := n.ask(http.MethodGet, path, nil)
	switch {
	case err != nil:
		return err
	case r.lost:
		return fmt.Errorf("GET %s: no answer", path)
	case r.status != http.StatusOK:
		return fmt.Errorf("GET %s: status %d: %s", path, r.status, b)
	}
	return json.Unmarshal(b, v)
}

// question is the body of a click, with other words where they are not "".
func (c *click) question(words string) map[string]any {
	if words == "" {
		words = c.words
	}
	return map[string]any{"sessionId": c.session, "requestId": c.id, "content": words}
}

// send sends a click, or sends it again.
func (n *lane) send(c *click, words string) (reply, error) {
	c.sent.Add(1)
	r, _, err := n.ask(http.MethodPost, "/api/chat", c.question(words))
	return r, err
}

func (n *lane) click(name string) (*click, error) {
	i := slices.IndexFunc(n.clicks, func(c *click) bool { return c.name == name })
	if i < 0 {
		return nil, fmt.Errorf("nobody clicked %q", name)
	}
	return n.clicks[i], nil
}

// The board

func (n *lane) board(ctx context.Context) (b Board, err error) {
	b.Clicks, b.Arrivals = len(n.clicks), n.proxy.arrived()
	b.Calls, b.Tokens = n.provider.counted()
	for _, e := range n.executed() {
		b.Executions += e.Executions
	}
	clicks, answers := map[string]int{}, map[string]int{}
	for _, c := range n.clicks {
		if !c.gone { // else nobody misses its answer
			clicks[c.session]++
		}
	}
	defer func() { n.last = b }()
	if n.proxy.down() { // nobody can be asked: what it had stored is in its file
		b.Answers, b.Charges, b.Micros, b.Results, b.Lost = n.last.Answers, n.last.Charges, n.last.Micros, n.last.Results, n.last.Lost
		return b, nil
	}
	if n.name == Semel {
		var sums struct {
			Spending []struct {
				Answers int // that were charged
				Charges chat.Money
			}
		}
		if err := n.get("/api/ops/spending", &sums); err != nil {
			return b, err
		}
		for _, s := range sums.Spending {
			b.Charges += s.Answers
			b.Micros += s.Charges.Micros
		}
		receipts, err := n.receipts()
		if err != nil {
			return b, err
		}
		for _, r := range receipts {
			if r.Snapshot != nil {
				answers[r.SessionID]++
			}
			for _, e := range r.Effects {
				b.Results += min(1, len(e.Callbacks)) // the first verdict is the result
			}
		}
	} else {
		sessions := map[string]bool{}
		for _, c := range n.clicks {
			sessions[c.session] = true
		}
		for session := range sessions {
			if err := n.tell(session, &b, answers); err != nil {
				return b, err
			}
		}
	}
	for _, n := range answers {
		b.Answers += n
	}
	for session, want := range clicks {
		b.Lost += max(0, want-answers[session])
	}
	return b, nil
}

// tell adds what the naive application has stored of a conversation.
func (n *lane) tell(session string, b *Board, answers map[string]int) error {
	var lines []struct {
		Kind   string
		Micros int64
	}
	if err := n.get("/api/conversations/"+url.PathEscape(session), &lines); err != nil {
		return err
	}
	for _, l := range lines {
		switch l.Kind {
		case "answer":
			answers[session]++
		case "charge":
			b.Charges++
			b.Micros += l.Micros
		case "result":
			b.Results++
		case "deleted":
			answers[session] = 0
		}
	}
	return nil
}

// A receipt is what the right lane says of one request.
type receipt struct {
	RequestID string
	SessionID string
	State     chat.State
	Arrivals  []struct{ Decision chat.Decision }
	Attempts  []struct {
		Outcome chat.Outcome
		Usage   *chat.Usage
	}
	Snapshot *string
	Effects  []struct {
		State     chat.EffectState
		Callbacks []json.RawMessage
	}
	Ledger []struct {
		Kind   string
		Micros int64
		Usage  chat.Usage
	}
}

// receipts asks for those of all requests there are, the oldest first: also of such as
// nobody here has made.
func (n *lane) receipts() (list []receipt, err error) {
	var all struct {
		Requests []struct{ RequestID, SessionID string }
	}
	if err := n.get("/api/ops/requests?limit=1000", &all); err != nil {
		return nil, err
	}
	for _, q := range slices.Backward(all.Requests) {
		if slices.ContainsFunc(n.clicks, func(c *click) bool { return c.gone && c.session == q.SessionID }) {
			continue // nothing is said of it any more
		}
		var r receipt
		if err := n.get("/api/chat/receipt/"+url.PathEscape(q.RequestID)+"?sessionId="+url.QueryEscape(q.SessionID), &r); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// facts is the SHA-256 of what the right lane says of every request, without times.
func (n *lane) facts() (string, error) {
	type fact struct {
		Session  string
		State    chat.State
		Arrivals int
		Attempts []chat.Outcome
		Effects  []chat.EffectState
		Ledger   []string
	}
	facts := []fact{}
	receipts, err := n.receipts()
	if err != nil {
		return "", err
	}
	for _, r := range receipts {
		f := fact{Session: r.SessionID, State: r.State, Arrivals: len(r.Arrivals)}
		for _, a := range r.Attempts {
			f.Attempts = append(f.Attempts, a.Outcome)
		}
		for _, e := range r.Effects {
			f.Effects = append(f.Effects, e.State)
		}
		for _, l := range r.Ledger {
			f.Ledger = append(f.Ledger, fmt.Sprint(l.Kind, " ", l.Micros, " ", l.Usage.InputTokens, " ", l.Usage.OutputTokens))
		}
		facts = append(facts, f)
	}
	return digest(facts)
}

// digest is the SHA-256 of v as canonical JSON: encoding/json keeps the order of fields
// and sorts keys.
func digest(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// An execution is what the third party says of one webhook-id.
type execution struct {
	WebhookID  string
	Kind       string
	Deliveries int
	Executions int
	Callbacks  []called
}

// A called is a verdict of the third party.
type called struct {
	Done bool // it was heard, or given up
}

// executed asks the sink, past its gate.
func (n *lane) executed() []execution {
	w := httptest.NewRecorder()
	n.sink.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/executions", nil))
	var sum struct {
		Effects []execution `json:"executionsById"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &sum); err != nil {
		panic(err) // it is our own
	}
	return sum.Effects
}

func (n *lane) setBehaviour(b map[string]any) error {
	raw, err := json.Marshal(b)
	if err != nil {
		return err
	}
	r := httptest.NewRequest(http.MethodPost, "/behaviour", bytes.NewReader(raw))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	n.sink.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return fmt.Errorf("behaviour: %s", w.Body)
	}
	return nil
}
