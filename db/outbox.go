package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"semel/chat"
)

// Due returns what may be delivered at the given time, the longest waiting first, and
// when the next thing after it is due, or a callback overdue (zero when nothing waits). Nothing to one of the
// busy destinations is among it. An action waits until every earlier one of its answer
// is delivered, or settled; nothing else waits for anything.
func (d *DB) Due(ctx context.Context, now time.Time, busy []string, limit int) (list []Outgoing, next time.Time, err error) {
	names := jsonNames(busy)
	err = d.read(ctx, func(c *conn) (err error) {
		if list, err = c.allOutgoing(sqlSelectDue, now, names, limit); err != nil {
			return err
		}
		var called time.Time
		if _, err = c.queryRow(sqlSelectNextDue, []any{now}, &next); err != nil {
			return err
		}
		if _, err = c.queryRow(sqlSelectNextCallback, nil, &called); err == nil && !called.IsZero() && (next.IsZero() || called.Before(next)) {
			next = called
		}
		return err
	})
	return list, next, err
}

func jsonNames(names []string) string {
	b, err := json.Marshal(append([]string{}, names...))
	if err != nil {
		panic(err) // a list of texts
	}
	return string(b)
}

// A Delivery is the start of one: who sends, for how long nobody else may, and where
// to, for people.
type Delivery struct {
	Owner  string
	Lease  time.Duration
	Target string
}

// StartDelivery makes v.Owner the one who delivers o, durable before the first byte
// leaves. Errors: ErrFenced.
//
// If we die after its commit, the delivery is found open, and what became of it is
// unknown.
func (d *DB) StartDelivery(ctx context.Context, o Outgoing, v Delivery) (Outgoing, error) {
	return d.moveOutgoing(ctx, o, func(tx *Tx, o *Outgoing) error {
		reason := "retry"
		switch {
		case o.Attempt == 0:
			reason = "first"
		case o.Tries == 0:
			reason = "redrive"
		}
		if o.FirstAt.IsZero() {
			o.FirstAt = tx.now
		}
		o.Attempt++
		o.Tries++
		o.Owner, o.LeaseUntil, o.NextAt = v.Owner, tx.now.Add(v.Lease), time.Time{}
		if err := tx.move(o, chat.EffectDelivering, o.Code, sqlStartDelivery, o.Attempt, o.Tries, o.Owner, o.LeaseUntil, o.FirstAt); err != nil {
			return err
		}
		_, err := tx.exec(sqlInsertDelivery, o.ID, o.Attempt, reason, v.Owner, v.Target, tx.now, tx.n)
		if err != nil {
			return fmt.Errorf("insert delivery: %w", err)
		}
		return nil
	})
}

// A DeliveryEnd says what became of a delivery and what follows.
type DeliveryEnd struct {
	Outcome chat.Outcome // ok, none, definite or unknown
	Status  int          // HTTP or SMTP; 0 without one
	Code    string
	Detail  string
	Actor   string
	// After anything but ok: again at Retry, or given up where that is zero.
	Retry   time.Time
	GiveUp  string // the code it is given up with
	Disable bool   // the destination wants no more
}

