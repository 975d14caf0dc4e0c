package db_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// shows says what a branch shows: its messages as role and number, then the request
// it leads to, and whether the next question follows it.
func shows(t *testing.T, d *db.DB, session string, at int64) string {
	t.Helper()
	th, err := d.ThreadAt(t.Context(), db.LocalUser, session, at)
	if err != nil {
		t.Fatalf("branch through %d: %v", at, err)
	}
	var list []string
	for _, m := range th.Messages {
		s := fmt.Sprintf("%c%d", m.Role[0], m.Seq)
		if len(m.Siblings) > 1 || len(m.Coming) > 0 {
			s += strings.ReplaceAll(fmt.Sprint(append(slices.Clone(m.Siblings), m.Coming...)), " ", ",")
		}
		list = append(list, s)
	}
	if th.Coming != "" {
		list = append(list, "…"+fmt.Sprint(th.Beside))
	}
	if th.Aside {
		list = append(list, "aside")
	}
	return strings.Join(list, " ")
}

func wantShown(t *testing.T, d *db.DB, session string, at int64, want string) {
	t.Helper()
	if got := shows(t, d, session, at); got != want {
		t.Errorf("through %d: got %q, want %q", at, got, want)
	}
}

func TestABranchIsShownToItsNewestEnd(t *testing.T) {
	d := dbtest.Open(t)
	s := chat.NewID()
	dbtest.Answered(t, d, s, "one", "1") // 1 2
	dbtest.Answered(t, d, s, "two", "2") // 3 4
	wantShown(t, d, s, 0, "u1 a2 u3 a4")

	e, _ := dbtest.Claim(t, d, dbtest.Submit(t, d, dbtest.Ask(s, chat.KindEdit, "one!", 1))) // 5 6
	wantShown(t, d, s, 0, "u5[1,5]")
	dbtest.Finish(t, d, e, "1!")
	dbtest.Answered(t, d, s, "three", "3") // 7 8
	wantShown(t, d, s, 0, "u5[1,5] a6 u7 a8")
	wantShown(t, d, s, 1, "u1[1,5] a2 u3 a4 aside")
	wantShown(t, d, s, 5, "u5[1,5] a6 u7 a8")
	wantShown(t, d, s, 2, "u1[1,5] a2 u3 a4 aside")

	// The answer of an older branch, anew: the branch leads there at once, and the
	// first stays beside it.
	g, _ := dbtest.Claim(t, d, dbtest.Submit(t, d, dbtest.Ask(s, chat.KindRegenerate, "", 4))) // 9
	wantShown(t, d, s, 0, "u1[1,5] a2 u3 …[4]")
	wantShown(t, d, s, 9, "u1[1,5] a2 u3 …[4]")
	wantShown(t, d, s, 4, "u1[1,5] a2 u3 a4[4,9] aside")
	wantShown(t, d, s, 8, "u5[1,5] a6 u7 a8 aside")
	waiting := dbtest.Accept(t, d, s, "four") // 10 11: it follows the answer to come
	wantShown(t, d, s, 0, "u1[1,5] a2 u3 u10 …[4]")
	wantShown(t, d, s, 4, "u1[1,5] a2 u3 a4[4,9] aside")
	dbtest.Finish(t, d, g, "2!")
	wantShown(t, d, s, 0, "u1[1,5] a2 u3 a9[4,9] u10")
	w, _ := dbtest.Claim(t, d, waiting)
	dbtest.Finish(t, d, w, "4")
	wantShown(t, d, s, 0, "u1[1,5] a2 u3 a9[4,9] u10 a11")

	// One that fails changes nothing of what is shown.
	g, _ = dbtest.Claim(t, d, dbtest.Submit(t, d, dbtest.Ask(s, chat.KindRegenerate, "", 11))) // 12
	wantShown(t, d, s, 0, "u1[1,5] a2 u3 a9[4,9] u10 …[11]")
	dbtest.Fail(t, d, g, "half")
	wantShown(t, d, s, 0, "u1[1,5] a2 u3 a9[4,9] u10 a11")
	th, err := d.Thread(t.Context(), db.LocalUser, s)
	if err != nil || len(th.Requests) != 1 || th.Requests[0].Content != "half" || th.Requests[0].ParentSeq != 10 {
		t.Errorf("the requests are %+v, error %v; want the failed one under 10", th.Requests, err)
	}

	// An edit that waits is where it will be.
	dbtest.Submit(t, d, dbtest.Ask(s, chat.KindEdit, "two!", 3)) // 13
	wantShown(t, d, s, 0, "u1[1,5] a2 u13[3,13] …[]")
	wantShown(t, d, s, 13, "u1[1,5] a2 u13[3,13] …[]")
	if _, err := d.ThreadAt(t.Context(), db.LocalUser, s, 99); err != db.ErrNotFound {
		t.Errorf("through a message that is not there: %v", err)
	}
}

func TestAMessageSaysWhatItsAnswerTook(t *testing.T) {
	d := dbtest.Open(t)
	s := chat.NewID()
	r := dbtest.Answered(t, d, s, "one", "1")
	err := d.RecordArrivals(t.Context(), []db.Repeat{
		{RequestID: r.ID, At: r.CreatedAt, Source: chat.SourceWeb, Decision: chat.DecisionJoined, Status: 202},
		{RequestID: r.ID, At: r.CreatedAt, Source: chat.SourceWeb, Decision: chat.DecisionReplayed, Status: 200},
		{RequestID: r.ID, At: r.CreatedAt, Source: chat.SourceWeb, Decision: chat.DecisionConflict, Status: 422},
	})
	if err != nil {
		t.Fatal(err)
	}
	th, err := d.Thread(t.Context(), db.LocalUser, s)
	if err != nil {
		t.Fatal(err)
	}
	rc, err := d.Receipt(t.Context(), r.Key)
	if err != nil {
		t.Fatal(err)
	}
	a := th.Messages[1]
	if a.Usage != (chat.Usage{InputTokens: 11, CachedTokens: 3, OutputTokens: 7}) || a.Micros != rc.Ledger[0].Micros || a.Micros == 0 || a.Attempts != 1 || a.Absorbed != 2 {
		t.Errorf("the answer took %+v", a)
	}
	if q := th.Messages[0]; q.Micros != 0 || q.Absorbed != 0 {
		t.Errorf("the question took %+v", q)
	}
}
