package db_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

var soon = time.Hour // "older than in an hour": everything

func count(t *testing.T, d *db.DB, sql string, args ...any) int64 {
	t.Helper()
	n, err := db.Int(bg, d, sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ulidAt is an id with this time inside.
func ulidAt(at time.Time) string {
	var u ulid.ULID
	if err := u.SetTime(ulid.Timestamp(at)); err != nil {
		panic(err)
	}
	if err := u.SetEntropy([]byte(fmt.Sprintf("%010d", at.UnixNano()%1e10))); err != nil {
		panic(err)
	}
	return u.String()
}

func deleteConversation(t *testing.T, d *db.DB, session string) []chat.Request {
	t.Helper()
	stopped, err := d.DeleteConversation(bg, db.LocalUser, session)
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Check(t, d)
	return stopped
}

func purgeAll(t *testing.T, d *db.DB) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = d.PurgeConversations(bg, time.Now().Add(soon)); err != nil {
			t.Fatal(err)
		}
		dbtest.Check(t, d)
	}
}

func TestPruningTakesEvidenceAndNothingThatMakesAnIDKnown(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	// Answered by its second attempt; the text of the first is evidence.
	answered := dbtest.Finish(t, d, first(dbtest.Claim(t, d, dbtest.Restart(t, d, dbtest.Fail(t, d, first(dbtest.Claim(t, d, dbtest.Accept(t, d, s, "one"))), "half")))), "whole")
	failed := dbtest.Fail(t, d, first(dbtest.Claim(t, d, dbtest.Accept(t, d, s, "two"))), "what it shows")
	for _, r := range []chat.Request{answered, failed} {
		if err := d.RecordArrivals(bg, []db.Repeat{{RequestID: r.ID, At: time.Now(), Source: chat.SourceAPI, Decision: chat.DecisionReplayed, Status: 200}}); err != nil {
			t.Fatal(err)
		}
	}
	if more, err := d.PruneEvidence(bg, time.Now().Add(-soon)); err != nil || more {
		t.Fatalf("nothing is old: %t, %v", more, err)
	}
	if got := count(t, d, `SELECT count(*) FROM arrivals`); got != 4 {
		t.Errorf("%d arrivals are left of 4, none of them old", got)
	}
	if more, err := d.PruneEvidence(bg, time.Now().Add(soon)); err != nil || more {
		t.Fatalf("pruned: %t, %v", more, err)
	}
	dbtest.Check(t, d)
	if got := count(t, d, `SELECT count(*) FROM arrivals WHERE n > 1`); got != 0 {
		t.Errorf("%d repeats are left", got)
	}
	if p, err := d.PartialText(bg, answered.ID, 1); err != nil || p.Text != "" {
		t.Errorf("the text that was not used is still there: %q (%v)", p.Text, err)
	}
	if rec, err := d.Record(bg, failed.Key); err != nil || rec.Content != "what it shows" {
		t.Errorf("the failed one shows %q (%v)", rec.Content, err)
	}
	if rec, err := d.Record(bg, answered.Key); err != nil || rec.Content != "whole" {
		t.Errorf("the answer is %q (%v)", rec.Content, err)
	}
	for _, r := range []chat.Request{answered, failed} {
		if _, err := d.Accept(bg, dbtest.Submission(s, r.Key.RequestID, "again")); !errors.Is(err, db.ErrExists) {
			t.Errorf("after pruning its id is taken as new: %v", err)
		}
	}
}

func TestPruningGoesInSlices(t *testing.T) {
	d := dbtest.Open(t)
	for range 501 {
		dbtest.Accept(t, d, "session-1", "x")
	}
	for i, want := range []bool{true, false, false} {
		if more, err := d.PruneEvidence(bg, time.Now().Add(soon)); err != nil || more != want {
			t.Errorf("slice %d: more %t (%v), want %t", i, more, err, want)
		}
	}
	if got := count(t, d, `SELECT pruned_id FROM instance`); got != 501 {
		t.Errorf("pruned up to %d, want 501", got)
	}
}

