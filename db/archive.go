package db

import (
	"context"
	"time"

	"semel/chat"
)

// An Archive is all of a conversation that its owner would miss: what an export
// writes and an import reads. What happened on the way is not in it (arrivals,
// transitions, attempts), nor is money: that was paid where it was paid.
type Archive struct {
	Conversation chat.Conversation // without internal ids
	Turns        []ArchivedTurn    // every branch, in order of their numbers
	// Files are what an import has read of the attachments, by SHA-256. Who exports
	// reads them one by one.
	Files map[string]chat.File
}

// An ArchivedTurn is one request: its question, where it wrote one, and its answer
// or what became of it instead.
type ArchivedTurn struct {
	RequestID string
	Kind      chat.Kind
	Seq       int64 // as chat.Request has it
	ParentSeq int64
	Model     string
	Question  string
	AskedAt   time.Time // zero without a question
	// Attachments are what the question carries; of an import only the name and the
	// SHA-256 count.
	Attachments []chat.Attachment

	// Failure is zero where there is an answer. Content and Reasoning are what had
	// come otherwise.
	Failure            chat.Failure
	Content, Reasoning string

	// Of an answer only.
	Finish     chat.Finish
	Usage      chat.Usage
	Thought    time.Duration
	AnsweredAt time.Time
}

// Answered reports whether t has its answer.
func (t ArchivedTurn) Answered() bool { return t.Failure.Code == "" }

// unfinished is what an archive says of a request that waits or runs: another
// place cannot go on with it.
var unfinished = chat.Failure{Code: "interrupted", Outcome: chat.OutcomeUnknown, Retry: chat.RetryExplicit, Detail: "It was unfinished when it was exported."}

// Archive returns all of a conversation, of one moment. Requests that have no place
// in the history yet get the one they would get now. Errors: ErrNotFound, ErrGone.
func (d *DB) Archive(ctx context.Context, user int64, session string) (a Archive, err error) {
	err = d.read(ctx, func(c *conn) (err error) {
		a, err = c.archive(user, session)
		return err
	})
	return a, err
}

func (c *conn) archive(user int64, session string) (a Archive, err error) {
	if a.Conversation, err = c.conversation(user, session); err != nil {
		return a, err
	}
	type unread struct {
		turn        int
		id, attempt int64
	}
	var open []unread
	head := a.Conversation.HeadSeq
	err = c.query(sqlSelectArchive, []any{a.Conversation.ID}, func(r row) error {
		t := ArchivedTurn{}
		u := unread{turn: len(a.Turns)}
		var state chat.State
		var placed, sound bool
		var thought int64
		if err := r.scan(&sound, &u.id, &t.RequestID, &t.Kind, &t.Seq, &t.ParentSeq, &placed, &t.Model, &state, &u.attempt,
			&t.Failure.Code, &t.Failure.Outcome, &t.Failure.Retry, &t.Failure.Detail, &t.Question, &t.AskedAt,
			&t.Content, &t.Reasoning, &t.Finish, &t.Usage.InputTokens, &t.Usage.CachedTokens, &t.Usage.OutputTokens, &t.Usage.Estimated,
			&thought, &t.AnsweredAt); err != nil {
			return err
		}
		if !sound {
			return unsound("turn of request", t.RequestID)
		}
		t.Thought = time.Duration(thought) * time.Millisecond
		if state.Live() {
			t.Failure = unfinished
		}
		if !placed {
			if t.Kind == chat.KindMessage {
				t.ParentSeq = head
			}
			if t.Kind.WritesQuestion() {
				head = t.Seq
			}
		}
		if !t.Answered() {
			open = append(open, u)
		}
		a.Turns = append(a.Turns, t)
		return nil
	})
	if err == nil {
		at := 0
		err = c.query(sqlSelectCarried, []any{a.Conversation.ID}, func(r row) error {
			seq, f, err := scanCarried(r)
			for at < len(a.Turns) && a.Turns[at].Seq < seq {
				at++
			}
			if at < len(a.Turns) && a.Turns[at].Seq == seq {
				a.Turns[at].Attachments = append(a.Turns[at].Attachments, f)
			}
			return err
		})
	}
	for _, u := range open {
		if err != nil {
			return a, err
		}
		var p Partial
		p, err = c.partial(u.id, u.attempt)
		a.Turns[u.turn].Content, a.Turns[u.turn].Reasoning = p.Text, p.Reasoning
	}
	a.Conversation.HeadSeq = head
	return a, err
}

// Sessions returns the ids of a user's conversations that come after the given one,
// n at the most, in the order in which they were made here. after is "" for the
// first, and may be of one that is deleted by now.
func (d *DB) Sessions(ctx context.Context, user int64, after int64, n int) (sessions []string, last int64, err error) {
	err = d.read(ctx, func(c *conn) error {
		return c.query(sqlSelectSessions, []any{user, after, n}, func(r row) error {
			var s string
			err := r.scan(&last, &s)
			sessions = append(sessions, s)
			return err
		})
	})
	return sessions, last, err
}

const (
	sqlSelectArchive = `SELECT ` + sqlSoundMessage + `, r.id, r.request_id, r.kind, r.seq, r.parent_seq, r.placed, r.model, r.state, r.attempt,
		r.failure_code, r.failure_outcome, r.failure_retry, r.failure_detail, m.content, m.created_at,
		s.content, s.reasoning, s.finish, s.input_tokens, s.cached_tokens, s.output_tokens, s.estimated, s.thought_ms, s.created_at
		FROM requests r
		LEFT JOIN messages m ON m.conversation_id = r.conversation_id AND m.seq = r.seq AND m.role = 'user'
		LEFT JOIN snapshots s ON s.request_id = r.id
		WHERE r.id IN (SELECT q.request_id FROM messages q WHERE q.conversation_id = ?1 AND q.role = 'user'
			UNION SELECT w.id FROM requests w WHERE w.conversation_id = ?1 AND w.kind IN ('regenerate', 'continue')) ORDER BY r.seq`

	sqlSelectSessions = `SELECT id, session_id FROM conversations WHERE user_id = ? AND deleted_at IS NULL AND id > ? ORDER BY id LIMIT ?`
)
