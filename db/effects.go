package db

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"semel/chat"
)

// Kinds of rows of the outbox.
const (
	KindEffect       = "effect"       // an action that an answer asked for
	KindCompensation = "compensation" // what undoes one
	KindCharge       = "charge"       // what a billing system is told
)

// compensationSuffix makes the name of a destination of compensations from an action's.
const compensationSuffix = "/compensate"

// CompensationOf is the name of the destination that undoes an action.
func CompensationOf(action string) string { return action + compensationSuffix }

// An Outgoing is a row of the outbox: something that leaves for somebody else.
type Outgoing struct {
	ID, RequestID int64
	Kind          string
	Position      int64
	WebhookID     string
	Destination   string
	Payload       string
	Awaits        bool
	Compensates   bool
	State         chat.EffectState
	Steps         int64
	Attempt       int64 // the last delivery
	Tries         int64 // deliveries since it was written, or a person sent it again
	Owner         string
	LeaseUntil    time.Time
	NextAt, DueAt time.Time
	FirstAt       time.Time // the first delivery; zero before
	DoubtedAt     time.Time // what a restore lost may have delivered it, from then on; zero: nothing is lost
	Code          string    // of the last trouble
	Unknown       bool      // a delivery may have been executed although nobody said so
	CreatedAt     time.Time
	SettledAt     time.Time
	Key           chat.Key // of its request; only lists for people have it
	Last          []Try    // the newest deliveries, the newest first; likewise
	digest        []byte   // as stored
}

// Sound reports whether o is what was stored. What is not must not be sent: a bit has
// flipped, or somebody wrote into the file.
func (o Outgoing) Sound() bool { return bytes.Equal(o.digest, o.sum()) }

func (o Outgoing) sum() []byte {
	sum := sha256.Sum256([]byte(o.WebhookID + "\x00" + o.Destination + "\x00" + o.Payload))
	return sum[:]
}

// follow writes what follows from an answer besides itself, and reports whether any of
// it is still to be settled.
func (tx *Tx) follow(r chat.Request, a Answer) (open bool, err error) {
	for _, d := range a.Decisions {
		id := newWebhookID()
		if _, err := tx.exec(sqlInsertDecision, r.ID, d.Position, id, d.Action, d.Arguments, d.Digest[:], d.Verdict, d.Code, d.Reason, tx.now, tx.n); err != nil {
			return false, fmt.Errorf("insert decision: %w", err)
		}
		if tx.tells {
			tx.tell("decision", r.ID, "webhook_id", id, "action", d.Action, "verdict", d.Verdict, "code", d.Code)
		}
		switch d.Verdict {
		case chat.VerdictAuto:
			open = true
			action, _ := a.Declared.Action(d.Action)
			if err := tx.sendAction(r, d.Position, id, d.Action, d.Arguments, action); err != nil {
				return false, err
			}
		case chat.VerdictAsk:
			open = true
		}
	}
	if a.ChargeTo == "" {
		return open, nil
	}
	cost := chat.Money{Currency: a.Currency, Micros: r.Price.Cost(a.Usage)}
	return true, tx.send(Outgoing{
		RequestID: r.ID, Kind: KindCharge, WebhookID: newWebhookID(), Destination: a.ChargeTo,
		Payload: chat.ChargePayload(r.Key, r.Model, a.Usage, cost, tx.now),
	}, 0)
}

func newWebhookID() string { return "msg_" + chat.NewID() }

func (tx *Tx) sendAction(r chat.Request, position int, webhookID, name, arguments string, a chat.Action) error {
	var wait time.Duration
	if a.AwaitCallback {
		wait = a.CallbackTimeout
	}
	return tx.send(Outgoing{
		RequestID: r.ID, Kind: KindEffect, Position: int64(position), WebhookID: webhookID, Destination: name,
		Payload: chat.ActionPayload(r.Key, name, arguments, tx.now), Awaits: a.AwaitCallback, Compensates: a.Compensates,
	}, wait)
}

// send writes o into the outbox. What is in it leaves, sooner or later: the relay
// needs nothing but the row.
func (tx *Tx) send(o Outgoing, wait time.Duration) error {
	_, err := tx.exec(sqlInsertOutbox, o.RequestID, o.Kind, o.Position, o.WebhookID, o.Destination, o.Payload, o.Awaits,
		wait.Milliseconds(), o.Compensates, tx.now, tx.now, tx.now, tx.n, o.sum())
	if err != nil {
		return fmt.Errorf("insert outbox: %w", err)
	}
	if tx.tells {
		tx.tellEffect(o, "new", chat.EffectPending)
	}
	return nil
}

