package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/engine"
	"semel/llm/llmtest"
)

// drain begins a shutdown that gives running answers this long, and returns what
// closes when it is over.
func (r *rig) drain(limit time.Duration) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		ctx, cancel := context.WithTimeout(r.ctx, limit)
		defer cancel()
		r.e.Drain(ctx)
	}()
	synctest.Wait()
	return over
}

func TestRunningAnswersEndDuringAShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.Models[0].Concurrency = 1 }, llmtest.Paced(3*time.Second, "a", "b"))
		running, waiting := r.say("one"), r.say("two")
		r.submit(ask(newID(), newID(), "for the slot")) // of another conversation
		r.rest()
		began := time.Now()
		<-r.drain(30 * time.Second)
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("the shutdown took %s", took)
		}
		r.rest()
		if rec := r.record(running); rec.State != chat.StateCommitted || rec.Content != "ab" {
			t.Errorf("got %s %q", rec.State, rec.Content)
		}
		if s := r.record(waiting).State; s != chat.StatePending {
			t.Errorf("what waited is %s", s)
		}
		r.calls(1)
		next := r.die(llmtest.Answer("next"))
		next.answered(waiting, "next")
		next.pass(time.Minute)
		next.calls(2)
		if n := next.request(waiting).Crashes; n != 0 {
			t.Errorf("a clean shutdown counts as %d deaths", n)
		}
	})
}

func TestLongAnswersAreLeftToTheNextLifeWithTheirText(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, next *rig, id string){
		"rerun": func(t *testing.T, next *rig, id string) { next.answered(id, "again") },
		"ask": func(t *testing.T, next *rig, id string) {
			if rec := next.failed(id, "interrupted", chat.OutcomeUnknown, chat.RetryExplicit); rec.Content != "xxxxxxxxxxxx" {
				t.Errorf("partial text %q", rec.Content)
			}
			next.calls(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pieces := make([]string, 100)
				for i := range pieces {
					pieces[i] = "x"
				}
				r := newRig(t, nil, llmtest.Paced(400*time.Millisecond, pieces...))
				if name == "ask" {
					r = newRig(t, asks, llmtest.Paced(400*time.Millisecond, pieces...))
				}
				id := r.say("hello")
				began := time.Now()
				<-r.drain(5 * time.Second)
				if took := time.Since(began); took != 5*time.Second {
					t.Errorf("the shutdown took %s", took)
				}
				r.rest()
				if rec := r.record(id); rec.State != chat.StateGenerating || rec.Content != "xxxxxxxxxxxx" {
					t.Errorf("got %s %q", rec.State, rec.Content)
				}
				change(t, r.die(llmtest.Answer("again")), id)
			})
		})
	}
}

func TestRepeatsOfKnownIDsAreAnsweredDuringAShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("done"), llmtest.Fail(llmtest.Refused(time.Hour)), llmtest.Paced(time.Minute, "x"))
		done := r.say("one")
		r.end(done)
		auto := r.say("two")
		r.end(auto)
		running, waiting := r.say("three"), r.say("four")
		r.rest()
		over := r.drain(10 * time.Second)
		if !r.e.Draining() || r.e.Ready(r.ctx) == nil {
			t.Error("not draining, or ready")
		}
		for id, want := range map[string]chat.Decision{done: chat.DecisionReplayed, running: chat.DecisionJoined, waiting: chat.DecisionJoined} {
			content := map[string]string{done: "one", running: "three", waiting: "four"}[id]
			if res := r.submit(r.message(id, content)); res.Decision != want {
				t.Errorf("got %s, want %s", res.Decision, want)
			}
		}
		if p := r.refused(r.message(done, "other words")); p.Code != "key_reused" {
			t.Errorf("got %+v", p)
		}
		for _, a := range []string{newID(), auto} {
			content := map[bool]string{true: "two", false: "new"}[a == auto]
			if p := r.refused(r.message(a, content)); p.Status != 503 || p.Code != "shutting_down" || p.Retry != chat.RetrySameID {
				t.Errorf("got %+v", p)
			}
		}
		r.stop(waiting, 0) // a stop works to the end
		r.failed(waiting, "stopped", chat.OutcomeNone, chat.RetryExplicit)
		<-over
		r.rest()
		r.calls(3)
	})
}

func TestAShutdownDoesNotWaitForADeafClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, nil, llmtest.Until(gate, llmtest.Answer("late")))
		id := r.say("hello")
		r.rest()
		began := time.Now()
		<-r.drain(time.Second)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the shutdown took %s", took)
		}
		close(gate)
		r.rest()
		if s := r.record(id).State; s != chat.StateGenerating {
			t.Errorf("state %s", s)
		}
	})
}

func TestArrivalsReportedBeforeAShutdownAreStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("done"))
		id := r.say("hello")
		r.end(id)
		for range 5 {
			r.e.Answered(r.submit(r.message(id, "hello")), chat.SourceWeb, 200)
		}
		<-r.drain(time.Second)
		rc, err := r.d.Receipt(r.ctx, r.key(id))
		if err != nil || len(rc.Arrivals) != 6 {
			t.Errorf("%d arrivals %v, want 6", len(rc.Arrivals), err)
		}
	})
}

func TestFeedsEndWithTheEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("done"))
		w := r.e.Events().Watch(1)
		defer w.Close()
		other := r.e.Events().Watch(2)
		defer other.Close()
		id := r.say("hello")
		r.end(id)
		<-w.Wake()
		var last map[string]chat.State
		for _, ev := range w.Take() {
			if last == nil {
				last = map[string]chat.State{}
			}
			last[ev.RequestID] = ev.State
		}
		if last[id] != chat.StateCommitted {
			t.Errorf("the feed says %v", last)
		}
		if len(other.Take()) != 0 {
			t.Error("another user's feed has events")
		}
		<-r.drain(time.Second)
		if _, open := <-w.Wake(); open {
			if _, open := <-w.Wake(); open {
				t.Error("the feed is open after the shutdown")
			}
		}
	})
}