func TestAPurgeLeavesTombstonesAndTheLedger(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	r := dbtest.Answered(t, d, s, "secret words", "secret answer")
	lost := dbtest.Fail(t, d, first(dbtest.Claim(t, d, dbtest.Accept(t, d, s, "more secret words"))), "half")
	kept := dbtest.Answered(t, d, "session-2", "stays", "stays")
	money := count(t, d, `SELECT sum(micros) FROM ledger`)
	deleteConversation(t, d, s)
	if more, err := d.PurgeConversations(bg, time.Now().Add(-soon)); err != nil || more {
		t.Errorf("purged before its time: %t, %v", more, err)
	}
	purgeAll(t, d)
	for _, table := range []string{"requests", "snapshots", "processed", "conversations"} {
		if got := count(t, d, `SELECT count(*) FROM `+table); got != 1 {
			t.Errorf("%s has %d rows, want the one of the other conversation", table, got)
		}
	}
	for _, table := range []string{"transitions", "arrivals", "attempts", "partials"} {
		if got := count(t, d, `SELECT count(*) FROM `+table+` WHERE request_id <> ?`, kept.ID); got != 0 {
			t.Errorf("%s has %d rows of what was purged", table, got)
		}
	}
	if got := count(t, d, `SELECT sum(micros) FROM ledger`); got != money || count(t, d, `SELECT count(*) FROM ledger`) != 3 {
		t.Errorf("the ledger has %d micros, before %d", got, money)
	}
	if got := count(t, d, `SELECT count(*) FROM tombstones WHERE length(digest) = 16`); got != 3 {
		t.Errorf("%d tombstones, want one an id and one of the conversation", got)
	}
	for name, sub := range map[string]db.Submission{
		"the answered id":              dbtest.Submission(s, r.Key.RequestID, "secret words"),
		"the failed id":                dbtest.Submission(s, lost.Key.RequestID, "more"),
		"a new id of the conversation": dbtest.Submission(s, chat.NewID(), "new"),
		"a UUID of the conversation":   dbtest.Submission(s, "f47ac10b-58cc-4372-a567-0e02b2c3d479", "new"),
	} {
		if _, err := d.Accept(bg, sub); !errors.Is(err, db.ErrGone) {
			t.Errorf("%s is accepted: %v", name, err)
		}
		if _, err := d.Find(bg, sub.Key); !errors.Is(err, db.ErrGone) {
			t.Errorf("%s is looked up: %v", name, err)
		}
	}
	if _, err := d.Thread(bg, db.LocalUser, s); !errors.Is(err, db.ErrGone) {
		t.Errorf("the conversation: %v", err)
	}
	// The same id in another conversation, or of another conversation, is another intent.
	if _, err := d.Accept(bg, dbtest.Submission("session-3", r.Key.RequestID, "x")); err != nil {
		t.Error(err)
	}
	// And its number is never given out again: the ledger says whose it was.
	if fresh := dbtest.Accept(t, d, "session-3", "x"); fresh.ID <= kept.ID {
		t.Errorf("a new request has the number %d", fresh.ID)
	}
	dbtest.Check(t, d)
}

func TestADeletedConversationIsPurgedOnlyWhenNothingOfItRuns(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	running := first(dbtest.Claim(t, d, dbtest.Accept(t, d, s, "one")))
	waits := dbtest.Accept(t, d, s, "two")
	stopped := deleteConversation(t, d, s)
	if len(stopped) != 2 {
		t.Fatalf("%d requests were stopped, want 2", len(stopped))
	}
	if r := load(t, d, waits.ID); r.State != chat.StateFailed || r.Failure.Code != "stopped" {
		t.Errorf("what waited is %s %s", r.State, r.Failure.Code)
	}
	if r := load(t, d, running.ID); !r.StopRequested || r.StopAttempt != 1 {
		t.Errorf("no stop is stored for what runs: %+v", r)
	}
	if more, err := d.PurgeConversations(bg, time.Now().Add(soon)); err != nil || more {
		t.Errorf("purged under a running answer: %t, %v", more, err)
	}
	if _, err := d.Fail(bg, running, db.End{Outcome: chat.OutcomeStopped, Code: "stopped", Actor: "worker:life"}, dbtest.Stopped); err != nil {
		t.Fatal(err)
	}
	purgeAll(t, d)
	if got := count(t, d, `SELECT count(*) FROM requests`); got != 0 {
		t.Errorf("%d requests are left", got)
	}
}

