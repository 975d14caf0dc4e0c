package db_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// backedUp returns a backup of the healthy file.
func backedUp(t *testing.T) (path string, at time.Time) {
	t.Helper()
	b, err := opened(t, copyHealthy(t)).Backup(bg, filepath.Join(t.TempDir(), "b.db"))
	if err != nil {
		t.Fatal(err)
	}
	return b.Path, b.At
}

func idAt(at time.Time) string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(at)) // not before 1970, not after 10889
	return id.String()
}

func TestARestoreDoubtsWhatItLost(t *testing.T) {
	backup, at := backedUp(t)
	path := filepath.Join(t.TempDir(), "x.db")
	kept := read(t, backup)
	r, err := db.Restore(bg, options(t, path), backup, false)
	if err != nil {
		t.Fatal(err)
	}
	if r.BackupAt.UnixMilli() != at.UnixMilli() || r.RestoredAt.Before(at.Truncate(time.Millisecond)) || r.Kept != "" || r.Checks != len(db.Invariants) || r.Requests == 0 {
		t.Errorf("got %+v", r)
	}
	if !slices.Equal(kept, read(t, backup)) {
		t.Error("the backup was changed")
	}
	if names := files(t, path); !slices.Equal(names, []string{"x.db", "x.db.lock"}) {
		t.Errorf("it left %v", names)
	}
	d := dbtest.OpenAt(t, path, nil)
	dbtest.Check(t, d)
	in, err := d.Instance(bg)
	if err != nil || in.Epoch < r.RestoredAt.UnixMilli() || !in.Restored {
		t.Errorf("%+v, %v, want a new epoch and something to settle", in, err)
	}
	for what, n := range map[string]int64{
		`SELECT count(*) FROM requests WHERE failure_retry = 'auto'`:                                               0,
		`SELECT count(*) FROM outbox WHERE state IN ('pending', 'delivering') AND doubted_at IS NULL`:              0,
		`SELECT count(*) FROM outbox WHERE state NOT IN ('pending', 'delivering') AND doubted_at IS NOT NULL`:      0,
		`SELECT count(*) FROM instance WHERE backed_up_at IS NOT NULL`:                                             0,
		fmt.Sprintf(`SELECT count(*) FROM restores WHERE backup_at = %d AND epoch = %d`, at.UnixMilli(), in.Epoch): 1,
	} {
		if got, err := db.Int(bg, d, what); err != nil || got != n {
			t.Errorf("%s is %d, %v, want %d", what, got, err, n)
		}
	}
	day := r.RestoredAt.Add(24 * time.Hour)
	for _, tt := range []struct {
		id   string
		now  time.Time
		lost bool
	}{
		{idAt(at.Add(-10*time.Minute - time.Millisecond)), r.RestoredAt, false},
		{idAt(at.Add(-10 * time.Minute).Add(time.Millisecond)), r.RestoredAt, true},
		{idAt(at), r.RestoredAt, true},
		{idAt(r.RestoredAt), r.RestoredAt, true},
		{idAt(r.RestoredAt), day.Add(1000 * time.Hour), true}, // an outbox may be that old
		{idAt(r.RestoredAt.Add(time.Millisecond)), r.RestoredAt, false},
		{"order-4711-a", r.RestoredAt, true},
		{"order-4711-a", day.Add(-time.Millisecond), true},
		{"order-4711-a", day, false},
		{"order-4711-a", r.RestoredAt.Add(-time.Hour), true}, // a clock that was set back
	} {
		if got := d.Lost(tt.id, tt.now); got != tt.lost {
			t.Errorf("%s at %s: lost %t, want %t", tt.id, tt.now, got, tt.lost)
		}
	}
	if !d.Guarded(day.Add(-time.Millisecond)) || d.Guarded(day) {
		t.Error("the guard is not a day")
	}
}

func TestAFileThatWasNeverRestoredLostNothing(t *testing.T) {
	d := dbtest.Open(t)
	if d.Lost("order-4711-a", time.Now()) || d.Lost(chat.NewID(), time.Now()) || d.Guarded(time.Now()) {
		t.Error("it doubts what it does not know")
	}
}

