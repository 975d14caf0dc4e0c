package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/llm"
	"semel/llm/llmtest"
)

// A stall holds the workers of chosen attempts after their call, past their lease,
// and lets them go when it is told to: zombies.
type stall struct {
	gate    chan struct{}
	attempt int64
	held    atomic.Int64
}

func newStall(attempt int64) *stall { return &stall{gate: make(chan struct{}), attempt: attempt} }

func (s *stall) hold(r chat.Request) {
	if r.Attempt == s.attempt {
		s.held.Add(1)
		<-s.gate
	}
}

func (s *stall) options(o *engine.Options) { o.Stall = s.hold }

func TestS1S2AWorkerThatLostItsLeaseWritesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step llmtest.Step // of the worker that is held
	}{
		{"an answer", llmtest.Answer("the zombie's")},
		{"a failure", llmtest.Fail(llmtest.Denied())},
		{"a failure with text", llmtest.Fail(llmtest.Denied(), "the zombie's")},
		{"a refusal that is tried again", llmtest.Fail(llmtest.Refused(0))},
		{"an unknown outcome", llmtest.Fail(llmtest.Lost(), "the zombie's")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStall(1)
				r := newRig(t, s.options, tt.step, llmtest.Paced(time.Minute, "the ", "heir's"))
				id := r.say("hello")
				behind := r.say("behind")
				r.pass(2*time.Minute + 59*time.Second)
				r.calls(1)               // its lease holds
				r.pass(40 * time.Second) // and now it does not
				r.calls(2)
				if req := r.request(id); req.Attempt != 2 || req.State != chat.StateGenerating || req.Crashes != 1 {
					t.Fatalf("got %s attempt %d crashes %d", req.State, req.Attempt, req.Crashes)
				}
				close(s.gate) // the zombie walks while its heir works
				r.rest()
				if req := r.request(id); req.Attempt != 2 || req.State != chat.StateGenerating {
					t.Fatalf("after the zombie: %s attempt %d", req.State, req.Attempt)
				}
				if got := string(r.live(id).View().Text); got != "" && got != "the " {
					t.Errorf("viewers of the heir's attempt see %q", got)
				}
				r.answered(id, "the heir's")
				r.answered(behind, "the heir's")
				rc := r.receipt(id)
				if a := rc.Attempts[0]; a.Outcome != chat.OutcomeFenced || a.Code != "interrupted" {
					t.Errorf("the lost attempt: %+v", a)
				}
				if w := fmt.Sprint(r.waste(id)); w != "[1]" {
					t.Errorf("waste %s, want [1]", w)
				}
				r.idle()
			})
		})
	}
}

func TestAZombieThatWakesAfterTheEndWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStall(1)
		r := newRig(t, s.options, llmtest.Answer("the zombie's"), llmtest.Answer("the heir's"))
		id := r.say("hello")
		r.answered(id, "the heir's")
		r.idle()
		close(s.gate)
		r.rest()
		r.answered(id, "the heir's")
		r.calls(2)
		r.idle()
	})
}

func TestALostLeaseIsForAPersonWhereTheModelCostsMoney(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStall(1)
		r := newRig(t, func(o *engine.Options) { asks(o); s.options(o) }, llmtest.Answer("the zombie's"), llmtest.Answer("the heir's"))
		id := r.say("hello")
		r.failed(id, "interrupted", chat.OutcomeUnknown, chat.RetryExplicit)
		r.idle()
		r.retry(id, 1, "")
		close(s.gate)
		r.answered(id, "the heir's")
		r.calls(2)
		r.idle()
	})
}

// Held workers give their slots to their heirs, once.
func TestALostLeaseLeaksNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStall(1)
		r := newRig(t, func(o *engine.Options) { s.options(o); o.Models[0].Concurrency, o.RunningPerUser = 2, 2 }, llmtest.Answer("ok"))
		var ids []string
		var sessions []string
		for range 6 {
			r.session = newID()
			sessions = append(sessions, r.session)
			ids = append(ids, r.say("hello"))
		}
		r.pass(20 * time.Minute) // two at a time are held, lose their leases, and are run again
		if got := s.held.Load(); got != 6 {
			t.Errorf("%d workers were held, want 6", got)
		}
		close(s.gate)
		r.rest()
		for i, id := range ids {
			r.session = sessions[i]
			r.answered(id, "ok")
		}
		r.idle()
	})
}

func TestAStopOfAHeldWorkerIsHonouredWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "text"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStall(1)
			r := newRig(t, s.options, llmtest.Then(llmtest.Paced(2*time.Second, ""), text), llmtest.Answer("no"))
			id := r.say("hello")
			r.pass(5 * time.Second)
			r.stop(id, 1)
			r.pass(5 * time.Minute)
			if text == "" {
				r.failed(id, "stopped", chat.OutcomeUnknown, chat.RetryExplicit)
			} else {
				r.answered(id, text)
			}
			close(s.gate)
			r.pass(time.Minute)
			r.calls(1)
			r.idle()
		})
	}
}

