package db

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"semel/chat"
)

// UndoWindow is how long a deleted conversation can be restored.
const UndoWindow = 10 * time.Minute

func (c *conn) conversation(user int64, session string) (chat.Conversation, error) {
	v := chat.Conversation{}
	found, err := c.queryRow(sqlSelectConversation, []any{session, user}, conversationDest(&v)...)
	switch {
	case err != nil:
		return v, err
	case found && v.DeletedAt.IsZero():
		return v, nil
	case found:
		return v, ErrGone
	}
	gone, err := c.tombstoned(chat.Key{UserID: user, SessionID: session}, true)
	if err == nil {
		err = ErrNotFound
		if gone {
			err = ErrGone
		}
	}
	return v, err
}

func conversationDest(v *chat.Conversation) []any {
	return []any{&v.ID, &v.UserID, &v.SessionID, &v.Title, &v.Model, &v.SystemPrompt, &v.Params, &v.Pinned, &v.HeadSeq,
		&v.CreatedAt, &v.UpdatedAt, &v.DeletedAt}
}

// Conversations returns a user's conversations, newest first, whose title or text
// contains q ("" for all), older than the conversation before names ("" for the
// newest), at most limit. next names the last of a full page, else it is "".
func (d *DB) Conversations(ctx context.Context, user int64, q, before string, limit int) (list []chat.Conversation, next string, err error) {
	err = d.read(ctx, func(c *conn) error {
		updated, id := int64(1)<<62, int64(1)<<62
		if before != "" {
			found, err := c.queryRow(sqlSelectPage, []any{before, user}, &updated, &id)
			if err != nil || !found {
				return orNotFound(err)
			}
		}
		return c.query(sqlSelectConversations, []any{user, updated, id, q, likePattern(q), limit + 1}, func(r row) error {
			var v chat.Conversation
			if err := r.scan(conversationDest(&v)...); err != nil {
				return err
			}
			list = append(list, v)
			return nil
		})
	})
	if len(list) > limit {
		list = list[:limit]
		next = list[limit-1].SessionID
	}
	return list, next, err
}

// likePattern finds q anywhere; what LIKE would read as a wildcard is itself.
func likePattern(q string) string {
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(q) + "%"
}

// A ConversationPatch changes what is not nil.
type ConversationPatch struct {
	Title, Model, SystemPrompt, Params *string
	Pinned                             *bool
	Head                               *int64 // the number of the message whose branch is shown
}

// PatchConversation changes a conversation and returns it. Errors: ErrNotFound,
// ErrGone, ErrParent when the head is no placed message of it, ErrNotYourTurn
// when the head would move under a running answer.
func (d *DB) PatchConversation(ctx context.Context, user int64, session string, p ConversationPatch) (v chat.Conversation, err error) {
	err = d.write(ctx, func(tx *Tx) error {
		if v, err = tx.conversation(user, session); err != nil {
			return err
		}
		if p.Head != nil {
			if err := tx.checkHead(v.ID, *p.Head); err != nil {
				return err
			}
			v.HeadSeq = *p.Head
		}
		set(&v.Title, p.Title)
		set(&v.Model, p.Model)
		set(&v.SystemPrompt, p.SystemPrompt)
		set(&v.Params, p.Params)
		set(&v.Pinned, p.Pinned)
		_, err := tx.exec(sqlUpdateConversation, v.Title, v.Model, v.SystemPrompt, v.Params, v.Pinned, v.HeadSeq, v.ID)
		return err
	})
	return v, err
}

func (tx *Tx) checkHead(conversation, head int64) error {
	m, found, err := tx.node(conversation, head)
	if err != nil {
		return err
	}
	if !found || !m.placed {
		return ErrParent
	}
	busy, err := tx.queryRow(sqlSelectGenerating, []any{conversation}, new(int))
	if err == nil && busy {
		err = ErrNotYourTurn
	}
	return err
}

func set[T any](into, from *T) {
	if from != nil {
		*into = *from
	}
}

// DeleteConversation marks a conversation deleted and stops its unfinished
// requests in the same transaction, or the next start would run them: those that
// wait are failed now, the stop of one that generates is stored for its worker or
// for recovery. It returns them as they are then. Deleting it twice is no error.
// Errors: ErrNotFound.
func (d *DB) DeleteConversation(ctx context.Context, user int64, session string) (stopped []chat.Request, err error) {
	err = d.write(ctx, func(tx *Tx) error {
		n, err := tx.exec(sqlDeleteConversation, tx.now, session, user)
		if err != nil {
			return err
		}
		if n == 0 {
			if _, err := tx.conversation(user, session); !errors.Is(err, ErrGone) {
				return err
			}
		}
		stopped = nil
		err = tx.query(sqlSelectRunningOf, []any{session, user}, func(row row) error {
			var r chat.Request
			err := row.scan(append(requestDest(&r), new(bool))...)
			stopped = append(stopped, r)
			return err
		})
		for i := range stopped {
			if err == nil {
				err = tx.stopWithConversation(&stopped[i])
			}
		}
		return err
	})
	return stopped, err
}

