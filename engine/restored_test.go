package engine_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm/llmtest"
	"semel/outbox"
)

// backup makes a backup of the rig's file.
func (r *rig) backup() string {
	r.t.Helper()
	synctest.Wait()
	b, err := r.d.Backup(r.ctx, filepath.Join(r.t.TempDir(), "backup.db"))
	if err != nil {
		r.t.Fatal(err)
	}
	return b.Path
}

// restored starts another life from a backup.
func (r *rig) restored(backup string, steps ...llmtest.Step) *rig {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "restored.db")
	if _, err := db.Restore(r.ctx, db.Options{Path: file, Schema: dbtest.Schema(r.t), Driver: new(dbtest.Faults).Open}, backup, false); err != nil {
		r.t.Fatal(err)
	}
	next := openRig(r.t, file, nil, r.change, llmtest.New(steps...))
	next.session = r.session
	next.rest()
	return next
}

func TestNothingThatABackupHadUnfinishedBeginsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Hang("half an answer"))
		running := r.say("running")
		r.pass(5 * time.Second)
		waiting := r.say("waiting")
		b := r.backup()
		r.pass(time.Hour)
		next := r.restored(b, llmtest.Answer("anew"))
		if rec := next.failed(running, "restored", chat.OutcomeUnknown, chat.RetryExplicit); rec.Content != "half an answer" {
			t.Errorf("the text so far: %q", rec.Content)
		}
		next.failed(waiting, "restored", chat.OutcomeUnknown, chat.RetryExplicit)
		if w := next.waste(running); len(w) != 1 {
			t.Errorf("waste of %v, want the first attempt's", w)
		}
		// Whoever still has it asks again, and is told of the failure: no call.
		for _, id := range []string{running, waiting} {
			content := map[string]string{running: "running", waiting: "waiting"}[id]
			if res := next.submit(next.message(id, content)); res.Decision != chat.DecisionReplayed {
				t.Errorf("a repeat: %s", res.Decision)
			}
		}
		next.pass(24 * time.Hour)
		next.calls(0)
		dbtest.Check(t, next.d)
		if in, err := next.d.Instance(next.ctx); err != nil || in.Restored {
			t.Errorf("not settled: %+v, %v", in, err)
		}
		next.doubts(waiting, 0)
		next.confirms(waiting, 0)
		next.answered(waiting, "anew")
		next.idle()

		// The life after that goes on as ever.
		third := next.say("another")
		next.answered(third, "anew")
	})
}

func TestAFailureThatRepeatsRestartAsksAPersonAfterARestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Unreachable()))
		id := r.say("hello")
		r.pass(time.Hour)
		r.failed(id, "provider_unreachable", chat.OutcomeNone, chat.RetryAuto)
		next := r.restored(r.backup(), llmtest.Answer("twice?"))
		if res := next.submit(next.message(id, "hello")); res.Decision != chat.DecisionReplayed {
			t.Errorf("a repeat: %s", res.Decision)
		}
		next.calls(0)
	})
}

// A retry names the attempt that was seen to fail. After a restore that may be one which
// the file has forgotten, and its answer with it: a copy of it wants a person's word.
func TestARetryThatARestoreMayHaveLostRunsOnlyWhenAPersonSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, asks, llmtest.Fail(llmtest.Denied()), llmtest.Answer("lost"), llmtest.Hang("half"))
		id := r.say("hello")
		r.failed(id, "provider_refused", chat.OutcomeDefinite, chat.RetryExplicit)
		b := r.backup()
		r.retry(id, 1, "")
		r.answered(id, "lost")
		<-r.drain(time.Second)

		next := r.restored(b, llmtest.Fail(llmtest.Denied()), llmtest.Answer("again"))
		next.doubts(id, 1)
		next.doubts(id, 1)
		next.pass(48 * time.Hour)
		next.doubts(id, 1) // it has no time, so this is for good
		next.calls(0)
		next.confirms(id, 1)
		next.failed(id, "provider_refused", chat.OutcomeDefinite, chat.RetryExplicit)
		if res := next.retry(id, 1, ""); res.Decision != chat.DecisionReplayed { // the copy again, late
			t.Errorf("got %s", res.Decision)
		}
		next.calls(1)
		next.retry(id, 2, "") // which is of this life
		next.answered(id, "again")
		next.calls(2)
		fresh := next.say("fresh")
		next.answered(fresh, "again")
		dbtest.Check(t, next.d)
	})
}

// doubts fails the test unless a retry of this attempt is refused until a person confirms
// it.
func (r *rig) doubts(id string, attempt int64) {
	r.t.Helper()
	res, err := r.e.Retry(r.ctx, engine.Again{Key: r.key(id), Attempt: attempt})
	var p *chat.Problem
	if !errors.As(err, &p) || p.Code != "restored_gap" || p.Status != 409 || p.Retry != chat.RetryExplicit || p.RequestID != id {
		r.t.Errorf("a retry of attempt %d: %s, %v", attempt, res.Decision, err)
	}
}

