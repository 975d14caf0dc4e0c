// Package engine does the work: it accepts intents once, claims them in order,
// calls models, and makes every outcome durable before anybody is told of it.
//
// The database is the truth. What the engine keeps in memory (who waits, who
// runs, the text so far) is a copy that a restart rebuilds.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"semel/chat"
	"semel/db"
	"semel/llm"
	"semel/ops"
)

// A Model is a model that requests can be sent to.
type Model struct {
	Name     string
	Upstream string // the name the provider knows it by; "" is Name
	Client   llm.Client
	Price    chat.Price
	Context  int64 // tokens of earlier messages that fit; 0 is no limit
	NoImages bool  // it reads text only
	// Rerun says that an attempt whose outcome nobody knows is repeated by the
	// engine; otherwise a person is asked.
	Rerun             bool
	MaxAttempts       int64
	MaxCrashReruns    int64 // 0 is 20, negative is none
	FirstTokenTimeout time.Duration
	IdleTimeout       time.Duration
	Concurrency       int
}

// Options say how the engine works. Zero values take the contract's defaults.
type Options struct {
	DB     *db.DB
	Models []Model // the first is the default; SetModels changes them
	Log    *slog.Logger
	Meter  *ops.Meter // of everything that happens; a new one when nil

	Queue            int         // requests waiting; beyond: overloaded. 0 is 1000
	PerUserPerMinute int         // new intents of one user; 0 is no limit
	RunningPerUser   int         // 0 is no limit; CapRunning changes it
	Full             func() bool // whether the disk is too full for new questions; nil is never
	Evidence         time.Duration
	Uploads          time.Duration // what nobody sends is kept so long; 0 is a week
	AttachedBytes    int64         // of all files of a question; 0 is the default
	// SpendPerUserPerDay bounds what one user's questions cost in a day, in micros; 0 is
	// no limit.
	SpendPerUserPerDay int64

	Actions      *chat.Declarations     // what models may ask for
	Destinations map[string]Destination // by the name of the action, what [db.CompensationOf] makes of it, and ChargeTo
	ChargeTo     string                 // the destination that is told of every charge; "" for none
	Currency     string                 // of those

	Lease        time.Duration // 3 minutes
	Heartbeat    time.Duration // 20 seconds
	PartialEvery time.Duration // 1 second
	IndexAfter   time.Duration // half a second: messages gather as long before the search index takes them
	// Stall is called by a worker before it writes its result; tests hold it there
	// past its lease.
	Stall func(chat.Request)
	// StallDelivery is likewise called before the result of a delivery is written.
	StallDelivery func(db.Outgoing)
}

// An Engine answers requests. All its methods may be called by many goroutines.
type Engine struct {
	o      Options
	db     *db.DB
	log    *slog.Logger
	meter  *ops.Meter
	life   string                 // names this process life; the owner of everything it claims
	roster atomic.Pointer[roster] // stored under mu
	gone   *model                 // stands for a model that is no longer configured: its requests fail when their turn comes
	clock  *clock
	hub    *Hub
	relay  *relay
	tools  []llm.Tool // how o.Actions are offered

	base     context.Context // ends when running answers must
	cancel   context.CancelCauseFunc
	workers  sync.WaitGroup // running answers
	loops    sync.WaitGroup
	stopping chan struct{} // closed first at shutdown

	mu        sync.Mutex
	sched     scheduler                  // under mu
	lives     map[int64]*Live            // under mu; every request that waits for its answer
	accepting map[chat.Key]chan struct{} // under mu; acceptances under way, closed when decided
	recent    recently                   // under mu; keys that arrived as new
	limiters  map[int64]*limiter         // under mu
	draining  bool                       // under mu

	trouble   atomic.Pointer[string]
	reaped    atomic.Pointer[time.Time] // when the reaper last came round; monotonic
	arrivals  arrivalLog
	unindexed chan struct{} // capacity 1; see indexLoop
	counters  sync.Map      // string → *atomic.Int64
	spending  spending
}

type limiter struct {
	*rate.Limiter
	used time.Time
}

