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

// name is how the backup of a moment is called. Nothing else is ever removed.
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
		err := k.backup(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			k.o.Log.Error("no backup was made", "directory", k.o.Directory, "error", err)
			failed++
			wait = min(k.o.Every, time.Minute<<min(failed, 10))
		default:
			failed, wait = 0, k.o.Every
		}
	}
}

// errLow: what room there is belongs to questions.
var errLow = errors.New("the disk is nearly full")

// backup makes a backup and removes those that are too many.
func (k *Keeper) backup(ctx context.Context) error {
	if k.Disk().Low {
		return errLow
	}
	if err := os.MkdirAll(k.o.Directory, 0o700); err != nil {
		return err
	}
	if err := k.sweep(); err != nil {
		return err
	}
	b, err := k.o.DB.Backup(ctx, filepath.Join(k.o.Directory, name(k.o.DB.Path(), time.Now())))
	if err != nil {
		return err
	}
	k.o.Log.Info("backup", "file", b.Path, "size", disk.Bytes(b.Bytes), "requests", b.Requests, "took", b.Took.Round(time.Millisecond).String(), "sha256", b.SHA256)
	k.mu.Lock()
	k.last = Made{At: b.At, Path: b.Path, Bytes: b.Bytes}
	k.mu.Unlock()
	return k.retain()
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

// retain removes the oldest backups, so that Keep are left.
func (k *Keeper) retain() error {
	list, err := k.backups()
	for len(list) > k.o.Keep && err == nil {
		err = os.Remove(list[0].Path)
		k.o.Log.Info("removed an old backup", "file", list[0].Path, "error", err)
		list = list[1:]
	}
	return err
}

var meta = regexp.MustCompile(`[*?[\\]`)
