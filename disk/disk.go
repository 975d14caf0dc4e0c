// Package disk says of the file system under a file what the program must know of it:
// how much room there is, and whether what is synced there is kept.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Space is the room of a file system, in bytes.
type Space struct {
	Free  int64 // for whoever runs the program
	Total int64
}

// At returns the room where path is, or would be made.
func At(path string) (Space, error) {
	for {
		s, err := at(path)
		parent := filepath.Dir(path)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || parent == path {
			return s, err
		}
		path = parent
	}
}

// Bytes is n for people: "1.2 MiB".
func Bytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	f, unit := float64(n)/(1<<10), "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if f < 1000 {
			break
		}
		f, unit = f/(1<<10), next
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// Reserve makes the empty file f hold size bytes of the disk for good: where the file
// system cannot be asked to, by bytes that it can neither leave out nor squeeze.
func Reserve(f *os.File, size int64) error {
	if err := allocate(f, size); !errors.Is(err, errors.ErrUnsupported) {
		return errors.Join(err, f.Sync())
	}
	piece := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{})
	for left := size; left > 0; left -= int64(len(piece)) {
		piece = piece[:min(int64(len(piece)), left)]
		rng.Read(piece) // never fails
		if _, err := f.Write(piece); err != nil {
			return err
		}
	}
	return f.Sync()
}