func (tx *Tx) stopWithConversation(r *chat.Request) error {
	if r.State == chat.StateGenerating {
		return tx.heldExec(sqlRequestStop, []any{tx.now, r.Attempt}, *r)
	}
	return tx.fail(r, actorUser(r.Key.UserID), chat.Failure{
		Code: "stopped", Outcome: chat.OutcomeNone, Retry: chat.RetryExplicit, Detail: "The conversation was deleted.",
	})
}

// UndoUntil returns until when the deletion of a conversation can be undone, the
// zero time when it is not deleted. Errors: ErrNotFound.
func (d *DB) UndoUntil(ctx context.Context, user int64, session string) (until time.Time, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		v, err := c.conversation(user, session)
		if !errors.Is(err, ErrGone) {
			return err
		}
		if !v.DeletedAt.IsZero() {
			until = v.DeletedAt.Add(UndoWindow)
		}
		return nil
	})
	return until, err
}

// RestoreConversation undoes a deletion within UndoWindow. Restoring one that is
// not deleted is no error. Errors: ErrNotFound, ErrGone when it is too late.
func (d *DB) RestoreConversation(ctx context.Context, user int64, session string) (v chat.Conversation, err error) {
	err = d.write(ctx, func(tx *Tx) error {
		if _, err := tx.exec(sqlRestoreConversation, session, user, tx.now.Add(-UndoWindow)); err != nil {
			return err
		}
		v, err = tx.conversation(user, session)
		return err
	})
	return v, err
}

// Title returns the title of a conversation that begins with text: its first
// line, cut between words where it is long.
func Title(text string) string {
	const longest = 60
	line := strings.TrimSpace(text)
	if i := strings.IndexAny(line, "\r\n"); i >= 0 {
		line = strings.TrimSpace(line[:i])
	}
	line = strings.Join(strings.Fields(line), " ")
	if utf8.RuneCountInString(line) <= longest {
		return line
	}
	runes := []rune(line)[:longest]
	if i := strings.LastIndexByte(string(runes), ' '); i > longest/2 {
		return string(runes)[:i] + "…"
	}
	return string(runes) + "…"
}

const (
	sqlConversationColumns = `SELECT c.id, c.user_id, c.session_id, c.title, c.model, c.system_prompt, c.params, c.pinned, c.head_seq,
		c.created_at, c.updated_at, c.deleted_at FROM conversations c`

	sqlSelectConversation = sqlConversationColumns + ` WHERE c.session_id = ? AND c.user_id = ?`

	sqlSelectPage = `SELECT updated_at, id FROM conversations WHERE session_id = ? AND user_id = ?`

	sqlSelectConversations = sqlConversationColumns + ` WHERE c.user_id = ?1 AND c.deleted_at IS NULL
		AND (c.updated_at, c.id) < (?2, ?3)
		AND (?4 = '' OR c.title LIKE ?5 ESCAPE '\' OR EXISTS (
			SELECT 1 FROM messages m LEFT JOIN snapshots s ON s.request_id = m.request_id AND m.role = 'assistant'
			WHERE m.conversation_id = c.id AND coalesce(m.content, s.content) LIKE ?5 ESCAPE '\'))
		ORDER BY c.updated_at DESC, c.id DESC LIMIT ?6`

	sqlUpdateConversation = `UPDATE conversations SET title = ?, model = ?, system_prompt = ?, params = ?, pinned = ?, head_seq = ? WHERE id = ?`

	sqlSelectGenerating = `SELECT 1 FROM requests WHERE conversation_id = ? AND state = 'generating'`

	sqlDeleteConversation = `UPDATE conversations SET deleted_at = ? WHERE session_id = ? AND user_id = ? AND deleted_at IS NULL`

	sqlRestoreConversation = `UPDATE conversations SET deleted_at = NULL
		WHERE session_id = ? AND user_id = ? AND deleted_at > ? AND purging = 0`

	sqlSelectRunningOf = sqlRequestColumns + ` WHERE c.session_id = ? AND c.user_id = ?` + sqlOpen + ` ORDER BY r.seq`
)
