package engine

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"semel/chat"
	"semel/llm"
)

var deathsFlag = flag.Int("deaths", 2, "how often the process dies in one story of the explored machine")

// The life of one request and of its effect, explored whole: two workers, a client that
// repeats itself, a person who stops, retries, sends again and undoes, a sender and its
// receiver; the process may die and a lease may end between any two steps. Edges are those
// of chat, and what follows a failed call is the engine's own verdict.
//
// A modelState is all of it. It has no pointers: equal states are one.
type modelState struct {
	// In the file.
	state                                     chat.State
	attempt, owner, stop                      int8 // stop is the attempt it is for, 0 none
	refused, crashes                          int8
	outcome                                   chat.Outcome // of the failure
	retry                                     chat.Retry
	attempts, snapshots, charges, marks, msgs int8 // rows
	answer                                    int8 // the attempt whose answer is stored
	effect                                    chat.EffectState
	deliveries, compensations                 int8 // rows

	// In memory: gone when the process dies.
	workers  [2]modelWorker
	sender   modelSender
	unbilled bool // the answer is stored and its charge is not: only a mutant has that moment
	telling  bool // a client is told of an acceptance that is not stored yet: likewise

	// Elsewhere.
	told                bool // a client knows that the question is accepted
	shown               int8 // the attempt whose answer a client has seen
	looked              int8 // the attempt a person saw fail
	calls               int8 // of the model
	keys                int8 // bit n: the receiver did what it was asked under key n
	done, undone        int8 // how often it did it, and undid it
	unknowns, restarted int8 // attempts that ended unknown, and how often a person or the policy answered for one
	stopped             bool // a stop won, and nobody asked again

	// What may still happen.
	deaths, lapses, presses, failures, tries int8
}

type modelWorker struct {
	at      int8 // one of the following
	attempt int8
}

type modelSender struct {
	at      int8
	attempt int8
}

const (
	atRest int8 = iota
	atClaimed
	atCalled
	atAnswered
)

// A mutant is a program with one guard less.
type mutant struct {
	noFence, ackFirst, billOutside, keyPerTry, retryUnknown, undoTwice bool
}

// A modelRun is one exploration.
type modelRun struct {
	m     mutant
	rerun bool
	model Model
	edges map[chat.Edge]bool // taken so far
}

// A step leads to another state. fair ones happen sooner or later when they stay possible;
// the others, deaths and people, may never come.
type modelStep struct {
	name string
	to   modelState
	fair bool
}

const modelTries = 2 // deliveries before a person is asked

func (x *modelRun) first() modelState {
	return modelState{state: chat.StateNew, deaths: int8(*deathsFlag), lapses: 1, presses: 2, failures: 2, tries: modelTries}
}

// become follows an edge; one that does not exist is refused, as the schema does.
func (s *modelState) become(to chat.State) bool {
	if !s.state.CanBecome(to) {
		return false
	}
	s.state = to
	return true
}

// holds is the compare-and-set of a worker's write.
func (x *modelRun) holds(s *modelState, n int) bool {
	if x.m.noFence {
		return s.state == chat.StateGenerating || s.state == chat.StatePending
	}
	return s.state == chat.StateGenerating && s.attempt == s.workers[n].attempt && s.owner == int8(n)+1
}

// fail ends the attempt without an answer.
func (s *modelState) fail(o chat.Outcome, r chat.Retry) {
	if s.become(chat.StateFailed) {
		s.owner, s.outcome, s.retry = 0, o, r
	}
}

func (s *modelState) wait() {
	if s.become(chat.StatePending) {
		s.owner = 0
	}
}

// lost is what takeOver decides about an attempt whose worker is gone.
func (x *modelRun) lost(s *modelState) {
	switch {
	case s.stop >= s.attempt && s.stop > 0:
		s.fail(chat.OutcomeUnknown, chat.RetryExplicit)
		s.stopped = true
	case x.rerun && s.crashes < int8(x.model.MaxCrashReruns):
		s.crashes++
		s.unknowns++
		s.restarted++
		s.wait()
	default:
		s.unknowns++
		s.fail(chat.OutcomeUnknown, chat.RetryExplicit)
	}
}

