package db_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

func TestWhatFailsInASharedCommitIsNotCounted(t *testing.T) {
	d, _ := openFaulty(t)
	failed := errors.New("no")
	counting := func(n int64, err error) func(*db.Tx) error {
		return func(tx *db.Tx) error {
			tx.CountCharges(n)
			return errors.Join(mark(chat.NewID())(tx), err)
		}
	}
	errs := together(t, d, counting(1, nil), counting(10, failed), counting(100, nil))
	if errs[0] != nil || !errors.Is(errs[1], failed) || errs[2] != nil {
		t.Fatal(errs)
	}
	n, err := d.Counts(bg)
	if err != nil || n.Charges != 101 {
		t.Errorf("counted %d, %v, want 101: what two of three stored", n.Charges, err)
	}
	execRaw(t, d.Path(), `UPDATE instance SET charges = 0`)
}

// What repeats would have cost is counted once, whether they come before the charge or
// after it.
func TestSavingsAreCountedWhicheverComesFirst(t *testing.T) {
	d := dbtest.Open(t)
	r := dbtest.Accept(t, d, "session-1", "one")
	repeat := func(r chat.Request, decision chat.Decision, recorded bool) db.Repeat {
		return db.Repeat{RequestID: r.ID, At: time.UnixMilli(int64(len(decision))), Source: chat.SourceAPI, Decision: decision, Status: 200, Recorded: recorded}
	}
	record := func(list ...db.Repeat) {
		t.Helper()
		if err := d.RecordArrivals(bg, list); err != nil {
			t.Fatal(err)
		}
	}
	record(repeat(r, chat.DecisionJoined, false), repeat(r, chat.DecisionFirst, false), repeat(r, chat.DecisionConflict, false))
	r, _ = dbtest.Claim(t, d, r)
	r = dbtest.Finish(t, d, r, "answer")
	record(repeat(r, chat.DecisionReplayed, false), repeat(r, chat.DecisionReplayed, false), repeat(r, chat.DecisionJoined, true))
	free := dbtest.Answered(t, d, "session-2", "two", "answer")
	n, err := d.Counts(bg)
	if err != nil {
		t.Fatal(err)
	}
	cost, err := db.Int(bg, d, `SELECT micros FROM ledger WHERE kind = 'charge' AND request_id = (SELECT min(request_id) FROM ledger)`)
	if err != nil || cost == 0 {
		t.Fatal(cost, err)
	}
	if n.Intents != 2 || n.Joined != 1 || n.Replayed != 2 || n.Conflicts != 1 || n.Saved != 3*cost || n.Charges != 2 || n.Answers != 2 || n.Attempts != 2 || free.ID == 0 {
		t.Errorf("counted %+v, want three repeats absorbed at %d each", n, cost)
	}
	dbtest.Check(t, d)
}

func TestWhatIsNotStoredIsNotTold(t *testing.T) {
	var log bytes.Buffer
	faults := &dbtest.Faults{}
	o := options(t, filepath.Join(t.TempDir(), "told.db"))
	o.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Driver = faults.Open
	d, err := db.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	s := dbtest.Submission("session-1", chat.NewID(), "a question")
	told := func() int { return strings.Count(log.String(), `"msg":"stage"`) }
	faults.Arm("COMMIT", 0, dbtest.NotStored, dbtest.Error(5))
	if _, err := d.Accept(bg, s); err == nil || told() != 0 {
		t.Errorf("%v; %d lines of what is not stored: %s", err, told(), log.String())
	}
	if _, err := d.Accept(bg, s); err != nil || told() != 1 {
		t.Errorf("%v; %d lines of what is: %s", err, told(), log.String())
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestACheckEndsWithItsContext(t *testing.T) {
	d, faults := openFaulty(t)
	ctx, cancel := context.WithCancel(t.Context())
	endless := db.Invariant{ID: "X", Name: "never ends", SQL: `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0`}
	ended := make(chan error, 1)
	faults.Record()
	go func() {
		_, err := d.Check(ctx, endless)
		ended <- err
	}()
	for !slices.Contains(faults.Recorded(), endless.SQL) { // it runs
		runtime.Gosched()
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	dbtest.Check(t, d) // its connection reads on
}
