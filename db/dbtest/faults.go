package dbtest

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
)

// ErrInjected is the error that an injected fault returns.
var ErrInjected = errors.New("injected fault")

// A Mode says what an injected fault does.
type Mode int

const (
	// NotStored: the statement fails and nothing of it is done. On COMMIT the
	// transaction is rolled back.
	NotStored Mode = iota
	// Stored: the statement is done, and reported as failed.
	Stored
)

// Faults is a SQLite driver that fails on purpose. The zero value never does.
type Faults struct {
	mu     sync.Mutex
	match  string
	skip   int
	mode   Mode
	err    error
	armed  bool
	hits   int
	fatals []error
	seen   []string
	record bool
	counts map[string]int
	held   string
	hold   <-chan struct{}
}

// Hold makes the next statement that contains match wait until release is closed.
func (f *Faults) Hold(match string, release <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held, f.hold = match, release
}

// wait lets the statement go on when it may.
func (f *Faults) wait(sql string) {
	f.mu.Lock()
	var hold <-chan struct{}
	if f.hold != nil && strings.Contains(sql, f.held) {
		hold, f.hold = f.hold, nil
	}
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

// Arm makes the statement after skip others that contain match fail once.
func (f *Faults) Arm(match string, skip int, mode Mode, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.match, f.skip, f.mode, f.err, f.armed = match, skip, mode, err, true
}

// Armed reports whether a fault is still to come.
func (f *Faults) Armed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.armed
}

// Clear disarms the fault.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
}

// Hit reports whether a fault has happened.
func (f *Faults) Hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits > 0
}

// Fatals returns the errors after which the program would have exited.
func (f *Faults) Fatals() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]error(nil), f.fatals...)
}

// Record starts a new list of the statements that are executed.
func (f *Faults) Record() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen, f.record = nil, true
}

// Count returns how many statements that contain match were executed so far.
func (f *Faults) Count(match string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for sql, times := range f.counts {
		if strings.Contains(sql, match) {
			n += times
		}
	}
	return n
}

// Recorded returns the statements executed since Record.
func (f *Faults) Recorded() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.seen...)
}

func (f *Faults) fatal(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fatals = append(f.fatals, err)
}

// take reports whether this execution of sql is the one that fails.
func (f *Faults) take(sql string) (Mode, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[string]int{}
	}
	f.counts[sql]++
	if f.record {
		f.seen = append(f.seen, sql)
	}
	if !f.armed || !strings.Contains(sql, f.match) {
		return 0, nil
	}
	if f.skip > 0 {
		f.skip--
		return 0, nil
	}
	f.armed = false
	f.hits++
	return f.mode, f.err
}

// Open opens a connection whose statements may fail.
func (f *Faults) Open(dsn string) (driver.Conn, error) {
	raw, err := connect(dsn)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: raw, faults: f}, nil
}

type faultyConn struct {
	driver.Conn
	faults *Faults
}

func (c *faultyConn) ExecContext(ctx context.Context, sql string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, sql, args)
}

func (c *faultyConn) PrepareContext(ctx context.Context, sql string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, sql)
	if err != nil {
		return nil, err
	}
	return &faultyStmt{Stmt: s, conn: c, sql: sql}, nil
}

type faultyStmt struct {
	driver.Stmt
	conn *faultyConn
	sql  string
}

func (s *faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.conn.faults.wait(s.sql)
	mode, fault := s.conn.faults.take(s.sql)
	if fault != nil && mode == NotStored {
		if s.sql == "COMMIT" {
			if _, err := s.conn.ExecContext(ctx, "ROLLBACK", nil); err != nil {
				return nil, err
			}
		}
		return nil, fault
	}
	res, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	if fault != nil && err == nil {
		return nil, fault
	}
	return res, err
}

func (s *faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	// A query stores nothing: it fails the same way in both modes.
	if _, fault := s.conn.faults.take(s.sql); fault != nil {
		return nil, fault
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}
