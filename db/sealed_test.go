package db_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"semel/db"
	"semel/db/dbtest"
	"semel/seal"
)

// recipient returns somebody to encrypt to, and what decrypts.
func recipient(t *testing.T) (db.Seal, db.Unseal) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	to, err := seal.ParseRecipients([]string{id.Recipient().String()})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.txt")
	if err := os.WriteFile(path, []byte(id.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := seal.With(path)
	if err != nil {
		t.Fatal(err)
	}
	return to.Encrypt, open
}

// besides returns the files beside path that are not its own, its log's or a lock.
func besides(t *testing.T, path string) []string {
	t.Helper()
	base := filepath.Base(path)
	return slices.DeleteFunc(files(t, path), func(n string) bool {
		return n == base || n == base+"-wal" || n == base+"-shm" || strings.HasSuffix(n, ".lock")
	})
}

func TestASealedBackupIsRestoredAndSaysNothing(t *testing.T) {
	path := copyHealthy(t)
	d := dbtest.OpenAt(t, path, nil)
	last := dbtest.Answered(t, d, "session-sealed", "a question to be found", "an answer to be found")
	to, open := recipient(t)
	file := filepath.Join(t.TempDir(), "b.db.age")
	b, err := d.BackupSealed(bg, file, to)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(file)
	if err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o600 || fi.Size() != b.Bytes || len(b.SHA256) != 64 || b.Path != file || b.Checks != len(db.Invariants) || b.Requests == 0 {
		t.Errorf("%v, %+v, %v", fi, b, err)
	}
	content := read(t, file)
	for _, secret := range []string{"SQLite", "to be found", "session-sealed", "requests"} {
		if bytes.Contains(content, []byte(secret)) {
			t.Errorf("it says %q", secret)
		}
	}
	if names := append(files(t, file), besides(t, path)...); !slices.Equal(names, []string{"b.db.age"}) {
		t.Errorf("it left %v", names)
	}
	if _, err := d.BackupSealed(bg, file, to); !errors.Is(err, fs.ErrExist) || !bytes.Equal(content, read(t, file)) {
		t.Errorf("over a file: %v", err)
	}

	restored := filepath.Join(t.TempDir(), "x.db")
	r, err := db.RestoreSealed(bg, options(t, restored), file, open, false)
	if err != nil || r.BackupAt.UnixMilli() != b.At.UnixMilli() || r.Requests != b.Requests {
		t.Fatalf("%+v, %v", r, err)
	}
	if names := files(t, restored); !slices.Equal(names, []string{"x.db", "x.db.lock"}) {
		t.Errorf("the restore left %v", names)
	}
	again := dbtest.OpenAt(t, restored, nil)
	dbtest.Check(t, again)
	if _, err := again.Find(bg, last.Key); err != nil {
		t.Errorf("what was answered before the backup: %v", err)
	}
}

func TestASealedBackupThatIsNoGoodTouchesNothing(t *testing.T) {
	to, open := recipient(t)
	_, other := recipient(t)
	file := filepath.Join(t.TempDir(), "b.db.age")
	if _, err := dbtest.OpenAt(t, copyHealthy(t), nil).BackupSealed(bg, file, to); err != nil {
		t.Fatal(err)
	}
	content := read(t, file)
	changed := func(name string, change func([]byte) []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, change(bytes.Clone(content)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flip := func(at int) func([]byte) []byte { return func(b []byte) []byte { b[at] ^= 4; return b } }
	plain, _ := backedUp(t)
	for _, tt := range []struct {
		what, from string
		open       db.Unseal
		want       string
	}{
		{"another identity", file, other, "encrypted to others"},
		{"cut off", changed("x", func(b []byte) []byte { return b[:len(b)-1] }), open, "damaged, or cut off"},
		{"cut off between two pieces", changed("x", func(b []byte) []byte { return b[:len(b)-(len(b)-200)%(64<<10)-(64<<10)] }), open, "damaged, or cut off"},
		{"a piece too many", changed("x", func(b []byte) []byte { return append(b, b[len(b)-300:]...) }), open, "damaged, or cut off"},
		{"a bit of the head", changed("x", flip(60)), open, "decrypt"},
		{"a bit in the middle", changed("x", flip(len(content)/2)), open, "damaged, or cut off"},
		{"the last bit", changed("x", flip(len(content)-1)), open, "damaged, or cut off"},
		{"one that is not encrypted", plain, open, "decrypt"},
	} {
		path := copyHealthy(t)
		before := read(t, path)
		if _, err := db.RestoreSealed(bg, options(t, path), tt.from, tt.open, true); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.what, err, tt.want)
		}
		if names := besides(t, path); !slices.Equal(before, read(t, path)) || len(names) > 0 {
			t.Errorf("%s: the database was touched, or something left beside it: %v", tt.what, names)
		}
	}
	if _, err := db.Restore(bg, options(t, filepath.Join(t.TempDir(), "x.db")), file, false); err == nil {
		t.Error("an encrypted file is taken for a database")
	}
}

// What fails after the copy was made leaves nothing, of the copy that can be read least
// of all; and what is not good is not encrypted.
func TestASealedBackupThatFailsLeavesNothingToRead(t *testing.T) {
	to, _ := recipient(t)
	violated := copyHealthy(t)
	breakFile(t, violated, []string{`UPDATE ledger SET micros = micros + 1 WHERE kind = 'charge'`})
	ctx, cancel := context.WithCancel(bg)
	for _, tt := range []struct {
		what, path, want string
		seal             db.Seal
		ctx              context.Context
	}{
		{"a violated invariant", violated, "I24", func(io.Writer) (io.WriteCloser, error) {
			t.Error("what is no good is encrypted")
			return nil, errors.New("no")
		}, bg},
		{"no encryption", copyHealthy(t), "no such thing", func(io.Writer) (io.WriteCloser, error) { return nil, errors.New("no such thing") }, bg},
		{"a full disk", copyHealthy(t), "no space", func(io.Writer) (io.WriteCloser, error) { return full{}, nil }, bg},
		{"given up", copyHealthy(t), context.Canceled.Error(), func(w io.Writer) (io.WriteCloser, error) {
			cancel()
			return to(w)
		}, ctx},
	} {
		file := filepath.Join(t.TempDir(), "b.db.age")
		_, err := opened(t, tt.path).BackupSealed(tt.ctx, file, tt.seal)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.what, err, tt.want)
		}
		if names := append(files(t, file), besides(t, tt.path)...); len(names) > 0 {
			t.Errorf("%s: it left %v", tt.what, names)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }
func (full) Close() error              { return nil }

// The copy of one that was killed goes with the next start; that of one that runs stays.
func TestTheCopyOfAKilledSealedBackupGoesWithTheNextStart(t *testing.T) {
	to, _ := recipient(t)
	path := copyHealthy(t)
	left := []string{path + ".copying", path + ".copying-journal"}
	leave := func() {
		t.Helper()
		for _, name := range left {
			if err := os.WriteFile(name, []byte("what was asked and answered"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave()
	if err := openClose(t, options(t, path)); err != nil {
		t.Fatal(err)
	}
	if names := besides(t, path); len(names) > 0 {
		t.Errorf("after a start there are %v", names)
	}
	leave()
	if _, err := opened(t, path).BackupSealed(bg, filepath.Join(t.TempDir(), "b.db.age"), to); err != nil {
		t.Fatal(err)
	}
	if names := besides(t, path); len(names) > 0 {
		t.Errorf("after another backup there are %v", names)
	}
	// A start, and a second backup, while one is made.
	inside, goOn, done := make(chan bool), make(chan bool), make(chan error, 2)
	one, two := opened(t, path), opened(t, path)
	go func() {
		_, err := one.BackupSealed(bg, filepath.Join(t.TempDir(), "one.age"), func(w io.Writer) (io.WriteCloser, error) {
			inside <- true
			<-goOn
			return to(w)
		})
		done <- err
	}()
	<-inside
	if err := openClose(t, options(t, path)); err != nil {
		t.Fatal(err)
	}
	if names := besides(t, path); !slices.Equal(names, []string{filepath.Base(path) + ".copying"}) {
		t.Errorf("while one is made a start leaves %v", names)
	}
	go func() {
		_, err := two.BackupSealed(bg, filepath.Join(t.TempDir(), "two.age"), to)
		done <- err
	}()
	goOn <- true
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if names := besides(t, path); len(names) > 0 {
		t.Errorf("at last there are %v", names)
	}
}
