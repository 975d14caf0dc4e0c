package db

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"semel/chat"
)

// An Answer is what a model gave, final.
type Answer struct {
	Content, Reasoning string
	ToolCalls          string // JSON array
	Finish             chat.Finish
	UpstreamID         string
	Usage              chat.Usage
	FirstTokenAt       time.Time
	Thought            time.Duration // from the dispatch to the first word after reasoning; 0: none, or not known
	Outcome            chat.Outcome  // of the attempt: ok or stopped
	Actor, Reason      string
	HasPartials        bool // pieces of this attempt are stored and go now
	// Decisions are what follows from each tool call by Declared, what the model could
	// ask for.
	Decisions []chat.ActionDecision
	Declared  *chat.Declarations
	ChargeTo  string // the destination that is told of the charge; "" for none
	Currency  string // of that

	digest []byte // both computed before its turn: the queue does not wait for them
	tokens int64
}

// Finish makes a the one answer of the request that r describes: snapshot,
// message, charge, dedupe mark, decisions and what leaves by them in one transaction,
// and committed at once where there is nothing to settle. It returns the request as
// it is now. Errors: ErrFenced.
//
// If we die before its commit, nothing of it is stored and the attempt is found
// generating; if we die after, everything is.
func (d *DB) Finish(ctx context.Context, r chat.Request, a Answer) (chat.Request, error) {
	said := chat.Said(a.Content, a.ToolCalls)
	a.digest, a.tokens = SnapshotDigest(a.Content, a.Reasoning, a.ToolCalls), chat.EstimateTokens(said)
	r, err := d.change(ctx, r, func(tx *Tx, r *chat.Request) (err error) {
		*r, err = tx.finish(*r, a)
		return err
	})
	if err == nil {
		d.texts.put(r.ConversationID, chat.Message{Seq: AnswerSeq(r), Role: "assistant", Content: said})
	}
	return r, err
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
	var declared any
	if a.ToolCalls != noToolCalls {
		if declared, err = tx.declare(a.Declared); err != nil {
			return r, fmt.Errorf("declarations: %w", err)
		}
	}
	if _, err := tx.exec(sqlInsertSnapshot, r.ID, r.Attempt, r.Model, a.UpstreamID, a.Content, a.Reasoning, a.ToolCalls,
		a.Finish, a.Usage.InputTokens, a.Usage.CachedTokens, a.Usage.OutputTokens, a.Usage.Estimated,
		a.digest, a.Thought.Milliseconds(), tx.now, tx.n, declared); err != nil {
		return r, fmt.Errorf("insert snapshot: %w", err)
	}
	seq := AnswerSeq(r)
	if _, err := tx.exec(sqlInsertMessage, r.ConversationID, seq, r.ID, "assistant", nil,
		a.tokens, tx.now, tx.n); err != nil {
		return r, fmt.Errorf("insert answer: %w", err)
	}
	if err := tx.charge(r, a.Usage, r.Price.Cost(a.Usage)); err != nil {
		return r, err
	}
	if _, err := tx.exec(sqlInsertProcessed, r.Key.RequestID, r.ConversationID, r.Key.UserID, r.ID,
		[]byte(r.Fingerprint), tx.now, tx.n); err != nil {
		return r, fmt.Errorf("insert dedupe mark: %w", err)
	}
	// The head follows, unless a later request of the conversation has its place.
	if _, err := tx.exec(sqlMoveHeadIfNewest, seq, tx.n, r.ConversationID, r.Seq); err != nil {
		return r, fmt.Errorf("move head: %w", err)
	}
	if a.HasPartials {
		if _, err := tx.exec(sqlDeletePartials, r.ID, r.Attempt); err != nil {
			return r, fmt.Errorf("delete partial text: %w", err)
		}
	}
	r.State, r.Owner, r.AcknowledgedAt = chat.StateAcknowledged, "", tx.now
	if open, err := tx.follow(r, a); err != nil || open {
		r.UpdatedAt = tx.now
		return r, err
	}
	err = tx.transition(change{
		r: &r, to: chat.StateCommitted, actor: a.Actor, reason: "no effects",
		sql: sqlCommit, args: []any{tx.now, tx.now},
	})
	r.State, r.CompletedAt, r.UpdatedAt = chat.StateCommitted, tx.now, tx.now
	return r, err
}

