package db_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

func load(t *testing.T, d *db.DB, id int64) chat.Request {
	t.Helper()
	r, err := d.Load(bg, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func head(t *testing.T, d *db.DB, session string) int64 {
	t.Helper()
	th, err := d.Thread(bg, db.LocalUser, session)
	if err != nil {
		t.Fatal(err)
	}
	return th.Conversation.HeadSeq
}

// claims fails the test unless r can be claimed with exactly these turns.
func claims(t *testing.T, d *db.DB, r chat.Request, turns ...int64) chat.Request {
	t.Helper()
	r, got := dbtest.Claim(t, d, r)
	if !slices.Equal(got, turns) {
		t.Errorf("request %d is sent with %v, want %v", r.ID, got, turns)
	}
	dbtest.Check(t, d)
	return r
}

func notItsTurn(t *testing.T, d *db.DB, r chat.Request) {
	t.Helper()
	if _, _, err := d.Claim(bg, db.Claim{Request: r, Owner: dbtest.Owner, Lease: time.Minute}); !errors.Is(err, db.ErrNotYourTurn) {
		t.Errorf("request %d was claimed out of turn: %v", r.ID, err)
	}
	dbtest.Check(t, d)
}

func TestQueuedQuestionsAreAnsweredInOrderAndGetTheirParentsWhenClaimed(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	one, two, three := dbtest.Accept(t, d, s, "one"), dbtest.Accept(t, d, s, "two"), dbtest.Accept(t, d, s, "three")
	for _, r := range []chat.Request{one, two, three} {
		if r.Placed || r.ParentSeq != 0 {
			t.Errorf("a waiting question has its place already: %+v", r)
		}
	}
	notItsTurn(t, d, two)
	notItsTurn(t, d, three)
	one = claims(t, d, one, 1)
	notItsTurn(t, d, two)
	dbtest.Finish(t, d, one, "first answer")
	notItsTurn(t, d, three)
	two = claims(t, d, two, 1, 2, 3)
	dbtest.Finish(t, d, two, "second answer")
	three = claims(t, d, three, 1, 2, 3, 4, 5)
	if got := load(t, d, three.ID).ParentSeq; got != 4 {
		t.Errorf("the third question hangs under %d, want the second answer, 4", got)
	}
	dbtest.Finish(t, d, three, "third answer")
	if got := head(t, d, s); got != 6 {
		t.Errorf("the head is %d, want 6", got)
	}
}

func TestAFailedQuestionIsInLaterContextAsTheUsersWordsOnly(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	dbtest.Answered(t, d, s, "one", "first answer")
	failed := dbtest.Fail(t, d, claims(t, d, dbtest.Accept(t, d, s, "two"), 1, 2, 3), "half an answer")
	three := claims(t, d, dbtest.Accept(t, d, s, "three"), 1, 2, 3, 5)
	turns, err := d.Turns(bg, three.ConversationID, []int64{1, 2, 3, 5})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range turns {
		said = append(said, m.Role+": "+m.Content)
	}
	if got, want := strings.Join(said, "; "), "user: one; assistant: first answer; user: two; user: three"; got != want {
		t.Errorf("the prompt is %q, want %q", got, want)
	}
	dbtest.Finish(t, d, three, "third answer")

	// Asked again it is sent as it was then, its answer hangs under its own
	// question, and the head stays with what is newer.
	again := claims(t, d, dbtest.Restart(t, d, failed), 1, 2, 3)
	dbtest.Finish(t, d, again, "second answer, late")
	if got := head(t, d, s); got != 6 {
		t.Errorf("the head moved to %d, want it to stay at 6", got)
	}
	rec, err := d.Record(bg, failed.Key)
	if err != nil || rec.Message.ID != chat.MessageID(s, 4) || rec.Message.ParentID != chat.MessageID(s, 3) {
		t.Errorf("the late answer is %+v (%v), want 4 under 3", rec.Message, err)
	}
	th, err := d.Thread(bg, db.LocalUser, s)
	if err != nil {
		t.Fatal(err)
	}
	var shown []int64
	for _, m := range th.Messages {
		shown = append(shown, m.Seq)
	}
	if !slices.Equal(shown, []int64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("the branch shows %v, want the late answer under its question", shown)
	}
}

func TestARetryOfTheNewestQuestionMovesTheHead(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	dbtest.Answered(t, d, s, "one", "first answer")
	failed := dbtest.Fail(t, d, claims(t, d, dbtest.Accept(t, d, s, "two"), 1, 2, 3), "")
	if got := head(t, d, s); got != 3 {
		t.Errorf("the head is %d, want the failed question, 3", got)
	}
	dbtest.Finish(t, d, claims(t, d, dbtest.Restart(t, d, failed), 1, 2, 3), "second answer")
	if got := head(t, d, s); got != 4 {
		t.Errorf("the head is %d, want its answer, 4", got)
	}
}

func TestARetryKeepsItsPlaceInTheQueue(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	one := dbtest.Fail(t, d, claims(t, d, dbtest.Accept(t, d, s, "one"), 1), "")
	two, three := dbtest.Accept(t, d, s, "two"), dbtest.Accept(t, d, s, "three")
	two = claims(t, d, two, 1, 3)
	one = dbtest.Restart(t, d, one)
	notItsTurn(t, d, one) // another generates
	notItsTurn(t, d, three)
	dbtest.Finish(t, d, two, "second answer")
	notItsTurn(t, d, three) // the restarted one is earlier
	one = claims(t, d, one, 1)
	notItsTurn(t, d, three)
	dbtest.Finish(t, d, one, "first answer")
	claims(t, d, three, 1, 3, 4, 5)
}

func TestAQuestionStoppedBeforeItsTurnGetsItsPlaceWithTheNextClaim(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	one := claims(t, d, dbtest.Accept(t, d, s, "one"), 1)
	two, three := dbtest.Accept(t, d, s, "two"), dbtest.Accept(t, d, s, "three")
	two = dbtest.Stop(t, d, two)
	dbtest.Check(t, d)
	if two.Placed || load(t, d, two.ID).Placed {
		t.Error("it has its place while the answer before it is still to come")
	}
	if got := head(t, d, s); got != 1 {
		t.Errorf("the head is %d, want the running question, 1", got)
	}
	notItsTurn(t, d, three)
	dbtest.Finish(t, d, one, "first answer")
	three = claims(t, d, three, 1, 2, 3, 5)
	if r := load(t, d, two.ID); !r.Placed || r.ParentSeq != 2 {
		t.Errorf("the stopped question hangs under %d (placed: %t), want 2", r.ParentSeq, r.Placed)
	}
	if r := load(t, d, three.ID); r.ParentSeq != 3 {
		t.Errorf("the next question hangs under %d, want the stopped one, 3", r.ParentSeq)
	}
	dbtest.Finish(t, d, three, "third answer")
	// And it can still be asked again.
	dbtest.Finish(t, d, claims(t, d, dbtest.Restart(t, d, load(t, d, two.ID)), 1, 2, 3), "second answer")
	if got := head(t, d, s); got != 6 {
		t.Errorf("the head is %d, want 6", got)
	}
}

func TestAQuestionStoppedBeforeItsTurnCanBeAskedAgainAtOnce(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	one := claims(t, d, dbtest.Accept(t, d, s, "one"), 1)
	two := dbtest.Stop(t, d, dbtest.Accept(t, d, s, "two"))
	two = dbtest.Restart(t, d, two)
	notItsTurn(t, d, two)
	dbtest.Finish(t, d, one, "first answer")
	claims(t, d, two, 1, 2, 3)
}

func TestAQuestionStoppedWithNothingBeforeItHasItsPlaceAtOnce(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	dbtest.Answered(t, d, s, "one", "first answer")
	two := dbtest.Stop(t, d, dbtest.Accept(t, d, s, "two"))
	if r := load(t, d, two.ID); !two.Placed || !r.Placed || r.ParentSeq != 2 {
		t.Errorf("it hangs under %d (placed: %t), want 2", r.ParentSeq, r.Placed)
	}
	if got := head(t, d, s); got != 3 {
		t.Errorf("the head is %d, want it, 3", got)
	}
	claims(t, d, dbtest.Accept(t, d, s, "three"), 1, 2, 3, 5)
}

func TestEditRegenerateAndContinueHangWhereTheyAreAsked(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	dbtest.Answered(t, d, s, "one", "first answer")  // 1, 2
	dbtest.Answered(t, d, s, "two", "second answer") // 3, 4
	for _, c := range []struct {
		kind       chat.Kind
		parent     int64
		seq        int64 // of its first message
		hangsUnder int64
		turns      []int64
		head       int64
	}{
		{chat.KindRegenerate, 4, 5, 3, []int64{1, 2, 3}, 5},    // another answer to the question of 4
		{chat.KindRegenerate, 1, 6, 1, []int64{1}, 6},          // named by its question
		{chat.KindEdit, 3, 7, 2, []int64{1, 2, 7}, 8},          // beside the question 3
		{chat.KindEdit, 1, 9, 0, []int64{9}, 10},               // beside the very first
		{chat.KindEdit, 4, 11, 4, []int64{1, 2, 3, 4, 11}, 12}, // under the answer it names
		{chat.KindContinue, 12, 13, 12, []int64{1, 2, 3, 4, 11, 12}, 13},
		{chat.KindRegenerate, 13, 14, 12, []int64{1, 2, 3, 4, 11, 12}, 14}, // of a continuation
	} {
		name := fmt.Sprintf("%s of %d", c.kind, c.parent)
		r := dbtest.Submit(t, d, dbtest.Ask(s, c.kind, "edited", c.parent))
		r = claims(t, d, r, c.turns...)
		if got := load(t, d, r.ID); got.Seq != c.seq || got.ParentSeq != c.hangsUnder {
			t.Errorf("%s: number %d under %d, want %d under %d", name, got.Seq, got.ParentSeq, c.seq, c.hangsUnder)
		}
		dbtest.Finish(t, d, r, "answer")
		if got := head(t, d, s); got != c.head {
			t.Errorf("%s: the head is %d, want %d", name, got, c.head)
		}
	}
}

func TestAParentThatCannotBeFollowedIsRefused(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	dbtest.Answered(t, d, s, "one", "first answer")
	claims(t, d, dbtest.Accept(t, d, s, "two"), 1, 2, 3)
	waits := dbtest.Accept(t, d, s, "three")
	dbtest.Answered(t, d, "session-2", "of another conversation", "with many")
	dbtest.Answered(t, d, "session-2", "messages", "so that the number is there")
	before := contents(t, d)
	for name, sub := range map[string]db.Submission{
		"continue a question":             dbtest.Ask(s, chat.KindContinue, "", 1),
		"regenerate what is not there":    dbtest.Ask(s, chat.KindRegenerate, "", 99),
		"edit nothing":                    dbtest.Ask(s, chat.KindEdit, "x", 0),
		"continue the answer to come":     dbtest.Ask(s, chat.KindContinue, "", 4),
		"edit a question without a place": dbtest.Ask(s, chat.KindEdit, "x", waits.Seq),
		"a message of a new conversation": dbtest.Ask("session-9", chat.KindRegenerate, "", 1),
	} {
		if _, err := d.Accept(bg, sub); !errors.Is(err, db.ErrParent) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	if now := contents(t, d); !slices.Equal(before, now) {
		t.Errorf("refused, and this is stored:\n%s", diff(before, now))
	}
}

func TestTurnsThatDoNotFitAreDroppedOldestFirstAndCounted(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	text := strings.Repeat("word", 10) // ten tokens
	for range 3 {
		dbtest.Answered(t, d, s, text, text)
	}
	for _, c := range []struct {
		limit   int64
		turns   []int64
		dropped int64
	}{
		{0, []int64{1, 2, 3, 4, 5, 6, 7}, 0},
		{70, []int64{1, 2, 3, 4, 5, 6, 7}, 0},
		{69, []int64{2, 3, 4, 5, 6, 7}, 1},
		{20, []int64{6, 7}, 5},
		{1, []int64{7}, 6}, // the question itself is always sent
	} {
		path := dbtest.Submission(s, chat.NewID(), text)
		r := dbtest.Submit(t, d, path)
		r, turns, err := d.Claim(bg, db.Claim{Request: r, Owner: dbtest.Owner, Lease: time.Minute, ContextLimit: c.limit})
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(c.turns)
		want[len(want)-1] = r.Seq
		if !slices.Equal(turns, want) || r.ContextDropped != c.dropped || load(t, d, r.ID).ContextDropped != c.dropped {
			t.Errorf("with room for %d tokens %v are sent and %d dropped, want %v and %d", c.limit, turns, r.ContextDropped, want, c.dropped)
		}
		dbtest.Check(t, d)
		// Frozen: tried again with more room it is sent as the first time.
		r, err = d.Requeue(bg, r, db.End{Outcome: chat.OutcomeDefinite, Actor: "worker:life"}, time.Time{}, "engine_retry", 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if r, turns = dbtest.Claim(t, d, r); !slices.Equal(turns, want) || r.ContextDropped != c.dropped {
			t.Errorf("tried again %v are sent and %d dropped, want %v and %d", turns, r.ContextDropped, want, c.dropped)
		}
		dbtest.Fail(t, d, r, "")
		// The next question follows the same answer again.
		six := int64(6)
		if _, err := d.PatchConversation(bg, db.LocalUser, s, db.ConversationPatch{Head: &six}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAThreadShowsTheBranchAndWhatIsUnanswered(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	dbtest.Answered(t, d, s, "one", "first answer") // 1, 2
	failed := dbtest.Fail(t, d, claims(t, d, dbtest.Accept(t, d, s, "two"), 1, 2, 3), "half")
	running := claims(t, d, dbtest.Accept(t, d, s, "three"), 1, 2, 3, 5)
	if err := d.AppendPartial(bg, running, db.Partial{Text: "so far 你好"}); err != nil {
		t.Fatal(err)
	}
	waits := dbtest.Accept(t, d, s, "four")
	th, err := d.Thread(bg, db.LocalUser, s)
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, m := range th.Messages {
		shown = append(shown, fmt.Sprintf("%d %s %s", m.Seq, m.Role, m.Content))
	}
	if got, want := strings.Join(shown, "; "), "1 user one; 2 assistant first answer; 3 user two; 5 user three; 7 user four"; got != want {
		t.Errorf("the page shows %q, want %q", got, want)
	}
	var open []string
	for _, r := range th.Requests {
		open = append(open, r.RequestID+" "+string(r.State)+" "+r.Content)
	}
	want := []string{failed.Key.RequestID + " failed half", running.Key.RequestID + " generating so far 你好", waits.Key.RequestID + " pending "}
	if !slices.Equal(open, want) {
		t.Errorf("unanswered are %q, want %q", open, want)
	}
	if got, want := th.Cursor, fmt.Sprintf("1.%d", len("so far 你好")); got != want {
		t.Errorf("the stream goes on at %q, want %q", got, want)
	}
	if p := th.Requests[0].Error; p == nil || p.Partial != len("half") || p.State != chat.StateFailed {
		t.Errorf("the failed one says %+v", p)
	}

	// On another branch the failure is not shown, and what waits is.
	dbtest.Finish(t, d, running, "third answer")
	dbtest.Stop(t, d, load(t, d, waits.ID))
	dbtest.Finish(t, d, claims(t, d, dbtest.Submit(t, d, dbtest.Ask(s, chat.KindEdit, "one, better", 1)), 9), "better")
	if th, err = d.Thread(bg, db.LocalUser, s); err != nil {
		t.Fatal(err)
	}
	if len(th.Messages) != 2 || len(th.Requests) != 0 || !slices.Equal(th.Messages[0].Siblings, []int64{1, 9}) {
		t.Errorf("the other branch shows %+v and %d unanswered", th.Messages, len(th.Requests))
	}
}

func TestTheHeadCanBeMovedToAnyPlacedMessageWhileNothingRuns(t *testing.T) {
	d := dbtest.Open(t)
	const s = "session-1"
	dbtest.Answered(t, d, s, "one", "first answer")
	dbtest.Answered(t, d, s, "two", "second answer")
	to := func(seq int64) error {
		_, err := d.PatchConversation(bg, db.LocalUser, s, db.ConversationPatch{Head: &seq})
		dbtest.Check(t, d)
		return err
	}
	if err := to(2); err != nil {
		t.Fatal(err)
	}
	r := claims(t, d, dbtest.Accept(t, d, s, "three"), 1, 2, 5)
	waits := dbtest.Accept(t, d, s, "four")
	if err := to(4); !errors.Is(err, db.ErrNotYourTurn) {
		t.Errorf("the head moved under a running answer: %v", err)
	}
	dbtest.Finish(t, d, r, "third answer")
	for _, seq := range []int64{0, 99, waits.Seq, -1} {
		if err := to(seq); !errors.Is(err, db.ErrParent) {
			t.Errorf("the head moved to %d: %v", seq, err)
		}
	}
}

func TestOnlyARestartMayNameAnotherModelAndItIsPricedAnew(t *testing.T) {
	d := dbtest.Open(t)
	r := dbtest.Fail(t, d, claims(t, d, dbtest.Accept(t, d, "session-1", "one"), 1), "")
	r, err := d.Restart(bg, r, db.Restart{Reason: "explicit", Actor: "user:1", Model: "other", Price: chat.Price{Output: 1_000_000}})
	if err != nil {
		t.Fatal(err)
	}
	r = dbtest.Finish(t, d, claims(t, d, r, 1), "answer")
	rc, err := d.Receipt(bg, r.Key)
	if err != nil {
		t.Fatal(err)
	}
	if got := rc.Record.Cost.Micros; got != 7 {
		t.Errorf("it costs %d, want 7", got)
	}
	if got := rc.Attempts; len(got) != 2 || got[0].Model != "demo" || got[1].Model != "other" || got[1].Reason != "explicit" {
		t.Errorf("the attempts are %+v", got)
	}
	if !slices.ContainsFunc(rc.Transitions, func(t db.Transition) bool { return strings.Contains(t.Actor, "model:other") }) {
		t.Errorf("no transition says so: %+v", rc.Transitions)
	}
}

func TestAnotherUsersConversationIsNotSeen(t *testing.T) {
	d := dbtest.OpenAt(t, copyHealthy(t), nil)
	mine, err := d.Thread(bg, 2, other)
	if err != nil {
		t.Fatal(err)
	}
	key := chat.Key{UserID: db.LocalUser, SessionID: other, RequestID: mine.Messages[0].RequestID}
	if _, err := d.Find(bg, key); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("another user's request: %v", err)
	}
	if _, err := d.Thread(bg, db.LocalUser, other); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("another user's conversation: %v", err)
	}
	if _, err := d.DeleteConversation(bg, db.LocalUser, other); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("deleting another user's conversation: %v", err)
	}
	// The same id in the same words is an intent of one's own.
	s := dbtest.Submission(other, key.RequestID, "mine")
	if _, err := d.Accept(bg, s); err != nil {
		t.Errorf("the same ids for another user: %v", err)
	}
	dbtest.Check(t, d)
}

func TestAConversationIsFoundByItsTitleAndItsText(t *testing.T) {
	d := dbtest.Open(t)
	dbtest.Answered(t, d, "session-1", "apples", "they are round")
	dbtest.Answered(t, d, "session-2", "100% pears_", "苹果 and pears")
	for q, want := range map[string]string{
		"": "session-2 session-1", "apple": "session-1", "ROUND": "session-1", "苹果": "session-2", "%": "session-2", "s_": "", "pears_": "session-2", `\`: "", "none": "",
	} {
		list, next, err := d.Conversations(bg, db.LocalUser, db.List{Query: q, Limit: 10})
		if err != nil || next != "" {
			t.Fatalf("%q: %v, next %q", q, err, next)
		}
		var got []string
		for _, c := range list {
			got = append(got, c.SessionID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q finds %v, want %v", q, got, want)
		}
	}
	first, next, err := d.Conversations(bg, db.LocalUser, db.List{Limit: 1})
	if err != nil || len(first) != 1 || next != first[0].SessionID {
		t.Fatalf("the first page is %v, next %q (%v)", first, next, err)
	}
	second, next, err := d.Conversations(bg, db.LocalUser, db.List{Before: next, Limit: 1})
	if err != nil || len(second) != 1 || next != "" || second[0].SessionID == first[0].SessionID {
		t.Errorf("the second page is %v, next %q (%v)", second, next, err)
	}
	if _, _, err := d.Conversations(bg, db.LocalUser, db.List{Before: "session-none", Limit: 1}); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("a page after nothing: %v", err)
	}
}

// The context that is made from the one before is the same as a walk along the
// branch gives.
func TestAContextThatIsExtendedIsTheOneThatIsWalked(t *testing.T) {
	for _, limit := range []int64{0, 1 << 40} { // only without a limit it is extended
		d := dbtest.Open(t)
		s := "session-1"
		claim := func(sub db.Submission, want ...int64) chat.Request {
			t.Helper()
			r, turns, err := d.Claim(bg, db.Claim{Request: dbtest.Submit(t, d, sub), Owner: "life", Lease: time.Minute, ContextLimit: limit})
			if err != nil || !slices.Equal(turns, want) {
				t.Errorf("limit %d, %s: sent with %v (%v), want %v", limit, sub.Kind, turns, err, want)
			}
			return r
		}
		about := func(kind chat.Kind, content string, parent int64) db.Submission {
			sub := dbtest.Submission(s, chat.NewID(), content)
			sub.Kind, sub.ParentSeq = kind, parent
			return sub
		}
		dbtest.Finish(t, d, claim(dbtest.Submission(s, chat.NewID(), "one"), 1), "a")
		failed := claim(dbtest.Submission(s, chat.NewID(), "two"), 1, 2, 3)
		dbtest.Fail(t, d, failed, "half")
		dbtest.Finish(t, d, claim(dbtest.Submission(s, chat.NewID(), "three"), 1, 2, 3, 5), "c")
		dbtest.Finish(t, d, claim(about(chat.KindRegenerate, "", 5), 1, 2, 3, 5), "c again")
		dbtest.Finish(t, d, claim(about(chat.KindContinue, "", 7), 1, 2, 3, 5, 7), "and more")
		dbtest.Finish(t, d, claim(dbtest.Submission(s, chat.NewID(), "four"), 1, 2, 3, 5, 7, 8, 9), "d")
		dbtest.Finish(t, d, claim(about(chat.KindEdit, "two, better", 3), 1, 2, 11), "b")
		dbtest.Check(t, d)
	}
}
