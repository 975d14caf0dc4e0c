package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"semel/db"
	"semel/disk"
	"semel/seal"
)

// SuspectPath is the note that the database at path cannot be trusted until it was
// read whole.
func SuspectPath(path string) string { return path + ".suspect" }

// Suspect leaves that note, as far as a failing disk lets it.
func Suspect(path string, why error) error {
	return os.WriteFile(SuspectPath(path), []byte(time.Now().UTC().Format(time.RFC3339)+" "+why.Error()+"\n"), 0o600)
}

// ErrDamaged is what [Trust] returns, with what to do next.
var ErrDamaged = errors.New("the database is damaged")

// Trust reads the database at path whole, if an earlier life left a note, and takes the
// note away when all is well. Nobody may be serving it. It reports whether it did.
func Trust(ctx context.Context, path, backups string) (checked bool, err error) {
	why, err := os.ReadFile(SuspectPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// What the kernel holds of the file may be what it could not write.
	for _, s := range []string{"", "-wal"} {
		if err := disk.Forget(path + s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	d, err := db.Open(db.Options{Path: path, ReadOnly: true, Readers: 1})
	if err == nil {
		_, err = d.Examine(ctx)
		err = errors.Join(err, d.Close())
	}
	if errors.Is(err, db.ErrRestoring) {
		return false, err
	}
	if err != nil {
		return false, Damaged(path, backups, fmt.Errorf("checked after %.200s: %w", why, err))
	}
	return true, os.Remove(SuspectPath(path))
}

// Damaged says of a database that is damaged what to do next. Nothing is removed.
func Damaged(path, backups string, why error) error {
	list, err := Backups(path, backups)
	if err != nil || len(list) == 0 {
		return fmt.Errorf("%w: %w. There is no backup in %s. Keep the file; `semel restore FILE --db %s --force` makes a backup from elsewhere the database", ErrDamaged, why, backups, path)
	}
	last := list[len(list)-1]
	identity := ""
	if strings.HasSuffix(last.Path, seal.Encrypted) {
		identity = " --identity KEYFILE"
	}
	return fmt.Errorf("%w: %w. The newest backup is of %s; this makes it the database, and keeps the damaged file beside: semel restore %s --db %s --force%s",
		ErrDamaged, why, last.At.Format(time.RFC3339), quoted(last.Path), quoted(path), identity)
}

// quoted is path as a shell takes it.
func quoted(path string) string {
	if filepath.Clean(path) == path && !needsQuotes(path) {
		return path
	}
	return fmt.Sprintf("%q", path)
}

func needsQuotes(s string) bool {
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '/', r == '.', r == '-', r == '_', r == ':':
		default:
			return true
		}
	}
	return false
}