// charge writes the one charge of r, and counts it with what repeats that came before it
// would have cost.
func (tx *Tx) charge(r chat.Request, u chat.Usage, micros int64) error {
	n, err := tx.exec(sqlInsertLedger, r.ID, r.Key.UserID, "charge", r.Attempt, r.Model, u.InputTokens, u.CachedTokens, u.OutputTokens,
		micros, u.Estimated, tx.now, tx.n)
	if err != nil {
		return fmt.Errorf("insert charge: %w", err)
	}
	tx.sum.charges += n
	tx.sum.charged += micros
	if micros == 0 {
		return nil
	}
	var absorbed int64
	if _, err := tx.queryRow(sqlCountAbsorbed, []any{r.ID}, &absorbed); err != nil {
		return fmt.Errorf("count what a charge saved: %w", err)
	}
	tx.sum.saved += micros * absorbed
	return nil
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

// stoppedCode is the code of a failure that a person asked for: it is no news.
const stoppedCode = "stopped"

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
	if err == nil && f.Code != stoppedCode {
		_, err = tx.exec(sqlTellOfFailure, tx.n, r.ConversationID)
	}
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
	_, err := tx.exec(sqlMoveHead, r.Seq, r.ConversationID)
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

// Why a failed request is started again.
const (
	ReasonExplicit  = "explicit"  // a person asked
	ReasonRestarted = "restarted" // a plain repeat, where the failure allows it
)

// A Restart says who starts a failed request again, and how.
type Restart struct {
	Reason string // ReasonExplicit or ReasonRestarted
	Actor  string
	Model  string // "" keeps the model, and its price where it was frozen here
	Price  chat.Price
	Deed   *Deed // of a person of operations; nil where its owner asks
}

// Restart moves a failed request that r describes back to pending. Two callers
// that saw the same attempt start one: the other gets ErrFenced, and so does who does
// again what its Deed is written down for. Errors: ErrGone when the conversation is
// deleted, ErrKeyReused.
func (d *DB) Restart(ctx context.Context, r chat.Request, s Restart) (chat.Request, error) {
	return d.change(ctx, r, func(tx *Tx, r *chat.Request) error {
		if s.Deed != nil {
			if err := tx.byHand("retry", *r, *s.Deed); errors.Is(err, ErrDone) {
				return ErrFenced
			} else if err != nil {
				return err
			}
		}
		var deleted bool
		if _, err := tx.queryRow(sqlSelectConversationDeleted, []any{r.Key.SessionID, r.Key.UserID}, new(int64), &deleted); err != nil {
			return err
		}
		if deleted {
			return ErrGone
		}
		imported, err := tx.queryRow(sqlSelectImported, []any{r.ID}, new(int))
		if err != nil {
			return err
		}
		if s.Model == "" && !imported { // what was imported was given no price: the caller's is today's
			s.Price = r.Price
		}
		if s.Model == "" {
			s.Model = r.Model
		}
		actor := s.Actor
		if s.Model != r.Model {
			actor += " model:" + s.Model
		}
		if s.Reason == ReasonExplicit {
			r.Refused, r.Crashes = 0, 0 // both are counted since a person asked
		}
		err = tx.transition(change{
			r: r, to: chat.StatePending, actor: actor, reason: s.Reason,
			sql: sqlRestart, args: []any{r.Refused, r.Crashes, s.Model, s.Price.Input, s.Price.Cached, s.Price.Output, tx.now},
		})
		r.State, r.Failure = chat.StatePending, chat.Failure{}
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

const (
	sqlMoveHead = `UPDATE conversations SET head_seq = ? WHERE id = ?`

	// Where no number was given out after its own, nothing is newer. An answer is
	// news either way.
	sqlMoveHeadIfNewest = `UPDATE conversations SET ended_tx = ?2, head_seq = CASE WHEN next_seq = ?1 + 1 OR NOT EXISTS (
		SELECT 1 FROM messages m JOIN requests r ON r.id = m.request_id
		WHERE m.conversation_id = conversations.id AND m.seq > ?4 AND m.seq = r.seq AND r.placed = 1) THEN ?1 ELSE head_seq END WHERE id = ?3`

	sqlTellOfFailure = `UPDATE conversations SET ended_tx = ? WHERE id = ?`

	sqlAcknowledge = `UPDATE requests SET state = 'acknowledged', steps = steps + 1, owner = NULL, lease_until = NULL,
		acknowledged_at = ?, updated_at = ?` + sqlHeld

	sqlCloseAttempt = `UPDATE attempts SET ended_at = ?, outcome = ?, code = ?, first_token_at = coalesce(first_token_at, ?),
		input_tokens = ?, cached_tokens = ?, output_tokens = ?, estimated = ?, upstream_id = coalesce(?, upstream_id)
		WHERE request_id = ? AND n = ? AND outcome IS NULL`

	sqlInsertSnapshot = `INSERT INTO snapshots (request_id, attempt, model, upstream_id, content, reasoning, tool_calls, finish,
		input_tokens, cached_tokens, output_tokens, estimated, sha256, thought_ms, created_at, tx, declarations_id)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	sqlInsertLedger = `INSERT INTO ledger (request_id, user_id, kind, attempt, model, input_tokens, cached_tokens, output_tokens,
		micros, estimated, at, tx) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	sqlCountAbsorbed = `SELECT count(*) FROM arrivals WHERE request_id = ? AND n > 1 AND (decision = 'joined' OR decision = 'replayed')`

	sqlInsertProcessed = `INSERT INTO processed (request_id, conversation_id, user_id, request, fingerprint, at, tx)
		VALUES (?, ?, ?, ?, ?, ?, ?)`

	sqlCommit = `UPDATE requests SET state = 'committed', steps = steps + 1, completed_at = ?, updated_at = ?` + sqlHeld

	sqlFail = `UPDATE requests SET state = 'failed', steps = steps + 1, owner = NULL, lease_until = NULL, retry_at = NULL,
		failure_code = ?, failure_outcome = ?, failure_retry = ?, failure_detail = ?, completed_at = ?, updated_at = ?` + sqlHeld

	sqlPlace = `UPDATE requests SET placed = 1, parent_seq = CASE WHEN ? THEN
		(SELECT head_seq FROM conversations c WHERE c.id = requests.conversation_id) ELSE parent_seq END
		WHERE id = ? AND placed = 0`

	sqlRequeue = `UPDATE requests SET state = 'pending', steps = steps + 1, owner = NULL, lease_until = NULL,
		retry_at = ?, refused = ?, crashes = ?, updated_at = ?` + sqlHeld

	sqlRestart = `UPDATE requests SET state = 'pending', steps = steps + 1, refused = ?, crashes = ?,
		failure_code = NULL, failure_outcome = NULL, failure_retry = NULL, failure_detail = NULL, completed_at = NULL,
		stop_requested_at = NULL, stop_attempt = NULL, model = ?, price_input = ?, price_cached = ?, price_output = ?, updated_at = ?` + sqlHeld

	sqlSelectStop = `SELECT 1 FROM requests WHERE id = ? AND stop_attempt = ?`

	sqlRequestStop = `UPDATE requests SET stop_requested_at = ?, stop_attempt = ?` + sqlHeld

	sqlSelectTurn = `SELECT ` + sqlSoundMessage + `, m.role, coalesce(m.content, s.content) FROM messages m JOIN requests r ON r.id = m.request_id
		LEFT JOIN snapshots s ON s.request_id = m.request_id AND m.role = 'assistant'
		WHERE m.conversation_id = ? AND m.seq = ?`
)
