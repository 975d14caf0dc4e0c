package disk_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"semel/disk"
)

func TestSpaceIsThatOfTheNearestFolderThatExists(t *testing.T) {
	dir := t.TempDir()
	here, err := disk.At(dir)
	if err != nil || here.Total <= 0 || here.Free <= 0 || here.Free > here.Total {
		t.Fatalf("%+v, %v", here, err)
	}
	there, err := disk.At(filepath.Join(dir, "not", "yet", "made.db"))
	if err != nil || there.Total != here.Total {
		t.Errorf("of a file that is not there: %+v, %v, want %d in all", there, err, here.Total)
	}
}

func TestBytesAreSaidShortly(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1_300_000: "1.2 MiB", 1 << 30: "1.0 GiB", 5 << 40: "5.0 TiB"} {
		if got := disk.Bytes(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestAnIdentityIsThatOfTheFileAndNotOfItsName(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	identity := func(path, content string) disk.Identity {
		if content != "" {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		i, err := disk.Identify(path)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	first := identity(a, "one")
	if !first.Same(identity(a, "two, longer")) {
		t.Error("a file is another one after a write")
	}
	if first.Same(identity(b, "one")) {
		t.Error("two files are one")
	}
	if err := os.Rename(a, b); err != nil {
		t.Fatal(err)
	}
	if !first.Same(identity(b, "")) {
		t.Error("a file that was moved is another one")
	}
	if _, err := disk.Identify(a); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}
