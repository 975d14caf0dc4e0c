package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"semel/llm"
	"semel/llm/llmtest"
)

// stop presses Stop, meaning this attempt, and returns the request as told.
func (r *rig) stop(id string, attempt int64) chat.Request {
	r.t.Helper()
	req, err := r.e.Stop(r.ctx, r.key(id), attempt)
	if err != nil {
		r.t.Fatalf("stop %s: %v", id, err)
	}
	return req
}

func TestStopOfAWaitingQuestionFailsItAtOnceAndItIsNeverAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Hang())
		first := r.say("first")
		second := r.say("second")
		r.rest()
		if got := r.stop(second, 0); got.State != chat.StateFailed {
			t.Fatalf("got %s, want failed", got.State)
		}
		r.failed(second, "stopped", chat.OutcomeNone, chat.RetryExplicit)
		if r.e.Live(r.request(second).ID) != nil {
			t.Error("the engine still waits for the stopped request")
		}
		r.stop(first, 1)
		r.failed(first, "stopped", chat.OutcomeUnknown, chat.RetryExplicit)
		r.pass(time.Minute)
		r.calls(1)
		if w := r.waste(second); len(w) != 0 {
			t.Errorf("waste of a request that was never asked: %v", w)
		}
	})
}

func TestStopWhileWaitingToRetryFailsItAndItIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Refused(30*time.Second)), llmtest.Answer("late"))
		id := r.say("hello")
		r.rest()
		if got := r.request(id); got.State != chat.StatePending || got.Attempt != 1 {
			t.Fatalf("got %s attempt %d, want it waiting after attempt 1", got.State, got.Attempt)
		}
		r.stop(id, 1)
		r.failed(id, "stopped", chat.OutcomeNone, chat.RetryExplicit)
		r.pass(time.Hour)
		r.calls(1)
	})
}

func TestStopKeepsWhatCameAsTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Hang("half ", "an answer"))
		id := r.say("hello")
		r.pass(3 * time.Second)
		if got := r.stop(id, 1); got.State != chat.StateCommitted {
			t.Fatalf("got %s, want committed", got.State)
		}
		rec := r.answered(id, "half an answer")
		if rec.Message.Finish != chat.FinishStopped || !rec.Usage.Estimated || rec.Cost.Micros == 0 {
			t.Errorf("finish %s usage %+v cost %+v, want stopped, charged as estimated", rec.Message.Finish, rec.Usage, rec.Cost)
		}
		r.calls(1)
	})
}

func TestStopWithoutTextFailsAndNotesTheCallAsWaste(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Hang())
		id := r.say("hello")
		r.rest()
		r.stop(id, 0)
		r.failed(id, "stopped", chat.OutcomeUnknown, chat.RetryExplicit)
		if w := fmt.Sprint(r.waste(id)); w != "[1]" {
			t.Errorf("waste of attempts %s, want [1]", w)
		}
		// A plain repeat replays the stop; only a person starts it again.
		if res := r.submit(r.message(id, "hello")); res.Decision != chat.DecisionReplayed {
			t.Errorf("repeat after stop: %s, want replayed", res.Decision)
		}
		r.pass(time.Hour)
		r.calls(1)
	})
}

func TestS33AStopMeantForAnOlderAttemptChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Denied()), llmtest.Paced(10*time.Second, "second"))
		id := r.say("hello")
		r.failed(id, "provider_refused", chat.OutcomeDefinite, chat.RetryExplicit)
		if _, err := r.e.Retry(r.ctx, engine.Again{Key: r.key(id), Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		r.rest()
		if got := r.stop(id, 1); got.State != chat.StateGenerating || got.Attempt != 2 || got.StopRequested {
			t.Fatalf("got %s attempt %d stop %v, want attempt 2 generating and unstopped", got.State, got.Attempt, got.StopRequested)
		}
		r.answered(id, "second")
	})
}

func TestS32AStopAfterTheAnswerChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("done"))
		id := r.say("hello")
		r.answered(id, "done")
		if got := r.stop(id, 1); got.State != chat.StateCommitted {
			t.Fatalf("got %s, want committed", got.State)
		}
		r.answered(id, "done")
		if r.request(id).StopRequested {
			t.Error("a stop was stored with an answer that is final")
		}
	})
}

