package db

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"semel/chat"
)

// uploadSlice bounds the transactions that remove uploads: each may be megabytes.
const uploadSlice = 20

// Upload stores a file that [chat.ReadFile] has looked into and returns it as user
// may name it. The same file again is the same attachment, and is young again.
func (d *DB) Upload(ctx context.Context, user int64, f chat.File) (a chat.Attachment, err error) {
	err = d.write(ctx, func(tx *Tx) (err error) {
		a, err = tx.upload(user, f)
		return err
	})
	return a, err
}

func (tx *Tx) upload(user int64, f chat.File) (chat.Attachment, error) {
	a := f.Attachment
	a.ID = chat.AttachmentID(user, a.Name, a.SHA256)
	sha, err := hex.DecodeString(a.SHA256)
	if err != nil {
		return a, fmt.Errorf("digest of %q: %w", a.Name, err)
	}
	stored, err := tx.queryRow(sqlSelectContentStored, []any{sha}, new(int))
	if err != nil {
		return a, err
	}
	if !stored {
		if _, err := tx.exec(sqlInsertContent, sha, a.MediaType, a.Width, a.Height, a.Tokens, f.Content); err != nil {
			return a, fmt.Errorf("insert content: %w", err)
		}
	}
	if _, err := tx.exec(sqlInsertAttachment, a.ID, user, sha, a.Name, tx.now); err != nil {
		return a, fmt.Errorf("insert attachment: %w", err)
	}
	return a, nil
}

// carry writes what a question carries. Errors: ErrAttachment.
func (tx *Tx) carry(r chat.Request, list []chat.Attachment) error {
	for i, a := range list {
		n, err := tx.exec(sqlInsertCarried, r.ConversationID, r.Seq, i+1, tx.n, a.ID, r.Key.UserID)
		if err != nil {
			return fmt.Errorf("insert carried: %w", err)
		}
		if n == 0 {
			return ErrAttachment
		}
	}
	return nil
}

