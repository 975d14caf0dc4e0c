package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"semel/chat"
)

// A Restored says what a restore did.
type Restored struct {
	From       string
	Kept       string    // where the file is now that was there before; "" for none
	BackupAt   time.Time // what was stored until then is there
	RestoredAt time.Time
	Requests   int64
	Checks     int // invariants that hold
}

// ErrRestoring: a restore of this file did not come to its end.
var ErrRestoring = errors.New("a restore of this database was interrupted")

// Restore makes the copy at file the database at o.Path, which nobody may be serving.
// A file that is there is replaced only by force, and then kept beside. The copy is
// checked before anything is touched; what it lost is noted in it, so that an unknown
// id of that time is run only when a person says so (contract, section 7).
//
// If we die before the old file is moved, nothing has happened; after that nobody
// serves the place until Restore was called again.
func Restore(ctx context.Context, o Options, file string, force bool) (Restored, error) {
	return restore(ctx, o, file, nil, force)
}

// An Unseal reads what a [Seal] has written. It may fail after any number of bytes, of
// which then none counts.
type Unseal func(r io.Reader) (io.Reader, error)

// RestoreSealed is Restore of a file that BackupSealed has made.
func RestoreSealed(ctx context.Context, o Options, file string, open Unseal, force bool) (Restored, error) {
	return restore(ctx, o, file, open, force)
}

func restore(ctx context.Context, o Options, file string, open Unseal, force bool) (r Restored, err error) {
	if o.Path, err = realPath(o.Path); err != nil {
		return r, err
	}
	if file, err = realPath(file); err != nil {
		return r, err
	}
	if file == o.Path {
		return r, fmt.Errorf("%s is the database itself", file)
	}
	lock, err := lockFile(o.Path)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	_, err = os.Lstat(o.Path)
	there := err == nil
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return r, err
	case there && !force:
		return r, fmt.Errorf("%s: %w", o.Path, fs.ErrExist)
	}
	fresh := freshPath(o.Path)
	defer func() { err = errors.Join(err, removeAll(fresh, ".lock")) }()
	if err := copyIdle(file, fresh, open); err != nil {
		return r, err
	}
	if r, err = ready(ctx, o, fresh); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	r.From = file
	r.Kept, err = swap(fresh, o.Path, r.RestoredAt)
	return r, err
}

// copyIdle copies the database at from, which nobody may be serving, with what is in
// its WAL. What is sealed is one file.
func copyIdle(from, to string, open Unseal) error {
	if _, err := os.Stat(from); err != nil {
		return err
	}
	if _, err := os.Stat(from + ".lock"); err == nil {
		lock, err := lockFile(from) // or the two files would not fit each other
		if err != nil {
			return err
		}
		defer lock.Unlock() // nothing was written
	}
	// What an earlier restore left. A journal would be rolled back into the copy.
	if err := removeAll(to, ".lock"); err != nil {
		return err
	}
	if open != nil {
		return copyFile(from, to, open)
	}
	for _, s := range []string{"", "-wal"} {
		if err := copyFile(from+s, to+s, nil); err != nil && (s == "" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, open Unseal) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	var r io.Reader = in
	if open != nil {
		if r, err = open(in); err != nil {
			return fmt.Errorf("decrypt %s: %w", from, err)
		}
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, r); err != nil && open != nil {
		err = fmt.Errorf("decrypt %s: %w: it is damaged, or cut off", from, err)
	}
	return errors.Join(err, out.Close())
}

// ready checks the copy at path, upgrades it where it is of an earlier version, and
// writes into it that it was restored.
func ready(ctx context.Context, o Options, path string) (r Restored, err error) {
	o.Path, o.restoring = path, true
	if o.Fatal == nil {
		o.Fatal = func(error) {} // it is returned, too, and nothing but a copy is hurt
	}
	d, err := Open(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.Close(), syncFile(path)) }()
	if r.Checks, err = d.Examine(ctx); err != nil {
		return r, err
	}
	err = d.write(ctx, func(tx *Tx) error {
		var newest, created time.Time
		var epoch int64
		if _, err := tx.queryRow(sqlSelectNewest, nil, &newest); err != nil {
			return err
		}
		if _, err := tx.queryRow(sqlSelectBackup, nil, &epoch, &r.BackupAt, &created); err != nil {
			return err
		}
		if r.BackupAt.IsZero() { // no backup of ours: then as far as it goes
			r.BackupAt = created
			if newest.After(created) {
				r.BackupAt = newest
			}
		}
		r.RestoredAt = tx.now
		// Whatever epoch the lost file had, this is another.
		epoch = max(epoch+1, tx.now.UnixMilli())
		for _, w := range []struct {
			sql  string
			args []any
		}{
			{sqlInsertRestore, []any{epoch, r.BackupAt, r.RestoredAt, tx.n}},
			{sqlRaiseEpoch, []any{epoch}},
			{sqlAskAgain, nil},
			{sqlDoubtOutbox, []any{r.BackupAt}},
		} {
			if _, err := tx.exec(w.sql, w.args...); err != nil {
				return err
			}
		}
		_, err := tx.queryRow(sqlCountRequests, nil, &r.Requests)
		return err
	})
	return r, err
}

