package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// A write is one method that writes, called on a file that setup has made.
type write struct {
	name  string
	setup func(t *testing.T, d *db.DB) chat.Request
	call  func(d *db.DB, r chat.Request) (any, error)
	// again is what the same call returns when the first was stored and nobody was
	// told. lookup, where it is set, is what its caller then finds.
	again  error
	lookup func(d *db.DB, r chat.Request) error
}

var bg = context.Background()

const faultSession = "session-1"

func setupPending(t *testing.T, d *db.DB) chat.Request {
	dbtest.Answered(t, d, faultSession, "first", "one")
	return dbtest.Accept(t, d, faultSession, "second")
}

func setupGenerating(t *testing.T, d *db.DB) chat.Request {
	r, _ := dbtest.Claim(t, d, setupPending(t, d))
	if err := d.AppendPartial(bg, r, db.Partial{Text: "so "}); err != nil {
		t.Fatal(err)
	}
	return r
}

func setupFailed(t *testing.T, d *db.DB) chat.Request {
	return dbtest.Fail(t, d, setupGenerating(t, d), "far")
}

func setupDeleted(t *testing.T, d *db.DB) chat.Request {
	r := setupFailed(t, d)
	if _, err := d.DeleteConversation(bg, db.LocalUser, faultSession); err != nil {
		t.Fatal(err)
	}
	return r
}

