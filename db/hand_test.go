package db_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

func deeds(t *testing.T, d *db.DB, k chat.Key) (actions []string) {
	t.Helper()
	rc, err := d.Receipt(bg, k)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range rc.Deeds {
		actions = append(actions, a.Action)
	}
	return actions
}

func TestAnAttemptIsReleasedOnceAndOnlyWhileItIsAnswered(t *testing.T) {
	d := dbtest.Open(t)
	waiting := dbtest.Accept(t, d, "session-1", "one")
	if _, err := d.Release(bg, waiting.ID, 0, byHand); !errors.Is(err, db.ErrNotNow) {
		t.Errorf("one that waits: %v", err)
	}
	r, _ := dbtest.Claim(t, d, waiting)
	if _, err := d.Release(bg, r.ID, 2, byHand); !errors.Is(err, db.ErrNotNow) {
		t.Errorf("another attempt: %v", err)
	}
	if _, err := d.Release(bg, 1<<40, 1, byHand); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("none: %v", err)
	}
	if got := deeds(t, d, r.Key); len(got) != 0 {
		t.Errorf("what was refused is written down: %v", got)
	}
	for range 2 {
		if got, err := d.Release(bg, r.ID, 1, byHand); err != nil || got.State != chat.StateGenerating {
			t.Fatalf("%s, %v", got.State, err)
		}
	}
	if got := deeds(t, d, r.Key); !slices.Equal(got, []string{"release"}) {
		t.Errorf("the audit has %v", got)
	}
	if lease, err := db.Int(bg, d, `SELECT lease_until <= updated_at + 60000 FROM requests`); err != nil || lease != 1 {
		t.Errorf("the lease is not over (%v)", err)
	}
	dbtest.Finish(t, d, r, "it was quicker")
	if got, err := d.Release(bg, r.ID, 1, byHand); err != nil || got.State != chat.StateCommitted {
		t.Errorf("again, after its end: %s, %v", got.State, err)
	}
	dbtest.Check(t, d)
}

