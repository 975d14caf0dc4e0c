package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
	"semel/llm/llmtest"
)

// Tests run in bubbles of fake time, with the real engine over a real file. A
// bubble ends only when every goroutine in it has: each of these tests is also
// the proof that the engine leaks none.

// exec changes a database file behind its server's back.
func exec(file, statements string) error {
	c, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	_, err = c.Exec(statements)
	return errors.Join(err, c.Close())
}

func execSQL(t *testing.T, file, statements string) {
	t.Helper()
	if err := exec(file, statements); err != nil {
		t.Fatal(err)
	}
}

// A rig is an engine at work in a bubble.
type rig struct {
	t      *testing.T
	ctx    context.Context
	d      *db.DB
	e      *engine.Engine
	model  *llmtest.Client
	change func(*engine.Options)

	session string
	file    string // of d
	fatal   atomic.Pointer[error]
	onFatal func()
	log     *slog.Logger
}

// empty is a new database, made once: under the race detector SQLite needs a
// tenth of a second for the schema.
var empty []byte

func TestMain(m *testing.M) {
	code, err := func() (int, error) {
		dir, err := os.MkdirTemp("", "semel-engine")
		if err != nil {
			return 1, err
		}
		defer os.RemoveAll(dir)
		schema, err := os.ReadFile("../schema.sql")
		if err != nil {
			return 1, err
		}
		d, err := db.Open(db.Options{Path: filepath.Join(dir, "empty.db"), Schema: string(schema)})
		if err == nil {
			err = d.Close()
		}
		if err == nil {
			err = exec(filepath.Join(dir, "empty.db"), `INSERT INTO users (id, name, created_at) VALUES (2, 'other', 1)`)
		}
		if err == nil {
			empty, err = os.ReadFile(filepath.Join(dir, "empty.db"))
		}
		if err != nil {
			return 1, err
		}
		return m.Run(), nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// newRig starts an engine whose only model plays these steps.
func newRig(t *testing.T, change func(*engine.Options), steps ...llmtest.Step) *rig {
	t.Helper()
	return openRig(t, filepath.Join(t.TempDir(), "test.db"), nil, change, llmtest.New(steps...))
}

// openRig starts an engine over the file.
func openRig(t *testing.T, file string, faults *dbtest.Faults, change func(*engine.Options), model *llmtest.Client) *rig {
	t.Helper()
	r := &rig{t: t, ctx: context.Background(), model: model, change: change, session: chat.NewID(), file: file}
	o := engine.Options{Models: []engine.Model{{Name: "test", Client: model, Price: dbtest.DemoPrice, Rerun: true}}}
	o.IndexAfter = 10_000 * time.Hour // its commits are none of those that tests count and make fail
	if change != nil {
		change(&o)
	}
	r.log = o.Log
	r.openDB(faults)
	o.DB = r.d
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(r.ctx); err != nil {
		t.Fatal(err)
	}
	r.e = e
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		e.Drain(ctx)
	})
	return r
}