// A worker whose row is taken away under it, as another process life would: the
// next heartbeat or piece of text tells it, it cancels its call and lets go.
func TestAFencedWorkerCancelsItsCall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		within     time.Duration
	}{
		{"by its heartbeat", "", 20 * time.Second},
		{"by its text", "text", time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cancelled atomic.Bool
				r := newRig(t, rarely, func(ctx context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
					emit(llm.Piece{Text: tt.text})
					<-ctx.Done()
					cancelled.Store(true)
					return llm.Answer{}, ctx.Err()
				})
				id := r.say("hello")
				r.rest()
				if _, err := r.d.Fail(r.ctx, r.request(id), db.End{Outcome: chat.OutcomeUnknown, Code: "taken", Actor: "reaper:test"},
					chat.Failure{Code: "interrupted", Outcome: chat.OutcomeUnknown, Retry: chat.RetryExplicit}); err != nil {
					t.Fatal(err)
				}
				r.pass(tt.within)
				if !cancelled.Load() {
					t.Errorf("the call goes on %s after its request was taken", tt.within)
				}
				r.failed(id, "interrupted", chat.OutcomeUnknown, chat.RetryExplicit)
				r.calls(1)
				r.idle()
			})
		})
	}
}

// S3: a stale worker's word is refused whatever it is, by the compare in
// each of its writes.
func TestS3EveryWriteOfAStaleAttemptIsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Denied()), llmtest.Hang("text"))
		id := r.say("hello")
		r.end(id)
		stale := r.request(id)
		stale.State, stale.Owner = chat.StateGenerating, "another life"
		r.retry(id, 1, "")
		r.pass(2 * time.Second)
		now := r.request(id)
		// Each part of the compare must do for itself: the rest is as it is.
		older, otherLife, earlier, waiting := now, now, now, now
		older.Attempt--
		otherLife.Owner = "another life"
		earlier.Steps--
		waiting.State = chat.StatePending
		before := r.receipt(id)
		end := db.End{Outcome: chat.OutcomeDefinite, Code: "x", Waste: true, Actor: "test", Tail: db.Partial{Text: "x"}}
		failure := chat.Failure{Code: "x", Outcome: chat.OutcomeDefinite, Retry: chat.RetryExplicit}
		answer := db.Answer{Content: "x", ToolCalls: "[]", Finish: chat.FinishStop, Outcome: chat.OutcomeOK, Actor: "test", Reason: "answered"}
		for name, s := range map[string]chat.Request{"stale": stale, "older attempt": older, "another life": otherLife, "earlier": earlier} {
			for write, do := range map[string]func() error{
				"heartbeat": func() error { return r.d.Heartbeat(r.ctx, s, time.Hour) },
				"partial":   func() error { return r.d.AppendPartial(r.ctx, s, db.Partial{Text: "x"}) },
				"finish":    func() error { _, err := r.d.Finish(r.ctx, s, answer); return err },
				"fail":      func() error { _, err := r.d.Fail(r.ctx, s, end, failure); return err },
				"fail without text": func() error {
					e := end
					e.Tail = db.Partial{}
					_, err := r.d.Fail(r.ctx, s, e, failure)
					return err
				},
				"requeue": func() error {
					e := end
					e.Tail = db.Partial{}
					_, err := r.d.Requeue(r.ctx, s, e, time.Time{}, "engine_retry", 1, 0)
					return err
				},
				"stop": func() error { return r.d.RequestStop(r.ctx, s) },
			} {
				if err := do(); !errors.Is(err, db.ErrFenced) {
					t.Errorf("%s, %s: got %v, want fenced", name, write, err)
				}
			}
		}
		for write, do := range map[string]func() error{
			"heartbeat": func() error { return r.d.Heartbeat(r.ctx, waiting, time.Hour) },
			"partial":   func() error { return r.d.AppendPartial(r.ctx, waiting, db.Partial{Text: "x"}) },
			"stop":      func() error { return r.d.RequestStop(r.ctx, waiting) },
		} {
			if err := do(); !errors.Is(err, db.ErrFenced) {
				t.Errorf("another state, %s: got %v, want fenced", write, err)
			}
		}
		r.rest()
		after := r.receipt(id)
		if before, after := asJSON(t, before), asJSON(t, after); after != before {
			t.Errorf("something was written:\n%s\n%s", before, after)
		}
		if rec := r.record(id); rec.Content != "text" || rec.State != chat.StateGenerating {
			t.Errorf("record: %s %q", rec.State, rec.Content)
		}
	})
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// S38: leases of this life go by the monotonic clock and the workers' heartbeats,
// so a long answer is never taken over.
func TestS38ALongAnswerIsNotTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pieces := make([]string, 60)
		for i := range pieces {
			pieces[i] = "x"
		}
		r := newRig(t, nil, llmtest.Paced(30*time.Second, pieces...))
		id := r.say("hello")
		r.rest()
		execSQL(t, r.file, `UPDATE requests SET lease_until = 1 WHERE state = 'generating'`) // what a clock that jumped would say
		if rec := r.end(id); rec.Attempt != 1 || rec.State != chat.StateCommitted {
			t.Errorf("got %s attempt %d", rec.State, rec.Attempt)
		}
		r.calls(1)
	})
}
