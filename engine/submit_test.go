package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
	"semel/llm/llmtest"
)

// idAt is a ULID that was minted at this time.
func idAt(t time.Time) string { return ulid.MustNew(ulid.Timestamp(t), ulid.DefaultEntropy()).String() }

// Contract, section 3, row by row.

func TestTheFirstArrivalIsAcceptedAndAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("answer"))
		id := newID()
		res := r.submit(r.message(id, "hello"))
		if res.Decision != chat.DecisionFirst || res.Request.State != chat.StatePending || res.Request.Key.RequestID != id {
			t.Errorf("got %+v", res)
		}
		r.answered(id, "answer")
		rc := r.receipt(id)
		var path []string
		for _, tr := range rc.Transitions {
			path = append(path, string(tr.To))
		}
		if got := strings.Join(path, " "); got != "pending generating acknowledged committed" {
			t.Errorf("path: %s", got)
		}
		if len(rc.Arrivals) != 1 || rc.Arrivals[0].Decision != chat.DecisionFirst {
			t.Errorf("arrivals: %+v", rc.Arrivals)
		}
	})
}

func TestS4AnotherBodyUnderTheSameIDIsRefusedAndRevealsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("the secret answer"))
		id := newID()
		a := r.message(id, "the secret question")
		a.Params = `{"seed":1}`
		r.submit(a)
		r.end(id)
		b := r.message(id, "another question")
		b.Model = "test"
		p := r.refused(b)
		if p.Status != 422 || p.Code != "key_reused" || p.Retry != chat.RetryNewID || fmt.Sprint(p.Fields) != "[content model params]" {
			t.Errorf("got %+v", p)
		}
		if said := fmt.Sprintf("%+v", *p); strings.Contains(said, "secret") {
			t.Errorf("the refusal reveals stored text: %s", said)
		}
		r.submit(a) // the first is what it was
		r.calls(1)
		if n := len(r.receipt(id).Arrivals); n != 2 { // first and conflict; a replay is recorded when it is answered
			t.Errorf("%d arrivals, want 2", n)
		}
	})
}

func TestS5AnotherBodyIsRefusedWhileTheFirstIsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Paced(time.Second, "answer"))
		running, waiting := r.say("one"), r.say("two")
		r.rest()
		for _, id := range []string{running, waiting} {
			if p := r.refused(r.message(id, "three")); p.Code != "key_reused" || fmt.Sprint(p.Fields) != "[content]" {
				t.Errorf("got %+v", p)
			}
			kind := r.message(id, "one")
			kind.Kind, kind.ParentID = chat.KindEdit, r.session+".1"
			if p := r.refused(kind); p.Code != "key_reused" || !slices.Contains(p.Fields, "kind") || !slices.Contains(p.Fields, "parentId") {
				t.Errorf("got %+v", p)
			}
		}
		r.answered(running, "answer")
		r.answered(waiting, "answer")
		r.calls(2)
	})
}

func TestS15S17ARepeatJoinsWhatWaitsOrRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Paced(time.Second, "answer"))
		running, waiting := r.say("one"), r.say("two")
		r.rest()
		for id, state := range map[string]chat.State{running: chat.StateGenerating, waiting: chat.StatePending} {
			content := map[string]string{running: "one", waiting: "two"}[id]
			res := r.submit(r.message(id, content))
			if res.Decision != chat.DecisionJoined || res.Request.State != state {
				t.Errorf("got %s %s, want joined %s", res.Decision, res.Request.State, state)
			}
			r.e.Answered(res, chat.SourceAPI, 202)
		}
		r.answered(waiting, "answer")
		r.calls(2)
		for _, id := range []string{running, waiting} {
			if a := r.receipt(id).Arrivals; len(a) != 2 || a[1].Decision != chat.DecisionJoined || a[1].Status != 202 {
				t.Errorf("arrivals: %+v", a)
			}
		}
	})
}

func TestS18ARepeatAfterTheAnswerGetsTheSameMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("first answer"), llmtest.Answer("second answer"))
		id := r.say("hello")
		before := r.answered(id, "first answer")
		for range 3 {
			r.pass(time.Hour)
			res := r.submit(r.message(id, "hello"))
			if res.Decision != chat.DecisionReplayed || res.Request.State != chat.StateCommitted {
				t.Fatalf("got %s %s", res.Decision, res.Request.State)
			}
			if after := r.record(id); *after.Message != *before.Message {
				t.Fatalf("the message changed: %+v, was %+v", after.Message, before.Message)
			}
		}
		r.calls(1)
	})
}

