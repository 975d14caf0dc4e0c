package db_test

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"modernc.org/sqlite"

	"semel/db"
	"semel/db/dbtest"
)

func options(t *testing.T, path string) db.Options {
	return db.Options{Path: path, Schema: dbtest.Schema(t)}
}

// openClose opens and closes the file, as a program that starts and stops.
func openClose(t *testing.T, o db.Options) error {
	t.Helper()
	d, err := db.Open(o)
	if err != nil {
		return err
	}
	return d.Close()
}

func TestOneProcessServesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	_, err := db.Open(options(t, path))
	if !errors.Is(err, db.ErrServed) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--db") {
		t.Errorf("a second time in this process: %v", err)
	}
	if out := inAnotherProcess(t, path); !strings.Contains(out, db.ErrServed.Error()) || !strings.Contains(out, path) {
		t.Errorf("in another process: %s", out)
	}
	// That they tried does no harm to who serves.
	dbtest.Answered(t, d, "session-1", "one", "first answer")
	dbtest.Check(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if out := inAnotherProcess(t, path); !strings.Contains(out, "opened") {
		t.Errorf("in another process after closing: %s", out)
	}
	if err := openClose(t, options(t, path)); err != nil {
		t.Errorf("again in this process: %v", err)
	}
}

// inAnotherProcess opens the file there and returns what came of it.
func inAnotherProcess(t *testing.T, path string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, "-test.run=^TestMain$")
	c.Env = append(os.Environ(), "SEMEL_TEST_OPEN="+path)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// atUpgradePoint is what happens at each point of an upgrade that has them (WithPoints).
var atUpgradePoint = func(n int64) error { return nil }

func TestMain(m *testing.M) {
	sqlite.MustRegisterScalarFunction("upgrade_point", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		return nil, atUpgradePoint(args[0].(int64))
	})
	if path := os.Getenv("SEMEL_TEST_OPEN"); path != "" {
		openForTest(path)
		return
	}
	os.Exit(m.Run())
}

// openForTest is a process of its own that opens the file at path and closes it. It dies
// at the point of the upgrade that the environment names.
func openForTest(path string) {
	runtime.LockOSThread() // strace counts the calls of each thread
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		fmt.Println(err)
		return
	}
	o := db.Options{Path: path, Schema: string(schema)}
	if at, err := strconv.ParseInt(os.Getenv("SEMEL_TEST_POINT"), 10, 64); err == nil {
		o, _ = db.WithPoints(o)
		atUpgradePoint = func(n int64) error {
			if n == at {
				self, err := os.FindProcess(os.Getpid())
				if err = errors.Join(err, self.Kill()); err != nil {
					panic(err)
				}
				select {}
			}
			return nil
		}
	}
	d, err := db.Open(o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("opened", d.Close())
}

func TestAFileOfANewerProgramIsRefusedAndLeftAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := openClose(t, db.WithMigrations(options(t, path), `SELECT 1`, `SELECT 1`)); err != nil {
		t.Fatal(err)
	}
	before := read(t, path)
	for name, o := range map[string]db.Options{"serving": options(t, path), "reading": {Path: path, ReadOnly: true}} {
		err := openClose(t, o)
		if err == nil || !strings.Contains(err.Error(), "newer Semel") || !strings.Contains(err.Error(), fmt.Sprintf("version %d", db.Version()+2)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !bytes.Equal(before, read(t, path)) {
		t.Error("the file was changed")
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAForeignFileIsRefusedAndLeftAsItIs(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, path string){
		"another program's database": func(t *testing.T, path string) {
			execRaw(t, path, `CREATE TABLE theirs (x)`, `INSERT INTO theirs VALUES (1)`)
		},
		"another program's, with a version": func(t *testing.T, path string) {
			execRaw(t, path, `CREATE TABLE theirs (x)`, `PRAGMA user_version = 1`, `PRAGMA application_id = 7`)
		},
		"text": func(t *testing.T, path string) {
			if err := os.WriteFile(path, bytes.Repeat([]byte("Dear diary,\n"), 1000), 0o644); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			make(t, path)
			if err := os.Chmod(path, 0o640); err != nil {
				t.Fatal(err)
			}
			before := read(t, path)
			for _, o := range []db.Options{options(t, path), {Path: path, ReadOnly: true}} {
				if err := openClose(t, o); err == nil || !strings.Contains(err.Error(), path) {
					t.Errorf("read-only %t: %v, want it refused by name", o.ReadOnly, err)
				}
			}
			if !bytes.Equal(before, read(t, path)) {
				t.Error("the file was changed")
			}
			if fi, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o640 {
				t.Errorf("its mode became %v (%v)", fi.Mode(), err)
			}
		})
	}
}

func TestAnEmptyFileIsTakenForANewOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dbtest.Check(t, dbtest.OpenAt(t, path, nil))
	onlyOurs(t, path)
}

// onlyOurs fails the test when others may read the file or what lies beside it.
func onlyOurs(t *testing.T, path string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		return
	}
	all, err := filepath.Glob(path + "*")
	if err != nil || len(all) < 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, f := range all {
		if fi, err := os.Stat(f); err != nil || fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v (%v)", filepath.Base(f), fi.Mode(), err)
		}
	}
}

