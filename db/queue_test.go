package db_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// together runs the callers in one shared commit: the queue is held up until all
// of them wait in it. It returns their errors in order.
func together(t *testing.T, d *db.DB, callers ...func(*db.Tx) error) []error {
	t.Helper()
	ctxs := make([]context.Context, len(callers))
	for i := range ctxs {
		ctxs[i] = context.Background()
	}
	return togetherWith(t, d, ctxs, nil, callers...)
}

// togetherWith is together with a context for each; waiting runs when all of them
// wait.
func togetherWith(t *testing.T, d *db.DB, ctxs []context.Context, waiting func(), callers ...func(*db.Tx) error) []error {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := db.Write(context.Background(), d, func(*db.Tx) error {
			close(held)
			<-release
			return nil
		})
		if err != nil {
			t.Errorf("the caller that holds up the queue: %v", err)
		}
	})
	<-held
	waits := make([]func() error, len(callers))
	for i, fn := range callers {
		waits[i] = db.Enqueue(ctxs[i], d, fn)
	}
	if waiting != nil {
		waiting()
	}
	close(release)
	wg.Wait()
	errs := make([]error, len(waits))
	for i, wait := range waits {
		errs[i] = wait()
	}
	return errs
}

// mark leaves a trace of a caller: a user of that name.
func mark(name string) func(*db.Tx) error {
	return func(tx *db.Tx) error {
		_, err := tx.Exec(`INSERT INTO users (name, created_at) VALUES (?, 1)`, name)
		return err
	}
}

func marks(t *testing.T, d *db.DB) []string {
	t.Helper()
	names, err := db.Text(context.Background(), d, `SELECT coalesce(group_concat(name, ' ' ORDER BY name), '') FROM users WHERE id > 1`)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(names)
}

func openFaulty(t *testing.T) (*db.DB, *dbtest.Faults) {
	t.Helper()
	faults := &dbtest.Faults{}
	return dbtest.OpenAt(t, filepath.Join(t.TempDir(), "faulty.db"), faults), faults
}

func commits(f *dbtest.Faults) (n int) {
	for _, s := range f.Recorded() {
		if s == "COMMIT" {
			n++
		}
	}
	return n
}

func TestCallersThatWaitShareOneCommit(t *testing.T) {
	d, faults := openFaulty(t)
	const n = 100
	var numbers [n]int64
	callers := make([]func(*db.Tx) error, n)
	for i := range callers {
		callers[i] = func(tx *db.Tx) error {
			numbers[i] = tx.Number()
			return mark(fmt.Sprintf("caller-%03d", i))(tx)
		}
	}
	faults.Record()
	if err := errors.Join(together(t, d, callers...)...); err != nil {
		t.Fatal(err)
	}
	if got := commits(faults); got != 1 {
		t.Errorf("%d callers had %d commits, want 1", n, got)
	}
	if got := marks(t, d); len(got) != n {
		t.Errorf("%d callers left %d marks", n, len(got))
	}
	seen := map[int64]bool{}
	for _, no := range numbers {
		if seen[no] {
			t.Errorf("two callers had the transaction number %d", no)
		}
		seen[no] = true
	}
	last, err := db.Int(context.Background(), d, `SELECT tx FROM instance`)
	if err != nil || last != slices.Max(numbers[:]) {
		t.Errorf("the file keeps the number %d, the last given out is %d (%v)", last, slices.Max(numbers[:]), err)
	}
}

func TestACommitHasNoMoreThanSoManyCallers(t *testing.T) {
	d, faults := openFaulty(t)
	callers := make([]func(*db.Tx) error, db.MaxBatch+10)
	for i := range callers {
		callers[i] = mark(fmt.Sprintf("caller-%04d", i))
	}
	faults.Record()
	if err := errors.Join(together(t, d, callers...)...); err != nil {
		t.Fatal(err)
	}
	if got := commits(faults); got != 2 {
		t.Errorf("%d callers had %d commits, want 2", len(callers), got)
	}
	if got := marks(t, d); len(got) != len(callers) {
		t.Errorf("%d callers left %d marks", len(callers), len(got))
	}
}

