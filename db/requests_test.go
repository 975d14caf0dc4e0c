package db_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

func TestARequestGoesThroughItsWholeLife(t *testing.T) {
	ctx := context.Background()
	d := dbtest.Open(t)
	session := chat.NewID()
	var last chat.Request
	for i := range 3 {
		id := chat.NewID()
		r, err := d.Accept(ctx, dbtest.Submission(session, id, "hello"))
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Check(t, d)
		if _, err := d.Accept(ctx, dbtest.Submission(session, id, "hello")); !errors.Is(err, db.ErrExists) {
			t.Fatalf("accepted twice: %v", err)
		}
		r, turns, err := d.Claim(ctx, db.Claim{Request: r, Owner: "life", Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(turns) != 2*i+1 {
			t.Fatalf("turn %d was sent with %d messages: %v", i, len(turns), turns)
		}
		dbtest.Check(t, d)
		if err := d.AppendPartial(ctx, r, db.Partial{Text: "ans", FirstTokenAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
		dbtest.Check(t, d)
		if err := d.Heartbeat(ctx, r, time.Minute); err != nil {
			t.Fatal(err)
		}
		r, err = d.Finish(ctx, r, db.Answer{Content: "answer", ToolCalls: "[]", Finish: chat.FinishStop, Outcome: chat.OutcomeOK,
			Actor: "worker:life", Reason: "answered", HasPartials: true, Usage: chat.Usage{InputTokens: 3, OutputTokens: 2}})
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Check(t, d)
		last = r
	}
	th, err := d.Thread(ctx, db.LocalUser, session)
	if err != nil {
		t.Fatal(err)
	}
	if len(th.Messages) != 6 || th.Messages[5].Content != "answer" || th.Messages[5].Seq != 6 {
		t.Fatalf("thread: %+v", th)
	}
	rec, err := d.Record(ctx, last.Key)
	if err != nil || rec.Message.Content != "answer" || rec.Status != chat.StatusCompleted {
		t.Fatalf("record: %+v %v", rec, err)
	}
	if _, err := d.Receipt(ctx, last.Key); err != nil {
		t.Fatal(err)
	}
}