// New returns an engine. Start starts it.
func New(o Options) (*Engine, error) {
	o.Queue = orDefault(o.Queue, 1000)
	o.Lease = orDefault(o.Lease, 3*time.Minute)
	o.Heartbeat = orDefault(o.Heartbeat, 20*time.Second)
	o.PartialEvery = orDefault(o.PartialEvery, time.Second)
	o.IndexAfter = orDefault(o.IndexAfter, 500*time.Millisecond)
	o.Evidence = orDefault(o.Evidence, 30*24*time.Hour)
	o.Uploads = orDefault(o.Uploads, 7*24*time.Hour)
	o.AttachedBytes = orDefault(o.AttachedBytes, chat.DefaultAttachmentLimits.Total)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Meter == nil {
		o.Meter = ops.NewMeter()
	}
	e := &Engine{
		o: o, db: o.DB, log: o.Log, meter: o.Meter, life: chat.NewID(), hub: newHub(),
		stopping: make(chan struct{}), lives: map[int64]*Live{}, accepting: map[chat.Key]chan struct{}{}, limiters: map[int64]*limiter{},
	}
	e.relay, e.tools = newRelay(e), toolsOf(o.Actions)
	e.arrivals.wake = make(chan struct{}, 1)
	e.unindexed = make(chan struct{}, 1)
	models, err := newRoster(o.Models, nil)
	if err != nil {
		return nil, err
	}
	e.roster.Store(models)
	e.gone = &model{Model{Concurrency: 1 << 30}, newPool()}
	e.sched = scheduler{e: e, conversations: map[int64]*conversation{}, running: map[int64]int{}, perUser: o.RunningPerUser}
	e.base, e.cancel = context.WithCancelCause(context.Background())
	return e, nil
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// Start recovers what another process life left and begins to work. When it
// returns, everything that life owned is decided: nothing waits for a lease.
func (e *Engine) Start(ctx context.Context) error {
	in, err := e.db.Instance(ctx)
	if err != nil {
		return err
	}
	e.clock = newClock(in.Newest)
	e.cameRound()
	if err := e.recoverLost(ctx, in.Restored); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	e.loops.Add(5)
	go e.relay.loop()
	go e.loop(e.reapEvery(), e.reapEvery(), e.reap)
	// Soon for the first time: many a life is shorter than an hour.
	go e.loop(time.Minute, time.Hour, e.retain)
	go e.arrivalLoop()
	go e.indexLoop()
	e.wantIndex() // of what another life left, or an upgrade
	return nil
}

func (e *Engine) reapEvery() time.Duration { return e.o.Lease / 6 }

// loop calls do after first and then every interval, until shutdown. do logs its
// own errors.
func (e *Engine) loop(first, every time.Duration, do func()) {
	defer e.loops.Done()
	t := time.NewTimer(first)
	defer t.Stop()
	for {
		select {
		case <-e.stopping:
			return
		case <-t.C:
			do()
			t.Reset(every)
		}
	}
}

// Drain takes no new work, lets running answers end until ctx does, and leaves
// the rest to the next life's recovery, with their text so far stored. It returns
// when nothing of the engine runs any more.
func (e *Engine) Drain(ctx context.Context) {
	e.mu.Lock()
	if e.draining {
		e.mu.Unlock()
		return
	}
	e.draining = true
	e.sched.stop()
	e.mu.Unlock()
	close(e.stopping)
	ended := make(chan struct{})
	go func() {
		e.workers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		e.cancel(errShutdown)
		<-ended
	}
	e.cancel(errShutdown)
	e.loops.Wait()
	e.hub.close()
}

// Draining reports whether the engine takes no new work.
func (e *Engine) Draining() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.draining
}

// Ready returns why the engine should get no traffic, nil when it should.
func (e *Engine) Ready(ctx context.Context) error {
	if e.Draining() {
		return errors.New("the server is stopping")
	}
	if t := e.trouble.Load(); t != nil {
		return errors.New(*t)
	}
	if err := e.Beats(); err != nil {
		return err
	}
	if err := e.clock.trusted(time.Now()); err != nil {
		return err
	}
	return e.db.Ping(ctx)
}

// Beats returns an error when the engine has not looked after its work for long.
func (e *Engine) Beats() error {
	if silent := time.Since(*e.reaped.Load()); silent > 4*e.reapEvery() {
		return fmt.Errorf("the engine has not looked after its work for %s", silent.Round(time.Second))
	}
	return nil
}

// Events returns the feed of what happens to a user's conversations.
func (e *Engine) Events() *Hub { return e.hub }

// Meter is where what happens is noted.
func (e *Engine) Meter() *ops.Meter { return e.meter }

// Count adds one to a named counter: an arrival that was refused, a carrier that
// was ignored.
func (e *Engine) Count(name string) {
	c, ok := e.counters.Load(name)
	if !ok {
		c, _ = e.counters.LoadOrStore(name, new(atomic.Int64))
	}
	c.(*atomic.Int64).Add(1)
}

// Counters returns what was counted since the start.
func (e *Engine) Counters() map[string]int64 {
	m := map[string]int64{}
	e.counters.Range(func(k, v any) bool {
		m[k.(string)] = v.(*atomic.Int64).Load()
		return true
	})
	return m
}

var (
	errStopped    = errors.New("a person stopped it")
	errFenced     = errors.New("the lease is lost")
	errShutdown   = errors.New("the process is stopping")
	errFirstToken = errors.New("no first token in time")
	errIdle       = errors.New("the model fell silent")
	errDiverged   = errors.New("a run gives other text than before")
)