func setupPurged(t *testing.T, d *db.DB) chat.Request {
	r := setupDeleted(t, d)
	for more := true; more; {
		var err error
		if more, err = d.PurgeConversations(bg, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func inState(want chat.State, attempt int64) func(*db.DB, chat.Request) error {
	return func(d *db.DB, r chat.Request) error {
		got, err := d.Load(bg, r.ID)
		if err == nil && (got.State != want || got.Attempt != attempt) {
			err = fmt.Errorf("found %s, attempt %d, want %s, %d", got.State, got.Attempt, want, attempt)
		}
		return err
	}
}

var questionID = chat.NewID()

// fileID is the id of a file of the local user.
func fileID(name, content string) string {
	f, err := chat.ReadFile(name, []byte(content))
	if err != nil {
		panic(err)
	}
	return chat.AttachmentID(db.LocalUser, name, f.SHA256)
}

// writes are all methods that write. TestEveryWriterIsInTheFaultTable keeps it so.
var writes = slices.Concat(requestWrites, effectWrites, handWrites, accountWrites)

var requestWrites = []write{
	{
		name:  "Accept",
		setup: setupGenerating,
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return d.Accept(bg, dbtest.Submission(faultSession, questionID, "third"))
		},
		again: db.ErrExists,
		lookup: func(d *db.DB, r chat.Request) error {
			r.Key.RequestID = questionID
			_, err := d.Find(bg, r.Key)
			return err
		},
	},
	{
		name:  "Accept of a new conversation",
		setup: func(*testing.T, *db.DB) chat.Request { return chat.Request{} },
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return d.Accept(bg, dbtest.Submission("session-new", questionID, "first"))
		},
		again: db.ErrExists,
		lookup: func(d *db.DB, _ chat.Request) error {
			_, err := d.Find(bg, chat.Key{UserID: db.LocalUser, SessionID: "session-new", RequestID: questionID})
			return err
		},
	},
	{
		name: "Accept with attachments",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			dbtest.Upload(t, d, "a.txt", "alpha")
			dbtest.Upload(t, d, "b.png", dbtest.PNG(3, 2))
			return setupGenerating(t, d)
		},
		call: func(d *db.DB, _ chat.Request) (any, error) {
			list, err := d.Attachments(bg, db.LocalUser, []string{fileID("b.png", dbtest.PNG(3, 2)), fileID("a.txt", "alpha")})
			if err != nil {
				return nil, err
			}
			return d.Accept(bg, dbtest.Carrying(dbtest.Submission(faultSession, questionID, "third"), list...))
		},
		again: db.ErrExists,
		lookup: func(d *db.DB, r chat.Request) error {
			th, err := d.Thread(bg, db.LocalUser, faultSession)
			if err == nil {
				if m := th.Messages[len(th.Messages)-1]; len(m.Attachments) != 2 || m.Attachments[0].Name != "b.png" {
					err = fmt.Errorf("it carries %+v", m.Attachments)
				}
			}
			return err
		},
	},
	{
		name:  "Upload",
		setup: setupPending,
		call: func(d *db.DB, _ chat.Request) (any, error) {
			f, err := chat.ReadFile("a.txt", []byte("alpha"))
			if err != nil {
				return nil, err
			}
			return d.Upload(bg, db.LocalUser, f)
		},
		lookup: func(d *db.DB, _ chat.Request) error {
			f, err := d.File(bg, db.LocalUser, fileID("a.txt", "alpha"))
			if err == nil && string(f.Content) != "alpha" {
				err = fmt.Errorf("found %+v", f)
			}
			return err
		},
	},
	{
		name: "PurgeUploads",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			sent := dbtest.Upload(t, d, "a.txt", "alpha")
			dbtest.Upload(t, d, "not sent.txt", "alpha")
			dbtest.Upload(t, d, "not sent.png", dbtest.PNG(3, 2))
			return dbtest.Submit(t, d, dbtest.Carrying(dbtest.Submission(faultSession, chat.NewID(), "first"), sent))
		},
		call: func(d *db.DB, _ chat.Request) (any, error) { return d.PurgeUploads(bg, time.Now().Add(time.Hour)) },
		lookup: func(d *db.DB, _ chat.Request) error {
			if _, err := d.File(bg, db.LocalUser, fileID("not sent.txt", "alpha")); !errors.Is(err, db.ErrNotFound) {
				return fmt.Errorf("what nobody sent: %v", err)
			}
			_, err := d.File(bg, db.LocalUser, fileID("a.txt", "alpha"))
			return err
		},
	},
	{
		name:  "Claim",
		setup: setupPending,
		call: func(d *db.DB, r chat.Request) (any, error) {
			r, _, err := d.Claim(bg, db.Claim{Request: r, Owner: dbtest.Owner, Lease: time.Minute, ContextLimit: 1000})
			return r, err
		},
		again:  db.ErrFenced,
		lookup: inState(chat.StateGenerating, 1),
	},
	{
		name: "Claim behind a question stopped before its turn",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			first := setupGenerating(t, d)
			dbtest.Stop(t, d, dbtest.Accept(t, d, faultSession, "never mind"))
			r := dbtest.Accept(t, d, faultSession, "next")
			dbtest.Finish(t, d, first, "second")
			return r
		},
		call: func(d *db.DB, r chat.Request) (any, error) {
			r, _, err := d.Claim(bg, db.Claim{Request: r, Owner: dbtest.Owner, Lease: time.Minute})
			return r, err
		},
		again:  db.ErrFenced,
		lookup: inState(chat.StateGenerating, 1),
	},
	{
		name:  "AppendPartial",
		setup: setupGenerating,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return nil, d.AppendPartial(bg, r, db.Partial{Text: "more", Reasoning: "hm", FirstTokenAt: time.Now()})
		},
		// Text that was stored is stored once more: who is not told must not append
		// the piece again before it has looked.
		again: nil,
		lookup: func(d *db.DB, r chat.Request) error {
			p, err := d.PartialText(bg, r.ID, r.Attempt)
			if err == nil && !strings.HasPrefix(p.Text, "so more") {
				err = fmt.Errorf("the text is %q", p.Text)
			}
			return err
		},
	},
	{
		name:   "Heartbeat",
		setup:  setupGenerating,
		call:   func(d *db.DB, r chat.Request) (any, error) { return nil, d.Heartbeat(bg, r, time.Hour) },
		lookup: inState(chat.StateGenerating, 1),
	},
	{
		name:   "NameRun",
		setup:  setupGenerating,
		call:   func(d *db.DB, r chat.Request) (any, error) { return nil, d.NameRun(bg, r, "run-1") },
		lookup: inState(chat.StateGenerating, 1),
	},
	{
		name:   "Adopt",
		setup:  setupGenerating,
		call:   func(d *db.DB, r chat.Request) (any, error) { return d.Adopt(bg, r, "next-life", time.Hour) },
		again:  db.ErrFenced,
		lookup: inState(chat.StateGenerating, 1),
	},
	{
		name:   "Finish",
		setup:  setupGenerating,
		call:   func(d *db.DB, r chat.Request) (any, error) { return d.Finish(bg, r, dbtest.Answer("two")) },
		again:  db.ErrFenced,
		lookup: inState(chat.StateCommitted, 1),
	},
	{
		name:   "Fail",
		setup:  setupGenerating,
		call:   func(d *db.DB, r chat.Request) (any, error) { return d.Fail(bg, r, dbtest.Lost("far"), dbtest.LineLost) },
		again:  db.ErrFenced,
		lookup: inState(chat.StateFailed, 1),
	},
	{
		name:  "Requeue",
		setup: setupGenerating,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return d.Requeue(bg, r, dbtest.Lost("far"), time.UnixMilli(1e12), "rerun", 0, 1)
		},
		again:  db.ErrFenced,
		lookup: inState(chat.StatePending, 1),
	},
	{
		name:   "FailWaiting",
		setup:  setupPending,
		call:   func(d *db.DB, r chat.Request) (any, error) { return d.FailWaiting(bg, r, "user:1", dbtest.Stopped) },
		again:  db.ErrFenced,
		lookup: inState(chat.StateFailed, 0),
	},
	{
		name:  "Restart",
		setup: setupFailed,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return d.Restart(bg, r, db.Restart{Reason: "explicit", Actor: "user:1", Model: "other", Price: chat.Price{Input: 1}})
		},
		again:  db.ErrFenced,
		lookup: inState(chat.StatePending, 1),
	},
	{
		name:  "RequestStop",
		setup: setupGenerating,
		call:  func(d *db.DB, r chat.Request) (any, error) { return nil, d.RequestStop(bg, r) },
		lookup: func(d *db.DB, r chat.Request) error {
			got, err := d.Load(bg, r.ID)
			if err == nil && (!got.StopRequested || got.StopAttempt != 1) {
				err = fmt.Errorf("the stop is not stored: %+v", got)
			}
			return err
		},
	},
	{
		name: "DeleteConversation",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			r := setupGenerating(t, d)
			dbtest.Accept(t, d, faultSession, "waits")
			return r
		},
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return d.DeleteConversation(bg, db.LocalUser, faultSession)
		},
		lookup: func(d *db.DB, r chat.Request) error {
			if _, err := d.Find(bg, r.Key); !errors.Is(err, db.ErrGone) {
				return fmt.Errorf("a request of it: %v", err)
			}
			return nil
		},
	},
	{
		name:  "RestoreConversation",
		setup: setupDeleted,
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return d.RestoreConversation(bg, db.LocalUser, faultSession)
		},
		lookup: func(d *db.DB, r chat.Request) error {
			_, err := d.Find(bg, r.Key)
			return err
		},
	},
	{
		name:  "PatchConversation",
		setup: setupFailed,
		call: func(d *db.DB, _ chat.Request) (any, error) {
			title, pinned, head := "another", true, int64(2)
			return d.PatchConversation(bg, db.LocalUser, faultSession, db.ConversationPatch{Title: &title, Pinned: &pinned, Head: &head, Seen: true})
		},
	},
	{
		name: "PatchConversation of a title in the index",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			r := setupFailed(t, d)
			title := "another"
			if _, err := d.PatchConversation(bg, db.LocalUser, faultSession, db.ConversationPatch{Title: &title}); err != nil {
				t.Fatal(err)
			}
			index(t, d)
			return r
		},
		call: func(d *db.DB, _ chat.Request) (any, error) {
			title, archived := "the next", true
			return d.PatchConversation(bg, db.LocalUser, faultSession, db.ConversationPatch{Title: &title, Archived: &archived})
		},
	},
	{
		name: "PatchConversation back to the first words",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			r := setupFailed(t, d)
			title := "another"
			if _, err := d.PatchConversation(bg, db.LocalUser, faultSession, db.ConversationPatch{Title: &title}); err != nil {
				t.Fatal(err)
			}
			index(t, d)
			return r
		},
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return d.PatchConversation(bg, db.LocalUser, faultSession, db.ConversationPatch{FirstWords: true})
		},
	},
	{
		name:  "IndexSlice",
		setup: setupFailed,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return d.IndexSlice(bg) },
	},
	{
		name: "PruneEvidence",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			r := dbtest.Finish(t, d, first(dbtest.Claim(t, d, dbtest.Restart(t, d, setupFailed(t, d)))), "two")
			if err := d.RecordArrivals(bg, []db.Repeat{{RequestID: r.ID, At: time.Now(), Source: chat.SourceAPI, Decision: chat.DecisionReplayed, Status: 200}}); err != nil {
				t.Fatal(err)
			}
			return r
		},
		call: func(d *db.DB, _ chat.Request) (any, error) { return d.PruneEvidence(bg, time.Now().Add(time.Hour)) },
	},
	{
		name: "PurgeConversations",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			r := setupFailed(t, d)
			with := dbtest.Carrying(dbtest.Submission(faultSession, chat.NewID(), "and these"), dbtest.Upload(t, d, "a.txt", "alpha"), dbtest.Upload(t, d, "b.png", dbtest.PNG(3, 2)))
			dbtest.Finish(t, d, first(dbtest.Claim(t, d, dbtest.Submit(t, d, with))), "seen")
			dbtest.Answered(t, d, "session-kept", "of another", "conversation")
			kept := dbtest.Carrying(dbtest.Submission("session-kept", chat.NewID(), "the same"), dbtest.Upload(t, d, "b.png", dbtest.PNG(3, 2)))
			dbtest.Finish(t, d, first(dbtest.Claim(t, d, dbtest.Submit(t, d, kept))), "seen")
			title := "another"
			if _, err := d.PatchConversation(bg, db.LocalUser, faultSession, db.ConversationPatch{Title: &title}); err != nil {
				t.Fatal(err)
			}
			index(t, d)
			if _, err := d.DeleteConversation(bg, db.LocalUser, faultSession); err != nil {
				t.Fatal(err)
			}
			return r
		},
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return d.PurgeConversations(bg, time.Now().Add(time.Hour))
		},
		lookup: func(d *db.DB, r chat.Request) error {
			if _, err := d.Find(bg, r.Key); !errors.Is(err, db.ErrGone) {
				return fmt.Errorf("a purged request: %v", err)
			}
			return nil
		},
	},
	{
		name:  "ForgetTombstones",
		setup: setupPurged,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return d.ForgetTombstones(bg, time.Now().Add(time.Hour)) },
		lookup: func(d *db.DB, r chat.Request) error {
			at, _ := chat.IDTime(r.Key.RequestID)
			if i, err := d.Instance(bg); err != nil || i.PurgeHorizon.Before(at) {
				return fmt.Errorf("the horizon is %v (%v)", i.PurgeHorizon, err)
			}
			return nil
		},
	},
	{
		name: "SettleRestores",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			if err := db.Write(bg, d, func(tx *db.Tx) error {
				_, err := tx.Exec(`UPDATE instance SET epoch = 2`)
				if err == nil {
					_, err = tx.Exec(`INSERT INTO restores (epoch, backup_at, restored_at, tx) SELECT 2, 1, 2, tx FROM instance`)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return chat.Request{}
		},
		call: func(d *db.DB, _ chat.Request) (any, error) { return nil, d.SettleRestores(bg) },
		lookup: func(d *db.DB, _ chat.Request) error {
			if i, err := d.Instance(bg); err != nil || i.Restored {
				return fmt.Errorf("it is not settled (%v)", err)
			}
			return nil
		},
	},
	{
		name:  "RecordArrivals",
		setup: setupPending,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return nil, d.RecordArrivals(bg, []db.Repeat{
				{RequestID: r.ID, Decision: chat.DecisionFirst, Status: 202},
				{RequestID: r.ID, At: time.UnixMilli(1), Source: chat.SourceWeb, Decision: chat.DecisionJoined, Status: 202},
			})
		},
		// A repeat that is stored twice is two rows of evidence: no promise rests on it.
	},
	{
		name:  "Import",
		setup: setupFailed,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return d.Import(bg, db.LocalUser, archiveOfAll()) },
		lookup: func(d *db.DB, _ chat.Request) error {
			_, err := d.Archive(bg, db.LocalUser, archiveOfAll().Conversation.SessionID)
			return err
		},
	},
	{
		name:  "Import where the id is taken",
		setup: setupFailed,
		call: func(d *db.DB, _ chat.Request) (any, error) {
			a := archiveOfAll()
			a.Conversation.SessionID = faultSession
			return d.Import(bg, db.LocalUser, a)
		},
	},
}

