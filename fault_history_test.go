package main

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"semel/chat"
)

var historiesFlag = flag.Int("histories", 1, "how many rounds of clients and kills are recorded and judged")

// A heard is what one call about a question came to: nothing when the line was lost.
type heard struct {
	nothing bool
	http    int
	state   chat.State
	attempt int64
	message string
	retry   chat.Retry
}

// A wanted is what a call asked for.
type wanted struct {
	question, what string
	attempt        int64 // of a retry
}

// A standing is how a question stands, as one who sees every call in its order knows it.
// While it is live, nobody outside sees its next step coming.
type standing struct {
	kind    string // none, live, failed, answered, deleted
	attempt int64  // at least
	message string
	auto    bool
}

const (
	standsNone     = "none"
	standsLive     = "live"
	standsFailed   = "failed"
	standsAnswered = "answered"
	standsDeleted  = "deleted"
)

// next is the contract for one question: what a call may be told in s, and how the
// question may stand afterwards. A call of which nothing was heard may have been carried
// out or not.
func (s standing) next(w wanted, h heard) []any {
	started := s // the question as it stands when the call has done what it may do
	switch {
	case w.what == "submit" && (s.kind == standsNone || s.kind == standsFailed && s.auto),
		w.what == "retry" && s.kind == standsFailed && w.attempt == s.attempt:
		started = standing{kind: standsLive, attempt: s.attempt}
	case w.what == "delete" && s.kind != standsNone:
		started = standing{kind: standsDeleted}
	}
	if h.nothing {
		if started == s {
			return []any{s}
		}
		return []any{s, started}
	}
	var now standing
	switch {
	case w.what == "delete" && h.http == http.StatusOK:
		now = standing{kind: standsDeleted}
	case h.http == http.StatusNotFound && (s.kind == standsNone || s.kind == standsDeleted && w.what != "submit"),
		h.http == http.StatusGone && s.kind == standsDeleted:
		return []any{s}
	case h.state.Live():
		now = standing{kind: standsLive, attempt: h.attempt}
	case h.state.Answered():
		now = standing{kind: standsAnswered, attempt: h.attempt, message: h.message}
	case h.state == chat.StateFailed:
		now = standing{kind: standsFailed, attempt: h.attempt, auto: h.retry == chat.RetryAuto}
	default:
		return nil
	}
	switch {
	case now == started,
		started.kind == standsLive && now.kind != standsNone && now.kind != standsDeleted && now.attempt >= started.attempt:
		return []any{now}
	}
	return nil
}

var contract = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		at := map[string]int{}
		for _, o := range history {
			q := o.Input.(wanted).question
			i, there := at[q]
			if !there {
				i = len(parts)
				at[q], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		return parts
	},
	Init:  func() []any { return []any{standing{kind: standsNone}} },
	Step:  func(s, in, out any) []any { return s.(standing).next(in.(wanted), out.(heard)) },
	Equal: func(a, b any) bool { return a.(standing) == b.(standing) },
	DescribeOperation: func(in, out any) string {
		w, h := in.(wanted), out.(heard)
		return fmt.Sprintf("%s %s %d → %d %s %d %.8s %s", w.question, w.what, w.attempt, h.http, h.state, h.attempt, h.message, h.retry)
	},
}).ToModel()

// legal fails the test unless the calls can have happened one after the other, each in a
// moment between its beginning and its end.
func legal(t testing.TB, history []porcupine.Operation) bool {
	t.Helper()
	result := porcupine.CheckOperationsTimeout(contract, history, patience)
	if result == porcupine.Unknown {
		t.Fatalf("a history of %d calls is too hard to judge", len(history))
	}
	return result == porcupine.Ok
}

// A scribe writes down what clients ask and hear.
type scribe struct {
	*world
	hmu     sync.Mutex
	history []porcupine.Operation
	calls   map[*intent]int // so far
	kinds   map[string]int  // what was heard of what
	recent  []*intent
}

const (
	callsPerQuestion = 24 // more with unheard answers among them take too long to judge
	questionsAtOnce  = 12
)

