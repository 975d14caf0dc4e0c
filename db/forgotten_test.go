package db_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// Acceptance itself looks at the horizon: whoever looked before it moved, or
// holds an old copy of it, is refused all the same.
func TestAForgottenIDIsRefusedByTheAcceptanceItself(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	now := time.Now()
	session, id := ulidAt(now.Add(-2*time.Minute)), ulidAt(now.Add(-time.Minute))
	dbtest.Stop(t, d, dbtest.Submit(t, d, dbtest.Submission(session, id, "x")))
	deleteConversation(t, d, session)
	purgeAll(t, d)
	for more := true; more; {
		var err error
		if more, err = d.ForgetTombstones(bg, now.Add(soon)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(d *db.DB) {
		t.Helper()
		if _, err := d.Accept(bg, dbtest.Submission("another-session", id, "x")); !errors.Is(err, db.ErrExpired) {
			t.Errorf("the forgotten id: got %v, want ErrExpired", err)
		}
		// The conversation that is forgotten, too, is not made anew.
		if _, err := d.Accept(bg, dbtest.Submission(session, chat.NewID(), "x")); !errors.Is(err, db.ErrGone) {
			t.Errorf("the forgotten conversation: got %v, want ErrGone", err)
		}
		if n := count(t, d, `SELECT count(*) FROM conversations`); n != 0 {
			t.Errorf("%d conversations were made by refused acceptances", n)
		}
	}
	check(d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	check(dbtest.OpenAt(t, path, nil)) // the next life reads it from the file
}

func TestOneFileHasOneServerByWhateverNameItIsOpened(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	dbtest.OpenAt(t, path, nil)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if d, err := db.Open(db.Options{Path: link, Schema: dbtest.Schema(t)}); !errors.Is(err, db.ErrServed) {
		if err == nil {
			err = d.Close()
		}
		t.Errorf("got %v, want ErrServed", err)
	}
}

// State and attempt are the same before a stop and after a restart; the steps are
// not.
func TestWhoLookedBeforeARestartIsFencedAfterIt(t *testing.T) {
	d := dbtest.Open(t)
	waiting := dbtest.Submit(t, d, dbtest.Submission("session-1", chat.NewID(), "x"))
	stopped := dbtest.Stop(t, d, waiting)
	again := dbtest.Restart(t, d, stopped)
	if again.State != waiting.State || again.Attempt != waiting.Attempt {
		t.Fatalf("got %s, attempt %d: this test no longer tests what it is for", again.State, again.Attempt)
	}
	if _, _, err := d.Claim(bg, db.Claim{Request: waiting, Owner: "life", Lease: time.Minute}); !errors.Is(err, db.ErrFenced) {
		t.Errorf("the old claim: got %v, want ErrFenced", err)
	}
	if _, err := d.FailWaiting(bg, waiting, "user:1", stopped.Failure); !errors.Is(err, db.ErrFenced) {
		t.Errorf("the old stop: got %v, want ErrFenced", err)
	}
	if _, err := d.Restart(bg, stopped, db.Restart{Reason: db.ReasonExplicit, Actor: "user:1"}); !errors.Is(err, db.ErrFenced) {
		t.Errorf("the same restart twice: got %v, want ErrFenced", err)
	}
	dbtest.Check(t, d)
}

func TestOnlyAPersonsRestartCountsAttemptsAnew(t *testing.T) {
	d := dbtest.Open(t)
	r := dbtest.Submit(t, d, dbtest.Submission("session-1", chat.NewID(), "x"))
	r, _, err := d.Claim(bg, db.Claim{Request: r, Owner: "life", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	end := db.End{Outcome: chat.OutcomeDefinite, Code: "provider_busy", Actor: "worker:life"}
	if r, err = d.Requeue(bg, r, end, time.Time{}, "engine_retry", 2, 1); err != nil {
		t.Fatal(err)
	}
	r = dbtest.Stop(t, d, r)
	if r, err = d.Restart(bg, r, db.Restart{Reason: db.ReasonRestarted, Actor: "user:1"}); err != nil || r.Refused != 2 || r.Crashes != 1 {
		t.Fatalf("a plain repeat: got %d refused, %d crashes (%v), want 2 and 1 still", r.Refused, r.Crashes, err)
	}
	r = dbtest.Stop(t, d, r)
	if r, err = d.Restart(bg, r, db.Restart{Reason: db.ReasonExplicit, Actor: "user:1"}); err != nil || r.Refused != 0 || r.Crashes != 0 {
		t.Fatalf("a person: got %d refused, %d crashes (%v), want none", r.Refused, r.Crashes, err)
	}
	if now, err := d.Load(bg, r.ID); err != nil || now.Refused != 0 {
		t.Errorf("stored: %+v (%v)", now, err)
	}
}
