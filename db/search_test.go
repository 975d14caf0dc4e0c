package db_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// finds returns what a search finds, as "session#message: snippet".
func finds(t *testing.T, d *db.DB, l db.List) (list []string, next string) {
	t.Helper()
	if l.Limit == 0 {
		l.Limit = 100
	}
	found, next, err := d.Conversations(bg, db.LocalUser, l)
	if err != nil {
		t.Fatalf("%+v: %v", l, err)
	}
	for _, c := range found {
		snippet := ""
		for _, p := range c.Hit.Snippet {
			if p.Hit {
				snippet += "[" + p.Text + "]"
			} else {
				snippet += p.Text
			}
		}
		list = append(list, fmt.Sprintf("%s#%d: %s", c.SessionID, c.Hit.Seq, snippet))
	}
	return list, next
}

// F7: everything holds from the moment that a message is stored, and when the index has
// it.
func TestSearchFindsMessagesAndTitlesWithAndWithoutTheIndex(t *testing.T) {
	d := dbtest.Open(t)
	dbtest.Answered(t, d, "session-1", "我秃发怎么办", "多喝水 ⭐")
	dbtest.Answered(t, d, "session-2", "Which GPT is it?", "GPT 的回答")
	dbtest.Answered(t, d, "session-2", "And water?", "水 is water.")
	title := "Wasser 水"
	if _, err := d.PatchConversation(bg, db.LocalUser, "session-1", db.ConversationPatch{Title: &title}); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		for q, want := range map[string][]string{
			"秃发":         {"session-1#1: 我[秃发]怎么办"},
			"秃":          {"session-1#1: 我[秃]发怎么办"},
			"⭐":          {"session-1#2: 多喝水 [⭐]"},
			"水":          {"session-1#0: Wasser [水]", "session-2#4: [水] is water."},
			"GPT 回答":     {"session-2#2: [GPT] 的[回答]"},
			"wass":       {"session-1#0: [Wass]er 水"},
			"WATER":      {"session-2#4: 水 is [water]."},
			"%":          nil,
			"\x00":       nil,
			"NEAR(a b)":  nil,
			"tokens:gpt": nil,
			"发怎 水":       nil, // not in one message
		} {
			if got, next := finds(t, d, db.List{Query: q}); !slices.Equal(got, want) || next != "" {
				t.Errorf("%s, %q finds %q, next %q, want %q", when, q, got, next, want)
			}
		}
	}
	check("before the index")
	index(t, d)
	if n, err := db.Int(bg, d, `SELECT count(*) FROM search`); err != nil || n != 7 {
		t.Fatalf("the index has %d entries (%v), want 6 messages and a title", n, err)
	}
	check("with the index")

	// A new title takes the place of the old one.
	title = "Bald"
	if _, err := d.PatchConversation(bg, db.LocalUser, "session-1", db.ConversationPatch{Title: &title}); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before", "with"} {
		if got, _ := finds(t, d, db.List{Query: "wasser"}); len(got) != 0 {
			t.Errorf("%s the index, the title of before is found: %q", when, got)
		}
		if got, _ := finds(t, d, db.List{Query: "bald"}); len(got) != 1 {
			t.Errorf("%s the index, the title is found %d times", when, len(got))
		}
		index(t, d)
	}
}

