package db

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"semel/chat"
)

// A Submission is a new intent, checked and with everything that acceptance
// freezes: the model with its price, and the parameters.
type Submission struct {
	Key         chat.Key
	Kind        chat.Kind
	Fingerprint chat.Fingerprint
	Content     string            // message and edit only
	Attachments []chat.Attachment // message and edit only; uploaded by this user
	ParentSeq   int64             // the message named by edit, regenerate and continue
	Title       string            // for a conversation that this creates
	Model       string            // "" takes the conversation's, then the user's, where it is there, and then Default
	Default     string
	Params      string // "" takes the conversation's; a new one begins with the user's
	Price       func(model string) (chat.Price, bool)
	Images      func(model string) bool // whether a model takes images; asked where there is one
	Source      chat.Source

	horizon int64 // the purge horizon in milliseconds, as it is when the turn comes
}

// Accept stores s durably as pending: the request, its question, its first
// transition and its first arrival, and the conversation when it is the first of
// one. Before it returns nothing is promised; after it returns the question is
// never lost. Errors: ErrExists when the key is taken (look it up), ErrGone when
// the conversation or the id was deleted, ErrExpired, ErrParent, ErrModel, ErrImages,
// ErrAttachment.
func (d *DB) Accept(ctx context.Context, s Submission) (chat.Request, error) {
	var r chat.Request
	err := d.write(ctx, func(tx *Tx) (err error) {
		s.horizon = d.horizon.Load()
		r, err = tx.accept(s)
		return err
	})
	if err != nil {
		return chat.Request{}, err
	}
	if s.Kind.WritesQuestion() {
		d.texts.put(r.ConversationID, chat.Message{Seq: r.Seq, Role: "user", Content: s.Content, Attachments: s.Attachments})
	}
	return r, nil
}

// ErrModel: the conversation names a model that is not configured.
type ErrModel struct{ Name string }

func (e ErrModel) Error() string { return fmt.Sprintf("the model %q is not configured", e.Name) }

// ErrImages: a question carries an image, and its model takes none.
type ErrImages struct{ Model string }

func (e ErrImages) Error() string { return fmt.Sprintf("the model %q takes no images", e.Model) }

