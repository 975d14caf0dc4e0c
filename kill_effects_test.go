package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/outbox"
)

const effectSecret = "whsec_b25seSBmb3IgdGhlIHRlc3RzIG9mIGVmZmVjdHM="

func effectsConfig(receiver string) string {
	target := func(path string) string {
		return fmt.Sprintf(`{ kind = "webhook", url = "%s/%s", secrets = [%q], allow = ["127.0.0.0/8"], backoff = "5ms", max_attempts = 1000 }`,
			receiver, path, effectSecret)
	}
	const takes = `parameters = '{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}},"additionalProperties":false}'`
	return fmt.Sprintf(`
[limits]
per_user_per_minute = 0
running_per_user = 0

[billing]
deliver = "books"

[[models]]
name = "demo"
provider = "demo"
max_crash_reruns = 1000

[[actions]]
name = "note"
description = "Write it down"
%[1]s
approval = "auto"
destination = %[2]s

[[actions]]
name = "sign"
description = "Have it signed"
%[1]s
approval = "ask"
await_callback = true
destination = %[3]s
compensate = %[4]s

[[destinations]]
name = "books"
kind = "webhook"
url = "%[5]s/books"
secrets = [%[6]q]
allow = ["127.0.0.0/8"]
backoff = "5ms"
max_attempts = 1000
`, takes, target("note"), target("sign"), target("void"), receiver, effectSecret)
}

// A receiver is somebody else's machine, which is never killed: it knows a repeat by its
// webhook-id, forgets nothing, answers badly, and calls back when it likes.
type receiver struct {
	*world
	live *sql.DB // the file, read only: what its sender had written down when it was called

	jmu     sync.Mutex
	journal *os.File // under jmu

	rmu      sync.Mutex     // the rest is under it
	rng      *rand.Rand     //
	received map[string]int // deliveries by webhook-id
	worked   map[string]bool
	did      map[string][]string // webhook-ids that did the same: request, type and arguments
	fate     map[string]string   // of what is to be signed: yes, no, silent
	moment   string              // at which the killer wants to know
	reached  chan struct{}
	lost     int // answers that its sender did not get, or that were no answers

	calling sync.WaitGroup
}

func newReceiver(w *world, rng *rand.Rand, journal string) *receiver {
	f, err := os.OpenFile(journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { f.Close() })
	return &receiver{
		world: w, journal: f, rng: rng, received: map[string]int{}, worked: map[string]bool{}, did: map[string][]string{}, fate: map[string]string{},
	}
}

// write is durable before anything follows from it.
func (r *receiver) write(what, id string) {
	r.jmu.Lock()
	defer r.jmu.Unlock()
	_, err := fmt.Fprintln(r.journal, what, id)
	if err = errors.Join(err, r.journal.Sync()); err != nil {
		r.t.Errorf("journal: %v", err)
	}
}

// until lets the killer wait for a moment.
func (r *receiver) until(moment string) <-chan struct{} {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	r.moment, r.reached = moment, make(chan struct{})
	return r.reached
}

func (r *receiver) at(moment string) {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	if r.moment == moment || strings.HasPrefix(moment, r.moment+" ") {
		r.moment = ""
		close(r.reached)
	}
}

func (r *receiver) chance(oneIn int) bool {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	return r.rng.IntN(oneIn) == 0
}

// hangUp ends the connection without an answer.
func (r *receiver) hangUp(rw http.ResponseWriter) {
	r.rmu.Lock()
	r.lost++
	r.rmu.Unlock()
	c, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		r.t.Errorf("hijack: %v", err)
		return
	}
	_ = c.Close() // the sender may be dead
}

func (r *receiver) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // its sender was killed in the middle: nothing was received
	}
	id, err := outbox.Verify([]string{effectSecret}, req.Header, body, time.Now())
	if err != nil {
		r.t.Errorf("%s: %v", req.URL.Path, err)
		return
	}
	what := strings.TrimPrefix(req.URL.Path, "/")
	r.write("received", id)
	r.rmu.Lock()
	r.received[id]++
	n := r.received[id]
	r.rmu.Unlock()
	r.judgeConsent(id, n)
	r.at("received " + what)
	trouble := 9 // after the second all goes well: each death counts as a try, and tries make waits longer
	if n <= 2 {
		r.rmu.Lock()
		trouble = r.rng.IntN(10)
		r.rmu.Unlock()
	}
	switch trouble {
	case 0:
		r.hangUp(rw)
		return
	case 1:
		http.Error(rw, "busy", http.StatusServiceUnavailable)
		return
	}
	r.work(id, what, body)
	r.at("worked " + what)
	switch trouble {
	case 2, 3:
		r.hangUp(rw)
	case 4, 5:
		http.Error(rw, "broken", http.StatusInternalServerError)
	default:
		rw.WriteHeader(http.StatusNoContent)
		_ = http.NewResponseController(rw).Flush() // the sender may be dead
		r.at("answered " + what)
	}
}

