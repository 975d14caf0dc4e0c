package disk_test

import (
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
