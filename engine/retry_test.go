package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/llm/llmtest"
)

func (r *rig) retry(id string, attempt int64, model string) engine.Result {
	r.t.Helper()
	res, err := r.e.Retry(r.ctx, engine.Again{Key: r.key(id), Attempt: attempt, Model: model})
	if err != nil {
		r.t.Fatalf("retry %s: %v", id, err)
	}
	return res
}

func TestS20APersonMayAskAnyFailedRequestAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]error{
		"definite": llmtest.Denied(), "unknown": llmtest.Lost(), "auto": llmtest.Refused(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, asks, llmtest.Fail(fail), llmtest.Answer("ok"))
				id := r.say("hello")
				r.end(id)
				if res := r.retry(id, 1, ""); res.Decision != chat.DecisionRestarted || res.Request.Attempt != 1 || res.Request.State != chat.StatePending {
					t.Errorf("got %s %s attempt %d", res.Decision, res.Request.State, res.Request.Attempt)
				}
				if rec := r.answered(id, "ok"); rec.Attempt != 2 {
					t.Errorf("attempt %d, want 2", rec.Attempt)
				}
				if a := r.receipt(id).Attempts; a[1].Reason != "explicit" {
					t.Errorf("attempts: %+v", a)
				}
				// The same body under the same id is the same intent still.
				if res := r.submit(r.message(id, "hello")); res.Decision != chat.DecisionReplayed {
					t.Errorf("repeat: %s", res.Decision)
				}
			})
		})
	}
}

func TestTwoTabsThatRetryStartOneAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Denied()))
		id := r.say("hello")
		r.end(id)
		for attempt := int64(1); attempt <= 10; attempt++ {
			var wg sync.WaitGroup
			var mu sync.Mutex
			got := map[chat.Decision]int{}
			for range 4 {
				wg.Go(func() {
					res, err := r.e.Retry(r.ctx, engine.Again{Key: r.key(id), Attempt: attempt})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					got[res.Decision]++
					mu.Unlock()
				})
			}
			wg.Wait()
			r.failed(id, "provider_refused", chat.OutcomeDefinite, chat.RetryExplicit)
			r.calls(int(attempt) + 1)
			if got[chat.DecisionRestarted] != 1 {
				t.Errorf("decisions: %v", got)
			}
		}
	})
}

func TestARetryForAnAttemptThatIsOverJoinsWhatIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, nil, llmtest.Until(gate, llmtest.Fail(llmtest.Denied())), llmtest.Paced(time.Minute, "ok"))
		id := r.say("hello")
		if res := r.retry(id, 0, ""); res.Decision != chat.DecisionJoined {
			t.Errorf("retry while it waits: %s, want joined", res.Decision)
		}
		close(gate)
		r.end(id)
		if res := r.retry(id, 7, ""); res.Decision != chat.DecisionReplayed {
			t.Errorf("retry of an attempt that never was: %s, want replayed", res.Decision)
		}
		r.retry(id, 1, "")
		r.rest()
		if res := r.retry(id, 1, ""); res.Decision != chat.DecisionJoined || res.Request.Attempt != 2 {
			t.Errorf("stale retry: %s attempt %d, want joined 2", res.Decision, res.Request.Attempt)
		}
		r.answered(id, "ok")
		if res := r.retry(id, 2, ""); res.Decision != chat.DecisionReplayed || res.Request.State != chat.StateCommitted {
			t.Errorf("retry of an answer: %s %s", res.Decision, res.Request.State)
		}
		r.calls(2)
		other := r.key(id)
		other.UserID = 2
		if _, err := r.e.Retry(r.ctx, engine.Again{Key: other, Attempt: 1}); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("another user's retry: %v", err)
		}
	})
}

// twoModels adds a second model, whose client is the first one's.
func twoModels(o *engine.Options) {
	second := o.Models[0]
	second.Name = "other"
	second.Price.Output *= 3
	o.Models = append(o.Models, second)
}

func TestARetryMayNameAnotherModelAndThatIsOnRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoModels, llmtest.Fail(llmtest.Denied()), llmtest.Answer("ok"))
		id := r.say("hello")
		r.end(id)
		var p *chat.Problem
		if _, err := r.e.Retry(r.ctx, engine.Again{Key: r.key(id), Attempt: 1, Model: "nobody"}); !errors.As(err, &p) || p.Code != "model_unknown" {
			t.Errorf("got %v, want model_unknown", err)
		}
		if s := r.request(id).State; s != chat.StateFailed {
			t.Fatalf("a refused retry left it %s", s)
		}
		r.retry(id, 1, "other")
		if rec := r.answered(id, "ok"); rec.Model != "other" {
			t.Errorf("model %s, want other", rec.Model)
		}
		if c := r.model.Calls(); c[0].Model != "test" || c[1].Model != "other" {
			t.Errorf("called %s, %s", c[0].Model, c[1].Model)
		}
		rc := r.receipt(id)
		if rc.Attempts[0].Model != "test" || rc.Attempts[1].Model != "other" {
			t.Errorf("attempts: %+v", rc.Attempts)
		}
		if res := r.submit(r.message(id, "hello")); res.Decision != chat.DecisionReplayed {
			t.Errorf("repeat: %s", res.Decision)
		}
	})
}