// work does what is asked for, once an id.
func (r *receiver) work(id, what string, body []byte) {
	var p struct {
		Type string
		Data struct {
			RequestID string
			Arguments json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &p); err != nil {
		r.t.Errorf("%s: %v", body, err)
		return
	}
	r.rmu.Lock()
	first := !r.worked[id]
	if first {
		r.worked[id] = true
		same := fmt.Sprint(p.Type, " ", p.Data.RequestID, " ", string(p.Data.Arguments))
		r.did[same] = append(r.did[same], id)
		if what == "sign" {
			r.fate[id] = []string{"yes", "yes", "yes", "no", "no", "silent"}[r.rng.IntN(6)]
		}
	}
	fate := r.fate[id]
	r.rmu.Unlock()
	if !first {
		return
	}
	r.write("worked", id)
	if what == "sign" && fate != "silent" {
		early := make(chan struct{})
		r.calling.Go(func() { r.callBack(id, fate == "yes", early) })
		if r.chance(2) {
			<-early
		}
	}
}

// callBack says what came of it until somebody hears, perhaps once more, perhaps under
// another id, and perhaps the opposite in the end. heard is closed after the first try.
func (r *receiver) callBack(id string, ok bool, heard chan struct{}) {
	defer func() {
		if heard != nil { // the test has given up
			close(heard)
		}
	}()
	say := func(message string, ok bool, want ...string) {
		body := fmt.Appendf(nil, `{"type":"action.result","data":{"ok":%t,"reason":"because"}}`, ok)
		for !r.isOver() {
			h, err := outbox.Sign([]string{effectSecret}, message, time.Now(), body)
			if err != nil {
				r.t.Errorf("sign: %v", err)
				return
			}
			r.at("calling back")
			status, answer := r.tell(http.MethodPost, "/callbacks/"+id, body,
				"Webhook-Id", h.Get("Webhook-Id"), "Webhook-Timestamp", h.Get("Webhook-Timestamp"), "Webhook-Signature", h.Get("Webhook-Signature"))
			if heard != nil {
				close(heard)
				heard = nil
			}
			if status == 0 || status == http.StatusServiceUnavailable {
				continue
			}
			var said struct{ Decision string }
			if err := json.Unmarshal(answer, &said); status != http.StatusOK || err != nil || !slices.Contains(want, said.Decision) {
				r.t.Errorf("called back about %s: %d %s, want %v", id, status, answer, want)
			}
			r.at("called back")
			return
		}
	}
	say("cb-"+id, ok, "first", "duplicate") // duplicate: heard by a life that was killed before it answered
	if r.chance(3) {
		say("cb-"+id, ok, "duplicate")
	}
	if r.chance(3) {
		say("cc-"+id, ok, "duplicate")
	}
	if r.chance(4) {
		say("cd-"+id, !ok, "contradiction")
	}
}

// tell sends something to whoever serves now; 0 when nobody answered.
func (w *world) tell(method, path string, body []byte, header ...string) (status int, answer []byte) {
	l := w.current()
	if l == nil {
		return 0, nil
	}
	res, err := w.send(l, method, path, body, header...)
	if err != nil {
		return 0, nil
	}
	answer, err = io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return 0, nil
	}
	return res.StatusCode, answer
}

// insist says it until somebody hears it.
func (w *world) insist(method, path string, body []byte, header ...string) (status int, answer []byte) {
	for !w.isOver() {
		status, answer = w.tell(method, path, body, header...)
		if status != 0 && status != http.StatusServiceUnavailable {
			return status, answer
		}
	}
	return 0, nil
}

