// Package dbtest opens real databases for tests, checks their invariants, and
// makes them fail on purpose.
package dbtest

import (
	"context"
	"database/sql/driver"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"modernc.org/sqlite"

	"semel/chat"
	"semel/db"
)

// Schema returns schema.sql, found from the module's root.
func Schema(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	b, err := os.ReadFile(filepath.Join(dir, "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Open opens a new database in a folder of the test's own and closes it, its
// invariants checked, when the test ends.
func Open(t testing.TB) *db.DB {
	t.Helper()
	return OpenAt(t, filepath.Join(t.TempDir(), "test.db"), nil)
}

// OpenAt opens the database at path. faults may be nil.
func OpenAt(t testing.TB, path string, faults *Faults) *db.DB {
	t.Helper()
	o := db.Options{Path: path, Schema: Schema(t), Driver: connect, Fatal: func(err error) { t.Errorf("fatal: %v", err) }}
	if faults != nil {
		o.Readers = 1 // statements are prepared once a connection
		o.Driver = faults.Open
		o.Fatal = faults.fatal
	}
	d, err := db.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if faults != nil {
			faults.Clear()
		}
		if err := d.Close(); err != nil && (faults == nil || !faults.Hit()) {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

// connect opens a connection that waits for no disk: tests kill processes at most,
// and what a process has written outlives it without fsync. It is most of the time
// a test takes otherwise. The driver sorts the pragmas, and auto_vacuum writes: the
// quoted name comes before it.
func connect(dsn string) (driver.Conn, error) {
	c, err := sqlite.NewConnector(strings.Replace(dsn, "synchronous%28FULL%29", "%22main%22.synchronous%28OFF%29", 1))
	if err != nil {
		return nil, err
	}
	return c.Connect(context.Background())
}

// Check fails the test when an invariant does not hold. Tests call it after each
// step.
func Check(t testing.TB, d *db.DB) {
	t.Helper()
	checks, err := d.Verify(context.Background())
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	for _, c := range checks {
		if c.Count > 0 {
			t.Errorf("invariant %s (%s) is violated %d times: %v", c.ID, c.Name, c.Count, c.Samples)
		}
	}
}

// DemoPrice is the price of the built-in model.
var DemoPrice = chat.Price{Input: 150_000, Cached: 75_000, Output: 600_000}

// Submission is a new question with these words.
func Submission(session, id, content string) db.Submission {
	f := chat.Fields{Kind: chat.KindMessage, Content: content}
	return db.Submission{
		Key:  chat.Key{UserID: db.LocalUser, SessionID: session, RequestID: id},
		Kind: chat.KindMessage, Fingerprint: f.Fingerprint(), Content: content, Title: db.Title(content),
		Default: "demo", Source: chat.SourceAPI,
		Price:  func(string) (chat.Price, bool) { return DemoPrice, true },
		Images: func(string) bool { return true },
	}
}
