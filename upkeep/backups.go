package upkeep

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"semel/db"
	"semel/disk"
	"semel/seal"
)

// Made is a backup that was made.
type Made struct {
	At    time.Time // zero: there is none
	Path  string
	Bytes int64
}

// Directory returns where the backups of the database at path are: beside it, where
// directory is no absolute path.
func Directory(path, directory string) string {
	if filepath.IsAbs(directory) {
		return directory
	}
	return filepath.Join(filepath.Dir(path), directory)
}

const stamp = "20060102T150405Z"

// name is how the backup of a moment is called; an encrypted one has an ending more.
// Nothing else is ever removed.
func name(path string, at time.Time) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base)) + "-" + at.UTC().Format(stamp) + ".db"
}

// Backups returns the backups that were made for the database at path, oldest first. A
// folder that is not there has none.
func Backups(path, directory string) (list []Made, err error) {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		at, ok := madeAt(path, e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, Made{At: at, Path: filepath.Join(directory, e.Name()), Bytes: fi.Size()})
	}
	slices.SortFunc(list, func(a, b Made) int { return cmp.Compare(a.At.Unix(), b.At.Unix()) })
	return list, err
}

var stamped = regexp.MustCompile(`-(\d{8}T\d{6}Z)\.db$`)

// madeAt returns the moment that the name of a backup of path says.
func madeAt(path, file string) (time.Time, bool) {
	file = strings.TrimSuffix(file, seal.Encrypted)
	m := stamped.FindStringSubmatch(file)
	if m == nil {
		return time.Time{}, false
	}
	at, err := time.Parse(stamp, m[1])
	return at, err == nil && file == name(path, at)
}

func (k *Keeper) backups() ([]Made, error) { return Backups(k.o.DB.Path(), k.o.Directory) }

// LastBackup returns the newest backup.
func (k *Keeper) LastBackup() Made {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// BackupAge is how long there has been no newer backup: since the newest, or since the
// start where there is none.
func (k *Keeper) BackupAge(now time.Time) time.Duration {
	if last := k.LastBackup(); !last.At.IsZero() {
		return now.Sub(last.At)
	}
	return now.Sub(k.started)
}

func (k *Keeper) backupLoop(ctx context.Context) {
	wait := max(afterStart, k.o.Every-k.BackupAge(time.Now()))
	if k.LastBackup().At.IsZero() {
		wait = afterStart
	}
	for failed := 0; every(ctx, min(wait, k.o.Every)); {
		// One that somebody asked for meanwhile is as good.
		if age := k.BackupAge(time.Now()); !k.LastBackup().At.IsZero() && age >= 0 && age < k.o.Every {
			wait = k.o.Every - age
			continue
		}
		err := k.scheduled(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrBackingUp):
			wait = time.Minute
		case err != nil:
			k.o.Log.Error("no backup was made", "directory", k.o.Directory, "error", err)
			failed++
			wait = min(k.o.Every, time.Minute<<min(failed, 10))
		default:
			failed, wait = 0, k.o.Every
		}
	}
}

// ErrLow: what room there is belongs to questions.
var ErrLow = errors.New("the disk is nearly full")

// ErrBackingUp: a backup is being made.
var ErrBackingUp = errors.New("a backup is being made")

// Making returns since when a backup is being made; zero for none.
func (k *Keeper) Making() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.runs
}

// Begin begins a backup that somebody asked for. What it comes to is sent. Errors:
// ErrBackingUp, and that of a keeper that has stopped.
func (k *Keeper) Begin() (<-chan Outcome, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.ctx.Err(); err != nil {
		return nil, err
	}
	if !k.runs.IsZero() {
		return nil, ErrBackingUp
	}
	k.runs = time.Now() // said before it is so: who looks now sees that it begins
	done := make(chan Outcome, 1)
	k.running.Go(func() {
		b, err := k.backup(k.ctx)
		if err != nil && k.ctx.Err() == nil {
			k.o.Log.Error("no backup was made", "directory", k.o.Directory, "error", err)
		}
		done <- Outcome{b, err}
	})
	return done, nil
}

// An Outcome is what a backup came to.
type Outcome struct {
	Backup db.Backup
	Err    error
}

// scheduled is a backup that nobody asked for. One that somebody asked for is as good.
func (k *Keeper) scheduled(ctx context.Context) error {
	k.mu.Lock()
	if !k.runs.IsZero() {
		k.mu.Unlock()
		return ErrBackingUp
	}
	k.runs = time.Now()
	k.mu.Unlock()
	_, err := k.backup(ctx)
	return err
}

// backup makes a backup and removes those that need not stay. Whoever calls it has set
// runs.
func (k *Keeper) backup(ctx context.Context) (b db.Backup, err error) {
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.runs = time.Time{}
	}()
	if k.Disk().Low {
		return b, ErrLow
	}
	if err := os.MkdirAll(k.o.Directory, 0o700); err != nil {
		return b, err
	}
	if err := k.sweep(); err != nil {
		return b, err
	}
	path := k.free(time.Now())
	if k.o.For.None() {
		b, err = k.o.DB.Backup(ctx, path)
	} else {
		b, err = k.o.DB.BackupSealed(ctx, path+seal.Encrypted, k.o.For.Encrypt)
	}
	if err != nil {
		return b, err
	}
	k.o.Log.Info("backup", "file", b.Path, "size", disk.Bytes(b.Bytes), "requests", b.Requests, "took", b.Took.Round(time.Millisecond).String(), "sha256", b.SHA256)
	k.mu.Lock()
	k.last = Made{At: b.At, Path: b.Path, Bytes: b.Bytes}
	k.mu.Unlock()
	if err := k.retain(); err != nil { // this one is there all the same
		k.o.Log.Error("old backups cannot be removed", "directory", k.o.Directory, "error", err)
	}
	return b, nil
}

// free returns the path of a backup of now that is not there: names have seconds, and two
// may be asked for in one.
func (k *Keeper) free(now time.Time) string {
	for {
		path := filepath.Join(k.o.Directory, name(k.o.DB.Path(), now))
		_, err := os.Lstat(path)
		_, sealed := os.Lstat(path + seal.Encrypted)
		if err != nil && sealed != nil {
			return path
		}
		now = now.Add(time.Second)
	}
}

// sweep removes what a backup of ours left that was killed. Nobody else makes one of
// that name: one process serves the file, and this is its only loop that does.
func (k *Keeper) sweep() error {
	left, err := filepath.Glob(filepath.Join(escape(k.o.Directory), "*"+db.Incomplete+"*"))
	for _, path := range left {
		of, _, _ := strings.Cut(filepath.Base(path), db.Incomplete)
		if _, ours := madeAt(k.o.DB.Path(), of); ours {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// escape makes a folder a pattern that matches itself.
func escape(dir string) string {
	return meta.ReplaceAllString(dir, `\$0`)
}

// retain removes the backups that need not stay.
func (k *Keeper) retain() error {
	list, err := k.backups()
	if err != nil {
		return err
	}
	made := make([]time.Time, len(list))
	for i, b := range list {
		made[i] = b.At
	}
	for _, i := range k.o.Keep.old(made, time.Now()) {
		rerr := os.Remove(list[i].Path)
		k.o.Log.Info("removed an old backup", "file", list[i].Path, "error", rerr)
		err = errors.Join(err, rerr)
	}
	return err
}

var meta = regexp.MustCompile(`[*?[\\]`)