// EndDelivery closes the delivery that o describes and moves o on, unless a callback
// was quicker: then only the delivery is closed. It returns o as it is then. Errors:
// ErrFenced when that delivery is closed.
func (d *DB) EndDelivery(ctx context.Context, o Outgoing, e DeliveryEnd) (Outgoing, error) {
	return d.moveOutgoing(ctx, o, func(tx *Tx, o *Outgoing) error {
		n, err := tx.exec(sqlCloseDelivery, tx.now, e.Outcome, nullZero(e.Status), nullString(e.Code), nullString(e.Detail), o.ID, o.Attempt)
		if err != nil {
			return fmt.Errorf("close delivery: %w", err)
		}
		if n != 1 {
			return fmt.Errorf("delivery %d of %s: %w", o.Attempt, o.WebhookID, ErrFenced)
		}
		if e.Disable {
			if _, err := tx.exec(sqlDisableDestination, o.Destination, tx.now); err != nil {
				return err
			}
		}
		now, err := tx.outgoing(sqlSelectOutgoing, o.ID)
		if err != nil {
			return err
		}
		if now.State != chat.EffectDelivering || now.Attempt != o.Attempt {
			*o = now
			return nil
		}
		*o = now
		o.Owner = ""
		switch {
		case e.Outcome == chat.OutcomeOK && o.Awaits:
			var wait int64
			if _, err := tx.queryRow(sqlSelectCallbackWait, []any{o.ID}, &wait); err != nil {
				return err
			}
			o.DueAt = tx.now.Add(time.Duration(wait) * time.Millisecond)
			return tx.move(o, chat.EffectAwaiting, "", sqlAwait, o.DueAt)
		case e.Outcome == chat.OutcomeOK:
			return tx.settled(o, chat.EffectDelivered, "", e.Actor)
		case e.Retry.IsZero():
			return tx.move(o, chat.EffectDead, e.GiveUp, sqlMove)
		}
		o.NextAt = e.Retry
		return tx.move(o, chat.EffectPending, e.Code, sqlWait, e.Retry)
	})
}

// GiveUp makes the pending o dead without another delivery. Errors: ErrFenced.
func (d *DB) GiveUp(ctx context.Context, o Outgoing, code string) (Outgoing, error) {
	return d.moveOutgoing(ctx, o, func(tx *Tx, o *Outgoing) error { return tx.move(o, chat.EffectDead, code, sqlMove) })
}

// moveOutgoing runs fn, which changes a copy of o, as one transaction, and returns
// that copy when it is durable.
func (d *DB) moveOutgoing(ctx context.Context, o Outgoing, fn func(*Tx, *Outgoing) error) (Outgoing, error) {
	changed := o
	if err := d.write(ctx, func(tx *Tx) error { changed = o; return fn(tx, &changed) }); err != nil {
		return o, err
	}
	return changed, nil
}

// Delivering returns what is being delivered, by whoever.
func (d *DB) Delivering(ctx context.Context) (list []Outgoing, err error) {
	err = d.read(ctx, func(c *conn) error {
		list, err = c.allOutgoing(sqlSelectDelivering)
		return err
	})
	return list, err
}

// Outgoing returns the row of the outbox with this webhook id. Errors: ErrNotFound.
func (d *DB) Outgoing(ctx context.Context, webhookID string) (o Outgoing, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		o, err = c.outgoing(sqlSelectByWebhookID, webhookID)
		return err
	})
	return o, err
}

// DestinationDisabled reports whether a destination said that it wants no more.
func (d *DB) DestinationDisabled(ctx context.Context, name string) (disabled bool, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		disabled, err = c.queryRow(sqlSelectDisabled, []any{name}, new(int))
		return err
	})
	return disabled, err
}

// TimeOut gives up waiting for callbacks that are due, a slice a call, and reports
// whether there may be more. It returns what timed out.
func (d *DB) TimeOut(ctx context.Context) (list []Outgoing, more bool, err error) {
	var due time.Time
	err = d.readOne(ctx, func(c *conn) error {
		_, err := c.queryRow(sqlSelectNextCallback, nil, &due)
		return err
	})
	if err != nil || due.IsZero() || due.After(time.Now()) {
		return nil, false, err // nothing is written for nothing
	}
	err = d.write(ctx, func(tx *Tx) error {
		list, err = tx.allOutgoing(sqlSelectOverdue, tx.now, sliceSize)
		for i := range list {
			if err == nil {
				err = tx.move(&list[i], chat.EffectTimedOut, "callback_timeout", sqlMove)
			}
		}
		more = len(list) == sliceSize
		return err
	})
	return list, more, err
}

// A CallbackDecision says what was made of a callback.
type CallbackDecision string

const (
	CallbackFirst         CallbackDecision = "first"         // the verdict
	CallbackDuplicate     CallbackDecision = "duplicate"     // says it again
	CallbackContradiction CallbackDecision = "contradiction" // says the opposite: kept, and somebody should look
	CallbackLate          CallbackDecision = "late"          // the effect was settled or being undone without it: only recorded
)