func first(r chat.Request, _ []int64) chat.Request { return r }

// Methods that only write the transaction's number.
var noWriters = []string{"Ping", "Flush", "Close", "Models", "Settings"}

func TestEveryWriterIsInTheFaultTable(t *testing.T) {
	typ := reflect.TypeFor[*db.DB]()
	for i := range typ.NumMethod() {
		m := typ.Method(i).Name
		reads := slices.Contains([]string{"CostsAfter", "Troubled", "Check", "Counts", "Audit", "Evidence", "Newer", "Requests", "Totals", "Archive", "Backup", "BackupSealed", "Examine", "QuickCheck", "Lost", "MaybeSent", "RetryLost", "Guarded", "Epoch", "Attachments", "AttemptReason", "Content", "Conversations", "CutShort", "Delivering", "DestinationDisabled", "Due", "File", "Find", "FrozenContext", "Instance", "LedgerBefore", "Load", "LookUp", "News", "Outbox", "Outgoing", "PartialText", "Path", "Proposals", "PurgeHorizon", "Receipt", "Record", "RecordOf", "RunName", "Sessions", "Spending", "Spent", "Thread", "ThreadAt", "Turns", "UndoUntil",
			"Unfinished", "Verify", "HasAccounts", "Accounts", "Account", "AccountByID", "Login", "Logins", "Key", "Keys", "UnfinishedOfDisabled"}, m)
		covered := slices.ContainsFunc(writes, func(w write) bool { name, _, _ := strings.Cut(w.name, " "); return name == m })
		if !reads && !covered && !slices.Contains(noWriters, m) {
			t.Errorf("%s writes, or reads and is not listed here: give it a row of the fault table", m)
		}
	}
}

