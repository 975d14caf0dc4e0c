package ops_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/ops"
)

// execSQL changes a database file behind its server's back.
func execSQL(t *testing.T, file, statements string) {
	t.Helper()
	c, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
	if err == nil {
		_, err = c.Exec(statements)
	}
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
}

// A bench is a monitor at work over a real file, in a bubble of fake time.
type bench struct {
	t     *testing.T
	d     *db.DB
	m     *ops.Monitor
	meter *ops.Meter
	log   *lines
}

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer // under mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// with returns the lines with this message.
func (l *lines) with(t *testing.T, msg string) (list []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		if v["msg"] == msg {
			list = append(list, v)
		}
	}
	return list
}

func inBubble(t *testing.T, o ops.Options, test func(b *bench)) {
	t.Helper()
	t.Parallel()
	dbtest.Schema(t) // its lock is not the bubble's
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, d: dbtest.Open(t), meter: ops.NewMeter(), log: &lines{}}
		o.DB, o.Meter, o.Log = b.d, b.meter, slog.New(slog.NewJSONHandler(b.log, nil))
		var err error
		if b.m, err = ops.New(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		b.m.Start()
		defer b.m.Stop()
		test(b)
	})
}

// after lets time pass.
func (b *bench) after(d time.Duration) {
	time.Sleep(d) // fake
	synctest.Wait()
}

func (b *bench) stats() ops.Stats {
	b.t.Helper()
	s, err := b.m.Stats(b.t.Context(), ops.Usual)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) alert(on string) ops.Alert {
	b.t.Helper()
	for _, a := range b.stats().Alerts {
		if a.On == on {
			return a
		}
	}
	b.t.Fatalf("there is no alert on %s", on)
	return ops.Alert{}
}

func (b *bench) fires(on string, want bool) {
	b.t.Helper()
	if a := b.alert(on); a.Firing != want {
		b.t.Errorf("alert on %s fires: %t (%+v), want %t", on, a.Firing, a, want)
	}
}

// An alert waits for a second look before it begins and for a minute of calm before it
// ends, and each is logged once.
func TestAnAlertBeginsAndEndsOnceHoweverItsValueSwings(t *testing.T) {
	var free atomic.Int64
	free.Store(100)
	disk := func() ops.Disk { return ops.Disk{Free: free.Load(), Total: 1000} }
	inBubble(t, ops.Options{Rules: []ops.Rule{{On: ops.OnDiskFree, Threshold: 50, Below: true}}, Disk: disk}, func(b *bench) {
		const look = 10 * time.Second
		b.after(look)
		b.fires(ops.OnDiskFree, false)
		free.Store(49)
		b.after(look)
		b.fires(ops.OnDiskFree, false) // it may have been a moment
		b.after(look)
		b.fires(ops.OnDiskFree, true)
		for range 10 { // around the threshold: neither calm nor another alert
			free.Store(54)
			b.after(10 * look)
			free.Store(48)
			b.after(look)
		}
		b.fires(ops.OnDiskFree, true)
		free.Store(56)
		b.after(5 * look)
		b.fires(ops.OnDiskFree, true)
		b.after(look)
		b.fires(ops.OnDiskFree, false)
		if begun, ended := b.log.with(b.t, "alert"), b.log.with(b.t, "alert ended"); len(begun) != 1 || len(ended) != 1 || begun[0]["alert"] != ops.OnDiskFree || begun[0]["value"] != 49.0 {
			b.t.Errorf("logged: %v, %v", begun, ended)
		}
	})
}

func TestAlertsAreOnWhatHappened(t *testing.T) {
	rules := []ops.Rule{
		{On: ops.OnDuplicateRate, Threshold: 0.5}, {On: ops.OnDuplicateErrors, Threshold: 3}, {On: ops.OnLatency, Threshold: 10},
		{On: ops.OnOldestUnfinished, Threshold: 600}, {On: ops.OnDeadLetters}, {On: ops.OnOutboxOldest, Threshold: 600},
	}
	inBubble(t, ops.Options{Rules: rules}, func(b *bench) {
		b.meter.Arrived(chat.DecisionFirst)
		for range 90 { // as much as somebody does who looks what double clicks do
			b.meter.Arrived(chat.DecisionReplayed)
		}
		for range 4 {
			b.meter.Answered(1, time.Second, time.Minute)
		}
		b.after(time.Minute)
		for _, r := range rules {
			b.fires(r.On, false) // too little to judge
		}
		for range 20 {
			b.meter.Arrived(chat.DecisionReplayed)
		}
		for range 4 {
			b.meter.Arrived(chat.DecisionConflict)
		}
		b.meter.Answered(1, time.Second, time.Minute)
		b.after(time.Minute)
		b.fires(ops.OnDuplicateRate, true)
		b.fires(ops.OnDuplicateErrors, true)
		b.fires(ops.OnLatency, true)
		dbtest.Accept(b.t, b.d, "session-1", "waits")
		b.after(12 * time.Minute) // what was judged is over, and the question is old
		b.fires(ops.OnDuplicateRate, false)
		b.fires(ops.OnDuplicateErrors, false)
		b.fires(ops.OnLatency, false)
		b.fires(ops.OnOldestUnfinished, true)
		if s := b.stats(); s.Waiting != 1 || s.OldestSeconds < 600 {
			b.t.Errorf("%+v", s)
		}
		var deepest int64
		for _, p := range b.stats().Series.Points {
			deepest = max(deepest, p.Waiting)
		}
		if deepest != 1 {
			b.t.Errorf("the queue was %d deep, want 1", deepest)
		}
	})
}