// A Callback is what a receiver says of an effect, verified.
type Callback struct {
	WebhookID string // of the effect
	MessageID string // the sender's own
	OK        bool
	Reason    string
	RequestID string // what it believes it is about; "" is not compared
}

// ErrOtherRequest: a callback names another request than its effect is of.
var ErrOtherRequest = errors.New("the effect is of another request")

// Callback binds cb to its effect: the first verdict settles it, whether its delivery
// is marked yet or not, or starts its compensation. It returns what was made of it and
// the effect as it is then. Errors: ErrNotFound, ErrOtherRequest.
func (d *DB) Callback(ctx context.Context, cb Callback) (decision CallbackDecision, o Outgoing, err error) {
	err = d.write(ctx, func(tx *Tx) (err error) {
		decision, o, err = tx.callback(cb)
		return err
	})
	if err != nil {
		return "", Outgoing{}, err
	}
	return decision, o, nil
}

func (tx *Tx) callback(cb Callback) (decision CallbackDecision, o Outgoing, err error) {
	if o, err = tx.outgoing(sqlSelectByWebhookID, cb.WebhookID); err != nil {
		return "", o, err
	}
	if o.Kind != KindEffect {
		return "", o, ErrNotFound
	}
	r, err := tx.request(o.RequestID)
	if err != nil {
		return "", o, err
	}
	if cb.RequestID != "" && cb.RequestID != r.Key.RequestID {
		return "", o, ErrOtherRequest
	}
	var said CallbackDecision
	again, err := tx.queryRow(sqlSelectCallback, []any{o.ID, cb.MessageID}, (*string)(&said))
	if err != nil {
		return "", o, err
	}
	if again {
		_, err := tx.exec(sqlCountCallback, o.ID, cb.MessageID)
		if said == CallbackFirst {
			said = CallbackDuplicate
		}
		return said, o, err
	}
	var first bool
	judged, err := tx.queryRow(sqlSelectFirstCallback, []any{o.ID}, &first)
	if err != nil {
		return "", o, err
	}
	switch {
	case judged && first == cb.OK:
		decision = CallbackDuplicate
	case judged:
		decision = CallbackContradiction
	case o.State.Settled() || o.State == chat.EffectCompensating:
		decision = CallbackLate
	default:
		decision = CallbackFirst
	}
	if _, err := tx.exec(sqlInsertCallback, o.ID, cb.MessageID, cb.OK, cb.Reason, decision, tx.now, tx.n); err != nil {
		return "", o, fmt.Errorf("insert callback: %w", err)
	}
	if tx.tells {
		tx.tell("called back", o.RequestID, "webhook_id", o.WebhookID, "message_id", cb.MessageID, "ok", cb.OK, "decision", decision)
	}
	if decision != CallbackFirst {
		return decision, o, nil
	}
	const actor = "callback"
	switch {
	case cb.OK:
		err = tx.settled(&o, chat.EffectDelivered, "", actor)
	case o.Compensates:
		err = tx.compensate(&o, "refused", cb.Reason)
	default:
		err = tx.move(&o, chat.EffectRefused, "refused", sqlMove)
	}
	return decision, o, err
}

// What a person does about an effect that stays open.
const (
	Redrive    = "redrive"    // send it again, under the same id
	Abandon    = "abandon"    // give it up
	Compensate = "compensate" // undo it, where that is declared
)

// A Resolution is what a person does about a row of the outbox, and why.
type Resolution struct {
	WebhookID string
	Do        string // Redrive, Abandon or Compensate
	Actor     string
	Reason    string
}

// Can reports whether a person can do that about o as it stands.
func (o Outgoing) Can(do string) bool {
	switch do {
	case Redrive: // who said no is not asked again
		return o.State == chat.EffectDead || o.State == chat.EffectTimedOut
	case Abandon: // of what is being undone, that is given up instead
		return o.State != chat.EffectCompensating && o.State.CanBecome(chat.EffectAbandoned)
	case Compensate:
		return o.Compensates && o.Attempt > 0 && o.State != chat.EffectDelivering && o.State.CanBecome(chat.EffectCompensating)
	}
	return false
}

