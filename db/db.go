// Package db is the only package with SQL. It keeps Semel's one SQLite file: a
// write queue with group commit in front of one connection, a few read-only
// connections beside it, and the schema's upgrades.
//
// Exported methods own one short transaction each; nothing in here talks to a
// network or renders anything.
package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"modernc.org/sqlite"

	"semel/disk"
)

// Options say how to open a database. Only Path and Schema are needed.
type Options struct {
	Path   string
	Schema string // schema.sql, for a new file
	Log    *slog.Logger
	// ReadOnly opens a file that another process may be serving, for reading only.
	ReadOnly bool
	// Safe is ReadOnly of a file that nobody else may serve or restore meanwhile.
	Safe bool
	// Beside opens a file that another process may be serving, for changing accounts and
	// keys and nothing else: those rows have no transaction numbers, of which the serving
	// process alone gives any out.
	Beside bool
	// Readers is the number of reading connections, 4 when 0.
	Readers int
	// Fatal is called after an I/O error, when nothing more may be written. The
	// default ends the process with exit code 70.
	Fatal func(error)
	// Driver opens the connections; the default is SQLite's. Tests put a driver
	// that fails on purpose in its place.
	Driver func(dsn string) (driver.Conn, error)

	migrations []migration // tests only; nil is the program's own
	restoring  bool        // a copy, about to be served
}

// A DB is an open database. All its methods may be called by many goroutines.
type DB struct {
	path   string
	log    *slog.Logger
	tells  bool // every stage is logged
	lock   *flock.Flock
	beside bool // as [Options] has it
	open   func(dsn string) (driver.Conn, error)

	queue   chan *op
	written chan struct{} // closed when writeLoop has ended
	closing sync.RWMutex  // held for reading while sending to queue
	closed  bool          // under closing

	closeOnce sync.Once
	closeErr  error // under closeOnce
	fatal     func(error)

	answered  answeredCache
	deletions atomic.Int64 // of conversations, counted when they are stored or may be
	// horizon is instance.purge_horizon in milliseconds. It moves inside the
	// transaction that moves the stored one, so an acceptance behind it sees it.
	horizon atomic.Int64

	texts  texts
	epoch  int64       // not changed after Open
	gaps   []gap       // what restores lost; not changed after Open
	buried atomic.Bool // there are tombstones, or will be when the next commit is through
	chosen atomic.Bool // likewise settings

	crowded atomic.Bool // the write loop's last commit had several callers

	// Whoever holds writing, the write loop or a lone caller, owns these.
	writing         sync.Mutex
	writer          *conn
	tx              int64
	broken          error
	places          [2]*disk.Identity // the file and its log, as they were first seen
	sinceCheckpoint int               // pages of WAL, as estimated, since the last checkpoint that was finished

	readers chan *conn
	nReader int

	checkpointWanted chan struct{}
	checkpoint       atomic.Int32 // checkpointIdle, …
	checkpointer     *conn
	checkpointed     chan struct{} // closed when the checkpoint loop has ended
}

// ErrServed is returned by Open when another process serves the file.
var ErrServed = errors.New("another semel process is serving this database")

const (
	applicationID = 0x53454D4C // "SEML"
	queueLength   = 4096
)

