package upkeep_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"semel/db"
	"semel/db/dbtest"
	"semel/upkeep"
)

// A rig is a served file and a folder for its backups, in a bubble of fake time.
func open(t *testing.T) (d *db.DB, backups string) {
	t.Helper()
	dir := t.TempDir()
	d, err := db.Open(db.Options{Path: filepath.Join(dir, "semel.db"), Schema: dbtest.Schema(t), Readers: 1, Driver: new(dbtest.Faults).Open,
		Fatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, filepath.Join(dir, "backups")
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func plenty() (free, total int64, err error) { return 100 << 30, 200 << 30, nil }

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestBackupsAreMadeInTimeAndTheOldestOfThemRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dir := open(t)
		dbtest.Answered(t, d, "session-1", "one", "first")
		// What others put there stays, and what a kill left of ours goes.
		for _, other := range []string{"notes.txt", "semel-2020.db", "other-20000101T000000Z.db", "semel-20000101T000000Z.db.gz", "x.db.incomplete-123"} {
			write(t, filepath.Join(dir, other), "theirs")
		}
		left := "semel-19991231T000000Z.db.incomplete-123"
		write(t, filepath.Join(dir, left), "ours")
		k := upkeep.New(upkeep.WithSpace(upkeep.Options{DB: d, Every: 24 * time.Hour, Keep: upkeep.Keep{Newest: 3}, Directory: dir}, plenty))
		k.Start()
		defer k.Stop()
		if got := k.LastBackup(); !got.At.IsZero() {
			t.Errorf("before the first: %+v", got)
		}
		after(59 * time.Second)
		if list, _ := upkeep.Backups(d.Path(), dir); len(list) > 0 {
			t.Errorf("a life of less than a minute makes %v", list)
		}
		after(2 * time.Second)
		for day := range 5 {
			list, err := upkeep.Backups(d.Path(), dir)
			if err != nil || len(list) != min(day+1, 3) {
				t.Fatalf("on day %d there are %v, %v", day, list, err)
			}
			last := list[len(list)-1]
			if got := k.LastBackup(); got.Path != last.Path || got.Bytes != last.Bytes || got.At.Unix() != last.At.Unix() {
				t.Errorf("on day %d the last is %+v, want %+v", day, got, last)
			}
			if age := k.BackupAge(time.Now()); age > time.Minute {
				t.Errorf("on day %d it is %s old", day, age)
			}
			after(24 * time.Hour)
		}
		now := names(t, dir)
		for _, other := range []string{"notes.txt", "semel-2020.db", "other-20000101T000000Z.db", "semel-20000101T000000Z.db.gz", "x.db.incomplete-123"} {
			if !slices.Contains(now, other) {
				t.Errorf("%s is gone", other)
			}
		}
		if slices.Contains(now, left) || len(now) != 5+3 {
			t.Errorf("there are %v", now)
		}
	})
}

func TestAnotherLifeGoesOnWhereTheLastOneWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dir := open(t)
		o := upkeep.WithSpace(upkeep.Options{DB: d, Every: 24 * time.Hour, Keep: upkeep.Keep{Newest: 100}, Directory: dir}, plenty)
		for range 5 { // each an hour long
			k := upkeep.New(o)
			k.Start()
			after(time.Hour)
			k.Stop()
		}
		if list, _ := upkeep.Backups(d.Path(), dir); len(list) != 1 {
			t.Errorf("five lives of one hour made %v", list)
		}
		after(48 * time.Hour) // nobody is there
		k := upkeep.New(o)
		k.Start()
		defer k.Stop()
		after(2 * time.Minute)
		if list, _ := upkeep.Backups(d.Path(), dir); len(list) != 2 {
			t.Errorf("one that is overdue is not made soon: %v", list)
		}
	})
}

func TestABackupThatCannotBeMadeIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dir := open(t)
		write(t, dir, "a file where the folder should be")
		k := upkeep.New(upkeep.WithSpace(upkeep.Options{DB: d, Every: 24 * time.Hour, Keep: upkeep.Keep{Newest: 3}, Directory: dir}, plenty))
		k.Start()
		defer k.Stop()
		after(30 * time.Minute)
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		after(40 * time.Minute)
		if list, err := upkeep.Backups(d.Path(), dir); len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
	})
}

