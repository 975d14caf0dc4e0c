package engine_test

import (
	"reflect"
	"testing"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"semel/db"
)

// Errors as SQLite gives them, for injecting.
var (
	busy    = sqliteError(sqlite3.SQLITE_BUSY)
	full    = sqliteError(sqlite3.SQLITE_FULL)
	ioError = sqliteError(sqlite3.SQLITE_IOERR_FSYNC)
)

// sqliteError makes the driver's own error, whose fields it keeps to itself: most
// of these cannot be provoked at a chosen statement.
func sqliteError(code int) *sqlite.Error {
	e := &sqlite.Error{}
	set := func(name string) reflect.Value {
		f := reflect.ValueOf(e).Elem().FieldByName(name)
		return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
	}
	set("code").SetInt(int64(code))
	set("msg").SetString("injected: " + sqlite.ErrorCodeString[code])
	return e
}

func TestInjectedErrorsLookLikeSQLites(t *testing.T) {
	t.Parallel()
	if !db.IsRetryable(busy) || !db.IsRetryable(full) || db.IsRetryable(ioError) || ioError.Code() != sqlite3.SQLITE_IOERR_FSYNC {
		t.Fatalf("%v %v %v", busy, full, ioError)
	}
}
