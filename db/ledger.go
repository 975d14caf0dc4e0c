package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"semel/chat"
)

// LedgerBefore returns the number of the last ledger row written before the given
// time, 0 when there is none. Rows are written in order of time as long as the clock
// goes forward; where it was set back, the answer is one of those that could be meant.
func (d *DB) LedgerBefore(ctx context.Context, at time.Time) (id int64, err error) {
	err = d.read(ctx, func(c *conn) error {
		var low, high int64 // the answer is in [low, high]
		if _, err := c.queryRow(sqlSelectLastLedger, nil, &high); err != nil {
			return err
		}
		for low < high {
			middle := low + (high-low)/2 + 1 // of the rows from low+1 on
			var found int64
			var written time.Time
			if _, err := c.queryRow(sqlSelectLedgerAt, []any{middle}, &found, &written); err != nil {
				return err
			}
			if written.Before(at) {
				low = found
			} else {
				high = middle - 1
			}
		}
		id = low
		return nil
	})
	return id, err
}

// Spent returns what a user's ledger rows after the given one sum up to, and the
// number of the last row there is.
func (d *DB) Spent(ctx context.Context, user, after int64) (micros, last int64, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		_, err := c.queryRow(sqlSelectSpent, []any{after, user}, &micros, &last)
		return err
	})
	return micros, last, err
}

// A Spending is what one user's questions cost on one day.
type Spending struct {
	Day         time.Time // its first moment, UTC
	UserID      int64
	Answers     int64 // with a charge
	Charges     int64 // micros, as are the others
	Adjustments int64
	Waste       int64 // attempts that cost and were not used
	Refunds     int64 // 0 or less
}

// Spending returns what was spent from one moment up to another, a row a day and user,
// in that order.
func (d *DB) Spending(ctx context.Context, from, to time.Time) (list []Spending, err error) {
	first, err := d.LedgerBefore(ctx, from)
	if err != nil {
		return nil, err
	}
	last, err := d.LedgerBefore(ctx, to)
	if err != nil {
		return nil, err
	}
	err = d.read(ctx, func(c *conn) error {
		return c.query(sqlSelectSpending, []any{first, last}, func(r row) error {
			var v Spending
			err := r.scan(&v.Day, &v.UserID, &v.Answers, &v.Charges, &v.Adjustments, &v.Waste, &v.Refunds)
			list = append(list, v)
			return err
		})
	})
	return list, err
}

// A Cost is what a day cost, all users together.
type Cost struct {
	Day    time.Time // its first moment, UTC
	Micros int64
}

// CostsAfter sums up the ledger rows after the given one by day, and returns the number
// of the last row there is.
func (d *DB) CostsAfter(ctx context.Context, after int64) (list []Cost, last int64, err error) {
	last = after
	err = d.readOne(ctx, func(c *conn) error {
		return c.query(sqlSelectCostsAfter, []any{after}, func(r row) error {
			var v Cost
			var newest int64
			err := r.scan(&v.Day, &v.Micros, &newest)
			last = max(last, newest)
			list = append(list, v)
			return err
		})
	})
	return list, last, err
}

// A Correction changes what a request cost, by hand.
type Correction struct {
	RequestID int64
	Kind      string // "refund", or "adjustment" of a charge that was estimated
	Micros    int64  // what is added to the sum: a refund is negative
	Actor     string
	Reason    string
	Key       string // of the intent: a correction under a key is made once
}

// ErrKeyReused: a key was used for something else.
var ErrKeyReused = errors.New("the key was used for something else")

// Correct appends a correction to the ledger, and who made it and why to the audit.
// The same one under its key again changes nothing. Errors: ErrNotFound; ErrKeyReused;
// ErrNotNow when the request has no charge, a refund would give back more than was
// paid, or an adjustment would make the sum negative.
func (d *DB) Correct(ctx context.Context, c Correction) error {
	return d.write(ctx, func(tx *Tx) error {
		r, err := tx.request(c.RequestID)
		if err != nil {
			return err
		}
		object := requestObject(r.ID)
		var action, about, reason string
		var micros int64
		made, err := tx.queryRow(sqlSelectCorrection, []any{r.ID, c.Key}, &action, &about, &reason, &micros)
		if err != nil {
			return err
		}
		if made {
			if action != c.Kind || about != object || reason != c.Reason || micros != c.Micros {
				return ErrKeyReused
			}
			return nil
		}
		var paid int64
		charged, err := tx.queryRow(sqlSelectPaid, []any{r.ID}, &paid)
		if err != nil {
			return err
		}
		if !charged || paid+c.Micros < 0 || c.Kind == "refund" && c.Micros > 0 {
			return ErrNotNow
		}
		var u chat.Usage
		if _, err := tx.exec(sqlInsertLedger, r.ID, r.Key.UserID, c.Kind, r.Attempt, r.Model, u.InputTokens, u.CachedTokens, u.OutputTokens,
			c.Micros, false, tx.now, tx.n); err != nil {
			return fmt.Errorf("insert %s: %w", c.Kind, err)
		}
		return tx.audit(c.Actor, c.Kind, object, c.Reason, c.Key)
	})
}

const (
	sqlSelectLastLedger = `SELECT coalesce(max(id), 0) FROM ledger`

	sqlSelectLedgerAt = `SELECT id, at FROM ledger WHERE id >= ? ORDER BY id LIMIT 1`

	sqlSelectSpent = `SELECT coalesce(sum(CASE WHEN user_id = ?2 THEN micros ELSE 0 END), 0), coalesce(max(id), ?1) FROM ledger WHERE id > ?1`

	sqlSelectSpending = `SELECT at - at % 86400000, user_id, sum(kind = 'charge'), sum(CASE WHEN kind = 'charge' THEN micros ELSE 0 END),
		sum(CASE WHEN kind = 'adjustment' THEN micros ELSE 0 END), sum(CASE WHEN kind = 'waste' THEN micros ELSE 0 END),
		sum(CASE WHEN kind = 'refund' THEN micros ELSE 0 END) FROM ledger WHERE id > ? AND id <= ? GROUP BY 1, 2 ORDER BY 1, 2`

	sqlSelectCostsAfter = `SELECT at - at % 86400000, sum(micros), max(id) FROM ledger WHERE id > ? GROUP BY 1`

	sqlSelectCorrection = `SELECT a.action, a.object, a.reason, coalesce((SELECT l.micros FROM ledger l
		WHERE l.request_id = ?1 AND l.kind IN ('adjustment', 'refund') AND l.tx = a.tx), 0) FROM audit a WHERE a.key = ?2`

	sqlSelectPaid = `SELECT (SELECT coalesce(sum(l.micros), 0) FROM ledger l WHERE l.request_id = ?1 AND l.kind = 'charge')
		+ (SELECT coalesce(sum(l.micros), 0) FROM ledger l WHERE l.request_id = ?1 AND l.kind IN ('adjustment', 'refund'))
		FROM ledger c WHERE c.request_id = ?1 AND c.kind = 'charge'`
)
