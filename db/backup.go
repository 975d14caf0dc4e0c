package db

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"semel/disk"
)

// A Backup is a copy that was made and checked.
type Backup struct {
	Path     string
	At       time.Time // what was stored before is in it
	Bytes    int64
	Requests int64
	Checks   int // invariants that hold in it
	SHA256   string
	Took     time.Duration
}

// Incomplete is in the name of a backup that is not finished, or never was.
const Incomplete = ".incomplete-"

// A Seal encrypts: what is written to what it returns arrives at w as nobody can read it
// who should not.
type Seal func(w io.Writer) (io.WriteCloser, error)

// Backup writes a copy of the database to path, which must not exist, while others
// read and write it. The copy is of one moment, readable by its owner alone, durable,
// and has been read back whole, every invariant, before it has its name.
//
// If we die at any moment, what is left has no name of a backup.
func (d *DB) Backup(ctx context.Context, path string) (b Backup, err error) {
	started := time.Now()
	if err := d.mayMake(path, 1); err != nil {
		return b, err
	}
	// For its owner alone from the beginning: VACUUM INTO takes an empty file as it is.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+Incomplete+"*")
	if err != nil {
		return b, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := f.Close(); err != nil {
		return b, err
	}
	if b, err = d.goodCopy(ctx, f.Name()); err != nil {
		return b, err
	}
	if b.Bytes, b.SHA256, err = digest(f.Name()); err != nil {
		return b, err
	}
	if err := syncFile(f.Name()); err != nil {
		return b, err
	}
	if err := giveName(f.Name(), path); err != nil {
		return b, err
	}
	b.Path, b.Took = path, time.Since(started)
	return b, syncFolder(filepath.Dir(path))
}

// BackupSealed is Backup with an encrypted file. The copy is checked before it is
// encrypted. Until then it lies where the database lies, which says as much: nothing that
// can be read is ever in the folder of path. One is made at a time; others wait.
//
// If we die at any moment, what is left has no name of a backup, and what can be read of
// it is removed when the database is opened to be served, or copied, the next time.
func (d *DB) BackupSealed(ctx context.Context, path string, seal Seal) (b Backup, err error) {
	started := time.Now()
	if err := d.mayMake(path, 0); err != nil {
		return b, err
	}
	lock := copyLock(d.path)
	if _, err := lock.TryLockContext(ctx, 50*time.Millisecond); err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	plain := copyPath(d.path)
	if err := removeAll(plain); err != nil { // who died here had the lock
		return b, err
	}
	if err := d.roomFor(filepath.Dir(plain), 1); err != nil {
		return b, err
	}
	f, err := os.OpenFile(plain, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, removeAll(plain)) }()
	if err := f.Close(); err != nil {
		return b, err
	}
	if b, err = d.goodCopy(ctx, plain); err != nil {
		return b, err
	}
	if err := d.roomFor(filepath.Dir(path), 1); err != nil {
		return b, err
	}
	if err := b.encrypt(ctx, plain, path, seal); err != nil {
		return b, err
	}
	b.Path, b.Took = path, time.Since(started)
	return b, syncFolder(filepath.Dir(path))
}

// encrypt writes the copy at plain to path, sealed.
func (b *Backup) encrypt(ctx context.Context, plain, path string, seal Seal) (err error) {
	in, err := os.Open(plain)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+Incomplete+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	h, size := sha256.New(), new(counter)
	w, err := seal(io.MultiWriter(out, h, size))
	if err == nil {
		_, err = io.Copy(w, until{ctx, in})
		err = errors.Join(err, w.Close())
	}
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	b.Bytes, b.SHA256 = int64(*size), hex.EncodeToString(h.Sum(nil))
	return giveName(out.Name(), path)
}

// mayMake refuses to replace a file, and what would fill the disk.
func (d *DB) mayMake(path string, times int64) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s: %w", path, fs.ErrExist))
	}
	return d.roomFor(filepath.Dir(path), times)
}

// goodCopy makes the empty file at path a copy, and reads it back.
func (d *DB) goodCopy(ctx context.Context, path string) (b Backup, err error) {
	// Before the copy begins: whatever is stored from here on may be missing in it.
	b = Backup{At: time.Now()}
	if err := d.copyTo(ctx, path); err != nil {
		return b, err
	}
	if err := d.mark(path, b.At); err != nil {
		return b, err
	}
	return b, d.examine(ctx, path, &b)
}

// giveName gives a finished file its name, which nobody may have taken meanwhile.
func giveName(from, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	return os.Rename(from, path)
}

// copyPath is where a copy of the database at path lies while it is not encrypted yet;
// only who holds copyLock makes it, or removes it.
func copyPath(path string) string { return path + ".copying" }

func copyLock(path string) *flock.Flock { return flock.New(copyPath(path) + ".lock") }