func (tx *Tx) accept(s Submission) (chat.Request, error) {
	r := chat.Request{
		Key: s.Key, Kind: s.Kind, Fingerprint: s.Fingerprint, State: chat.StatePending, Steps: 1,
		Model: s.Model, Params: s.Params, CreatedAt: tx.now, UpdatedAt: tx.now,
	}
	reserved := int64(1)
	if s.Kind.WritesQuestion() {
		reserved = 2 // the question and its answer, so that order by number is question, answer, question, answer
	}
	var next int64
	var deleted, archived bool
	var convModel, convParams string
	found, err := tx.queryRow(sqlSelectForAccept, []any{s.Key.SessionID, s.Key.UserID},
		&r.ConversationID, &next, &deleted, &archived, &convModel, &convParams, &r.SystemPrompt)
	if err != nil {
		return r, fmt.Errorf("select conversation: %w", err)
	}
	if deleted {
		return r, ErrGone
	}
	if disabled, err := tx.queryRow(sqlSelectUserDisabled, []any{s.Key.UserID}, new(int)); err != nil || disabled {
		return r, orDisabled(err)
	}
	if found {
		r.Seq = next
		if _, err := tx.exec(sqlAdvanceConversation, next+reserved, tx.now, r.ConversationID); err != nil {
			return r, fmt.Errorf("advance conversation: %w", err)
		}
	}
	if archived { // who asks in it wants it back; apart, because it moves two more indexes
		if _, err := tx.exec(sqlUnarchive, r.ConversationID); err != nil {
			return r, fmt.Errorf("unarchive conversation: %w", err)
		}
	}
	if gone, err := tx.tombstoned(s.Key, !found); err != nil || gone {
		return r, orGone(err)
	}
	var chosen Settings
	if !found || s.Model == "" && convModel == "" {
		if chosen, err = tx.settings(s.Key.UserID); err != nil {
			return r, fmt.Errorf("settings: %w", err)
		}
	}
	if !found {
		if at, timed := chat.IDTime(s.Key.SessionID); timed && at.UnixMilli() <= s.horizon {
			return r, ErrGone // its tombstone is forgotten
		}
		r.Seq = 1
		r.SystemPrompt, convParams = chosen.SystemPrompt, chosen.Params
		r.ConversationID, err = tx.insert(sqlInsertConversation, s.Key.SessionID, s.Key.UserID, s.Title, r.SystemPrompt, convParams, r.Seq+reserved, tx.now, tx.now)
		if err != nil {
			return r, fmt.Errorf("create conversation: %w", err)
		}
	}
	if r.Model == "" {
		r.Model = convModel
	}
	if _, there := s.Price(chosen.Model); r.Model == "" && chosen.Model != "" && there {
		r.Model = chosen.Model
	}
	if r.Model == "" {
		r.Model = s.Default
	}
	if r.Params == "" {
		r.Params = convParams
	}
	if r.Params == "" {
		r.Params = "{}"
	}
	price, ok := s.Price(r.Model)
	if !ok {
		return r, ErrModel{r.Model}
	}
	r.Price = price
	if slices.ContainsFunc(s.Attachments, chat.Attachment.Image) && !s.Images(r.Model) {
		return r, ErrImages{r.Model}
	}
	var question int64 // that this asks or answers anew: nobody needs to decide about its answers any more
	if r.ParentSeq, question, err = tx.parentFor(r.ConversationID, s.Kind, s.ParentSeq); err != nil {
		return r, err
	}
	if question != 0 {
		if err := tx.rejectUndecided(r.ConversationID, question, actorUser(s.Key.UserID), "superseded"); err != nil {
			return r, err
		}
	}
	r.ID, err = tx.insert(sqlInsertRequest, s.Key.RequestID, r.ConversationID, s.Key.UserID, s.Kind, r.Seq,
		[]byte(s.Fingerprint), r.Model, r.Params, r.SystemPrompt, price.Input, price.Cached, price.Output,
		r.ParentSeq, tx.n, tx.now, tx.now)
	if isUnique(err) {
		return r, ErrExists
	}
	if err != nil {
		return r, fmt.Errorf("insert request: %w", err)
	}
	if at, timed := chat.IDTime(s.Key.RequestID); timed && at.UnixMilli() <= s.horizon {
		return r, ErrExpired // the savepoint undoes what this wrote
	}
	if s.Kind.WritesQuestion() {
		if _, err := tx.exec(sqlInsertMessage, r.ConversationID, r.Seq, r.ID, "user", s.Content,
			chat.EstimateTokens(s.Content)+tokensOf(s.Attachments), tx.now, tx.n); err != nil {
			return r, fmt.Errorf("insert question: %w", err)
		}
		if err := tx.carry(r, s.Attachments); err != nil {
			return r, err
		}
	}
	if _, err := tx.exec(sqlInsertFirstTransition, r.ID, actorUser(s.Key.UserID), tx.now, tx.n); err != nil {
		return r, fmt.Errorf("insert transition: %w", err)
	}
	if tx.tells {
		tx.tellTransition(s.Key, 1, chat.StateNew, chat.StatePending, 0, actorUser(s.Key.UserID), "accepted")
	}
	if _, err := tx.exec(sqlInsertFirstArrival, r.ID, tx.now, s.Source); err != nil {
		return r, fmt.Errorf("insert arrival: %w", err)
	}
	return r, nil
}

func orGone(err error) error {
	if err != nil {
		return err
	}
	return ErrGone
}

// orDisabled is for a question that was let in a moment before its user was not: a look
// for what is to be stopped would miss it.
func orDisabled(err error) error {
	if err != nil {
		return fmt.Errorf("select disabled: %w", err)
	}
	return ErrDisabled
}

