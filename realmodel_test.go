package main

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/chat"
)

// Here the real program talks to a real language model. It is a small one with
// weights made by chance, but whoever calls it cannot tell: prompts are read, tokens
// are sampled one after the other, connections break where a process dies. The tests
// mostly wait for it, so they run together.

// peerConfig has one model twice: for nothing, and for money. What happens after an
// unknown outcome follows from that.
func peerConfig(p *peer) string {
	const model = `
[[models]]
name = %q
provider = "openai"
url = %q
upstream_model = "babbler"
price = { input = %d, output = %d }
`
	return "[limits]\nper_user_per_minute = 0\n" + fmt.Sprintf(model, "free", p.url(), 0, 0) + fmt.Sprintf(model, "paid", p.url(), 1_000_000, 2_000_000)
}

func TestARealModelIsAskedOnceHoweverOftenItsQuestionArrives(t *testing.T) {
	t.Parallel()
	p := startPeer(t, writeModel(t, 1, false), 0)
	db := writeConfig(t, peerConfig(p))
	stdout, stderr, code := runSemel(t, "models", "test", "paid", "--db", db)
	if code != 0 || !strings.Contains(stdout, "It says: ") || !strings.Contains(stdout, "It has 1 models: babbler") {
		t.Errorf("models test: exit code %d: %s%s", code, stdout, stderr)
	}
	w := newWorld(t)
	l := serveNow(t, db)
	w.begin(l)
	file := readOnly(t, db)

	streamed := w.newIntent(intent{session: chat.NewID(), content: "Tell me of the river.", model: "free"})
	a := (&reader{w: w, in: streamed}).follow()
	said := p.await(t, "answered", 2)
	if a == nil || a.State != chat.StateCommitted || a.Content != said.Text || said.Text == "" || said.Finish != "stop" {
		t.Errorf("the model said %q (%s), and the stream ends with %s", said.Text, said.Finish, a)
	}
	if u := usageOf(t, file, streamed); u != (charged{in: said.In, out: said.Out}) {
		t.Errorf("the model counted %d and %d tokens, and %+v is stored", said.In, said.Out, u)
	}

	const duplicates = 50
	question := w.newIntent(intent{session: streamed.session, content: "And of the bridge?", model: "paid"})
	answers := make([]*told, duplicates)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = w.post(question, 60) })
	}
	all.Wait()
	for _, a := range answers {
		if a == nil || a.HTTP != http.StatusOK || a.digest() == "" || a.digest() != answers[0].digest() {
			t.Fatalf("%d of the same at once are answered with %s and %s", duplicates, answers[0], a)
		}
	}
	if n := p.callsOf(question.content); n != 1 {
		t.Errorf("%d of the same at once called the model %d times", duplicates, n)
	}
	if call := p.told("call")[2]; call.Question != question.content {
		t.Errorf("call 3 asks %q", call.Question)
	}
	said = p.await(t, "answered", 3)
	if u := usageOf(t, file, question); u != (charged{in: said.In, out: said.Out, micros: said.In + 2*said.Out}) {
		t.Errorf("the model counted %d and %d tokens, and %+v is stored", said.In, said.Out, u)
	}

	long := w.newIntent(intent{session: chat.NewID(), content: strings.Repeat("Too long. ", 200), model: "paid"})
	if a := w.post(long, 60); a == nil || a.State != chat.StateFailed || a.Code != "context_too_long" || a.Retry != chat.RetryExplicit {
		t.Errorf("a question beyond the model's context is answered with %s", a)
	}
	w.finish(l, db)
}