func (x *modelRun) steps(s modelState) (list []modelStep) {
	add := func(fair bool, name string, change func(*modelState)) {
		to := s
		change(&to)
		if to != s {
			list = append(list, modelStep{name, to, fair})
		}
	}
	x.clientSteps(s, add)
	for n := range s.workers {
		x.workerSteps(s, n, add)
	}
	x.effectSteps(s, add)
	if s.deaths > 0 && s.state != chat.StateNew {
		add(false, "the process dies, and the next recovers", func(to *modelState) {
			to.deaths--
			to.workers, to.sender, to.unbilled, to.telling = [2]modelWorker{}, modelSender{}, false, false
			if to.state == chat.StateGenerating {
				x.lost(to)
			}
			if to.effect == chat.EffectDelivering {
				to.effect = chat.EffectPending // the receiver knows the id
			}
		})
	}
	if s.telling && s.deaths > 0 {
		add(false, "the process dies before it stores", func(to *modelState) { to.deaths--; to.telling = false })
	}
	if s.lapses > 0 && s.state == chat.StateGenerating {
		add(false, "the lease ends under its worker", func(to *modelState) { to.lapses--; x.lost(to) })
	}
	return list
}

type adder func(fair bool, name string, change func(*modelState))

func (x *modelRun) clientSteps(s modelState, add adder) {
	store := func(to *modelState) {
		to.become(chat.StatePending)
		to.told, to.telling = true, false
	}
	switch {
	case s.state == chat.StateNew && x.m.ackFirst && !s.told:
		add(true, "a client is told, and nothing is stored", func(to *modelState) { to.told, to.telling = true, true })
	case s.state == chat.StateNew && (!x.m.ackFirst || s.telling):
		add(true, "the question is accepted", store)
	case s.state == chat.StateFailed && (s.retry == chat.RetryAuto || x.m.retryUnknown):
		if s.presses > 0 {
			add(false, "a repeat starts it again", func(to *modelState) { to.presses--; to.become(chat.StatePending); to.stopped = false })
		}
	}
	if s.state.Answered() {
		add(false, "a client sees the answer", func(to *modelState) { to.shown = to.answer })
	}
	if s.state == chat.StateFailed {
		add(false, "a person sees the failure", func(to *modelState) { to.looked = to.attempt })
	}
	if s.presses > 0 && s.looked > 0 {
		add(false, "a person presses Retry", func(to *modelState) { // perhaps for an older attempt
			to.presses--
			if to.state == chat.StateFailed && to.looked == to.attempt {
				to.restarted = to.unknowns
				to.stopped = false
				to.become(chat.StatePending)
			}
		})
	}
	if s.state.Live() && s.stop < s.attempt+1 && s.presses > 0 {
		add(false, "a person stops it", func(to *modelState) {
			to.presses--
			if to.state == chat.StatePending {
				to.fail(chat.OutcomeNone, chat.RetryExplicit)
				to.stopped = true
				return
			}
			to.stop = to.attempt
		})
	}
}

func (x *modelRun) workerSteps(s modelState, n int, add adder) {
	me := s.workers[n]
	set := func(to *modelState, at int8) { to.workers[n].at = at }
	switch me.at {
	case atRest:
		if s.state == chat.StatePending {
			add(true, "a worker claims it", func(to *modelState) {
				to.become(chat.StateGenerating)
				to.attempt++
				to.attempts++
				to.owner = int8(n) + 1
				to.workers[n] = modelWorker{at: atClaimed, attempt: to.attempt}
			})
		}
	case atClaimed:
		if s.stop >= me.attempt {
			add(true, "a stop before the call", func(to *modelState) {
				if x.holds(to, n) {
					to.fail(chat.OutcomeNone, chat.RetryExplicit)
					to.stopped = true
				}
				to.workers[n] = modelWorker{}
			})
			return
		}
		add(true, "it calls the model", func(to *modelState) { to.calls++; set(to, atCalled) })
	case atCalled:
		add(true, "the answer comes", func(to *modelState) { set(to, atAnswered) })
		if s.failures == 0 {
			return
		}
		for _, le := range []*llm.Error{
			{Outcome: chat.OutcomeNone}, {Outcome: chat.OutcomeDefinite, Transient: true}, {Outcome: chat.OutcomeDefinite}, {Outcome: chat.OutcomeUnknown},
		} {
			add(false, "the call fails", func(to *modelState) {
				to.failures--
				holds := x.holds(to, n)
				to.workers[n] = modelWorker{}
				if !holds {
					return
				}
				if le.Outcome == chat.OutcomeUnknown {
					to.unknowns++
				}
				if to.stop >= me.attempt {
					to.fail(le.Outcome, chat.RetryExplicit)
					to.stopped = true
					return
				}
				d := verdict(chat.Request{Refused: int64(to.refused)}, x.model, le, false)
				to.refused = int8(d.refused)
				if d.retry {
					if le.Outcome == chat.OutcomeUnknown {
						to.restarted++
					}
					to.wait()
				} else {
					to.fail(d.failure.Outcome, d.failure.Retry)
				}
			})
		}
	case atAnswered:
		add(true, "the answer is stored", func(to *modelState) {
			holds := x.holds(to, n)
			to.workers[n] = modelWorker{}
			if !holds {
				return
			}
			if to.state == chat.StatePending { // a mutant's
				to.state = chat.StateGenerating
			}
			if !to.become(chat.StateAcknowledged) {
				return
			}
			to.owner, to.answer = 0, me.attempt
			to.snapshots++
			to.msgs++
			to.marks++
			if x.m.billOutside {
				to.unbilled = true
			} else {
				to.charges++
			}
			to.effect = chat.EffectPending
		})
	}
	if s.unbilled && n == 0 {
		add(true, "the charge follows", func(to *modelState) { to.charges++; to.unbilled = false })
	}
}

