package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/llm/llmtest"
)

// A life dies here by being left: die copies the file as it is on the disk and
// opens the next life on the copy.

func TestTheNextLifeAnswersWhatWaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Hang())
		r.say("running")
		r.rest()
		waiting, behind := r.say("waiting"), r.say("behind")
		next := r.die(llmtest.Answer("a1"), llmtest.Answer("a2"), llmtest.Answer("a3"))
		next.answered(waiting, "a2")
		next.answered(behind, "a3")
		if rc := next.receipt(waiting); len(rc.Attempts) != 1 || rc.Attempts[0].Reason != "accepted" {
			t.Errorf("attempts: %+v", rc.Attempts)
		}
		next.calls(3)
		next.idle()
	})
}

func TestTheNextLifeRerunsWhatWasGeneratingWhereTheModelAllowsIt(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "half an answer"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil, llmtest.Hang(text))
			id := r.say("hello")
			r.pass(5 * time.Second)
			next := r.die(llmtest.Answer("ok"))
			next.answered(id, "ok")
			next.calls(1)
			rc := next.receipt(id)
			if len(rc.Attempts) != 2 || rc.Attempts[0].Outcome != chat.OutcomeUnknown || rc.Attempts[0].Code != "interrupted" || rc.Attempts[1].Reason != "rerun" {
				t.Errorf("attempts: %+v", rc.Attempts)
			}
			if w := fmt.Sprint(next.waste(id)); w != "[1]" {
				t.Errorf("waste %s, want [1]", w)
			}
			if next.request(id).Crashes != 1 {
				t.Errorf("crashes: %d, want 1", next.request(id).Crashes)
			}
		})
	}
}

// S25: of a call that nobody can name, nobody knows.
func TestTheNextLifeAsksAPersonWhereTheModelCostsMoney(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, asks, llmtest.Hang("half an answer"))
		id, behind := r.say("hello"), r.say("behind")
		r.pass(5 * time.Second)
		next := r.die(llmtest.Answer("a2"), llmtest.Answer("a1"))
		if rec := next.failed(id, "interrupted", chat.OutcomeUnknown, chat.RetryExplicit); rec.Content != "half an answer" || rec.Error.Partial != len("half an answer") {
			t.Errorf("partial: %q %+v", rec.Content, rec.Error)
		}
		next.answered(behind, "a2")
		if res := next.submit(next.message(id, "hello")); res.Decision != chat.DecisionReplayed {
			t.Errorf("repeat: %s", res.Decision)
		}
		next.pass(time.Hour)
		next.calls(1)
		next.retry(id, 1, "")
		next.answered(id, "a1")
	})
}

func TestTheNextLifeHonoursAStopAndNeverCallsAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text string }{{"without text", ""}, {"with text", "half an answer"}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil, llmtest.Hang(tt.text))
				id := r.say("hello")
				r.pass(5 * time.Second)
				// The life dies when the stop is stored and nothing has been done about it.
				if err := r.d.RequestStop(r.ctx, r.request(id)); err != nil {
					t.Fatal(err)
				}
				next := r.die(llmtest.Answer("no"))
				if tt.text == "" {
					next.failed(id, "stopped", chat.OutcomeUnknown, chat.RetryExplicit)
				} else if rec := next.answered(id, tt.text); rec.Message.Finish != chat.FinishStopped || !rec.Usage.Estimated {
					t.Errorf("finish %s usage %+v", rec.Message.Finish, rec.Usage)
				}
				next.pass(time.Hour)
				next.calls(0)
			})
		})
	}
}

func TestTheNextLifeKeepsAnAskedForWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Refused(50*time.Second)))
		id := r.say("hello")
		r.pass(10 * time.Second)
		next := r.die(llmtest.Answer("ok"))
		next.pass(39 * time.Second)
		next.calls(0)
		next.pass(2 * time.Second)
		next.answered(id, "ok")
		if next.request(id).Refused != 1 || next.request(id).Crashes != 0 {
			t.Errorf("refused %d crashes %d, want 1 0", next.request(id).Refused, next.request(id).Crashes)
		}
	})
}

func TestS39AStoredWaitIsClampedWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Refused(50*time.Second)))
		id := r.say("hello")
		r.rest()
		file := r.copyFile()
		execSQL(t, file, `UPDATE requests SET retry_at = retry_at + 365 * 86400000`)
		next := openRig(t, file, nil, nil, llmtest.New(llmtest.Answer("ok")))
		next.session = r.session
		next.pass(61 * time.Second)
		next.answered(id, "ok")
	})
}

func TestTheNextLifeLeavesWhatHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("done"), llmtest.Fail(llmtest.Denied()))
		done := r.say("q1")
		before := r.answered(done, "done")
		failed := r.say("q2")
		r.end(failed)
		next := r.die(llmtest.Answer("no"))
		if after := next.answered(done, "done"); *after.Message != *before.Message {
			t.Errorf("the answer changed: %+v", after.Message)
		}
		next.failed(failed, "provider_refused", chat.OutcomeDefinite, chat.RetryExplicit)
		if res := next.submit(next.message(done, "q1")); res.Decision != chat.DecisionReplayed {
			t.Errorf("repeat: %s", res.Decision)
		}
		next.pass(time.Hour)
		next.calls(0)
		next.idle()
	})
}

// A request that kills its process each time: the first two deaths are answered at
// once, then it waits, and it is not asked for ever.
func TestDeathsAreCountedApartAndEndInAPersonsHands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.Models[0].MaxCrashReruns, o.Models[0].MaxAttempts = 5, 2 }, llmtest.Hang())
		id := r.say("hello")
		r.rest()
		calls := r.model.Count()
		for death := 1; death <= 5; death++ {
			r = r.die(llmtest.Hang())
			req := r.request(id)
			if req.Crashes != int64(death) || req.Refused != 0 {
				t.Fatalf("death %d: crashes %d refused %d", death, req.Crashes, req.Refused)
			}
			if wait := time.Until(req.RetryAt); death > 2 && (req.State != chat.StatePending || wait <= 0 || wait > time.Second<<(death-3)) {
				t.Errorf("death %d: %s, waits %s", death, req.State, wait)
			}
			if death <= 2 && (req.State != chat.StateGenerating || req.Attempt != int64(death)+1) {
				t.Errorf("death %d: %s attempt %d, want it running at once", death, req.State, req.Attempt)
			}
			r.pass(time.Minute)
			calls += r.model.Count()
		}
		r = r.die(llmtest.Hang())
		r.failed(id, "interrupted", chat.OutcomeUnknown, chat.RetryExplicit)
		if r.calls(0); calls != 6 {
			t.Errorf("%d model calls, want 6", calls)
		}
		if w := fmt.Sprint(r.waste(id)); w != "[1 2 3 4 5 6]" {
			t.Errorf("waste %s: each call may have cost", w)
		}
	})
}

func TestARequestOfAModelThatIsGoneFailsAndMayNameAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.Models[0].Concurrency = 1 }, llmtest.Hang("text"))
		running := r.say("running")
		r.rest()
		waiting, second := r.say("waiting"), r.say("second")
		next := r.dieInto(func(o *engine.Options) { o.Models[0].Name = "successor" }, llmtest.Answer("ok"))
		next.failed(running, "interrupted", chat.OutcomeUnknown, chat.RetryExplicit)
		next.failed(waiting, "model_gone", chat.OutcomeNone, chat.RetryExplicit)
		next.failed(second, "model_gone", chat.OutcomeNone, chat.RetryExplicit)
		next.calls(0)
		for _, id := range []string{running, waiting} {
			next.retry(id, next.request(id).Attempt, "successor")
			next.answered(id, "ok")
		}
		next.idle()
	})
}