func TestEveryRestoreIsAnotherEpochAndKeepsTheEarlierGaps(t *testing.T) {
	backup, _ := backedUp(t)
	path := filepath.Join(t.TempDir(), "x.db")
	first, err := db.Restore(bg, options(t, path), backup, false)
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(options(t, path))
	if err != nil {
		t.Fatal(err)
	}
	one, err := d.Instance(bg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Backup(bg, filepath.Join(t.TempDir(), "second.db"))
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	for n, from := range []string{backup, b.Path} { // the same one again, whose epoch is the old one's; and a later one
		r, err := db.Restore(bg, options(t, path), from, true)
		if err != nil {
			t.Fatal(err)
		}
		d, err := db.Open(options(t, path))
		if err != nil {
			t.Fatal(err)
		}
		in, err := d.Instance(bg)
		if err != nil || in.Epoch <= one.Epoch {
			t.Errorf("restore %d: epoch %d after %d: %v", n, in.Epoch, one.Epoch, err)
		}
		one = in
		if !d.Lost(idAt(first.RestoredAt), time.Now()) || !d.Lost(idAt(r.RestoredAt), time.Now()) {
			t.Errorf("restore %d forgets a gap", n)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARestoreTakesNothingThatIsNoGood(t *testing.T) {
	good, _ := backedUp(t)
	served := copyHealthy(t)
	dbtest.OpenAt(t, served, nil)
	broken := copyHealthy(t)
	breakFile(t, broken, []string{`UPDATE ledger SET micros = micros + 1 WHERE kind = 'charge'`})
	flipped := copyHealthy(t)
	flipAByte(t, flipped)
	text := filepath.Join(t.TempDir(), "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("Dear diary,\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what, from, want string
		force            bool
	}{
		{"without force", good, "file already exists", false},
		{"a file that is served", served, db.ErrServed.Error(), true},
		{"a violated invariant", broken, "I24", true},
		{"damage", flipped, "", true},
		{"another file", text, "", true},
		{"no file", good + "x", "no such file", true},
	} {
		path := copyHealthy(t)
		before, names := read(t, path), files(t, path)
		if _, err := db.Restore(bg, options(t, path), tt.from, tt.force); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.what, err, tt.want)
		}
		now := slices.DeleteFunc(files(t, path), func(n string) bool { return strings.HasSuffix(n, ".lock") })
		if !slices.Equal(before, read(t, path)) || !slices.Equal(slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, ".lock") }), now) {
			t.Errorf("%s: the database was touched, or something left beside it: %v", tt.what, now)
		}
	}
	path := filepath.Join(t.TempDir(), "x.db")
	dbtest.OpenAt(t, path, nil)
	if _, err := db.Restore(bg, options(t, path), good, true); !errors.Is(err, db.ErrServed) {
		t.Errorf("over a file that is served: %v", err)
	}
	if _, err := db.Restore(bg, options(t, good), good, true); err == nil {
		t.Error("a file over itself")
	}
}

func TestWhatARestoreReplacesIsKeptWhole(t *testing.T) {
	backup, _ := backedUp(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	d, err := db.Open(options(t, path))
	if err != nil {
		t.Fatal(err)
	}
	last := dbtest.Answered(t, d, "session-last", "only", "here")
	// As a kill leaves it: the last answer is in the WAL alone.
	for _, s := range []string{"", "-wal"} {
		if err := os.WriteFile(filepath.Join(dir, "y.db"+s), read(t, path+s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "y.db")
	r, err := db.Restore(bg, options(t, path), backup, true)
	if err != nil || r.Kept == "" {
		t.Fatal(r, err)
	}
	if err := openClose(t, options(t, path)); err != nil {
		t.Fatal(err)
	}
	// And it is the way back from the way back: what is in its WAL is in it.
	again, err := db.Restore(bg, options(t, path), r.Kept, true)
	if err != nil {
		t.Fatal(err)
	}
	d = dbtest.OpenAt(t, path, nil)
	dbtest.Check(t, d)
	if _, err := d.Find(bg, last.Key); err != nil {
		t.Errorf("the last answer of the file that was replaced: %v", err)
	}
	if want := last.CreatedAt; again.BackupAt.UnixMilli() != want.UnixMilli() {
		t.Errorf("a file that is no backup is taken as of %s, want its newest question, %s", again.BackupAt, want)
	}
}

func TestAFileOfAnEarlierVersionIsUpgradedWhenItIsRestored(t *testing.T) {
	old := oldFile(t, 2)
	kept := read(t, old)
	path := filepath.Join(t.TempDir(), "x.db")
	if _, err := db.Restore(bg, options(t, path), old, false); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kept, read(t, old)) {
		t.Error("the file that was restored from was changed")
	}
	if names := files(t, path); !slices.Equal(names, []string{"x.db", "x.db.lock"}) {
		t.Errorf("it left %v", names)
	}
	dbtest.Check(t, dbtest.OpenAt(t, path, nil))
}

// Between the renames of a restore the names do not fit each other: then nobody may
// serve them, and the same call again makes them fit.
func TestARestoreThatDiedIsNotServedAndCanBeDoneAgain(t *testing.T) {
	backup, _ := backedUp(t)
	for moved := range 4 { // nothing yet, its WAL, the file too; and the new one is there
		path := filepath.Join(t.TempDir(), "x.db")
		for _, s := range []string{"", "-wal"} {
			if err := os.WriteFile(path+s, []byte("the old one"+s), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		const kept = ".before-then"
		if err := os.WriteFile(path+".restore-unfinished", []byte(kept), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"-wal", ""}[:min(moved, 2)] {
			if err := os.Rename(path+s, path+kept+s); err != nil {
				t.Fatal(err)
			}
		}
		if moved == 3 {
			if err := os.WriteFile(path, []byte("the new one"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := openClose(t, options(t, path)); !errors.Is(err, db.ErrRestoring) || !strings.Contains(err.Error(), "semel restore FILE --force") {
			t.Errorf("%d moved: it is served: %v", moved, err)
		}
		r, err := db.Restore(bg, options(t, path), backup, true)
		if err != nil {
			t.Errorf("%d moved: again: %v", moved, err)
			continue
		}
		for _, s := range []string{"", "-wal"} {
			if got := string(read(t, path+kept+s)); got != "the old one"+s {
				t.Errorf("%d moved: %s is %q", moved, kept+s, got)
			}
		}
		if moved == 3 {
			if got := string(read(t, r.Kept)); got != "the new one" || r.Kept == path+kept {
				t.Errorf("the first restored one is %q at %s", got, r.Kept)
			}
		} else if r.Kept != path+kept {
			t.Errorf("%d moved: kept as %s", moved, r.Kept)
		}
		if _, err := os.Stat(path + ".restore-unfinished"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d moved: the note is left: %v", moved, err)
		}
		if err := openClose(t, options(t, path)); err != nil {
			t.Errorf("%d moved: %v", moved, err)
		}
	}
}
