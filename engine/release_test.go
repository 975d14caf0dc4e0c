package engine_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm/llmtest"
)

var operator = db.Deed{Actor: "user:9", Reason: "it hangs"}

func (r *rig) release(id string, attempt int64) chat.Request {
	r.t.Helper()
	req, err := r.e.Release(r.ctx, r.key(id), attempt, operator)
	if err != nil {
		r.t.Fatalf("release %s: %v", id, err)
	}
	return req
}

func (r *rig) deeds(id string) (actions string) {
	r.t.Helper()
	for _, d := range r.receipt(id).Deeds {
		actions += d.Action + " by " + d.Actor + ": " + d.Reason + "\n"
	}
	return actions
}

// A release is the reaper come early: the worker is fenced whatever it says later, its
// cost is waste, and who asks nobody is run again.
func TestAReleasedAttemptIsTakenOverNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStall(1)
		r := newRig(t, s.options, llmtest.Answer("the zombie's"), llmtest.Answer("the heir's"))
		id := r.say("hello")
		r.rest()
		if got := r.release(id, 1); got.Crashes != 1 {
			t.Fatalf("got %s attempt %d crashes %d", got.State, got.Attempt, got.Crashes)
		}
		r.answered(id, "the heir's")
		close(s.gate)
		r.rest()
		r.answered(id, "the heir's")
		r.calls(2)
		if a := r.receipt(id).Attempts; a[0].Outcome != chat.OutcomeFenced || len(a) != 2 {
			t.Errorf("the attempts are %+v", a)
		}
		if w := fmt.Sprint(r.waste(id)); w != "[1]" {
			t.Errorf("waste %s, want [1]", w)
		}
		if got := r.release(id, 1); got.State != chat.StateCommitted { // the same again, late
			t.Errorf("again: %s", got.State)
		}
		if got := r.deeds(id); got != "release by user:9: it hangs\n" {
			t.Errorf("by hand: %q", got)
		}
	})
}

// Contract, section 4: where nobody may call again by itself, a person is asked.
func TestAReleasedAttemptOfAModelThatAsksFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, asks, llmtest.Hang("so far"), llmtest.Answer("next"))
		id, behind := r.say("hello"), r.say("behind")
		r.pass(2 * time.Second)
		r.release(id, 1)
		rec := r.failed(id, "interrupted", chat.OutcomeUnknown, chat.RetryExplicit)
		if rec.Content != "so far" {
			t.Errorf("of the text %q is left", rec.Content)
		}
		r.answered(behind, "next") // the conversation goes on
	})
}

func TestAStopThatIsStoredWinsOverARelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStall(1)
		r := newRig(t, s.options, llmtest.Hang())
		id := r.say("hello")
		r.rest()
		r.stop(id, 1) // its worker hangs
		r.release(id, 1)
		r.failed(id, "stopped", chat.OutcomeUnknown, chat.RetryExplicit)
		close(s.gate)
		r.rest()
		r.calls(1)
	})
}

func TestOnlyWhatIsAnsweredIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Hang(), llmtest.Answer("yes"))
		id, behind := r.say("hello"), r.say("behind")
		r.rest()
		for _, try := range []struct {
			id      string
			attempt int64
		}{{id, 2}, {id, 0}, {behind, 0}, {behind, 1}} {
			if _, err := r.e.Release(r.ctx, r.key(try.id), try.attempt, operator); !errors.Is(err, db.ErrNotNow) {
				t.Errorf("attempt %d: %v", try.attempt, err)
			}
		}
		if _, err := r.e.Release(r.ctx, r.key(newID()), 1, operator); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("of none: %v", err)
		}
		r.calls(1)
		r.stop(id, 1)
		r.answered(behind, "yes")
	})
}

// What nobody has in care, which a broken write can leave, is taken over as well.
func TestARequestInNobodysCareIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Hang())
		lost, _ := dbtest.Claim(t, r.d, dbtest.Accept(t, r.d, r.session, "hello"))
		r.release(lost.Key.RequestID, 1)
		r.failed(lost.Key.RequestID, "interrupted", chat.OutcomeUnknown, chat.RetryExplicit) // its model is gone
	})
}

// If the process dies between the release and the take-over, the next life decides.
func TestAReleaseThatWasCutOffIsMadeGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := &dbtest.Faults{}
		s := newStall(1)
		r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, s.options, llmtest.New(llmtest.Answer("the zombie's"), llmtest.Answer("the heir's")))
		id := r.say("hello")
		r.rest()
		faults.Arm("UPDATE requests SET state = 'pending'", 0, dbtest.NotStored, dbtest.Error(13)) // full
		if _, err := r.e.Release(r.ctx, r.key(id), 1, operator); err == nil {
			t.Fatal("it was told to be released")
		}
		if got := r.request(id); got.State != chat.StateGenerating {
			t.Fatalf("it is %s", got.State)
		}
		r.release(id, 1) // asked again
		r.answered(id, "the heir's")
		if got := r.deeds(id); got != "release by user:9: it hangs\n" {
			t.Errorf("by hand: %q", got)
		}
		close(s.gate)
		r.rest()
	})
}

func TestOperationsStopAndRetryWhatIsAnothers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.Models[0].Rerun = false }, llmtest.Hang(), llmtest.Paced(time.Minute, "y", "es"))
		id := r.say("hello")
		r.rest()
		stop, again := operator, operator
		stop.Key, again.Key = newID(), newID()
		for range 2 {
			if _, err := r.e.StopByHand(r.ctx, r.key(id), 1, &stop); err != nil {
				t.Fatal(err)
			}
		}
		r.failed(id, "stopped", chat.OutcomeUnknown, chat.RetryExplicit)
		for range 2 {
			if _, err := r.e.Retry(r.ctx, engine.Again{Key: r.key(id), Attempt: 1, Deed: &again}); err != nil {
				t.Fatal(err)
			}
		}
		// The form of the stop comes once more: it meant another attempt.
		r.rest()
		if got, err := r.e.StopByHand(r.ctx, r.key(id), 0, &stop); err != nil || got.State == chat.StateFailed {
			t.Errorf("%s, %v", got.State, err)
		}
		r.answered(id, "yes")
		r.calls(2)
		if got := r.deeds(id); got != "stop by user:9: it hangs\nretry by user:9: it hangs\n" {
			t.Errorf("by hand: %q", got)
		}
		if tr := r.receipt(id).Transitions; tr[3].Actor != "user:9" {
			t.Errorf("who retried is %q", tr[3].Actor)
		}
	})
}
