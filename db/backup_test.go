package db_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/db"
	"semel/db/dbtest"
)

// files returns the names in the folder of path.
func files(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// opened opens a file as a reader does.
func opened(t *testing.T, path string) *db.DB {
	t.Helper()
	d, err := db.Open(db.Options{Path: path, ReadOnly: true, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestABackupIsAWholeCopyForItsOwnerAlone(t *testing.T) {
	d := dbtest.OpenAt(t, copyHealthy(t), nil)
	path := filepath.Join(t.TempDir(), "b.db")
	before := time.Now()
	b, err := d.Backup(bg, path)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want mode 0600", fi.Mode(), err)
	}
	requests, err := db.Int(bg, d, `SELECT count(*) FROM requests`)
	if err != nil || b.Requests != requests || b.Bytes != fi.Size() || b.Checks != len(db.Invariants) || len(b.SHA256) != 64 || b.Path != path ||
		b.At.Before(before) || b.At.After(time.Now()) {
		t.Errorf("got %+v, %v, want %d requests and %d bytes", b, err, requests, fi.Size())
	}
	if names := files(t, path); !slices.Equal(names, []string{"b.db"}) {
		t.Errorf("it left %v", names)
	}
	if err := openClose(t, options(t, path)); err == nil || !strings.Contains(err.Error(), "is a backup of") || !strings.Contains(err.Error(), "semel restore") {
		t.Errorf("served as it is: %v, want it refused", err)
	}
	// Every row of every table, and but one column of them as it was.
	c := opened(t, path)
	names, err := db.Text(bg, d, `SELECT group_concat(name) FROM sqlite_schema WHERE type = 'table' AND name <> 'instance'`)
	tables := strings.Split(names, ",")
	if err != nil || len(tables) < 30 {
		t.Fatal(tables, err)
	}
	for _, table := range tables {
		was, err := db.Dump(bg, d, `"`+table+`"`)
		is, err2 := db.Dump(bg, c, `"`+table+`"`)
		if err != nil || err2 != nil || !slices.Equal(was, is) {
			t.Errorf("%s is not what it was: %v, %v\n%s", table, err, err2, diff(was, is))
		}
	}
	if at, err := db.Int(bg, c, `SELECT backed_up_at FROM instance`); err != nil || at != b.At.UnixMilli() {
		t.Errorf("it says that it is of %d, %v, want %d", at, err, b.At.UnixMilli())
	}

	// A backup is never written over.
	kept := read(t, path)
	if _, err := d.Backup(bg, path); !errors.Is(err, fs.ErrExist) || !slices.Equal(kept, read(t, path)) {
		t.Errorf("a second one: %v, want it refused and the first as it was", err)
	}
	if names := files(t, path); !slices.Contains(names, "b.db") || slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, db.Incomplete) }) {
		t.Errorf("the second left %v", names)
	}
}

func TestABackupBesideWritersHasAllThatWasStoredBefore(t *testing.T) {
	path := copyHealthy(t)
	d := dbtest.OpenAt(t, path, nil)
	stop, wg := make(chan struct{}), sync.WaitGroup{}
	written := make(chan string)
	wg.Go(func() {
		for i := 0; ; i++ {
			r := dbtest.Answered(t, d, "session-beside", "question", "answer")
			select {
			case written <- r.Key.RequestID:
			case <-stop:
				return
			}
		}
	})
	beside := opened(t, path) // as another process does
	for i := range 3 {
		last := <-written
		to := filepath.Join(t.TempDir(), "b.db")
		done := make(chan error)
		go func() {
			_, err := beside.Backup(bg, to)
			done <- err
		}()
		for err := error(nil); done != nil; {
			select {
			case <-written:
			case err = <-done:
				done = nil
			}
			if err != nil {
				t.Errorf("backup %d: %v", i, err)
			}
		}
		c := opened(t, to)
		dbtest.Check(t, c)
		if n, err := db.Int(bg, c, `SELECT count(*) FROM snapshots s JOIN requests r ON r.id = s.request_id WHERE r.request_id = '`+last+`'`); err != nil || n != 1 {
			t.Errorf("backup %d lacks an answer that was stored before it began: %d, %v", i, n, err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestACopyThatIsNoGoodGetsNoName(t *testing.T) {
	for what, damage := range map[string]func(t *testing.T, path string){
		"I24": func(t *testing.T, path string) {
			breakFile(t, path, []string{`UPDATE ledger SET micros = micros + 1 WHERE kind = 'charge'`})
		},
		"damaged": flipAByte,
	} {
		path := copyHealthy(t)
		damage(t, path)
		to := filepath.Join(t.TempDir(), "b.db")
		if _, err := opened(t, path).Backup(bg, to); err == nil || what == "I24" && !strings.Contains(err.Error(), what) {
			t.Errorf("of a file that violates %s: %v", what, err)
		}
		if names := files(t, to); len(names) > 0 {
			t.Errorf("it left %v", names)
		}
	}
}

func TestABackupThatIsGivenUpLeavesNothing(t *testing.T) {
	d := opened(t, copyHealthy(t))
	ctx, cancel := context.WithCancel(bg)
	cancel()
	to := filepath.Join(t.TempDir(), "b.db")
	if _, err := d.Backup(ctx, to); err == nil {
		t.Error("it went on")
	}
	if names := files(t, to); len(names) > 0 {
		t.Errorf("it left %v", names)
	}
}