func TestARepeatOfAFailureThatNeedsAPersonReplaysIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Denied()), llmtest.Answer("no"))
		id := r.say("hello")
		r.failed(id, "provider_refused", chat.OutcomeDefinite, chat.RetryExplicit)
		res := r.submit(r.message(id, "hello"))
		if res.Decision != chat.DecisionReplayed || res.Request.Failure.Code != "provider_refused" {
			t.Errorf("got %s %+v", res.Decision, res.Request.Failure)
		}
		r.pass(time.Hour)
		r.calls(1)
	})
}

func TestARepeatOfAFailureThatAllowsItRestartsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Refused(2*time.Minute)), llmtest.Answer("at last"))
		id := r.say("hello")
		r.failed(id, "provider_busy", chat.OutcomeDefinite, chat.RetryAuto)
		r.pass(time.Hour)
		r.calls(1) // never by itself
		// A hundred at once start one attempt.
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[chat.Decision]int{}
		for range 100 {
			wg.Go(func() {
				res, err := r.e.Submit(r.ctx, r.message(id, "hello"))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				got[res.Decision]++
				mu.Unlock()
			})
		}
		wg.Wait()
		r.answered(id, "at last")
		r.calls(2)
		if got[chat.DecisionRestarted] != 1 || got[chat.DecisionFirst] != 0 {
			t.Errorf("decisions: %v", got)
		}
	})
}

func TestARequestOfADeletedConversationIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("answer"))
		id := r.say("hello")
		r.end(id)
		if err := r.e.DeleteConversation(r.ctx, db.LocalUser, r.session); err != nil {
			t.Fatal(err)
		}
		for _, a := range []engine.Ask{r.message(id, "hello"), r.message(newID(), "something new"), r.message(id, "other body")} {
			if p := r.refused(a); p.Status != 410 || p.Code != "conversation_gone" {
				t.Errorf("got %+v", p)
			}
		}
		if _, err := r.e.Retry(r.ctx, engine.Again{Key: r.key(id), Attempt: 1}); !errors.Is(err, db.ErrGone) {
			t.Errorf("retry: %v, want gone", err)
		}
		r.calls(1)
	})
}

func TestS56AnIDOfAPurgedConversationIsGoneAndThenExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rarely, llmtest.Answer("answer"))
		id, plain := newID(), "order-4711-created"
		r.submit(r.message(id, "hello"))
		r.submit(r.message(plain, "hello"))
		r.end(plain)
		if err := r.e.DeleteConversation(r.ctx, db.LocalUser, r.session); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * time.Hour) // past undo: purged
		if _, err := r.d.Thread(r.ctx, db.LocalUser, r.session); !errors.Is(err, db.ErrGone) {
			t.Fatalf("thread: %v", err)
		}
		for _, k := range []string{id, plain} {
			if p := r.refused(r.message(k, "hello")); p.Status != 410 {
				t.Errorf("%s after the purge: got %+v, want 410", k, p)
			}
		}
		other := newID()                // minted before the horizon, never sent
		time.Sleep(31 * 24 * time.Hour) // the tombstone of the ULID goes, the horizon comes
		r.rest()
		if p := r.refused(r.message(id, "hello")); p.Status != 412 || p.Code != "key_expired" || p.Retry != chat.RetryNewID {
			t.Errorf("got %+v, want 412", p)
		}
		if p := r.refused(r.message(plain, "hello")); p.Status != 410 {
			t.Errorf("an id without a time: got %+v, want 410 for good", p)
		}
		// As old as what was forgotten, in another conversation: not run either.
		r.session = newID()
		if p := r.refused(r.message(id, "hello")); p.Status != 412 {
			t.Errorf("got %+v, want 412", p)
		}
		// Younger than the horizon: an ordinary new one.
		r.submit(r.message(other, "hello"))
		r.end(other)
		r.calls(3)
	})
}