func TestSearchIsOfOneUserAndOneList(t *testing.T) {
	d := dbtest.Open(t)
	dbtest.Answered(t, d, "session-1", "apples", "listed")
	dbtest.Answered(t, d, "session-2", "apples", "archived")
	dbtest.Answered(t, d, "session-3", "apples", "deleted")
	if err := db.Write(bg, d, func(tx *db.Tx) error {
		_, err := tx.Exec(`INSERT INTO users (id, name, created_at) VALUES (2, 'other', 1)`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s := dbtest.Submission("session-4", chat.NewID(), "apples")
	s.Key.UserID = 2
	dbtest.Submit(t, d, s)
	yes, no := true, false
	patch := func(p db.ConversationPatch) chat.Conversation {
		t.Helper()
		v, err := d.PatchConversation(bg, db.LocalUser, "session-2", p)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	patch(db.ConversationPatch{Pinned: &yes})
	if v := patch(db.ConversationPatch{Archived: &yes}); v.Pinned || v.ArchivedAt.IsZero() {
		t.Errorf("archived: %+v", v)
	}
	if _, err := d.DeleteConversation(bg, db.LocalUser, "session-3"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // before the index, and with it
		for archived, want := range map[bool]string{false: "session-1#1: [apples]", true: "session-2#1: [apples]"} {
			if got, _ := finds(t, d, db.List{Query: "apples", Archived: archived}); !slices.Equal(got, []string{want}) {
				t.Errorf("archived %t: %q, want %q", archived, got, want)
			}
		}
		index(t, d)
	}
	if _, err := d.RestoreConversation(bg, db.LocalUser, "session-3"); err != nil {
		t.Fatal(err)
	}
	if got, _ := finds(t, d, db.List{Query: "deleted"}); len(got) != 1 {
		t.Errorf("a restored conversation is found %d times", len(got))
	}
	if v := patch(db.ConversationPatch{Archived: &no}); !v.ArchivedAt.IsZero() {
		t.Errorf("out of the archive: %+v", v)
	}
	patch(db.ConversationPatch{Archived: &yes})
	dbtest.Accept(t, d, "session-2", "a new question")
	if got, _ := finds(t, d, db.List{Query: "archived"}); len(got) != 1 {
		t.Error("a new question does not bring its conversation back")
	}
	dbtest.Check(t, d)
}

func TestSearchGoesOnWhereThePageBeforeEnded(t *testing.T) {
	d := dbtest.Open(t)
	var want []string
	for i := range 12 {
		session := fmt.Sprintf("session-%02d", i)
		dbtest.Answered(t, d, session, "apples", "pears and apples")
		want = append([]string{session}, want...)
		if i == 5 {
			index(t, d)
		}
	}
	// The oldest has the newest hit; it comes first, and once.
	dbtest.Answered(t, d, "session-00", "more apples", "no")
	want = append([]string{"session-00"}, want[:11]...)
	for _, limit := range []int{1, 5, 11, 12, 100} {
		var got []string
		l := db.List{Query: "apples", Limit: limit}
		for pages := 0; ; pages++ {
			list, next := finds(t, d, l)
			for _, s := range list {
				session, _, _ := strings.Cut(s, "#")
				got = append(got, session)
			}
			if next == "" {
				break
			}
			if l.Before = next; pages > 20 {
				t.Fatalf("limit %d: there is no end", limit)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %q, want %q", limit, got, want)
		}
	}
	if _, _, err := d.Conversations(bg, db.LocalUser, db.List{Query: "apples", Before: "session-01", Limit: 1}); err != db.ErrNotFound {
		t.Errorf("a place that no page gave: %v", err)
	}
}

// The parts of a query are everywhere and nowhere together: a search gives up for
// now, and the next page goes on behind it.
func TestASearchThatFindsNothingForLongGoesOnWithTheNextPage(t *testing.T) {
	d := dbtest.Open(t)
	dbtest.Answered(t, d, "session-0", "white", "black")
	for i := range 1200 {
		dbtest.Accept(t, d, fmt.Sprintf("session-%d", i%5+1), fmt.Sprintf("白黑 黑白 %d", i))
	}
	dbtest.Answered(t, d, "session-0", "白黑白", "x")
	for i := range 1200 {
		dbtest.Accept(t, d, fmt.Sprintf("session-%d", i%5+1), fmt.Sprintf("白黑 黑白 %d", i))
	}
	index(t, d)
	var got []string
	l := db.List{Query: "白黑白"}
	for pages := 1; ; pages++ {
		list, next := finds(t, d, l)
		got = append(got, list...)
		if l.Before = next; next == "" {
			if pages != 3 {
				t.Errorf("it took %d pages: no test", pages)
			}
			break
		}
		if pages > 10 {
			t.Fatal("there is no end")
		}
	}
	if !slices.Equal(got, []string{"session-0#3: [白黑白]"}) {
		t.Errorf("found %q", got)
	}
}

// Two that fill the index at once, or a purge in between, leave it right.
func TestTheIndexHasEachMessageOnce(t *testing.T) {
	d := dbtest.Open(t)
	for i := range 40 {
		dbtest.Answered(t, d, fmt.Sprintf("session-%02d", i), "apples", "pears")
	}
	done := make(chan error)
	for range 4 {
		go func() {
			for more := true; more; {
				var err error
				if more, err = d.IndexSlice(bg); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	if _, err := d.DeleteConversation(bg, db.LocalUser, "session-07"); err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		var err error
		if more, err = d.PurgeConversations(bg, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	dbtest.Check(t, d)
	index(t, d)
	if n, err := db.Int(bg, d, `SELECT count(*) FROM search`); err != nil || n != 78 {
		t.Errorf("the index has %d entries (%v), want 78", n, err)
	}
}

// A title is given between the moment that a slice is read and the one that it is
// written in: what was read is no title any more.
func TestTheIndexDoesNotTakeWhatIsGoneByThen(t *testing.T) {
	d := dbtest.Open(t)
	dbtest.Answered(t, d, "session-1", "apples", "pears")
	title := "old"
	if _, err := d.PatchConversation(bg, db.LocalUser, "session-1", db.ConversationPatch{Title: &title}); err != nil {
		t.Fatal(err)
	}
	indexed := make(chan error)
	var next func() error
	waiting := func(n int) {
		for db.Waiting(d) != n {
			runtime.Gosched()
		}
	}
	err := db.Write(bg, d, func(tx *db.Tx) error {
		// The write loop takes this one and waits with it for us; the slice waits behind.
		next = db.Enqueue(bg, d, func(*db.Tx) error { return nil })
		waiting(0)
		go func() {
			_, err := d.IndexSlice(bg)
			indexed <- err
		}()
		waiting(1)
		_, err := tx.Exec(`UPDATE conversations SET title = 'new', named_tx = ?`, tx.Number())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(next(), <-indexed); err != nil {
		t.Fatal(err)
	}
	dbtest.Check(t, d)
	index(t, d)
	if got, _ := finds(t, d, db.List{Query: "new"}); len(got) != 1 {
		t.Errorf("the title is found as %q", got)
	}
}

func TestTheListHasPinnedOnesFirstAndItsPagesJoin(t *testing.T) {
	d := dbtest.Open(t)
	yes := true
	var want []string
	for i := range 9 {
		session := fmt.Sprintf("session-%d", i)
		dbtest.Answered(t, d, session, "apples", "pears")
		p := db.ConversationPatch{}
		if i == 1 || i == 4 {
			p.Pinned = &yes
		} else if i != 6 {
			want = append([]string{session}, want...)
		}
		if i == 6 {
			p.Archived = &yes
		}
		if _, err := d.PatchConversation(bg, db.LocalUser, session, p); err != nil {
			t.Fatal(err)
		}
	}
	want = append([]string{"session-4", "session-1"}, want...)
	pages := func(l db.List) (got []string) {
		for range 20 {
			list, next, err := d.Conversations(bg, db.LocalUser, l)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range list {
				got = append(got, c.SessionID)
			}
			if l.Before = next; next == "" {
				break
			}
		}
		return got
	}
	for _, limit := range []int{1, 2, 3, 8, 50} {
		if got := pages(db.List{Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("limit %d: %q, want %q", limit, got, want)
		}
		if got := pages(db.List{Limit: limit, Archived: true}); !slices.Equal(got, []string{"session-6"}) {
			t.Errorf("limit %d: the archive has %q", limit, got)
		}
	}
}

func TestNewsIsWhatEndedUnaskedSinceAPersonLooked(t *testing.T) {
	d := dbtest.Open(t)
	news := func(want int, what string) {
		t.Helper()
		dbtest.Check(t, d)
		if got, err := d.News(bg, db.LocalUser); err != nil || got != want {
			t.Errorf("%s: %d are news (%v), want %d", what, got, err, want)
		}
	}
	look := func(session string) {
		t.Helper()
		if v, err := d.PatchConversation(bg, db.LocalUser, session, db.ConversationPatch{Seen: true}); err != nil || v.News {
			t.Errorf("%+v, %v", v, err)
		}
	}
	news(0, "an empty file")
	r := dbtest.Accept(t, d, "session-1", "one")
	if list, _, err := d.Conversations(bg, db.LocalUser, db.List{Limit: 1}); err != nil || !list[0].Running || list[0].News {
		t.Errorf("a question waits: %+v, %v", list, err)
	}
	news(0, "a question")
	dbtest.Finish(t, d, first(dbtest.Claim(t, d, r)), "answer")
	news(1, "an answer")
	if list, _, err := d.Conversations(bg, db.LocalUser, db.List{Limit: 1}); err != nil || list[0].Running || !list[0].News {
		t.Errorf("it is answered: %+v, %v", list, err)
	}
	look("session-1")
	news(0, "a person looked")
	failed := dbtest.Fail(t, d, first(dbtest.Claim(t, d, dbtest.Accept(t, d, "session-1", "two"))), "")
	news(1, "a failure")
	look("session-1")
	dbtest.Stop(t, d, dbtest.Accept(t, d, "session-1", "three"))
	news(0, "a question that a person stopped")
	// An answer that comes late, under an older question, is news as well.
	dbtest.Finish(t, d, first(dbtest.Claim(t, d, dbtest.Restart(t, d, failed))), "late")
	news(1, "a late answer")
	yes := true
	if _, err := d.PatchConversation(bg, db.LocalUser, "session-1", db.ConversationPatch{Archived: &yes}); err != nil {
		t.Fatal(err)
	}
	news(0, "in the archive")
}