func TestTrafficOfManyCallersLosesAndDoublesNothing(t *testing.T) {
	d := dbtest.Open(t)
	const callers, each = 32, 20
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for k := range each {
				if err := db.Write(context.Background(), d, mark(fmt.Sprintf("c-%d-%d", i, k))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := marks(t, d); len(got) != callers*each {
		t.Errorf("%d writes left %d marks", callers*each, len(got))
	}
}

func TestTheFailureOfOneCallerTouchesOnlyItsOwnPart(t *testing.T) {
	d, faults := openFaulty(t)
	own := errors.New("my own mistake")
	faults.Record()
	errs := together(t, d,
		mark("before"),
		func(tx *db.Tx) error { return errors.Join(mark("constraint")(tx), mark("before")(tx)) },
		func(tx *db.Tx) error { _ = mark("panic")(tx); panic("a bug") },
		func(tx *db.Tx) error { _ = mark("error")(tx); return own },
		func(tx *db.Tx) error { _, err := tx.Exec(`INSERT INTO no_such_table VALUES (1)`); return err },
		func(tx *db.Tx) error { _ = mark("goes-on")(tx); _ = mark("before")(tx); return nil }, // it may swallow a refusal
		mark("after"),
	)
	if got, want := marks(t, d), []string{"after", "before", "goes-on"}; !slices.Equal(got, want) {
		t.Errorf("stored is %v, want %v", got, want)
	}
	if errs[0] != nil || errs[5] != nil || errs[6] != nil {
		t.Errorf("the callers beside the failures got %v, %v, %v", errs[0], errs[5], errs[6])
	}
	if got := db.Code(errs[1]); got != sqlite3.SQLITE_CONSTRAINT_UNIQUE {
		t.Errorf("the constraint failure is %v", errs[1])
	}
	if errs[2] == nil || !strings.Contains(errs[2].Error(), "a bug") || !strings.Contains(errs[2].Error(), "queue_test.go") {
		t.Errorf("the panic came back as %v", errs[2])
	}
	if !errors.Is(errs[3], own) {
		t.Errorf("the error came back as %v", errs[3])
	}
	if errs[4] == nil {
		t.Error("a statement that cannot be prepared is no error")
	}
	for _, err := range errs {
		if errors.Is(err, db.ErrOutcomeOpen) {
			t.Errorf("the outcome is known, and called open: %v", err)
		}
	}
	if got := commits(faults); got != 1 {
		t.Errorf("there were %d commits, want 1", got)
	}
	dbtest.Check(t, d)
}

func TestALoneCallersFailureLeavesNothing(t *testing.T) {
	d := dbtest.Open(t)
	own := errors.New("my own mistake")
	if err := db.Write(context.Background(), d, func(tx *db.Tx) error { _ = mark("error")(tx); return own }); !errors.Is(err, own) {
		t.Errorf("got %v", err)
	}
	if err := db.Write(context.Background(), d, func(tx *db.Tx) error { _ = mark("panic")(tx); panic("a bug") }); err == nil {
		t.Error("a panic is no error")
	}
	if err := db.Write(context.Background(), d, mark("well")); err != nil {
		t.Error(err)
	}
	if got := marks(t, d); !slices.Equal(got, []string{"well"}) {
		t.Errorf("stored is %v", got)
	}
}

func TestACallerWhoseContextEndsBeforeItsTurnIsDropped(t *testing.T) {
	d := dbtest.Open(t)
	ctx, cancel := context.WithCancel(context.Background())
	ran := false
	errs := togetherWith(t, d, []context.Context{ctx, context.Background()}, cancel,
		func(tx *db.Tx) error { ran = true; return mark("gone")(tx) }, mark("stays"))
	if !errors.Is(errs[0], context.Canceled) || ran {
		t.Errorf("the dropped caller got %v, ran: %t", errs[0], ran)
	}
	if errs[1] != nil {
		t.Errorf("the other got %v", errs[1])
	}
	// A lone caller is no different.
	if err := db.Write(ctx, d, mark("gone")); !errors.Is(err, context.Canceled) {
		t.Errorf("a lone caller that had left got %v", err)
	}
	if got := marks(t, d); !slices.Equal(got, []string{"stays"}) {
		t.Errorf("stored is %v", got)
	}
}

func TestACallerWhoseContextEndsAfterItsTurnIsStored(t *testing.T) {
	d := dbtest.Open(t)
	for name, alone := range map[string]bool{"alone": true, "in company": false} {
		ctx, cancel := context.WithCancel(context.Background())
		leaves := func(tx *db.Tx) error { cancel(); return mark(strings.ReplaceAll(name, " ", "-"))(tx) }
		var err error
		if alone {
			err = db.Write(ctx, d, leaves)
		} else {
			err = togetherWith(t, d, []context.Context{ctx, context.Background()}, nil, leaves, func(*db.Tx) error { return nil })[0]
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := marks(t, d); !slices.Equal(got, []string{"alone", "in-company"}) {
		t.Errorf("stored is %v", got)
	}
}

func TestACommitErrorLeavesTheOutcomeOpenForEveryCaller(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		retryable bool
		fatal     bool
	}{
		"an error without a code": {dbtest.ErrInjected, false, false},
		"the disk is full":        {dbtest.Error(sqlite3.SQLITE_FULL), true, false},
		"another holds the lock":  {dbtest.Error(sqlite3.SQLITE_BUSY), true, false},
		"busy, extended":          {dbtest.Error(sqlite3.SQLITE_BUSY_SNAPSHOT), true, false},
		"fsync failed":            {dbtest.Error(sqlite3.SQLITE_IOERR_FSYNC), false, true},
		"a write failed":          {dbtest.Error(sqlite3.SQLITE_IOERR_WRITE), false, true},
		"the file is corrupt":     {dbtest.Error(sqlite3.SQLITE_CORRUPT), false, true},
	} {
		for _, mode := range []dbtest.Mode{dbtest.NotStored, dbtest.Stored} {
			t.Run(fmt.Sprintf("%s/stored=%t", name, mode == dbtest.Stored), func(t *testing.T) {
				d, faults := openFaulty(t)
				faults.Arm("COMMIT", 0, mode, c.err)
				own := errors.New("my own mistake")
				errs := together(t, d, mark("one"), func(*db.Tx) error { return own }, mark("two"))
				for _, i := range []int{0, 2} {
					if !errors.Is(errs[i], db.ErrOutcomeOpen) || !errors.Is(errs[i], c.err) {
						t.Errorf("caller %d got %v", i, errs[i])
					}
					if got := db.IsRetryable(errs[i]); got != c.retryable {
						t.Errorf("retryable: %t, want %t (%v)", got, c.retryable, errs[i])
					}
				}
				if !errors.Is(errs[1], own) || errors.Is(errs[1], db.ErrOutcomeOpen) {
					t.Errorf("the caller with an error of its own got %v", errs[1])
				}
				want := []string{}
				if mode == dbtest.Stored {
					want = []string{"one", "two"}
				}
				if got := marks(t, d); !slices.Equal(got, want) {
					t.Errorf("stored is %v, want %v", got, want)
				}
				if got := len(faults.Fatals()) > 0; got != c.fatal {
					t.Errorf("the program would have ended: %t, want %t", got, c.fatal)
				}
				err := db.Write(context.Background(), d, mark("later"))
				if got := err != nil; got != c.fatal {
					t.Errorf("a later write got %v", err)
				}
				if c.fatal && slices.Contains(marks(t, d), "later") {
					t.Error("it was stored after an I/O error")
				}
				dbtest.Check(t, d)
			})
		}
	}
}

// SQLite gives the whole transaction up when the disk is full in the middle of a
// statement: the parts of the others are lost with it, and they must hear so.
func TestAFullDiskInTheMiddleTellsEveryCaller(t *testing.T) {
	d, _ := openFaulty(t)
	pages, err := db.Int(context.Background(), d, `PRAGMA page_count`)
	if err != nil {
		t.Fatal(err)
	}
	limit := func(n int64) {
		t.Helper()
		if err := db.Write(context.Background(), d, func(tx *db.Tx) error {
			_, err := tx.Exec(fmt.Sprintf(`PRAGMA max_page_count = %d`, n))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	limit(pages + 2)
	big := func(tx *db.Tx) error { return mark(strings.Repeat("x", 100_000))(tx) }
	errs := together(t, d, mark("before"), big, mark("after"))
	for i, err := range errs {
		if !db.IsRetryable(err) {
			t.Errorf("caller %d got %v", i, err)
		}
	}
	if got := marks(t, d); len(got) > 0 {
		t.Errorf("stored is %.50v", got)
	}
	dbtest.Check(t, d)
	limit(1 << 30)
	for i, err := range together(t, d, mark("before"), big, mark("after")) {
		if err != nil {
			t.Errorf("with room again caller %d got %v", i, err)
		}
	}
	if got := marks(t, d); len(got) != 3 {
		t.Errorf("stored are %d", len(got))
	}
}

func TestALostTransactionTellsEveryCaller(t *testing.T) {
	for _, statement := range []string{"BEGIN IMMEDIATE", "SAVEPOINT caller", "RELEASE caller"} {
		d, faults := openFaulty(t)
		faults.Arm(statement, 2, dbtest.NotStored, dbtest.ErrInjected) // of the second, after the one that holds up the queue
		if statement == "BEGIN IMMEDIATE" {
			faults.Arm(statement, 1, dbtest.NotStored, dbtest.ErrInjected)
		}
		for i, err := range together(t, d, mark("one"), mark("two"), mark("three")) {
			if !errors.Is(err, dbtest.ErrInjected) {
				t.Errorf("%s fails: caller %d got %v", statement, i, err)
			}
		}
		if got := marks(t, d); len(got) > 0 {
			t.Errorf("%s fails: stored is %v", statement, got)
		}
		if err := db.Write(context.Background(), d, mark("later")); err != nil {
			t.Errorf("%s fails: a later write got %v", statement, err)
		}
		dbtest.Check(t, d)
	}
}

func TestAnotherProcessWithTheLockMakesWritersWaitAndThenHearOfIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	if err := db.Write(context.Background(), d, func(tx *db.Tx) error {
		_, err := tx.Exec(`PRAGMA busy_timeout = 1`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	c := raw(t, path, "")
	mustExec(t, c, `BEGIN IMMEDIATE`)
	err := db.Write(context.Background(), d, mark("one"))
	if !db.IsRetryable(err) || errors.Is(err, db.ErrOutcomeOpen) {
		t.Errorf("got %v, want it retryable and known not to be stored", err)
	}
	mustExec(t, c, `ROLLBACK`)
	if err := db.Write(context.Background(), d, mark("one")); err != nil {
		t.Error(err)
	}
}

func TestCloseLetsWhoeverWaitsFinish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d, err := db.Open(db.Options{Path: path, Schema: dbtest.Schema(t)})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	errs := togetherWith(t, d, slices.Repeat([]context.Context{context.Background()}, 3), func() {
		go func() { closed <- d.Close() }()
	}, mark("one"), mark("two"), mark("three"))
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"a write": db.Write(context.Background(), d, mark("late")),
		"a ping":  d.Ping(context.Background()),
		"a flush": d.Flush(context.Background()),
		"closing": d.Close(),
		"a submission": func() error {
			_, err := d.Accept(context.Background(), dbtest.Submission("session-1", chat.NewID(), "x"))
			return err
		}(),
	} {
		if name == "closing" {
			if err != nil {
				t.Errorf("closing twice: %v", err)
			}
		} else if !errors.Is(err, db.ErrClosed) {
			t.Errorf("%s after closing: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := d.Instance(ctx); !errors.Is(err, db.ErrClosed) {
		t.Errorf("a read after closing: %v", err)
	}
	again := dbtest.OpenAt(t, path, nil)
	if got := marks(t, again); !slices.Equal(got, []string{"one", "three", "two"}) {
		t.Errorf("stored is %v", got)
	}
}

// A lone caller and a crowd both bring a checkpoint about, in its two phases: the
// loop's beside the writer, and the writer's rest.
func TestTheWALIsCheckpointedWhileWritersGoOn(t *testing.T) {
	for name, callers := range map[string]int{"alone": 1, "in a crowd": 8} {
		d, faults := openFaulty(t)
		const phases = 4 // of two checkpoints
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for n := 0; faults.Count("wal_checkpoint(PASSIVE)") < phases; n++ {
					if n == 20_000 {
						t.Errorf("%s: %d writes brought no checkpoint about", name, n)
						return
					}
					if err := db.Write(context.Background(), d, mark(fmt.Sprintf("%d-%d", i, n))); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		dbtest.Check(t, d)
	}
}