// ErrNotNow: what is asked for is not possible as the effect stands: it is being
// delivered, or settled, or nothing undoes it.
var ErrNotNow = errors.New("that cannot be done as it stands")

// Resolve does what a person decided, and writes down who and why. It returns the row
// as it is then. Doing again what was done is no error and changes nothing. Errors:
// ErrNotFound, ErrNotNow.
func (d *DB) Resolve(ctx context.Context, s Resolution) (o Outgoing, err error) {
	err = d.write(ctx, func(tx *Tx) (err error) {
		o, err = tx.resolve(s)
		return err
	})
	if err != nil {
		return Outgoing{}, err
	}
	return o, nil
}

func (tx *Tx) resolve(s Resolution) (o Outgoing, err error) {
	if o, err = tx.outgoing(sqlSelectByWebhookID, s.WebhookID); err != nil {
		return o, err
	}
	switch { // it is done
	case s.Do == Redrive && o.State == chat.EffectPending && o.Tries == 0 && o.Attempt > 0,
		s.Do == Abandon && o.State == chat.EffectAbandoned,
		s.Do == Compensate && (o.State == chat.EffectCompensating || o.State == chat.EffectCompensated):
		return o, nil
	case !o.Can(s.Do):
		return o, ErrNotNow
	}
	switch s.Do {
	case Redrive:
		if _, err := tx.exec(sqlEnableDestination, o.Destination); err != nil {
			return o, err
		}
		o.Tries, o.NextAt, o.DoubtedAt = 0, tx.now, time.Time{}
		err = tx.move(&o, chat.EffectPending, "", sqlRedrive, tx.now)
	case Abandon:
		err = tx.settled(&o, chat.EffectAbandoned, "abandoned", s.Actor)
	case Compensate:
		err = tx.compensate(&o, "compensated", s.Reason)
	}
	if err != nil {
		return o, err
	}
	return o, tx.audit(s.Actor, s.Do, o.WebhookID, s.Reason, "")
}

// audit writes down what a person did.
func (tx *Tx) audit(actor, action, object, reason, key string) error {
	if _, err := tx.exec(sqlInsertAudit, tx.now, actor, action, object, reason, nullString(key), tx.n); err != nil {
		return fmt.Errorf("insert audit: %w", err)
	}
	return nil
}

// An OutboxFilter chooses rows of the outbox.
type OutboxFilter struct {
	State  chat.EffectState // "" is any
	Before int64            // rows with a smaller id; 0 is from the newest
	Limit  int
}

