package db_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

func setupAsking(t *testing.T, d *db.DB) chat.Request {
	r, _ := dbtest.Effects(t, d, faultSession, "sign")
	return remember(t, d, r)
}

func setupApproved(t *testing.T, d *db.DB) chat.Request {
	r := setupAsking(t, d)
	dbtest.Approve(t, d, dbtest.EffectsOf(t, d, r)[0])
	return remember(t, d, r)
}

func setupSending(t *testing.T, d *db.DB) chat.Request {
	r := setupApproved(t, d)
	dbtest.Send(t, d, dbtest.EffectsOf(t, d, r)[0].WebhookID)
	return remember(t, d, r)
}

func setupDead(t *testing.T, d *db.DB) chat.Request {
	r := setupApproved(t, d)
	dbtest.Deliver(t, d, dbtest.EffectsOf(t, d, r)[0].WebhookID, dbtest.GaveUp)
	return remember(t, d, r)
}

// remembered are the rows of the outbox that calls are about, by request: what a
// caller believes in was read before, and not while a write fails.
var remembered sync.Map

// remember keeps the row that undoes the effect of r, or that of the effect, or only
// its name.
func remember(t *testing.T, d *db.DB, r chat.Request) chat.Request {
	t.Helper()
	o := db.Outgoing{WebhookID: dbtest.EffectsOf(t, d, r)[0].WebhookID}
	list, err := d.Outbox(bg, db.OutboxFilter{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 1 {
		o = list[0]
	}
	remembered.Store(r.Key.RequestID, o)
	return r
}

func effectIn(want chat.EffectState) func(*db.DB, chat.Request) error {
	return func(d *db.DB, r chat.Request) error {
		rec, err := d.RecordOf(bg, r.ID)
		if err == nil && rec.Effects[0].State != want {
			err = fmt.Errorf("the effect is %s, want %s", rec.Effects[0].State, want)
		}
		return err
	}
}

func withEffect(do func(*db.DB, db.Outgoing) (any, error)) func(*db.DB, chat.Request) (any, error) {
	return func(d *db.DB, r chat.Request) (any, error) {
		o, ok := remembered.Load(r.Key.RequestID)
		if !ok {
			return nil, errors.New("setup remembered nothing")
		}
		return do(d, o.(db.Outgoing))
	}
}

var effectWrites = []write{
	{
		name:  "Finish of an answer that asks for actions",
		setup: setupGenerating,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return d.Finish(bg, r, dbtest.Asking("note", "sign", "never"))
		},
		again:  db.ErrFenced,
		lookup: inState(chat.StateAcknowledged, 1),
	},
	{
		name:  "Finish of an answer whose charge somebody is told of",
		setup: setupGenerating,
		call: func(d *db.DB, r chat.Request) (any, error) {
			a := dbtest.Answer("two")
			a.ChargeTo, a.Currency = "books", "USD"
			return d.Finish(bg, r, a)
		},
		again:  db.ErrFenced,
		lookup: inState(chat.StateAcknowledged, 1),
	},
	{
		name:  "Accept of an edit that supersedes an action",
		setup: setupAsking,
		call: func(d *db.DB, r chat.Request) (any, error) {
			s := dbtest.Ask(faultSession, chat.KindEdit, "other words", r.Seq)
			s.Key.RequestID = questionID
			return d.Accept(bg, s)
		},
		again: db.ErrExists,
	},
	{
		name:  "DeleteConversation with an action undecided",
		setup: setupAsking,
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return d.DeleteConversation(bg, db.LocalUser, faultSession)
		},
	},
	{
		name:  "Decide yes",
		setup: setupAsking,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			_, err := d.Decide(bg, db.Verdict{UserID: db.LocalUser, WebhookID: o.WebhookID, Approve: true, Actor: "user:1"})
			return nil, err
		}),
		lookup: effectIn(chat.EffectPending),
	},
	{
		name:  "Decide no",
		setup: setupAsking,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			_, err := d.Decide(bg, db.Verdict{UserID: db.LocalUser, WebhookID: o.WebhookID, Actor: "user:1"})
			return nil, err
		}),
		lookup: inState(chat.StateCommitted, 1),
	},
	{
		name:  "StartDelivery",
		setup: setupApproved,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			return d.StartDelivery(bg, o, db.Delivery{Owner: dbtest.Owner, Lease: time.Minute, Target: "webhook"})
		}),
		again:  db.ErrFenced,
		lookup: effectIn(chat.EffectDelivering),
	},
	{
		name:  "EndDelivery that went well",
		setup: setupSending,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			return d.EndDelivery(bg, o, dbtest.Sent)
		}),
		again:  db.ErrFenced,
		lookup: effectIn(chat.EffectAwaiting),
	},
	{
		name:  "EndDelivery that is tried again",
		setup: setupSending,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			return d.EndDelivery(bg, o, db.DeliveryEnd{Outcome: chat.OutcomeUnknown, Code: "line_lost", Actor: "relay:life", Retry: time.UnixMilli(1e12)})
		}),
		again:  db.ErrFenced,
		lookup: effectIn(chat.EffectPending),
	},
	{
		name:  "EndDelivery after which nothing more is wanted",
		setup: setupSending,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			return d.EndDelivery(bg, o, dbtest.Gone)
		}),
		again:  db.ErrFenced,
		lookup: effectIn(chat.EffectDead),
	},
	{
		name: "EndDelivery of what undoes an effect",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			r := setupDead(t, d)
			id := dbtest.EffectsOf(t, d, r)[0].WebhookID
			if _, err := d.Resolve(bg, db.Resolution{WebhookID: id, Do: db.Compensate, Actor: "user:1"}); err != nil {
				t.Fatal(err)
			}
			dbtest.Send(t, d, dbtest.CompensationOf(t, d, id).WebhookID)
			return remember(t, d, r)
		},
		call:   withEffect(func(d *db.DB, o db.Outgoing) (any, error) { return d.EndDelivery(bg, o, dbtest.Sent) }),
		again:  db.ErrFenced,
		lookup: inState(chat.StateCommitted, 1),
	},
	{
		name:  "GiveUp",
		setup: setupApproved,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			return d.GiveUp(bg, o, "destination_gone")
		}),
		again:  db.ErrFenced,
		lookup: effectIn(chat.EffectDead),
	},
	{
		name: "TimeOut",
		setup: func(t *testing.T, d *db.DB) chat.Request {
			r, list := dbtest.Effects(t, d, faultSession, "hasty")
			dbtest.Deliver(t, d, list[0].WebhookID, dbtest.Sent)
			return r
		},
		call: func(d *db.DB, _ chat.Request) (any, error) {
			_, more, err := d.TimeOut(bg)
			return more, err
		},
		lookup: effectIn(chat.EffectTimedOut),
	},
	{
		name:  "Callback yes, in the middle of the delivery",
		setup: setupSending,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			_, _, err := d.Callback(bg, db.Callback{WebhookID: o.WebhookID, MessageID: "cb-1", OK: true})
			return nil, err
		}),
		lookup: inState(chat.StateCommitted, 1),
	},
	{
		name:  "Callback no, which is undone",
		setup: setupSending,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			_, _, err := d.Callback(bg, db.Callback{WebhookID: o.WebhookID, MessageID: "cb-1", Reason: "no"})
			return nil, err
		}),
		lookup: effectIn(chat.EffectCompensating),
	},
	{
		name:  "Resolve by sending it again",
		setup: setupDead,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			return d.Resolve(bg, db.Resolution{WebhookID: o.WebhookID, Do: db.Redrive, Actor: "user:1", Reason: "again"})
		}),
		lookup: effectIn(chat.EffectPending),
	},
	{
		name:  "Resolve by giving it up",
		setup: setupDead,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			return d.Resolve(bg, db.Resolution{WebhookID: o.WebhookID, Do: db.Abandon, Actor: "user:1", Reason: "enough"})
		}),
		lookup: inState(chat.StateCommitted, 1),
	},
	{
		name:  "Resolve by undoing it",
		setup: setupDead,
		call: withEffect(func(d *db.DB, o db.Outgoing) (any, error) {
			return d.Resolve(bg, db.Resolution{WebhookID: o.WebhookID, Do: db.Compensate, Actor: "user:1", Reason: "undo"})
		}),
		lookup: effectIn(chat.EffectCompensating),
	},
	{
		name:  "Correct",
		setup: setupAsking,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return nil, d.Correct(bg, db.Correction{RequestID: r.ID, Kind: "adjustment", Micros: 1, Actor: "user:1", Reason: "estimated", Key: "key-0001"})
		},
		lookup: func(d *db.DB, r chat.Request) error {
			rc, err := d.Receipt(bg, r.Key)
			if err == nil && len(rc.Ledger) != 2 {
				err = fmt.Errorf("the ledger has %d rows of it, want 2", len(rc.Ledger))
			}
			return err
		},
	},
}