// Open opens the database at o.Path, creating it with o.Schema when there is no
// file. Unless o.ReadOnly, it holds the serving lock until Close: one serving
// process a file. A file of a newer program is refused; an older one is copied,
// the copy is checked, and then it is upgraded.
func Open(o Options) (_ *DB, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Readers == 0 {
		o.Readers = 4
	}
	if o.Driver == nil {
		o.Driver = connectSQLite
	}
	if o.migrations == nil {
		o.migrations = migrations
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) {
			o.Log.Error("the database file failed: stopping at once, start-up will recover what is on disk", "error", err)
			os.Exit(70)
		}
	}
	if o.Path, err = realPath(o.Path); err != nil {
		return nil, err
	}
	setLocking()
	registerFunctions()
	d := &DB{
		path: o.Path, log: o.Log, tells: o.Log.Enabled(context.Background(), slog.LevelDebug), open: o.Driver, fatal: o.Fatal,
		queue: make(chan *op, queueLength), written: make(chan struct{}),
		readers: make(chan *conn, o.Readers), nReader: 0,
		checkpointWanted: make(chan struct{}, 1), checkpointed: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			d.closeFiles()
		}
	}()
	if o.Safe {
		if err := d.takeLock(); err != nil {
			close(d.written)
			close(d.checkpointed)
			return nil, err
		}
	}
	if o.ReadOnly || o.Safe {
		if _, err := os.Stat(filepath.Dir(o.Path)); err != nil {
			return nil, err
		}
		if err := refuseHalf(d.path); err != nil {
			return nil, err
		}
		close(d.written)
		close(d.checkpointed)
		d.closed = true
		d.buried.Store(true) // another process may bury at any time
		d.chosen.Store(true) // and choose
		if err := d.openReaders(o.Readers); err != nil {
			return nil, err
		}
		if err := d.checkVersion(len(o.migrations) + 1); err != nil || !o.Safe {
			return d, err
		}
		return d, d.read(context.Background(), func(c *conn) error {
			_, err := c.queryRow(sqlSelectTx, nil, new(int64), new(int64), &d.epoch)
			return err
		})
	}
	if o.Beside {
		return d, d.openBeside(o)
	}
	if info, err := os.Stat(d.path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("open %s: it is a folder, and must be a file", d.path) // SQLite speaks of an I/O error
	}
	if err := d.takeLock(); err != nil {
		return nil, err
	}
	if err := refuseHalf(d.path); err != nil {
		return nil, err
	}
	// What commands left that were killed.
	if err := errors.Join(sweepCopy(d.path), removeAll(freshPath(d.path), ".lock")); err != nil {
		return nil, err
	}
	if err := d.claimFile(len(o.migrations) + 1); err != nil {
		return nil, err
	}
	if d.writer, err = d.connect(writerPragmas, "rw"); err != nil {
		return nil, err
	}
	if !o.restoring {
		if err := d.refuseBackup(); err != nil {
			return nil, err
		}
	}
	if err := d.upgrade(o); err != nil {
		return nil, err
	}
	if err := d.readGaps(); err != nil {
		return nil, err
	}
	var horizon int64
	if _, err := d.writer.queryRow(sqlSelectTx, nil, &d.tx, &horizon, &d.epoch); err != nil {
		return nil, err
	}
	d.horizon.Store(horizon)
	buried, err := d.writer.queryRow(sqlSelectAnyTombstone, nil, new(int))
	if err != nil {
		return nil, err
	}
	d.buried.Store(buried)
	chosen, err := d.writer.queryRow(sqlSelectAnySettings, nil, new(int))
	if err != nil {
		return nil, err
	}
	d.chosen.Store(chosen)
	if fc, ok := d.writer.raw.(sqlite.FileControl); ok {
		// A WAL that is kept and reused syncs twice as fast as one that grows anew.
		if _, err := fc.FileControlPersistWAL("main", 1); err != nil {
			return nil, err
		}
	}
	if d.checkpointer, err = d.connect(writerPragmas, "rw"); err != nil {
		return nil, err
	}
	if err := d.openReaders(o.Readers); err != nil {
		return nil, err
	}
	if err := d.inPlace(); err != nil {
		return nil, err
	}
	go d.writeLoop()
	go d.checkpointLoop()
	return d, nil
}

// openBeside opens d for accounts and keys. The file must be there, and of this
// program's version.
func (d *DB) openBeside(o Options) (err error) {
	d.beside = true
	close(d.checkpointed)
	if err := refuseHalf(d.path); err != nil {
		close(d.written)
		return err
	}
	if err := d.openReaders(o.Readers); err != nil {
		close(d.written)
		return err
	}
	if err := d.checkVersion(len(o.migrations) + 1); err != nil {
		close(d.written)
		return err
	}
	if d.writer, err = d.connect(writerPragmas, "rw"); err != nil {
		close(d.written)
		return err
	}
	go d.writeLoop()
	return nil
}

// PurgeHorizon is the newest time of a ULID whose tombstone is gone: an unknown
// one that is not newer must never run. The zero time means that none is gone.
func (d *DB) PurgeHorizon() time.Time {
	if ms := d.horizon.Load(); ms != 0 {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

// Epoch is the number of this life of the file: a restore begins another.
func (d *DB) Epoch() int64 { return d.epoch }

// Path returns the path of the database file.
func (d *DB) Path() string { return d.path }

var lockingOnce sync.Once

// setLocking asks SQLite for locks that an unrelated close of the same file in
// this process cannot drop, and for fdatasync. Both are for the whole process and
// must come before the first connection; neither exists everywhere.
func setLocking() {
	lockingOnce.Do(func() {
		_, _ = sqlite.OFDLocking(true)
		_, _ = sqlite.Fdatasync(true)
	})
}

// writerPragmas: FULL, because NORMAL may lose the last acknowledged turn when
// the power goes. checkpoints are ours (checkpointLoop). auto_vacuum must come
// before the first table.
var writerPragmas = []string{
	"auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "synchronous(FULL)",
	"fullfsync(1)", "checkpoint_fullfsync(1)", // macOS: fsync alone does not reach the medium
	"foreign_keys(1)", "recursive_triggers(1)", "trusted_schema(0)", "busy_timeout(5000)",
	"wal_autocheckpoint(0)", "temp_store(MEMORY)", "mmap_size(0)", "cache_size(-16000)",
	"journal_size_limit(67108864)", // a WAL that a slow reader made long is cut when it starts over
}

var readerPragmas = []string{
	"query_only(1)", "trusted_schema(0)", "busy_timeout(5000)", "temp_store(MEMORY)", "mmap_size(0)", "cache_size(-4000)",
}

func connectSQLite(dsn string) (driver.Conn, error) {
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return c.Connect(context.Background())
}

func (d *DB) connect(pragmas []string, mode string) (*conn, error) {
	raw, err := d.open(dsn(d.path, mode, pragmas))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.path, err)
	}
	c := newConn(raw)
	c.buried, c.chosen = &d.buried, &d.chosen
	return c, nil
}

