package db

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	// ErrClosed: the database is closed; nothing was stored.
	ErrClosed = errors.New("the database is closed")
	// ErrOutcomeOpen: the commit failed, and nobody can say whether it is stored.
	// Asking again with the same id is the only right answer (contract, section 2).
	ErrOutcomeOpen = errors.New("the outcome of the commit is open")
	// ErrFenced: the row is not as the caller believed (state, attempt or owner);
	// nothing was stored. A worker that sees it stops and writes nothing more.
	ErrFenced = errors.New("fenced: the request is not in the state the caller believed")
	// ErrStopRequested: a person's stop of this attempt is stored, and the attempt
	// can end in no other way than as stopped, or with its answer.
	ErrStopRequested = errors.New("a stop of this attempt is stored")
	// ErrExists: the key is already accepted; nothing was stored.
	ErrExists = errors.New("the request id is already accepted")
	// ErrExpired: the id is not known and older than the purge horizon; nothing was
	// stored, and it must never run.
	ErrExpired = errors.New("the id is older than the purge horizon")
	// ErrNotFound: there is no such row for this user.
	ErrNotFound = errors.New("not found")
	// ErrGone: it was there, and its conversation is deleted.
	ErrGone = errors.New("the conversation is deleted")
	// ErrParent: the named parent is no message of this conversation that such a
	// request can hang under.
	ErrParent = errors.New("the parent is not a message this can follow")
	// ErrNoRoom: the disk has not the room for a copy; none was begun.
	ErrNoRoom = errors.New("not enough room on the disk")
	// ErrDamaged: the structure of the file is broken.
	ErrDamaged = errors.New("the file is damaged")
	// ErrMoved: the file is not any more where it was opened. What is written goes where
	// no later start finds it.
	ErrMoved = errors.New("the database file was moved, replaced or deleted while it is served")
	// ErrAttachment: this user has uploaded no such file, or it was never sent and is
	// gone; nothing was stored.
	ErrAttachment = errors.New("there is no such attachment")
)

// code returns SQLite's extended result code of err, 0 when it has none.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// isUnique reports whether err is a violated UNIQUE or PRIMARY KEY constraint.
func isUnique(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_CONSTRAINT_UNIQUE || c == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}

// IsRetryable reports whether a write that failed with err may succeed when it is
// tried again as it is: the disk was full or another process held the lock.
func IsRetryable(err error) bool {
	c := code(err) & 0xff
	return c == sqlite3.SQLITE_FULL || c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

// isFatal reports whether err says that the file can no longer be trusted from
// this process: the kernel may have dropped what a failed fsync did not write, or it is
// another file by now.
func isFatal(err error) bool {
	return code(err)&0xff == sqlite3.SQLITE_IOERR || isDamaged(err) || errors.Is(err, ErrMoved)
}

// isDamaged reports whether err says that the file's structure is broken.
func isDamaged(err error) bool {
	c := code(err) & 0xff
	return c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB
}

// IsDamaged reports whether err says that the file is damaged, or no database.
func IsDamaged(err error) bool { return isDamaged(err) || errors.Is(err, ErrDamaged) }

// A panicError carries the panic of one caller of the write queue back to it.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("panic in a transaction: %v\n%s", e.value, e.stack)
}
