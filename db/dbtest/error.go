package dbtest

import (
	"reflect"
	"unsafe"

	"modernc.org/sqlite"
)

// Error is an error as SQLite gives it, with this extended result code: a disk
// that fails cannot be had for the asking. It sets a field that the driver keeps
// to itself, and panics when the driver no longer has it.
func Error(code int) error {
	e := &sqlite.Error{}
	f := reflect.ValueOf(e).Elem().FieldByName("code")
	reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().SetInt(int64(code))
	if e.Code() != code {
		panic("dbtest: the driver's errors have changed")
	}
	return e
}