func TestTheBallastIsGivenUpOnAFullDiskAndTakenOnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dir := open(t)
		const ballast, total = 1 << 20, 100 << 20 // low below 10 MiB, full below 5
		var free atomic.Int64
		free.Store(50 << 20)
		ballastPath := upkeep.BallastPath(d.Path())
		held := func() bool { fi, err := os.Stat(ballastPath); return err == nil && fi.Size() == ballast }
		k := upkeep.New(upkeep.WithSpace(upkeep.Options{DB: d, Every: time.Hour, Keep: upkeep.Keep{Newest: 3}, Directory: dir, Ballast: ballast}, func() (int64, int64, error) {
			if held() {
				return free.Load(), total, nil
			}
			return free.Load() + ballast, total, nil
		}))
		k.Start()
		defer k.Stop()
		if after(0); !held() {
			t.Fatal("no ballast is taken on at the start")
		}
		for _, step := range []struct {
			what            string
			free            int64
			low, full, held bool
		}{
			{"as ever", 50 << 20, false, false, true},
			{"nearly full", 9 << 20, true, false, true},
			{"full", 4 << 20, true, true, false},
			{"what was given up makes it no better", 4<<20 + 1<<19, true, true, false},
			{"a little room", 6 << 20, true, false, false},
			{"room", 20 << 20, false, false, true},
		} {
			free.Store(step.free)
			after(6 * time.Second)
			if got := k.Disk(); got.Low != step.low || got.Full != step.full || held() != step.held {
				t.Errorf("%s: %+v, ballast %t, want low %t, full %t, ballast %t", step.what, got, held(), step.low, step.full, step.held)
			}
		}
		free.Store(9 << 20)
		after(3 * time.Hour)
		if list, _ := upkeep.Backups(d.Path(), dir); len(list) > 0 {
			t.Errorf("a backup was made on a disk that is nearly full: %v", list)
		}
		free.Store(50 << 20)
		after(2 * time.Hour)
		if list, _ := upkeep.Backups(d.Path(), dir); len(list) == 0 {
			t.Error("and none when there was room again")
		}
	})
}

func TestADoubtedFileIsReadWholeBeforeItIsServed(t *testing.T) {
	d, dir := open(t)
	dbtest.Answered(t, d, "session-1", "one", "first")
	path := d.Path()
	b, err := d.Backup(context.Background(), filepath.Join(dir, ".."+string(filepath.Separator)+"b.db"))
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	if checked, err := upkeep.Trust(t.Context(), path, dir); err != nil || checked {
		t.Errorf("without a note: %t, %v", checked, err)
	}
	if err := upkeep.Suspect(path, errors.New("fsync failed")); err != nil {
		t.Fatal(err)
	}
	if checked, err := upkeep.Trust(t.Context(), path, dir); err != nil || !checked {
		t.Errorf("a sound file: %t, %v", checked, err)
	}
	if checked, err := upkeep.Trust(t.Context(), path, dir); err != nil || checked {
		t.Errorf("once more: %t, %v, want that the note is gone", checked, err)
	}

	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{0xff, 0xff, 0xff}, 5*4096+3)
		err = errors.Join(err, f.Close())
	}
	if err := errors.Join(err, upkeep.Suspect(path, errors.New("fsync failed"))); err != nil {
		t.Fatal(err)
	}
	for range 2 { // as often as it is started
		_, err = upkeep.Trust(t.Context(), path, dir)
		if !errors.Is(err, upkeep.ErrDamaged) || !strings.Contains(err.Error(), "There is no backup in "+dir) || !strings.Contains(err.Error(), "fsync failed") {
			t.Errorf("a damaged file: %v", err)
		}
	}
	last := filepath.Join(dir, "semel-20300102T030405Z.db")
	write(t, filepath.Join(dir, "semel-20200102T030405Z.db"), "older")
	if err := os.Rename(b.Path, last); err != nil {
		t.Fatal(err)
	}
	if _, err = upkeep.Trust(t.Context(), path, dir); !errors.Is(err, upkeep.ErrDamaged) ||
		!strings.Contains(err.Error(), "semel restore "+last+" --db "+path+" --force") || !strings.Contains(err.Error(), "2030-01-02T03:04:05Z") {
		t.Errorf("with backups: %v", err)
	}
}

func TestTheStructureIsLookedAtEveryHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fatal atomic.Pointer[error]
		dir := t.TempDir()
		path := filepath.Join(dir, "semel.db")
		d, err := db.Open(db.Options{Path: path, Schema: dbtest.Schema(t), Readers: 1, Driver: new(dbtest.Faults).Open, Fatal: func(err error) { fatal.Store(&err) }})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		dbtest.Answered(t, d, "session-1", "one", "first")
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if d, err = db.Open(db.Options{Path: path, Readers: 1, Driver: new(dbtest.Faults).Open, Fatal: func(err error) { fatal.Store(&err) }}); err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		k := upkeep.New(upkeep.WithSpace(upkeep.Options{DB: d, CheckEvery: time.Hour}, plenty))
		k.Start()
		defer k.Stop()
		after(90 * time.Minute)
		if err := fatal.Load(); err != nil {
			t.Errorf("a sound file: %v", *err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for page := 4096 * 3; page < len(b); page += 4096 { // all but the schema: the reader has read some
			b[page+3], b[page+4] = 0xff, 0xff
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		if err := fatal.Load(); err == nil || !db.IsDamaged(*err) {
			t.Errorf("a damaged one: %v", err)
		}
	})
}