func TestAStopAndAnotherViewerReachARealModelsAnswer(t *testing.T) {
	t.Parallel()
	p := startPeer(t, writeModel(t, 2, true), 0, "--pace", "20", "--most", "300")
	db := writeConfig(t, peerConfig(p))
	w := newWorld(t)
	l := serveNow(t, db)
	w.begin(l)

	// One client reads a part, another goes on behind it.
	in := w.newIntent(intent{session: chat.NewID(), content: "Tell me of the garden.", model: "paid"})
	first := &reader{w: w, in: in}
	res, err := w.send(l, http.MethodPost, "/api/chat", in.body(), "Accept", "text/event-stream")
	if err != nil {
		t.Fatal(err)
	}
	body := res.Body
	res.Body = io.NopCloser(io.LimitReader(body, 1500))
	if a := first.read(res, w.now(in)); a != nil || len(first.text) == 0 {
		t.Fatalf("the first 1500 bytes of the stream have text %q and end with %s", first.text, a)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	second := &reader{w: w, in: in, attempt: first.attempt, text: slices.Clone(first.text)}
	if res, err = w.send(l, http.MethodGet, in.url("stream"), nil, "Last-Event-ID", first.last); err != nil {
		t.Fatal(err)
	}
	var heard strings.Builder
	body = res.Body
	res.Body = io.NopCloser(io.TeeReader(body, &heard))
	a := second.read(res, w.now(in)) // which compares the pieces with the answer
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	if strings.Contains(heard.String(), "event: attempt") {
		t.Errorf("the second client was told to begin anew:\n%s", heard.String())
	}
	if a == nil || a.State != chat.StateCommitted || len(a.Content) <= len(first.text) {
		t.Errorf("the first client had %q, and the second ends with %s", first.text, a)
	}
	if n := p.callsOf(in.content); n != 1 {
		t.Errorf("for two viewers the model was called %d times", n)
	}

	// A stop reaches the model.
	in = w.newIntent(intent{session: chat.NewID(), content: "Go on until I say stop.", model: "paid"})
	w.untilText(in)
	pressed := time.Now()
	if a := w.stop(in, 1); a == nil || a.HTTP/100 != 2 {
		t.Errorf("a stop is answered with %s", a)
	}
	left := p.await(t, "left", 2)
	if late := left.at.Sub(pressed); late > time.Second {
		t.Errorf("the model's server hears of a stop after %s", late)
	}
	a = w.post(in, 60)
	if a == nil || a.State != chat.StateCommitted || a.Content == "" || !strings.HasPrefix(left.Text, a.Content) || !strings.Contains(string(a.Message), `"finish":"stopped"`) {
		t.Errorf("the model had said %q when it was stopped, and the answer is %s", left.Text, a)
	}
	t.Logf("the model's server heard of the stop after %s", left.at.Sub(pressed).Round(time.Millisecond))

	// And it is free for the next.
	in = w.newIntent(intent{session: chat.NewID(), content: "And now of the lantern.", model: "free"})
	if a := w.post(in, 60); a == nil || a.State != chat.StateCommitted {
		t.Errorf("the question after a stop is answered with %s", a)
	}
	w.finish(l, db)
}

func TestKillNineWhileARealModelAnswers(t *testing.T) {
	t.Parallel()
	p := startPeer(t, writeModel(t, 3, true), 0, "--pace", "20", "--most", "300")
	db := writeConfig(t, peerConfig(p))
	w := newWorld(t)
	l := serveNow(t, db)
	w.begin(l)
	file := readOnly(t, db)

	free := w.newIntent(intent{session: chat.NewID(), content: "Tell me for nothing.", model: "free"})
	paid := w.newIntent(intent{session: chat.NewID(), content: "Tell me for money.", model: "paid"})
	var viewer sync.WaitGroup
	var streamed *told
	viewer.Go(func() { streamed = (&reader{w: w, in: free}).follow() }) // from life to life
	w.post(paid, 0)
	w.untilText(free)
	w.untilText(paid)
	l.kill()
	w.end()
	verifyFile(t, db)
	l = serveNow(t, db)
	w.begin(l)

	viewer.Wait()
	if streamed == nil || streamed.State != chat.StateCommitted || streamed.Attempt != 2 {
		t.Errorf("the stream of a free answer goes on after kill -9 and ends with %s", streamed)
	}
	wantAttempts(t, file, free, "accepted unknown interrupted", "rerun ok ")
	for range 2 { // a repeat changes nothing
		a := w.post(paid, 60)
		if a == nil || a.State != chat.StateFailed || a.Code != "interrupted" || a.Retry != chat.RetryExplicit {
			t.Errorf("the question for money is answered with %s", a)
		}
	}
	if a := w.status(paid); a == nil || a.Content == "" {
		t.Errorf("what the model had said before kill -9 is lost: %s", a)
	}
	wantAttempts(t, file, paid, "accepted unknown interrupted")
	if n, m := p.callsOf(free.content), p.callsOf(paid.content); n != 2 || m != 1 {
		t.Errorf("the model was called %d times for nothing and %d times for money, want 2 and 1", n, m)
	}

	if a := w.retry(paid, 1, 60); a == nil || a.State != chat.StateCommitted || a.Attempt != 2 {
		t.Errorf("asked again by a person, it is answered with %s", a)
	}
	wantAttempts(t, file, paid, "accepted unknown interrupted", "explicit ok ")
	if n := p.callsOf(paid.content); n != 2 {
		t.Errorf("asked again by a person, the model was called %d times in all", n)
	}
	w.finish(l, db)
}

func TestARealModelIsKilledWhileItAnswers(t *testing.T) {
	t.Parallel()
	model := writeModel(t, 4, true)
	args := []string{"--pace", "20", "--most", "300"}
	p := startPeer(t, model, 0, args...)
	db := writeConfig(t, peerConfig(p))
	w := newWorld(t)
	l := serveNow(t, db)
	w.begin(l)
	file := readOnly(t, db)

	free := w.newIntent(intent{session: chat.NewID(), content: "Tell me for nothing.", model: "free"})
	paid := w.newIntent(intent{session: chat.NewID(), content: "Tell me for money.", model: "paid"})
	w.post(paid, 0)
	w.untilText(free)
	w.untilText(paid)
	p.kill()
	a := w.post(paid, 60)
	if a == nil || a.State != chat.StateFailed || a.Code != "line_lost" || a.Retry != chat.RetryExplicit {
		t.Errorf("the model's server died, and the question for money is answered with %s", a)
	}
	if a := w.status(paid); a == nil || a.Content == "" || a.Error == nil || a.Error.Outcome != chat.OutcomeUnknown {
		t.Errorf("the model's server died, and the question for money stands at %s", a)
	}
	wantAttempts(t, file, paid, "accepted unknown line_lost")
	// Asked while nobody listens: that call never reached a model, so it may be made
	// again, for money too.
	late := w.newIntent(intent{session: chat.NewID(), content: "Is anybody there?", model: "paid"})
	w.post(late, 0)
	if !eventually(func() bool { return len(attemptsOf(t, file, late)) > 0 && attemptsOf(t, file, late)[0] != "accepted  " }) {
		t.Error("nobody tries to reach a model's server that is gone")
	}

	before := p.callsOf(free.content)
	p = startPeer(t, model, p.port, args...)
	for _, in := range []*intent{free, late} {
		if !eventually(func() bool {
			a := w.status(in)
			if a != nil && a.Error != nil && a.Error.Retry == chat.RetryAuto { // no connection, three times
				w.post(in, 0)
			}
			return a != nil && a.State.Answered()
		}) {
			t.Errorf("the model's server is back, and it is not answered\n%s", w.journal(in))
		}
	}
	list := attemptsOf(t, file, free)
	if before != 1 || p.callsOf(free.content) != 1 || p.callsOf(late.content) != 1 || p.callsOf(paid.content) != 0 {
		t.Errorf("the model was called %d times before it died, and then %+v", before, p.told("call"))
	}
	if len(list) < 2 {
		t.Fatalf("the attempts are %q: nothing died", list)
	}
	if first, last := list[0], list[len(list)-1]; first != "accepted unknown line_lost" || !strings.HasSuffix(last, " ok ") {
		t.Errorf("the attempts are %q", list)
	}
	for _, a := range list[1 : len(list)-1] {
		if !strings.HasSuffix(a, " none provider_unreachable") {
			t.Errorf("the attempts are %q", list)
		}
	}
	list = attemptsOf(t, file, late)
	if first := list[0]; first != "accepted none provider_unreachable" {
		t.Errorf("the attempts are %q", list)
	}
	w.finish(l, db)
}

func (a *told) String() string {
	if a == nil {
		return "nothing"
	}
	code := a.Code
	if a.Error != nil {
		code = a.Error.Code
	}
	return fmt.Sprintf("HTTP %d, %s, attempt %d, content %q, message %s, code %q", a.HTTP, a.State, a.Attempt, a.Content, a.Message, code)
}

// untilText asks and returns when some of the answer is stored.
func (w *world) untilText(in *intent) {
	w.t.Helper()
	w.post(in, 0)
	var a *told
	if !eventually(func() bool { a = w.status(in); return a != nil && (a.Content != "" || !a.State.Live()) }) || a.State != chat.StateGenerating {
		w.t.Fatalf("no partial text is stored\n%s", w.journal(in))
	}
}

// finish ends a test: everything comes to its end, and the file says what clients
// were told.
func (w *world) finish(l *life, db string) {
	w.t.Helper()
	w.settle()
	final := w.collect()
	verifyFile(w.t, db)
	l.kill()
	verifyFile(w.t, db)
	w.judge(openSQL(w.t, copyDatabase(w.t, db, filepath.Join(w.t.TempDir(), "copy.db"))), final, nil)
}

// readOnly opens the file beside the server.
func readOnly(t testing.TB, db string) *sql.DB {
	return openSQL(t, "file:"+filepath.ToSlash(db)+"?mode=ro&_pragma=busy_timeout(5000)")
}

// attemptsOf returns the attempts of a request, each as "reason outcome code".
func attemptsOf(t testing.TB, d *sql.DB, in *intent) (list []string) {
	t.Helper()
	rowsOf(t, d, fmt.Sprintf(`SELECT a.reason || ' ' || coalesce(a.outcome, '') || ' ' || coalesce(a.code, '')
		FROM attempts a JOIN requests r ON r.id = a.request_id WHERE r.request_id = '%s' ORDER BY a.n`, in.id), func(scan func(...any)) {
		var s string
		scan(&s)
		list = append(list, s)
	})
	return list
}

func wantAttempts(t testing.TB, d *sql.DB, in *intent, want ...string) {
	t.Helper()
	if got := attemptsOf(t, d, in); !slices.Equal(got, want) {
		t.Errorf("the attempts of %q are %q, want %q", in.content, got, want)
	}
}

// charged is what one answer cost.
type charged struct {
	in, out, micros int64
	estimated       bool
}

func usageOf(t testing.TB, d *sql.DB, in *intent) (c charged) {
	t.Helper()
	rowsOf(t, d, fmt.Sprintf(`SELECT l.input_tokens, l.output_tokens, l.micros, l.estimated
		FROM ledger l JOIN requests r ON r.id = l.request_id WHERE r.request_id = '%s' AND l.kind = 'charge'`, in.id), func(scan func(...any)) {
		scan(&c.in, &c.out, &c.micros, &c.estimated)
	})
	return c
}