// The first start makes the file in transactions with a rollback journal, before there is
// a WAL. Who dies in one leaves a journal that only a writing connection can roll back.
func TestAStartAfterADeathInTheVeryFirstOne(t *testing.T) {
	dir := t.TempDir()
	made, path := filepath.Join(dir, "made.db"), filepath.Join(dir, "x.db")
	raw, err := sql.Open("sqlite", made)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	raw.SetMaxOpenConns(1)
	for _, q := range []string{
		`CREATE TABLE t (x)`, `DROP TABLE t`, `PRAGMA cache_size = 1`, `BEGIN`, `CREATE TABLE t (x)`,
		`INSERT INTO t SELECT zeroblob(3000) FROM (VALUES (1), (2), (3), (4), (5), (6), (7), (8))`,
	} {
		if _, err := raw.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	for _, suffix := range []string{"", "-journal"} {
		b, err := os.ReadFile(made + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dbtest.Check(t, dbtest.OpenAt(t, path, nil))
	if _, err := os.Stat(path + "-journal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal is still there: %v", err)
	}
}

func TestOnlyItsOwnerReadsTheFileAndWhatLiesBesideIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	dbtest.Answered(t, d, "session-1", "one", "first answer")
	onlyOurs(t, path)
}

func TestAnyPathWillDo(t *testing.T) {
	for _, name := range []string{"with space.db", "per%20cent.db", "ques?tion.db", "ha#sh.db", "plus+and&.db", "苹果.db", "it's.db"} {
		if runtime.GOOS == "windows" && strings.ContainsAny(name, "?") {
			continue
		}
		path := filepath.Join(t.TempDir(), name)
		if err := openClose(t, options(t, path)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if err := openClose(t, db.Options{Path: path, ReadOnly: true}); err != nil {
			t.Errorf("%q for reading: %v", name, err)
		}
	}
	if err := openClose(t, options(t, filepath.Join(t.TempDir(), "no", "such", "folder.db"))); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

func TestOthersReadBesideWhoServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	r := dbtest.Answered(t, d, "session-1", "one", "first answer")
	beside, err := db.Open(db.Options{Path: path, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Check(t, beside)
	if rec, err := beside.Record(bg, r.Key); err != nil || rec.Content != "first answer" {
		t.Errorf("read beside: %q, %v", rec.Content, err)
	}
	later := dbtest.Answered(t, d, "session-1", "two", "second answer")
	if _, err := beside.Record(bg, later.Key); err != nil {
		t.Errorf("what came later: %v", err)
	}
	if err := beside.Ping(bg); !errors.Is(err, db.ErrClosed) {
		t.Errorf("a reader wrote: %v", err)
	}
	if err := beside.Close(); err != nil {
		t.Error(err)
	}
	dbtest.Answered(t, d, "session-1", "three", "third answer")
	dbtest.Check(t, d)
	if err := openClose(t, db.Options{Path: filepath.Join(t.TempDir(), "none.db"), ReadOnly: true}); err == nil {
		t.Error("reading a file that is not there is no error")
	}
}

const (
	addTable = `CREATE TABLE extra (id INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT;
		INSERT INTO extra VALUES (1, 'made by an upgrade')`
	addIndex = `CREATE INDEX extra_note ON extra (note)`
)

func schemaOf(t *testing.T, path string) []string {
	t.Helper()
	rows, err := raw(t, path, "").QueryContext(bg, `SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema ORDER BY 1, 2`)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for rows.Next() {
		var s [4]string
		if err := rows.Scan(&s[0], &s[1], &s[2], &s[3]); err != nil {
			t.Fatal(err)
		}
		s[3] = strings.Join(strings.Fields(s[3]), " ")
		all = append(all, strings.Join(s[:], " | "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func backups(t *testing.T, path string) []string {
	t.Helper()
	all, err := filepath.Glob(path + ".v*.bak")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAnUpgradeMakesACheckedCopyFirstAndEndsAtTheNewSchema(t *testing.T) {
	path := copyHealthy(t)
	if err := openClose(t, db.WithMigrations(options(t, path), addTable, addIndex)); err != nil {
		t.Fatal(err)
	}
	// The same schema as a new file has.
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	o := db.WithMigrations(options(t, fresh), addTable, addIndex)
	o.Schema += ";" + addTable + ";" + addIndex + ";"
	if err := openClose(t, o); err != nil {
		t.Fatal(err)
	}
	if got, want := schemaOf(t, path), schemaOf(t, fresh); !slices.Equal(got, want) {
		t.Errorf("the upgraded schema differs:\n%s", diff(want, got))
	}
	// One copy, of our version, complete, and nobody else's to read.
	copies := backups(t, path)
	if len(copies) != 1 || !strings.Contains(copies[0], fmt.Sprintf(".v%d-", db.Version())) {
		t.Fatalf("the copies are %v", copies)
	}
	if fi, err := os.Stat(copies[0]); err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o600 {
		t.Errorf("the copy has mode %v (%v)", fi.Mode(), err)
	}
	old := dbtest.OpenAt(t, copies[0], nil)
	dbtest.Check(t, old)
	original := filepath.Join(t.TempDir(), "original.db")
	if err := os.WriteFile(original, healthyBytes, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := contents(t, old), contents(t, dbtest.OpenAt(t, original, nil)); !slices.Equal(got, want) {
		t.Errorf("the copy differs:\n%s", diff(want, got))
	}
	// Nothing of what was there is lost, and a second start upgrades nothing.
	again, err := db.Open(db.WithMigrations(options(t, path), addTable, addIndex))
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Check(t, again)
	if got, want := contents(t, again), contents(t, old); !slices.Equal(got, want) {
		t.Errorf("the upgraded file differs:\n%s", diff(want, got))
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if got := backups(t, path); len(got) != 1 {
		t.Errorf("the second start made a copy: %v", got)
	}
	// The program before the upgrade says what to do.
	if err := openClose(t, options(t, path)); err == nil || !strings.Contains(err.Error(), "newer Semel") {
		t.Errorf("the old program: %v", err)
	}
}

func TestAnOlderFileIsNotReadButUpgraded(t *testing.T) {
	path := copyHealthy(t)
	err := openClose(t, db.WithMigrations(db.Options{Path: path, ReadOnly: true}, addTable))
	if err == nil || !strings.Contains(err.Error(), "serve` upgrades it") {
		t.Errorf("got %v", err)
	}
	if got := backups(t, path); len(got) != 0 {
		t.Errorf("reading made a copy: %v", got)
	}
}

func TestAFailedUpgradeLeavesTheLastGoodVersionAndTheCopy(t *testing.T) {
	for name, c := range map[string]struct {
		migrations []string
		version    int
	}{
		"the first fails":                           {[]string{`CREATE TABLE half (x); INSERT INTO no_such_table VALUES (1)`, addTable}, db.Version()},
		"the second fails":                          {[]string{addTable, `CREATE TABLE half (x); INSERT INTO no_such_table VALUES (1)`}, db.Version() + 1},
		"it breaks a reference, seen at its commit": {[]string{`CREATE TABLE half (x REFERENCES users (id) DEFERRABLE INITIALLY DEFERRED); INSERT INTO half VALUES (77)`}, db.Version()},
	} {
		t.Run(name, func(t *testing.T) {
			path := copyHealthy(t)
			err := openClose(t, db.WithMigrations(options(t, path), c.migrations...))
			copies := backups(t, path)
			if err == nil || len(copies) != 1 || !strings.Contains(err.Error(), copies[0]) || !strings.Contains(err.Error(), fmt.Sprintf("at version %d", c.version)) {
				t.Fatalf("got %v, copies %v", err, copies)
			}
			if slices.ContainsFunc(schemaOf(t, path), func(s string) bool { return strings.Contains(s, "half") }) {
				t.Error("half of the upgrade stayed")
			}
			// The program of that version goes on as if nothing had been.
			d, err := db.Open(db.WithMigrations(options(t, path), c.migrations[:c.version-db.Version()]...))
			if err != nil {
				t.Fatal(err)
			}
			dbtest.Check(t, d)
			dbtest.Answered(t, d, "session-after", "one", "first answer")
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADamagedFileIsNotUpgraded(t *testing.T) {
	path := copyHealthy(t)
	flipAByte(t, path)
	before := read(t, path)
	err := openClose(t, db.WithMigrations(options(t, path), addTable))
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("got %v", err)
	}
	if got := backups(t, path); len(got) != 0 {
		t.Errorf("a copy that is no good was kept: %v", got)
	}
	if !bytes.Equal(before, read(t, path)) {
		t.Error("the file was changed")
	}
}

func TestTheConnectionsHaveTheirPragmas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d, err := db.Open(options(t, path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	for pragma, want := range map[string]int64{
		"synchronous": 2, "foreign_keys": 1, "recursive_triggers": 1, "trusted_schema": 0, "wal_autocheckpoint": 0, "auto_vacuum": 2,
		"mmap_size": 0, "temp_store": 2, "cache_size": -16000, "busy_timeout": 5000, "journal_size_limit": 64 << 20, "query_only": 0, "page_size": 4096, "fullfsync": 1, "checkpoint_fullfsync": 1, "application_id": 0x53454D4C, "user_version": int64(db.Version()),
	} {
		if got, err := db.WriterInt(bg, d, "PRAGMA "+pragma); err != nil || got != want {
			t.Errorf("the writer's %s is %d, want %d (%v)", pragma, got, want, err)
		}
	}
	if got, err := db.Text(bg, d, "PRAGMA journal_mode"); err != nil || got != "wal" {
		t.Errorf("journal_mode is %q (%v)", got, err)
	}
	for pragma, want := range map[string]int64{"query_only": 1, "trusted_schema": 0, "mmap_size": 0, "temp_store": 2, "cache_size": -4000, "busy_timeout": 5000} {
		if got, err := db.Int(bg, d, "PRAGMA "+pragma); err != nil || got != want {
			t.Errorf("a reader's %s is %d, want %d (%v)", pragma, got, want, err)
		}
	}
}