func actorUser(id int64) string { return fmt.Sprintf("user:%d", id) }

// parentFor returns the number of the message that the first message of a new
// request hangs under, 0 for "the head, when it is claimed" or the very start; and of
// the question that it asks or answers anew, 0 for none.
func (tx *Tx) parentFor(conversation int64, kind chat.Kind, named int64) (parent, question int64, err error) {
	if kind == chat.KindMessage {
		return 0, 0, nil
	}
	m, found, err := tx.node(conversation, named)
	switch {
	case err != nil:
		return 0, 0, err
	case !found || !m.placed:
		return 0, 0, ErrParent
	case kind == chat.KindContinue:
		if m.role != "assistant" {
			return 0, 0, ErrParent
		}
		return named, 0, nil
	case kind == chat.KindRegenerate:
		if m.role == "assistant" {
			return m.parent, m.parent, nil // another answer to the same question
		}
		return named, named, nil
	case m.role == "user": // edit: beside the question it names
		return m.parent, named, nil
	}
	return named, 0, nil // edit: under the answer it names
}

// A node is a message's place in the tree.
type node struct {
	role   string
	parent int64
	tokens int64
	placed bool
}

func (c *conn) node(conversation, seq int64) (n node, found bool, err error) {
	found, err = c.queryRow(sqlSelectNode, []any{conversation, seq}, &n.role, &n.parent, &n.tokens, &n.placed)
	return n, found, err
}

// tombstoned reports whether the id, or the conversation when it is not there,
// was purged.
func (c *conn) tombstoned(k chat.Key, noConversation bool) (bool, error) {
	if !c.buried.Load() {
		return false, nil // asked after no row was found: see bury
	}
	digests := [][]byte{tombstone(k)}
	if noConversation {
		digests = append(digests, tombstone(chat.Key{UserID: k.UserID, SessionID: k.SessionID}))
	}
	for _, dg := range digests {
		found, err := c.queryRow(sqlSelectTombstone, []any{dg}, new(int))
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// tombstone is what is left of a key after a purge; of a conversation when the
// request id is empty.
func tombstone(k chat.Key) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d\x00%s\x00%s", k.UserID, k.SessionID, k.RequestID)
	return h.Sum(nil)[:16]
}

// Find returns the request with this key. Errors: ErrNotFound when it was never
// accepted, ErrGone when its conversation is deleted or the id is a tombstone; of
// a request that is still stored then, only the internal id is set.
func (d *DB) Find(ctx context.Context, k chat.Key) (r chat.Request, err error) {
	err = d.readOne(ctx, func(c *conn) (err error) {
		r, err = c.find(k)
		return err
	})
	return r, err
}

// LookUp is Find for an arrival, which in most cases is new or answered: of an
// answered request only what decides about a repeat is there, besides the key its
// internal id, state, attempt and fingerprint.
func (d *DB) LookUp(ctx context.Context, k chat.Key) (r chat.Request, err error) {
	deletions := d.deletions.Load()
	if r, ok := d.answered.get(k, deletions); ok {
		return r, nil
	}
	err = d.readOne(ctx, func(c *conn) (err error) {
		if r, err = c.lookUp(k); err == nil && !r.State.Answered() {
			r, err = c.load(r.ID)
		}
		return err
	})
	if err == nil && r.State == chat.StateCommitted {
		d.answered.put(k, r, deletions)
	}
	return r, err
}

// find asks twice: most keys are new, and five columns are found to be missing
// much faster than thirty.
func (c *conn) find(k chat.Key) (chat.Request, error) {
	r, err := c.lookUp(k)
	if err != nil {
		return r, err
	}
	return c.load(r.ID)
}

// lookUp returns what LookUp promises of an answered request, of any. Errors as
// Find.
func (c *conn) lookUp(k chat.Key) (chat.Request, error) {
	r := chat.Request{Key: k}
	var deleted bool
	found, err := c.queryRow(sqlLookUp, []any{k.RequestID, k.SessionID, k.UserID}, &deleted, &r.ID, &r.State, &r.Attempt, (*string)(&r.Fingerprint))
	switch {
	case err != nil:
		return r, err
	case deleted:
		return chat.Request{ID: r.ID}, ErrGone
	case r.ID != 0:
		return r, nil
	}
	gone, err := c.tombstoned(k, !found)
	if err == nil {
		err = ErrNotFound
		if gone {
			err = ErrGone
		}
	}
	return chat.Request{}, err
}

// load returns the whole of a request. Errors: ErrGone when it, or its
// conversation, is deleted.
func (c *conn) load(id int64) (r chat.Request, err error) {
	var deleted bool
	found, err := c.queryRow(sqlLoadRequest, []any{id}, append(requestDest(&r), &deleted)...)
	if err == nil && (!found || deleted) {
		err = ErrGone
	}
	return r, err
}

// Load returns the request with this internal id.
func (d *DB) Load(ctx context.Context, id int64) (r chat.Request, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		found, err := c.queryRow(sqlLoadRequest, []any{id}, append(requestDest(&r), new(bool))...)
		if err == nil && !found {
			err = ErrNotFound
		}
		return err
	})
	return r, err
}