// unnamed are names and times that are made when something is written.
var unnamed = regexp.MustCompile(`(msg_)[0-9A-Z]{26}|(timestamp\\":\\")[^"]*`)

// contents is every row of the file, without its times, transaction numbers and new
// names.
func contents(t *testing.T, d *db.DB) []string {
	t.Helper()
	var all []string
	for _, table := range []string{"instance", "users", "conversations", "requests", "transitions", "arrivals", "attempts", "partials", "snapshots", "messages", "ledger", "processed", "tombstones", "settings", "models",
		"declarations", "decisions", "verdicts", "outbox", "deliveries", "callbacks", "disabled_destinations", "audit", "contents", "attachments", "carried", "restores", "logins", "api_keys", "login_tries"} {
		columns, err := db.Text(bg, d, `SELECT group_concat('"' || name || '"') FROM pragma_table_info(?) WHERE name NOT LIKE '%\_at' ESCAPE '\'
			AND name NOT IN ('at', 'lease_until', 'purge_horizon') AND name <> 'tx' AND name NOT LIKE '%\_tx' ESCAPE '\'`, table)
		if err != nil {
			t.Fatal(err)
		}
		if table == "conversations" {
			columns += ", deleted_at IS NULL, archived_at IS NULL, named_tx > 0, ended_tx > 0, ended_tx > seen_tx, named_tx IN (SELECT rowid FROM search)"
		}
		if table == "outbox" { // a digest of what has new names
			columns = strings.Replace(columns, `,"sha256"`, "", 1)
		}
		if table == "restores" {
			columns += ", settled_at IS NULL"
		}
		if table == "messages" {
			columns += ", tx IN (SELECT rowid FROM search)"
		}
		rows, err := db.Dump(bg, d, `(SELECT `+columns+` FROM `+table+`)`)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			all = append(all, table+" "+unnamed.ReplaceAllString(r, "$1$2"))
		}
	}
	slices.Sort(all)
	return all
}

