package db

import (
	"encoding/hex"
	"time"

	"semel/chat"
)

// A Decided is what was decided of one action that an answer asked for, and what a
// person said where one was asked.
type Decided struct {
	WebhookID   string
	Action      string
	Digest      string // hexadecimal
	Verdict     chat.Verdict
	Code        string
	Reason      string
	At          time.Time
	Said        string // approve or reject; "" while nobody has said anything
	Actor       string
	SaidReason  string
	SaidAt      time.Time
	Description map[string]string // as declared, by language
}

// A Sent is a row of the outbox with each time it was sent and each time somebody
// called back.
type Sent struct {
	Outgoing
	Deliveries []Try
	Callbacks  []Called
}

// A Try is one delivery.
type Try struct {
	N                  int64
	Reason, Target     string
	StartedAt, EndedAt time.Time
	Outcome            chat.Outcome // "" while it is under way
	Status             int
	Code, Detail       string
}

// A Called is a callback as it is stored.
type Called struct {
	At        time.Time
	MessageID string
	OK        bool
	Reason    string
	Decision  CallbackDecision
	Times     int64 // it came, under this message id
}

// followed adds to a receipt what followed from the answer.
func (c *conn) followed(rc *Receipt) error {
	id := []any{rc.Request.ID}
	titles := map[string]map[string]string{}
	for _, e := range rc.Record.Effects {
		titles[e.WebhookID] = e.Title
	}
	err := c.query(sqlSelectDecided, id, func(r row) error {
		var d Decided
		var digest []byte
		err := r.scan(&d.WebhookID, &d.Action, &digest, (*string)(&d.Verdict), &d.Code, &d.Reason, &d.At, &d.Said, &d.Actor, &d.SaidReason, &d.SaidAt)
		d.Digest, d.Description = hex.EncodeToString(digest), titles[d.WebhookID]
		rc.Decisions = append(rc.Decisions, d)
		return err
	})
	if err != nil {
		return err
	}
	list, err := c.allOutgoing(sqlSelectSent, id...)
	if err != nil {
		return err
	}
	for _, o := range list {
		s := Sent{Outgoing: o}
		if s.Deliveries, err = c.tries(sqlSelectTries, o.ID); err != nil {
			return err
		}
		err = c.query(sqlSelectCalled, []any{o.ID}, func(r row) error {
			var b Called
			err := r.scan(&b.At, &b.MessageID, &b.OK, &b.Reason, (*string)(&b.Decision), &b.Times)
			s.Callbacks = append(s.Callbacks, b)
			return err
		})
		if err != nil {
			return err
		}
		rc.Sent = append(rc.Sent, s)
	}
	return nil
}

// tries returns the deliveries of a row of the outbox that sql finds.
func (c *conn) tries(sql string, id int64) (list []Try, err error) {
	err = c.query(sql, []any{id}, func(r row) error {
		var t Try
		err := r.scan(&t.N, &t.Reason, &t.Target, &t.StartedAt, &t.EndedAt, &t.Outcome, &t.Status, &t.Code, &t.Detail)
		list = append(list, t)
		return err
	})
	return list, err
}

const (
	sqlSelectDecided = `SELECT d.webhook_id, d.action, d.digest, d.verdict, d.code, d.reason, d.at, v.verdict, v.actor, v.reason, v.at
		FROM decisions d LEFT JOIN verdicts v ON v.request_id = d.request_id AND v.position = d.position WHERE d.request_id = ? ORDER BY d.position`

	sqlSelectSent = sqlOutgoingColumns + ` WHERE o.request_id = ? ORDER BY o.id`

	sqlSelectTries = `SELECT n, reason, target, started_at, ended_at, outcome, status, code, detail FROM deliveries WHERE outbox_id = ? ORDER BY n`

	sqlSelectLastTries = sqlSelectTries + ` DESC LIMIT 5`

	sqlSelectCalled = `SELECT at, message_id, ok, reason, decision, times FROM callbacks WHERE outbox_id = ? ORDER BY n`
)
