package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"semel/db"
	"semel/db/dbtest"
)

// largeFile makes a database that takes a moment to copy.
func largeFile(t *testing.T, path string) {
	t.Helper()
	d := dbtest.OpenAt(t, path, nil)
	for i := range 30 {
		dbtest.Answered(t, d, fmt.Sprintf("session-%03d", i), "How long?", strings.Repeat("So long. ", 20_000))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestABackupThatIsKilledLeavesNothingWithItsName(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "semel.db")
	largeFile(t, file)
	killed := 0
	for i := 0; killed < 5 && i < 100; i++ {
		to := filepath.Join(dir, fmt.Sprintf("backup-%d.db", i))
		cmd := exec.Command(semelBinary(t), "backup", to, "--db", file)
		cmd.Env = cleanEnviron()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// As far along as it is when so much is copied; the last ones while it is checked.
		want := int64(killed) << 20
		eventually(func() bool {
			begun, _ := filepath.Glob(to + db.Incomplete + "*")
			if len(begun) == 0 {
				_, err := os.Stat(to)
				return err == nil // too late
			}
			fi, err := os.Stat(begun[0])
			return err == nil && fi.Size() >= want
		})
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); err == nil {
			continue // it was quicker
		}
		killed++
		if _, err := os.Stat(to); err == nil {
			// It died between getting its name and its last word: then it is whole.
			if out, stderr, code := runSemel(t, "verify", "--db", to); code != 0 {
				t.Errorf("killed, and there is a backup that is no good: %s%s", out, stderr)
			}
		}
	}
	if killed < 5 {
		t.Errorf("only %d were killed: no test", killed)
	}
	// What they left is in nobody's way.
	to := filepath.Join(dir, "whole.db")
	out, stderr, code := runSemel(t, "backup", to, "--db", file)
	if code != 0 || !strings.Contains(out, "30 requests") || !strings.Contains(out, "sha256 ") {
		t.Errorf("afterwards: exit %d, %s%s", code, out, stderr)
	}
	if _, stderr, code := runSemel(t, "backup", to, "--db", file); code != 1 || !strings.Contains(stderr, "already exists") {
		t.Errorf("over a file: exit %d, %s", code, stderr)
	}
	if _, stderr, code := runSemel(t, "backup", filepath.Join(dir, "x.db"), "--db", file+"x"); code != 2 {
		t.Errorf("of no file: exit %d, %s", code, stderr)
	}
}

func TestABackupIsMadeWhileItIsServed(t *testing.T) {
	dir := t.TempDir()
	l := launch(t, filepath.Join(dir, "semel.db"))
	if !l.ready(t) {
		t.Fatal(l.log.String())
	}
	to := filepath.Join(dir, "backup.db")
	out, stderr, code := runSemel(t, "backup", to, "--db", filepath.Join(dir, "semel.db"))
	if code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, stderr)
	}
	if out, stderr, code := runSemel(t, "verify", "--db", to); code != 0 {
		t.Errorf("the backup: %s%s", out, stderr)
	}
	if fi, err := os.Stat(to); err != nil || fi.Mode().Perm() != 0o600 || time.Since(fi.ModTime()) > patience {
		t.Errorf("%v, %v", fi, err)
	}
}
