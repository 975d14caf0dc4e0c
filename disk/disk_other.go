//go:build !linux

package disk

import (
	"errors"
	"os"
)

func allocate(*os.File, int64) error { return errors.ErrUnsupported }

// Forget does nothing where the kernel cannot be asked.
func Forget(string) error { return nil }