// effect follows an edge of effects, if it exists.
func (s *modelState) affect(to chat.EffectState) bool {
	if !s.effect.CanBecome(to) {
		return false
	}
	s.effect = to
	if to.Settled() {
		s.become(chat.StateCommitted)
	}
	return true
}

func (x *modelRun) effectSteps(s modelState, add adder) {
	switch s.sender.at {
	case atRest:
		if s.effect == chat.EffectPending {
			add(true, "a sender claims the effect", func(to *modelState) {
				if to.deliveries >= to.tries {
					to.affect(chat.EffectDead)
					return
				}
				to.affect(chat.EffectDelivering)
				to.deliveries++
				to.sender = modelSender{at: atClaimed, attempt: to.deliveries}
			})
		}
	case atClaimed:
		key := int8(0)
		if x.m.keyPerTry {
			key = s.sender.attempt
		}
		add(true, "it is delivered", func(to *modelState) {
			if to.keys&(1<<key) == 0 {
				to.keys |= 1 << key
				to.done++
			}
			to.sender.at = atCalled
		})
	case atCalled:
		mark := func(name string, fair bool, state chat.EffectState) {
			add(fair, name, func(to *modelState) {
				if to.effect == chat.EffectDelivering && to.deliveries == to.sender.attempt {
					to.affect(state)
				}
				to.sender = modelSender{}
			})
		}
		mark("its receiver took it", true, chat.EffectDelivered)
		mark("the answer to the delivery is lost", false, chat.EffectPending)
	}
	if s.effect == chat.EffectDead {
		if s.presses > 0 {
			add(false, "a person sends it again", func(to *modelState) { to.presses--; to.affect(chat.EffectPending); to.tries++ })
			add(false, "a person gives it up", func(to *modelState) { to.presses--; to.affect(chat.EffectAbandoned) })
		}
	}
	if s.presses > 0 && s.deliveries > 0 && s.sender.at == atRest && s.effect != "" {
		add(false, "a person undoes it", func(to *modelState) {
			if to.affect(chat.EffectCompensating) || x.m.undoTwice && !to.effect.Settled() {
				to.presses--
				to.compensations++
			}
		})
	}
	if s.effect == chat.EffectCompensating && s.undone < s.compensations {
		add(true, "what undoes it is delivered", func(to *modelState) {
			to.undone++
			if to.undone == to.compensations {
				to.affect(chat.EffectCompensated)
			}
		})
	}
}

// wrong says which promise s breaks.
func (x *modelRun) wrong(s modelState) string {
	one := int8(0)
	if s.state.Answered() {
		one = 1
	}
	switch {
	case s.told && s.state == chat.StateNew && !s.telling:
		return "a client was told, and nothing is stored"
	case s.attempts != s.attempt || s.calls > s.attempts:
		return "a call without its row"
	case s.snapshots != one || s.msgs != one || s.marks != one:
		return "not one answer"
	case s.charges != one && !s.unbilled:
		return "not one charge"
	case s.shown > 0 && s.shown != s.answer:
		return "the answer that was shown is another now"
	case s.answer > 0 && s.answer != s.attempt:
		return "the answer is not of the newest attempt"
	case s.done > 1:
		return "the effect happened twice"
	case s.done > 0 && s.answer == 0:
		return "an effect without an answer"
	case s.undone > 1:
		return "it was undone twice"
	case s.state == chat.StateCommitted && !s.effect.Settled():
		return "committed, and the effect is not settled"
	case s.owner != 0 && s.unknowns > s.restarted:
		return "called again after an unknown outcome, and nobody had decided so"
	case s.stopped && s.state != chat.StateFailed:
		return "a stop won, and it goes on"
	}
	return ""
}

