package db_test

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

var someTime = time.Date(2024, 5, 6, 7, 8, 9, 10e6, time.UTC)

// archiveOfAll is a conversation with a turn of every kind, and every end.
func archiveOfAll() db.Archive {
	id := func(n string) string { return "01HX0000000000000000000" + n }
	used := chat.Usage{InputTokens: 9, CachedTokens: 2, OutputTokens: 4, Estimated: true}
	note, err := chat.ReadFile("note.txt", []byte("a note"))
	if err != nil {
		panic(err)
	}
	carried := note.Attachment
	carried.ID = fileID("note.txt", "a note")
	return db.Archive{
		Files: map[string]chat.File{note.SHA256: note},
		Conversation: chat.Conversation{SessionID: "01HX0000000000000000000001", Title: "All", Named: true, Model: "m", SystemPrompt: "be <b>brief</b>",
			Params: `{"temperature":0.5}`, Pinned: true, HeadSeq: 11, CreatedAt: someTime, UpdatedAt: someTime.Add(time.Hour)},
		Turns: []db.ArchivedTurn{
			{RequestID: id("101"), Kind: chat.KindMessage, Seq: 1, Model: "demo", Question: "one?", AskedAt: someTime, Attachments: []chat.Attachment{carried},
				Content: "one\x00!", Reasoning: "hm", Finish: chat.FinishStop, Usage: used, Thought: 3 * time.Second, AnsweredAt: someTime.Add(time.Second)},
			{RequestID: id("102"), Kind: chat.KindRegenerate, Seq: 3, ParentSeq: 1, Model: "other", Content: "uno", Finish: chat.FinishStopped, AnsweredAt: someTime},
			{RequestID: "order-4711", Kind: chat.KindEdit, Seq: 4, Model: "demo", Question: "two?", AskedAt: someTime, Content: "tw", Finish: chat.FinishLength, AnsweredAt: someTime},
			{RequestID: id("104"), Kind: chat.KindContinue, Seq: 6, ParentSeq: 5, Model: "demo", Content: "o", Finish: chat.FinishStop, AnsweredAt: someTime},
			{RequestID: id("105"), Kind: chat.KindRegenerate, Seq: 7, ParentSeq: 4, Model: "gone", Failure: chat.Failure{Code: "model_gone", Outcome: chat.OutcomeNone, Retry: chat.RetryExplicit}},
			{RequestID: id("106"), Kind: chat.KindMessage, Seq: 8, ParentSeq: 6, Model: "demo", Question: "lost?", AskedAt: someTime, Content: "half", Reasoning: "so",
				Failure: chat.Failure{Code: "line_lost", Outcome: chat.OutcomeUnknown, Retry: chat.RetryAuto, Detail: "far"}},
			{RequestID: id("107"), Kind: chat.KindMessage, Seq: 10, ParentSeq: 8, Model: "demo", Question: "on?", AskedAt: someTime, Content: "on", Finish: chat.FinishStop, AnsweredAt: someTime},
			{RequestID: id("108"), Kind: chat.KindMessage, Seq: 12, ParentSeq: 11, Model: "demo", Question: "never mind", AskedAt: someTime,
				Failure: chat.Failure{Code: "stopped", Outcome: chat.OutcomeNone, Retry: chat.RetryExplicit}},
		},
	}
}

func importIt(t *testing.T, d *db.DB, a db.Archive) db.Imported {
	t.Helper()
	i, err := d.Import(bg, db.LocalUser, a)
	if err != nil {
		t.Fatalf("import %s: %v", a.Conversation.SessionID, err)
	}
	dbtest.Check(t, d)
	return i
}

func archiveOf(t *testing.T, d *db.DB, session string) db.Archive {
	t.Helper()
	a, err := d.Archive(bg, db.LocalUser, session)
	if err != nil {
		t.Fatalf("archive of %s: %v", session, err)
	}
	for _, turn := range a.Turns {
		for _, f := range turn.Attachments {
			content, err := d.Content(bg, f.SHA256)
			if err != nil {
				t.Fatal(err)
			}
			if a.Files == nil {
				a.Files = map[string]chat.File{}
			}
			a.Files[f.SHA256] = chat.File{Attachment: f, Content: content}
		}
	}
	return a
}

// portable is an archive without what belongs to one file.
func portable(a db.Archive) db.Archive {
	c := &a.Conversation
	c.ID, c.UserID, c.News, c.Running = 0, 0, false, false
	if !c.ArchivedAt.IsZero() {
		c.ArchivedAt = someTime
	}
	turns := a.Turns
	a.Turns, a.Files = nil, nil
	for _, t := range turns {
		if !t.Answered() {
			t.Failure.Retry = chat.RetryExplicit
		}
		a.Turns = append(a.Turns, t)
	}
	return a
}

