package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"semel/chat"
)

// An Imported says what became of an archive.
type Imported struct {
	SessionID string // the conversation it is here
	New       bool   // it was added now
}

// ErrNoID: the id of an archive and every id derived from it are taken or purged.
var ErrNoID = errors.New("no id is free for this conversation")

// errTaken: somebody took the id between the look and the write.
var errTaken = errors.New("the id is taken")

// mostIDs is how many ids are tried for one archive. Each but the first is used up
// only by importing it, and then deleting it and having it purged.
const mostIDs = 100

// Import stores a checked archive as a conversation of user, in one transaction,
// and calls no model. The id stays where it is free. Where it is not, because
// another conversation has it or it was deleted here, the new id is derived from
// what is in a. A conversation that has all of a already is left as it is, so the
// second import adds nothing.
//
// Each request comes as one that was accepted, answered and charged nothing, by an
// arrival of source import. Its id is known from then on: a repeat replays it or
// conflicts, and never runs. Errors: ErrNoID.
func (d *DB) Import(ctx context.Context, user int64, a Archive) (Imported, error) {
	p := prepare(user, a)
	for {
		i, err := d.lookForPlace(ctx, user, a)
		if err != nil || !i.New {
			return i, err
		}
		p.archive.Conversation.SessionID = i.SessionID
		err = d.write(ctx, func(tx *Tx) error { return tx.importArchive(p) })
		if !errors.Is(err, errTaken) {
			return i, err
		}
	}
}

// lookForPlace finds the conversation that has all of a, or the first id that is
// free for it.
func (d *DB) lookForPlace(ctx context.Context, user int64, a Archive) (i Imported, err error) {
	err = d.read(ctx, func(c *conn) error {
		for n := range mostIDs {
			i = Imported{SessionID: derivedID(a, n)}
			here, err := c.archive(user, i.SessionID)
			switch {
			case err == nil && here.has(a):
				return nil
			case errors.Is(err, ErrNotFound) && !d.forgotten(i.SessionID):
				i.New = true
				return nil
			case err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrNotFound):
				return err
			}
		}
		return ErrNoID
	})
	return i, err
}

// forgotten reports whether an unknown id may be one whose tombstone is gone.
func (d *DB) forgotten(session string) bool {
	at, timed := chat.IDTime(session)
	return timed && at.UnixMilli() <= d.horizon.Load()
}

// has reports whether every turn of b is in a, which may have gone on since: what
// had failed may have its answer by now.
func (a Archive) has(b Archive) bool {
	turns := make(map[int64]ArchivedTurn, len(a.Turns))
	for _, t := range a.Turns {
		turns[t.Seq] = t
	}
	for _, t := range b.Turns {
		mine, ok := turns[t.Seq]
		if !ok || mine.RequestID != t.RequestID || mine.Kind != t.Kind || mine.Question != t.Question || !slices.EqualFunc(mine.Attachments, t.Attachments, sameFile) {
			return false
		}
		if t.Answered() && (!mine.Answered() || mine.Content != t.Content || mine.Reasoning != t.Reasoning) {
			return false
		}
	}
	return true
}