// confirms retries an attempt with a person's word.
func (r *rig) confirms(id string, attempt int64) {
	r.t.Helper()
	res, err := r.e.Retry(r.ctx, engine.Again{Key: r.key(id), Attempt: attempt, Confirmed: true})
	if err != nil || res.Decision != chat.DecisionRestarted {
		r.t.Fatalf("a confirmed retry of attempt %d: %s, %v", attempt, res.Decision, err)
	}
}

func TestAnUnknownIDOfALostTimeRunsOnlyWhenAPersonSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("first"), llmtest.Answer("second"), llmtest.Answer("third"))
		before := r.say("before")
		r.answered(before, "first")
		b := r.backup()
		r.pass(time.Minute)
		lost := r.say("lost")
		r.answered(lost, "second")
		const business = "order-4711-a"
		r.submit(r.message(business, "pay"))
		r.answered(business, "third")
		r.pass(time.Minute)

		next := r.restored(b, llmtest.Answer("again"))
		if res := next.submit(next.message(before, "before")); res.Decision != chat.DecisionReplayed {
			t.Errorf("what the backup has: %s", res.Decision)
		}
		for _, a := range []engine.Ask{next.message(lost, "lost"), next.message(business, "pay")} {
			for range 2 {
				if p := next.refused(a); p.Code != "restored_gap" || p.Status != 409 || p.Retry != chat.RetryExplicit || p.RequestID != a.Key.RequestID {
					t.Errorf("got %+v", p)
				}
			}
		}
		next.pass(time.Second)
		next.calls(0)
		a := next.message(lost, "lost")
		a.Confirmed = true
		if res := next.submit(a); res.Decision != chat.DecisionFirst {
			t.Errorf("confirmed: %s", res.Decision)
		}
		next.answered(lost, "again")
		for _, confirmed := range []bool{true, false} { // it is known now: a repeat as any
			a.Confirmed = confirmed
			if res := next.submit(a); res.Decision != chat.DecisionReplayed {
				t.Errorf("a repeat: %s", res.Decision)
			}
		}
		next.calls(1)
		fresh := next.say("after the restore")
		next.answered(fresh, "again")
		next.pass(24 * time.Hour)
		next.submit(next.message("order-4712-a", "pay")) // what has no time is doubted for a day
		next.answered("order-4712-a", "again")
		if p := next.refused(next.message(idOf(t, lost), "lost too")); p.Code != "restored_gap" { // what has one, for good
			t.Errorf("another id of that time: %+v", p)
		}
	})
}

// idOf returns another id of the same millisecond.
func idOf(t *testing.T, id string) string {
	t.Helper()
	return id[:10] + "0000000000000000"
}

// What was in the outbox of a backup may have been delivered since: it is sent again
// only to a receiver that knows its id still, or says that it does not.
func TestWhatABackupWasAboutToSendIsSentOnlyToWhoKnowsItAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		change     func(*outbox.Target)
		later      time.Duration
		deliveries int // after the restore
		want       string
	}{
		{"keyed, known still", func(*outbox.Target) {}, 2 * time.Hour, 1, "committed delivered"},
		{"keyed, forgotten", func(*outbox.Target) {}, 25 * time.Hour, 0, "acknowledged dead:key_expired"},
		{"remembers nothing", func(g *outbox.Target) { g.KeyMode = outbox.KeyModeNone }, 2 * time.Hour, 0, "acknowledged dead:outcome_unknown"},
	} {
		synctest.Test(t, func(t *testing.T) {
			hour := settings(func(g *outbox.Target) { g.Backoff, g.MaxAttempts = time.Hour, 100 })
			v := &receiver{deaf: true, answers: []func(context.Context, outbox.Message) outbox.Result{absent, well}}
			r := newRig(t, effects(v, hour, settings(tt.change)), asking("note"))
			id := r.acts()
			r.stands(id, "acknowledged pending:"+outbox.CodeUnreachable)
			b := r.backup()
			sent := r.effect(id, 0).WebhookID
			v.mu.Lock()
			v.deaf = false
			v.mu.Unlock()
			r.pass(tt.later)
			r.stands(id, "committed delivered") // which is lost now
			<-r.drain(time.Second)
			next := r.restored(b, llmtest.Answer("no"))
			next.pass(48 * time.Hour)
			next.stands(id, tt.want)
			v.once(t, 2+tt.deliveries)
			dbtest.Check(t, next.d)
			if tt.deliveries > 0 {
				return
			}
			// A person may always say: under the same id.
			if _, err := next.e.Resolve(next.ctx, db.Resolution{WebhookID: sent, Do: db.Redrive, Actor: "user:1", Reason: "asked them"}); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			next.rest()
			next.stands(id, "committed delivered")
			v.once(t, 3)
			dbtest.Check(t, next.d)
		})
	}
}