// openDB opens the rig's file, with one reader: a read inside a read would hang.
func (r *rig) openDB(faults *dbtest.Faults) {
	r.t.Helper()
	if _, err := os.Stat(r.file); os.IsNotExist(err) {
		if err := os.WriteFile(r.file, empty, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	o := db.Options{Path: r.file, Log: r.log, Readers: 1, Fatal: func(err error) {
		r.fatal.Store(&err)
		if r.onFatal != nil {
			r.onFatal()
		}
		if faults == nil {
			r.t.Errorf("fatal: %v", err)
		}
	}}
	o.Driver = new(dbtest.Faults).Open // which waits for no disk
	if faults != nil {
		o.Driver = faults.Open
	}
	d, err := db.Open(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.d = d
	r.t.Cleanup(func() {
		if faults != nil {
			faults.Clear()
		}
		if err := d.Close(); err != nil && r.fatal.Load() == nil {
			r.t.Errorf("close: %v", err)
		}
	})
}

// asks leaves outcomes that nobody knows to a person.
func asks(o *engine.Options) { o.Models[0].Rerun = false }

// newID mints an id of the bubble's time; chat.NewID takes it from there too.
func newID() string { return chat.NewID() }

func (r *rig) key(id string) chat.Key {
	return chat.Key{UserID: db.LocalUser, SessionID: r.session, RequestID: id}
}

func (r *rig) message(id, content string) engine.Ask { return ask(r.session, id, content) }

// submit submits a and fails the test when it is refused.
func (r *rig) submit(a engine.Ask) engine.Result {
	r.t.Helper()
	res, err := r.e.Submit(r.ctx, a)
	if err != nil {
		r.t.Fatalf("submit %s: %v", a.Key.RequestID, err)
	}
	return res
}

// say asks a new question and returns its id.
func (r *rig) say(content string) string {
	r.t.Helper()
	id := newID()
	r.submit(r.message(id, content))
	return id
}

// refused submits a and returns the problem it is refused with.
func (r *rig) refused(a engine.Ask) *chat.Problem {
	r.t.Helper()
	res, err := r.e.Submit(r.ctx, a)
	var p *chat.Problem
	if !errors.As(err, &p) {
		r.t.Fatalf("submit %s: got %+v %v, want a problem", a.Key.RequestID, res, err)
	}
	return p
}

// rest returns when nothing moves any more at this moment of fake time, with the
// invariants checked.
func (r *rig) rest() {
	r.t.Helper()
	synctest.Wait()
	dbtest.Check(r.t, r.d)
}

// pass lets fake time go by.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	time.Sleep(d)
	r.rest()
}

// end waits for the end of a request.
func (r *rig) end(id string) chat.Record {
	r.t.Helper()
	req, err := r.d.Find(r.ctx, r.key(id))
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.ctx, time.Hour)
	defer cancel()
	if err := r.e.Wait(ctx, req.ID); err != nil {
		r.t.Fatalf("request %s does not end: %v", id, err)
	}
	r.rest()
	return r.record(id)
}

func (r *rig) record(id string) chat.Record {
	r.t.Helper()
	rec, err := r.d.Record(r.ctx, r.key(id))
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

func (r *rig) request(id string) chat.Request {
	r.t.Helper()
	req, err := r.d.Find(r.ctx, r.key(id))
	if err != nil {
		r.t.Fatal(err)
	}
	return req
}

func (r *rig) live(id string) *engine.Live {
	r.t.Helper()
	l := r.e.Live(r.request(id).ID)
	if l == nil {
		r.t.Fatalf("request %s does not wait for its answer", id)
	}
	return l
}

func (r *rig) receipt(id string) db.Receipt {
	r.t.Helper()
	if err := r.e.FlushArrivals(r.ctx); err != nil {
		r.t.Fatal(err)
	}
	rc, err := r.d.Receipt(r.ctx, r.key(id))
	if err != nil {
		r.t.Fatal(err)
	}
	return rc
}

// answered fails the test unless the request has this one answer.
func (r *rig) answered(id, want string) chat.Record {
	r.t.Helper()
	rec := r.end(id)
	if rec.State != chat.StateCommitted || rec.Message == nil || rec.Message.Content != want {
		r.t.Fatalf("request %s: got %s %q (error %+v), want the answer %q", id, rec.State, rec.Content, rec.Error, want)
	}
	return rec
}

// failed fails the test unless the request failed like this.
func (r *rig) failed(id, code string, o chat.Outcome, retry chat.Retry) chat.Record {
	r.t.Helper()
	rec := r.end(id)
	if rec.State != chat.StateFailed {
		r.t.Fatalf("request %s: got %s %q, want it failed", id, rec.State, rec.Content)
	}
	if got := [3]string{rec.Error.Code, string(rec.Error.Outcome), string(rec.Error.Retry)}; got != [3]string{code, string(o), string(retry)} {
		r.t.Fatalf("request %s failed: got %v, want %v", id, got, [3]string{code, string(o), string(retry)})
	}
	return rec
}

// calls fails the test unless the model was called this often.
func (r *rig) calls(want int) {
	r.t.Helper()
	if got := r.model.Count(); got != want {
		r.t.Fatalf("model calls: got %d, want %d", got, want)
	}
}

// idle fails the test unless the engine holds nothing any more.
func (r *rig) idle() {
	r.t.Helper()
	synctest.Wait()
	if err := r.e.Idle(); err != nil {
		r.t.Errorf("the engine still holds %v", err)
	}
}

// waste returns the attempts whose cost is noted as waste.
func (r *rig) waste(id string) (attempts []int64) {
	r.t.Helper()
	for _, l := range r.receipt(id).Ledger {
		if l.Kind == "waste" {
			attempts = append(attempts, l.Attempt)
		}
	}
	return attempts
}

// die leaves this process life as kill -9 would: what is in the file at this
// moment, and nothing else, is what the next life finds. It returns that life.
func (r *rig) die(steps ...llmtest.Step) *rig {
	r.t.Helper()
	return r.dieInto(r.change, steps...)
}

// dieInto is die with other options for the next life.
func (r *rig) dieInto(change func(*engine.Options), steps ...llmtest.Step) *rig {
	r.t.Helper()
	synctest.Wait()
	next := openRig(r.t, r.copyFile(), nil, change, llmtest.New(steps...))
	next.session = r.session
	next.rest()
	return next
}

// copyFile copies the database as it is on the disk now.
func (r *rig) copyFile() string {
	r.t.Helper()
	to := filepath.Join(r.t.TempDir(), "next.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(r.file + suffix)
		if err == nil {
			err = os.WriteFile(to+suffix, b, 0o600)
		}
		if err != nil && !(suffix != "" && os.IsNotExist(err)) {
			r.t.Fatal(err)
		}
	}
	return to
}

var _ llm.Client = (*llmtest.Client)(nil)