// Attachments returns those of ids that user has uploaded, in this order; the others
// have no ID, whoever else has uploaded them.
func (d *DB) Attachments(ctx context.Context, user int64, ids []string) ([]chat.Attachment, error) {
	list := make([]chat.Attachment, len(ids))
	err := d.read(ctx, func(c *conn) (err error) {
		for i, id := range ids {
			if list[i], _, err = c.attachment(user, id); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// File returns an attachment of user with its content. Errors: ErrNotFound.
func (d *DB) File(ctx context.Context, user int64, id string) (f chat.File, err error) {
	err = d.read(ctx, func(c *conn) error {
		a, found, err := c.attachment(user, id)
		if err != nil || !found {
			return orNotFound(err)
		}
		f.Attachment = a
		f.Content, err = c.content(a.SHA256)
		return err
	})
	return f, err
}

// Content returns the bytes with this SHA-256, in hexadecimal. Errors: ErrNotFound.
func (d *DB) Content(ctx context.Context, sha string) (content []byte, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		content, err = c.content(sha)
		return err
	})
	return content, err
}

func (c *conn) attachment(user int64, id string) (a chat.Attachment, found bool, err error) {
	var sha []byte
	found, err = c.queryRow(sqlSelectAttachment, []any{id, user}, &a.ID, &sha, &a.Name, &a.MediaType, &a.Width, &a.Height, &a.Tokens, &a.Bytes)
	a.SHA256 = hex.EncodeToString(sha)
	return a, found, err
}

func (c *conn) content(sha string) (content []byte, err error) {
	key, err := hex.DecodeString(sha)
	if err != nil {
		return nil, ErrNotFound
	}
	found, err := c.queryRow(sqlSelectContent, []any{key}, &content)
	if err == nil && !found {
		err = ErrNotFound
	}
	if sum := sha256.Sum256(content); err == nil && !bytes.Equal(sum[:], key) {
		err = unsound("file", sha)
	}
	return content, err
}

// scanCarried reads a row of sqlSelectCarried, or of sqlSelectCarriedBy.
func scanCarried(r row) (seq int64, a chat.Attachment, err error) {
	var sha []byte
	err = r.scan(&seq, &a.ID, &sha, &a.Name, &a.MediaType, &a.Width, &a.Height, &a.Tokens, &a.Bytes)
	a.SHA256 = hex.EncodeToString(sha)
	return seq, a, err
}

func tokensOf(list []chat.Attachment) (n int64) {
	for _, a := range list {
		n += a.Tokens
	}
	return n
}

func hashesOf(list []chat.Attachment) (hashes []string) {
	for _, a := range list {
		hashes = append(hashes, a.SHA256)
	}
	return hashes
}

func sameFile(a, b chat.Attachment) bool { return a.SHA256 == b.SHA256 && a.Name == b.Name }

// PurgeUploads removes what was uploaded before the given time and no question
// carries, one slice a call, and reports whether there may be more.
func (d *DB) PurgeUploads(ctx context.Context, before time.Time) (more bool, err error) {
	err = d.write(ctx, func(tx *Tx) error {
		var ids []string
		err := tx.query(sqlSelectUnsent, []any{before, uploadSlice}, func(r row) error {
			var id string
			err := r.scan(&id)
			ids = append(ids, id)
			return err
		})
		if err != nil {
			return err
		}
		more = len(ids) == uploadSlice
		return tx.dropUploads(ids, before)
	})
	return more, err
}

// purgeCarried removes what a question carries, and each upload with the last
// question that carries it; not one that came again since the conversation was
// deleted: somebody is about to send it.
func (tx *Tx) purgeCarried(conversation, seq int64, deletedAt time.Time) error {
	var ids []string
	err := tx.query(sqlSelectCarriedIDs, []any{conversation, seq}, func(r row) error {
		var id string
		err := r.scan(&id)
		ids = append(ids, id)
		return err
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	if _, err := tx.exec(sqlPurgeCarried, conversation, seq); err != nil {
		return err
	}
	return tx.dropUploads(ids, deletedAt.Add(time.Millisecond))
}

// dropUploads removes those uploads of before a time that no question carries, and
// contents with the last upload of them.
func (tx *Tx) dropUploads(ids []string, before time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	var orphans [][]byte
	err = tx.query(sqlSelectDroppable, []any{string(list), before}, func(r row) error {
		var sha []byte
		err := r.scan(&sha)
		orphans = append(orphans, sha)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := tx.exec(sqlDropUploads, string(list), before); err != nil {
		return err
	}
	for _, sha := range orphans {
		if _, err := tx.exec(sqlDropContent, sha); err != nil {
			return err
		}
	}
	return nil
}

const (
	sqlSelectContentStored = `SELECT 1 FROM contents WHERE sha256 = ?`

	sqlInsertContent = `INSERT INTO contents (sha256, media_type, width, height, tokens, content) VALUES (?, ?, ?, ?, ?, ?)`

	sqlInsertAttachment = `INSERT INTO attachments (id, user_id, sha256, name, uploaded_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET uploaded_at = excluded.uploaded_at`

	sqlInsertCarried = `INSERT INTO carried (conversation_id, seq, n, attachment_id, tx) SELECT ?, ?, ?, id, ? FROM attachments WHERE id = ? AND user_id = ?`

	// What an attachment is. Only the length of its content is looked at, which SQLite
	// knows without reading it.
	sqlAttachmentColumns = `a.id, a.sha256, a.name, k.media_type, k.width, k.height, k.tokens, length(k.content)`

	sqlSelectAttachment = `SELECT ` + sqlAttachmentColumns + ` FROM attachments a JOIN contents k ON k.sha256 = a.sha256 WHERE a.id = ? AND a.user_id = ?`

	sqlSelectContent = `SELECT content FROM contents WHERE sha256 = ?`

	sqlCarriedColumns = `SELECT c.seq, ` + sqlAttachmentColumns + ` FROM carried c
		JOIN attachments a ON a.id = c.attachment_id JOIN contents k ON k.sha256 = a.sha256 WHERE c.conversation_id = ?1`

	sqlSelectCarried = sqlCarriedColumns + ` ORDER BY c.seq, c.n`

	sqlSelectCarriedBy = sqlCarriedColumns + ` AND c.seq IN (SELECT value FROM json_each(?2)) ORDER BY c.seq, c.n`

	sqlSelectCarriedIDs = `SELECT attachment_id FROM carried WHERE conversation_id = ? AND seq = ?`

	sqlPurgeCarried = `DELETE FROM carried WHERE conversation_id = ? AND seq = ?`

	sqlSelectUnsent = `SELECT id FROM attachments a WHERE uploaded_at < ? AND NOT EXISTS (SELECT 1 FROM carried WHERE attachment_id = a.id)
		ORDER BY uploaded_at LIMIT ?`

	sqlDroppable = ` WHERE id IN (SELECT value FROM json_each(?1)) AND uploaded_at < ?2
		AND NOT EXISTS (SELECT 1 FROM carried WHERE attachment_id = attachments.id)`

	sqlSelectDroppable = `SELECT DISTINCT sha256 FROM attachments` + sqlDroppable

	sqlDropUploads = `DELETE FROM attachments` + sqlDroppable

	sqlDropContent = `DELETE FROM contents WHERE sha256 = ?1 AND NOT EXISTS (SELECT 1 FROM attachments WHERE sha256 = ?1)`
)
