package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"time"

	"semel/disk"
)

// maxBatch is how many callers share one commit at the most.
const maxBatch = 512

// A Tx is one caller's part of a shared transaction.
type Tx struct {
	*conn
	n     int64     // its number: every row it writes carries it
	now   time.Time // read once
	wrote bool
	sum   tally // what it adds to the running counts

	tells  bool    // stages are logged: whoever makes one asks first, because most run without
	stages []stage // of the caller's part
}

// A tally is what is added to the running counts of the file: counted where the row is
// written, from what the statement says it wrote, and stored with the commit.
type tally struct {
	attempts, answers, charges, charged, saved      int64
	joined, replayed, conflicts, restarts, expireds int64
}

func (t *tally) add(o tally) {
	t.attempts += o.attempts
	t.answers += o.answers
	t.charges += o.charges
	t.charged += o.charged
	t.saved += o.saved
	t.joined += o.joined
	t.replayed += o.replayed
	t.conflicts += o.conflicts
	t.restarts += o.restarts
	t.expireds += o.expireds
}

func (tx *Tx) exec(sql string, args ...any) (int64, error) {
	tx.wrote = true
	return tx.conn.exec(sql, args...)
}

func (tx *Tx) insert(sql string, args ...any) (int64, error) {
	tx.wrote = true
	return tx.conn.insert(sql, args...)
}

// An op is one caller waiting for its turn.
type op struct {
	ctx  context.Context
	fn   func(*Tx) error
	err  error
	done chan struct{}
}

// write runs fn as one transaction and returns when it is durable. Many callers
// at once share one BEGIN IMMEDIATE … COMMIT and its single fsync; each runs
// under its own SAVEPOINT, so an error or panic of one undoes only its own part.
//
// A caller whose ctx ends before its turn is dropped with ctx's error; from its
// turn on, ctx is not looked at. ErrOutcomeOpen means that the commit failed.
// fn must not keep tx, and what it stores in variables of the caller counts only
// when write returns nil.
func (d *DB) write(ctx context.Context, fn func(*Tx) error) error {
	if d.beside {
		return errBeside
	}
	return d.writeAccounts(ctx, fn)
}

// errBeside: another process may be serving the file, and this is not its business.
var errBeside = errors.New("only accounts and keys are changed beside a server")

// writeAccounts is write for what may also be written beside a server: what fn writes
// must not count on the transaction's number, which is 0 there.
func (d *DB) writeAccounts(ctx context.Context, fn func(*Tx) error) (err error) {
	d.closing.RLock()
	if d.closed {
		d.closing.RUnlock()
		return ErrClosed
	}
	if d.writeAlone(ctx, fn, &err) {
		d.closing.RUnlock()
		return err
	}
	o := &op{ctx: ctx, fn: fn, done: make(chan struct{})}
	select {
	case d.queue <- o:
		d.closing.RUnlock()
	case <-ctx.Done():
		d.closing.RUnlock()
		return ctx.Err()
	}
	<-o.done
	return o.err
}

// writeAlone runs fn on the caller's own goroutine when nobody else is writing
// and nobody was a moment ago: a lone caller then pays for no hand-over to another
// goroutine and back. It reports whether it did. Where callers crowd, it keeps
// away, or every other commit would have one caller only.
func (d *DB) writeAlone(ctx context.Context, fn func(*Tx) error, err *error) bool {
	if d.crowded.Load() || d.checkpoint.Load() == checkpointDone || len(d.queue) > 0 || !d.writing.TryLock() {
		return false
	}
	defer d.writing.Unlock()
	o := op{ctx: ctx, fn: fn}
	d.commit([]*op{&o})
	d.wantCheckpoint(1)
	*err = o.err
	return true
}

// writeLoop commits what is in the queue, with all who wait at once. There is no
// timer: whoever arrives during a commit shares the next one.
func (d *DB) writeLoop() {
	defer close(d.written)
	batch := make([]*op, 0, maxBatch)
	for first := range d.queue {
		d.writing.Lock()
		batch = append(batch[:0], first)
	drain:
		for len(batch) < maxBatch {
			select {
			case o, ok := <-d.queue:
				if !ok {
					break drain
				}
				batch = append(batch, o)
			default:
				break drain
			}
		}
		d.commit(batch)
		d.crowded.Store(len(batch) > 1)
		for i, o := range batch {
			close(o.done)
			batch[i] = nil
		}
		d.checkpointRest(len(batch))
		d.writing.Unlock()
	}
}

