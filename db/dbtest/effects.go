package dbtest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
)

// Declared are the actions that the factories know: one that runs by itself, one that
// asks and is called back and compensated, one whose callback is overdue at once, one
// that only asks, and one that never runs.
var Declared = func() *chat.Declarations {
	action := func(name string, approval chat.Approval) chat.Action {
		return chat.Action{
			Name: name, Description: map[string]string{"en": "Do " + name}, Approval: approval, To: "webhook http://127.0.0.1:9900/" + name,
			Parameters: json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}},"additionalProperties":false}`),
		}
	}
	sign := action("sign", chat.ApprovalAsk)
	sign.AwaitCallback, sign.CallbackTimeout, sign.Compensates = true, time.Hour, true
	hasty := action("hasty", chat.ApprovalAuto)
	hasty.AwaitCallback, hasty.CallbackTimeout = true, time.Nanosecond
	d, err := chat.Declare([]chat.Action{action("note", chat.ApprovalAuto), sign, hasty, action("post", chat.ApprovalAsk), action("never", chat.ApprovalNever)})
	if err != nil {
		panic(err)
	}
	return d
}()

// Asking is a final answer that asks for these actions, each with its position as the
// argument n.
func Asking(actions ...string) db.Answer {
	a := Answer("I ask for something.")
	a.Finish, a.Declared = chat.FinishTool, Declared
	var calls []chat.ToolCall
	for i, name := range actions {
		calls = append(calls, chat.ToolCall{ID: fmt.Sprint("call-", i), Name: name, Arguments: fmt.Sprintf(`{"n": %d}`, i)})
	}
	b, err := json.Marshal(calls)
	if err != nil {
		panic(err)
	}
	a.ToolCalls, a.Decisions = string(b), Declared.Decide(calls, a.Finish)
	return a
}

// Effects takes a new question to an answer that asks for these actions, and returns
// the request with what it asks for.
func Effects(t testing.TB, d *db.DB, session string, actions ...string) (chat.Request, []chat.Effect) {
	t.Helper()
	r, _ := Claim(t, d, Accept(t, d, session, "please do "+fmt.Sprint(actions)))
	r, err := d.Finish(context.Background(), r, Asking(actions...))
	if err != nil {
		t.Fatalf("finish request %d: %v", r.ID, err)
	}
	return r, EffectsOf(t, d, r)
}

// EffectsOf returns the effects of a request as they are now.
func EffectsOf(t testing.TB, d *db.DB, r chat.Request) []chat.Effect {
	t.Helper()
	rec, err := d.RecordOf(context.Background(), r.ID)
	if err != nil {
		t.Fatalf("record of request %d: %v", r.ID, err)
	}
	return rec.Effects
}

// Approve says yes to an effect.
func Approve(t testing.TB, d *db.DB, e chat.Effect) chat.Request {
	t.Helper()
	r, err := d.Decide(context.Background(), db.Verdict{UserID: db.LocalUser, WebhookID: e.WebhookID, Approve: true, Digest: e.Digest, Actor: "user:1", Reason: "yes"})
	if err != nil {
		t.Fatalf("approve %s: %v", e.WebhookID, err)
	}
	return r
}

// Outgoing returns a row of the outbox.
func Outgoing(t testing.TB, d *db.DB, webhookID string) db.Outgoing {
	t.Helper()
	o, err := d.Outgoing(context.Background(), webhookID)
	if err != nil {
		t.Fatalf("outbox %s: %v", webhookID, err)
	}
	return o
}

// Send starts a delivery.
func Send(t testing.TB, d *db.DB, webhookID string) db.Outgoing {
	t.Helper()
	o, err := d.StartDelivery(context.Background(), Outgoing(t, d, webhookID), db.Delivery{Owner: Owner, Lease: time.Minute, Target: "webhook http://127.0.0.1:9900/"})
	if err != nil {
		t.Fatalf("start a delivery of %s: %v", webhookID, err)
	}
	return o
}

// The ends of deliveries.
var (
	Sent   = db.DeliveryEnd{Outcome: chat.OutcomeOK, Status: 200, Actor: "relay:" + Owner}
	Gone   = db.DeliveryEnd{Outcome: chat.OutcomeDefinite, Status: 410, Code: "receiver_gone", Actor: "relay:" + Owner, GiveUp: "destination_disabled", Disable: true}
	GaveUp = db.DeliveryEnd{Outcome: chat.OutcomeUnknown, Status: 500, Code: "receiver_failed", Detail: "It said 500.", Actor: "relay:" + Owner, GiveUp: "max_attempts"}
)

// Deliver sends what has this webhook id, which ends so.
func Deliver(t testing.TB, d *db.DB, webhookID string, end db.DeliveryEnd) db.Outgoing {
	t.Helper()
	o, err := d.EndDelivery(context.Background(), Send(t, d, webhookID), end)
	if err != nil {
		t.Fatalf("end a delivery of %s: %v", webhookID, err)
	}
	return o
}

// CallBack says what the receiver says.
func CallBack(t testing.TB, d *db.DB, webhookID string, ok bool) db.CallbackDecision {
	t.Helper()
	decision, _, err := d.Callback(context.Background(), db.Callback{WebhookID: webhookID, MessageID: chat.NewID(), OK: ok, Reason: "because"})
	if err != nil {
		t.Fatalf("call back %s: %v", webhookID, err)
	}
	return decision
}

// CompensationOf returns what undoes an effect.
func CompensationOf(t testing.TB, d *db.DB, webhookID string) db.Outgoing {
	t.Helper()
	o := Outgoing(t, d, webhookID)
	list, err := d.Outbox(context.Background(), db.OutboxFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.Kind == db.KindCompensation && c.RequestID == o.RequestID && c.Position == o.Position {
			return c
		}
	}
	t.Fatalf("nothing undoes %s", webhookID)
	return o
}
