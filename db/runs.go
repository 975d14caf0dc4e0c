package db

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"semel/chat"
)

// A change is one change of state: from the state, attempt and owner the caller
// believes in, or not at all (contract, section 2).
type change struct {
	r      *chat.Request // as the caller believes it is
	to     chat.State
	actor  string
	reason string
	sql    string // an UPDATE that ends with sqlHeld
	args   []any
}

// transition makes c and appends its row to transitions. It returns ErrFenced
// when the request is not as c.r says.
func (tx *Tx) transition(c change) error {
	if !c.r.State.CanBecome(c.to) {
		panic(fmt.Sprintf("db: no edge from %s to %s", c.r.State, c.to))
	}
	n, err := tx.exec(c.sql, append(c.args, c.r.ID, c.r.State, c.r.Attempt, nullString(c.r.Owner))...)
	if err != nil {
		return fmt.Errorf("%s to %s: %w", c.r.State, c.to, err)
	}
	if n != 1 {
		return ErrFenced
	}
	if _, err := tx.exec(sqlInsertTransition, c.r.State, c.to, c.actor, c.reason, tx.now, tx.n, c.r.ID); err != nil {
		return fmt.Errorf("record transition: %w", err)
	}
	return nil
}

func nullString(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// A Claim asks for the right to generate the next attempt of a request.
type Claim struct {
	Request      chat.Request // pending, as the caller believes it is
	Owner        string
	Lease        time.Duration
	ContextLimit int64 // tokens of earlier messages that fit; 0 is no limit
}

// ErrNotYourTurn: an earlier request of the conversation is unfinished, or
// another of it is generating. Nothing was stored.
var ErrNotYourTurn = errors.New("another request of the conversation comes first")

// Claim makes c.Owner the one worker of the request's next attempt and freezes
// what is sent, durable before the first byte goes to the provider. It returns
// the request as it is now and the numbers of the messages to send, oldest first.
// Errors: ErrFenced, ErrNotYourTurn.
func (d *DB) Claim(ctx context.Context, c Claim) (r chat.Request, turns []int64, err error) {
	err = d.write(ctx, func(tx *Tx) (err error) {
		r, turns, err = tx.claim(c)
		return err
	})
	if err != nil {
		return c.Request, nil, err
	}
	return r, turns, nil
}

func (tx *Tx) claim(c Claim) (chat.Request, []int64, error) {
	r := c.Request
	if err := tx.settleEarlier(r); err != nil {
		return r, nil, err
	}
	var context, model string
	var head int64
	found, err := tx.queryRow(sqlSelectForClaim, []any{r.ID}, &r.Placed, &r.ParentSeq, &context, &r.ContextDropped, &model, &head)
	if err != nil || !found {
		return r, nil, orFenced(err)
	}
	if model != r.Model {
		return r, nil, ErrFenced // restarted with another one: the attempt does not tell
	}
	if !r.Placed && r.Kind == chat.KindMessage {
		r.ParentSeq = head
	}
	if context == "" {
		if context, r.ContextDropped, err = tx.freezeContext(r, c.ContextLimit); err != nil {
			return r, nil, err
		}
	}
	lease := tx.now.Add(c.Lease)
	err = tx.transition(change{
		r: &c.Request, to: chat.StateGenerating, actor: "worker:" + c.Owner, reason: "claimed",
		sql: sqlClaim, args: []any{c.Owner, lease, r.ParentSeq, context, r.ContextDropped, tx.now},
	})
	if isUnique(err) {
		return r, nil, ErrNotYourTurn
	}
	if err != nil {
		return r, nil, err
	}
	if !r.Placed && r.Kind.WritesQuestion() {
		if _, err := tx.exec(sqlMoveHead, r.Seq, tx.now, r.ConversationID); err != nil {
			return r, nil, err
		}
	}
	r.State, r.Attempt, r.Owner, r.Placed = chat.StateGenerating, r.Attempt+1, c.Owner, true
	r.RetryAt, r.UpdatedAt = time.Time{}, tx.now
	if _, err := tx.exec(sqlInsertAttempt, r.Attempt, c.Owner, r.Model, tx.now, tx.now, tx.n, r.ID, chat.StatePending); err != nil {
		return r, nil, fmt.Errorf("insert attempt: %w", err)
	}
	turns, err := parseContext(context)
	return r, turns, err
}

// settleEarlier returns ErrNotYourTurn while an earlier request of the
// conversation waits or runs. Questions that were stopped before their first
// claim get their place in the history now: it could not be known while the
// answers before them were still to come.
func (tx *Tx) settleEarlier(r chat.Request) error {
	var stopped []chat.Request
	err := tx.query(sqlSelectEarlier, []any{r.ConversationID, r.Seq}, func(row row) error {
		e := chat.Request{ConversationID: r.ConversationID}
		if err := row.scan(&e.ID, &e.Seq, &e.Kind, &e.State); err != nil {
			return err
		}
		if e.State.Live() {
			return ErrNotYourTurn
		}
		stopped = append(stopped, e)
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range stopped {
		if err := tx.place(&e); err != nil {
			return err
		}
	}
	return nil
}

func orFenced(err error) error {
	if err != nil {
		return err
	}
	return ErrFenced
}

// freezeContext walks from the request to the start of its branch and returns
// the numbers of the messages that fit, and how many did not. The request's own
// question, or the message it continues or answers anew, is always sent.
func (tx *Tx) freezeContext(r chat.Request, limit int64) (string, int64, error) {
	at := r.ParentSeq
	if r.Kind.WritesQuestion() {
		at = r.Seq
	}
	var kept []string // newest first
	var tokens, dropped int64
	err := tx.query(sqlSelectBranch, []any{r.ConversationID, at}, func(row row) error {
		var seq, size, parent int64
		if err := row.scan(&seq, &size, &parent); err != nil || seq != at {
			return err // a parent always has a smaller number: this one is of another branch
		}
		if tokens += size; limit > 0 && tokens > limit && len(kept) > 0 {
			dropped++
		} else {
			kept = append(kept, strconv.FormatInt(seq, 10))
		}
		if at = parent; seq == r.Seq {
			at = r.ParentSeq // its row does not say so yet
		}
		if at == 0 {
			return errEnough
		}
		return nil
	})
	if err != nil && err != errEnough {
		return "", 0, err
	}
	if at != 0 {
		return "", 0, fmt.Errorf("message %d of conversation %d is missing", at, r.ConversationID)
	}
	slices.Reverse(kept)
	return strings.Join(kept, " "), dropped, nil
}

// errEnough ends a query before its last row.
var errEnough = errors.New("enough")

func parseContext(s string) ([]int64, error) {
	fields := strings.Fields(s)
	seqs := make([]int64, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("context %q: %w", s, err)
		}
		seqs[i] = n
	}
	return seqs, nil
}

// Heartbeat extends the lease of the attempt that r describes. ErrFenced means
// that it is lost: the worker stops and writes nothing more.
func (d *DB) Heartbeat(ctx context.Context, r chat.Request, lease time.Duration) error {
	return d.write(ctx, func(tx *Tx) error {
		return tx.heldExec(sqlHeartbeat, []any{tx.now.Add(lease)}, r)
	})
}

// heldExec runs an UPDATE that ends with sqlHeld.
func (tx *Tx) heldExec(sql string, args []any, r chat.Request) error {
	n, err := tx.exec(sql, append(args, r.ID, r.State, r.Attempt, nullString(r.Owner))...)
	if err != nil {
		return err
	}
	if n != 1 {
		return ErrFenced
	}
	return nil
}

// A Partial is a piece of an answer that has not ended yet.
type Partial struct {
	Text, Reasoning string
	FirstTokenAt    time.Time
}

func (p Partial) empty() bool { return p.Text == "" && p.Reasoning == "" }

// AppendPartial stores the next piece of the attempt that r describes.
func (d *DB) AppendPartial(ctx context.Context, r chat.Request, p Partial) error {
	return d.write(ctx, func(tx *Tx) error { return tx.appendPartial(r, p) })
}

func (tx *Tx) appendPartial(r chat.Request, p Partial) error {
	n, err := tx.exec(sqlInsertPartial, p.Text, p.Reasoning, tx.now, r.ID, r.State, r.Attempt, nullString(r.Owner))
	if err != nil {
		return err
	}
	if n != 1 {
		return ErrFenced
	}
	_, err = tx.exec(sqlFirstToken, ms(p.FirstTokenAt), r.ID, r.Attempt)
	return err
}

// An Answer is what a model gave, final.
type Answer struct {
	Content, Reasoning string
	ToolCalls          string // JSON array
	Finish             chat.Finish
	UpstreamID         string
	Usage              chat.Usage
	FirstTokenAt       time.Time
	Outcome            chat.Outcome // of the attempt: ok or stopped
	Actor, Reason      string
	HasPartials        bool // pieces of this attempt are stored and go now
}

// Finish makes a the one answer of the request that r describes: snapshot,
// message, charge and dedupe mark in one transaction, and committed at once
// because there are no effects to settle. It returns the request as it is now.
// Errors: ErrFenced.
//
// If we die before its commit, nothing of it is stored and the attempt is found
// generating; if we die after, everything is.
func (d *DB) Finish(ctx context.Context, r chat.Request, a Answer) (chat.Request, error) {
	return d.change(ctx, r, func(tx *Tx, r *chat.Request) (err error) {
		*r, err = tx.finish(*r, a)
		return err
	})
}

// change runs fn, which changes a copy of r, as one transaction. It returns that
// copy when it is durable and r as it was given when not: whoever tries again
// believes what was true before.
func (d *DB) change(ctx context.Context, r chat.Request, fn func(*Tx, *chat.Request) error) (chat.Request, error) {
	changed := r
	if err := d.write(ctx, func(tx *Tx) error { return fn(tx, &changed) }); err != nil {
		return r, err
	}
	return changed, nil
}

func (tx *Tx) finish(r chat.Request, a Answer) (chat.Request, error) {
	err := tx.transition(change{
		r: &r, to: chat.StateAcknowledged, actor: a.Actor, reason: a.Reason,
		sql: sqlAcknowledge, args: []any{tx.now, tx.now},
	})
	if err != nil {
		return r, err
	}
	if err := tx.closeAttempt(r, a.Outcome, "", a.FirstTokenAt, a.Usage, a.UpstreamID); err != nil {
		return r, err
	}
	if _, err := tx.exec(sqlInsertSnapshot, r.ID, r.Attempt, r.Model, a.UpstreamID, a.Content, a.Reasoning, a.ToolCalls,
		a.Finish, a.Usage.InputTokens, a.Usage.CachedTokens, a.Usage.OutputTokens, a.Usage.Estimated,
		SnapshotDigest(a.Content, a.Reasoning, a.ToolCalls), tx.now, tx.n); err != nil {
		return r, fmt.Errorf("insert snapshot: %w", err)
	}
	seq := AnswerSeq(r)
	if _, err := tx.exec(sqlInsertMessage, r.ConversationID, seq, r.ID, "assistant", nil,
		chat.EstimateTokens(a.Content), tx.now, tx.n); err != nil {
		return r, fmt.Errorf("insert answer: %w", err)
	}
	if _, err := tx.exec(sqlInsertLedger, r.ID, r.Key.UserID, "charge", r.Attempt, r.Model, a.Usage.InputTokens,
		a.Usage.CachedTokens, a.Usage.OutputTokens, r.Price.Cost(a.Usage), a.Usage.Estimated, tx.now, tx.n); err != nil {
		return r, fmt.Errorf("insert charge: %w", err)
	}
	if _, err := tx.exec(sqlInsertProcessed, r.Key.RequestID, r.ConversationID, r.Key.UserID, r.ID,
		[]byte(r.Fingerprint), tx.now, tx.n); err != nil {
		return r, fmt.Errorf("insert dedupe mark: %w", err)
	}
	// The head follows, unless a later request of the conversation has its place.
	if _, err := tx.exec(sqlMoveHeadIfNewest, seq, tx.now, r.ConversationID, r.Seq); err != nil {
		return r, fmt.Errorf("move head: %w", err)
	}
	if a.HasPartials {
		if _, err := tx.exec(sqlDeletePartials, r.ID, r.Attempt); err != nil {
			return r, fmt.Errorf("delete partial text: %w", err)
		}
	}
	r.State, r.Owner, r.AcknowledgedAt = chat.StateAcknowledged, "", tx.now
	err = tx.transition(change{
		r: &r, to: chat.StateCommitted, actor: a.Actor, reason: "no effects",
		sql: sqlCommit, args: []any{tx.now, tx.now},
	})
	r.State, r.CompletedAt, r.UpdatedAt = chat.StateCommitted, tx.now, tx.now
	return r, err
}

// AnswerSeq is the number reserved for the answer of r.
func AnswerSeq(r chat.Request) int64 {
	if r.Kind.WritesQuestion() {
		return r.Seq + 1
	}
	return r.Seq
}

// SnapshotDigest is the SHA-256 kept with a snapshot.
func SnapshotDigest(content, reasoning, toolCalls string) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%s", content, reasoning, toolCalls)
	return h.Sum(nil)
}

// closeAttempt writes down how an attempt ended, once: ErrFenced says that
// somebody else has. The trigger attempts_closed refuses to do it twice.
func (tx *Tx) closeAttempt(r chat.Request, o chat.Outcome, code string, first time.Time, u chat.Usage, upstream string) error {
	n, err := tx.exec(sqlCloseAttempt, tx.now, o, nullString(code), ms(first), u.InputTokens, u.CachedTokens, u.OutputTokens,
		u.Estimated, nullString(upstream), r.ID, r.Attempt)
	if err != nil {
		return fmt.Errorf("close attempt: %w", err)
	}
	if n != 1 {
		return fmt.Errorf("attempt %d of request %d: %w", r.Attempt, r.ID, ErrFenced)
	}
	return nil
}

// An End says how an attempt ended without an answer.
type End struct {
	Outcome      chat.Outcome // of the attempt
	Code         string
	Usage        chat.Usage // what it is thought to have cost
	Waste        bool       // it cost, and nothing of it is used
	FirstTokenAt time.Time
	Tail         Partial // text that is not stored yet
	Actor        string
}

// endAttempt closes an attempt that has no answer. A stored stop of it wins over
// every other end without an answer, whoever saw it: nothing stopped runs again.
func (tx *Tx) endAttempt(r chat.Request, e End) error {
	if e.Outcome != chat.OutcomeStopped {
		stopped, err := tx.queryRow(sqlSelectStop, []any{r.ID, r.Attempt}, new(int))
		if err != nil {
			return err
		}
		if stopped {
			return ErrStopRequested
		}
	}
	if !e.Tail.empty() {
		if err := tx.appendPartial(r, e.Tail); err != nil {
			return err
		}
	}
	if err := tx.closeAttempt(r, e.Outcome, e.Code, e.FirstTokenAt, e.Usage, ""); err != nil {
		return err
	}
	if !e.Waste {
		return nil
	}
	_, err := tx.exec(sqlInsertLedger, r.ID, r.Key.UserID, "waste", r.Attempt, r.Model, e.Usage.InputTokens,
		e.Usage.CachedTokens, e.Usage.OutputTokens, r.Price.Cost(e.Usage), true, tx.now, tx.n)
	if err != nil {
		return fmt.Errorf("insert waste: %w", err)
	}
	return nil
}

// Fail ends the attempt that r describes and the request with it. Errors:
// ErrFenced, ErrStopRequested.
func (d *DB) Fail(ctx context.Context, r chat.Request, e End, f chat.Failure) (chat.Request, error) {
	return d.change(ctx, r, func(tx *Tx, r *chat.Request) error {
		if err := tx.endAttempt(*r, e); err != nil {
			return err
		}
		return tx.fail(r, e.Actor, f)
	})
}

// fail moves r to failed. A question that was never claimed gets its place in the
// history here, or with the next claim when answers before it are still to come.
func (tx *Tx) fail(r *chat.Request, actor string, f chat.Failure) error {
	if !r.Placed {
		switch err := tx.settleEarlier(*r); {
		case err == nil:
			if err := tx.place(r); err != nil {
				return err
			}
		case !errors.Is(err, ErrNotYourTurn):
			return err
		}
	}
	err := tx.transition(change{
		r: r, to: chat.StateFailed, actor: actor, reason: f.Code,
		sql: sqlFail, args: []any{f.Code, f.Outcome, f.Retry, f.Detail, tx.now, tx.now},
	})
	r.State, r.Owner, r.Failure, r.CompletedAt, r.UpdatedAt = chat.StateFailed, "", f, tx.now, tx.now
	r.RetryAt = time.Time{}
	return err
}

// place gives a request that failed before its first claim its place: its
// question follows the head and is the head now.
func (tx *Tx) place(r *chat.Request) error {
	if _, err := tx.exec(sqlPlace, r.Kind == chat.KindMessage, r.ID); err != nil {
		return err
	}
	r.Placed = true
	if !r.Kind.WritesQuestion() {
		return nil
	}
	_, err := tx.exec(sqlMoveHead, r.Seq, tx.now, r.ConversationID)
	return err
}

// Requeue ends the attempt that r describes; the engine tries again by itself,
// not before at. reason is "engine_retry" after a refusal and "rerun" after an
// outcome that nobody knows; refused and crashes are the new counts. Errors:
// ErrFenced, ErrStopRequested.
func (d *DB) Requeue(ctx context.Context, r chat.Request, e End, at time.Time, reason string, refused, crashes int64) (chat.Request, error) {
	return d.change(ctx, r, func(tx *Tx, r *chat.Request) error {
		if err := tx.endAttempt(*r, e); err != nil {
			return err
		}
		err := tx.transition(change{
			r: r, to: chat.StatePending, actor: e.Actor, reason: reason,
			sql: sqlRequeue, args: []any{ms(at), refused, crashes, tx.now},
		})
		r.State, r.Owner, r.RetryAt, r.Refused, r.Crashes = chat.StatePending, "", at, refused, crashes
		r.UpdatedAt = tx.now
		return err
	})
}

// FailWaiting ends a pending request that r describes without an attempt.
// Errors: ErrFenced.
func (d *DB) FailWaiting(ctx context.Context, r chat.Request, actor string, f chat.Failure) (chat.Request, error) {
	return d.change(ctx, r, func(tx *Tx, r *chat.Request) error { return tx.fail(r, actor, f) })
}

// A Restart says who starts a failed request again, and how.
type Restart struct {
	Reason string // "explicit" when a person asked, "restarted" for a plain repeat
	Actor  string
	Model  string // "" keeps the model
	Price  chat.Price
}

// Restart moves a failed request that r describes back to pending. Two callers
// that saw the same attempt start one: the other gets ErrFenced. Errors: ErrGone
// when the conversation is deleted.
func (d *DB) Restart(ctx context.Context, r chat.Request, s Restart) (chat.Request, error) {
	return d.change(ctx, r, func(tx *Tx, r *chat.Request) error {
		var deleted bool
		if _, err := tx.queryRow(sqlSelectConversationDeleted, []any{r.Key.SessionID, r.Key.UserID}, new(int64), &deleted); err != nil {
			return err
		}
		if deleted {
			return ErrGone
		}
		if s.Model == "" {
			s.Model, s.Price = r.Model, r.Price
		}
		actor := s.Actor
		if s.Model != r.Model {
			actor += " model:" + s.Model
		}
		err := tx.transition(change{
			r: r, to: chat.StatePending, actor: actor, reason: s.Reason,
			sql: sqlRestart, args: []any{s.Model, s.Price.Input, s.Price.Cached, s.Price.Output, tx.now},
		})
		r.State, r.Failure, r.Refused, r.Crashes = chat.StatePending, chat.Failure{}, 0, 0
		r.Model, r.Price, r.CompletedAt, r.UpdatedAt = s.Model, s.Price, time.Time{}, tx.now
		r.StopRequested, r.StopAttempt = false, 0
		return err
	})
}

// RequestStop makes a person's stop of the attempt that r describes durable.
// Errors: ErrFenced when the request is elsewhere by now.
func (d *DB) RequestStop(ctx context.Context, r chat.Request) error {
	return d.write(ctx, func(tx *Tx) error {
		return tx.heldExec(sqlRequestStop, []any{tx.now, r.Attempt}, r)
	})
}

// PartialText returns what is stored of an attempt's text so far.
func (d *DB) PartialText(ctx context.Context, id, attempt int64) (p Partial, err error) {
	err = d.read(ctx, func(c *conn) (err error) {
		p, err = c.partial(id, attempt)
		return err
	})
	return p, err
}

func (c *conn) partial(id, attempt int64) (Partial, error) {
	var p Partial
	var text, reasoning strings.Builder
	err := c.query(sqlSelectPartials, []any{id, attempt}, func(r row) error {
		var t, g string
		if err := r.scan(&t, &g); err != nil {
			return err
		}
		text.WriteString(t)
		reasoning.WriteString(g)
		return nil
	})
	p.Text, p.Reasoning = text.String(), reasoning.String()
	return p, err
}

// FrozenContext returns the numbers of the messages that a claimed request sends,
// oldest first.
func (d *DB) FrozenContext(ctx context.Context, id int64) (seqs []int64, err error) {
	err = d.read(ctx, func(c *conn) error {
		var s string
		if _, err := c.queryRow(sqlSelectContext, []any{id}, &s); err != nil {
			return err
		}
		seqs, err = parseContext(s)
		return err
	})
	return seqs, err
}

// Turns returns the messages with these numbers in this order: the prompt.
func (d *DB) Turns(ctx context.Context, conversation int64, seqs []int64) (turns []chat.Message, err error) {
	list, err := json.Marshal(seqs)
	if err != nil {
		return nil, err
	}
	err = d.readOne(ctx, func(c *conn) error {
		return c.query(sqlSelectTurns, []any{conversation, string(list)}, func(r row) error {
			var m chat.Message
			defer func() { turns = append(turns, m) }()
			return r.scan(&m.Seq, &m.Role, &m.Content)
		})
	})
	if err == nil && len(turns) != len(seqs) {
		err = fmt.Errorf("conversation %d has %d of the messages %v", conversation, len(turns), seqs)
	}
	return turns, err
}

// sqlHeld is the compare of every compare-and-set: the state, attempt and owner
// that the caller believes in.
const sqlHeld = ` WHERE id = ? AND state = ? AND attempt = ? AND owner IS ?`

const (
	sqlInsertTransition = `INSERT INTO transitions (request_id, n, from_state, to_state, attempt, actor, reason, at, tx)
		SELECT id, steps, ?, ?, attempt, ?, ?, ?, ? FROM requests WHERE id = ?`

	sqlSelectForClaim = `SELECT r.placed, r.parent_seq, r.context, r.context_dropped, r.model, c.head_seq
		FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.id = ?`

	sqlClaim = `UPDATE requests SET state = 'generating', steps = steps + 1, attempt = attempt + 1, owner = ?,
		lease_until = ?, placed = 1, parent_seq = ?, context = ?, context_dropped = ?, retry_at = NULL, updated_at = ?` + sqlHeld

	// The words of the partial index, so that it is used; an acknowledged request
	// has its answer and holds nobody up.
	sqlSelectEarlier = `SELECT id, seq, kind, state FROM requests WHERE conversation_id = ? AND seq < ?
		AND (state NOT IN ('committed', 'failed') OR placed = 0) AND state <> 'acknowledged' ORDER BY seq`

	// From a message back towards the start, with whatever lies between the messages
	// of its branch. A statement a message, or one that recurses from each to its
	// parent, cost a claim more than all the rest of it together.
	sqlSelectBranch = `SELECT m.seq, m.tokens, CASE WHEN ` + sqlAnswersQuestion + ` THEN r.seq ELSE r.parent_seq END
		FROM messages m JOIN requests r ON r.id = m.request_id
		WHERE m.conversation_id = ? AND m.seq <= ? ORDER BY m.seq DESC`

	sqlMoveHead = `UPDATE conversations SET head_seq = ?, updated_at = ? WHERE id = ?`

	sqlMoveHeadIfNewest = `UPDATE conversations SET head_seq = ?, updated_at = ? WHERE id = ? AND NOT EXISTS (
		SELECT 1 FROM messages m JOIN requests r ON r.id = m.request_id
		WHERE m.conversation_id = conversations.id AND m.seq > ? AND m.seq = r.seq AND r.placed = 1)`

	sqlInsertAttempt = `INSERT INTO attempts (request_id, n, reason, owner, model, started_at, dispatched_at, tx)
		SELECT request_id, ?, reason, ?, ?, ?, ?, ? FROM transitions WHERE request_id = ? AND to_state = ? ORDER BY n DESC LIMIT 1`

	sqlHeartbeat = `UPDATE requests SET lease_until = ?` + sqlHeld

	sqlInsertPartial = `INSERT INTO partials (request_id, attempt, n, text, reasoning, at)
		SELECT id, attempt, (SELECT coalesce(max(n), 0) + 1 FROM partials p WHERE p.request_id = requests.id AND p.attempt = requests.attempt),
		?, ?, ? FROM requests` + sqlHeld

	sqlFirstToken = `UPDATE attempts SET first_token_at = ? WHERE request_id = ? AND n = ? AND outcome IS NULL AND first_token_at IS NULL`

	sqlAcknowledge = `UPDATE requests SET state = 'acknowledged', steps = steps + 1, owner = NULL, lease_until = NULL,
		acknowledged_at = ?, updated_at = ?` + sqlHeld

	sqlCloseAttempt = `UPDATE attempts SET ended_at = ?, outcome = ?, code = ?, first_token_at = coalesce(first_token_at, ?),
		input_tokens = ?, cached_tokens = ?, output_tokens = ?, estimated = ?, upstream_id = coalesce(?, upstream_id)
		WHERE request_id = ? AND n = ? AND outcome IS NULL`

	sqlInsertSnapshot = `INSERT INTO snapshots (request_id, attempt, model, upstream_id, content, reasoning, tool_calls, finish,
		input_tokens, cached_tokens, output_tokens, estimated, sha256, created_at, tx)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	sqlInsertLedger = `INSERT INTO ledger (request_id, user_id, kind, attempt, model, input_tokens, cached_tokens, output_tokens,
		micros, estimated, at, tx) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	sqlInsertProcessed = `INSERT INTO processed (request_id, conversation_id, user_id, request, fingerprint, at, tx)
		VALUES (?, ?, ?, ?, ?, ?, ?)`

	sqlDeletePartials = `DELETE FROM partials WHERE request_id = ? AND attempt = ?`

	sqlCommit = `UPDATE requests SET state = 'committed', steps = steps + 1, completed_at = ?, updated_at = ?` + sqlHeld

	sqlFail = `UPDATE requests SET state = 'failed', steps = steps + 1, owner = NULL, lease_until = NULL, retry_at = NULL,
		failure_code = ?, failure_outcome = ?, failure_retry = ?, failure_detail = ?, completed_at = ?, updated_at = ?` + sqlHeld

	sqlPlace = `UPDATE requests SET placed = 1, parent_seq = CASE WHEN ? THEN
		(SELECT head_seq FROM conversations c WHERE c.id = requests.conversation_id) ELSE parent_seq END
		WHERE id = ? AND placed = 0`

	sqlRequeue = `UPDATE requests SET state = 'pending', steps = steps + 1, owner = NULL, lease_until = NULL,
		retry_at = ?, refused = ?, crashes = ?, updated_at = ?` + sqlHeld

	sqlRestart = `UPDATE requests SET state = 'pending', steps = steps + 1, refused = 0, crashes = 0,
		failure_code = NULL, failure_outcome = NULL, failure_retry = NULL, failure_detail = NULL, completed_at = NULL,
		stop_requested_at = NULL, stop_attempt = NULL, model = ?, price_input = ?, price_cached = ?, price_output = ?, updated_at = ?` + sqlHeld

	sqlSelectStop = `SELECT 1 FROM requests WHERE id = ? AND stop_attempt = ?`

	sqlRequestStop = `UPDATE requests SET stop_requested_at = ?, stop_attempt = ?` + sqlHeld

	sqlSelectPartials = `SELECT text, reasoning FROM partials WHERE request_id = ? AND attempt = ? ORDER BY n`

	sqlSelectContext = `SELECT context FROM requests WHERE id = ?`

	sqlSelectTurn = `SELECT m.role, coalesce(m.content, s.content) FROM messages m
		LEFT JOIN snapshots s ON s.request_id = m.request_id AND m.role = 'assistant'
		WHERE m.conversation_id = ? AND m.seq = ?`

	sqlSelectTurns = `SELECT m.seq, m.role, coalesce(m.content, s.content) FROM json_each(?2) j
		JOIN messages m ON m.conversation_id = ?1 AND m.seq = j.value
		LEFT JOIN snapshots s ON s.request_id = m.request_id AND m.role = 'assistant' ORDER BY j.key`
)