// resting reports whether nothing is left to do but for a person.
func resting(s modelState) bool {
	return s.state == chat.StateCommitted || s.state == chat.StateFailed || s.effect == chat.EffectDead
}

// explore visits every state. It returns how many there are, and the way to the first one
// that breaks a promise or from which nothing leads to an end.
func (x *modelRun) explore() (states int, wrong string) {
	type visit struct {
		from int
		how  string
	}
	first := x.first()
	index := map[modelState]int{first: 0}
	list, visits := []modelState{first}, []visit{{-1, ""}}
	var fair, all [][]int
	way := func(i int) string {
		var how []string
		for ; i > 0; i = visits[i].from {
			how = append([]string{visits[i].how}, how...)
		}
		return strings.Join(how, "; ")
	}
	for i := 0; i < len(list); i++ {
		s := list[i]
		if w := x.wrong(s); w != "" {
			return len(list), fmt.Sprintf("%s: %s: %+v", w, way(i), s)
		}
		fair, all = append(fair, nil), append(all, nil)
		for _, step := range x.steps(s) {
			if step.to.state != s.state && x.edges != nil {
				x.edges[chat.Edge{From: s.state, To: step.to.state}] = true
			}
			j, there := index[step.to]
			if !there {
				j = len(list)
				index[step.to], list, visits = j, append(list, step.to), append(visits, visit{i, step.name})
			}
			all[i] = append(all[i], j)
			if step.fair {
				fair[i] = append(fair[i], j)
			}
		}
	}
	// An end can be reached from everywhere, and by fair steps alone: they never go round.
	const white, grey, black = 0, 1, 2
	colour := make([]int8, len(list))
	type frame struct{ at, next int }
	for i := range list {
		if colour[i] != white {
			continue
		}
		stack := []frame{{i, 0}}
		colour[i] = grey
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if f.next < len(fair[f.at]) {
				j := fair[f.at][f.next]
				f.next++
				if colour[j] == grey {
					return len(list), "it goes round without an end: " + way(j)
				}
				if colour[j] == white {
					colour[j] = grey
					stack = append(stack, frame{j, 0})
				}
				continue
			}
			if len(fair[f.at]) == 0 && !resting(list[f.at]) {
				return len(list), fmt.Sprintf("nothing goes on: %s: %+v", way(f.at), list[f.at])
			}
			colour[f.at] = black
			stack = stack[:len(stack)-1]
		}
	}
	return len(list), ""
}

func modelOf(rerun bool) Model { return Model{Rerun: rerun, MaxAttempts: 2, MaxCrashReruns: 2} }

// Whatever comes between any two steps, every promise holds in every state, and from every
// state what goes on by itself leads to an end.
func TestEveryStateKeepsEveryPromiseAndLeadsToAnEnd(t *testing.T) {
	edges := map[chat.Edge]bool{}
	for _, rerun := range []bool{false, true} {
		x := &modelRun{rerun: rerun, model: modelOf(rerun), edges: edges}
		n, wrong := x.explore()
		t.Logf("rerun %t: %d states", rerun, n)
		if wrong != "" {
			t.Errorf("rerun %t: %s", rerun, wrong)
		}
		if n < 10_000 {
			t.Errorf("rerun %t: only %d states", rerun, n)
		}
	}
	for _, e := range chat.Edges {
		if !edges[e] {
			t.Errorf("no story goes from %s to %s", e.From, e.To)
		}
	}
}

// The same with one guard less is found wrong.
func TestAMachineWithOneGuardLessIsFoundWrong(t *testing.T) {
	for name, c := range map[string]struct {
		m    mutant
		want string
	}{
		"no fence":                     {mutant{noFence: true}, "the answer is not of the newest attempt"},
		"told before stored":           {mutant{ackFirst: true}, "a client was told, and nothing is stored"},
		"charged apart":                {mutant{billOutside: true}, "not one charge"},
		"a key for each delivery":      {mutant{keyPerTry: true}, "the effect happened twice"},
		"a repeat restarts an unknown": {mutant{retryUnknown: true}, "called again after an unknown outcome"},
		"undone twice":                 {mutant{undoTwice: true}, "it was undone twice"},
	} {
		t.Run(name, func(t *testing.T) {
			n, wrong := (&modelRun{m: c.m, model: modelOf(false)}).explore()
			if !strings.HasPrefix(wrong, c.want) {
				t.Errorf("%d states: %q, want %q", n, wrong, c.want)
			}
		})
	}
}
