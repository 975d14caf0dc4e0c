package dbtest

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
)

// Owner is the process life that the factories claim for.
const Owner = "life"

// Accept stores a new question of a conversation: it is pending.
func Accept(t testing.TB, d *db.DB, session, content string) chat.Request {
	t.Helper()
	return Submit(t, d, Submission(session, chat.NewID(), content))
}

// Ask is a new intent of any kind; parent names what edit, regenerate and
// continue need.
func Ask(session string, kind chat.Kind, content string, parent int64) db.Submission {
	s := Submission(session, chat.NewID(), content)
	s.Kind, s.Content, s.ParentSeq = kind, content, parent
	if !kind.WritesQuestion() {
		s.Content = ""
	}
	s.Fingerprint = chat.Fields{Kind: kind, Content: s.Content, ParentID: chat.MessageID(session, parent)}.Fingerprint()
	return s
}

// Upload stores a file of the local user.
func Upload(t testing.TB, d *db.DB, name, content string) chat.Attachment {
	t.Helper()
	f, err := chat.ReadFile(name, []byte(content))
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	a, err := d.Upload(context.Background(), db.LocalUser, f)
	if err != nil {
		t.Fatalf("upload %s: %v", name, err)
	}
	return a
}

// Carrying is s with these attachments.
func Carrying(s db.Submission, list ...chat.Attachment) db.Submission {
	f := chat.Fields{Kind: s.Kind, Content: s.Content}
	if s.Kind != chat.KindMessage {
		f.ParentID = chat.MessageID(s.Key.SessionID, s.ParentSeq)
	}
	for _, a := range list {
		f.Attachments = append(f.Attachments, a.SHA256)
	}
	s.Attachments, s.Fingerprint = list, f.Fingerprint()
	return s
}

// PNG is an image of this size, as far as anybody looks into it.
func PNG(width, height int) string {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		panic(err) // of our own making
	}
	return b.String()
}

// Submit stores s: it is pending.
func Submit(t testing.TB, d *db.DB, s db.Submission) chat.Request {
	t.Helper()
	r, err := d.Accept(context.Background(), s)
	if err != nil {
		t.Fatalf("accept %q: %v", s.Content, err)
	}
	return r
}

// Claim makes r generating and returns it with the numbers of the messages that
// are sent.
func Claim(t testing.TB, d *db.DB, r chat.Request) (chat.Request, []int64) {
	t.Helper()
	r, turns, err := d.Claim(context.Background(), db.Claim{Request: r, Owner: Owner, Lease: time.Minute})
	if err != nil {
		t.Fatalf("claim request %d: %v", r.ID, err)
	}
	return r, turns
}

// Answer is a final answer with this text.
func Answer(content string) db.Answer {
	return db.Answer{
		Content: content, Reasoning: "because", ToolCalls: "[]", Finish: chat.FinishStop, UpstreamID: "up", Outcome: chat.OutcomeOK,
		Usage: chat.Usage{InputTokens: 11, CachedTokens: 3, OutputTokens: 7}, FirstTokenAt: time.Now(),
		Actor: "worker:" + Owner, Reason: "answered", HasPartials: true,
	}
}

// Finish gives the generating r its answer: it is committed.
func Finish(t testing.TB, d *db.DB, r chat.Request, content string) chat.Request {
	t.Helper()
	r, err := d.Finish(context.Background(), r, Answer(content))
	if err != nil {
		t.Fatalf("finish request %d: %v", r.ID, err)
	}
	return r
}

// Answered takes a new question through its whole life: it is committed.
func Answered(t testing.TB, d *db.DB, session, question, answer string) chat.Request {
	t.Helper()
	r, _ := Claim(t, d, Accept(t, d, session, question))
	return Finish(t, d, r, answer)
}

// LineLost is a failure with an outcome that nobody knows.
var LineLost = chat.Failure{Code: "line_lost", Outcome: chat.OutcomeUnknown, Retry: chat.RetryExplicit, Detail: "the line was lost"}

// Stopped is the failure of a question that a person stopped while it waited.
var Stopped = chat.Failure{Code: "stopped", Outcome: chat.OutcomeNone, Retry: chat.RetryExplicit, Detail: "stopped"}

// Lost is the end of an attempt with an outcome that nobody knows, and a tail of
// text that was not stored yet.
func Lost(tail string) db.End {
	return db.End{
		Outcome: chat.OutcomeUnknown, Code: LineLost.Code, Waste: true, Usage: chat.Usage{InputTokens: 11, OutputTokens: 2, Estimated: true},
		Tail: db.Partial{Text: tail}, FirstTokenAt: time.Now(), Actor: "worker:" + Owner,
	}
}

// Fail makes the generating r failed, its outcome unknown.
func Fail(t testing.TB, d *db.DB, r chat.Request, tail string) chat.Request {
	t.Helper()
	r, err := d.Fail(context.Background(), r, Lost(tail), LineLost)
	if err != nil {
		t.Fatalf("fail request %d: %v", r.ID, err)
	}
	return r
}

// Stop makes the pending r failed, stopped while it waited.
func Stop(t testing.TB, d *db.DB, r chat.Request) chat.Request {
	t.Helper()
	r, err := d.FailWaiting(context.Background(), r, "user:1", Stopped)
	if err != nil {
		t.Fatalf("stop request %d: %v", r.ID, err)
	}
	return r
}

// Restart makes the failed r pending again, as a person does.
func Restart(t testing.TB, d *db.DB, r chat.Request) chat.Request {
	t.Helper()
	r, err := d.Restart(context.Background(), r, db.Restart{Reason: "explicit", Actor: "user:1"})
	if err != nil {
		t.Fatalf("restart request %d: %v", r.ID, err)
	}
	return r
}
