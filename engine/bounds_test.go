package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm/llmtest"
)

func TestAContinuationThatIsAskedForAgainIsAContinuation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("one"), llmtest.Answer(" two"), llmtest.Answer(" three"))
		r.answered(r.say("count"), "one")
		more := r.message(newID(), "")
		more.Kind, more.ParentID = chat.KindContinue, r.session+".2"
		r.submit(more)
		rec := r.answered(more.Key.RequestID, " two")
		again := r.message(newID(), "")
		again.Kind, again.ParentID = chat.KindRegenerate, rec.Message.ID
		r.submit(again)
		r.answered(again.Key.RequestID, " three")
		for i, want := range []bool{false, true, true} {
			if got := r.model.Calls()[i].Continue; got != want {
				t.Errorf("call %d: continue %t, want %t (sent %q)", i+1, got, want, sent(r, i))
			}
		}
	})
}

func TestWhereNoRerunAfterADeathIsAllowedThereIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := func(o *engine.Options) { o.Models[0].MaxCrashReruns = -1 }
		r := newRig(t, never, llmtest.Hang("half"))
		id := r.say("hello")
		r.pass(2 * time.Second)
		next := r.die(llmtest.Answer("never"))
		next.failed(id, "interrupted", chat.OutcomeUnknown, chat.RetryExplicit)
		next.calls(0)
	})
}

func TestARestartMeetsTheQueuesBoundAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := func(o *engine.Options) { o.Queue, o.Models[0].Concurrency = 1, 1 }
		r := newRig(t, small, llmtest.Fail(llmtest.Refused(time.Hour)), llmtest.Hang())
		failed := r.say("busy")
		r.failed(failed, "provider_busy", chat.OutcomeDefinite, chat.RetryAuto)
		a := r.message(failed, "busy")
		r.session = newID()
		r.say("runs")
		r.rest()
		r.session = newID()
		r.say("waits")
		if p := r.refused(a); p.Status != 503 || p.Code != "overloaded" {
			t.Errorf("got %+v, want 503 overloaded", p)
		}
		if rec, err := r.d.Record(r.ctx, a.Key); err != nil || rec.State != chat.StateFailed || rec.Attempt != 1 {
			t.Errorf("the failure is %+v (%v), want it as it was", rec, err)
		}
	})
}

func TestAClaimThatCanNeverBeMadeEndsItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := &dbtest.Faults{}
		r := openRig(t, t.TempDir()+"/test.db", faults, nil, llmtest.New(llmtest.Answer("next")))
		unclaimable := func() {
			faults.Arm("UPDATE requests SET state = 'generating'", 0, dbtest.NotStored, dbtest.ErrInjected)
		}
		unclaimable()
		id := r.say("hello")
		for range 10 {
			r.rest()
			unclaimable()
			r.pass(time.Second)
		}
		faults.Clear()
		r.failed(id, "internal", chat.OutcomeNone, chat.RetryExplicit)
		r.answered(r.say("and now?"), "next") // its conversation is free
	})
}

func TestAnEngineWhoseReaperStandsStillIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("unused"))
		if err := r.e.Ready(r.ctx); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Hour)
		if err := r.e.Ready(r.ctx); err != nil {
			t.Errorf("after an hour of nothing to do: %v", err)
		}
		r.e.ForgetReaper(time.Hour)
		if err := r.e.Ready(r.ctx); err == nil {
			t.Error("the reaper stands still, and the engine says it is ready")
		}
	})
}
