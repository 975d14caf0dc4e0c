package db_test

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"semel/db"
	"semel/db/dbtest"
)

var upgradePointsFlag = flag.Bool("points", false, "meet an upgrade at each of its points, and not at some")

// opening is a process of its own that opens path; point is where its upgrade dies, 0 for
// nowhere.
func opening(t *testing.T, path string, point int) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, "-test.run=^TestMain$")
	c.Env = append(os.Environ(), "SEMEL_TEST_OPEN="+path)
	if point > 0 {
		c.Env = append(c.Env, fmt.Sprint("SEMEL_TEST_POINT=", point))
	}
	return c
}

// fileRows returns the version of the file at path and every row of every table, with the
// schema's, read through a copy: whoever looks leaves the recovery to the next start.
func fileRows(t *testing.T, path string) (version int, text string) {
	t.Helper()
	var rows []string
	look := filepath.Join(t.TempDir(), "look.db")
	for _, s := range []string{"", "-wal", "-journal"} {
		b, err := os.ReadFile(path + s)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(look+s, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := sql.Open("sqlite", look)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var verdict, tables string
	err = errors.Join(d.QueryRow(`PRAGMA integrity_check`).Scan(&verdict), d.QueryRow(`PRAGMA user_version`).Scan(&version),
		d.QueryRow(`SELECT group_concat(name, ' ') FROM (SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name)`).Scan(&tables))
	if err != nil || verdict != "ok" {
		t.Fatalf("%s: %s, %v", path, verdict, err)
	}
	for _, table := range append(strings.Fields(tables), "sqlite_schema") {
		all, err := d.Query(`SELECT * FROM "` + table + `"`)
		if err != nil {
			t.Fatal(err)
		}
		columns, _ := all.Columns()
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		for all.Next() {
			if err := all.Scan(into...); err != nil {
				t.Fatal(err)
			}
			if table == "sqlite_schema" {
				values[3] = nil // the page where it begins; a copy has it elsewhere
			}
			rows = append(rows, fmt.Sprintf("%s %q\n", table, values))
		}
		if err := errors.Join(all.Err(), all.Close()); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(rows) // a copy may have them in another order
	return version, strings.Join(rows, "")
}

// isOld fails the test unless the file at path is of that version, and the copies before
// the upgrade are; rows are those of the file before it.
func isOld(t *testing.T, when, path string, version int, rows string) {
	t.Helper()
	if got, now := fileRows(t, path); got != version || now != rows {
		t.Errorf("%s: the file has version %d, and its rows are as they were: %t", when, got, now == rows)
	}
	copies, _ := filepath.Glob(path + ".v*.bak")
	if len(copies) == 0 {
		t.Errorf("%s: there is no copy", when)
	}
	for _, name := range copies {
		if got, now := fileRows(t, name); got != version || now != rows {
			t.Errorf("%s: a copy has version %d, and its rows are those of the file: %t", when, got, now == rows)
		}
	}
}

// isNew lets the next start complete the upgrade.
func isNew(t *testing.T, when, path string, requests int64) {
	t.Helper()
	d := dbtest.OpenAt(t, path, nil)
	dbtest.Check(t, d)
	version, err := db.Int(bg, d, `PRAGMA user_version`)
	n, err2 := db.Int(bg, d, `SELECT count(*) FROM requests`)
	if err := errors.Join(err, err2, d.Close()); err != nil || int(version) != db.Version() || n != requests {
		t.Errorf("%s: version %d with %d requests, %v, want %d with %d", when, version, n, err, db.Version(), requests)
	}
}

func countRequests(rows string) int64 { return int64(strings.Count("\n"+rows, "\nrequests ")) }

// chosen are the points at which an upgrade is met: the first and the last ones of each
// step, and some between; all by -points.
func chosen(points []int, from int, some int) (list []int) {
	first := 1
	for i, n := range points {
		for p := first; p < first+n; p++ {
			if i+1 >= from && (*upgradePointsFlag || p == first || p == first+n-1 || (p-first)%some == 1) {
				list = append(list, p)
			}
		}
		first += n
	}
	return list
}

// An upgrade is killed before each of its statements and before each commit. The file is
// as it was, or as the step before left it; the copy is there and good, and the next start
// completes it.
func TestAnUpgradeThatIsKilledAtAStatementIsGoneOnWith(t *testing.T) {
	for from := 1; from < db.Version(); from++ {
		template := read(t, oldFile(t, from))
		_, points := db.WithPoints(db.Options{})
		for _, p := range chosen(points, from, 25) {
			when := fmt.Sprintf("version %d, killed at point %d of %v", from, p, points)
			path := filepath.Join(t.TempDir(), "x.db")
			if err := os.WriteFile(path, template, 0o600); err != nil {
				t.Fatal(err)
			}
			_, before := fileRows(t, path)
			c := opening(t, path, p)
			if out, err := c.CombinedOutput(); err == nil || c.ProcessState.ExitCode() != -1 {
				t.Fatalf("%s: it ended by itself: %v, %s", when, err, out)
			}
			if p <= points[0] == (from == 1) { // in its first step
				isOld(t, when, path, from, before)
			} else if version, rows := fileRows(t, path); version != from+1 || countRequests(rows) != countRequests(before) {
				t.Errorf("%s: version %d with %d requests", when, version, countRequests(rows))
			}
			isNew(t, when, path, countRequests(before))
		}
	}
}

// Each statement fails once, as on a disk that is full: nothing of its step is there, and
// the next start completes it.
func TestAnUpgradeWhoseStatementFailsIsGoneOnWith(t *testing.T) {
	defer func(was func(int64) error) { atUpgradePoint = was }(atUpgradePoint)
	for from := 1; from < db.Version(); from++ {
		template := read(t, oldFile(t, from))
		o, points := db.WithPoints(options(t, ""))
		for _, p := range chosen(points, from, 12) {
			when := fmt.Sprintf("version %d, failed at point %d of %v", from, p, points)
			path := filepath.Join(t.TempDir(), "x.db")
			if err := os.WriteFile(path, template, 0o600); err != nil {
				t.Fatal(err)
			}
			_, before := fileRows(t, path)
			atUpgradePoint = func(n int64) error {
				if n == int64(p) {
					return errors.New("no room for it")
				}
				return nil
			}
			o.Path = path
			err := openClose(t, o)
			if err == nil || !strings.Contains(err.Error(), "no room for it") || !strings.Contains(err.Error(), "a copy is "+path+".v") {
				t.Fatalf("%s: %v", when, err)
			}
			if p <= points[0] == (from == 1) {
				isOld(t, when, path, from, before)
			}
			isNew(t, when, path, countRequests(before))
		}
	}
}

// The disk fails the real calls of an upgrade: it is full, or broken, from some call on.
// And the process dies while the copy before it is made. The copy has its name when it is
// whole, the file is as it was, and the next start completes the upgrade.
func TestAnUpgradeThatIsKilledIsGoneOnWith(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatalf("this test needs strace: bash .ci/need strace (%v)", err)
	}
	template := read(t, oldFile(t, 2))
	for _, tt := range []struct {
		call, of, what, nth string // of the file with that ending; "" is any
		copied              bool   // it comes after the copy
		stored              bool   // all is in the log, and the next start may find it
	}{
		{"pwrite64", "", "signal=KILL", "1", false, false},
		{"pwrite64", "", "signal=KILL", "60", false, false}, // of the copy
		{"fsync", "", "signal=KILL", "1", false, false},     // of the copy, which is checked
		{"renameat", "", "signal=KILL", "1", false, false},
		{"fsync", "", "signal=KILL", "3", true, false}, // of its folder, when it has its name
		{"pwrite64", "-wal", "signal=KILL", "2", true, false},
		{"pwrite64", "-wal", "signal=KILL", "20", true, false},
		{"fdatasync", "-wal", "signal=KILL", "2", true, true}, // of the commit
		{"pwrite64", "", "error=ENOSPC", "60+", false, false},
		{"fsync", "", "error=EIO", "1", false, false},
		{"renameat", "", "error=ENOSPC", "1", false, false},
		{"pwrite64", "-wal", "error=EIO", "1+", true, false},
		{"pwrite64", "-wal", "error=ENOSPC", "20+", true, false},
		{"fdatasync", "-wal", "error=EIO", "2+", true, true},
	} {
		when := fmt.Sprintf("%s of %s %s%s", tt.what, tt.call, tt.nth, tt.of)
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "x.db")
		if err := os.WriteFile(path, template, 0o600); err != nil {
			t.Fatal(err)
		}
		_, before := fileRows(t, path)
		c := opening(t, path, 0)
		args := []string{"-D", "-f", "-q", "-o", "/dev/null", "-e", "signal=none", "-e", "trace=" + tt.call, "-e", "inject=" + tt.call + ":" + tt.what + ":when=" + tt.nth}
		if tt.of != "" {
			args = append(args, "-P", path+tt.of)
		}
		under := exec.Command(strace, append(append(args, "--"), c.Args...)...)
		under.Env = c.Env
		out, err := under.CombinedOutput()
		if killed := under.ProcessState.ExitCode() == -1; killed != strings.HasPrefix(tt.what, "signal") || strings.Contains(string(out), "opened <nil>") {
			t.Errorf("%s: it ended with %v: %s", when, err, out)
		}
		// A copy that has its name is a whole one, whatever came of the upgrade.
		copies, _ := filepath.Glob(path + ".v2-*.bak")
		if tt.copied != (len(copies) == 1) {
			t.Errorf("%s: the copies are %v: %s", when, copies, out)
		}
		for _, name := range copies {
			if version, rows := fileRows(t, name); version != 2 || rows != before {
				t.Errorf("%s: the copy has version %d, and its rows are those of the file: %t", when, version, rows == before)
			}
		}
		if version, rows := fileRows(t, path); (version != 2 || rows != before) && !(tt.stored && version == 3) {
			t.Errorf("%s: the file has version %d, and its rows are as they were: %t", when, version, rows == before)
		}
		isNew(t, when, path, countRequests(before))
	}
}

func TestAnUpgradeWithoutTheRoomForItIsNotBegun(t *testing.T) {
	template := read(t, oldFile(t, 2))
	dir := t.TempDir()
	size := len(template)*5/2 + 64<<10 // the file, and one and a half more
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("NOT TESTED: a small file system cannot be mounted (%v). As root it can.", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "x.db")
	if err := os.WriteFile(path, template, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openClose(t, options(t, path)); !errors.Is(err, db.ErrNoRoom) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("got %v", err)
	}
	var version int
	if err := raw(t, path, "").QueryRowContext(bg, `PRAGMA user_version`).Scan(&version); err != nil || version != 2 {
		t.Errorf("the file has version %d, %v", version, err)
	}
	if copies, _ := filepath.Glob(path + ".v2-*"); len(copies) > 0 {
		t.Errorf("a copy was begun: %v", copies)
	}
}