// C1: what is only hidden is billed to its end.
func TestStopCancelsTheProviderWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cancelled := make(chan time.Time, 1)
		r := newRig(t, nil, func(ctx context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
			<-ctx.Done()
			cancelled <- time.Now()
			return llm.Answer{}, ctx.Err()
		})
		id := r.say("hello")
		r.pass(10 * time.Second)
		pressed := time.Now()
		r.stop(id, 1)
		if took := (<-cancelled).Sub(pressed); took > time.Second {
			t.Errorf("the provider's context ended %s after the stop", took)
		}
		if took := time.Since(pressed); took > time.Second {
			t.Errorf("the stop took %s", took)
		}
	})
}

func TestAClientThatIgnoresTheStopIsLeftBehindAndNotHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, nil, llmtest.Then(llmtest.Until(gate, llmtest.Answer("and more")), "this much"))
		id := r.say("hello")
		r.rest()
		pressed := time.Now()
		r.stop(id, 1)
		if took := time.Since(pressed); took > 2*time.Second {
			t.Errorf("the stop took %s", took)
		}
		close(gate)
		r.pass(time.Second)
		if rec := r.answered(id, "this much"); rec.Message.Finish != chat.FinishStopped {
			t.Errorf("finish %s, want stopped", rec.Message.Finish)
		}
	})
}

// What is decided about a call is what its viewers have seen, to the byte: a
// client that talks on while the end is being stored is not heard.
func TestViewersSeeNothingAfterTheEndOfACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := newStall(1)
		r := newRig(t, s.options, llmtest.Then(llmtest.Until(gate, llmtest.Answer("and more")), "this much"))
		id := r.say("hello")
		r.rest()
		l := r.live(id)
		r.stop(id, 1)
		r.pass(2 * time.Second) // the client is given up, its end is not stored
		close(gate)
		r.rest()
		if got := string(l.View().Text); got != "this much" {
			t.Errorf("viewers see %q after the end", got)
		}
		close(s.gate)
		r.answered(id, "this much")
	})
}

func TestALateWordOfAnAttemptThatIsOverIsNotHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, nil, llmtest.Until(gate, llmtest.Answer("late")), llmtest.Paced(2*time.Second, "new", "er"))
		id := r.say("hello")
		l := r.live(id)
		r.pass(5*time.Minute + 5*time.Second) // no first token; the second attempt has given its first piece
		close(gate)
		r.rest()
		if v := l.View(); v.Request.Attempt != 2 || strings.Contains(string(v.Text), "late") {
			t.Errorf("attempt %d shows %q", v.Request.Attempt, v.Text)
		}
		r.answered(id, "newer")
		r.calls(2)
	})
}

// Whichever compare-and-set wins is final; and the model is called once.
func TestS32StopRacesWithCompletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Paced(500*time.Millisecond, "a", "b"))
		for run := range 30 {
			r.session = newID()
			// The answer ends at the same moment of fake time as the stop comes.
			id := r.say("hello")
			var wg sync.WaitGroup
			for range 1 + run%3 {
				wg.Go(func() {
					time.Sleep(time.Second)
					if _, err := r.e.Stop(r.ctx, r.key(id), 1); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			rec := r.end(id)
			switch {
			case rec.State != chat.StateCommitted:
				t.Fatalf("got %s, want committed", rec.State)
			case rec.Message.Finish == chat.FinishStopped && (rec.Content == "a" || rec.Content == "ab"):
			case rec.Message.Finish == chat.FinishStop && rec.Content == "ab":
			default:
				t.Fatalf("got %q %s", rec.Content, rec.Message.Finish)
			}
			r.calls(run + 1)
		}
	})
}

// A stop that comes right after the submission finds the request in any state;
// it must end, whatever it meets.
func TestS32StopRacesWithTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Hang("x"))
		for range 15 {
			r.session = newID()
			var wg sync.WaitGroup
			ids := make([]string, 4)
			for i := range ids {
				ids[i] = newID()
				wg.Go(func() {
					if _, err := r.e.Submit(r.ctx, r.message(ids[i], "hello")); err != nil {
						t.Error(err)
					}
				})
				wg.Go(func() {
					for {
						_, err := r.e.Stop(r.ctx, r.key(ids[i]), 0)
						if errors.Is(err, db.ErrNotFound) {
							continue
						}
						if err != nil {
							t.Error(err)
						}
						return
					}
				})
			}
			wg.Wait()
			r.pass(3 * time.Second)
			for _, id := range ids {
				if req := r.request(id); req.State.Live() {
					t.Fatalf("request %s is still %s", id, req.State)
				}
			}
		}
	})
}