// judgeConsent looks into the file while its sender waits: this delivery is written down
// (H06), and who had to has allowed it before (H18).
func (r *receiver) judgeConsent(id string, n int) {
	var recorded int
	var allowed bool
	var err error
	if !eventually(func() bool {
		// Between two lives the log cannot be read for a moment.
		err = r.live.QueryRow(`SELECT (SELECT count(*) FROM deliveries y WHERE y.outbox_id = o.id),
			o.kind = 'charge' OR EXISTS (SELECT 1 FROM decisions d LEFT JOIN verdicts v ON v.request_id = d.request_id AND v.position = d.position
				WHERE d.request_id = o.request_id AND d.position = o.position AND (d.verdict = 'auto' OR v.verdict = 'approve'))
			FROM outbox o WHERE o.webhook_id = ?`, id).Scan(&recorded, &allowed)
		return err == nil || errors.Is(err, sql.ErrNoRows)
	}) || err != nil {
		r.t.Errorf("%s was delivered, and the file does not know it: %v", id, err)
		return
	}
	if recorded < n || !allowed {
		r.t.Errorf("%s was delivered %d times, and the file has %d; it is allowed: %t", id, n, recorded, allowed)
	}
}

// A customer asks for actions and decides about them.
type customer struct {
	*receiver
	rng *rand.Rand

	cmu      *sync.Mutex       // the rest is shared, and under it
	asked    *[]*intent        //
	verdicts map[string]string // what was said of a decision, heard or not

	slow bool // some answers take so long that a part of their text is stored before their end
}

func (c *customer) live(enough <-chan struct{}) {
	session := chat.NewID()
	for !c.isOver() {
		select {
		case <-enough:
			return
		default:
		}
		if c.rng.IntN(4) == 0 {
			session = chat.NewID()
		}
		content := "Do it. [[tokens 3]] [[rate 0]]"
		if c.slow && c.rng.IntN(3) == 0 {
			content = "Do it slowly. [[tokens 45]] [[rate 30]]"
		}
		for n := range c.rng.IntN(4) {
			content += fmt.Sprintf(` [[tool %s {"n": %d}]]`, []string{"note", "sign", "sign"}[c.rng.IntN(3)], n)
		}
		in := &intent{session: session, id: chat.NewID(), kind: chat.KindMessage, content: content, model: "demo"}
		c.cmu.Lock()
		*c.asked = append(*c.asked, in)
		c.cmu.Unlock()
		c.decide(c.answered(in))
	}
}

// answered asks until there is an answer.
func (c *customer) answered(in *intent) (rec effectsTold) {
	for !c.isOver() && !rec.State.Answered() {
		status, answer := c.insist(http.MethodPost, "/api/chat", in.body(), "Prefer", "wait=5")
		if err := json.Unmarshal(answer, &rec); err != nil || status >= 300 {
			c.t.Errorf("asked: %d %s", status, answer)
			return rec
		}
	}
	return rec
}

type effectsTold struct {
	State   chat.State
	Effects []struct {
		DecisionID, Digest string
		State              chat.EffectState
	}
}

func (c *customer) decide(rec effectsTold) {
	for _, e := range rec.Effects {
		if e.State != chat.EffectUndecided {
			continue
		}
		verdict, other := "approve", "reject"
		if c.rng.IntN(6) == 0 {
			verdict, other = other, verdict
		}
		c.cmu.Lock()
		c.verdicts[e.DecisionID] = verdict
		c.cmu.Unlock()
		say := func(verdict string, want int) {
			status, answer := c.insist(http.MethodPost, "/api/chat/decisions/"+e.DecisionID,
				fmt.Appendf(nil, `{"verdict":%q,"digest":%q}`, verdict, e.Digest))
			if status != want && !c.isOver() {
				c.t.Errorf("%s of %s: %d %s, want %d", verdict, e.DecisionID, status, answer, want)
			}
		}
		c.at("deciding")
		var twice sync.WaitGroup
		for range 1 + c.rng.IntN(2) {
			twice.Go(func() { say(verdict, http.StatusOK) })
		}
		twice.Wait()
		c.at("decided")
		if c.rng.IntN(4) == 0 {
			say(other, http.StatusConflict)
		}
	}
}

// effectMoments are those at which a kill is worth most; in between it comes at random.
var effectMoments = []string{
	"received sign", "worked sign", "answered sign", "calling back", "called back", "deciding", "decided",
	"received void", "worked void", "answered void", "received note", "worked note", "worked books", "answered books",
}

// effectEnds are those that must have come about for a test to mean something.
var effectEnds = []string{"effect delivered", "effect compensated", "compensation delivered", "charge delivered"}

// A market is customers, the server that is killed, and the machine it delivers to.
type market struct {
	*receiver
	file      string
	customers customer
	enough    chan struct{} // closed when customers shall come to an end
	busy      sync.WaitGroup
}