func TestNothingNewIsAcceptedOrRestartedInADeletedConversation(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	failed := dbtest.Fail(t, d, first(dbtest.Claim(t, d, dbtest.Accept(t, d, s, "one"))), "")
	deleteConversation(t, d, s)
	if _, err := d.Accept(bg, dbtest.Submission(s, chat.NewID(), "x")); !errors.Is(err, db.ErrGone) {
		t.Errorf("a new question: %v", err)
	}
	if _, err := d.Restart(bg, failed, db.Restart{Reason: "explicit", Actor: "user:1"}); !errors.Is(err, db.ErrGone) {
		t.Errorf("a restart: %v", err)
	}
	title := "x"
	if _, err := d.PatchConversation(bg, db.LocalUser, s, db.ConversationPatch{Title: &title}); !errors.Is(err, db.ErrGone) {
		t.Errorf("a change: %v", err)
	}
	dbtest.Check(t, d)
}

func TestADeletionCanBeUndoneForTenMinutes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	const s = "session-1"
	r := dbtest.Answered(t, d, s, "one", "first answer")
	deleteConversation(t, d, s)
	deleteConversation(t, d, s) // twice is no error
	if _, err := d.Find(bg, r.Key); !errors.Is(err, db.ErrGone) {
		t.Errorf("deleted: %v", err)
	}
	for range 2 { // twice is no error either
		if _, err := d.RestoreConversation(bg, db.LocalUser, s); err != nil {
			t.Errorf("within the window: %v", err)
		}
	}
	if rec, err := d.Record(bg, r.Key); err != nil || rec.Content != "first answer" {
		t.Errorf("restored: %q, %v", rec.Content, err)
	}
	deleteConversation(t, d, s)
	age := func(by time.Duration) {
		mustExec(t, raw(t, path, ""), fmt.Sprintf(`UPDATE conversations SET deleted_at = %d`, time.Now().Add(-by).UnixMilli()))
	}
	age(db.UndoWindow + time.Second)
	if _, err := d.RestoreConversation(bg, db.LocalUser, s); !errors.Is(err, db.ErrGone) {
		t.Errorf("past the window: %v", err)
	}
	age(db.UndoWindow - time.Minute)
	if _, err := d.RestoreConversation(bg, db.LocalUser, s); err != nil {
		t.Errorf("a minute before its end: %v", err)
	}
	if _, err := d.RestoreConversation(bg, db.LocalUser, "session-none"); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("what never was: %v", err)
	}
}