// commit runs one batch. When it returns, every op has its error or is durable.
func (d *DB) commit(batch []*op) {
	if d.broken != nil {
		failAll(batch, d.broken)
		return
	}
	if _, err := d.writer.exec("BEGIN IMMEDIATE"); err != nil {
		failAll(batch, fmt.Errorf("begin: %w", err))
		d.checkFatal(err)
		return
	}
	tx := Tx{conn: d.writer, now: time.Now(), tells: d.tells}
	var stages []stage
	wrote, lost := false, error(nil)
	var sum tally
	for _, o := range batch {
		if lost != nil {
			o.err = lost
			continue
		}
		if o.err = o.ctx.Err(); o.err != nil {
			continue
		}
		if !d.beside {
			d.tx++
		}
		tx.n, tx.wrote, tx.sum, tx.stages = d.tx, false, tally{}, nil
		lost = d.runOp(&tx, o, len(batch) == 1)
		d.tx = tx.n // an import takes more than one
		if o.err == nil {
			wrote = wrote || tx.wrote
			sum.add(tx.sum)
			stages = append(stages, tx.stages...)
		}
	}
	switch {
	case lost != nil:
		// SQLite itself gave the whole transaction up (full disk, I/O error):
		// nobody's part is stored, whatever their own statements said.
		failAll(batch, fmt.Errorf("transaction rolled back: %w", lost))
		_, _ = d.writer.exec("ROLLBACK") // fails when there is nothing left to undo
		d.checkFatal(lost)
		return
	case !wrote:
		if _, err := d.writer.exec("ROLLBACK"); err != nil {
			d.checkFatal(err)
		}
		return
	}
	var err error
	if !d.beside {
		err = d.count(sum)
	}
	if err == nil {
		// If we die before this returns, either all of the batch is stored or none
		// of it; nobody has been told yet.
		_, err = d.writer.exec("COMMIT")
	}
	if err == nil {
		err = d.inPlace()
	}
	if err == nil {
		d.logStages(stages)
		return
	}
	for _, o := range batch {
		if o.err == nil {
			o.err = fmt.Errorf("%w: %w", ErrOutcomeOpen, err)
		}
	}
	_, _ = d.writer.exec("ROLLBACK") // fails when the failed COMMIT ended the transaction
	d.checkFatal(err)
}

// inPlace looks whether the file and its log are still what their names lead to: what is
// written to a file that was deleted is gone with this process, and nobody was told yet.
func (d *DB) inPlace() error {
	for i, path := range []string{d.path, d.path + "-wal"} {
		switch now, err := disk.Identify(path); {
		case err == nil && d.places[i] == nil:
			d.places[i] = &now
		case errors.Is(err, fs.ErrNotExist) && d.places[i] != nil, err == nil && !now.Same(*d.places[i]):
			return fmt.Errorf("%w: %s", ErrMoved, path)
		}
	}
	return nil
}

// count stores the last number given out, and what a batch adds to the running counts.
func (d *DB) count(sum tally) (err error) {
	if sum == (tally{}) {
		_, err = d.writer.exec(sqlUpdateTx, d.tx)
		return err
	}
	_, err = d.writer.exec(sqlUpdateCounts, d.tx, sum.attempts, sum.answers, sum.charges, sum.charged, sum.saved,
		sum.joined, sum.replayed, sum.conflicts, sum.restarts, sum.expireds)
	return err
}

// runOp runs one caller's part under its savepoint. It returns an error only when
// the whole transaction is lost.
func (d *DB) runOp(tx *Tx, o *op, alone bool) error {
	if alone { // its part is the whole: what commit rolls back, if it failed
		if o.err = call(o.fn, tx); isFatal(o.err) {
			return o.err
		}
		return nil
	}
	if _, err := d.writer.exec("SAVEPOINT caller"); err != nil {
		o.err = err
		return err
	}
	o.err = call(o.fn, tx)
	if o.err == nil {
		if _, err := d.writer.exec("RELEASE caller"); err != nil {
			o.err = err
			return err
		}
		return nil
	}
	if isFatal(o.err) {
		return o.err
	}
	if _, err := d.writer.exec("ROLLBACK TO caller"); err != nil {
		return errors.Join(o.err, err)
	}
	_, err := d.writer.exec("RELEASE caller")
	return err
}

func call(fn func(*Tx) error, tx *Tx) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	return fn(tx)
}

func failAll(batch []*op, err error) {
	for _, o := range batch {
		o.err = err
	}
}

// checkFatal ends the process after an I/O error (contract, section 2): what the
// kernel still holds of the file is not to be trusted, and start-up recovery
// reads what the disk really has.
func (d *DB) checkFatal(err error) {
	if isFatal(err) {
		d.broken = fmt.Errorf("%w: the database failed: %w", ErrOutcomeOpen, err)
		d.fatal(err)
	}
}

const (
	sqlUpdateTx = `UPDATE instance SET tx = ?`

	sqlUpdateCounts = `UPDATE instance SET tx = ?, attempts = attempts + ?, answers = answers + ?, charges = charges + ?,
		charged_micros = charged_micros + ?, saved_micros = saved_micros + ?, joined = joined + ?, replayed = replayed + ?,
		conflicts = conflicts + ?, restarts = restarts + ?, expired = expired + ?`
)
