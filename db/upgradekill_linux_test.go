package db_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"semel/db"
	"semel/db/dbtest"
)

// An upgrade is killed all along its way. What is left is a file of the old version or
// of the new one, whole, and the next start goes on.
func TestAnUpgradeThatIsKilledIsGoneOnWith(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	template := read(t, oldFile(t, 2))
	killed := 0
	for i := range 12 {
		path := filepath.Join(t.TempDir(), "x.db")
		if err := os.WriteFile(path, template, 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(exe, "-test.run=^TestMain$")
		c.Env = append(os.Environ(), "SEMEL_TEST_OPEN="+path)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		// From the beginning of the copy on, each a little later.
		tick := time.NewTicker(time.Millisecond)
		for more := true; more; {
			select {
			case err := <-ended:
				ended <- err
				more = false
			case <-tick.C:
				copies, _ := filepath.Glob(path + ".v2-*.bak*")
				more = len(copies) == 0
			}
		}
		for range i * 4 {
			<-tick.C
		}
		tick.Stop()
		_ = c.Process.Kill()
		if err := <-ended; err != nil {
			killed++
		}
		// A copy that has its name is a whole one, whenever the kill came.
		copies, _ := filepath.Glob(path + ".v2-*.bak")
		for _, name := range copies {
			var verdict string
			if err := raw(t, name, "").QueryRowContext(bg, `PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
				t.Errorf("kill %d leaves a copy that is %q, %v", i, verdict, err)
			}
		}
		d := dbtest.OpenAt(t, path, nil)
		dbtest.Check(t, d)
		if version, err := db.Int(bg, d, `PRAGMA user_version`); err != nil || int(version) != db.Version() {
			t.Errorf("kill %d: version %d, %v", i, version, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if killed < 3 {
		t.Errorf("only %d of 12 were killed: no test", killed)
	}
}

func TestAnUpgradeWithoutTheRoomForItIsNotBegun(t *testing.T) {
	template := read(t, oldFile(t, 2))
	dir := t.TempDir()
	size := len(template)*5/2 + 64<<10 // the file, and one and a half more
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("NOT TESTED: a small file system cannot be mounted (%v). As root it can.", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "x.db")
	if err := os.WriteFile(path, template, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openClose(t, options(t, path)); !errors.Is(err, db.ErrNoRoom) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("got %v", err)
	}
	var version int
	if err := raw(t, path, "").QueryRowContext(bg, `PRAGMA user_version`).Scan(&version); err != nil || version != 2 {
		t.Errorf("the file has version %d, %v", version, err)
	}
	if copies, _ := filepath.Glob(path + ".v2-*"); len(copies) > 0 {
		t.Errorf("a copy was begun: %v", copies)
	}
}