// rarely lets the reaper look once in ten days, for tests that last months.
func rarely(o *engine.Options) { o.Lease = 60 * 24 * time.Hour }

func TestS10TheHorizonOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rarely, llmtest.Answer("answer"))
		id := r.say("hello")
		r.end(id)
		if err := r.e.DeleteConversation(r.ctx, db.LocalUser, r.session); err != nil {
			t.Fatal(err)
		}
		r.pass(32 * 24 * time.Hour)
		next := r.die(llmtest.Answer("no"))
		if p := next.refused(next.message(id, "hello")); p.Status != 412 {
			t.Errorf("got %+v, want 412", p)
		}
		next.calls(0)
	})
}

func TestS11AnIDFromTheFutureIsRefusedBeyondTenMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("answer"))
		if p := r.refused(r.message(idAt(time.Now().Add(11*time.Minute)), "hello")); p.Status != 400 || p.Code != "key_from_future" || p.Retry != chat.RetryNewID {
			t.Errorf("got %+v", p)
		}
		id := idAt(time.Now().Add(9 * time.Minute))
		r.submit(r.message(id, "hello"))
		r.answered(id, "answer")
	})
}

func TestAnIDFromTheFutureIsBelievedWhenTheClockIsNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Life one runs a day ahead; life two has the right time, behind what is stored.
		file := filepath.Join(t.TempDir(), "test.db")
		func() {
			time.Sleep(24 * time.Hour)
			r := openRig(t, file, nil, nil, llmtest.New(llmtest.Answer("answer")))
			r.end(r.say("hello"))
			r.file = r.copyFile()
			file = r.file
		}()
		// Fake time does not go back: the stored times go ahead instead.
		execSQL(t, file, `DROP TRIGGER requests_identity; UPDATE requests SET created_at = created_at + 3 * 86400000`)
		r := openRig(t, file, nil, nil, llmtest.New(llmtest.Answer("answer")))
		if err := r.e.Ready(r.ctx); err == nil || !strings.Contains(err.Error(), "clock") {
			t.Errorf("ready: %v, want a word about the clock", err)
		}
		id := idAt(time.Now().Add(25 * time.Hour))
		r.submit(r.message(id, "hello"))
		if err := r.e.Wait(r.ctx, r.request(id).ID); err != nil {
			t.Fatal(err)
		}
		r.calls(1)
		// Nothing is purged by a clock that cannot be believed.
		if err := r.e.DeleteConversation(r.ctx, db.LocalUser, r.session); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		if _, err := r.d.RestoreConversation(r.ctx, db.LocalUser, r.session); !errors.Is(err, db.ErrGone) {
			t.Errorf("restore after the undo window: %v", err)
		}
		if _, err := r.d.Load(r.ctx, 2); err != nil {
			t.Errorf("the request was purged: %v", err)
		}
	})
}

func TestS8AnotherUsersIDIsNotSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("mine"), llmtest.Answer("yours"))
		id := r.say("hello")
		r.answered(id, "mine")
		a := r.message(id, "something else")
		a.Key.UserID = 2
		if res := r.submit(a); res.Decision != chat.DecisionFirst {
			t.Errorf("got %s, want first", res.Decision)
		}
		r.rest()
		rec, err := r.d.Record(r.ctx, a.Key)
		if err != nil || rec.Content != "yours" {
			t.Errorf("got %q %v", rec.Content, err)
		}
		r.answered(id, "mine")
		r.calls(2)
	})
}

func TestTheSameIDInAnotherConversationIsAnotherIntent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("one"), llmtest.Answer("two"))
		id := r.say("hello")
		r.answered(id, "one")
		r.session = newID()
		r.submit(r.message(id, "hello"))
		r.answered(id, "two")
	})
}