// onLog calls do when the engine logs a line with this message.
func onLog(message string, do func()) *slog.Logger { return slog.New(&hook{message: message, do: do}) }

type hook struct {
	message string
	do      func()
}

func (h *hook) Enabled(context.Context, slog.Level) bool { return true }
func (h *hook) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *hook) WithGroup(string) slog.Handler            { return h }
func (h *hook) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.do()
	}
	return nil
}

// pressStop presses Stop from elsewhere and returns once the stop is stored.
func (r *rig) pressStop(id string) {
	go func() {
		if _, err := r.e.Stop(r.ctx, r.key(id), 0); err != nil {
			r.t.Error(err)
		}
	}()
	for range 1000 {
		if r.request(id).StopRequested {
			return
		}
		time.Sleep(time.Millisecond)
	}
	r.t.Error("the stop is not stored")
}

func TestAStopBetweenTheClaimAndTheCallIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		id := newID()
		faults := &dbtest.Faults{}
		log := onLog("outcome of a claim is open", func() { r.pressStop(id) })
		r = openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, func(o *engine.Options) { o.Log = log }, llmtest.New(llmtest.Hang()))
		faults.Arm("COMMIT", 1, dbtest.Stored, busy)
		r.submit(r.message(id, "hello"))
		r.pass(5 * time.Second)
		rec := r.record(id)
		if rec.State != chat.StateFailed || rec.Error.Code != "stopped" || rec.Error.Outcome != chat.OutcomeNone {
			t.Fatalf("got %s %+v, want stopped before anything was sent", rec.State, rec.Error)
		}
		r.calls(0)
		if w := r.waste(id); len(w) != 0 {
			t.Errorf("waste of a call that was not made: %v", w)
		}
	})
}

func TestAStopStoredWhileTheCallFailsIsHonouredInsteadOfTheRetry(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]llmtest.Step{
		"refused":       llmtest.Fail(llmtest.Refused(0)),
		"unreachable":   llmtest.Fail(llmtest.Unreachable()),
		"line lost":     llmtest.Fail(llmtest.Lost()),
		"asked to wait": llmtest.Fail(llmtest.Refused(time.Hour)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r *rig
				id := newID()
				log := onLog("attempt failed", func() { r.pressStop(id) })
				r = newRig(t, func(o *engine.Options) { o.Log = log }, step, llmtest.Answer("not wanted"))
				r.submit(r.message(id, "hello"))
				r.pass(time.Hour)
				rec := r.record(id)
				if rec.State != chat.StateFailed || rec.Error.Code != "stopped" || rec.Error.Retry != chat.RetryExplicit {
					t.Fatalf("got %s %+v, want it stopped", rec.State, rec.Error)
				}
				r.calls(1)
			})
		})
	}
}

func TestAStopStoredWhileTheLineIsLostMakesThePartialTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		id := newID()
		log := onLog("attempt failed", func() { r.pressStop(id) })
		r = newRig(t, func(o *engine.Options) { o.Log = log }, llmtest.Fail(llmtest.Lost(), "partial"), llmtest.Answer("not wanted"))
		r.submit(r.message(id, "hello"))
		r.pass(time.Hour)
		if rec := r.answered(id, "partial"); rec.Message.Finish != chat.FinishStopped {
			t.Errorf("finish %s, want stopped", rec.Message.Finish)
		}
		r.calls(1)
	})
}

func TestStopIsForTheRequestWhoeverPressesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Hang("text"))
		id := r.say("hello")
		r.rest()
		// Two tabs at once, one that saw the attempt and one that did not.
		var wg sync.WaitGroup
		for _, attempt := range []int64{0, 1, 1} {
			wg.Go(func() {
				if _, err := r.e.Stop(r.ctx, r.key(id), attempt); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		r.answered(id, "text")
		other := r.key(id)
		other.UserID = 2
		if _, err := r.e.Stop(r.ctx, other, 0); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("another user's stop: %v, want not found", err)
		}
	})
}
