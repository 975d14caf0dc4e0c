package db

import (
	"context"
	"strings"
	"time"

	"semel/chat"
)

// Heartbeat extends the lease of the attempt that r describes. ErrFenced means
// that it is lost: the worker stops and writes nothing more.
func (d *DB) Heartbeat(ctx context.Context, r chat.Request, lease time.Duration) error {
	return d.write(ctx, func(tx *Tx) error {
		return tx.heldExec(sqlHeartbeat, []any{tx.now.Add(lease)}, r)
	})
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
	n, err := tx.exec(sqlInsertPartial, append([]any{p.Text, p.Reasoning, tx.now}, held(r)...)...)
	if err != nil {
		return err
	}
	if n != 1 {
		return ErrFenced
	}
	_, err = tx.exec(sqlFirstToken, ms(p.FirstTokenAt), r.ID, r.Attempt)
	return err
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

const (
	sqlHeartbeat = `UPDATE requests SET lease_until = ?` + sqlHeld

	sqlInsertPartial = `INSERT INTO partials (request_id, attempt, n, text, reasoning, at)
		SELECT id, attempt, (SELECT coalesce(max(n), 0) + 1 FROM partials p WHERE p.request_id = requests.id AND p.attempt = requests.attempt),
		?, ?, ? FROM requests` + sqlHeld

	sqlFirstToken = `UPDATE attempts SET first_token_at = ? WHERE request_id = ? AND n = ? AND outcome IS NULL AND first_token_at IS NULL`

	sqlSelectPartials = `SELECT text, reasoning FROM partials WHERE request_id = ? AND attempt = ? ORDER BY n`

	sqlDeletePartials = `DELETE FROM partials WHERE request_id = ? AND attempt = ?`
)