func newMarket(t *testing.T, rng *rand.Rand) *market {
	w := newWorld(t)
	m := &market{receiver: newReceiver(w, newSource(rng), filepath.Join(t.TempDir(), "journal")), enough: make(chan struct{})}
	elsewhere := httptest.NewServer(m.receiver)
	t.Cleanup(elsewhere.Close)
	m.file = writeConfig(t, effectsConfig(elsewhere.URL))
	m.customers = customer{receiver: m.receiver, cmu: &sync.Mutex{}, asked: &[]*intent{}, verdicts: map[string]string{}}
	return m
}

func newSource(rng *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())) }

// open lets n customers in; l is who serves first.
func (m *market) open(l *life, n int, rng *rand.Rand) {
	m.live = openSQL(m.t, "file:"+filepath.ToSlash(m.file)+"?mode=ro&_pragma=busy_timeout(5000)")
	m.begin(l)
	for range n {
		c := m.customers
		c.rng = newSource(rng)
		m.busy.Go(func() { c.live(m.enough) })
	}
}

// close lets everything come to its end with l, and judges.
func (m *market) close(l *life) {
	close(m.enough)
	m.busy.Wait()
	if m.t.Failed() {
		return
	}
	m.settle(*m.customers.asked)
	m.calling.Wait()
	l.kill()
	m.end()
	verifyFile(m.t, m.file)
	m.judge(openSQL(m.t, copyDatabase(m.t, m.file, filepath.Join(m.t.TempDir(), "copy.db"))), *m.customers.asked, m.customers.verdicts)
}

// lacks names an end that has not come about so far, "" when all have.
func (m *market) lacks() string {
	have := map[string]bool{}
	rowsOf(m.t, m.live, `SELECT DISTINCT kind || ' ' || state FROM outbox`, func(scan func(...any)) {
		var end string
		scan(&end)
		have[end] = true
	})
	for _, end := range effectEnds {
		if !have[end] {
			return end
		}
	}
	return ""
}

// giveUp is for the end of a test, however it ended.
func (m *market) giveUp() {
	close(m.over)
	m.busy.Wait()
}

// The real program is killed at every step of a delivery, a callback and a compensation.
// What was asked for and allowed happens once in effect, and nothing else does. For
// longer: -soak=10m -timeout 0.
func TestKillNineExecutesEachEffectOnce(t *testing.T) {
	rng := randomly(t)
	m := newMarket(t, rng)
	l := serveNow(t, m.file)
	m.open(l, 4, rng)
	defer m.giveUp()
	kills, met := 0, map[string]int{}
	began := time.Now()
	for (time.Since(began) < *soakFlag || kills < 2*len(effectMoments) || m.lacks() != "" && kills < 10*len(effectMoments)) && !t.Failed() {
		moment, then := "answered", 150*time.Millisecond // at random, but no life is for nothing
		if kills%2 == 0 {
			moment, then = effectMoments[kills/2%len(effectMoments)], 1+time.Duration(kills%4)*time.Millisecond
		}
		select {
		case <-m.until(moment):
			met[moment]++
		case <-time.After(patience):
			t.Errorf("nobody has %s", moment)
		}
		time.Sleep(upTo(rng, then)) // the moment of the kill
		l.kill()
		if code := l.cmd.ProcessState.ExitCode(); code != -1 && runtime.GOOS != "windows" {
			t.Fatalf("the server ended by itself (%s):\n%s", l.cmd.ProcessState, l.log)
		}
		m.end()
		kills++
		l = serveNow(t, m.file)
		m.begin(l)
		verifyFile(t, m.file)
	}
	m.close(l)
	t.Logf("%d kills in %.0f s, at moments %v", kills, time.Since(began).Seconds(), met)
}