// Unfinished returns every request that waits for its answer, in order of
// acceptance.
func (d *DB) Unfinished(ctx context.Context) (list []chat.Request, err error) {
	err = d.read(ctx, func(c *conn) error {
		return c.query(sqlSelectUnfinished, nil, func(row row) error {
			var r chat.Request
			defer func() { list = append(list, r) }()
			return row.scan(append(requestDest(&r), new(bool))...)
		})
	})
	return list, err
}

// Instance is what the file says about itself.
type Instance struct {
	Epoch        int64
	PurgeHorizon time.Time // zero when nothing was purged so far
	Newest       time.Time // when the newest request was accepted; zero when there is none
	Restored     bool      // from a backup, and what that had unfinished is not decided
}

// Instance returns the row about this file.
func (d *DB) Instance(ctx context.Context) (i Instance, err error) {
	var horizon int64
	err = d.read(ctx, func(c *conn) error {
		if _, err := c.queryRow(sqlSelectInstance, nil, &i.Epoch, &horizon); err != nil {
			return err
		}
		if _, err := c.queryRow(sqlSelectNewest, nil, &i.Newest); err != nil {
			return err
		}
		var err error
		i.Restored, err = c.queryRow(sqlAnyUnsettled, nil, new(int))
		return err
	})
	if horizon > 0 {
		i.PurgeHorizon = time.UnixMilli(horizon).UTC()
	}
	return i, err
}

func requestDest(r *chat.Request) []any {
	return []any{
		&r.ID, &r.Key.RequestID, &r.Key.SessionID, &r.Key.UserID, &r.ConversationID, &r.Kind, &r.Seq,
		(*string)(&r.Fingerprint), &r.State, &r.Steps, &r.Attempt, &r.Owner, &r.StopRequested, &r.StopAttempt, &r.RetryAt,
		&r.Refused, &r.Crashes, &r.Model, &r.Params, &r.SystemPrompt, &r.Price.Input, &r.Price.Cached, &r.Price.Output,
		&r.Placed, &r.ParentSeq, &r.ContextDropped,
		&r.Failure.Code, &r.Failure.Outcome, &r.Failure.Retry, &r.Failure.Detail,
		&r.CreatedAt, &r.UpdatedAt, &r.AcknowledgedAt, &r.CompletedAt,
	}
}

// sqlRequestFields are what requestDest takes, and whether the conversation is deleted.
const sqlRequestFields = `r.id, r.request_id, c.session_id, r.user_id, r.conversation_id, r.kind, r.seq,
	r.fingerprint, r.state, r.steps, r.attempt, r.owner, r.stop_requested_at IS NOT NULL, r.stop_attempt, r.retry_at,
	r.refused, r.crashes, r.model, r.params, r.system_prompt, r.price_input, r.price_cached, r.price_output,
	r.placed, r.parent_seq, r.context_dropped,
	r.failure_code, r.failure_outcome, r.failure_retry, r.failure_detail,
	r.created_at, r.updated_at, r.acknowledged_at, r.completed_at, c.deleted_at IS NOT NULL`