// derivedID is the n-th id to be tried for an archive. The first is its own. The
// others have no time in them: their tombstones are never forgotten, so that the
// same archive finds the same one again.
func derivedID(a Archive, n int) string {
	if n == 0 {
		return a.Conversation.SessionID
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%d", a.Conversation.SessionID, n)
	for _, t := range a.Turns {
		fmt.Fprintf(h, "\x00%d %s %s %d %d %d %d", t.Seq, t.RequestID, t.Kind, t.ParentSeq, len(t.Question), len(t.Content), len(t.Reasoning))
		fmt.Fprint(h, t.Question, t.Content, t.Reasoning)
		for _, f := range t.Attachments {
			fmt.Fprintf(h, "\x00%s %s", f.SHA256, f.Name)
		}
	}
	return "import-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// A prepared archive has all that can be computed before its turn: the queue does
// not wait for it.
type prepared struct {
	user    int64
	archive Archive
	turns   []preparedTurn
}

type preparedTurn struct {
	fingerprint  []byte
	digest       []byte
	asked, given int64 // tokens
}

func prepare(user int64, a Archive) prepared {
	p := prepared{user: user, archive: a}
	for _, t := range a.Turns {
		f := chat.Fields{Kind: t.Kind, Content: t.Question, Attachments: hashesOf(t.Attachments)}
		if t.Kind != chat.KindMessage {
			f.ParentID = chat.MessageID(a.Conversation.SessionID, t.ParentSeq)
		}
		v := preparedTurn{fingerprint: []byte(f.Fingerprint()), asked: chat.EstimateTokens(t.Question)}
		for _, f := range t.Attachments {
			v.asked += a.Files[f.SHA256].Tokens
		}
		if t.Answered() {
			v.digest, v.given = SnapshotDigest(t.Content, t.Reasoning, noToolCalls), chat.EstimateTokens(t.Content)
		}
		p.turns = append(p.turns, v)
	}
	return p
}

const (
	importOwner    = "import"   // of the attempts that were made elsewhere
	importedReason = "imported" // why they are here
	noToolCalls    = "[]"
)

// importArchive writes the rows that accept, claim, finish and fail would have
// written. Each acceptance and each answer has a number of its own, as if it had
// been a transaction, because invariants and the search index tell them apart by it.
func (tx *Tx) importArchive(p prepared) error {
	c := p.archive.Conversation
	k := chat.Key{UserID: p.user, SessionID: c.SessionID}
	if gone, err := tx.tombstoned(k, true); err != nil || gone {
		return orTaken(err)
	}
	next := int64(1)
	if n := len(p.archive.Turns); n > 0 {
		next = AnswerSeq(chat.Request{Kind: p.archive.Turns[n-1].Kind, Seq: p.archive.Turns[n-1].Seq}) + 1
	}
	archivedAt := c.UpdatedAt
	if c.ArchivedAt.IsZero() {
		archivedAt = c.ArchivedAt
	}
	id, err := tx.insert(sqlImportConversation, c.SessionID, p.user, c.Title, c.Model, c.SystemPrompt, c.Params, c.Pinned, next, c.HeadSeq,
		c.CreatedAt, c.UpdatedAt, archivedAt)
	if isUnique(err) {
		return errTaken
	}
	if err != nil {
		return fmt.Errorf("insert conversation: %w", err)
	}
	ended := int64(0)
	for i, t := range p.archive.Turns {
		r := chat.Request{ConversationID: id, Key: chat.Key{UserID: p.user, RequestID: t.RequestID}, Kind: t.Kind, Seq: t.Seq,
			ParentSeq: t.ParentSeq, Model: t.Model, Params: c.Params, SystemPrompt: c.SystemPrompt}
		if err := tx.importTurn(r, t, p.turns[i], p.archive.Files); err != nil {
			return fmt.Errorf("request %s: %w", t.RequestID, err)
		}
		if t.Failure.Code != stoppedCode {
			ended = tx.n
		}
		tx.n++
	}
	named := int64(0)
	if c.Named {
		named = tx.n
	}
	_, err = tx.exec(sqlFinishImport, named, ended, ended, id)
	return err
}

func orTaken(err error) error {
	if err != nil {
		return err
	}
	return errTaken
}

func (tx *Tx) importTurn(r chat.Request, t ArchivedTurn, p preparedTurn, files map[string]chat.File) error {
	state, steps, attempt := chat.StateCommitted, 4, 1
	outcome := chat.OutcomeOK
	var acknowledged, context any = tx.now, ""
	switch {
	case t.Answered() && t.Finish == chat.FinishStopped:
		outcome = chat.OutcomeStopped
	case t.Answered():
	case t.Content == "" && t.Reasoning == "": // as if it had failed before its first claim
		state, steps, attempt, acknowledged, context = chat.StateFailed, 2, 0, nil, nil
	default:
		state, steps, outcome, acknowledged = chat.StateFailed, 3, t.Failure.Outcome, nil
	}
	var failure [4]any
	if f := t.Failure; !t.Answered() {
		// Whatever it was there: here only a person starts it again.
		failure = [4]any{f.Code, f.Outcome, chat.RetryExplicit, f.Detail}
	}
	var err error
	r.ID, err = tx.insert(sqlImportRequest, r.Key.RequestID, r.ConversationID, r.Key.UserID, r.Kind, r.Seq, p.fingerprint, state, steps, attempt,
		r.Model, r.Params, r.SystemPrompt, r.ParentSeq, context, failure[0], failure[1], failure[2], failure[3], tx.n, tx.now, tx.now, acknowledged, tx.now)
	if err != nil {
		return fmt.Errorf("insert request: %w", err)
	}
	if r.Kind.WritesQuestion() {
		if _, err := tx.exec(sqlInsertMessage, r.ConversationID, r.Seq, r.ID, "user", t.Question, p.asked, t.AskedAt, tx.n); err != nil {
			return fmt.Errorf("insert question: %w", err)
		}
		var carried []chat.Attachment
		for _, a := range t.Attachments {
			f := files[a.SHA256]
			f.Name = a.Name
			uploaded, err := tx.upload(r.Key.UserID, f)
			if err != nil {
				return err
			}
			carried = append(carried, uploaded)
		}
		if err := tx.carry(r, carried); err != nil {
			return err
		}
	}
	if _, err := tx.exec(sqlInsertFirstArrival, r.ID, tx.now, chat.SourceImport); err != nil {
		return fmt.Errorf("insert arrival: %w", err)
	}
	path := importPath{tx: tx, r: r}
	path.step(chat.StateNew, chat.StatePending, 0, importedReason)
	if attempt == 1 {
		path.step(chat.StatePending, chat.StateGenerating, 1, importedReason)
		if _, err := tx.exec(sqlImportAttempt, r.ID, importedReason, importOwner, r.Model, tx.now, tx.now, tx.now, outcome, nullString(t.Failure.Code),
			t.Usage.InputTokens, t.Usage.CachedTokens, t.Usage.OutputTokens, t.Usage.Estimated, tx.n); err != nil {
			return fmt.Errorf("insert attempt: %w", err)
		}
	}
	tx.n++
	if t.Answered() {
		path.step(chat.StateGenerating, chat.StateAcknowledged, 1, importedReason)
		path.step(chat.StateAcknowledged, chat.StateCommitted, 1, "no effects")
		if path.err != nil {
			return path.err
		}
		return tx.importAnswer(r, t, p)
	}
	from := chat.StatePending
	if attempt == 1 {
		from = chat.StateGenerating
		if _, err := tx.exec(sqlImportPartial, r.ID, t.Content, t.Reasoning, tx.now); err != nil {
			return fmt.Errorf("insert partial text: %w", err)
		}
	}
	path.step(from, chat.StateFailed, int64(attempt), t.Failure.Code)
	return path.err
}

// An importPath writes the transitions of one request, until one fails.
type importPath struct {
	tx  *Tx
	r   chat.Request
	n   int64
	err error
}

func (p *importPath) step(from, to chat.State, attempt int64, reason string) {
	if p.err != nil {
		return
	}
	p.n++
	p.err = p.tx.recordTransition(p.r, p.n, from, to, attempt, actorUser(p.r.Key.UserID), reason)
}

// importAnswer is the end of an answered request, with a charge of nothing.
func (tx *Tx) importAnswer(r chat.Request, t ArchivedTurn, p preparedTurn) error {
	u := t.Usage
	if _, err := tx.exec(sqlInsertSnapshot, r.ID, 1, r.Model, "", t.Content, t.Reasoning, noToolCalls, t.Finish, u.InputTokens, u.CachedTokens,
		u.OutputTokens, u.Estimated, p.digest, t.Thought.Milliseconds(), t.AnsweredAt, tx.n, nil); err != nil {
		return fmt.Errorf("insert snapshot: %w", err)
	}
	if _, err := tx.exec(sqlInsertMessage, r.ConversationID, AnswerSeq(r), r.ID, "assistant", nil, p.given, t.AnsweredAt, tx.n); err != nil {
		return fmt.Errorf("insert answer: %w", err)
	}
	r.Attempt = 1
	if err := tx.charge(r, u, 0); err != nil {
		return err
	}
	if _, err := tx.exec(sqlInsertProcessed, r.Key.RequestID, r.ConversationID, r.Key.UserID, r.ID, p.fingerprint, tx.now, tx.n); err != nil {
		return fmt.Errorf("insert dedupe mark: %w", err)
	}
	return nil
}

const (
	sqlImportConversation = `INSERT INTO conversations (session_id, user_id, title, model, system_prompt, params, pinned, next_seq, head_seq,
		created_at, updated_at, archived_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	// What was imported is no news.
	sqlFinishImport = `UPDATE conversations SET named_tx = ?, ended_tx = ?, seen_tx = ? WHERE id = ?`

	// Its price is nothing: whoever asks it again here pays what the model costs then.
	sqlImportRequest = `INSERT INTO requests (request_id, conversation_id, user_id, kind, seq, fingerprint, state, steps, attempt,
		model, params, system_prompt, price_input, price_cached, price_output, placed, parent_seq, context,
		failure_code, failure_outcome, failure_retry, failure_detail, accepted_tx, created_at, updated_at, acknowledged_at, completed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	sqlImportAttempt = `INSERT INTO attempts (request_id, n, reason, owner, model, started_at, dispatched_at, ended_at, outcome, code,
		input_tokens, cached_tokens, output_tokens, estimated, tx) VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	sqlImportPartial = `INSERT INTO partials (request_id, attempt, n, text, reasoning, at) VALUES (?, 1, 1, ?, ?, ?)`

	sqlSelectImported = `SELECT 1 FROM arrivals WHERE request_id = ? AND n = 1 AND source = 'import'`
)