func TestADeedIsDoneOnceForItsKey(t *testing.T) {
	d := dbtest.Open(t)
	failure := chat.Failure{Code: "stopped", Outcome: chat.OutcomeNone, Retry: chat.RetryExplicit}
	r := dbtest.Accept(t, d, "session-1", "one")
	r, err := d.StopByHand(bg, r, failure, byHand)
	if err != nil || r.State != chat.StateFailed {
		t.Fatalf("%s, %v", r.State, err)
	}
	if _, err := d.Restart(bg, r, db.Restart{Reason: db.ReasonExplicit, Actor: "user:1", Deed: &byHand}); !errors.Is(err, db.ErrKeyReused) {
		t.Errorf("another deed under the key: %v", err)
	}
	again := db.Deed{Actor: "user:1", Reason: "it was a mistake", Key: "key-0002"}
	if r, err = d.Restart(bg, r, db.Restart{Reason: db.ReasonExplicit, Actor: "user:1", Deed: &again}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.StopByHand(bg, r, failure, byHand); !errors.Is(err, db.ErrDone) {
		t.Errorf("a stop under an old key: %v", err)
	}
	other := dbtest.Accept(t, d, "session-2", "two")
	if _, err := d.StopByHand(bg, other, failure, byHand); !errors.Is(err, db.ErrKeyReused) {
		t.Errorf("another request under the key: %v", err)
	}
	if got := deeds(t, d, r.Key); !slices.Equal(got, []string{"stop", "retry"}) {
		t.Errorf("the audit has %v", got)
	}
	dbtest.Check(t, d)
}

// Whoever looks is written down, each time, and sees what there is: of a failed one as
// much as came.
func TestTextsAreRevealedToWhoIsWrittenDown(t *testing.T) {
	d := dbtest.Open(t)
	r := dbtest.Answered(t, d, "session-1", "a question", "an answer")
	looks := db.Deed{Actor: "user:1"}
	for range 2 {
		s, err := d.Reveal(bg, r.ID, looks)
		if err != nil || s.Question != "a question" || s.Answer != "an answer" {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if got := deeds(t, d, r.Key); !slices.Equal(got, []string{"reveal", "reveal"}) {
		t.Errorf("the audit has %v", got)
	}
	f := dbtest.Fail(t, d, setupGenerating(t, d), "far")
	if s, err := d.Reveal(bg, f.ID, looks); err != nil || s.Question != "second" || s.Answer != "so far" {
		t.Errorf("%+v, %v", s, err)
	}
	asked, _ := dbtest.Effects(t, d, "session-3", "note")
	if s, err := d.Reveal(bg, asked.ID, looks); err != nil || len(s.Asked) != 1 || len(s.Asked[0].Arguments) == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := d.Reveal(bg, 1<<40, looks); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
}

func TestTheAuditByObjectActorAndAction(t *testing.T) {
	d := dbtest.Open(t)
	r, effects := dbtest.Effects(t, d, "session-1", "sign")
	dbtest.Approve(t, d, effects[0])
	dbtest.Deliver(t, d, effects[0].WebhookID, dbtest.GaveUp)
	if _, err := d.Resolve(bg, db.Resolution{WebhookID: effects[0].WebhookID, Do: db.Redrive, Actor: "user:1", Reason: "again"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := d.Reveal(bg, r.ID, db.Deed{Actor: "user:2"}); err != nil {
			t.Fatal(err)
		}
	}
	other := dbtest.Answered(t, d, "session-2", "one", "two")
	if _, err := d.Reveal(bg, other.ID, db.Deed{Actor: "user:1"}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		f    db.AuditFilter
		want int
	}{
		{db.AuditFilter{}, 5},
		{db.AuditFilter{Actor: "user:2"}, 3},
		{db.AuditFilter{Action: "reveal"}, 4},
		{db.AuditFilter{Action: "reveal", Actor: "user:1"}, 1},
		{db.AuditFilter{Object: effects[0].WebhookID}, 1},
		{db.AuditFilter{Object: r.Key.RequestID}, 4}, // with its effect
		{db.AuditFilter{Object: r.Key.RequestID, Action: "redrive"}, 1},
		{db.AuditFilter{Object: "request:999"}, 0},
	} {
		var got []db.AuditRow
		for before := int64(0); ; {
			tt.f.Before, tt.f.Limit = before, 2
			page, err := d.Audit(bg, tt.f)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, page...)
			if len(page) < 2 {
				break
			}
			before = page[1].ID
		}
		if len(got) != tt.want || !slices.IsSortedFunc(got, func(a, b db.AuditRow) int { return int(b.ID - a.ID) }) {
			t.Errorf("%+v: %+v, want %d", tt.f, got, tt.want)
		}
		for _, a := range got {
			if want := map[bool]chat.Key{true: other.Key, false: r.Key}[a.Key.RequestID == other.Key.RequestID]; a.Key != want {
				t.Errorf("%+v is about %+v", a, a.Key)
			}
		}
	}
	if got := deeds(t, d, r.Key); !slices.Equal(got, []string{"redrive", "reveal", "reveal", "reveal"}) {
		t.Errorf("the receipt has %v", got)
	}
}

func TestEvidenceOutlivesTheDeletionUntilThePurge(t *testing.T) {
	d := dbtest.Open(t)
	r := dbtest.Answered(t, d, "session-1", "one", "two")
	if _, err := d.DeleteConversation(bg, db.LocalUser, "session-1"); err != nil {
		t.Fatal(err)
	}
	if rc, err := d.Evidence(bg, r.Key); err != nil || rc.Request.ID != r.ID || len(rc.Transitions) != 4 {
		t.Errorf("%+v, %v", rc, err)
	}
	for more := true; more; {
		var err error
		if more, err = d.PurgeConversations(bg, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Evidence(bg, r.Key); !errors.Is(err, db.ErrGone) {
		t.Errorf("after the purge: %v", err)
	}
	r.Key.RequestID = chat.NewID()
	r.Key.SessionID = "session-9"
	if _, err := d.Evidence(bg, r.Key); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
}

func TestNewerCountsUpToABound(t *testing.T) {
	d := dbtest.Open(t)
	first := dbtest.Accept(t, d, "session-1", "one")
	for range 3 {
		dbtest.Accept(t, d, "session-1", "more")
	}
	for most, want := range map[int]int{2: 2, 10: 3} {
		if n, err := d.Newer(bg, first.ID, most); err != nil || n != want {
			t.Errorf("up to %d there are %d (%v), want %d", most, n, err, want)
		}
	}
}
