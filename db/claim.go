package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"semel/chat"
)

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
	f, err := tx.selectForClaim(r.ID)
	if err == nil && f.earlier {
		if err = tx.settleEarlier(r); err == nil {
			f, err = tx.selectForClaim(r.ID) // the head has moved
		}
	}
	if err != nil {
		return r, nil, err
	}
	r.Placed, r.ParentSeq, r.ContextDropped = f.placed, f.parentSeq, f.dropped
	context := f.context
	if context == "" && c.ContextLimit == 0 {
		context = f.extend(r)
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
		if _, err := tx.exec(sqlMoveHead, r.Seq, r.ConversationID); err != nil {
			return r, nil, err
		}
	}
	r.Steps = c.Request.Steps
	r.State, r.Attempt, r.Owner, r.Placed = chat.StateGenerating, r.Attempt+1, c.Owner, true
	r.RetryAt, r.UpdatedAt = time.Time{}, tx.now
	n, err := tx.exec(sqlInsertAttempt, r.Attempt, c.Owner, r.Model, tx.now, tx.now, tx.n, r.ID, chat.StatePending)
	if err != nil {
		return r, nil, fmt.Errorf("insert attempt: %w", err)
	}
	tx.sum.attempts += n
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

// A forClaim is what a claim has to know of its request and of the message that
// it follows.
type forClaim struct {
	earlier       bool // requests of its conversation come first, or have no place yet
	placed        bool
	parentSeq     int64
	context       string // frozen by an earlier claim
	dropped       int64
	parentRole    string // "" where it follows nothing
	parentContext string // of the request that wrote the parent
	parentDropped int64
}

// selectForClaim reads it all at once: three statements cost twice as much. Errors:
// ErrFenced when there is no such request.
func (tx *Tx) selectForClaim(id int64) (f forClaim, err error) {
	found, err := tx.queryRow(sqlSelectForClaim, []any{id}, &f.earlier, &f.placed, &f.parentSeq, &f.context, &f.dropped,
		&f.parentRole, &f.parentContext, &f.parentDropped)
	if err == nil && !found {
		err = ErrFenced
	}
	return f, err
}

// extend returns the context of the request that r follows with what came since,
// which is the same as a walk along the branch where nothing is dropped; "" when
// there is no such context to extend.
func (f forClaim) extend(r chat.Request) string {
	context := ""
	if f.parentSeq != 0 {
		if f.parentContext == "" || f.parentDropped > 0 {
			return ""
		}
		context = f.parentContext
		if f.parentRole == "assistant" {
			context += " " + strconv.FormatInt(f.parentSeq, 10)
		}
	}
	if r.Kind.WritesQuestion() {
		context = strings.TrimPrefix(context+" "+strconv.FormatInt(r.Seq, 10), " ")
	}
	return context
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
func (d *DB) Turns(ctx context.Context, conversation int64, seqs []int64) ([]chat.Message, error) {
	turns, missing := d.texts.get(conversation, seqs)
	if len(missing) == 0 {
		return turns, nil
	}
	list, err := json.Marshal(missing)
	if err != nil {
		return nil, err
	}
	read := make(map[int64]chat.Message, len(missing))
	err = d.read(ctx, func(c *conn) error {
		err := c.query(sqlSelectTurns, []any{conversation, string(list)}, func(r row) error {
			var m chat.Message
			var toolCalls string
			var sound bool
			err := r.scan(&sound, &m.Seq, &m.Role, &m.Content, &toolCalls)
			m.Content = chat.Said(m.Content, toolCalls)
			read[m.Seq] = m
			if err == nil && !sound {
				err = unsound("message", m.Seq)
			}
			return err
		})
		if err != nil {
			return err
		}
		return c.query(sqlSelectCarriedBy, []any{conversation, string(list)}, func(r row) error {
			seq, a, err := scanCarried(r)
			m := read[seq]
			m.Attachments = append(m.Attachments, a)
			read[seq] = m
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	for _, m := range read {
		d.texts.put(conversation, m)
	}
	for i, seq := range seqs {
		if turns[i].Seq != 0 {
			continue
		}
		m, ok := read[seq]
		if !ok {
			return nil, fmt.Errorf("message %d of conversation %d is missing", seq, conversation)
		}
		turns[i] = m
	}
	return turns, nil
}

const (
	// A message follows the head, until it has its place.
	sqlSelectForClaim = `SELECT EXISTS (SELECT 1 FROM requests WHERE conversation_id = r.conversation_id AND seq < r.seq` + sqlComesFirst + `),
		r.placed, CASE WHEN r.placed = 0 AND r.kind = 'message' THEN c.head_seq ELSE r.parent_seq END, r.context, r.context_dropped, m.role, p.context, p.context_dropped
		FROM requests r JOIN conversations c ON c.id = r.conversation_id
		LEFT JOIN messages m ON m.conversation_id = c.id AND m.seq = CASE WHEN r.placed = 0 AND r.kind = 'message' THEN c.head_seq ELSE r.parent_seq END
		LEFT JOIN requests p ON p.id = m.request_id
		WHERE r.id = ?`

	sqlClaim = `UPDATE requests SET state = 'generating', steps = steps + 1, attempt = attempt + 1, owner = ?,
		lease_until = ?, placed = 1, parent_seq = ?, context = ?, context_dropped = ?, retry_at = NULL, updated_at = ?` + sqlHeld

	// In the words of the partial index requests_open, so that it is used; an
	// acknowledged request has its answer and holds nobody up.
	sqlComesFirst = ` AND (state NOT IN ('committed', 'failed') OR placed = 0) AND state <> 'acknowledged'`

	sqlSelectEarlier = `SELECT id, seq, kind, state FROM requests WHERE conversation_id = ? AND seq < ?` + sqlComesFirst + ` ORDER BY seq`

	// From a message back towards the start, with whatever lies between the messages
	// of its branch. A statement a message, or one that recurses from each to its
	// parent, cost a claim more than all the rest of it together.
	sqlSelectBranch = `SELECT m.seq, m.tokens, CASE WHEN ` + sqlAnswersQuestion + ` THEN r.seq ELSE r.parent_seq END
		FROM messages m JOIN requests r ON r.id = m.request_id
		WHERE m.conversation_id = ? AND m.seq <= ? ORDER BY m.seq DESC`

	sqlInsertAttempt = `INSERT INTO attempts (request_id, n, reason, owner, model, started_at, dispatched_at, tx)
		SELECT request_id, ?, reason, ?, ?, ?, ?, ? FROM transitions WHERE request_id = ? AND to_state = ? ORDER BY n DESC LIMIT 1`

	sqlSelectContext = `SELECT context FROM requests WHERE id = ?`

	sqlSelectTurns = `SELECT ` + sqlSoundMessage + `, m.seq, m.role, coalesce(m.content, s.content), s.tool_calls FROM json_each(?2) j
		JOIN messages m ON m.conversation_id = ?1 AND m.seq = j.value JOIN requests r ON r.id = m.request_id
		LEFT JOIN snapshots s ON s.request_id = m.request_id AND m.role = 'assistant'`
)
