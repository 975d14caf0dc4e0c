package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"semel/chat"
)

// A Deed is what a person of operations does by hand, and why: a row of the audit, in
// the transaction that does it.
type Deed struct {
	Actor  string
	Reason string
	Key    string // of the intent: a deed under a key is done once; "" is done each time
}

// ErrDone: the deed is written down under its key already; nothing was changed.
var ErrDone = errors.New("it was done before")

// byHand writes down a deed about r. Errors: ErrDone, ErrKeyReused.
func (tx *Tx) byHand(action string, r chat.Request, d Deed) error {
	return tx.byHandOn(action, requestObject(r.ID), d)
}

func (tx *Tx) byHandOn(action, object string, d Deed) error {
	if d.Key != "" {
		var did, about string
		found, err := tx.queryRow(sqlSelectDeed, []any{d.Key}, &did, &about)
		switch {
		case err != nil:
			return err
		case found && (did != action || about != object):
			return ErrKeyReused
		case found:
			return ErrDone
		}
	}
	return tx.audit(d.Actor, action, object, d.Reason, d.Key)
}

// requestObject names a request in the audit.
func requestObject(id int64) string { return fmt.Sprintf("request:%d", id) }

// StopByHand ends a request that r describes for a person of operations: one that waits
// fails now, with f; of one that is being answered the stop is made durable, as
// RequestStop does. It returns the request as it is then. Errors: ErrFenced, ErrDone,
// ErrKeyReused.
func (d *DB) StopByHand(ctx context.Context, r chat.Request, f chat.Failure, deed Deed) (chat.Request, error) {
	return d.change(ctx, r, func(tx *Tx, r *chat.Request) error {
		if err := tx.byHand("stop", *r, deed); err != nil {
			return err
		}
		if r.State == chat.StatePending {
			return tx.fail(r, deed.Actor, f)
		}
		return tx.heldExec(sqlRequestStop, []any{tx.now, r.Attempt}, *r)
	})
}

// Release declares the lease of an attempt lost, before its time: whoever takes the
// request over decides what follows (contract, sections 2 and 4). It returns the request
// as it is then. An attempt is released once: doing it again changes nothing. Errors:
// ErrNotFound; ErrNotNow when that attempt is not being answered.
//
// If we die after its commit, the attempt is found generating, and the next life takes
// it over.
func (d *DB) Release(ctx context.Context, id, attempt int64, deed Deed) (r chat.Request, err error) {
	deed.Key = fmt.Sprintf("release:%d:%d", id, attempt)
	err = d.write(ctx, func(tx *Tx) (err error) {
		if r, err = tx.request(id); err != nil {
			return err
		}
		if err := tx.byHand("release", r, deed); err != nil {
			return err
		}
		if r.State != chat.StateGenerating || r.Attempt != attempt {
			return ErrNotNow
		}
		return tx.heldExec(sqlRelease, []any{tx.now}, r)
	})
	if err != nil && !errors.Is(err, ErrDone) {
		return chat.Request{}, err
	}
	return r, nil
}

// WriteDown writes down a deed about the whole database. Errors: ErrDone, ErrKeyReused.
func (d *DB) WriteDown(ctx context.Context, action string, deed Deed) error {
	return d.write(ctx, func(tx *Tx) error { return tx.byHandOn(action, "database", deed) })
}

// A Said is what a request and its answer say.
type Said struct {
	Question  string // "" where it asked none of its own
	Answer    string // or as much as came of one
	Reasoning string
	Asked     []chat.Effect // the actions that the answer asks for, with their arguments
}

// Reveal returns the texts of a request and writes down who looked at them, each time.
// Nothing is returned that is not written down. Errors: ErrNotFound.
func (d *DB) Reveal(ctx context.Context, id int64, deed Deed) (s Said, err error) {
	err = d.write(ctx, func(tx *Tx) error {
		s = Said{}
		r, err := tx.request(id)
		if err != nil {
			return err
		}
		if r.Kind.WritesQuestion() {
			var sound bool
			found, err := tx.queryRow(sqlSelectTurn, []any{r.ConversationID, r.Seq}, &sound, new(string), &s.Question)
			if err != nil {
				return err
			}
			if found && !sound {
				return unsound("question of request", r.Key.RequestID)
			}
		}
		rec, err := tx.record(r)
		if err != nil {
			return err
		}
		s.Answer, s.Reasoning, s.Asked = rec.Content, rec.Reasoning, rec.Effects
		if rec.Message != nil {
			s.Reasoning = rec.Message.Reasoning
		}
		return tx.byHand("reveal", r, deed)
	})
	if err != nil {
		return Said{}, err
	}
	return s, nil
}

