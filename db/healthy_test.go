package db_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// healthy names the conversations of a file in which a request of every kind and
// in every state lives, and everything that can happen to one has happened.
const (
	branches = "session-branches" // message, edit, regenerate, continue, all answered; a failure in the middle
	busy     = "session-busy"     // one generates; behind it one waits and one was stopped before its turn
	revived  = "session-revived"  // a failed one that a person restarted while a later one generates
	refusedS = "session-refused"  // refused, waits to be tried again
	rerun    = "session-rerun"    // its first attempt died, the second runs
	stopped  = "session-stopped"  // stopped with text: the partial is the answer
	moved    = "session-moved"    // restarted under another model, answered by the second attempt
	deleted  = "session-deleted"  // deleted, may be undone
	other    = "session-other"    // of another user
	purgedS  = "session-purged"   // gone: tombstones and ledger rows are left
	archived = "session-archived" // out of the list
	effects  = "session-effects"  // answers that ask for actions; see fillEffects
	given    = "session-given"    // deleted with an action undecided and another approved
	carries  = "session-carries"  // files: one twice, one of which the name is another, one that nobody sent
)

// fillHealthy makes those conversations, and checks the invariants after each
// step.
func fillHealthy(t testing.TB, d *db.DB, path string) {
	t.Helper()
	ctx := context.Background()
	step := func(r chat.Request, err error) chat.Request {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Check(t, d)
		return r
	}
	claim := func(r chat.Request) chat.Request {
		t.Helper()
		r, _ = dbtest.Claim(t, d, r)
		return step(r, nil)
	}
	accept := func(session, content string) chat.Request {
		t.Helper()
		return step(dbtest.Accept(t, d, session, content), nil)
	}
	ask := func(kind chat.Kind, content string, parent int64) chat.Request {
		t.Helper()
		return step(dbtest.Finish(t, d, claim(dbtest.Submit(t, d, dbtest.Ask(branches, kind, content, parent))), "answer to "+content), nil)
	}

	first := step(dbtest.Answered(t, d, branches, "first", "one"), nil) // 1, 2
	ask(chat.KindRegenerate, "", 2)                                     // 3
	ask(chat.KindEdit, "first, better", 1)                              // 4, 5
	ask(chat.KindContinue, "", 5)                                       // 6
	r := claim(accept(branches, "lost"))                                // 7
	if err := d.AppendPartial(ctx, r, db.Partial{Text: "half ", Reasoning: "hm", FirstTokenAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	dbtest.Check(t, d)
	step(dbtest.Fail(t, d, r, "an answer"), nil)
	ask(chat.KindMessage, "after the failure", 0) // 9, 10
	stoppedQuestion := accept(branches, "stopped before its turn")
	step(dbtest.Stop(t, d, stoppedQuestion), nil)
	if err := d.RecordArrivals(ctx, []db.Repeat{
		{RequestID: first.ID, Decision: chat.DecisionFirst, Status: 200},
		{RequestID: first.ID, At: time.Now(), Source: chat.SourceForm, Decision: chat.DecisionReplayed, Status: 200},
		{RequestID: first.ID, At: time.Now(), Source: chat.SourceWeb, Decision: chat.DecisionConflict, Status: 422},
	}); err != nil {
		t.Fatal(err)
	}

	patch := func(session string, p db.ConversationPatch) {
		t.Helper()
		_, err := d.PatchConversation(ctx, db.LocalUser, session, p)
		step(chat.Request{}, err)
	}
	title, yes := "Fruit", true
	patch(branches, db.ConversationPatch{Title: &title, Pinned: &yes, Seen: true})
	index(t, d) // what comes later is not in the index
	title = "Fruit and vegetables"
	patch(branches, db.ConversationPatch{Title: &title})

	r = claim(accept(busy, "long"))
	if err := d.AppendPartial(ctx, r, db.Partial{Text: "so far"}); err != nil {
		t.Fatal(err)
	}
	unplaced := accept(busy, "never mind")
	step(dbtest.Stop(t, d, unplaced), nil)
	accept(busy, "next")

	failed := step(dbtest.Fail(t, d, claim(accept(revived, "lost")), ""), nil)
	claim(accept(revived, "later"))
	step(dbtest.Restart(t, d, failed), nil)

	r = claim(accept(refusedS, "busy?"))
	step(d.Requeue(ctx, r, db.End{Outcome: chat.OutcomeDefinite, Code: "provider_busy", Actor: "worker:life"}, time.Now().Add(time.Minute), "engine_retry", 1, 0))

	r = claim(accept(rerun, "died"))
	r = step(d.Requeue(ctx, r, db.End{Outcome: chat.OutcomeUnknown, Code: "interrupted", Waste: true, Usage: chat.Usage{InputTokens: 5, Estimated: true}, Actor: "recovery:life"}, time.Time{}, "rerun", 0, 1))
	claim(r)

	r = claim(accept(stopped, "tell me all"))
	if err := d.AppendPartial(ctx, r, db.Partial{Text: "well"}); err != nil {
		t.Fatal(err)
	}
	if err := d.RequestStop(ctx, r); err != nil {
		t.Fatal(err)
	}
	dbtest.Check(t, d)
	a := dbtest.Answer("well")
	a.Finish, a.Outcome, a.Usage.Estimated = chat.FinishStopped, chat.OutcomeStopped, true
	step(d.Finish(ctx, r, a))

	r = step(dbtest.Fail(t, d, claim(accept(moved, "again")), "x"), nil)
	r = step(d.Restart(ctx, r, db.Restart{Reason: "explicit", Actor: "user:1", Model: "other", Price: chat.Price{Input: 3, Cached: 2, Output: 1}}))
	step(dbtest.Finish(t, d, claim(r), "at last"), nil)

	step(dbtest.Answered(t, d, deleted, "hello", "hi"), nil)
	if _, err := d.DeleteConversation(ctx, db.LocalUser, deleted); err != nil {
		t.Fatal(err)
	}

	// There is no method that makes users yet.
	if _, err := raw(t, path, "").ExecContext(ctx, `INSERT INTO users (id, name, created_at) VALUES (2, 'other', 1)`); err != nil {
		t.Fatal(err)
	}
	s := dbtest.Submission(other, chat.NewID(), "mine")
	s.Key.UserID = 2
	step(dbtest.Finish(t, d, claim(dbtest.Submit(t, d, s)), "yours"), nil)

	step(dbtest.Answered(t, d, archived, "old", "older"), nil)
	patch(archived, db.ConversationPatch{Archived: &yes})

	note, picture := dbtest.Upload(t, d, "note.txt", "a note"), dbtest.Upload(t, d, "picture.png", dbtest.PNG(4, 3))
	again := dbtest.Upload(t, d, "again.txt", "a note")
	dbtest.Upload(t, d, "not sent.txt", "never mind")
	step(dbtest.Finish(t, d, claim(dbtest.Submit(t, d, dbtest.Carrying(dbtest.Submission(carries, chat.NewID(), "look"), picture, note))), "seen"), nil)
	step(dbtest.Finish(t, d, claim(dbtest.Submit(t, d, dbtest.Carrying(dbtest.Submission(carries, chat.NewID(), ""), again))), "seen"), nil)
	step(dbtest.Finish(t, d, claim(dbtest.Submit(t, d, dbtest.Carrying(dbtest.Submission(purgedS, chat.NewID(), "forget these"), note, dbtest.Upload(t, d, "gone.txt", "gone")))), "I will"), nil)

	step(dbtest.Answered(t, d, purgedS, "forget me", "I will"), nil)
	patch(purgedS, db.ConversationPatch{Title: &title})
	index(t, d)
	step(dbtest.Fail(t, d, claim(accept(purgedS, "and this")), "no"), nil)
	if _, err := d.DeleteConversation(ctx, db.LocalUser, purgedS); err != nil {
		t.Fatal(err)
	}
	if _, err := raw(t, path, "").ExecContext(ctx, `UPDATE conversations SET deleted_at = 1 WHERE session_id = ?`, purgedS); err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		var err error
		if more, err = d.PurgeConversations(ctx, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		dbtest.Check(t, d)
	}
	fillEffects(t, d)
	step(dbtest.Answered(t, d, moved, "not in the index yet", "so it is read"), nil)
	fillAccounts(t, d)
}

// index takes everything into the search index.
func index(t testing.TB, d *db.DB) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = d.IndexSlice(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	dbtest.Check(t, d)
}

// healthyBytes is such a file, made by the first test that wants one and kept: the
// raw connections that made it close with that test.
var (
	healthyOnce  sync.Once
	healthyBytes []byte
)

// copyHealthy writes a copy of the healthy file and returns its path.
func copyHealthy(t testing.TB) string {
	t.Helper()
	healthyOnce.Do(func() {
		path := filepath.Join(t.TempDir(), "healthy.db")
		d, err := db.Open(db.Options{Path: path, Schema: dbtest.Schema(t)})
		if err != nil {
			t.Fatal(err)
		}
		fillHealthy(t, d, path)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if healthyBytes, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	})
	if healthyBytes == nil {
		t.Fatal("the healthy file could not be made: see the test that tried first")
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(path, healthyBytes, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