func diff(a, b []string) string {
	var out []string
	for _, s := range a {
		if !slices.Contains(b, s) {
			out = append(out, "- "+s)
		}
	}
	for _, s := range b {
		if !slices.Contains(a, s) {
			out = append(out, "+ "+s)
		}
	}
	if len(out) == 0 && len(a) != len(b) {
		out = append(out, "a row is there twice")
	}
	return strings.Join(out, "\n")
}

// The fault table: each statement of each writing method fails and is not done,
// and its commit fails both ways. Afterwards the invariants hold, nothing or all
// of it is stored, and whoever tries again gets what was asked for, once.
func TestAFailedWriteIsStoredWholeOrNotAtAllAndCanBeTriedAgain(t *testing.T) {
	for _, w := range writes {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			base := filepath.Join(dir, "base.db")
			d, err := db.Open(db.Options{Path: base, Schema: dbtest.Schema(t), Readers: 1})
			if err != nil {
				t.Fatal(err)
			}
			r := w.setup(t, d)
			dbtest.Check(t, d)
			before := contents(t, d)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			file, err := os.ReadFile(base)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			open := func() (*db.DB, *dbtest.Faults) {
				n++
				path := filepath.Join(dir, fmt.Sprintf("%d.db", n))
				if err := os.WriteFile(path, file, 0o600); err != nil {
					t.Fatal(err)
				}
				faults := &dbtest.Faults{}
				return dbtest.OpenAt(t, path, faults), faults
			}

			d, faults := open()
			faults.Record()
			if _, err := w.call(d, r); err != nil {
				t.Fatalf("without a fault: %v", err)
			}
			statements := faults.Recorded()
			dbtest.Check(t, d)
			after := contents(t, d)
			if slices.Equal(before, after) && !slices.Contains([]string{"Heartbeat", "TouchLogin", "TouchKey"}, w.name) {
				t.Error("it writes nothing")
			}

			// On one file: a call that fails leaves it as it was, so the next is the
			// second try of the one before, and gets one statement further.
			d, faults = open()
			for i, statement := range statements {
				faults.Arm("", i, dbtest.NotStored, dbtest.ErrInjected)
				got, err := w.call(d, r)
				if !errors.Is(err, dbtest.ErrInjected) {
					t.Errorf("statement %d (%.40q) fails: got %v", i, statement, err)
				}
				faults.Clear()
				if given, ok := got.(chat.Request); ok && given.ID != 0 && !reflect.DeepEqual(given, r) {
					t.Errorf("statement %d (%.40q) fails: the request came back as %+v, given was %+v", i, statement, given, r)
				}
				// As it was, so its invariants hold as they did.
				if now := contents(t, d); !slices.Equal(before, now) {
					t.Fatalf("statement %d (%.40q) fails, and this is stored:\n%s", i, statement, diff(before, now))
				}
			}
			if _, err := w.call(d, r); err != nil {
				t.Errorf("after everything has failed once: %v", err)
			}
			dbtest.Check(t, d)
			if now := contents(t, d); !slices.Equal(after, now) {
				t.Errorf("after everything has failed once this differs:\n%s", diff(after, now))
			}
			if w.lookup != nil {
				if err := w.lookup(d, r); err != nil {
					t.Errorf("after everything has failed once: %v", err)
				}
			}

			d, faults = open()
			faults.Arm("COMMIT", 0, dbtest.Stored, dbtest.ErrInjected)
			if _, err := w.call(d, r); !errors.Is(err, db.ErrOutcomeOpen) {
				t.Errorf("the commit is stored and fails: got %v, want the outcome open", err)
			}
			dbtest.Check(t, d)
			if now := contents(t, d); !slices.Equal(after, now) {
				t.Errorf("the commit is stored and fails: this differs:\n%s", diff(after, now))
			}
			if w.lookup != nil {
				if err := w.lookup(d, r); err != nil {
					t.Errorf("the commit is stored and fails: %v", err)
				}
			}
			if _, err := w.call(d, r); !errors.Is(err, w.again) {
				t.Errorf("the commit is stored and fails: the second try got %v, want %v", err, w.again)
			}
			dbtest.Check(t, d)
			if w.again != nil {
				if now := contents(t, d); !slices.Equal(after, now) {
					t.Errorf("the commit is stored and fails: after the second try this differs:\n%s", diff(after, now))
				}
			}
			if w.lookup != nil {
				if err := w.lookup(d, r); err != nil {
					t.Errorf("the commit is stored and fails: after the second try %v", err)
				}
			}
		})
	}
}