// Evidence is Receipt for operations: of a request in a deleted conversation, too, while
// it is stored.
func (d *DB) Evidence(ctx context.Context, k chat.Key) (rc Receipt, err error) {
	err = d.read(ctx, func(c *conn) (err error) {
		r, err := c.lookUp(k)
		if err != nil && (!errors.Is(err, ErrGone) || r.ID == 0) {
			return err
		}
		if rc.Request, err = c.request(r.ID); err != nil {
			return err
		}
		if rc.Record, err = c.record(rc.Request); err != nil {
			return err
		}
		return c.evidence(&rc)
	})
	return rc, err
}

// An AuditRow is a deed as it is written down.
type AuditRow struct {
	ID     int64
	At     time.Time
	Actor  string
	Action string
	Object string
	Reason string
	Key    chat.Key // of the request that it is about; zero where it is about none, or that is gone
}

// An AuditFilter chooses rows of the audit.
type AuditFilter struct {
	// Object is what they are about: as it is stored, or the id of a request, which is
	// about its effects, too. "" is anything.
	Object string
	Actor  string // "" is anybody
	Action string // "" is anything
	Before int64  // rows with a smaller id; 0 is from the newest
	Limit  int
}

// Audit returns rows of the audit, the newest first.
func (d *DB) Audit(ctx context.Context, f AuditFilter) (list []AuditRow, err error) {
	if f.Before == 0 {
		f.Before = 1 << 62
	}
	err = d.read(ctx, func(c *conn) error {
		if f.Object == "" {
			list, err = c.auditRows(sqlSelectAudit, f.Before, f.Actor, f.Action, f.Limit)
			return err
		}
		objects := []string{f.Object}
		err := c.query(sqlSelectObjects, []any{f.Object}, func(r row) error {
			var o string
			err := r.scan(&o)
			objects = append(objects, o)
			return err
		})
		if err != nil {
			return err
		}
		list, err = c.auditRows(sqlSelectAuditOf, f.Before, f.Actor, f.Action, f.Limit, jsonNames(objects))
		return err
	})
	return list, err
}

func (c *conn) auditRows(sql string, args ...any) (list []AuditRow, err error) {
	err = c.query(sql, args, func(r row) error {
		var a AuditRow
		err := r.scan(&a.ID, &a.At, &a.Actor, &a.Action, &a.Object, &a.Reason, &a.Key.RequestID, &a.Key.SessionID, &a.Key.UserID)
		list = append(list, a)
		return err
	})
	return list, err
}

// deeds adds to a receipt what was done to its request by hand, the oldest first.
func (c *conn) deeds(rc *Receipt) (err error) {
	objects := []string{requestObject(rc.Request.ID)}
	for _, o := range rc.Sent {
		objects = append(objects, o.WebhookID)
	}
	rc.Deeds, err = c.auditRows(sqlSelectDeeds, jsonNames(objects))
	return err
}

// Newer counts the requests that were accepted after the one with this internal id, up
// to most.
func (d *DB) Newer(ctx context.Context, id int64, most int) (n int, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		_, err := c.queryRow(sqlCountNewer, []any{id, most}, &n)
		return err
	})
	return n, err
}

const (
	sqlRelease = `UPDATE requests SET lease_until = ?` + sqlHeld

	sqlSelectDeed = `SELECT action, object FROM audit WHERE key = ?`

	// The request that a row is about: its own number, or that of a row of the outbox.
	sqlAuditColumns = `SELECT a.id, a.at, a.actor, a.action, a.object, a.reason, r.request_id, c.session_id, r.user_id FROM audit a
		LEFT JOIN requests r ON r.id = CASE WHEN a.object LIKE 'request:%' THEN CAST(substr(a.object, 9) AS INTEGER)
		ELSE (SELECT o.request_id FROM outbox o WHERE o.webhook_id = a.object) END
		LEFT JOIN conversations c ON c.id = r.conversation_id`

	sqlAuditChosen = ` a.id < ?1 AND (?2 = '' OR a.actor = ?2) AND (?3 = '' OR a.action = ?3)`

	sqlSelectAudit = sqlAuditColumns + ` WHERE` + sqlAuditChosen + ` ORDER BY a.id DESC LIMIT ?4`

	sqlSelectAuditOf = sqlAuditColumns + ` WHERE a.object IN (SELECT value FROM json_each(?5)) AND` + sqlAuditChosen + ` ORDER BY a.id DESC LIMIT ?4`

	sqlSelectDeeds = sqlAuditColumns + ` WHERE a.object IN (SELECT value FROM json_each(?)) ORDER BY a.id`

	sqlSelectObjects = `SELECT 'request:' || id FROM requests WHERE request_id = ?1
		UNION ALL SELECT o.webhook_id FROM requests r JOIN outbox o ON o.request_id = r.id WHERE r.request_id = ?1`

	sqlCountNewer = `SELECT count(*) FROM (SELECT 1 FROM requests WHERE id > ? LIMIT ?)`
)