func TestAnImportedConversationIsTheExportedOneAndASecondImportAddsNothing(t *testing.T) {
	from := dbtest.OpenAt(t, copyHealthy(t), nil)
	var all []db.Archive
	sessions, _, err := from.Sessions(bg, db.LocalUser, 0, 100)
	if err != nil || len(sessions) < 8 {
		t.Fatalf("%d conversations (%v): no test", len(sessions), err)
	}
	for _, s := range sessions {
		all = append(all, archiveOf(t, from, s))
	}
	all = append(all, archiveOfAll())
	to := dbtest.Open(t)
	for _, a := range all {
		if i := importIt(t, to, a); !i.New || i.SessionID != a.Conversation.SessionID {
			t.Errorf("%s: %+v", a.Conversation.SessionID, i)
		}
	}
	index(t, to)
	before := contents(t, to)
	for _, a := range all {
		if i := importIt(t, to, a); i.New || i.SessionID != a.Conversation.SessionID {
			t.Errorf("%s again: %+v", a.Conversation.SessionID, i)
		}
		if got, want := portable(archiveOf(t, to, a.Conversation.SessionID)), portable(a); !reflect.DeepEqual(got, want) {
			t.Errorf("%s differs:\n%+v, want\n%+v", a.Conversation.SessionID, got, want)
		}
	}
	if now := contents(t, to); !reflect.DeepEqual(before, now) {
		t.Errorf("the second import changes:\n%s", diff(before, now))
	}
	if n, err := db.Int(bg, to, `SELECT sum(micros) FROM ledger`); err != nil || n != 0 {
		t.Errorf("it cost %d (%v)", n, err)
	}
	if n, err := to.News(bg, db.LocalUser); err != nil || n != 0 {
		t.Errorf("%d are news (%v)", n, err)
	}
	list, _, err := to.Conversations(bg, db.LocalUser, db.List{Query: "half", Limit: 10})
	if err != nil || len(list) != 0 { // partial text is not looked for, here as there
		t.Errorf("found %+v (%v)", list, err)
	}
	for _, q := range []string{"never mind", "uno", "All"} {
		if list, _, err := to.Conversations(bg, db.LocalUser, db.List{Query: q, Limit: 10}); err != nil || len(list) == 0 {
			t.Errorf("%q is not found (%v)", q, err)
		}
	}
}

func TestAnImportedConversationGoesOn(t *testing.T) {
	d := dbtest.Open(t)
	a := archiveOfAll()
	s := importIt(t, d, a).SessionID
	// The next question is sent with all that came before it on its branch.
	r, turns := dbtest.Claim(t, d, dbtest.Accept(t, d, s, "and now?"))
	if want := []int64{4, 5, 6, 8, 10, 11, 14}; !reflect.DeepEqual(turns, want) {
		t.Errorf("it is sent with %v, want %v", turns, want)
	}
	dbtest.Check(t, d)
	dbtest.Finish(t, d, r, "now")
	dbtest.Check(t, d)
	if i := importIt(t, d, a); i.New || i.SessionID != s {
		t.Errorf("what has gone on since is not the same any more: %+v", i)
	}
	// A failed one is asked again, at the price of today; what is sent is found anew.
	for _, c := range []struct {
		id    string
		turns []int64
		micro int64
	}{{a.Turns[5].RequestID, []int64{4, 5, 6, 8}, 1}, {a.Turns[7].RequestID, []int64{4, 5, 6, 8, 10, 11, 12}, 1}} {
		failed, err := d.Find(bg, chat.Key{UserID: db.LocalUser, SessionID: s, RequestID: c.id})
		if err != nil || failed.State != chat.StateFailed || failed.Failure.Retry != chat.RetryExplicit {
			t.Fatalf("%+v, %v", failed, err)
		}
		again, err := d.Restart(bg, failed, db.Restart{Reason: db.ReasonExplicit, Actor: "user:1", Price: chat.Price{Input: 1}})
		if err != nil || again.Price.Input != 1 || again.Model != failed.Model {
			t.Fatalf("%+v, %v", again, err)
		}
		again, turns = dbtest.Claim(t, d, again)
		if !reflect.DeepEqual(turns, c.turns) {
			t.Errorf("%s is sent with %v, want %v", c.id, turns, c.turns)
		}
		dbtest.Check(t, d)
		dbtest.Finish(t, d, again, "found")
		dbtest.Check(t, d)
		if n, err := db.Int(bg, d, `SELECT micros FROM ledger WHERE kind = 'charge' AND request_id = ?`, again.ID); err != nil || n != c.micro {
			t.Errorf("it cost %d (%v), want %d", n, err, c.micro)
		}
	}
	if i := importIt(t, d, a); i.New {
		t.Errorf("what was answered since is not the same any more: %+v", i)
	}
}