// pick chooses a question for a client: one of the newest, or a new one.
func (s *scribe) pick(rng *rand.Rand) *intent {
	s.hmu.Lock()
	defer s.hmu.Unlock()
	s.recent = deleteWhere(s.recent, func(in *intent) bool { return s.calls[in] >= callsPerQuestion })
	if len(s.recent) < questionsAtOnce {
		content := []string{
			"Be quick. [[tokens 8]] [[rate 0]]", "Take a while. [[tokens 30]] [[rate 100]]", "Be busy once. [[fail 503 once]] [[tokens 8]] [[rate 0]]",
			"Be wrong. [[fail 400]]", "Lose the line once. [[cut 4 once]] [[tokens 12]] [[rate 100]]", "Be busy. [[fail 503]]",
		}[rng.IntN(6)]
		s.recent = append(s.recent, s.newIntent(intent{session: chat.NewID(), content: content, model: []string{"", "ask"}[rng.IntN(2)]}))
	}
	in := s.recent[rng.IntN(len(s.recent))]
	s.calls[in]++
	return in
}

func deleteWhere(list []*intent, gone func(*intent) bool) []*intent {
	kept := list[:0:0]
	for _, in := range list {
		if !gone(in) {
			kept = append(kept, in)
		}
	}
	return kept
}

// call asks for something about a question, and writes it down: what it may do and what
// is heard of it are two moments between its beginning and its end, because whoever asks
// may wait for the answer while others see it coming.
func (s *scribe) call(client int, in *intent, w wanted, ask func() *told) (h heard) {
	began := time.Since(s.start)
	a := ask()
	write := func(w wanted, h heard, ended time.Duration) {
		s.history = append(s.history, porcupine.Operation{ClientId: client, Input: w, Call: int64(began), Output: h, Return: int64(ended)})
	}
	ended := time.Since(s.start)
	s.hmu.Lock()
	defer s.hmu.Unlock()
	switch {
	case a == nil:
		h = heard{nothing: true}
		write(w, h, math.MaxInt64) // as if it could still be carried out
	case w.what == "delete":
		h = heard{http: a.HTTP}
		write(w, h, ended)
	default:
		h = heard{http: a.HTTP, state: a.State, attempt: a.Attempt, message: a.digest(), retry: problemIn(a)}
		if w.what != "status" {
			write(w, heard{nothing: true}, ended)
		}
		write(wanted{question: w.question, what: "status"}, h, ended)
		if w.what == "submit" && h.http == http.StatusNotFound {
			s.t.Errorf("a question is answered with 404\n%s", s.journal(in))
		}
		s.kinds[fmt.Sprintf("%s %d %s", w.what, h.http, h.state)]++
	}
	return h
}

func (s *scribe) live(client int, rng *rand.Rand, enough <-chan struct{}) {
	seen := map[*intent]int64{} // the attempt of a failure
	for !s.isOver() {
		select {
		case <-enough:
			return
		default:
		}
		in := s.pick(rng)
		w := wanted{question: in.id, what: "submit"}
		ask := func() *told { return s.post(in, rng.IntN(2)) }
		switch rng.IntN(12) {
		case 0, 1, 2:
			w.what, ask = "status", func() *told { return s.status(in) }
		case 3:
			attempt := seen[in]
			w.what, ask = "stop", func() *told { return s.stop(in, attempt) }
		case 4, 5:
			w.what, w.attempt = "retry", seen[in]
			ask = func() *told { return s.retry(in, w.attempt, 0) }
		case 6:
			if rng.IntN(4) == 0 {
				w.what, ask = "delete", func() *told {
					status, _ := s.tell(http.MethodDelete, "/api/conversations/"+in.session, nil)
					if status == 0 {
						return nil
					}
					return &told{HTTP: status}
				}
			}
		}
		seen[in] = s.call(client, in, w, ask).attempt
	}
}

