package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"semel/chat"
)

// copyOf puts a copy of a file in its place, as somebody would who brings back a backup
// by hand.
func copyOf(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Somebody takes the database away while it is served. What the server writes from then
// on would be gone with it, so it tells nobody anything more and ends, with one line
// that says why; and the next start begins no empty database in silence.
func TestAServerWhoseFileIsTakenAwayTellsNothingMore(t *testing.T) {
	move := func(t *testing.T, from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		take, back func(t *testing.T, db string)
		damaged    bool // so the next start says
	}{
		"deleted": {take: func(t *testing.T, db string) { move(t, db, db+".trash") }, damaged: true},
		"moved, and moved back": {take: func(t *testing.T, db string) { move(t, db, db+".away") },
			back: func(t *testing.T, db string) { move(t, db+".away", db) }},
		"replaced by a copy": {take: func(t *testing.T, db string) { copyOf(t, db) }},
		"its log moved, and moved back": {take: func(t *testing.T, db string) { move(t, db+"-wal", db+".log") },
			back: func(t *testing.T, db string) { move(t, db+".log", db+"-wal") }},
		"its folder moved, and moved back": {take: func(t *testing.T, db string) { move(t, filepath.Dir(db), filepath.Dir(db)+"-away") },
			back: func(t *testing.T, db string) { move(t, filepath.Dir(db)+"-away", filepath.Dir(db)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := filepath.Join(t.TempDir(), "data", "semel.db")
			if err := os.Mkdir(filepath.Dir(db), 0o700); err != nil {
				t.Fatal(err)
			}
			l := serveNow(t, db)
			w := newWorld(t)
			w.begin(l)
			known := w.newIntent(intent{session: chat.NewID(), content: "[[echo yes]]"})
			if told := w.post(known, 60); !told.accepted() || told.HTTP >= 300 {
				t.Fatalf("the first question is answered with %d", told.HTTP)
			}
			w.end()
			c.take(t, db)
			res, err := w.send(l, http.MethodPost, "/api/chat", w.newIntent(intent{session: chat.NewID(), content: "[[echo no]]"}).body(), "Prefer", "wait=60")
			if err == nil {
				body, _ := io.ReadAll(res.Body) // the line may die with the server
				res.Body.Close()
				if res.StatusCode < 500 {
					t.Fatalf("a question is answered with %d: %s", res.StatusCode, body)
				}
			}
			if code := l.wait(t); code != exitIO {
				t.Errorf("the server ends with %d, want %d:\n%s", code, exitIO, l.log)
			}
			if n := strings.Count(l.log.String(), "was moved, replaced or deleted while it is served"); n == 0 {
				t.Errorf("no line says why:\n%s", l.log)
			}
			if c.back != nil {
				c.back(t, db)
			}
			l = launch(t, db)
			if c.damaged {
				if code := l.wait(t); code != exitDamaged || !strings.Contains(l.log.String(), "semel restore") {
					t.Errorf("the next start ends with %d, want %d and how to restore:\n%s", code, exitDamaged, l.log)
				}
				return
			}
			if !l.ready(t) {
				t.Fatalf("the next start ends with %d:\n%s", l.wait(t), l.log)
			}
			if name == "replaced by a copy" { // which has only what was in the file, not in the log
				l.kill()
				return
			}
			w.begin(l)
			if told := w.post(known, 60); told.HTTP != http.StatusOK {
				t.Errorf("the first question is answered with %d after the next start", told.HTTP)
			}
			w.end()
			l.signal(t, syscall.SIGTERM)
			if code := l.wait(t); code != 0 {
				t.Errorf("the server ends with %d", code)
			}
		})
	}
}

// passable lets everybody through to a folder of this test.
func passable(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	for ; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever may not write to the database says so in one line, and serves nothing.
func TestAServerThatMayNotWriteSaysSoInOneLine(t *testing.T) {
	began := func(t *testing.T, dir string) string {
		t.Helper()
		db := filepath.Join(dir, "semel.db")
		l := serveNow(t, db)
		l.signal(t, syscall.SIGTERM)
		if code := l.wait(t); code != 0 {
			t.Fatalf("the server ends with %d:\n%s", code, l.log)
		}
		return db
	}
	for name, c := range map[string]struct {
		file func(t *testing.T) string
		as   uint32
		want string
	}{
		"a file system that became read-only": {want: "read-only", file: func(t *testing.T) string {
			dir := smallDisk(t, 30<<20)
			db := began(t, dir)
			if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			return db
		}},
		"a folder of another user": {want: "permission denied", as: 65534, file: func(t *testing.T) string {
			dir := t.TempDir()
			passable(t, dir, 0o755)
			return began(t, dir)
		}},
		"a file of another user": {want: "unable to open", as: 65534, file: func(t *testing.T) string {
			dir := t.TempDir()
			db := began(t, dir)
			if err := os.Remove(db + ".lock"); err != nil {
				t.Fatal(err)
			}
			passable(t, dir, 0o777)
			return db
		}},
		"a folder": {want: "it is a folder", file: func(t *testing.T) string { return t.TempDir() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.as != 0 && os.Getuid() != 0 {
				t.Skip("NOT TESTED: only root can be somebody else.")
			}
			db := c.file(t)
			cmd := exec.Command(semelBinary(t), serveArgs(db)...)
			if c.as != 0 {
				passable(t, filepath.Dir(cmd.Path), 0o755)
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.as, Gid: c.as}}
			}
			l := start(t, cmd)
			code := l.wait(t)
			lines := strings.Split(strings.TrimSpace(l.log.String()), "\n")
			if code != 1 || len(lines) != 1 || !strings.Contains(lines[0], db) || !strings.Contains(lines[0], c.want) {
				t.Errorf("it ends with %d and\n%s\nwant 1 and one line with the path and %q", code, l.log, c.want)
			}
		})
	}
}
