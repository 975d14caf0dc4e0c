package db

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"semel/chat"
)

// A plain is what the write queue is measured against: the best that a plain
// database/sql loop does with the same schema, the same pragmas and the same
// durable work. One writing connection behind a mutex, transactions that begin
// immediate, every statement prepared once, one commit a call. Two connections
// that wait for each other's lock are slower; so is a pool, which prepares again.
type plain struct {
	mu    sync.Mutex
	pool  *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	tx    int64
	sum   tally // of the transaction
}

// openPlain opens the file at path, which Open has created and closed.
func openPlain(tb testing.TB, path string) *plain {
	tb.Helper()
	pragmas := make([]string, 0, len(writerPragmas))
	for _, p := range writerPragmas {
		if p != "wal_autocheckpoint(0)" { // nobody else checkpoints for it: SQLite's default stays
			pragmas = append(pragmas, p)
		}
	}
	pool, err := sql.Open("sqlite", dsn(path, "rw", pragmas)+"&_txlock=immediate")
	if err != nil {
		tb.Fatal(err)
	}
	pool.SetMaxOpenConns(1)
	conn, err := pool.Conn(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	p := &plain{pool: pool, conn: conn, stmts: map[string]*sql.Stmt{}}
	if err := conn.QueryRowContext(context.Background(), sqlSelectTx).Scan(&p.tx, new(int64), new(int64)); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for _, s := range p.stmts {
			_ = s.Close()
		}
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
		if err := pool.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

func (p *plain) stmt(q string) *sql.Stmt {
	if s, ok := p.stmts[q]; ok {
		return s
	}
	s, err := p.conn.PrepareContext(context.Background(), q)
	if err != nil {
		panic(err)
	}
	p.stmts[q] = s
	return s
}

// inTx runs fn in a transaction of its own and returns when it is durable.
func (p *plain) inTx(fn func(tx, now int64) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	tx, err := p.conn.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	p.tx++
	p.sum = tally{}
	err = fn(p.tx, time.Now().UnixMilli())
	switch {
	case err != nil:
	case p.sum == (tally{}):
		err = p.exec(sqlUpdateTx, p.tx)
	default:
		err = p.exec(sqlUpdateCounts, p.tx, p.sum.attempts, p.sum.answers, p.sum.charges, p.sum.charged, 0, 0, 0, 0, 0, 0)
	}
	if err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

func (p *plain) exec(q string, args ...any) error {
	_, err := p.stmt(q).Exec(args...)
	return err
}

func (p *plain) insert(q string, args ...any) (int64, error) {
	res, err := p.stmt(q).Exec(args...)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

func (p *plain) one(q string, args ...any) (int64, error) {
	res, err := p.stmt(q).Exec(args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		err = ErrFenced
	}
	return n, err
}

func (p *plain) accept(s Submission) (chat.Request, error) {
	r := chat.Request{Key: s.Key, Kind: s.Kind, Fingerprint: s.Fingerprint, State: chat.StatePending, Steps: 1, Model: s.Default}
	r.Price, _ = s.Price(r.Model)
	err := p.inTx(func(tx, now int64) error {
		var deleted, archived bool
		var next int64
		var model, params string
		err := p.stmt(sqlSelectForAccept).QueryRow(s.Key.SessionID, s.Key.UserID).
			Scan(&r.ConversationID, &next, &deleted, &archived, &model, &params, &r.SystemPrompt)
		digests := [][]byte{tombstone(s.Key)}
		if err == sql.ErrNoRows {
			digests = append(digests, tombstone(chat.Key{UserID: s.Key.UserID, SessionID: s.Key.SessionID}))
		} else if err != nil {
			return err
		}
		for _, d := range digests {
			if terr := p.stmt(sqlSelectTombstone).QueryRow(d).Scan(new(int)); terr != sql.ErrNoRows {
				return orGone(terr)
			}
		}
		if err == sql.ErrNoRows {
			next = 1
			if r.ConversationID, err = p.insert(sqlInsertConversation, s.Key.SessionID, s.Key.UserID, s.Title, "", "{}", next+2, now, now); err != nil {
				return err
			}
		} else if err := p.exec(sqlAdvanceConversation, next+2, now, r.ConversationID); err != nil {
			return err
		}
		r.Seq = next
		r.ID, err = p.insert(sqlInsertRequest, s.Key.RequestID, r.ConversationID, s.Key.UserID, string(s.Kind), r.Seq,
			[]byte(s.Fingerprint), r.Model, "{}", r.SystemPrompt, r.Price.Input, r.Price.Cached, r.Price.Output, 0, tx, now, now)
		if err != nil {
			return err
		}
		if err := p.exec(sqlInsertMessage, r.ConversationID, r.Seq, r.ID, "user", s.Content, chat.EstimateTokens(s.Content), now, tx); err != nil {
			return err
		}
		if err := p.exec(sqlInsertFirstTransition, r.ID, actorUser(s.Key.UserID), now, tx); err != nil {
			return err
		}
		return p.exec(sqlInsertFirstArrival, r.ID, now, string(s.Source))
	})
	return r, err
}

func (p *plain) transition(r chat.Request, to chat.State, actor, reason, q string, tx, now int64, args ...any) error {
	if _, err := p.one(q, append(args, r.ID, string(r.State), r.Attempt, nullString(r.Owner), r.Steps)...); err != nil {
		return err
	}
	attempt := r.Attempt
	if to == chat.StateGenerating {
		attempt++
	}
	return p.exec(sqlInsertTransition, r.ID, r.Steps+1, string(r.State), string(to), attempt, actor, reason, now, tx)
}

func (p *plain) claim(c Claim) (chat.Request, error) {
	r := c.Request
	err := p.inTx(func(tx, now int64) error {
		var f forClaim
		var context, parentRole, parentContext sql.NullString
		var parentDropped sql.NullInt64
		if err := p.stmt(sqlSelectForClaim).QueryRow(r.ID).Scan(&f.earlier, &r.Placed, &f.parentSeq, &context, &r.ContextDropped,
			&parentRole, &parentContext, &parentDropped); err != nil {
			return err
		}
		if f.earlier {
			return ErrNotYourTurn
		}
		r.ParentSeq, f.parentRole, f.parentContext = f.parentSeq, parentRole.String, parentContext.String
		frozen := f.extend(r)
		if err := p.transition(r, chat.StateGenerating, "worker:"+c.Owner, "claimed", sqlClaim, tx, now,
			c.Owner, now+c.Lease.Milliseconds(), r.ParentSeq, frozen, 0, now); err != nil {
			return err
		}
		if err := p.exec(sqlMoveHead, r.Seq, r.ConversationID); err != nil {
			return err
		}
		r.State, r.Attempt, r.Owner, r.Placed, r.Steps = chat.StateGenerating, r.Attempt+1, c.Owner, true, r.Steps+1
		p.sum.attempts++
		return p.exec(sqlInsertAttempt, r.Attempt, c.Owner, r.Model, now, now, tx, r.ID, string(chat.StatePending))
	})
	return r, err
}

func (p *plain) finish(r chat.Request, a Answer) error {
	return p.inTx(func(tx, now int64) error {
		if err := p.transition(r, chat.StateAcknowledged, a.Actor, a.Reason, sqlAcknowledge, tx, now, now, now); err != nil {
			return err
		}
		u := a.Usage
		if _, err := p.one(sqlCloseAttempt, now, string(a.Outcome), nil, nil, u.InputTokens, u.CachedTokens, u.OutputTokens,
			u.Estimated, nullString(a.UpstreamID), r.ID, r.Attempt); err != nil {
			return err
		}
		if err := p.exec(sqlInsertSnapshot, r.ID, r.Attempt, r.Model, a.UpstreamID, a.Content, a.Reasoning, a.ToolCalls,
			string(a.Finish), u.InputTokens, u.CachedTokens, u.OutputTokens, u.Estimated,
			SnapshotDigest(a.Content, a.Reasoning, a.ToolCalls), 0, now, tx, nil); err != nil {
			return err
		}
		seq := AnswerSeq(r)
		if err := p.exec(sqlInsertMessage, r.ConversationID, seq, r.ID, "assistant", nil, chat.EstimateTokens(a.Content), now, tx); err != nil {
			return err
		}
		if err := p.exec(sqlInsertLedger, r.ID, r.Key.UserID, "charge", r.Attempt, r.Model, u.InputTokens,
			u.CachedTokens, u.OutputTokens, r.Price.Cost(u), u.Estimated, now, tx); err != nil {
			return err
		}
		p.sum.add(tally{answers: 1, charges: 1, charged: r.Price.Cost(u)})
		if err := p.exec(sqlInsertProcessed, r.Key.RequestID, r.ConversationID, r.Key.UserID, r.ID, []byte(r.Fingerprint), now, tx); err != nil {
			return err
		}
		if err := p.exec(sqlMoveHeadIfNewest, seq, tx, r.ConversationID, r.Seq); err != nil {
			return err
		}
		r.State, r.Owner, r.Steps = chat.StateAcknowledged, "", r.Steps+1
		return p.transition(r, chat.StateCommitted, a.Actor, "no effects", sqlCommit, tx, now, now, now)
	})
}

// The two are compared only as long as they do the same.
func TestThePlainLoopStoresWhatTheWriteQueueStores(t *testing.T) {
	dir := t.TempDir()
	var stored [2][]string
	for i := range stored {
		path := filepath.Join(dir, fmt.Sprintf("%d.db", i))
		d := openForTest(t, path)
		var s store = queueStore{d}
		if i == 1 {
			s = plainStore{openPlain(t, path)}
		}
		for _, session := range []string{"session-1", "session-1", "session-2"} {
			if err := s.lives(benchSubmission(session)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.accepts(benchSubmission("session-1")); err != nil {
			t.Fatal(err)
		}
		checkHealthy(t, d)
		for _, q := range []string{
			`SELECT conversation_id, seq, state, steps, attempt, owner, model, params, placed, parent_seq, context, context_dropped FROM requests ORDER BY id`,
			`SELECT * FROM (SELECT request_id, n, from_state, to_state, attempt, actor, reason FROM transitions)`,
			`SELECT request_id, n, reason, owner, outcome, output_tokens FROM attempts`,
			`SELECT request_id, attempt, content, finish, sha256 FROM snapshots`,
			`SELECT conversation_id, seq, request_id, role, content, tokens FROM messages`,
			`SELECT request_id, kind, micros FROM ledger`, `SELECT request, fingerprint FROM processed ORDER BY request`,
			`SELECT request_id, n, decision FROM arrivals`, `SELECT session_id, title, next_seq, head_seq FROM conversations`, `SELECT tx FROM instance`,
		} {
			err := d.read(context.Background(), func(c *conn) error {
				return c.query(q, nil, func(r row) error {
					stored[i] = append(stored[i], fmt.Sprintf("%.30s: %v", q, r.values))
					return nil
				})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(stored[0], stored[1]) {
		for i := range stored[0] {
			if i >= len(stored[1]) || stored[0][i] != stored[1][i] {
				t.Errorf("the queue stores %s, the plain loop %v", stored[0][i], stored[1][min(i, len(stored[1])-1)])
			}
		}
	}
}