// declare returns the row of declarations that d is.
func (tx *Tx) declare(d *chat.Declarations) (id int64, err error) {
	body := d.Frozen()
	if body == nil {
		body = []byte("[]")
	}
	sum := sha256.Sum256(body)
	found, err := tx.queryRow(sqlSelectDeclarations, []any{sum[:]}, &id)
	if err != nil || found {
		return id, err
	}
	return tx.insert(sqlInsertDeclarations, sum[:], string(body), tx.now)
}

// move changes the state of o: from the state and step that the caller believes in,
// or not at all. set are further columns, each ending with a comma. Errors: ErrFenced.
func (tx *Tx) move(o *Outgoing, to chat.EffectState, code string, sql string, args ...any) error {
	if !o.State.CanBecome(to) {
		panic(fmt.Sprintf("db: no edge of an effect from %s to %s", o.State, to))
	}
	n, err := tx.exec(sql, append(args, to, code, tx.now, o.ID, o.State, o.Steps)...)
	if err != nil {
		return fmt.Errorf("effect %s to %s: %w", o.State, to, err)
	}
	if n != 1 {
		return ErrFenced
	}
	from := o.State
	o.State, o.Code = to, code
	o.Steps++
	if tx.tells {
		tx.tellEffect(*o, from, to)
	}
	return nil
}

// settled moves o to a state after which nothing follows, and the request with it when
// all its effects are: then it is committed, in the same transaction.
func (tx *Tx) settled(o *Outgoing, to chat.EffectState, code, actor string) error {
	if err := tx.move(o, to, code, sqlSettle, tx.now); err != nil {
		return err
	}
	if o.Kind == KindCompensation {
		undone, err := tx.outgoing(sqlSelectCompensated, o.RequestID, o.Position)
		if err != nil {
			return err
		}
		end := chat.EffectCompensated
		if to == chat.EffectAbandoned {
			end = chat.EffectAbandoned
		}
		if undone.State == chat.EffectCompensating {
			return tx.settled(&undone, end, code, actor)
		}
		return nil
	}
	return tx.commitIfSettled(o.RequestID, actor)
}

// commitIfSettled commits an acknowledged request whose effects are all settled.
func (tx *Tx) commitIfSettled(id int64, actor string) error {
	open, err := tx.queryRow(sqlSelectUnsettled, []any{id}, new(int))
	if err != nil || open {
		return err
	}
	r, err := tx.request(id)
	if err != nil || r.State != chat.StateAcknowledged {
		return err
	}
	return tx.transition(change{
		r: &r, to: chat.StateCommitted, actor: actor, reason: "effects settled",
		sql: sqlCommit, args: []any{tx.now, tx.now},
	})
}

// request returns a request, whether its conversation is deleted or not.
func (c *conn) request(id int64) (r chat.Request, err error) {
	found, err := c.queryRow(sqlLoadRequest, []any{id}, append(requestDest(&r), new(bool))...)
	if err == nil && !found {
		err = ErrNotFound
	}
	return r, err
}

// compensate starts the compensation of o. It exists once: the outbox has one row of
// it, and the edge to compensating is walked once.
func (tx *Tx) compensate(o *Outgoing, code, reason string) error {
	if err := tx.move(o, chat.EffectCompensating, code, sqlMove); err != nil {
		return err
	}
	r, err := tx.request(o.RequestID)
	if err != nil {
		return err
	}
	var action, arguments string
	var digest []byte
	if _, err := tx.queryRow(sqlSelectDecision, []any{o.RequestID, o.Position}, &action, &arguments, &digest); err != nil {
		return err
	}
	if err := soundAction(o.WebhookID, action, arguments, digest); err != nil {
		return err
	}
	return tx.send(Outgoing{
		RequestID: o.RequestID, Kind: KindCompensation, Position: o.Position, WebhookID: newWebhookID(), Destination: CompensationOf(action),
		Payload: chat.CompensationPayload(r.Key, action, arguments, o.WebhookID, reason, tx.now),
	}, 0)
}

// ErrAlreadyDecided: somebody has said the opposite.
var ErrAlreadyDecided = errors.New("it is decided otherwise")

// ErrDigest: a verdict is about other arguments than those there are.
var ErrDigest = errors.New("the verdict is about something else")

