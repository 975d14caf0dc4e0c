package db

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// A migration upgrades the schema by one version, in one transaction.
type migration struct {
	sql string
}

// migrations[i] upgrades version i+1 to i+2. schema.sql is always the newest
// version; a test proves that an upgraded old file has exactly its schema.
var migrations = []migration{{sqlUpgrade2}, {sqlUpgrade3}}

//go:embed migrations/2.sql
var sqlUpgrade2 string

//go:embed migrations/3.sql
var sqlUpgrade3 string

// claimFile makes sure that there is a file which is ours to write, and that
// nobody else reads it. It looks through a reading connection, because a writing
// one turns any file into a WAL database before it has asked whose it is.
func (d *DB) claimFile(want int) error {
	fi, err := os.Stat(d.path)
	if errors.Is(err, os.ErrNotExist) {
		// Made by us, because SQLite would let others read it.
		f, err := os.OpenFile(d.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	}
	if err != nil {
		return err
	}
	if fi.Size() > 0 {
		version, app, tables, err := d.versionThrough("ro")
		if code(err) == sqlite3.SQLITE_READONLY_ROLLBACK {
			// Whoever died in the first transactions of the file, before there was a WAL,
			// left a journal, and to read is to roll back.
			version, app, tables, err = d.versionThrough("rw")
		}
		if err != nil {
			return err
		}
		switch {
		case app != applicationID && (version != 0 || tables != 0):
			return fmt.Errorf("%s is not a Semel database (application id %#x): it is left as it is", d.path, app)
		case version > want:
			return newerErr(d.path, version, want)
		}
	}
	// SQLite gives new files the mode of the database; those there are have their own.
	for _, s := range []string{"", "-wal", "-shm"} {
		if err := os.Chmod(d.path+s, 0o600); err != nil && (s == "" || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// versionThrough is fileVersion through a reading connection of its own.
func (d *DB) versionThrough(mode string) (version, app, tables int, err error) {
	c, err := d.connect(readerPragmas, mode)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return d.fileVersion(c)
}

// upgrade makes the schema of a file that is ours the program's. It runs before
// the write loop starts, on the writer's connection.
func (d *DB) upgrade(o Options) error {
	want := len(o.migrations) + 1
	version, _, tables, err := d.fileVersion(d.writer)
	switch {
	case err != nil:
		return err
	case version == 0 && tables == 0:
		return d.create(o.Schema, want)
	case version == want:
		return nil
	}
	copy := "what is restored from"
	if !o.restoring { // else it is a copy itself
		copy = fmt.Sprintf("%s.v%d-%s.bak", d.path, version, time.Now().UTC().Format("20060102T150405.000"))
		// The copy, and what a migration may write anew.
		if err := d.roomFor(filepath.Dir(d.path), 2); err != nil {
			return fmt.Errorf("upgrade from version %d to %d (nothing was changed): %w", version, want, err)
		}
		if err := d.backup(copy); err != nil {
			return fmt.Errorf("copy before the upgrade from version %d to %d (nothing was changed): %w", version, want, err)
		}
	}
	d.log.Info("upgrading the database", "from", version, "to", want, "copy", copy)
	for v := version; v < want; v++ {
		if err := d.migrate(o.migrations[v-1].sql, v+1); err != nil {
			return fmt.Errorf("upgrade to version %d (the file is at version %d, a copy is %s): %w", v+1, v, copy, err)
		}
	}
	return nil
}

// refuseBackup refuses to serve a backup as it is: what it lost since could be asked
// a second time, and nobody would know.
func (d *DB) refuseBackup() error {
	version, _, _, err := d.fileVersion(d.writer)
	if err != nil || version < backupsSince {
		return err
	}
	var at time.Time
	if _, err := d.writer.queryRow(sqlSelectBackedUp, nil, &at); err != nil || at.IsZero() {
		return err
	}
	return fmt.Errorf("%s is a backup of %s: `semel restore FILE` makes a file of it that can be served", d.path, at.Format(time.RFC3339))
}

// backupsSince is the first schema version whose backups say that they are.
const backupsSince = 3

const sqlSelectBackedUp = `SELECT backed_up_at FROM instance`

func (d *DB) create(schema string, version int) error {
	now := time.Now().UnixMilli()
	return d.migrate(fmt.Sprintf(`%s;
PRAGMA application_id = %d;
INSERT INTO instance (one, created_at) VALUES (1, %d);
INSERT INTO users (id, name, created_at) VALUES (%d, 'local', %d);
`, schema, applicationID, now, LocalUser, now), version)
}

// LocalUser is the one user of a program without accounts.
const LocalUser int64 = 1

func (d *DB) migrate(sql string, version int) error {
	err := d.writer.script(fmt.Sprintf("BEGIN IMMEDIATE;\n%s;\nPRAGMA user_version = %d;\nCOMMIT;", sql, version))
	if err != nil {
		_ = d.writer.script("ROLLBACK") // SQLite may have done it already
		return err
	}
	return nil
}

func (d *DB) fileVersion(c *conn) (version, app, tables int, err error) {
	for _, q := range []struct {
		sql  string
		into *int
	}{
		{"PRAGMA user_version", &version},
		{"PRAGMA application_id", &app},
		{"SELECT count(*) FROM sqlite_schema", &tables},
	} {
		if _, err := c.queryRow(q.sql, nil, q.into); err != nil {
			return 0, 0, 0, fmt.Errorf("read %s: %w", d.path, err)
		}
	}
	return version, app, tables, nil
}

func (d *DB) checkVersion(want int) error {
	return d.read(context.Background(), func(c *conn) error {
		version, app, _, err := d.fileVersion(c)
		switch {
		case err != nil:
			return err
		case app != applicationID:
			return fmt.Errorf("%s is not a Semel database", d.path)
		case version > want:
			return newerErr(d.path, version, want)
		case version < want:
			return fmt.Errorf("%s has version %d, this program needs %d: `semel serve` upgrades it", d.path, version, want)
		}
		return nil
	})
}

func newerErr(path string, version, want int) error {
	return fmt.Errorf("%s was written by a newer Semel (schema version %d, this program knows %d): install that version, or restore a backup", path, version, want)
}

// backup writes a checked copy of a file of an earlier version to path, mode 0600. It
// never replaces a file, and gets its name when it is checked. The copy is as that
// version's program left it.
func (d *DB) backup(path string) (err error) {
	// Made by us first, because VACUUM INTO would make it readable by others; it
	// accepts an existing empty file.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+Incomplete+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	if err := d.copyTo(context.Background(), f.Name()); err != nil {
		return err
	}
	if err := d.checkCopy(f.Name()); err != nil {
		return err
	}
	if err := syncFile(f.Name()); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", path, os.ErrExist)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// checkCopy reads the whole copy back: its structure, its references, and that
// it has as many rows as the original.
func (d *DB) checkCopy(path string) (err error) {
	raw, err := d.open(dsn(path, "ro", readerPragmas))
	if err != nil {
		return err
	}
	c := newConn(raw)
	defer func() { err = errors.Join(err, c.close()) }()
	var verdict string
	if _, err := c.queryRow("PRAGMA integrity_check", nil, &verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("the copy is damaged: %s", verdict)
	}
	if broken, err := c.queryRow("SELECT 1 FROM pragma_foreign_key_check LIMIT 1", nil, new(int)); err != nil || broken {
		return errors.Join(err, errors.New("the copy has rows that refer to nothing"))
	}
	var tables []string
	err = d.writer.query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'", nil, func(r row) error {
		var name string
		defer func() { tables = append(tables, name) }()
		return r.scan(&name)
	})
	if err != nil {
		return err
	}
	for _, t := range tables {
		var have, want int64
		count := `SELECT count(*) FROM "` + t + `"`
		if _, err := d.writer.queryRow(count, nil, &want); err != nil {
			return err
		}
		if _, err := c.queryRow(count, nil, &have); err != nil {
			return err
		}
		if have != want {
			return fmt.Errorf("the copy has %d rows in %s, the file %d", have, t, want)
		}
	}
	return nil
}

// syncFile makes a finished file and its name durable.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}