const sqlRequestColumns = `SELECT ` + sqlRequestFields + `
	FROM requests r JOIN conversations c ON c.id = r.conversation_id`

const (
	sqlLookUp = `SELECT c.deleted_at IS NOT NULL, r.id, r.state, r.attempt, r.fingerprint FROM conversations c LEFT JOIN requests r
		ON r.request_id = ?1 AND r.conversation_id = c.id AND r.user_id = c.user_id WHERE c.session_id = ?2 AND c.user_id = ?3`

	sqlLoadRequest = sqlRequestColumns + ` WHERE r.id = ?`

	// +r.id, or the order would be had by walking all requests there ever were.
	sqlSelectUnfinished = sqlRequestColumns + ` WHERE true` + sqlOpen + ` ORDER BY +r.id`

	// What waits for its answer, in the words of the partial index requests_open,
	// so that it is used.
	sqlOpen = ` AND (r.state NOT IN ('committed', 'failed') OR r.placed = 0) AND r.state IN ('pending', 'generating')`

	sqlSelectConversationDeleted = `SELECT id, deleted_at IS NOT NULL FROM conversations WHERE session_id = ? AND user_id = ?`

	sqlInsertConversation = `INSERT INTO conversations (session_id, user_id, title, system_prompt, params, next_seq, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`

	sqlUnarchive = `UPDATE conversations SET archived_at = NULL WHERE id = ?`

	sqlInsertRequest = `INSERT INTO requests (request_id, conversation_id, user_id, kind, seq, fingerprint, state,
		model, params, system_prompt, price_input, price_cached, price_output, parent_seq, accepted_tx, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	sqlInsertMessage = `INSERT INTO messages (conversation_id, seq, request_id, role, content, tokens, created_at, tx)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`

	// What fails after it undoes it.
	// Apart from sqlAdvanceConversation, because SQLite keeps what a RETURNING gives in
	// a table of its own: together they cost twice as much.
	sqlSelectForAccept = `SELECT id, next_seq, deleted_at IS NOT NULL, archived_at IS NOT NULL, model, params, system_prompt
		FROM conversations WHERE session_id = ? AND user_id = ?`

	sqlAdvanceConversation = `UPDATE conversations SET next_seq = ?, updated_at = ? WHERE id = ?`

	sqlInsertFirstTransition = `INSERT INTO transitions (request_id, n, from_state, to_state, attempt, actor, reason, at, tx)
		VALUES (?, 1, 'new', 'pending', 0, ?, 'accepted', ?, ?)`

	sqlInsertFirstArrival = `INSERT INTO arrivals (request_id, n, at, source, decision) VALUES (?, 1, ?, ?, 'first')`

	// The parent of a message follows from its request (schema.sql, messages).
	sqlAnswersQuestion = `m.role = 'assistant' AND r.kind IN ('message', 'edit')`

	sqlSelectNode = `SELECT m.role,
		CASE WHEN ` + sqlAnswersQuestion + ` THEN r.seq ELSE r.parent_seq END,
		m.tokens, r.placed
		FROM messages m JOIN requests r ON r.id = m.request_id WHERE m.conversation_id = ? AND m.seq = ?`

	sqlSelectTombstone = `SELECT 1 FROM tombstones WHERE digest = ?`

	sqlSelectInstance = `SELECT epoch, purge_horizon FROM instance`

	sqlSelectNewest = `SELECT max(created_at) FROM (SELECT created_at FROM requests ORDER BY id DESC LIMIT 100)`
)

// EventID is the id of a stream event: the attempt, and how many bytes of its
// text have been sent with it (contract, section 6).
func EventID(attempt int64, offset int) string { return fmt.Sprintf("%d.%d", attempt, offset) }