// sweepCopy removes the copy that a backup left that was killed.
func sweepCopy(path string) (err error) {
	if _, err := os.Lstat(copyPath(path)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock := copyLock(path)
	if free, err := lock.TryLock(); err != nil || !free {
		return err // else it is being made
	}
	return errors.Join(removeAll(copyPath(path)), lock.Unlock())
}

// removeAll removes a database with what SQLite has put beside it, and we.
func removeAll(path string, ours ...string) (err error) {
	for _, s := range append([]string{"", "-journal", "-wal", "-shm"}, ours...) {
		if _, rerr := os.Lstat(path + s); errors.Is(rerr, fs.ErrNotExist) {
			continue // to remove it would fail where nothing may be written, and say so
		}
		if rerr := os.Remove(path + s); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// A counter counts what is written to it.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// until reads until its context ends.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u until) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}

// copyTo writes what the file has now to the empty file at path, on a connection of
// its own: nobody waits for it but the WAL, which grows until it is done.
func (d *DB) copyTo(ctx context.Context, path string) (err error) {
	c, err := d.connect(copyPragmas, "ro")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	_, err = c.raw.(driver.ExecerContext).ExecContext(ctx, "VACUUM INTO ?", []driver.NamedValue{{Ordinal: 1, Value: path}})
	if err != nil {
		return fmt.Errorf("copy %s: %w", d.path, err)
	}
	return nil
}

// copyPragmas are not query_only, which would forbid the copy to be written, too.
var copyPragmas = []string{"trusted_schema(0)", "busy_timeout(5000)", "temp_store(MEMORY)", "mmap_size(0)", "cache_size(-4000)"}

// mark makes the copy at path say that it is one, and of when.
func (d *DB) mark(path string, at time.Time) (err error) {
	raw, err := d.open(dsn(path, "rw", []string{"journal_mode(MEMORY)", "trusted_schema(0)"}))
	if err != nil {
		return err
	}
	c := newConn(raw)
	defer func() { err = errors.Join(err, c.close()) }()
	_, err = c.exec(sqlMarkBackup, at)
	return err
}

// examine reads the whole copy at path back.
func (d *DB) examine(ctx context.Context, path string, b *Backup) (err error) {
	c, err := Open(Options{Path: path, ReadOnly: true, Readers: 1, Driver: d.open})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if b.Checks, err = c.Examine(ctx); err != nil {
		return fmt.Errorf("the copy is no good: %w", err)
	}
	return c.readOne(ctx, func(c *conn) error {
		_, err := c.queryRow(sqlCountRequests, nil, &b.Requests)
		return err
	})
}

// Examine reads the whole file: its structure, page by page, and every invariant. It
// returns how many there are; an error names what does not hold, or why that could not
// be found out.
func (d *DB) Examine(ctx context.Context) (checks int, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		var verdict string
		if _, err := c.queryRow("PRAGMA integrity_check(1)", nil, &verdict); err != nil {
			return err
		}
		if verdict != "ok" {
			return fmt.Errorf("%w: %s", ErrDamaged, verdict)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	list, err := d.Verify(ctx)
	for _, c := range list {
		if c.Count > 0 {
			err = errors.Join(err, fmt.Errorf("invariant %s (%s) is violated %d times: %s", c.ID, c.Name, c.Count, c.Samples[0]))
		}
	}
	return len(list), err
}

// QuickCheck looks at the structure of the file. A damaged one is fatal, as it is when a
// write runs into it.
func (d *DB) QuickCheck(ctx context.Context) error {
	err := d.quickCheck(ctx)
	if IsDamaged(err) {
		d.fatal(err)
	}
	return err
}

// quickCheck has a connection of its own: what another has read once it does not read
// again.
func (d *DB) quickCheck(ctx context.Context) (err error) {
	c, err := d.connect(readerPragmas, "ro")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	s, err := c.prepare("PRAGMA quick_check(1)")
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	verdict := make([]driver.Value, 1)
	if err := rows.Next(verdict); err != nil {
		return err
	}
	if verdict[0] != "ok" {
		return fmt.Errorf("%w: %v", ErrDamaged, verdict[0])
	}
	return nil
}

// digest returns the size of a file and its SHA-256.
func digest(path string) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		return 0, "", err
	}
	return size, hex.EncodeToString(h.Sum(nil)), nil
}

// roomFor refuses to begin what would fill the disk: it wants times the size of the
// database, with what is in its WAL, in folder.
func (d *DB) roomFor(folder string, times int64) error {
	size, err := d.size()
	if err != nil {
		return err
	}
	s, err := disk.At(folder)
	if err != nil {
		return err
	}
	if s.Free < times*size {
		return fmt.Errorf("%w: %s has %s free, and %s are needed", ErrNoRoom, folder, disk.Bytes(s.Free), disk.Bytes(times*size))
	}
	return nil
}

// size is that of the file with its WAL.
func (d *DB) size() (n int64, err error) {
	for _, name := range []string{d.path, d.path + "-wal"} {
		fi, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		n += fi.Size()
	}
	return n, nil
}

const (
	sqlMarkBackup    = `UPDATE instance SET backed_up_at = ?`
	sqlCountRequests = `SELECT count(*) FROM requests`
)
