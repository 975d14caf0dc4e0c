package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate takes size bytes of the disk for f.
func allocate(f *os.File, size int64) error {
	return unix.Fallocate(int(f.Fd()), 0, 0, size)
}

// Forget asks the kernel to read a file from the medium the next time, as far as it was
// written.
func Forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}