func TestAnImportedRequestIdNeverRuns(t *testing.T) {
	d := dbtest.Open(t)
	a := archiveOfAll()
	s := importIt(t, d, a).SessionID
	for _, turn := range a.Turns {
		sub := dbtest.Submission(s, turn.RequestID, "one?")
		if _, err := d.Accept(bg, sub); !errors.Is(err, db.ErrExists) {
			t.Errorf("%s is accepted: %v", turn.RequestID, err)
		}
	}
	dbtest.Check(t, d)
}

func TestATakenIdIsReplacedByOneThatTheNextImportFinds(t *testing.T) {
	d := dbtest.Open(t)
	a := archiveOfAll()
	own := a.Conversation.SessionID
	dbtest.Answered(t, d, own, "something else", "yes")
	first := importIt(t, d, a)
	if !first.New || first.SessionID == own || !strings.HasPrefix(first.SessionID, "import-") {
		t.Fatalf("%+v", first)
	}
	if id, err := chat.ParseID(first.SessionID); err != nil || id != first.SessionID {
		t.Errorf("%q is no id: %v", first.SessionID, err)
	}
	if again := importIt(t, d, a); again.New || again.SessionID != first.SessionID {
		t.Errorf("%+v, want %s", again, first.SessionID)
	}
	// Another conversation under the same id has another place.
	seen := map[string]bool{first.SessionID: true}
	for what, change := range map[string]func(t *db.ArchivedTurn){
		"question":  func(t *db.ArchivedTurn) { t.Question = "uno?" },
		"answer":    func(t *db.ArchivedTurn) { t.Content = "two!" },
		"reasoning": func(t *db.ArchivedTurn) { t.Reasoning = "ha" },
		"request":   func(t *db.ArchivedTurn) { t.RequestID = "another-one" },
	} {
		b := archiveOfAll()
		b.Conversation.SessionID = first.SessionID
		change(&b.Turns[0])
		if other := importIt(t, d, b); !other.New || seen[other.SessionID] {
			t.Errorf("another %s: %+v", what, other)
		} else {
			seen[other.SessionID] = true
		}
	}
}

func TestWhatWasDeletedOrPurgedHereComesUnderANewId(t *testing.T) {
	d := dbtest.Open(t)
	a := archiveOfAll()
	seen := map[string]bool{}
	purge := func() {
		t.Helper()
		for more := true; more; {
			var err error
			if more, err = d.PurgeConversations(bg, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		dbtest.Check(t, d)
	}
	for range 3 { // as it is, then derived once, then once more
		i := importIt(t, d, a)
		if !i.New || seen[i.SessionID] {
			t.Fatalf("%+v after %v", i, seen)
		}
		seen[i.SessionID] = true
		if again := importIt(t, d, a); again.New || again.SessionID != i.SessionID {
			t.Errorf("%+v, want %s", again, i.SessionID)
		}
		if _, err := d.DeleteConversation(bg, db.LocalUser, i.SessionID); err != nil {
			t.Fatal(err)
		}
		purge()
	}
	// Also when the tombstone of its own id is forgotten.
	for more := true; more; {
		var err error
		if more, err = d.ForgetTombstones(bg, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if i := importIt(t, d, a); !i.New || seen[i.SessionID] {
		t.Errorf("%+v after %v", i, seen)
	}
	// Within the time of undo, too.
	b := archiveOfAll()
	b.Conversation.SessionID = "session-undo"
	importIt(t, d, b)
	if _, err := d.DeleteConversation(bg, db.LocalUser, "session-undo"); err != nil {
		t.Fatal(err)
	}
	if i := importIt(t, d, b); !i.New || i.SessionID == "session-undo" {
		t.Errorf("%+v", i)
	}
}

func TestImportsOfOneFileAtOnceAddItOnce(t *testing.T) {
	d := dbtest.Open(t)
	var wg sync.WaitGroup
	added := make(chan db.Imported, 8)
	for range cap(added) {
		wg.Go(func() {
			i, err := d.Import(bg, db.LocalUser, archiveOfAll())
			if err != nil {
				t.Error(err)
			}
			added <- i
		})
	}
	wg.Wait()
	close(added)
	n := 0
	for i := range added {
		if i.New {
			n++
		}
		if i.SessionID != archiveOfAll().Conversation.SessionID {
			t.Errorf("%+v", i)
		}
	}
	if n != 1 {
		t.Errorf("it was added %d times", n)
	}
	dbtest.Check(t, d)
}