// Clients ask, look, stop, retry and delete while the server is killed. What all of them
// heard can have happened one call after the other, by the contract. For longer:
// -histories 100.
func TestWhatClientsHearIsOneStory(t *testing.T) {
	rng := randomly(t)
	file := writeConfig(t, killConfig)
	calls, lost, questions, kinds := 0, 0, 0, map[string]int{}
	little := func() bool {
		return calls < 200 || lost < 5 || kinds["submit 410 "] == 0 || kinds["retry 202 pending"]+kinds["retry 202 generating"] == 0
	}
	for n := 0; n < *historiesFlag || little() && n < *historiesFlag+20; n++ {
		s := &scribe{world: newWorld(t), calls: map[*intent]int{}, kinds: kinds}
		enough := make(chan struct{})
		var clients sync.WaitGroup
		l := serveNow(t, file)
		s.begin(l)
		for n := range 12 {
			source := newSource(rng)
			clients.Go(func() { s.live(n, source, enough) })
		}
		for range 8 {
			time.Sleep(upTo(rng, 500*time.Millisecond)) // the moment of the kill
			l.kill()
			s.end()
			l = serveNow(t, file)
			s.begin(l)
		}
		close(enough)
		clients.Wait()
		l.kill()
		close(s.over)
		if !legal(t, s.history) {
			for _, part := range contract.Partition(s.history) {
				if !legal(t, part) {
					slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
					for _, o := range part {
						t.Logf("%9.3f–%9.3f %s", time.Duration(o.Call).Seconds(), time.Duration(o.Return).Seconds(), contract.DescribeOperation(o.Input, o.Output))
					}
					t.Fatal("this cannot have happened one call after the other")
				}
			}
		}
		if legal(t, withAnotherAnswer(s.history)) {
			t.Error("one answer of the history was changed, and nobody sees it")
		}
		for _, o := range s.history {
			calls++
			if o.Return == math.MaxInt64 {
				lost++
			}
		}
		questions += len(s.intents)
	}
	verifyFile(t, file)
	t.Logf("%d moments of %d questions, %d calls unheard: %v", calls, questions, lost, kinds)
	if little() {
		t.Errorf("%d calls, %d lost, %v: this proves little", calls, lost, kinds)
	}
}

// withAnotherAnswer is history with one of two answers to the same question changed.
func withAnotherAnswer(history []porcupine.Operation) []porcupine.Operation {
	history = slices.Clone(history)
	seen := map[string]bool{}
	for i, o := range history {
		h, question := o.Output.(heard), o.Input.(wanted).question
		if h.message == "" {
			continue
		}
		if seen[question] {
			h.message = "another answer"
			history[i].Output = h
			break
		}
		seen[question] = true
	}
	return history
}

// What must not happen is seen.
func TestAStoryThatCannotBeIsRefused(t *testing.T) {
	const a, b = "answer of attempt 1", "answer of attempt 2"
	answered := func(attempt int64, message string) heard {
		return heard{http: 200, state: chat.StateCommitted, attempt: attempt, message: message}
	}
	pending := heard{http: 202, state: chat.StatePending}
	failed := heard{http: 502, state: chat.StateFailed, attempt: 1, retry: chat.RetryExplicit}
	type call struct {
		what string
		h    heard
	}
	for name, c := range map[string]struct {
		calls []call
		legal bool
	}{
		"as it should be":               {[]call{{"submit", pending}, {"status", answered(1, a)}, {"submit", answered(1, a)}}, true},
		"a retry that nobody heard":     {[]call{{"submit", failed}, {"retry", heard{nothing: true}}, {"status", answered(2, b)}}, true},
		"the answer changes":            {[]call{{"submit", answered(1, a)}, {"submit", answered(1, b)}}, false},
		"the second answer comes first": {[]call{{"submit", pending}, {"submit", answered(2, b)}, {"status", answered(1, a)}}, false},
		"the question is lost":          {[]call{{"submit", pending}, {"status", heard{http: 404}}}, false},
		"the answer is lost":            {[]call{{"submit", answered(1, a)}, {"status", pending}}, false},
		"a failure heals by itself":     {[]call{{"submit", failed}, {"submit", answered(2, b)}}, false},
		"a retry of an older attempt":   {[]call{{"submit", heard{http: 502, state: chat.StateFailed, attempt: 2, retry: chat.RetryExplicit}}, {"retry", answered(3, b)}}, false},
		"an attempt comes back":         {[]call{{"submit", heard{http: 202, state: chat.StateGenerating, attempt: 2}}, {"status", heard{http: 200, state: chat.StateGenerating, attempt: 1}}}, false},
		"deleted, it comes back":        {[]call{{"submit", answered(1, a)}, {"delete", heard{http: 200}}, {"submit", answered(1, a)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var history []porcupine.Operation
			for i, x := range c.calls {
				end := int64(2*i + 1)
				if x.h.nothing {
					end = math.MaxInt64
				}
				history = append(history, porcupine.Operation{
					Input: wanted{"q", x.what, 1}, Call: int64(2 * i), Output: x.h, Return: end,
				})
			}
			if got := legal(t, history); got != c.legal {
				t.Errorf("legal: %t, want %t", got, c.legal)
			}
		})
	}
}