func TestRequestsOfAModelThatIsGoneDoNotWaitForAUsersCap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { twoModels(o); o.Models[1].Concurrency = 1 }, llmtest.Hang())
		first := r.say("runs in both lives")
		firstSession := r.session
		other := func() engine.Ask {
			a := ask(newID(), newID(), "of the model that goes")
			a.Model = "other"
			return a
		}
		r.submit(other()) // has the only slot
		r.rest()
		waits := other()
		r.submit(waits)
		r.rest()
		next := r.dieInto(func(o *engine.Options) { o.RunningPerUser = 1 }, llmtest.Paced(time.Second, "ok"))
		next.session = waits.Key.SessionID
		if s := next.request(waits.Key.RequestID).State; s != chat.StatePending {
			t.Fatalf("state %s: the user is at the cap", s)
		}
		next.pass(10 * time.Second)
		next.failed(waits.Key.RequestID, "model_gone", chat.OutcomeNone, chat.RetryExplicit)
		next.session = firstSession
		next.answered(first, "ok")
		next.idle()
	})
}

// Deleting is one transaction: a death right after it must not let the next life
// run what was deleted.
func TestTheNextLifeDoesNotRunWhatADeletionStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Hang("text"))
		running, waiting := r.say("running"), r.say("waiting")
		r.pass(2 * time.Second)
		if _, err := r.d.DeleteConversation(r.ctx, db.LocalUser, r.session); err != nil { // only what is stored
			t.Fatal(err)
		}
		next := r.die(llmtest.Answer("no"))
		next.pass(time.Minute)
		next.calls(0)
		if _, err := next.d.RestoreConversation(next.ctx, db.LocalUser, r.session); err != nil {
			t.Fatal(err)
		}
		if rec := next.answered(running, "text"); rec.Message.Finish != chat.FinishStopped {
			t.Errorf("finish %s", rec.Message.Finish)
		}
		next.failed(waiting, "stopped", chat.OutcomeNone, chat.RetryExplicit)
	})
}

func TestDeletingAConversationStopsItsRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Denied()), llmtest.Hang("text"))
		failed := r.say("failed")
		r.end(failed)
		running, waiting := r.say("running"), r.say("waiting")
		r.pass(2 * time.Second)
		for range 2 { // twice is no error
			if err := r.e.DeleteConversation(r.ctx, db.LocalUser, r.session); err != nil {
				t.Fatal(err)
			}
		}
		r.pass(5 * time.Second)
		r.idle()
		r.calls(2)
		if _, err := r.d.RestoreConversation(r.ctx, db.LocalUser, r.session); err != nil {
			t.Fatal(err)
		}
		r.answered(running, "text")
		r.failed(waiting, "stopped", chat.OutcomeNone, chat.RetryExplicit)
		r.failed(failed, "provider_refused", chat.OutcomeDefinite, chat.RetryExplicit)
	})
}

// S58: what was told is stored, at every moment of a busy life.
func TestS58WhateverWasToldBeforeADeathIsTrueAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Paced(400*time.Millisecond, "a", "b", "c"))
		answers := map[string]chat.RecordMessage{}
		var ids []string
		for moment := range 8 {
			for range 3 {
				ids = append(ids, r.say("question"))
			}
			r.pass(time.Duration(500+130*moment) * time.Millisecond)
			for _, id := range ids {
				rec := r.record(id)
				if was, known := answers[id]; known && (rec.Message == nil || *rec.Message != was) {
					t.Fatalf("an answer that was told changed: %+v, was %+v", rec.Message, was)
				}
				if rec.Message != nil {
					answers[id] = *rec.Message
				}
			}
			if moment%2 == 1 {
				r = r.die(llmtest.Paced(400*time.Millisecond, strings.Split(fmt.Sprintf("life %d", moment), "")...))
			}
		}
		for _, id := range ids {
			if rec := r.end(id); rec.State != chat.StateCommitted {
				t.Errorf("request %s ended %s", id, rec.State)
			}
		}
		r.idle()
	})
}
