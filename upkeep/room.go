package upkeep

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"semel/disk"
)

// Disk is how much room the database has.
type Disk struct {
	Free  int64
	Total int64
	// Low: less than the soft mark is free. Nothing is stored that can wait: files that
	// people attach, backups.
	Low bool
	// Full: less than the hard mark. No question is accepted; those that run go on, from
	// what the ballast gave.
	Full bool
	Err  error // it cannot be measured; then it is neither low nor full
}

// softMark and hardMark are of the free room, for a disk of so many bytes.
func softMark(total int64) int64 { return min(total/10, 1<<30) }
func hardMark(total int64) int64 { return min(total/20, 256<<20) }

// BallastPath is where the ballast of the database at path lies: bytes that hold a
// place, so that there is room left when there is none.
func BallastPath(path string) string { return path + ".ballast" }

// Disk returns what the last look found.
func (k *Keeper) Disk() Disk {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.disk
}

func (k *Keeper) measure() (free, total int64, err error) {
	s, err := disk.At(filepath.Dir(k.o.DB.Path()))
	return s.Free, s.Total, err
}

// lookAtDisk measures, judges, and, where it may take its time, gives up the ballast or
// takes it on again.
func (k *Keeper) lookAtDisk(ballasts bool) {
	k.ballasting.Lock()
	defer k.ballasting.Unlock()
	free, total, err := k.o.space()
	d := Disk{Free: free, Total: total, Err: err}
	ballast := BallastPath(k.o.DB.Path())
	fi, staterr := os.Stat(ballast)
	held := staterr == nil && fi.Size() > 0
	size := min(k.o.Ballast, hardMark(total)) // on a small disk, less
	if err == nil {
		// What was given up belongs to those that run: it makes nothing look well.
		usable := free
		if !held {
			usable -= size
		}
		d.Low, d.Full = usable < softMark(total), usable < hardMark(total)
		switch {
		case !ballasts:
		case held && (d.Full || size == 0):
			err := os.Remove(ballast)
			k.o.Log.Warn("gave up the ballast", "file", ballast, "error", err)
		case !held && size > 0 && !d.Low:
			if err := takeOn(ballast, size); err != nil {
				k.o.Log.Error("take on ballast", "file", ballast, "error", err)
			}
		}
	}
	k.mu.Lock()
	before := k.disk
	k.disk = d
	k.mu.Unlock()
	log := k.o.Log.With("free", disk.Bytes(free), "total", disk.Bytes(total))
	switch {
	case err != nil && before.Err == nil:
		k.o.Log.Error("the room on the disk cannot be measured", "error", err)
	case d.Full && !before.Full:
		log.Error("the disk is full: no question is accepted until there is room")
	case d.Low && !before.Low:
		log.Warn("the disk is nearly full: no files are taken, no backups made")
	case before.Full && !d.Full:
		log.Info("questions are accepted again")
	case before.Low && !d.Low:
		log.Info("there is room on the disk again")
	}
}

// takeOn writes the ballast, whole or not at all. Zeros would be a hole on some file
// systems, and hold no place.
func takeOn(path string, size int64) (err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	return disk.Reserve(f, size)
}

// Judge measures the room of the database at path as a keeper would that holds its
// ballast.
func Judge(path string) Disk {
	s, err := disk.At(filepath.Dir(path))
	return Disk{Free: s.Free, Total: s.Total, Low: err == nil && s.Free < softMark(s.Total), Full: err == nil && s.Free < hardMark(s.Total), Err: err}
}