// A Verdict is what a person says of an action that asks.
type Verdict struct {
	UserID    int64 // whose request it must be
	WebhookID string
	Approve   bool
	Digest    string // hexadecimal, of what was shown; "" is not compared
	Actor     string
	Reason    string
}

// Decide makes v durable, and with an approval the row of the outbox. It returns the
// request as it is then. The same verdict again changes nothing. Errors: ErrNotFound,
// ErrGone when the conversation is deleted, ErrAlreadyDecided, ErrDigest.
func (d *DB) Decide(ctx context.Context, v Verdict) (r chat.Request, err error) {
	err = d.write(ctx, func(tx *Tx) (err error) {
		r, err = tx.verdict(v)
		return err
	})
	if err != nil {
		return chat.Request{}, err
	}
	return r, nil
}

func (tx *Tx) verdict(v Verdict) (r chat.Request, err error) {
	var id int64
	var position int
	var action, arguments, rule, said, declared string
	var digest []byte
	found, err := tx.queryRow(sqlSelectVerdict, []any{v.WebhookID}, &id, &position, &action, &arguments, &digest, &rule, &said, &declared)
	if err != nil {
		return r, err
	}
	if !found {
		return r, ErrNotFound
	}
	if r, err = tx.load(id); err != nil && !errors.Is(err, ErrGone) {
		return r, err
	}
	if r.Key.UserID != v.UserID {
		return chat.Request{}, ErrNotFound // nor does a stranger learn that it was deleted
	}
	if err != nil {
		return r, err
	}
	want := "reject"
	if v.Approve {
		want = "approve"
	}
	switch {
	case v.Digest != "" && v.Digest != hex.EncodeToString(digest):
		return r, ErrDigest
	case said == want:
		return r, nil
	case said != "" || rule != string(chat.VerdictAsk):
		return r, ErrAlreadyDecided
	}
	if v.Approve {
		if err := soundAction(v.WebhookID, action, arguments, digest); err != nil {
			return r, err
		}
	}
	if _, err := tx.exec(sqlInsertVerdict, id, position, want, digest, v.Actor, v.Reason, tx.now, tx.n); err != nil {
		return r, fmt.Errorf("insert verdict: %w", err)
	}
	if tx.tells {
		tx.tell("verdict", id, "webhook_id", v.WebhookID, "verdict", want, "actor", v.Actor)
	}
	if v.Approve {
		a, err := declaredAs(declared, action)
		if err != nil {
			return r, fmt.Errorf("declarations of request %d: %w", id, err)
		}
		return r, tx.sendAction(r, position, v.WebhookID, action, arguments, a)
	}
	if err := tx.commitIfSettled(id, v.Actor); err != nil {
		return r, err
	}
	return tx.request(id)
}

// soundAction returns an error for an action that is not the one that was decided about.
func soundAction(webhookID, action, arguments string, digest []byte) error {
	if sum := chat.DigestAction(action, arguments); !bytes.Equal(sum[:], digest) {
		return unsound("action", webhookID)
	}
	return nil
}

// rejectUndecided rejects what a person was asked and need not say any more: of one
// turn when question is set, of the whole conversation when it is 0.
func (tx *Tx) rejectUndecided(conversation, question int64, actor, reason string) error {
	type undecided struct {
		request  int64
		position int64
		digest   []byte
	}
	var list []undecided
	err := tx.query(sqlSelectUndecided, []any{conversation, question}, func(r row) error {
		var u undecided
		err := r.scan(&u.request, &u.position, &u.digest)
		list = append(list, u)
		return err
	})
	if err != nil {
		return err
	}
	for i, u := range list {
		if _, err := tx.exec(sqlInsertVerdict, u.request, u.position, "reject", u.digest, actor, reason, tx.now, tx.n); err != nil {
			return fmt.Errorf("reject as %s: %w", reason, err)
		}
		if tx.tells {
			tx.tell("verdict", u.request, "position", u.position, "verdict", "reject", "actor", actor, "reason", reason)
		}
		if i+1 == len(list) || list[i+1].request != u.request {
			if err := tx.commitIfSettled(u.request, actor); err != nil {
				return err
			}
		}
	}
	return nil
}

