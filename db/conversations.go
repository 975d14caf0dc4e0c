package db

import (
	"context"
	"errors"
	"time"

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
	return []any{&v.ID, &v.UserID, &v.SessionID, &v.Title, &v.Named, &v.Model, &v.SystemPrompt, &v.Params, &v.Pinned, &v.HeadSeq,
		&v.CreatedAt, &v.UpdatedAt, &v.DeletedAt, &v.ArchivedAt, &v.News, &v.Running}
}

// A List asks for a page of a user's conversations.
type List struct {
	Query    string // what their titles or messages contain; "" is anything
	Archived bool   // the archive instead of the list
	Before   string // where the page before said that this one begins; "" is the first
	Limit    int
}

// A Listed is a conversation as a list shows it.
type Listed struct {
	chat.Conversation
	Hit *Hit // where the query was found; nil where none was asked
}

// Conversations returns one page of a user's conversations. Without a query the
// pinned ones come first, then the newest, and next names the last of a full page.
// With a query those come first that were hit by the newest message; see search.
// next is "" where nothing follows. Errors: ErrNotFound when l.Before is no place
// in the list.
func (d *DB) Conversations(ctx context.Context, user int64, l List) (list []Listed, next string, err error) {
	err = d.read(ctx, func(c *conn) (err error) {
		if l.Query != "" {
			list, next, err = c.search(user, l)
			return err
		}
		list, next, err = c.list(user, l)
		return err
	})
	return list, next, err
}

func (c *conn) list(user int64, l List) (list []Listed, next string, err error) {
	pinned, updated, id := int64(2), int64(1)<<62, int64(1)<<62
	if l.Before != "" {
		found, err := c.queryRow(sqlSelectPage, []any{l.Before, user}, &pinned, &updated, &id)
		if err != nil || !found {
			return nil, "", orNotFound(err)
		}
	}
	sql := sqlSelectListed
	if l.Archived {
		sql = sqlSelectArchived
	}
	err = c.query(sql, []any{user, pinned, updated, id, l.Limit + 1}, func(r row) error {
		var v Listed
		err := r.scan(conversationDest(&v.Conversation)...)
		list = append(list, v)
		return err
	})
	if len(list) > l.Limit {
		list = list[:l.Limit]
		next = list[l.Limit-1].SessionID
	}
	return list, next, err
}

// News returns how many of a user's conversations have an end that nobody has seen.
func (d *DB) News(ctx context.Context, user int64) (n int, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		_, err := c.queryRow(sqlCountNews, []any{user}, &n)
		return err
	})
	return n, err
}

// A ConversationPatch changes what is not nil.
type ConversationPatch struct {
	Title, Model, SystemPrompt, Params *string
	FirstWords                         bool // its title is that of its first question again, whatever a person named it
	Pinned                             *bool
	Archived                           *bool  // what is archived is not pinned, and the reverse
	Head                               *int64 // the number of the message whose branch is shown
	Seen                               bool   // a person looks at it: what has ended is no news
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
		set(&v.Model, p.Model)
		set(&v.SystemPrompt, p.SystemPrompt)
		set(&v.Params, p.Params)
		set(&v.Pinned, p.Pinned)
		switch {
		case p.Archived != nil && !*p.Archived:
			v.ArchivedAt = time.Time{}
		case p.Archived != nil && v.ArchivedAt.IsZero():
			v.ArchivedAt, v.Pinned = tx.now, false
		case p.Pinned != nil && *p.Pinned:
			v.ArchivedAt = time.Time{}
		}
		v.News = v.News && !p.Seen
		if _, err := tx.exec(sqlUpdateConversation, v.Model, v.SystemPrompt, v.Params, v.Pinned, v.HeadSeq, v.ArchivedAt, p.Seen, v.ID); err != nil {
			return err
		}
		switch {
		case p.FirstWords:
			v.Named = false
			v.Title, err = tx.unname(v.ID)
			return err
		case p.Title != nil:
			v.Title, v.Named = *p.Title, true
			return tx.name(v.ID, v.Title)
		}
		return nil
	})
	return v, err
}

