package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync/atomic"
	"time"
)

// A conn is one raw SQLite connection with its prepared statements. One goroutine
// uses it at a time. It goes past database/sql because there every statement of
// a transaction costs locks and copies that the write queue does not need.
type conn struct {
	raw   driver.Conn
	stmts map[string]driver.Stmt
	args  []driver.NamedValue // reused by every call

	// Whether there may be such rows at all; shared by all of a DB.
	buried *atomic.Bool // tombstones
	chosen *atomic.Bool // settings
}

func newConn(raw driver.Conn) *conn {
	return &conn{raw: raw, stmts: make(map[string]driver.Stmt)}
}

// exec runs sql, prepared once for the life of the connection, and returns how
// many rows it changed.
func (c *conn) exec(sql string, args ...any) (int64, error) {
	res, err := c.execResult(sql, args)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// insert is exec for an INSERT and returns the row id.
func (c *conn) insert(sql string, args ...any) (int64, error) {
	res, err := c.execResult(sql, args)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

func (c *conn) execResult(sql string, args []any) (driver.Result, error) {
	s, err := c.prepare(sql)
	if err != nil {
		return nil, err
	}
	return s.(driver.StmtExecContext).ExecContext(context.Background(), c.bind(args))
}

// script runs several statements at once, unprepared.
func (c *conn) script(sql string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(context.Background(), sql, nil)
	return err
}

// A row hands the columns of one result row to scan, in order.
type row struct{ values []driver.Value }

// query calls each with every row of the result. each must not run the same sql
// on this connection, and must not keep the row.
func (c *conn) query(sql string, args []any, each func(row) error) (err error) {
	return c.queryUntil(context.Background(), sql, args, each)
}

// queryUntil is query for what takes long: it gives up, with an error, when ctx ends
// before the first row.
func (c *conn) queryUntil(ctx context.Context, sql string, args []any, each func(row) error) (err error) {
	s, err := c.prepare(sql)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, c.bind(args))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	r := row{values: make([]driver.Value, len(rows.Columns()))}
	for {
		switch err := rows.Next(r.values); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := each(r); err != nil {
			return err
		}
	}
}

// queryRow scans the first row into dest and reports whether there was one.
func (c *conn) queryRow(sql string, args []any, dest ...any) (found bool, err error) {
	err = c.query(sql, args, func(r row) error {
		if found {
			return nil
		}
		found = true
		return r.scan(dest...)
	})
	return found, err
}

func (c *conn) prepare(sql string) (driver.Stmt, error) {
	if s, ok := c.stmts[sql]; ok {
		return s, nil
	}
	s, err := c.raw.(driver.ConnPrepareContext).PrepareContext(context.Background(), sql)
	if err != nil {
		return nil, fmt.Errorf("prepare %.60q: %w", sql, err)
	}
	c.stmts[sql] = s
	return s, nil
}

func (c *conn) bind(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: bindValue(a)})
	}
	return c.args
}

func bindValue(a any) driver.Value {
	switch v := a.(type) {
	case nil, int64, string, []byte, float64:
		return v
	case int:
		return int64(v)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return v.UnixMilli()
	}
	if rv := reflect.ValueOf(a); rv.Kind() == reflect.String {
		return rv.String()
	}
	panic(fmt.Sprintf("db: cannot bind %T", a))
}

// scan copies the columns into dest: *int64, *int, *string (or a pointer to a
// type made of string), *[]byte, *bool, *time.Time. NULL leaves the zero value.
func (r row) scan(dest ...any) error {
	if len(dest) != len(r.values) {
		return fmt.Errorf("db: %d columns scanned into %d places", len(r.values), len(dest))
	}
	for i, d := range dest {
		if err := scanValue(d, r.values[i]); err != nil {
			return fmt.Errorf("db: column %d: %w", i+1, err)
		}
	}
	return nil
}

func scanValue(dest any, v driver.Value) error {
	n, isInt := v.(int64)
	if v != nil && !isInt {
		switch dest.(type) {
		case *int64, *int, *bool, *time.Time:
			return fmt.Errorf("%T scanned into %T", v, dest)
		}
	}
	switch d := dest.(type) {
	case *int64:
		*d = n
	case *int:
		*d = int(n)
	case *bool:
		*d = n != 0
	case *time.Time:
		*d = time.Time{}
		if v != nil {
			*d = time.UnixMilli(n).UTC()
		}
	case *string:
		return scanText(v, func(s string) { *d = s })
	case *[]byte:
		*d = nil
		switch b := v.(type) {
		case []byte:
			*d = append([]byte(nil), b...)
		case nil:
		default:
			return fmt.Errorf("%T scanned into %T", v, dest)
		}
	case *any:
		*d = v
	default:
		rv := reflect.ValueOf(dest)
		if rv.Kind() != reflect.Pointer || rv.Elem().Kind() != reflect.String {
			return fmt.Errorf("cannot scan into %T", dest)
		}
		return scanText(v, rv.Elem().SetString)
	}
	return nil
}

func scanText(v driver.Value, set func(string)) error {
	switch s := v.(type) {
	case nil:
		set("")
	case string:
		set(s)
	case []byte:
		set(string(s))
	default:
		return fmt.Errorf("%T scanned into text", v)
	}
	return nil
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.raw.Close())...)
}
