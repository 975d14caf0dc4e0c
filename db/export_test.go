package db

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// What the tests outside this package need of its inside.

// Write runs fn as one caller of the write queue.
func Write(ctx context.Context, d *DB, fn func(*Tx) error) error { return d.write(ctx, fn) }

// Exec runs sql in tx.
func (tx *Tx) Exec(sql string, args ...any) (int64, error) { return tx.exec(sql, args...) }

// Number is the number of tx.
func (tx *Tx) Number() int64 { return tx.n }

// Int returns the one number that sql finds.
func Int(ctx context.Context, d *DB, sql string, args ...any) (n int64, err error) {
	err = d.read(ctx, func(c *conn) error {
		_, err := c.queryRow(sql, args, &n)
		return err
	})
	return n, err
}

// WriterInt is Int on the writer's connection.
func WriterInt(ctx context.Context, d *DB, sql string) (n int64, err error) {
	err = d.write(ctx, func(tx *Tx) error {
		_, err := tx.queryRow(sql, nil, &n)
		return err
	})
	return n, err
}

// Text is Int for text.
func Text(ctx context.Context, d *DB, sql string, args ...any) (s string, err error) {
	err = d.read(ctx, func(c *conn) error {
		_, err := c.queryRow(sql, args, &s)
		return err
	})
	return s, err
}

// Dump returns every row of a table as text.
func Dump(ctx context.Context, d *DB, table string) (rows []string, err error) {
	err = d.read(ctx, func(c *conn) error {
		return c.query(`SELECT * FROM `+table, nil, func(r row) error {
			rows = append(rows, fmt.Sprintf("%s %q", table, r.values))
			return nil
		})
	})
	return rows, err
}

// Version is the version of the schema.
func Version() int { return len(migrations) + 1 }

// WithMigrations returns o with the upgrades of a later program, which has these
// beside ours.
func WithMigrations(o Options, sql ...string) Options {
	o.migrations = slices.Clone(migrations)
	for _, s := range sql {
		o.migrations = append(o.migrations, migration{sql: s})
	}
	return o
}

// WithPoints returns o with the upgrades of the program, in which SQL calls the function
// upgrade_point before each statement, and before each commit, with a number that counts
// from 1; and how many points there are of each upgrade.
func WithPoints(o Options) (_ Options, points []int) {
	n := 0
	for _, m := range migrations {
		var sql strings.Builder
		first := n
		statements := append(statementsOf(m.sql), "")
		for _, s := range statements {
			n++
			fmt.Fprintf(&sql, "SELECT upgrade_point(%d);\n%s\n", n, s)
		}
		o.migrations = append(o.migrations, migration{sql: sql.String()})
		points = append(points, n-first)
	}
	return o, points
}

// statementsOf splits a script. A trigger ends with END.
func statementsOf(script string) (list []string) {
	var one strings.Builder
	for line := range strings.Lines(script) {
		one.WriteString(line)
		code, _, _ := strings.Cut(line, "--")
		code, begun := strings.TrimSpace(code), one.String()
		if !strings.HasSuffix(code, ";") || strings.Contains(begun, "CREATE TRIGGER") && !strings.HasSuffix(code, "END;") {
			continue
		}
		list = append(list, begun)
		one.Reset()
	}
	if strings.TrimSpace(one.String()) != "" {
		panic("left over: " + one.String())
	}
	return list
}

// Waiting is how many callers wait for their turn in the write queue.
func Waiting(d *DB) int { return len(d.queue) }

// Code returns SQLite's extended result code of err.
func Code(err error) int { return code(err) }

// MaxBatch is how many callers share one commit at the most.
const MaxBatch = maxBatch

// Enqueue puts a caller into the write queue, behind those already there, and
// returns what waits for its turn and its error.
func Enqueue(ctx context.Context, d *DB, fn func(*Tx) error) (wait func() error) {
	o := &op{ctx: ctx, fn: fn, done: make(chan struct{})}
	d.queue <- o
	return func() error {
		<-o.done
		return o.err
	}
}

// CountCharges adds to the running counts.
func (tx *Tx) CountCharges(n int64) { tx.sum.charges += n }
