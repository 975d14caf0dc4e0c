package ops

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"semel/chat"
	"semel/db"
)

// Options say what a monitor looks at. DB and Meter are needed.
type Options struct {
	DB       *db.DB
	Meter    *Meter
	Log      *slog.Logger
	Version  string
	Currency string
	Rules    []Rule        // the alerts
	Every    time.Duration // between two looks; 0 is ten seconds
	// VerifyEvery is how often the invariants are checked unasked; 0 is never.
	VerifyEvery time.Duration
	// Calls returns how many prompts were sent to models since the start, by whatever
	// sends them. Without it the meter's own count stands in, which whoever calls past
	// the engine does not raise.
	Calls func() int64
	// Disk, when it is set, measures and judges instead of [Monitor.Disk].
	Disk func() Disk
	// BackupAge returns how long there has been no newer backup; nil judges nothing.
	BackupAge func() time.Duration
	// LastBackup returns the newest backup, nil when there is none.
	LastBackup func() *Backup
}

// A Monitor looks at everything from time to time. All its methods may be called by many
// goroutines.
type Monitor struct {
	o       Options
	started time.Time
	before  int64 // attempts that are older than this life
	alerts  *alerts
	running sync.WaitGroup
	ctx     context.Context // of what runs; ends with stop
	stop    context.CancelFunc

	verifying sync.Mutex // held by the one check that runs

	mu       sync.Mutex
	last     CheckUp // under mu
	checking bool    // under mu
	done     int     // under mu; invariants that the check that runs has been through
}

// New returns a monitor of a file that nobody works on yet: what it calls the attempts
// of this life begins here. Start starts it.
func New(ctx context.Context, o Options) (*Monitor, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, r := range o.Rules {
		if !slices.Contains(kinds, r.On) {
			panic("ops: nothing measures " + r.On)
		}
	}
	if o.Every == 0 {
		o.Every = 10 * time.Second
	}
	if o.Currency == "" {
		o.Currency = "USD"
	}
	n, err := o.DB.Counts(ctx)
	if err != nil {
		return nil, err
	}
	m := &Monitor{o: o, started: time.Now(), before: n.Attempts, alerts: newAlerts(o.Rules, o.Log)}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m, nil
}

// Start begins to look. Stop ends that.
func (m *Monitor) Start() {
	m.running.Go(func() { m.every(m.ctx, m.o.Every, m.o.Every, m.look) })
	if m.o.VerifyEvery > 0 {
		m.running.Go(func() { m.every(m.ctx, firstCheck, m.o.VerifyEvery, m.scheduled) })
	}
}

// firstCheck is when a life checks for the first time. What an earlier one found says
// nothing about what became of the file since; who restarts every few seconds is not
// slowed down by it.
const firstCheck = time.Minute

// Stop returns when nothing of the monitor runs any more; a check that runs is given up.
func (m *Monitor) Stop() {
	m.set(m.stop) // then Begin begins nothing more
	m.running.Wait()
}

func (m *Monitor) every(ctx context.Context, first, every time.Duration, do func(context.Context)) {
	t := time.NewTimer(first)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			do(ctx)
			t.Reset(every)
		}
	}
}

// look notes the depths of the queues and judges the alerts.
func (m *Monitor) look(ctx context.Context) {
	t, err := m.o.DB.Totals(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.o.Log.Error("look at the file", "error", err)
		}
		return
	}
	now := time.Now()
	m.o.Meter.saw(now, int64(t.Waiting-t.Running), int64(t.Running), int64(t.Outbox))
	values := map[string]float64{
		OnDeadLetters: float64(t.Dead), OnOldestUnfinished: age(now, t.Oldest), OnOutboxOldest: age(now, t.Overdue),
	}
	last := m.sum(now, judged)
	values[OnDuplicateErrors] = float64(last.of(chat.DecisionConflict) + last.of(chat.DecisionExpired))
	if last.arrivals() >= leastArrivals {
		values[OnDuplicateRate] = float64(last.arrivals()-last.of(chat.DecisionFirst)) / float64(last.arrivals())
	}
	if last.answer.count >= leastAnswers {
		values[OnLatency] = last.answer.percentile(0.95).Seconds()
	}
	if d := m.Disk(); d.Total > 0 {
		values[OnDiskFree] = float64(d.Free)
	}
	if m.o.BackupAge != nil {
		values[OnBackupAge] = m.o.BackupAge().Seconds()
	}
	if fi, err := os.Stat(m.o.DB.Path() + "-wal"); err == nil {
		values[OnWAL] = float64(fi.Size())
	}
	m.mu.Lock()
	if !m.last.At.IsZero() {
		values[OnInvariantViolations] = float64(m.last.Violations)
	}
	m.mu.Unlock()
	m.alerts.judge(now, values)
}

// Ready returns why no traffic should come, nil when it should.
func (m *Monitor) Ready() error {
	if d := m.Disk(); d.Trouble != "" {
		return errors.New(d.Trouble)
	}
	return nil
}

func (m *Monitor) calls() int64 {
	if m.o.Calls != nil {
		return m.o.Calls()
	}
	return m.o.Meter.called.Load()
}
