package db

import (
	"context"
	"time"

	"semel/chat"
)

// sliceSize bounds the transactions of retention: a question that arrives in
// between waits for one slice at the most.
const sliceSize = 500

// PruneEvidence removes the bulky evidence (repeats among the arrivals, text of
// attempts that were not used) of requests accepted before the given time, one
// slice a call. It reports whether there may be more. What makes an id known is
// never pruned.
func (d *DB) PruneEvidence(ctx context.Context, before time.Time) (more bool, err error) {
	err = d.write(ctx, func(tx *Tx) error {
		var from, to int64
		var n int
		if _, err := tx.queryRow(sqlSelectPrunable, []any{before, sliceSize}, &from, &to, &n); err != nil || n == 0 {
			return err
		}
		more = n == sliceSize
		for _, sql := range []string{sqlPruneArrivals, sqlPrunePartials} {
			if _, err := tx.exec(sql, from, to); err != nil {
				return err
			}
		}
		_, err := tx.exec(sqlMovePruned, to)
		return err
	})
	return more, err
}

// PurgeConversations removes what is left of conversations deleted before the
// given time, one slice a call, and reports whether there may be more. Each id
// leaves a tombstone in the transaction that removes its rows, so that no crash
// re-opens it. Ledger rows stay.
func (d *DB) PurgeConversations(ctx context.Context, before time.Time) (more bool, err error) {
	err = d.write(ctx, func(tx *Tx) (err error) {
		more, err = tx.purgeSlice(before)
		return err
	})
	return more, err
}

func (tx *Tx) purgeSlice(before time.Time) (more bool, err error) {
	var conversation int64
	var deletedAt time.Time
	k := chat.Key{}
	found, err := tx.queryRow(sqlSelectPurgeable, []any{before}, &conversation, &k.UserID, &k.SessionID, &deletedAt)
	if err != nil || !found {
		return false, err
	}
	if _, err := tx.exec(sqlUnindexTitle, conversation); err != nil {
		return false, err
	}
	if _, err := tx.exec(sqlStartPurge, conversation); err != nil {
		return false, err
	}
	type purged struct {
		id, seq   int64
		requestID string
	}
	var list []purged
	err = tx.query(sqlSelectPurgeSlice, []any{conversation, sliceSize}, func(r row) error {
		var p purged
		err := r.scan(&p.id, &p.seq, &p.requestID)
		list = append(list, p)
		return err
	})
	if err != nil {
		return false, err
	}
	for _, p := range list {
		k.RequestID = p.requestID
		if err := tx.bury(k); err != nil {
			return false, err
		}
		for _, sql := range []string{sqlPurgeCallbacks, sqlPurgeDeliveries, sqlPurgeOutbox, sqlPurgeVerdicts, sqlPurgeDecisions, sqlPurgeSnapshots, sqlPurgeTransitions, sqlPurgeArrivals, sqlPurgeAttempts, sqlPurgePartials, sqlPurgeRequest} {
			if _, err := tx.exec(sql, p.id); err != nil {
				return false, err
			}
		}
		if _, err := tx.exec(sqlUnindexMessages, conversation, p.seq, p.seq+1, p.id); err != nil {
			return false, err
		}
		if err := tx.purgeCarried(conversation, p.seq, deletedAt); err != nil {
			return false, err
		}
		if _, err := tx.exec(sqlPurgeMessages, conversation, p.seq, p.seq+1, p.id); err != nil {
			return false, err
		}
		if _, err := tx.exec(sqlPurgeProcessed, p.requestID, conversation, k.UserID); err != nil {
			return false, err
		}
	}
	if len(list) == sliceSize {
		return true, nil
	}
	k.RequestID = ""
	if err := tx.bury(k); err != nil {
		return false, err
	}
	_, err = tx.exec(sqlPurgeConversation, conversation)
	return true, err
}

// bury leaves the tombstone of a key.
func (tx *Tx) bury(k chat.Key) error {
	id := k.RequestID
	if id == "" {
		id = k.SessionID
	}
	at, _ := chat.IDTime(id)
	// Before the commit that takes the rows away, so that whoever finds none looks
	// for their tombstones.
	tx.buried.Store(true)
	_, err := tx.exec(sqlInsertTombstone, tombstone(k), ms(at), tx.now)
	return err
}