// Outbox returns rows of the outbox, the newest first.
func (d *DB) Outbox(ctx context.Context, f OutboxFilter) (list []Outgoing, err error) {
	if f.Before == 0 {
		f.Before = 1 << 62
	}
	err = d.read(ctx, func(c *conn) error {
		sql, args := sqlSelectOutbox, []any{f.Before, f.Limit}
		if f.State != "" {
			sql, args = sqlSelectOutboxIn, []any{f.Before, f.Limit, f.State}
		}
		if list, err = c.allOutgoing(sql, args...); err != nil {
			return err
		}
		for i := range list {
			r, err := c.request(list[i].RequestID)
			if err != nil {
				return err
			}
			list[i].Key = r.Key
			if list[i].Last, err = c.tries(sqlSelectLastTries, list[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// Troubled returns the webhook ids of what waits for a person in a state, the oldest
// first, up to most.
func (d *DB) Troubled(ctx context.Context, state chat.EffectState, most int) (ids []string, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		return c.query(sqlSelectTroubled, []any{state, most}, func(r row) error {
			var id string
			err := r.scan(&id)
			ids = append(ids, id)
			return err
		})
	})
	return ids, err
}

func nullZero(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

const (
	sqlSelectDue = sqlOutgoingColumns + ` WHERE o.state = 'pending' AND o.next_at <= ?1 AND o.destination NOT IN (SELECT value FROM json_each(?2))` + sqlInTurn + `
		ORDER BY o.next_at LIMIT ?3`

	// What waits for an earlier action of its answer is woken by that one, not by time.
	sqlSelectNextDue = `SELECT next_at FROM outbox o WHERE o.state = 'pending' AND o.next_at > ?1` + sqlInTurn + ` ORDER BY o.next_at LIMIT 1`

	sqlSelectNextCallback = `SELECT due_at FROM outbox WHERE state = 'awaiting' ORDER BY due_at LIMIT 1`

	sqlInTurn = ` AND (o.position = 0 OR o.kind <> 'effect' OR NOT EXISTS (
		SELECT 1 FROM decisions d LEFT JOIN verdicts v ON v.request_id = d.request_id AND v.position = d.position
		LEFT JOIN outbox e ON e.request_id = d.request_id AND e.kind = 'effect' AND e.position = d.position
		WHERE d.request_id = o.request_id AND d.position < o.position AND (
			(d.verdict = 'ask' AND v.verdict IS NULL) OR e.state IN ('pending', 'delivering') OR e.state = 'dead')))`

	sqlStartDelivery = `UPDATE outbox SET attempt = ?, tries = ?, owner = ?, lease_until = ?, first_at = ?, next_at = NULL,` + sqlMoved

	sqlInsertDelivery = `INSERT INTO deliveries (outbox_id, n, reason, owner, target, started_at, tx) VALUES (?, ?, ?, ?, ?, ?, ?)`

	sqlCloseDelivery = `UPDATE deliveries SET ended_at = ?, outcome = ?, status = ?, code = ?, detail = ?
		WHERE outbox_id = ? AND n = ? AND outcome IS NULL`

	sqlSelectCallbackWait = `SELECT callback_ms FROM outbox WHERE id = ?`

	sqlAwait = `UPDATE outbox SET owner = NULL, lease_until = NULL, due_at = ?,` + sqlMoved

	sqlWait = `UPDATE outbox SET owner = NULL, lease_until = NULL, next_at = ?,` + sqlMoved

	sqlRedrive = `UPDATE outbox SET tries = 0, doubted_at = NULL, next_at = ?,` + sqlMoved

	sqlSelectOutgoing = sqlOutgoingColumns + ` WHERE o.id = ?`

	sqlSelectByWebhookID = sqlOutgoingColumns + ` WHERE o.webhook_id = ?`

	sqlSelectDelivering = sqlOutgoingColumns + ` WHERE o.state = 'delivering' ORDER BY o.id`

	sqlSelectOverdue = sqlOutgoingColumns + ` WHERE o.state = 'awaiting' AND o.due_at <= ? ORDER BY o.due_at LIMIT ?`

	sqlDisableDestination = `INSERT INTO disabled_destinations (name, at) VALUES (?, ?) ON CONFLICT DO NOTHING`

	sqlEnableDestination = `DELETE FROM disabled_destinations WHERE name = ?`

	sqlSelectDisabled = `SELECT 1 FROM disabled_destinations WHERE name = ?`

	sqlSelectCallback = `SELECT decision FROM callbacks WHERE outbox_id = ? AND message_id = ?`

	sqlSelectFirstCallback = `SELECT ok FROM callbacks WHERE outbox_id = ? AND decision = 'first'`

	sqlCountCallback = `UPDATE callbacks SET times = times + 1 WHERE outbox_id = ? AND message_id = ?`

	sqlInsertCallback = `INSERT INTO callbacks (outbox_id, n, message_id, ok, reason, decision, at, tx)
		SELECT ?1, coalesce(max(n), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7 FROM callbacks WHERE outbox_id = ?1`

	sqlInsertAudit = `INSERT INTO audit (at, actor, action, object, reason, key, tx) VALUES (?, ?, ?, ?, ?, ?, ?)`

	sqlSelectTroubled = `SELECT webhook_id FROM outbox WHERE (state IN ('dead', 'timed_out') OR state = 'refused') AND state = ? ORDER BY id LIMIT ?`

	sqlSelectOutbox = sqlOutgoingColumns + ` WHERE o.id < ? ORDER BY o.id DESC LIMIT ?`

	sqlSelectOutboxIn = sqlOutgoingColumns + ` WHERE o.id < ?1 AND o.state = ?3 ORDER BY o.id DESC LIMIT ?2`
)