// Every write of a worker, and every write to a request that waits or has failed,
// is refused when the request is not as its caller believes.
func TestAStaleWriteIsFencedAndChangesNothing(t *testing.T) {
	claims := func(d *db.DB, r chat.Request) error {
		_, _, err := d.Claim(bg, db.Claim{Request: r, Owner: "late", Lease: time.Minute})
		return err
	}
	ofWorker := map[string]func(*db.DB, chat.Request) error{
		"AppendPartial": func(d *db.DB, r chat.Request) error { return d.AppendPartial(bg, r, db.Partial{Text: "late"}) },
		"Heartbeat":     func(d *db.DB, r chat.Request) error { return d.Heartbeat(bg, r, time.Hour) },
		"NameRun":       func(d *db.DB, r chat.Request) error { return d.NameRun(bg, r, "late") },
		"Adopt":         func(d *db.DB, r chat.Request) error { _, err := d.Adopt(bg, r, "late", time.Hour); return err },
		"Finish":        func(d *db.DB, r chat.Request) error { _, err := d.Finish(bg, r, dbtest.Answer("late")); return err },
		"Fail": func(d *db.DB, r chat.Request) error {
			_, err := d.Fail(bg, r, dbtest.Lost("late"), dbtest.LineLost)
			return err
		},
		"Fail without text": func(d *db.DB, r chat.Request) error {
			_, err := d.Fail(bg, r, db.End{Outcome: chat.OutcomeFenced, Actor: "reaper:x", Waste: true}, dbtest.LineLost)
			return err
		},
		"Requeue": func(d *db.DB, r chat.Request) error {
			_, err := d.Requeue(bg, r, db.End{Outcome: chat.OutcomeDefinite, Actor: "worker:x"}, time.Time{}, "engine_retry", 1, 0)
			return err
		},
		"RequestStop": func(d *db.DB, r chat.Request) error { return d.RequestStop(bg, r) },
	}
	ofWaiting := map[string]func(*db.DB, chat.Request) error{
		"Claim": claims,
		"FailWaiting": func(d *db.DB, r chat.Request) error {
			_, err := d.FailWaiting(bg, r, "user:1", dbtest.Stopped)
			return err
		},
		"RequestStop": func(d *db.DB, r chat.Request) error { return d.RequestStop(bg, r) },
	}
	ofFailed := map[string]func(*db.DB, chat.Request) error{
		"Restart": func(d *db.DB, r chat.Request) error {
			_, err := d.Restart(bg, r, db.Restart{Reason: "explicit", Actor: "user:1", Model: "late"})
			return err
		},
	}
	requeue := func(t *testing.T, d *db.DB, r chat.Request) chat.Request {
		r, err := d.Requeue(bg, r, db.End{Outcome: chat.OutcomeDefinite, Code: "provider_busy", Actor: "worker:life"}, time.Time{}, "engine_retry", 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	secondAttempt := func(t *testing.T, d *db.DB, r chat.Request) chat.Request {
		return first(dbtest.Claim(t, d, requeue(t, d, r)))
	}
	for _, c := range []struct {
		believes string
		setup    func(*testing.T, *db.DB) chat.Request // what the late caller saw
		isNow    string
		since    func(*testing.T, *db.DB, chat.Request) // what happened since
		calls    map[string]func(*db.DB, chat.Request) error
	}{
		{"generating", setupGenerating, "waiting to be tried again", func(t *testing.T, d *db.DB, r chat.Request) { requeue(t, d, r) }, ofWorker},
		{"generating", setupGenerating, "generating its second attempt", func(t *testing.T, d *db.DB, r chat.Request) { secondAttempt(t, d, r) }, ofWorker},
		{"generating", setupGenerating, "failed", func(t *testing.T, d *db.DB, r chat.Request) { dbtest.Fail(t, d, r, "") }, ofWorker},
		{"generating", setupGenerating, "committed", func(t *testing.T, d *db.DB, r chat.Request) { dbtest.Finish(t, d, r, "two") }, ofWorker},
		{"generating", setupGenerating, "committed by its second attempt", func(t *testing.T, d *db.DB, r chat.Request) { dbtest.Finish(t, d, secondAttempt(t, d, r), "two") }, ofWorker},
		{"generating", setupGenerating, "another owner's, the same attempt", func(t *testing.T, d *db.DB, r chat.Request) {
			if err := db.Write(bg, d, func(tx *db.Tx) error {
				_, err := tx.Exec(`UPDATE requests SET owner = 'another' WHERE id = ?`, r.ID)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}, ofWorker},
		{"generating", setupGenerating, "restarted and waiting", func(t *testing.T, d *db.DB, r chat.Request) { dbtest.Restart(t, d, dbtest.Fail(t, d, r, "")) }, ofWorker},
		{"pending", setupPending, "generating", func(t *testing.T, d *db.DB, r chat.Request) { dbtest.Claim(t, d, r) }, ofWaiting},
		{"pending", setupPending, "waiting after an attempt", func(t *testing.T, d *db.DB, r chat.Request) { requeue(t, d, first(dbtest.Claim(t, d, r))) }, ofWaiting},
		{"pending", setupPending, "failed", func(t *testing.T, d *db.DB, r chat.Request) { dbtest.Stop(t, d, r) }, ofWaiting},
		{"pending", setupPending, "committed", func(t *testing.T, d *db.DB, r chat.Request) { dbtest.Finish(t, d, first(dbtest.Claim(t, d, r)), "two") }, ofWaiting},
		{"failed", setupFailed, "restarted by another tab", func(t *testing.T, d *db.DB, r chat.Request) { dbtest.Restart(t, d, r) }, ofFailed},
		{"failed", setupFailed, "generating again", func(t *testing.T, d *db.DB, r chat.Request) { dbtest.Claim(t, d, dbtest.Restart(t, d, r)) }, ofFailed},
		{"failed", setupFailed, "committed", func(t *testing.T, d *db.DB, r chat.Request) {
			dbtest.Finish(t, d, first(dbtest.Claim(t, d, dbtest.Restart(t, d, r))), "two")
		}, ofFailed},
		{"failed", setupFailed, "failed once more", func(t *testing.T, d *db.DB, r chat.Request) {
			dbtest.Fail(t, d, first(dbtest.Claim(t, d, dbtest.Restart(t, d, r))), "")
		}, ofFailed},
	} {
		d := dbtest.Open(t)
		stale := c.setup(t, d)
		c.since(t, d, stale)
		dbtest.Check(t, d)
		before := contents(t, d)
		for name, call := range c.calls {
			if err := call(d, stale); !errors.Is(err, db.ErrFenced) {
				t.Errorf("%s of one believed %s that is %s: %v, want it fenced", name, c.believes, c.isNow, err)
			}
			if now := contents(t, d); !slices.Equal(before, now) {
				t.Errorf("%s of one believed %s that is %s changed:\n%s", name, c.believes, c.isNow, diff(before, now))
			}
		}
	}
}