// name gives a conversation the title that a person wants. The index looks for it
// under the number of this transaction.
func (tx *Tx) name(conversation int64, title string) error {
	if _, err := tx.exec(sqlUnindexTitle, conversation); err != nil {
		return err
	}
	_, err := tx.exec(sqlNameConversation, title, tx.n, conversation)
	return err
}

// unname gives a conversation the title that it had before a person named it. The index
// has that already, in the question.
func (tx *Tx) unname(conversation int64) (title string, err error) {
	if _, err := tx.exec(sqlUnindexTitle, conversation); err != nil {
		return "", err
	}
	var question string
	if _, err := tx.queryRow(sqlSelectFirstQuestion, []any{conversation}, &question); err != nil {
		return "", err
	}
	title = Title(question)
	_, err = tx.exec(sqlNameConversation, title, 0, conversation)
	return title, err
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
// for recovery. Actions that nobody has decided about are rejected. It returns those
// requests as they are then. Deleting it twice is no error.
// Errors: ErrNotFound.
func (d *DB) DeleteConversation(ctx context.Context, user int64, session string) (stopped []chat.Request, err error) {
	defer d.deletions.Add(1) // before anybody is told, whatever became of it
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
		if err != nil {
			return err
		}
		var id int64
		if found, err := tx.queryRow(sqlSelectConversationDeleted, []any{session, user}, &id, new(bool)); err != nil || !found {
			return err
		}
		// What was approved runs on.
		return tx.rejectUndecided(id, 0, actorUser(user), "deleted")
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

const (
	sqlConversationColumns = `SELECT c.id, c.user_id, c.session_id, c.title, c.named_tx > 0, c.model, c.system_prompt, c.params, c.pinned, c.head_seq,
		c.created_at, c.updated_at, c.deleted_at, c.archived_at, c.ended_tx > c.seen_tx,
		EXISTS (SELECT 1 FROM requests r WHERE r.conversation_id = c.id` + sqlOpen + `) FROM conversations c`

	sqlSelectConversation = sqlConversationColumns + ` WHERE c.session_id = ? AND c.user_id = ?`

	sqlSelectPage = `SELECT pinned, updated_at, id FROM conversations WHERE session_id = ? AND user_id = ?`

	sqlSelectListed   = sqlConversationColumns + ` WHERE c.user_id = ? AND c.deleted_at IS NULL AND c.archived_at IS NULL` + sqlBehind
	sqlSelectArchived = sqlConversationColumns + ` WHERE c.user_id = ? AND c.deleted_at IS NULL AND c.archived_at IS NOT NULL` + sqlBehind

	sqlBehind = ` AND (c.pinned, c.updated_at, c.id) < (?, ?, ?) ORDER BY c.pinned DESC, c.updated_at DESC, c.id DESC LIMIT ?`

	// Among those that a person may have in sight: what is new is recent.
	sqlCountNews = `SELECT count(*) FROM (SELECT ended_tx > seen_tx AS news FROM conversations
		WHERE user_id = ? AND deleted_at IS NULL AND archived_at IS NULL ORDER BY pinned DESC, updated_at DESC LIMIT 500) WHERE news`

	sqlUpdateConversation = `UPDATE conversations SET model = ?, system_prompt = ?, params = ?, pinned = ?, head_seq = ?, archived_at = ?,
		seen_tx = CASE WHEN ? THEN ended_tx ELSE seen_tx END WHERE id = ?`

	sqlNameConversation = `UPDATE conversations SET title = ?, named_tx = ? WHERE id = ?`

	sqlSelectFirstQuestion = `SELECT content FROM messages WHERE conversation_id = ? AND role = 'user' ORDER BY seq LIMIT 1`

	sqlSelectGenerating = `SELECT 1 FROM requests WHERE conversation_id = ? AND state = 'generating'`

	sqlDeleteConversation = `UPDATE conversations SET deleted_at = ? WHERE session_id = ? AND user_id = ? AND deleted_at IS NULL`

	sqlRestoreConversation = `UPDATE conversations SET deleted_at = NULL
		WHERE session_id = ? AND user_id = ? AND deleted_at > ? AND purging = 0`

	sqlSelectRunningOf = sqlRequestColumns + ` WHERE c.session_id = ? AND c.user_id = ?` + sqlOpen + ` ORDER BY r.seq`
)
