package db_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"semel/db/dbtest"
)

// A reader that does not end makes the log grow, because nothing of it may be written
// over. When it has ended, the log starts over and is cut.
func TestTheLogIsCutWhenALongReaderHasEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	size := func() int64 {
		fi, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	dbtest.Answered(t, d, "session-1", "first", "one")
	reader := raw(t, path, "")
	mustExec(t, reader, `BEGIN`)
	if err := reader.QueryRowContext(bg, `SELECT count(*) FROM requests`).Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	const limit = 64 << 20 // journal_size_limit
	long := strings.Repeat("x", 1<<20)
	for n := 0; size() < limit+8<<20; n++ {
		if n > 200 {
			t.Fatalf("the log has %d bytes after %d answers: no test", size(), n)
		}
		dbtest.Answered(t, d, "session-long", "more", long)
	}
	mustExec(t, reader, `ROLLBACK`)
	for n := 0; size() > limit; n++ {
		if n > 600 {
			t.Fatalf("the log still has %d bytes", size())
		}
		dbtest.Answered(t, d, "session-short", "more", "short")
	}
	dbtest.Check(t, d)
}