// settle lets everything come to its end: a person undoes or gives up what nobody calls
// back about.
func (r *receiver) settle(asked []*intent) {
	r.rmu.Lock()
	fate := map[string]string{}
	for id, f := range r.fate {
		fate[id] = f
	}
	r.rmu.Unlock()
	done := map[string]bool{}
	for _, in := range asked {
		if !eventually(func() bool {
			r.rmu.Lock()
			for id, f := range r.fate {
				fate[id] = f
			}
			r.rmu.Unlock()
			for id, f := range fate {
				if f != "silent" || done[id] {
					continue
				}
				do := []string{db.Compensate, db.Abandon}[len(done)%2]
				status, answer := r.insist(http.MethodPost, "/api/ops/outbox/"+id+"/"+do, []byte(`{"reason":"nobody calls back"}`))
				if done[id] = status == http.StatusOK; !done[id] && status != http.StatusConflict {
					r.t.Errorf("%s %s: %d %s", do, id, status, answer)
				}
			}
			_, answer := r.insist(http.MethodGet, in.url("status"), nil)
			var rec effectsTold
			return json.Unmarshal(answer, &rec) == nil && rec.State == chat.StateCommitted
		}) {
			_, answer := r.insist(http.MethodGet, in.url("status"), nil)
			r.t.Errorf("it does not come to its end: %s", answer)
			return
		}
	}
}

// judge compares what the receiver did with what the file says.
func (r *receiver) judge(d *sql.DB, asked []*intent, verdicts map[string]string) {
	t := r.t
	t.Helper()
	r.rmu.Lock()
	defer r.rmu.Unlock()
	for same, ids := range r.did {
		if len(ids) != 1 {
			t.Errorf("%s was done %d times: %v", same, len(ids), ids)
		}
	}
	known := map[string]bool{}
	counts := map[string]int{}
	rowsOf(t, d, `SELECT o.webhook_id, o.kind, o.state, o.awaits, (SELECT count(*) FROM deliveries y WHERE y.outbox_id = o.id), coalesce(v.verdict, '')
		FROM outbox o LEFT JOIN verdicts v ON v.request_id = o.request_id AND v.position = o.position AND o.kind = 'effect'`, func(scan func(...any)) {
		var id, kind, verdict string
		var state chat.EffectState
		var awaits bool
		var deliveries int
		scan(&id, &kind, &state, &awaits, &deliveries, &verdict)
		known[id] = true
		counts[kind+" "+string(state)]++
		want := []chat.EffectState{chat.EffectDelivered}
		if awaits {
			want = map[string][]chat.EffectState{
				"yes": {chat.EffectDelivered}, "no": {chat.EffectCompensated}, "silent": {chat.EffectCompensated, chat.EffectAbandoned},
			}[r.fate[id]]
		}
		switch {
		case !r.worked[id]:
			t.Errorf("%s %s is %s after %d deliveries, and nobody did it", kind, id, state, deliveries)
		case !slices.Contains(want, state):
			t.Errorf("%s %s, about which its receiver says %q, is %s after %d deliveries, want %v", kind, id, r.fate[id], state, deliveries, want)
		case r.received[id] > deliveries:
			t.Errorf("%s %s was received %d times, and %d deliveries are written down", kind, id, r.received[id], deliveries)
		case verdict != "" && verdicts[id] != verdict:
			t.Errorf("%s was decided as %s, and its customer said %s", id, verdict, verdicts[id])
		}
	})
	for id := range r.worked {
		if !known[id] {
			t.Errorf("%s was done, and nobody had asked for it", id)
		}
	}
	approved := 0
	for id, verdict := range verdicts {
		if verdict == "approve" {
			approved++
		}
		if (verdict == "approve") != r.worked[id] {
			t.Errorf("%s: its customer said %s, and it was done: %t", id, verdict, r.worked[id])
		}
	}
	rowsOf(t, d, `SELECT (SELECT count(*) FROM requests), (SELECT count(*) FROM requests WHERE state = 'committed'),
		(SELECT count(DISTINCT request_id) FROM ledger WHERE kind = 'charge'), (SELECT count(*) FROM ledger WHERE kind = 'charge')`, func(scan func(...any)) {
		var all, committed, billed, charges int
		scan(&all, &committed, &billed, &charges)
		if all != len(asked) || committed != all || billed != all || charges != all {
			t.Errorf("%d requests, %d committed, %d billed %d times; customers asked %d", all, committed, billed, charges, len(asked))
		}
	})
	deliveries := 0
	for _, n := range r.received {
		deliveries += n
	}
	if deliveries <= len(r.worked) || approved == 0 {
		t.Errorf("%d deliveries of %d effects, %d of them approved: this proves nothing", deliveries, len(r.worked), approved)
	}
	t.Logf("%d questions; %d deliveries of %d effects, %d connections cut; %v", len(asked), deliveries, len(r.worked), r.lost, counts)
	for _, state := range effectEnds {
		if counts[state] == 0 {
			t.Errorf("no %s: this proves little", state)
		}
	}
}