// Who stored the failure may not have told its viewers yet when it is restarted.
func TestARequestRestartedWhileItsWorkerLetsGoOfItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Denied()))
		for n := range 25 {
			r.session = newID()
			id := r.say("hello")
			for { // as soon as the failure can be read
				res, err := r.e.Retry(r.ctx, engine.Again{Key: r.key(id), Attempt: 1})
				if err != nil {
					t.Fatal(err)
				}
				if res.Decision == chat.DecisionRestarted {
					break
				}
			}
			ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
			for r.request(id).State != chat.StateFailed || r.request(id).Attempt != 2 {
				if err := r.e.Wait(ctx, r.request(id).ID); err != nil {
					t.Fatal(err)
				}
			}
			cancel()
			r.calls(2 * (n + 1))
		}
		r.rest()
		r.idle()
	})
}

func TestARetryKeepsItsContextAndItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("a1"), llmtest.Fail(llmtest.Denied(), "half"), llmtest.Answer("a3"), llmtest.Answer("a2"), llmtest.Answer("a4"))
		q1, q2, q3 := r.say("q1"), r.say("q2"), r.say("q3")
		r.answered(q1, "a1")
		r.failed(q2, "provider_refused", chat.OutcomeDefinite, chat.RetryExplicit)
		r.answered(q3, "a3")
		// The failed question went on as the user's words, without its partial text.
		if got := sent(r, 2); got != "q1 a1 q2 q3" {
			t.Errorf("q3 was sent with %s", got)
		}
		r.retry(q2, 1, "")
		r.answered(q2, "a2")
		if got, first := sent(r, 3), sent(r, 1); got != first || got != "q1 a1 q2" {
			t.Errorf("the retry was sent %s, the first attempt %s", got, first)
		}
		// Its answer hangs under its own question, and the head did not move.
		if th := r.thread(); contents(th) != "q1 | a1 | q2 | a2 | q3 | a3" {
			t.Errorf("branch: %s", contents(th))
		}
		if m := r.record(q2).Message; m.ParentID != r.session+".3" || m.Seq != 4 {
			t.Errorf("the late answer: %+v", m)
		}
		q4 := r.say("q4")
		r.answered(q4, "a4")
		if got := sent(r, 4); got != "q1 a1 q2 q3 a3 q4" {
			t.Errorf("q4 was sent with %s", got)
		}
	})
}

func TestS44ARetryIsSentWithWhatWasFrozenThoughTheModelTakesLessNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("a1"), llmtest.Fail(llmtest.Denied()))
		r.answered(r.say("q1"), "a1")
		q2 := r.say("q2")
		r.end(q2)
		next := r.dieInto(func(o *engine.Options) { o.Models[0].Context = 1 }, llmtest.Answer("a2"))
		next.retry(q2, 1, "")
		next.answered(q2, "a2")
		if got := sent(next, 0); got != "q1 a1 q2" || next.record(q2).ContextDropped != 0 {
			t.Errorf("the retry was sent with %s", got)
		}
	})
}

func TestARestartThatComesAfterTheDeletionIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Denied()))
		id := r.say("hello")
		r.end(id)
		failed := r.request(id) // a retry has looked …
		if err := r.e.DeleteConversation(r.ctx, db.LocalUser, r.session); err != nil {
			t.Fatal(err)
		}
		if _, err := r.d.Restart(r.ctx, failed, db.Restart{Reason: db.ReasonExplicit, Actor: "user:1"}); !errors.Is(err, db.ErrGone) {
			t.Errorf("got %v, want gone", err)
		}
	})
}

func TestARetryOfTheNewestQuestionMovesTheHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Denied()), llmtest.Answer("a1"))
		q1 := r.say("q1")
		r.end(q1)
		r.retry(q1, 1, "")
		r.answered(q1, "a1")
		if th := r.thread(); contents(th) != "q1 | a1" || th.Conversation.HeadSeq != 2 {
			t.Errorf("branch: %s, head %d", contents(th), th.Conversation.HeadSeq)
		}
	})
}

func TestARetryThatWaitsHoldsBackWhatComesAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Refused(30*time.Second)), llmtest.Answer("a1"), llmtest.Answer("a2"))
		q1, q2 := r.say("q1"), r.say("q2")
		r.pass(29 * time.Second)
		r.calls(1)
		if s := r.request(q2).State; s != chat.StatePending {
			t.Fatalf("the second question is %s", s)
		}
		r.answered(q1, "a1")
		r.answered(q2, "a2")
		if got := sent(r, 2); got != "q1 a1 q2" {
			t.Errorf("q2 was sent with %s", got)
		}
	})
}

func TestAnExplicitRetryBeginsToCountAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Unreachable()))
		id := r.say("hello")
		r.failed(id, "provider_unreachable", chat.OutcomeNone, chat.RetryAuto)
		r.calls(3)
		r.retry(id, 3, "")
		r.failed(id, "provider_unreachable", chat.OutcomeNone, chat.RetryAuto)
		r.calls(6)
	})
}

// sent returns the words of one call's prompt.
func sent(r *rig, call int) string {
	r.t.Helper()
	var words string
	for i, turn := range r.model.Calls()[call].Turns {
		if i > 0 {
			words += " "
		}
		words += turn.Content
	}
	return words
}

func (r *rig) thread() db.Thread {
	r.t.Helper()
	th, err := r.d.Thread(r.ctx, db.LocalUser, r.session)
	if err != nil {
		r.t.Fatal(err)
	}
	return th
}