func dsn(path, mode string, pragmas []string) string {
	q := url.Values{"mode": {mode}, "_pragma": pragmas}
	// A path is not a URL: escape what SQLite would read as one, keep the rest.
	return "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() + "?" + q.Encode()
}

// realPath follows links, so that one file has one lock by whatever name it is
// opened.
func realPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		// A new file: its folder is there, or opening it says what is wrong.
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			return filepath.Join(dir, filepath.Base(path)), nil
		}
		return path, nil
	}
	return real, err
}

func (d *DB) takeLock() (err error) {
	d.lock, err = lockFile(d.path)
	return err
}

func (d *DB) openReaders(n int) error {
	for range n {
		c, err := d.connect(readerPragmas, "ro")
		if err != nil {
			return err
		}
		d.readers <- c
		d.nReader++
	}
	return nil
}

// read runs fn in one read transaction: everything it sees is of one moment. It
// returns ctx's error when ctx ends before a connection is free.
func (d *DB) read(ctx context.Context, fn func(*conn) error) error {
	return d.readOne(ctx, func(c *conn) (err error) {
		if _, err := c.exec("BEGIN"); err != nil {
			return err
		}
		defer func() {
			_, rerr := c.exec("ROLLBACK")
			if rerr != nil {
				_, _ = c.exec("ROLLBACK") // or it stays in this transaction for good
			}
			if err == nil {
				err = rerr
			}
		}()
		return fn(c)
	})
}

// readOne is read without the transaction: for one statement, which is of one
// moment by itself.
func (d *DB) readOne(ctx context.Context, fn func(*conn) error) error {
	var c *conn
	select {
	case c = <-d.readers:
		if c == nil {
			return ErrClosed
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { d.readers <- c }()
	return fn(c)
}

// Flush returns when everything that was handed to the write queue before it is
// durable.
func (d *DB) Flush(ctx context.Context) error {
	return d.write(ctx, func(*Tx) error { return nil })
}

// Ping writes one row and returns when it is durable: the proof that the
// database can still be written.
func (d *DB) Ping(ctx context.Context) error {
	return d.write(ctx, func(tx *Tx) error {
		_, err := tx.exec(sqlUpdateTx, tx.n)
		return err
	})
}

// Close waits for the write queue to empty, checkpoints the WAL and gives up the
// serving lock. Closing again returns what the first time did.
func (d *DB) Close() error {
	d.closeOnce.Do(func() { d.closeErr = d.close() })
	return d.closeErr
}

func (d *DB) close() error {
	d.closing.Lock()
	if !d.closed {
		d.closed = true
		close(d.queue)
	}
	d.closing.Unlock()
	<-d.written
	<-d.checkpointed
	var errs []error
	if d.writer != nil && d.broken == nil && !d.beside {
		_, err := d.writer.exec("PRAGMA wal_checkpoint(TRUNCATE)")
		errs = append(errs, err)
	}
	errs = append(errs, d.closeFiles())
	return errors.Join(errs...)
}

func (d *DB) closeFiles() error {
	var errs []error
	for range d.nReader {
		errs = append(errs, (<-d.readers).close())
	}
	d.nReader = 0
	close(d.readers) // who reads now gets ErrClosed
	for _, c := range []*conn{d.checkpointer, d.writer} {
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	d.checkpointer, d.writer = nil, nil
	if d.lock != nil {
		errs = append(errs, d.lock.Unlock())
		d.lock = nil
	}
	return errors.Join(errs...)
}

// ms is a time as the database keeps it: NULL when there is none.
func ms(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

const sqlSelectAnyTombstone = `SELECT 1 FROM tombstones LIMIT 1`

const sqlSelectTx = `SELECT tx, purge_horizon, epoch FROM instance`