func TestS43WhatIsRefusedStoresNothingAndLeavesTheIDUnused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.PerUserPerMinute = 4 }, llmtest.Answer("answer"))
		id := newID()
		model, parent, other := r.message(id, "hello"), r.message(id, "hello"), r.message(id, "hello")
		model.Model = "no such"
		parent.Kind, parent.ParentID = chat.KindEdit, r.session+".7"
		other.Kind, other.ParentID = chat.KindContinue, "another.1"
		for code, a := range map[string]engine.Ask{"model_unknown": model, "parent_not_found": parent} {
			if p := r.refused(a); p.Code != code || p.Status != 422 {
				t.Errorf("got %+v, want %s", p, code)
			}
		}
		if p := r.refused(other); p.Code != "parent_not_found" {
			t.Errorf("got %+v", p)
		}
		for range 10 { // what no model could ever answer costs its user nothing
			r.refused(model)
		}
		r.rest()
		if _, err := r.d.Find(r.ctx, r.key(id)); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("find: %v, want not found", err)
		}
		if list, _, err := r.d.Conversations(r.ctx, db.LocalUser, db.List{Limit: 10}); err != nil || len(list) != 0 {
			t.Errorf("conversations: %v %v, want none", list, err)
		}
		r.submit(r.message(id, "hello")) // the id is free
		r.answered(id, "answer")
	})
}

func TestS44WhatIsFrozenAtAcceptanceSurvivesADeployWithOtherDefaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Denied()))
		a := r.message(newID(), "hello")
		a.Params = `{"seed":7}`
		r.submit(a)
		r.end(a.Key.RequestID)
		old := r.request(a.Key.RequestID)
		dearer := func(o *engine.Options) {
			o.Models[0].Price.Output *= 10
			o.Models = append([]engine.Model{{Name: "new default", Client: llmtest.New(llmtest.Answer("no"))}}, o.Models...)
		}
		next := r.dieInto(dearer, llmtest.Answer("answer"))
		res := next.submit(a) // the fingerprint is over what was sent: no conflict
		if res.Decision != chat.DecisionReplayed || res.Request.Price != old.Price || res.Request.Model != "test" {
			t.Errorf("got %s %+v", res.Decision, res.Request)
		}
		if _, err := next.e.Retry(next.ctx, engine.Again{Key: a.Key, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		next.answered(a.Key.RequestID, "answer")
		if c := next.model.Calls()[0]; c.Params.Seed == nil || *c.Params.Seed != 7 || c.Model != "test" {
			t.Errorf("call: %+v", c)
		}
	})
}

func TestS64TwoTabsThatSendTheSameDraftUnderOneIDAreOneIntent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Paced(time.Second, "answer"))
		for range 20 {
			r.session = newID()
			id := newID()
			var wg sync.WaitGroup
			var mu sync.Mutex
			got := map[chat.Decision]int{}
			for range 2 {
				wg.Go(func() {
					res, err := r.e.Submit(r.ctx, r.message(id, "hello"))
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					got[res.Decision]++
					mu.Unlock()
				})
			}
			wg.Wait()
			if got[chat.DecisionFirst] != 1 || got[chat.DecisionJoined] != 1 {
				t.Errorf("decisions: %v", got)
			}
			if err := r.e.Wait(r.ctx, r.request(id).ID); err != nil {
				t.Fatal(err)
			}
		}
		r.rest()
		r.calls(20)
	})
}

func TestS47EditAndRegenerateAreNewIntentsBesideTheOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("a1"), llmtest.Answer("a2"), llmtest.Answer("a3"), llmtest.Answer(" and more"))
		first := r.say("q1")
		old := r.answered(first, "a1")
		regenerate := r.message(newID(), "")
		regenerate.Kind, regenerate.ParentID = chat.KindRegenerate, r.session+".2"
		r.submit(regenerate)
		r.answered(regenerate.Key.RequestID, "a2")
		edit := r.message(newID(), "q1, better")
		edit.Kind, edit.ParentID = chat.KindEdit, r.session+".1"
		r.submit(edit)
		r.answered(edit.Key.RequestID, "a3")
		more := r.message(newID(), "")
		more.Kind, more.ParentID = chat.KindContinue, r.session+".5"
		r.submit(more)
		r.answered(more.Key.RequestID, " and more")
		if now := r.record(first); *now.Message != *old.Message {
			t.Errorf("the first answer changed: %+v", now.Message)
		}
		th, err := r.d.Thread(r.ctx, db.LocalUser, r.session)
		if err != nil {
			t.Fatal(err)
		}
		if got := contents(th); got != "q1, better | a3 |  and more" {
			t.Errorf("branch: %s", got)
		}
		if s := th.Messages[0].Siblings; len(s) != 2 {
			t.Errorf("siblings of the edited question: %v", s)
		}
		// What was sent: the branch, and only it.
		calls := r.model.Calls()
		var sent []string
		for _, c := range calls {
			var s []string
			for _, turn := range c.Turns {
				s = append(s, turn.Content)
			}
			sent = append(sent, strings.Join(s, ","))
		}
		if got := strings.Join(sent, " | "); got != "q1 | q1 | q1, better | q1, better,a3" || !calls[3].Continue {
			t.Errorf("sent: %s", got)
		}
	})
}