// swap puts the finished file at fresh in the place of the one at path, and returns
// where that is now. A WAL belongs to its own file only, and three names cannot be
// changed at once: while they do not fit, a note says so.
func swap(fresh, path string, at time.Time) (kept string, err error) {
	note := restoreNote(path)
	earlier, err := os.ReadFile(note)
	switch {
	case err == nil && len(earlier) > 0: // what an interrupted one moved belongs to what it did not
		kept = path + string(earlier)
	case err == nil || errors.Is(err, fs.ErrNotExist):
		kept = path + ".before-" + at.UTC().Format("20060102T150405.000Z")
	default:
		return "", err
	}
	if err := writeSynced(note, kept[len(path):]); err != nil {
		return "", err
	}
	if _, err := os.Lstat(kept); err == nil { // it came to where only the note was left
		kept = path + ".before-" + at.UTC().Format("20060102T150405.000Z")
	}
	moved := false
	for _, s := range []string{"-wal", "-shm", ""} {
		switch err := os.Rename(path+s, kept+s); {
		case err == nil:
			moved = true
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", err
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return "", err
	}
	if err := os.Remove(note); err != nil {
		return "", err
	}
	switch {
	case !moved && len(earlier) > 0:
		kept = path + string(earlier)
	case !moved:
		kept = ""
	}
	return kept, syncFolder(filepath.Dir(path))
}

// freshPath is where a copy becomes the database at path; who holds that one's lock makes
// it, or removes it.
func freshPath(path string) string { return path + ".restoring" }

func restoreNote(path string) string { return path + ".restore-unfinished" }

// refuseHalf refuses to open a file whose restore was interrupted, for reading, too: it
// may be without its WAL, or not be there, and whoever opens it makes it another WAL, which
// would take the place of the one that is kept.
func refuseHalf(path string) error {
	if _, err := os.Lstat(restoreNote(path)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%w: %s. Call `semel restore FILE --force` again", ErrRestoring, path))
	}
	return nil
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// lockFile takes the serving lock of the database at path.
func lockFile(path string) (*flock.Flock, error) {
	lock := flock.New(path + ".lock")
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s. Stop it, or name another file with --db", ErrServed, path)
	}
	return lock, nil
}

// A gap is what a restore lost: ids of these times may have been answered.
type gap struct {
	from, to time.Time
	untimed  time.Time // an unknown id that has no time is one of them until then
	tx       int64     // what was written before it was in the backup
}

const (
	gapMargin    = 10 * time.Minute // before a backup: an id is older than its acceptance
	restoreGuard = 24 * time.Hour   // how long what has no time is doubted
)

// gaps are read once: only a restore adds one, and nobody serves meanwhile.
func (d *DB) readGaps() error {
	return d.writer.query(sqlSelectRestores, nil, func(r row) error {
		var backup, restored time.Time
		g := gap{}
		if err := r.scan(&backup, &restored, &g.tx); err != nil {
			return err
		}
		g.from, g.to, g.untimed = backup.Add(-gapMargin), restored, restored.Add(restoreGuard)
		if restored.Before(backup) { // by a clock that was wrong, then or now
			g.from, g.to = restored.Add(-gapMargin), backup
		}
		d.gaps = append(d.gaps, g)
		return nil
	})
}

// Lost reports whether an unknown id may have been answered by what a restore lost.
func (d *DB) Lost(id string, now time.Time) bool {
	at, timed := chat.IDTime(id)
	for _, g := range d.gaps {
		if timed && !at.Before(g.from) && !at.After(g.to) || !timed && now.Before(g.untimed) {
			return true
		}
	}
	return false
}

// Guarded reports whether a restore is so short ago that what is unknown may be of
// what it lost.
func (d *DB) Guarded(now time.Time) bool {
	for _, g := range d.gaps {
		if now.Before(g.untimed) {
			return true
		}
	}
	return false
}

// restoredTx is the transaction of the last restore; 0 without one.
func (d *DB) restoredTx() (tx int64) {
	for _, g := range d.gaps {
		tx = max(tx, g.tx)
	}
	return tx
}

// MaybeSent reports whether what a restore lost may have sent o, whatever is on record
// here: a person may have, if nothing else did. A redrive takes the doubt away that keeps
// o from being sent; this stays.
func (d *DB) MaybeSent(ctx context.Context, o Outgoing) (maybe bool, err error) {
	if len(d.gaps) == 0 {
		return false, nil
	}
	err = d.readOne(ctx, func(c *conn) error {
		maybe, err = c.queryRow(sqlSelectMaybeSent, []any{o.ID, d.restoredTx()}, new(int))
		return err
	})
	return maybe, err
}

// RetryLost reports whether what a restore lost may have retried the attempt with which r
// failed: one that began before it, or none.
func (d *DB) RetryLost(ctx context.Context, r chat.Request) (lost bool, err error) {
	if len(d.gaps) == 0 {
		return false, nil
	}
	err = d.readOne(ctx, func(c *conn) error {
		lost, err = c.queryRow(sqlSelectRetryLost, []any{r.ID, r.Attempt, d.restoredTx()}, new(int))
		return err
	})
	return lost, err
}

// SettleRestores notes that what a backup had unfinished is decided.
func (d *DB) SettleRestores(ctx context.Context) error {
	return d.write(ctx, func(tx *Tx) error {
		_, err := tx.exec(sqlSettleRestores, tx.now)
		return err
	})
}

const (
	sqlSelectBackup = `SELECT epoch, backed_up_at, created_at FROM instance`

	sqlInsertRestore = `INSERT INTO restores (epoch, backup_at, restored_at, tx) VALUES (?, ?, ?, ?)`

	sqlRaiseEpoch = `UPDATE instance SET epoch = ?, backed_up_at = NULL`

	// A plain repeat restarted these by itself: what was lost may have answered them.
	sqlAskAgain = `UPDATE requests SET failure_retry = 'explicit' WHERE state = 'failed' AND failure_retry = 'auto'`

	// What was lost may have delivered these.
	sqlDoubtOutbox = `UPDATE outbox SET doubted_at = ? WHERE (state = 'pending' OR state = 'delivering') AND doubted_at IS NULL`

	sqlSelectRestores = `SELECT backup_at, restored_at, tx FROM restores`

	// A row is as old as the decision that it follows from.
	sqlSelectMaybeSent = `SELECT 1 FROM outbox o WHERE o.id = ?1 AND (o.tx < ?2 OR EXISTS (
		SELECT 1 FROM decisions d WHERE o.kind = 'effect' AND d.webhook_id = o.webhook_id AND d.tx < ?2))`

	// Of an attempt that is pruned only the acceptance is left: it is asked for once too often.
	sqlSelectRetryLost = `SELECT 1 FROM requests WHERE id = ?1 AND coalesce(
		(SELECT tx FROM attempts WHERE request_id = ?1 AND n = ?2), accepted_tx) < ?3`

	sqlSettleRestores = `UPDATE restores SET settled_at = ? WHERE settled_at IS NULL`

	sqlAnyUnsettled = `SELECT 1 FROM restores WHERE settled_at IS NULL`
)