// ForgetTombstones removes tombstones of ULIDs older than the given time, one
// slice a call, and moves the purge horizon over them in the same transaction:
// from then on every unknown ULID as old as they were is refused, which is what
// the tombstones were for. An id from the future keeps its tombstone, or the
// horizon would stop everybody. It reports whether there may be more.
func (d *DB) ForgetTombstones(ctx context.Context, before time.Time) (more bool, err error) {
	err = d.write(ctx, func(tx *Tx) error {
		var newest int64
		var n int
		var digests [][]byte
		err := tx.query(sqlSelectTombstones, []any{tx.now, before, sliceSize}, func(r row) error {
			var dg []byte
			var at int64
			err := r.scan(&dg, &at)
			digests = append(digests, dg)
			newest = max(newest, at)
			n++
			return err
		})
		if err != nil || n == 0 {
			return err
		}
		more = n == sliceSize
		for _, dg := range digests {
			if _, err := tx.exec(sqlDeleteTombstone, dg); err != nil {
				return err
			}
		}
		if _, err = tx.exec(sqlMoveHorizon, newest); err == nil && newest > d.horizon.Load() {
			// Should the commit fail, ids are refused that still have a tombstone:
			// they are gone either way.
			d.horizon.Store(newest)
		}
		return err
	})
	return more, err
}

const (
	// The slice first, then its age: a look for old requests among young ones would
	// read all of them.
	sqlSelectPrunable = `SELECT min(id), max(id), count(*) FROM (SELECT id, created_at FROM requests
		WHERE id > (SELECT pruned_id FROM instance) ORDER BY id LIMIT ?2) WHERE created_at < ?1`

	sqlPruneArrivals = `DELETE FROM arrivals WHERE request_id BETWEEN ? AND ? AND n > 1`

	// The text a failed or unfinished request shows is not evidence: it stays.
	sqlPrunePartials = `DELETE FROM partials WHERE request_id BETWEEN ? AND ? AND NOT EXISTS (SELECT 1 FROM requests r
		WHERE r.id = partials.request_id AND r.attempt = partials.attempt AND r.state IN ('pending', 'generating', 'failed'))`

	sqlMovePruned = `UPDATE instance SET pruned_id = ?`

	sqlSelectPurgeable = `SELECT id, user_id, session_id, deleted_at FROM conversations c WHERE deleted_at IS NOT NULL AND deleted_at < ?
		AND NOT EXISTS (SELECT 1 FROM requests r WHERE r.conversation_id = c.id
			AND (r.state NOT IN ('committed', 'failed') OR r.placed = 0) AND r.state <> 'failed')
		ORDER BY deleted_at LIMIT 1`

	sqlStartPurge = `UPDATE conversations SET purging = 1, title = '', named_tx = 0, system_prompt = '' WHERE id = ?`

	sqlSelectPurgeSlice = `SELECT id, seq, request_id FROM requests WHERE id IN (
		SELECT request_id FROM messages WHERE conversation_id = ?1
		UNION SELECT id FROM requests WHERE conversation_id = ?1 AND kind IN ('regenerate', 'continue')) ORDER BY id LIMIT ?2`

	sqlPurgeCallbacks   = `DELETE FROM callbacks WHERE outbox_id IN (SELECT id FROM outbox WHERE request_id = ?)`
	sqlPurgeDeliveries  = `DELETE FROM deliveries WHERE outbox_id IN (SELECT id FROM outbox WHERE request_id = ?)`
	sqlPurgeOutbox      = `DELETE FROM outbox WHERE request_id = ?`
	sqlPurgeVerdicts    = `DELETE FROM verdicts WHERE request_id = ?`
	sqlPurgeDecisions   = `DELETE FROM decisions WHERE request_id = ?`
	sqlPurgeSnapshots   = `DELETE FROM snapshots WHERE request_id = ?`
	sqlPurgeTransitions = `DELETE FROM transitions WHERE request_id = ?`
	sqlPurgeArrivals    = `DELETE FROM arrivals WHERE request_id = ?`
	sqlPurgeAttempts    = `DELETE FROM attempts WHERE request_id = ?`
	sqlPurgePartials    = `DELETE FROM partials WHERE request_id = ?`
	sqlPurgeRequest     = `DELETE FROM requests WHERE id = ?`
	sqlPurgeMessages    = `DELETE FROM messages WHERE conversation_id = ? AND seq BETWEEN ? AND ? AND request_id = ?`
	sqlPurgeProcessed   = `DELETE FROM processed WHERE request_id = ? AND conversation_id = ? AND user_id = ?`

	sqlPurgeConversation = `DELETE FROM conversations WHERE id = ?`

	sqlInsertTombstone = `INSERT INTO tombstones (digest, ulid_at, purged_at) VALUES (?, ?, ?)`

	sqlSelectTombstones = `SELECT digest, ulid_at FROM tombstones WHERE ulid_at IS NOT NULL AND ulid_at <= ?1 AND purged_at < ?2
		ORDER BY purged_at LIMIT ?3`

	sqlDeleteTombstone = `DELETE FROM tombstones WHERE digest = ?`

	sqlMoveHorizon = `UPDATE instance SET purge_horizon = max(purge_horizon, ?)`
)