func TestTheInvariantsAreCheckedUnaskedAndWhatIsViolatedFires(t *testing.T) {
	rules := []ops.Rule{{On: ops.OnInvariantViolations}}
	inBubble(t, ops.Options{Rules: rules, VerifyEvery: time.Hour}, func(b *bench) {
		dbtest.Answered(b.t, b.d, "session-1", "first", "one")
		b.after(2 * time.Minute)
		c := b.stats().Check
		if c.Checks != len(db.Invariants) || c.Violations != 0 || c.Intents != 1 || c.Share != 1 || c.At.IsZero() || c.EverySeconds != 3600 {
			b.t.Errorf("the first check: %+v", c)
		}
		dbtest.Answered(b.t, b.d, "session-2", "second", "two")
		if c := b.stats().Check; c.Share != 0.5 {
			b.t.Errorf("%v of the requests were verified, want half", c.Share)
		}
		b.fires(ops.OnInvariantViolations, false)
		execSQL(b.t, b.d.Path(), `UPDATE instance SET answers = answers + 1`)
		b.after(30 * time.Minute)
		b.fires(ops.OnInvariantViolations, false) // nobody has looked
		b.after(31 * time.Minute)
		b.fires(ops.OnInvariantViolations, true)
		if s := b.stats(); s.Check.Violations != 1 || s.Check.Violated[0] != db.CountsInvariant || s.Lamps.Charges.State != ops.LampBroken || s.Check.Share != 1 {
			b.t.Errorf("after the second check: %+v, %+v", s.Check, s.Lamps)
		}
		execSQL(b.t, b.d.Path(), `UPDATE instance SET answers = answers - 1`)
		b.after(61 * time.Minute)
		b.fires(ops.OnInvariantViolations, false)
		if found := b.log.with(b.t, "an invariant is violated"); len(found) != 1 {
			b.t.Errorf("logged: %v", found)
		}
	})
}

// A check that nobody asked for leaves the machine to others half of the time, ends with
// the program, and is never the second at once.
func TestAScheduledCheckIsGentleAndEndsWithTheMonitor(t *testing.T) {
	d := dbtest.Open(t)
	m, err := ops.New(t.Context(), ops.Options{DB: d, Meter: ops.NewMeter()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Verify(ctx, true); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if s, err := m.Stats(t.Context(), ops.Usual); err != nil || s.Check.Running || !s.Check.At.IsZero() || s.Check.Error != "" {
		t.Errorf("after a check that was given up: %+v, %v", s.Check, err)
	}
	// Both at once: one of them says so, whichever.
	errs := make(chan error, 2)
	begin := make(chan struct{})
	for range 2 {
		go func() {
			<-begin
			for {
				if _, err := m.Verify(t.Context(), false); err != nil {
					errs <- err
					return
				}
				if t.Context().Err() != nil {
					return
				}
			}
		}()
	}
	close(begin)
	if err := <-errs; !errors.Is(err, ops.ErrVerifying) {
		t.Errorf("two checks at once: %v", err)
	}
}

func TestAFullDiskIsNotReady(t *testing.T) {
	trouble := ""
	o := ops.Options{DB: dbtest.OpenAt(t, filepath.Join(t.TempDir(), "x.db"), nil), Meter: ops.NewMeter(), Disk: func() ops.Disk { return ops.Disk{Trouble: trouble} }}
	m, err := ops.New(t.Context(), o)
	if err != nil || m.Ready() != nil {
		t.Fatal(err, m.Ready())
	}
	trouble = "the disk is full"
	if err := m.Ready(); err == nil || err.Error() != trouble {
		t.Errorf("ready: %v", err)
	}
	o.Disk = nil
	if m, err = ops.New(t.Context(), o); err != nil || m.Ready() != nil || m.Disk().Free == 0 {
		t.Errorf("of this machine: %v, %v, %+v", err, m.Ready(), m.Disk())
	}
}