// effects returns the actions of an answered request as the API shows them.
func (c *conn) effects(id int64) ([]chat.Effect, error) {
	list := []chat.Effect{}
	var declared string
	err := c.query(sqlSelectEffects, []any{id}, func(r row) error {
		var e chat.Effect
		var arguments, rule, said, state, code, why, words string
		var digest []byte
		var cb chat.Callback
		var called bool
		var undo chat.Compensation
		err := r.scan(&e.ID, &e.Action, &arguments, &digest, &rule, &code, &e.Reason, &said, &e.DecidedBy, &words, &e.DecidedAt.Time,
			&state, &e.Attempts, &why, &e.LastStatus, &called, &cb.OK, &cb.Reason, &cb.At.Time,
			&undo.WebhookID, (*string)(&undo.State), &undo.Attempts, &undo.Code, &undo.LastStatus, &declared)
		e.DecisionID, e.WebhookID, e.Digest, e.Verdict, e.Code = e.ID, e.ID, hex.EncodeToString(digest), rule, code
		if arguments != "" {
			e.Arguments = json.RawMessage(arguments)
		}
		if said != "" {
			e.Verdict, e.Reason = said, words
		}
		switch {
		case state != "":
			e.State, e.Code = chat.EffectState(state), why
		case said == "reject" || rule != string(chat.VerdictAsk):
			e.State = chat.EffectRejected
		default:
			e.State = chat.EffectUndecided
		}
		if called {
			e.Callback = &cb
		}
		if undo.WebhookID != "" {
			e.Compensation = &undo
		}
		list = append(list, e)
		if err == nil {
			err = soundAction(e.ID, e.Action, arguments, digest)
		}
		return err
	})
	if err != nil || declared == "" {
		return list, err
	}
	for i := range list {
		a, err := declaredAs(declared, list[i].Action)
		if err != nil {
			return nil, fmt.Errorf("declarations of request %d: %w", id, err)
		}
		list[i].To, list[i].Title, list[i].Compensates = a.To, a.Description, a.Compensates
	}
	return list, nil
}

// declaredAs returns an action as it was declared when an answer asked for it; of one
// that was not, nothing. What is stored was checked: its schema is not compiled again.
func declaredAs(frozen, name string) (chat.Action, error) {
	var list []chat.Action
	if err := json.Unmarshal([]byte(frozen), &list); err != nil {
		return chat.Action{}, err
	}
	for _, a := range list {
		if a.Name == name {
			return a, nil
		}
	}
	return chat.Action{}, nil
}

func outgoingDest(o *Outgoing) []any {
	return []any{&o.ID, &o.RequestID, &o.Kind, &o.Position, &o.WebhookID, &o.Destination, &o.Payload, &o.Awaits, &o.Compensates,
		(*string)(&o.State), &o.Steps, &o.Attempt, &o.Tries, &o.Owner, &o.LeaseUntil, &o.NextAt, &o.DueAt, &o.FirstAt, &o.Code, &o.CreatedAt, &o.SettledAt, &o.DoubtedAt, &o.digest, &o.Unknown}
}

// outgoing returns the one row of the outbox that sql finds. Errors: ErrNotFound.
func (c *conn) outgoing(sql string, args ...any) (o Outgoing, err error) {
	found, err := c.queryRow(sql, args, outgoingDest(&o)...)
	if err == nil && !found {
		err = ErrNotFound
	}
	return o, err
}

func (c *conn) allOutgoing(sql string, args ...any) (list []Outgoing, err error) {
	err = c.query(sql, args, func(r row) error {
		var o Outgoing
		err := r.scan(outgoingDest(&o)...)
		list = append(list, o)
		return err
	})
	return list, err
}

// sqlOutgoingColumns ends with whether a delivery may have been executed although
// nobody said so.
const sqlOutgoingColumns = `SELECT o.id, o.request_id, o.kind, o.position, o.webhook_id, o.destination, o.payload, o.awaits, o.compensates,
	o.state, o.steps, o.attempt, o.tries, o.owner, o.lease_until, o.next_at, o.due_at, o.first_at, o.code, o.created_at, o.settled_at,
	o.doubted_at, o.sha256, o.doubted_at IS NOT NULL OR EXISTS (SELECT 1 FROM deliveries d WHERE d.outbox_id = o.id AND d.outcome = 'unknown') FROM outbox o`

