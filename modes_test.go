//go:build !windows

package main

import (
	"crypto/tls"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"semel/chat"
)

// X40: whatever the shell that started it would let others read, what the program writes is
// its owner's.
func TestX40EveryFileIsForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(dir, "semel.db")
	open := func(args ...string) *exec.Cmd { // to all, if it were for the shell
		return exec.Command("sh", append([]string{"-c", `umask 0; exec "$0" "$@"`, semelBinary(t)}, args...)...)
	}
	run := func(args ...string) {
		t.Helper()
		cmd := open(args...)
		cmd.Env = cleanEnviron()
		cmd.Stdin = strings.NewReader("correct horse battery\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("semel %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	seen := map[string]bool{} // by what follows the name of the database
	look := func(when string) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			fi, err := e.Info()
			if err != nil {
				return err
			}
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = 0o700
			}
			if got := fi.Mode().Perm(); got != want {
				t.Errorf("%s: %s has mode %#o, want %#o", when, path, got, want)
			}
			seen[strings.TrimPrefix(path, db)] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	serving := func(file string) *life {
		t.Helper()
		cmd := open(serveArgs(file)...)
		cmd.Env = []string{"SEMEL_DISK_BALLAST=1000000", "SEMEL_SERVER_TLS_SELF_SIGNED=true"}
		l := start(t, cmd)
		if !l.ready(t) {
			t.Fatal(l.log)
		}
		l.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		return l
	}

	l := serving(db)
	res, err := l.http.PostForm(l.url+"/settings/models", url.Values{
		"do": {"save"}, "requestId": {chat.NewID()}, "url": {"http://127.0.0.1:9/v1"}, "key": {"sk-of-nobody"}, "upstream_model": {"m"}, "name": {"m"}, "preset": {""},
	})
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if !eventually(func() bool { _, err := os.Stat(db + ".ballast"); return err == nil }) {
		t.Fatalf("no ballast:\n%s", l.log)
	}
	run("backup", filepath.Join(dir, "copy.db"), "--db", db)
	run("doctor", "--db", db)
	look("served")
	l.kill()
	look("killed")
	run("restore", filepath.Join(dir, "copy.db"), "--db", db, "--force")
	run("user", "add", "ada", "--password-stdin", "--db", db)
	run("user", "add", "bob", "--password-stdin", "--db", filepath.Join(dir, "another.db"))
	run("verify", "--db", db)
	look("restored")
	for _, name := range []string{"", "-wal", "-shm", ".lock", ".key", ".ballast", ".tls.pem"} {
		if !seen[name] {
			t.Errorf("there was no %s%s", db, name)
		}
	}

	// What somebody opened is closed at the next start, and an upgrade is no way around it.
	old := filepath.Join(dir, "old.db")
	sql := openSQL(t, old)
	schema, err := os.ReadFile("db/testdata/schema-2.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{`PRAGMA auto_vacuum = INCREMENTAL`, `PRAGMA application_id = 0x53454D4C`, `PRAGMA user_version = 2`, `PRAGMA journal_mode = WAL`, string(schema),
		`INSERT INTO instance (one, created_at) VALUES (1, 1)`, `INSERT INTO users (id, name, created_at) VALUES (1, 'local', 1)`} {
		if _, err := sql.Exec(q); err != nil {
			t.Fatalf("%.60s: %v", q, err)
		}
	}
	for _, s := range []string{"", "-wal", "-shm"} {
		if err := os.Chmod(old+s, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	l = serving(old)
	look("upgraded")
	l.kill()
	if copies, _ := filepath.Glob(filepath.Join(dir, "old.db*.bak")); len(copies) == 0 {
		names, _ := filepath.Glob(filepath.Join(dir, "*"))
		t.Errorf("no copy was made before the upgrade: %q", names)
	}
}

// What a test cannot make happen is seen in the source: no file and no folder is made with
// another mode.
func TestX40NoFileIsMadeForOthers(t *testing.T) {
	t.Parallel()
	made := 0
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "tools/") {
			return err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			of, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := of.X.(*ast.Ident); !ok || pkg.Name != "os" {
				return true
			}
			most := int64(0o600)
			switch of.Sel.Name {
			case "Create":
				t.Errorf("%s: os.Create makes a file that others may read", set.Position(n.Pos()))
				return true
			case "OpenFile", "WriteFile", "Chmod":
			case "Mkdir", "MkdirAll":
				most = 0o700
			default:
				return true
			}
			made++
			mode, ok := call.Args[len(call.Args)-1].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: the mode must be in sight", set.Position(n.Pos()))
				return true
			}
			if m, err := strconv.ParseInt(mode.Value, 0, 32); err != nil || m&^most != 0 {
				t.Errorf("%s: mode %s, want %#o at the most", set.Position(n.Pos()), mode.Value, most)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if made < 10 {
		t.Errorf("only %d calls were looked at", made)
	}
}
