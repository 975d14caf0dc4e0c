package db

import (
	"context"
	"fmt"

	"semel/chat"
)

// A change is one change of state: from the state, attempt and owner the caller
// believes in, or not at all (contract, section 2).
type change struct {
	r      *chat.Request // as the caller believes it is
	to     chat.State
	actor  string
	reason string
	sql    string // an UPDATE that ends with sqlHeld
	args   []any
}

// transition makes c and appends its row to transitions. It returns ErrFenced
// when the request is not as c.r says.
func (tx *Tx) transition(c change) error {
	if !c.r.State.CanBecome(c.to) {
		panic(fmt.Sprintf("db: no edge from %s to %s", c.r.State, c.to))
	}
	if err := tx.heldExec(c.sql, c.args, *c.r); err != nil {
		return fmt.Errorf("%s to %s: %w", c.r.State, c.to, err)
	}
	attempt := c.r.Attempt
	if c.to == chat.StateGenerating {
		attempt++ // only a claim raises it
	}
	if err := tx.recordTransition(*c.r, c.r.Steps+1, c.r.State, c.to, attempt, c.actor, c.reason); err != nil {
		return err
	}
	c.r.Steps++
	return nil
}

// recordTransition appends a row to transitions.
func (tx *Tx) recordTransition(r chat.Request, step int64, from, to chat.State, attempt int64, actor, reason string) error {
	n, err := tx.exec(sqlInsertTransition, r.ID, step, from, to, attempt, actor, reason, tx.now, tx.n)
	if err != nil {
		return fmt.Errorf("record transition: %w", err)
	}
	if to == chat.StateAcknowledged {
		tx.sum.answers += n
	}
	if tx.tells {
		tx.tellTransition(r.Key, step, from, to, attempt, actor, reason)
	}
	return nil
}

func nullString(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// heldExec runs an UPDATE that ends with sqlHeld.
func (tx *Tx) heldExec(sql string, args []any, r chat.Request) error {
	n, err := tx.exec(sql, append(args, held(r)...)...)
	if err != nil {
		return err
	}
	if n != 1 {
		return ErrFenced
	}
	return nil
}

// change runs fn, which changes a copy of r, as one transaction. It returns that
// copy when it is durable and r as it was given when not: whoever tries again
// believes what was true before.
func (d *DB) change(ctx context.Context, r chat.Request, fn func(*Tx, *chat.Request) error) (chat.Request, error) {
	changed := r
	if err := d.write(ctx, func(tx *Tx) error { return fn(tx, &changed) }); err != nil {
		return r, err
	}
	return changed, nil
}

// sqlHeld is the compare of every compare-and-set: the state, attempt and owner
// that the caller believes in, and that nothing happened since. A request that
// failed and was restarted has the same state and attempt again, not the same
// steps.
const sqlHeld = ` WHERE id = ? AND state = ? AND attempt = ? AND owner IS ? AND steps = ?`

// held are the arguments of sqlHeld.
func held(r chat.Request) []any {
	return []any{r.ID, r.State, r.Attempt, nullString(r.Owner), r.Steps}
}

const (
	sqlInsertTransition = `INSERT INTO transitions (request_id, n, from_state, to_state, attempt, actor, reason, at, tx)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
)