// A receiver that can be asked is asked first, although this life never sent anything;
// and what a person approved in what is lost may be approved again, which is no second
// effect either.
func TestWhatABackupHadUndecidedIsDoubtedWhenItIsApprovedAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{outbox.KeyModeKeyed, outbox.KeyModeNone, outbox.KeyModeQuery} {
		synctest.Test(t, func(t *testing.T) {
			v := &knowing{known: []outbox.Result{{Outcome: chat.OutcomeOK, Status: 200}}}
			r := newRig(t, effects(v, settings(func(g *outbox.Target) { g.KeyMode = mode })), asking("post"))
			id := r.acts()
			b := r.backup()
			r.pass(time.Minute)
			r.approve(id, 0)
			r.rest()
			r.stands(id, "committed delivered")
			<-r.drain(time.Second)
			next := r.restored(b, llmtest.Answer("no"))
			next.approve(id, 0)
			next.rest()
			switch mode {
			case outbox.KeyModeKeyed:
				next.stands(id, "committed delivered")
				v.once(t, 2)
			case outbox.KeyModeNone:
				next.stands(id, "acknowledged dead:outcome_unknown")
				v.once(t, 1)
			case outbox.KeyModeQuery:
				next.stands(id, "committed delivered")
				v.once(t, 1)
				if len(v.asked) != 1 {
					t.Errorf("it was asked %d times, want once", len(v.asked))
				}
			}
			dbtest.Check(t, next.d)
		})
	}
}

// A person who sends again what a restore left in doubt knows no better than the file
// whether it went out: a receiver that can be asked is asked first then, too.
func TestWhatAPersonSendsAgainAfterARestoreIsAskedForFirst(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before func(t *testing.T, r *rig, id string) (backup string) // and what is lost
		stands string
	}{
		{"it was about to be sent", func(t *testing.T, r *rig, id string) string {
			r.stands(id, "acknowledged pending:"+outbox.CodeUnreachable)
			b := r.backup()
			r.pass(2 * time.Hour)
			return b
		}, "acknowledged dead:key_expired"},
		{"it was given up, and a person sent it then", func(t *testing.T, r *rig, id string) string {
			r.pass(2 * time.Hour)
			r.stands(id, "acknowledged dead:max_attempts")
			b := r.backup()
			r.redrive(id)
			r.rest()
			return b
		}, "acknowledged dead:max_attempts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := &knowing{known: []outbox.Result{{Outcome: chat.OutcomeOK, Status: 200}}}
				v.answers = []func(context.Context, outbox.Message) outbox.Result{absent, well}
				most := int64(100)
				if tt.stands == "acknowledged dead:max_attempts" {
					most = 1
				}
				r := newRig(t, effects(v, settings(func(g *outbox.Target) {
					g.KeyMode, g.Backoff, g.MaxAttempts = outbox.KeyModeQuery, time.Hour, most
				})), asking("note"))
				id := r.acts()
				b := tt.before(t, r, id)
				r.stands(id, "committed delivered") // which is lost now
				sent := v.count()
				r.pass(48 * time.Hour)
				<-r.drain(time.Second)
				next := r.restored(b, llmtest.Answer("no"))
				next.stands(id, tt.stands)
				next.redrive(id)
				next.rest()
				next.stands(id, "committed delivered")
				if got := v.count(); got != sent || len(v.asked) != 1 {
					t.Errorf("it was sent %d times and asked for %d times after the restore, want 0 and 1", got-sent, len(v.asked))
				}
				dbtest.Check(t, next.d)
			})
		})
	}
}

// redrive sends the effect of a request again, as a person.
func (r *rig) redrive(id string) {
	r.t.Helper()
	if _, err := r.e.Resolve(r.ctx, db.Resolution{WebhookID: r.effect(id, 0).WebhookID, Do: db.Redrive, Actor: "user:1", Reason: "once more"}); err != nil {
		r.t.Fatalf("redrive: %v", err)
	}
}

func TestACallbackThatARestoreMayHaveLostIsAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, effects(&receiver{}), llmtest.Answer("ok"))
		_, err := r.e.VerifyCallback(r.ctx, "msg_unknown", nil, nil)
		if !errors.Is(err, db.ErrNotFound) {
			t.Errorf("without a restore: %v", err)
		}
		next := r.restored(r.backup(), llmtest.Answer("ok"))
		var p *chat.Problem
		_, err = next.e.VerifyCallback(next.ctx, "msg_unknown", nil, nil)
		if !errors.As(err, &p) || p.Status != 503 || p.RetryAfter <= 0 {
			t.Errorf("after one: %v, want 503 and when to come again", err)
		}
		next.pass(24 * time.Hour)
		if _, err := next.e.VerifyCallback(next.ctx, "msg_unknown", nil, nil); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("a day after: %v", err)
		}
	})
}
