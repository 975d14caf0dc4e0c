package handlers

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"semel/chat"
	"semel/views"
)

// A Lab does the same to two applications and tells what becomes of it. Whatever a run
// starts has ended, and is gone, when Run returns.
type Lab interface {
	Scenarios() []views.LabScenario
	// Run tells emit, from one goroutine, what happens.
	Run(ctx context.Context, r LabRun, emit func(views.LabEvent)) (views.LabResult, error)
	Report(scenario string, seed uint64, runs int, results []views.LabResult) (views.LabReport, error)
	Naive() string // the source of the naive application
}

// A LabRun is one scenario with one seed.
type LabRun struct {
	Scenario string
	Seed     uint64
	Next     <-chan struct{} // received from before each step but the first; nil: no waiting
}

const (
	labPace     = 3 * time.Second // so that a step can be read
	labLinger   = time.Minute     // how long a run goes on that nobody looks at
	labRunsMost = 1000            // of one scenario
	labKept     = 20              // runs whose reports can be looked at
)

// labRuns are the runs of this process: one at a time, for they start programs and
// share its processors, and the last ones that have ended.
type labRuns struct {
	lab Lab
	log *slog.Logger

	mu     sync.Mutex // guards what follows, and every labRun
	runs   []*labRun  // the newest last
	closed bool
	ended  sync.WaitGroup
}

// A labRun is a run with whoever looks at it.
type labRun struct {
	views.LabRun
	steps   int                // of the scenario
	next    chan struct{}      // with room for one: the next step may begin
	waits   bool               // the scenario waits for that
	cancel  context.CancelFunc // ends it
	gone    chan struct{}      // closed when everything it started is gone
	changed chan struct{}      // closed at the next change
	viewers int
	left    *time.Timer // ends it when nobody has looked for long
}

// begin starts a run, or returns the one that has this id: a second click is the same
// run.
func (l *labRuns) begin(s views.LabScenario, want views.LabRun) (views.LabRun, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.find(want.ID); r != nil {
		return r.copied(), nil
	}
	if l.closed {
		return views.LabRun{}, refuse(http.StatusServiceUnavailable, "unavailable", chat.RetrySameID, "This server is stopping.")
	}
	if l.current() != nil {
		return views.LabRun{}, refuse(http.StatusConflict, "lab_busy", chat.RetryNewID, "A run is under way; there is one at a time.")
	}
	ctx, cancel := context.WithCancel(context.Background()) // it outlives the request that begins it
	r := &labRun{
		LabRun: want, steps: len(s.Steps), next: make(chan struct{}, 1), cancel: cancel, gone: make(chan struct{}), changed: make(chan struct{}),
		left: time.AfterFunc(labLinger, cancel),
	}
	r.State, r.At, r.Version = views.LabStarting, -1, 1
	if over := len(l.runs) + 1 - labKept; over > 0 {
		l.runs = slices.Delete(l.runs, 0, over)
	}
	l.runs = append(l.runs, r)
	l.ended.Go(func() { l.run(ctx, r) })
	return r.copied(), nil
}

