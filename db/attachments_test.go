package db_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

func TestTheSameFileIsStoredOnce(t *testing.T) {
	d := dbtest.Open(t)
	a, again := dbtest.Upload(t, d, "a.txt", "alpha"), dbtest.Upload(t, d, "a.txt", "alpha")
	renamed := dbtest.Upload(t, d, "b.txt", "alpha")
	if a != again {
		t.Errorf("the same file is %+v and then %+v", a, again)
	}
	if renamed.ID == a.ID || renamed.SHA256 != a.SHA256 {
		t.Errorf("under another name it is %+v, first it was %+v", renamed, a)
	}
	if c, u := count(t, d, `SELECT count(*) FROM contents`), count(t, d, `SELECT count(*) FROM attachments`); c != 1 || u != 2 {
		t.Errorf("%d contents and %d uploads, want 1 and 2", c, u)
	}
	dbtest.Check(t, d)
}

// Another's upload looks exactly like one that is not there, wherever it is named.
func TestAnothersUploadIsUnknown(t *testing.T) {
	d := dbtest.Open(t)
	if err := db.Write(bg, d, func(tx *db.Tx) error {
		_, err := tx.Exec(`INSERT INTO users (id, name, created_at) VALUES (2, 'other', 1)`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	f, err := chat.ReadFile("a.txt", []byte("alpha"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := d.Upload(bg, 2, f)
	if err != nil {
		t.Fatal(err)
	}
	nobodys := chat.AttachmentID(3, "a.txt", f.SHA256)
	list, err := d.Attachments(bg, db.LocalUser, []string{theirs.ID, nobodys})
	if err != nil || list[0] != list[1] || list[0].ID != "" {
		t.Errorf("another's and nobody's are %+v (%v)", list, err)
	}
	for _, id := range []string{theirs.ID, nobodys} {
		if f, err := d.File(bg, db.LocalUser, id); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("file %s: %+v, %v", id, f, err)
		}
		a := theirs
		a.ID = id
		if _, err := d.Accept(bg, dbtest.Carrying(dbtest.Submission("session-1", chat.NewID(), "look"), a)); !errors.Is(err, db.ErrAttachment) {
			t.Errorf("a question that carries %s: %v", id, err)
		}
	}
	if n := count(t, d, `SELECT count(*) FROM requests`) + count(t, d, `SELECT count(*) FROM carried`); n != 0 {
		t.Errorf("%d rows of refused questions are stored", n)
	}
	// Their bytes are mine once I have uploaded them, and only then.
	mine := dbtest.Upload(t, d, "a.txt", "alpha")
	dbtest.Submit(t, d, dbtest.Carrying(dbtest.Submission("session-1", chat.NewID(), "look"), mine))
	if count(t, d, `SELECT count(*) FROM contents`) != 1 {
		t.Error("the same bytes of two users are stored twice")
	}
	dbtest.Check(t, d)
}

func TestAModelWithoutImagesIsToldOfNone(t *testing.T) {
	d := dbtest.Open(t)
	text, image := dbtest.Upload(t, d, "a.txt", "alpha"), dbtest.Upload(t, d, "a.png", dbtest.PNG(1, 1))
	for _, c := range []struct {
		carries []chat.Attachment
		want    error
	}{{[]chat.Attachment{text}, nil}, {[]chat.Attachment{text, image}, db.ErrImages{Model: "demo"}}} {
		s := dbtest.Carrying(dbtest.Submission("session-1", chat.NewID(), "look"), c.carries...)
		s.Images = func(string) bool { return false }
		if _, err := d.Accept(bg, s); err != c.want {
			t.Errorf("%d attachments: %v, want %v", len(c.carries), err, c.want)
		}
	}
	dbtest.Check(t, d)
}

// What a question carries comes with it in a thread, in a prompt and in an archive,
// in its order, whether or not it is remembered.
func TestAQuestionBringsWhatItCarries(t *testing.T) {
	path := t.TempDir() + "/test.db"
	d := dbtest.OpenAt(t, path, nil)
	a, b := dbtest.Upload(t, d, "a.txt", "alpha"), dbtest.Upload(t, d, "b.png", dbtest.PNG(40, 30))
	r, turns := dbtest.Claim(t, d, dbtest.Submit(t, d, dbtest.Carrying(dbtest.Submission("session-1", chat.NewID(), "look"), b, a)))
	dbtest.Finish(t, d, r, "seen")
	want := []chat.Attachment{b, a}
	look := func(d *db.DB) {
		t.Helper()
		th, err := d.Thread(bg, db.LocalUser, "session-1")
		if err != nil || !slices.Equal(th.Messages[0].Attachments, want) || th.Messages[1].Attachments != nil {
			t.Errorf("the thread has %+v (%v)", th.Messages, err)
		}
		msgs, err := d.Turns(bg, r.ConversationID, turns)
		if err != nil || !slices.Equal(msgs[0].Attachments, want) {
			t.Errorf("the prompt has %+v (%v)", msgs, err)
		}
		archive, err := d.Archive(bg, db.LocalUser, "session-1")
		if err != nil || !slices.Equal(archive.Turns[0].Attachments, want) {
			t.Errorf("the archive has %+v (%v)", archive.Turns, err)
		}
	}
	look(d)
	tokens, err := db.Int(bg, d, `SELECT tokens FROM messages WHERE role = 'user'`)
	if want := chat.EstimateTokens("look") + a.Tokens + b.Tokens; err != nil || tokens != want || b.Tokens < 50 {
		t.Errorf("the question counts %d tokens (%v), want %d", tokens, err, want)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	look(dbtest.OpenAt(t, path, nil))
}

// purge removes all that may go by now.
func purge(t *testing.T, d *db.DB) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = d.PurgeConversations(bg, time.Now().Add(-db.UndoWindow)); err != nil {
			t.Fatal(err)
		}
	}
	for more := true; more; {
		var err error
		if more, err = d.PurgeUploads(bg, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	dbtest.Check(t, d)
}

func TestAFileGoesWithTheLastQuestionThatCarriesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.Open(t)
		shared, lone := dbtest.Upload(t, d, "shared.txt", "shared"), dbtest.Upload(t, d, "lone.txt", "lone")
		again := dbtest.Upload(t, d, "again.txt", "again")
		for session, list := range map[string][]chat.Attachment{"session-1": {shared, lone, again}, "session-2": {shared}} {
			r, _ := dbtest.Claim(t, d, dbtest.Submit(t, d, dbtest.Carrying(dbtest.Submission(session, chat.NewID(), "look"), list...)))
			dbtest.Finish(t, d, r, "seen")
		}
		there := func(want string) {
			t.Helper()
			got := ""
			for _, a := range []chat.Attachment{shared, lone, again} {
				if f, err := d.File(bg, db.LocalUser, a.ID); err == nil {
					got += f.Name + " "
				} else if !errors.Is(err, db.ErrNotFound) {
					t.Fatal(err)
				}
			}
			if got != want {
				t.Errorf("there are %q, want %q", got, want)
			}
		}
		time.Sleep(24 * time.Hour)
		purge(t, d)
		there("shared.txt lone.txt again.txt ")
		if _, err := d.DeleteConversation(bg, db.LocalUser, "session-1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		dbtest.Upload(t, d, "again.txt", "again") // somebody is about to send it elsewhere
		time.Sleep(db.UndoWindow)
		purge(t, d)
		there("shared.txt again.txt ")
		time.Sleep(2 * time.Hour)
		purge(t, d)
		there("shared.txt ")
		if _, err := d.DeleteConversation(bg, db.LocalUser, "session-2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * db.UndoWindow)
		purge(t, d)
		there("")
		if n := count(t, d, `SELECT count(*) FROM contents`); n != 0 {
			t.Errorf("%d contents are left", n)
		}
	})
}

// Uploads are removed in slices, and a slice that is full is not the last.
func TestManyUploadsThatNobodySentGo(t *testing.T) {
	d := dbtest.Open(t)
	for i := range 45 {
		dbtest.Upload(t, d, "a.txt", fmt.Sprint(i))
	}
	calls := 0
	for more := true; more; calls++ {
		var err error
		if more, err = d.PurgeUploads(bg, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, d, `SELECT count(*) FROM contents`); n != 0 || calls != 3 {
		t.Errorf("after %d calls %d are left", calls, n)
	}
}