func contents(th db.Thread) string {
	var s []string
	for _, m := range th.Messages {
		s = append(s, m.Content)
	}
	return strings.Join(s, " | ")
}

func TestS48QuestionsAskedWhileBusyAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Paced(time.Second, "a1"), llmtest.Paced(time.Second, "a2"), llmtest.Paced(time.Second, "a3"))
		ids := []string{r.say("q1"), r.say("q2"), r.say("q3")}
		for i, id := range ids {
			r.answered(id, fmt.Sprintf("a%d", i+1))
		}
		th, err := r.d.Thread(r.ctx, db.LocalUser, r.session)
		if err != nil {
			t.Fatal(err)
		}
		if got := contents(th); got != "q1 | a1 | q2 | a2 | q3 | a3" {
			t.Errorf("got %s", got)
		}
		if n := len(r.model.Calls()[2].Turns); n != 5 {
			t.Errorf("the third call was sent %d messages, want 5", n)
		}
	})
}

func TestTwoHundredIDsAtOnceOverTwentyConversationsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.Models[0].Concurrency = 8 }, llmtest.Paced(10*time.Millisecond, "answer"))
		var sessions []string
		for range 20 {
			sessions = append(sessions, newID())
		}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				a := ask(sessions[i%20], newID(), fmt.Sprintf("question %d", i))
				for range 2 { // each twice
					if _, err := r.e.Submit(r.ctx, a); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		r.pass(time.Minute)
		r.calls(200)
		for _, s := range sessions {
			th, err := r.d.Thread(r.ctx, db.LocalUser, s)
			if err != nil {
				t.Fatal(err)
			}
			if len(th.Messages) != 20 || len(th.Requests) != 0 {
				t.Fatalf("%d messages, %d unanswered", len(th.Messages), len(th.Requests))
			}
			for i, m := range th.Messages {
				role := []string{"user", "assistant"}[i%2]
				if m.Seq != int64(i+1) || m.ParentSeq != int64(i) || m.Role != role || (i%2 == 1 && m.RequestID != th.Messages[i-1].RequestID) {
					t.Fatalf("message %d: %+v", i, m)
				}
			}
		}
	})
}

// The limits come after dedupe.

func TestS42TooManyQuestionsOfOneUserAreRefusedAndRepeatsAreNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.PerUserPerMinute = 5 }, llmtest.Answer("answer"))
		var ids []string
		for range 5 {
			ids = append(ids, r.say("hello"))
		}
		refused := newID()
		p := r.refused(r.message(refused, "hello"))
		if p.Status != 429 || p.Code != "rate_limited" || p.Retry != chat.RetrySameID || p.RetryAfter <= 0 {
			t.Errorf("got %+v", p)
		}
		if _, err := r.d.Find(r.ctx, r.key(refused)); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("the refused id: %v, want not found", err)
		}
		for range 20 {
			for _, id := range ids {
				r.submit(r.message(id, "hello"))
			}
		}
		other := r.message(newID(), "hello")
		other.Key.UserID, other.Key.SessionID = 2, newID()
		r.submit(other) // another user's allowance is another
		time.Sleep(p.RetryAfter)
		r.submit(r.message(refused, "hello")) // under the same id, after the wait we named
		r.answered(refused, "answer")
		r.calls(7)
	})
}