func (l *labRuns) find(id string) *labRun {
	for _, r := range l.runs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// current is the run that is under way.
func (l *labRuns) current() *labRun {
	for _, r := range l.runs {
		if r.Live() {
			return r
		}
	}
	return nil
}

// copied is a run as it stands, for whoever holds no lock.
func (r *labRun) copied() views.LabRun {
	c := r.LabRun
	c.Steps, c.Results = slices.Clone(c.Steps), slices.Clone(c.Results)
	return c
}

// change tells whoever looks that a run has changed.
func (r *labRun) change() {
	r.Version++
	close(r.changed)
	r.changed = make(chan struct{})
}

// run runs all runs of r, one after the other.
func (l *labRuns) run(ctx context.Context, r *labRun) {
	defer close(r.gone)
	defer r.cancel()
	var failed error
	for i := range r.Runs {
		one := LabRun{Scenario: r.Scenario, Seed: r.Seed + uint64(i)}
		if r.Runs == 1 {
			one.Next = r.next
		}
		res, err := l.lab.Run(ctx, one, func(e views.LabEvent) { l.happened(ctx, r, e) })
		if err != nil {
			failed = err
			break
		}
		l.mu.Lock()
		r.Results = append(r.Results, res)
		if r.Runs > 1 {
			r.State = views.LabPlaying
			r.change()
		}
		l.mu.Unlock()
	}
	report, err := l.lab.Report(r.Scenario, r.Seed, r.Runs, r.Results)
	failed = cmp.Or(failed, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	r.left.Stop()
	r.Report = report
	switch {
	case failed == nil:
		r.State = views.LabEnded
	case ctx.Err() != nil:
		r.State = views.LabStopped
	default:
		r.State = views.LabFailed
		l.log.Error("a run of the lab failed", "run", r.ID, "scenario", r.Scenario, "seed", r.Seed, "error", failed)
	}
	r.change()
}

// happened writes down what a run tells.
func (l *labRuns) happened(ctx context.Context, r *labRun, e views.LabEvent) {
	if r.Runs > 1 {
		return // what counts is how each ends
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Board == nil {
		r.At = e.Step
		for len(r.Steps) <= e.Step {
			r.Steps = append(r.Steps, views.LabStep{})
		}
		if r.State == views.LabStarting {
			r.State = views.LabPlaying
			if r.Step {
				r.State = views.LabPaused
			}
		}
		r.change()
		return
	}
	s := &r.Steps[e.Step]
	s.Done[e.Lane], s.Said[e.Lane], s.Boards[e.Lane] = true, e.Say, *e.Board
	if s.Done[views.LabNaive] && s.Done[views.LabSemel] && e.Step < r.steps-1 {
		r.waits = true
		l.playOn(ctx, r)
	}
	r.change()
}

// playOn lets the next step begin by itself, in a while, when r is played. l.mu is
// held.
func (l *labRuns) playOn(ctx context.Context, r *labRun) {
	if r.State != views.LabPlaying || !r.waits {
		return
	}
	at := r.At
	t := time.AfterFunc(labPace, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if r.State == views.LabPlaying && r.At == at {
			r.goOn()
		}
	})
	context.AfterFunc(ctx, func() { t.Stop() })
}

// goOn lets the next step begin, when r waits for that.
func (r *labRun) goOn() {
	if r.waits {
		r.waits = false
		r.next <- struct{}{} // there is room: it waits at most once for each step
	}
}

// steer does what a button of a run asks for: next, play, pause or stop. at is the step
// that whoever pressed it saw, so that one press is one step.
func (l *labRuns) steer(ctx context.Context, id, do string, at int) error {
	l.mu.Lock()
	r := l.find(id)
	if r == nil {
		l.mu.Unlock()
		return errNoRun
	}
	switch {
	case do == "stop":
		r.cancel()
		l.mu.Unlock()
		select {
		case <-r.gone:
		case <-ctx.Done():
		}
		return nil
	case !r.Live() || r.Runs > 1:
	case do == "next" && r.State == views.LabPaused && r.At == at:
		r.goOn()
	case do == "pause" && r.State == views.LabPlaying:
		r.State = views.LabPaused
		r.change()
	case do == "play" && r.State == views.LabPaused:
		r.State = views.LabPlaying
		r.goOn()
		r.change()
	}
	l.mu.Unlock()
	return nil
}

var errNoRun = refuse(http.StatusNotFound, "not_found", chat.RetryNever, "There is no such run; only the last ones of this process are kept.")

// look returns a run for somebody who looks at it once.
func (l *labRuns) look(id string) (views.LabRun, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(id)
	if r == nil {
		return views.LabRun{}, errNoRun
	}
	l.looked(r)
	return r.copied(), nil
}

// looked puts off the end of a run that nobody looks at.
func (l *labRuns) looked(r *labRun) {
	if r.viewers == 0 && r.Live() {
		r.left.Reset(labLinger)
	}
}

// under returns the run that is under way, and nil when there is none.
func (l *labRuns) underWay() *views.LabRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.current()
	if r == nil {
		return nil
	}
	l.looked(r)
	c := r.copied()
	return &c
}

// watch keeps a run going while somebody looks at it. The run is returned as it stands,
// with what is closed when it has changed; leave says that they have gone.
func (l *labRuns) watch(id string) (next func() (views.LabRun, <-chan struct{}), leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(id)
	if r == nil {
		return nil, nil, errNoRun
	}
	r.viewers++
	r.left.Stop()
	next = func() (views.LabRun, <-chan struct{}) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return r.copied(), r.changed
	}
	leave = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		r.viewers--
		l.looked(r)
	}
	return next, leave, nil
}

// close ends the run that is under way, and returns when it is gone.
func (l *labRuns) close() {
	l.mu.Lock()
	l.closed = true
	if r := l.current(); r != nil {
		r.cancel()
	}
	l.mu.Unlock()
	l.ended.Wait()
}
