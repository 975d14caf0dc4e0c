package seal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const secret = "sk-canary-0123456789"

func sealed(t *testing.T, b *Box, bound ...string) []byte {
	t.Helper()
	s, err := b.Seal(secret, bound...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatIsSealedIsOpenedWithTheSameNamesOnly(t *testing.T) {
	b := At(filepath.Join(t.TempDir(), "k"))
	s := sealed(t, b, "model", "http://a")
	if got, err := b.Open(s, "model", "http://a"); err != nil || got != secret {
		t.Fatalf("got %q %v", got, err)
	}
	if bytes.Contains(s, []byte(secret)) || bytes.Equal(s, sealed(t, b, "model", "http://a")) {
		t.Error("it is not sealed, or twice alike")
	}
	for _, bound := range [][]string{nil, {"model"}, {"other", "http://a"}, {"model", "http://b"}, {"modelhttp://a"}, {"model", "", "http://a"}, {"model", "http:", "//a"}} {
		if got, err := b.Open(s, bound...); !errors.Is(err, ErrDamaged) || got != "" {
			t.Errorf("as %q: got %q %v", bound, got, err)
		}
	}
	for i := range s {
		bad := bytes.Clone(s)
		bad[i] ^= 1
		if got, err := b.Open(bad, "model", "http://a"); err == nil || got != "" {
			t.Errorf("with byte %d changed: %q", i, got)
		}
		if _, err := b.Open(s[:i], "model", "http://a"); err == nil {
			t.Errorf("cut to %d bytes it opens", i)
		}
	}
}

func TestTheKeyFileIsForItsOwnerAlone(t *testing.T) {
	b := At(filepath.Join(t.TempDir(), "k"))
	if _, err := b.Open([]byte("x")); !errors.Is(err, ErrNoKeyFile) || !strings.Contains(err.Error(), b.Path()) {
		t.Errorf("without a file: %v", err)
	}
	if _, err := os.Stat(b.Path()); err == nil {
		t.Error("to open something made a key file")
	}
	s := sealed(t, b)
	fi, err := os.Stat(b.Path())
	if err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o600 {
		t.Fatalf("the key file: %v %v", fi.Mode(), err)
	}
	if left, _ := filepath.Glob(b.Path() + ".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(b.Path(), 0o640); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"open": second(b.Open(s)), "seal": second(b.Seal("x"))} {
		if err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("%s with a file that others may read: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestAnotherKeyFileAndOneThatIsNoneAreToldApart(t *testing.T) {
	dir := t.TempDir()
	a, b := At(filepath.Join(dir, "a")), At(filepath.Join(dir, "b"))
	s := sealed(t, a)
	sealed(t, b)
	if _, err := b.Open(s); !errors.Is(err, ErrOtherKey) {
		t.Errorf("under another key: %v", err)
	}
	for _, text := range []string{"", "zz", strings.Repeat("a", 62), strings.Repeat("a", 66), strings.Repeat("a", 5000)} {
		if err := os.WriteFile(a.Path(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{second(a.Open(s)), second(a.Seal("x"))} {
			if err == nil || !strings.Contains(err.Error(), "no key file") || text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("with %d letters: %v", len(text), err)
			}
		}
		if now, _ := os.ReadFile(a.Path()); string(now) != text {
			t.Error("a file that is there was replaced")
		}
	}
}

func TestManyMayMakeTheKeyFileAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k")
	var all sync.WaitGroup
	out := make([][]byte, 16)
	for i := range out {
		all.Go(func() { out[i], _ = At(path).Seal(secret) }) // each as a process of its own would
	}
	all.Wait()
	for i, s := range out {
		if got, err := At(path).Open(s); err != nil || got != secret {
			t.Errorf("%d: %q %v", i, got, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	b := At(filepath.Join(f.TempDir(), "k"))
	s, err := b.Seal(secret, "m")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s)
	f.Add(s[:17])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := b.Open(in, "m")
		if (err == nil) != bytes.Equal(in, s) {
			t.Errorf("opened %q (%v)", got, err)
		}
	})
}
