package db_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"semel/db"
	"semel/db/dbtest"
)

// The way back from an upgrade, as docs/backup.md has it: the copy in the place of the
// file is as the older version's program left it. What was answered since, that program
// cannot know, nor does it know the guard; this one does, when the copy is restored.
func TestTheCopyBeforeAnUpgradeIsTheWayBack(t *testing.T) {
	path := oldFile(t, 2)
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(options(t, path))
	if err != nil {
		t.Fatal(err)
	}
	last := dbtest.Answered(t, d, "session-last", "after the upgrade", "lost")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	copies, _ := filepath.Glob(path + ".v2-*.bak")
	if len(copies) != 1 {
		t.Fatalf("copies: %v", copies)
	}
	for _, s := range []string{"", "-wal", "-shm"} { // step 2: the newer file stays, with its log
		if err := os.Rename(path+s, path+".newer"+s); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, read(t, copies[0]), 0o600); err != nil { // step 3
		t.Fatal(err)
	}
	original := filepath.Join(t.TempDir(), "original.db")
	if err := os.WriteFile(original, was, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"PRAGMA user_version", "SELECT count(*) FROM requests", "SELECT count(*) FROM messages", "SELECT coalesce(sum(micros), 0) FROM ledger", "SELECT tx FROM instance",
		"SELECT group_concat(sql) FROM (SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name)"} {
		var want, got string
		if err := raw(t, original, "").QueryRowContext(bg, q).Scan(&want); err != nil {
			t.Fatal(err)
		}
		if err := raw(t, path, "").QueryRowContext(bg, q).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %.200s, %v, want %.200s", q, got, err, want)
		}
	}
	// And forward again: by the copy alone nothing is doubted, by a restore it is.
	restored := filepath.Join(t.TempDir(), "x.db")
	r, err := db.Restore(bg, options(t, restored), copies[0], false)
	if err != nil {
		t.Fatal(err)
	}
	d = dbtest.OpenAt(t, restored, nil)
	dbtest.Check(t, d)
	if _, err := d.Find(bg, last.Key); err == nil || !d.Lost(idAt(r.RestoredAt), time.Now()) {
		t.Error("what was answered since the copy is known, or not doubted")
	}
	again := dbtest.OpenAt(t, path, nil)
	if again.Lost(idAt(r.RestoredAt), time.Now()) {
		t.Error("a copy in place is doubted: then docs/backup.md is wrong")
	}
}