// S56: a purge of a large conversation goes in slices; the process dies between two.
func TestAPurgeThatStopsHalfWayIsHarmlessAndGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d, err := db.Open(db.Options{Path: path, Schema: dbtest.Schema(t), Driver: (&dbtest.Faults{}).Open})
	if err != nil {
		t.Fatal(err)
	}
	const s, n = "session-1", 503
	var all []chat.Request
	for range n {
		all = append(all, dbtest.Stop(t, d, dbtest.Accept(t, d, s, "one of many")))
	}
	deleteConversation(t, d, s)
	for slice, want := range []int64{3, 0} {
		if more, err := d.PurgeConversations(bg, time.Now().Add(soon)); err != nil || !more {
			t.Fatalf("slice %d: more %t, %v", slice, more, err)
		}
		if got := count(t, d, `SELECT count(*) FROM requests`); got != want {
			t.Errorf("after slice %d there are %d requests, want %d", slice, got, want)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if d, err = db.Open(db.Options{Path: path, Schema: dbtest.Schema(t), Driver: (&dbtest.Faults{}).Open}); err != nil {
			t.Fatal(err)
		}
		dbtest.Check(t, d)
		for _, i := range []int{0, 499, 500, n - 1} {
			if _, err := d.Find(bg, all[i].Key); !errors.Is(err, db.ErrGone) {
				t.Errorf("after slice %d request %d is looked up: %v", slice, i, err)
			}
			if _, err := d.Accept(bg, dbtest.Submission(s, all[i].Key.RequestID, "x")); !errors.Is(err, db.ErrGone) {
				t.Errorf("after slice %d request %d is accepted: %v", slice, i, err)
			}
		}
		if _, err := d.RestoreConversation(bg, db.LocalUser, s); !errors.Is(err, db.ErrGone) {
			t.Errorf("after slice %d it is restored: %v", slice, err)
		}
	}
	if more, err := d.PurgeConversations(bg, time.Now().Add(soon)); err != nil || more {
		t.Errorf("when all is purged: more %t, %v", more, err)
	}
	if got := count(t, d, `SELECT count(*) FROM tombstones`); got != n+1 {
		t.Errorf("%d tombstones, want %d", got, n+1)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestForgettingTombstonesMovesTheHorizonOverThemAndNeverPastNow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	now := time.Now().Truncate(time.Millisecond)
	old, recent, future := ulidAt(now.Add(-48*time.Hour)), ulidAt(now.Add(-time.Minute)), ulidAt(now.Add(5*time.Minute))
	ids := []string{old, recent, future, "f47ac10b-58cc-4372-a567-0e02b2c3d479", "order-2026-1"}
	for _, id := range ids {
		dbtest.Submit(t, d, dbtest.Submission("session-1", id, "x"))
	}
	dbtest.Submit(t, d, dbtest.Submission("session-2", ulidAt(now.Add(-72*time.Hour)), "x"))
	deleteConversation(t, d, "session-1")
	purgeAll(t, d)
	if i, err := d.Instance(bg); err != nil || !i.PurgeHorizon.IsZero() {
		t.Errorf("the horizon is %v before anything is forgotten (%v)", i.PurgeHorizon, err)
	}
	if more, err := d.ForgetTombstones(bg, now.Add(-soon)); err != nil || more {
		t.Errorf("forgotten before their time: %t, %v", more, err)
	}
	if got := count(t, d, `SELECT count(*) FROM tombstones`); got != int64(len(ids)+1) {
		t.Fatalf("%d tombstones, want %d", got, len(ids)+1)
	}
	for more := true; more; {
		var err error
		if more, err = d.ForgetTombstones(bg, now.Add(soon)); err != nil {
			t.Fatal(err)
		}
		dbtest.Check(t, d)
	}
	i, err := d.Instance(bg)
	if err != nil || !i.PurgeHorizon.Equal(now.Add(-time.Minute)) {
		t.Errorf("the horizon is %v (%v), want the newest that was forgotten, %v", i.PurgeHorizon, err, now.Add(-time.Minute))
	}
	// What has no time keeps its tombstone for good, and what lies ahead until then.
	if got := count(t, d, `SELECT count(*) FROM tombstones`); got != 4 {
		t.Errorf("%d tombstones are left, want those of two ids, the conversation and the one ahead", got)
	}
	for id, want := range map[string]error{ids[3]: db.ErrGone, ids[4]: db.ErrGone, future: db.ErrGone} {
		if _, err := d.Find(bg, chat.Key{UserID: db.LocalUser, SessionID: "session-1", RequestID: id}); !errors.Is(err, want) {
			t.Errorf("%s: %v", id, err)
		}
	}
	// A later purge of older ids does not move it back.
	deleteConversation(t, d, "session-2")
	purgeAll(t, d)
	if _, err := d.ForgetTombstones(bg, now.Add(soon)); err != nil {
		t.Fatal(err)
	}
	if j, err := d.Instance(bg); err != nil || !j.PurgeHorizon.Equal(i.PurgeHorizon) {
		t.Errorf("the horizon moved from %v to %v (%v)", i.PurgeHorizon, j.PurgeHorizon, err)
	}
}

// A forgotten tombstone and the horizon that stands in for it are one
// transaction: at no moment is a purged id neither.
func TestAPurgedULIDIsAlwaysGoneOrBehindTheHorizon(t *testing.T) {
	d := dbtest.Open(t)
	now := time.Now()
	var keys []chat.Key
	for i := range 501 {
		s := dbtest.Submission("session-1", ulidAt(now.Add(-time.Duration(i+1)*time.Second)), "x")
		keys = append(keys, dbtest.Stop(t, d, dbtest.Submit(t, d, s)).Key)
	}
	deleteConversation(t, d, "session-1")
	purgeAll(t, d)
	var rounds int
	for more := true; more; rounds++ {
		var err error
		if more, err = d.ForgetTombstones(bg, now.Add(soon)); err != nil {
			t.Fatal(err)
		}
		i, err := d.Instance(bg)
		if err != nil {
			t.Fatal(err)
		}
		open := slices.DeleteFunc(slices.Clone(keys), func(k chat.Key) bool {
			at, _ := chat.IDTime(k.RequestID)
			_, err := d.Find(bg, k)
			return errors.Is(err, db.ErrGone) || !at.After(i.PurgeHorizon)
		})
		if len(open) > 0 {
			t.Errorf("after slice %d %d purged ids would run again", rounds, len(open))
		}
	}
	if rounds < 2 {
		t.Errorf("it took %d slices", rounds)
	}
}