func TestS42RepeatsThatArriveDuringTheAcceptanceAreNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []int{1, 20} { // none left for a repeat, and some
			faults := &dbtest.Faults{}
			r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults,
				func(o *engine.Options) { o.PerUserPerMinute, o.Queue = limit, limit }, llmtest.New(llmtest.Answer("answer")))
			id := newID()
			accepted := make(chan struct{})
			faults.Hold("COMMIT", accepted)
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if _, err := r.e.Submit(r.ctx, r.message(id, "hello")); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait() // all have arrived
			close(accepted)
			wg.Wait()
			r.answered(id, "answer")
			for range limit - 1 { // the rest of the allowance is there
				r.session = newID()
				r.say("hello")
			}
			if p := r.refused(r.message(newID(), "hello")); p.Code != "rate_limited" && p.Code != "overloaded" {
				t.Errorf("got %+v", p)
			}
			r.rest()
			r.calls(limit)
		}
	})
}

// An arrival may look, find nothing, and come to the limits when the first one is
// accepted already.
func TestS42ARepeatThatLookedTooEarlyIsNotRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.PerUserPerMinute = 1 }, llmtest.Answer("answer"))
		for range 30 {
			id := newID()
			var wg sync.WaitGroup
			for range 40 {
				wg.Go(func() {
					if _, err := r.e.Submit(r.ctx, r.message(id, "hello")); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Minute) // the next one is allowed
		}
		r.rest()
		r.calls(30)
	})
}

func TestAFullQueueStoresNothingAndStillAnswersRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.Queue, o.Models[0].Concurrency = 3, 1 }, llmtest.Paced(time.Second, "answer"))
		running := r.say("running")
		r.rest()
		waiting := []string{r.say("w1"), r.say("w2"), r.say("w3")}
		refused := newID()
		p := r.refused(r.message(refused, "hello"))
		if p.Status != 503 || p.Code != "overloaded" || p.Retry != chat.RetrySameID || p.RetryAfter <= 0 {
			t.Errorf("got %+v", p)
		}
		for i, id := range append([]string{running}, waiting...) {
			if res := r.submit(r.message(id, []string{"running", "w1", "w2", "w3"}[i])); res.Decision != chat.DecisionJoined {
				t.Errorf("a repeat in a full queue: %s", res.Decision)
			}
		}
		dbtest.Check(t, r.d)
		if _, err := r.d.Find(r.ctx, r.key(refused)); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("the refused id: %v, want not found", err)
		}
		r.answered(waiting[2], "answer")
		r.submit(r.message(refused, "hello"))
		r.answered(refused, "answer")
		r.calls(5)
	})
}

func TestS31AClientThatHangsUpCancelsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Paced(time.Second, "one ", "two"))
		ctx, hangUp := context.WithCancel(r.ctx)
		id := newID()
		if _, err := r.e.Submit(ctx, r.message(id, "hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		hangUp()
		r.answered(id, "one two")
		r.calls(1)
	})
}

func TestAReceiptHasEveryArrivalReportedBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("answer"))
		id := r.say("hello")
		r.end(id)
		// Whoever reports and then looks finds its own, whoever else flushes at that moment.
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				res, err := r.e.Submit(r.ctx, r.message(id, "hello"))
				if err != nil {
					t.Error(err)
					return
				}
				r.e.Answered(res, chat.SourceWeb, 1000+i)
				if err := r.e.FlushArrivals(r.ctx); err != nil {
					t.Error(err)
				}
				rc, err := r.d.Receipt(r.ctx, r.key(id))
				if err != nil {
					t.Error(err)
				}
				if !slices.ContainsFunc(rc.Arrivals, func(a db.Arrival) bool { return a.Status == 1000+i }) {
					t.Errorf("arrival %d is not in the receipt read after it", i)
				}
			})
		}
		wg.Wait()
		if n := len(r.receipt(id).Arrivals); n != 41 {
			t.Errorf("%d arrivals, want 41", n)
		}
	})
}

// S60: a provider that gives two calls one name has answered twice all the same: an
// intent is known by its own id.
func TestS60TwoCallsUnderOneNameOfTheirProviderAreTwoAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		named := func(text string) llmtest.Step {
			return func(_ context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
				emit(llm.Piece{Text: text})
				return llm.Answer{Content: text, Finish: chat.FinishStop, UpstreamID: "run-1"}, nil
			}
		}
		r := newRig(t, nil, named("one"), named("two"))
		first, second := r.say("hello"), r.say("hello")
		r.answered(first, "one")
		r.answered(second, "two")
		r.calls(2)
	})
}