const (
	sqlInsertDecision = `INSERT INTO decisions (request_id, position, webhook_id, action, arguments, digest, verdict, code, reason, at, tx)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	// A decision that a backup had may have been approved in what was lost.
	sqlInsertOutbox = `INSERT INTO outbox (request_id, kind, position, webhook_id, destination, payload, awaits, callback_ms, compensates,
		state, next_at, created_at, updated_at, tx, sha256, doubted_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'pending', ?10, ?11, ?12, ?13, ?14,
		(SELECT min(s.backup_at) FROM restores s JOIN decisions d ON d.request_id = ?1 AND d.position = ?3 AND d.tx < s.tx WHERE ?2 = 'effect'))`

	sqlSelectDeclarations = `SELECT id FROM declarations WHERE sha256 = ?`

	sqlInsertDeclarations = `INSERT INTO declarations (sha256, body, created_at) VALUES (?, ?, ?)`

	sqlSelectUnsettled = `SELECT 1 FROM decisions d WHERE d.request_id = ?1 AND d.verdict = 'ask' AND NOT EXISTS (
		SELECT 1 FROM verdicts v WHERE v.request_id = d.request_id AND v.position = d.position)
		UNION ALL SELECT 1 FROM outbox WHERE request_id = ?1 AND kind <> 'compensation' AND settled_at IS NULL LIMIT 1`

	sqlSelectDecision = `SELECT action, arguments, digest FROM decisions WHERE request_id = ? AND position = ?`

	sqlSelectVerdict = `SELECT d.request_id, d.position, d.action, d.arguments, d.digest, d.verdict, v.verdict, l.body
		FROM decisions d LEFT JOIN verdicts v ON v.request_id = d.request_id AND v.position = d.position
		LEFT JOIN snapshots s ON s.request_id = d.request_id LEFT JOIN declarations l ON l.id = s.declarations_id WHERE d.webhook_id = ?`

	sqlInsertVerdict = `INSERT INTO verdicts (request_id, position, verdict, digest, actor, reason, at, tx) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`

	// Who has something undecided is acknowledged, and so in the partial index requests_open.
	sqlSelectUndecided = `SELECT d.request_id, d.position, d.digest FROM requests r JOIN decisions d ON d.request_id = r.id
		LEFT JOIN verdicts v ON v.request_id = d.request_id AND v.position = d.position
		WHERE r.conversation_id = ?1 AND (r.state NOT IN ('committed', 'failed') OR r.placed = 0) AND r.state = 'acknowledged'
		AND d.verdict = 'ask' AND v.verdict IS NULL
		AND (?2 = 0 OR (r.kind IN ('message', 'edit') AND r.seq = ?2) OR (r.kind IN ('regenerate', 'continue') AND r.parent_seq = ?2))
		ORDER BY d.request_id, d.position`

	sqlSelectEffects = `SELECT d.webhook_id, d.action, d.arguments, d.digest, d.verdict, d.code, d.reason, v.verdict, v.actor, v.reason, v.at,
		o.state, o.attempt, o.code, (SELECT y.status FROM deliveries y WHERE y.outbox_id = o.id AND y.outcome IS NOT NULL ORDER BY y.n DESC LIMIT 1),
		b.n IS NOT NULL, b.ok, b.reason, b.at,
		u.webhook_id, u.state, u.attempt, u.code, (SELECT y.status FROM deliveries y WHERE y.outbox_id = u.id AND y.outcome IS NOT NULL ORDER BY y.n DESC LIMIT 1), l.body
		FROM decisions d LEFT JOIN verdicts v ON v.request_id = d.request_id AND v.position = d.position
		LEFT JOIN outbox o ON o.request_id = d.request_id AND o.kind = 'effect' AND o.position = d.position
		LEFT JOIN callbacks b ON b.outbox_id = o.id AND b.decision = 'first'
		LEFT JOIN outbox u ON u.request_id = d.request_id AND u.kind = 'compensation' AND u.position = d.position
		LEFT JOIN snapshots s ON s.request_id = d.request_id LEFT JOIN declarations l ON l.id = s.declarations_id
		WHERE d.request_id = ? ORDER BY d.position`

	// The end of every compare-and-set of the outbox: what the caller believes in.
	sqlMoved = ` state = ?, code = ?, updated_at = ?, steps = steps + 1 WHERE id = ? AND state = ? AND steps = ?`

	// Away from wherever it is, to where nothing is awaited.
	sqlMove = `UPDATE outbox SET owner = NULL, lease_until = NULL, next_at = NULL, due_at = NULL,` + sqlMoved

	sqlSettle = `UPDATE outbox SET owner = NULL, lease_until = NULL, next_at = NULL, due_at = NULL, settled_at = ?,` + sqlMoved

	sqlSelectCompensated = sqlOutgoingColumns + ` WHERE o.request_id = ? AND o.kind = 'effect' AND o.position = ?`
)
