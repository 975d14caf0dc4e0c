package db

import (
	"context"
	"time"

	"semel/chat"
)

// NameRun stores the provider's name of the run that the attempt of r started,
// while it goes on: whoever finds the attempt without its worker can follow that
// run. Errors: ErrFenced.
func (d *DB) NameRun(ctx context.Context, r chat.Request, upstreamID string) error {
	return d.write(ctx, func(tx *Tx) error {
		n, err := tx.exec(sqlNameRun, append([]any{upstreamID}, held(r)...)...)
		if err == nil && n != 1 {
			err = ErrFenced
		}
		return err
	})
}

// RunName returns the provider's name of the run of an attempt that goes on, ""
// when it has none.
func (d *DB) RunName(ctx context.Context, r chat.Request) (upstreamID string, err error) {
	err = d.read(ctx, func(c *conn) error {
		_, err := c.queryRow(sqlSelectRunName, []any{r.ID, r.Attempt}, &upstreamID)
		return err
	})
	return upstreamID, err
}

// Adopt makes owner the worker of the attempt that r describes, whose own is gone:
// same attempt, new owner (contract, section 4). It changes no state and calls no
// model. Errors: ErrFenced; ErrStopRequested when a person stopped that attempt,
// which goes first.
func (d *DB) Adopt(ctx context.Context, r chat.Request, owner string, lease time.Duration) (chat.Request, error) {
	return d.change(ctx, r, func(tx *Tx, r *chat.Request) error {
		stopped, err := tx.queryRow(sqlSelectStop, []any{r.ID, r.Attempt}, new(int))
		if err != nil {
			return err
		}
		if stopped {
			return ErrStopRequested
		}
		if err := tx.heldExec(sqlAdopt, []any{owner, tx.now.Add(lease), tx.now}, *r); err != nil {
			return err
		}
		r.Owner, r.UpdatedAt = owner, tx.now
		_, err = tx.exec(sqlAdoptAttempt, owner, r.ID, r.Attempt)
		return err
	})
}

const (
	sqlNameRun = `UPDATE attempts SET upstream_id = ? WHERE (request_id, n) = (SELECT id, attempt FROM requests` + sqlHeld + `)`

	sqlSelectRunName = `SELECT upstream_id FROM attempts WHERE request_id = ? AND n = ? AND outcome IS NULL`

	sqlAdopt = `UPDATE requests SET owner = ?, lease_until = ?, updated_at = ?` + sqlHeld

	sqlAdoptAttempt = `UPDATE attempts SET owner = ? WHERE request_id = ? AND n = ?`
)
