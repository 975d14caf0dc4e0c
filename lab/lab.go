// Package lab does the same to two applications and shows what becomes of it: a naive
// one (package naive) and Semel, each a process of its own on a throw-away file, with
// the same model and the same faults. Faults come only from between and around them: a
// proxy, a queue, a signal that kills, a receiver that behaves badly, a clock that is
// wrong. Neither application knows of any of it.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"semel/db"
)

// Options say how a lab is to run.
type Options struct {
	Binary string // the program, which is both lanes; "" is this one
	Schema string // schema.sql, for the retention that a scenario runs on a stopped file
	Log    *slog.Logger
	Output io.Writer // of the children; nil drops it

	// rewrite, in tests, changes what clients of the right lane send, as a client would
	// that breaks its promise.
	rewrite func(body []byte) []byte
}

// A Lab runs scenarios. It is safe for use by several goroutines at once: every run
// has a folder, processes and ports of its own.
type Lab struct {
	o Options
}

// New returns a lab.
func New(o Options) (*Lab, error) {
	if o.Binary == "" {
		var err error
		if o.Binary, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Lab{o: o}, nil
}

// A Lane is one of the two applications.
type Lane string

// The lanes, as they stand beside each other.
const (
	Naive Lane = "naive" // left
	Semel Lane = "semel" // right
)

// Lanes are both, in order.
var Lanes = []Lane{Naive, Semel}

// A Run is one scenario with one seed.
type Run struct {
	Scenario string // its name
	Seed     uint64 // chooses every moment and order that the scenario leaves open
	// Next, where it is not nil, is received from before each step but the first: step
	// mode. Whoever gives one ends the run by its context.
	Next <-chan struct{}
}

// A Kind says what an event is.
type Kind string

// The kinds of events, in the order in which they come.
const (
	KindReady   Kind = "ready"   // both children serve; Lane, Step and Say are empty
	KindStep    Kind = "step"    // a step begins, in both lanes; Say announces it
	KindOutcome Kind = "outcome" // a step is over in Lane; Say is what was seen there
	KindVerdict Kind = "verdict" // the scenario is over; Result says how
)

// An Event is something that happened in a run.
type Event struct {
	Kind  Kind     `json:"kind"`
	Lane  Lane     `json:"lane,omitempty"` // of an outcome
	Step  int      `json:"step"`           // index in the scenario's steps
	Say   Sentence `json:"say"`
	Board *Board   `json:"board,omitempty"` // of an outcome: the lane's, after it

	Result *Result `json:"result,omitempty"` // of a verdict
}

// A Sentence is a message of the catalogue of the pages: its key, and pairs of names
// and values for it.
type Sentence struct {
	Key  string   `json:"key"`
	Args []string `json:"args,omitempty"`
}

func say(key string, args ...string) Sentence { return Sentence{Key: key, Args: args} }

// A Board is what a lane has to show for itself.
type Board struct {
	Clicks     int   `json:"clicks"`     // intents of the user
	Arrivals   int   `json:"arrivals"`   // requests that reached the application
	Calls      int   `json:"calls"`      // of the model, as the provider counts them
	Answers    int   `json:"answers"`    // stored
	Charges    int   `json:"charges"`    // that the user is billed
	Tokens     int64 `json:"tokens"`     // billed by the provider
	Micros     int64 `json:"micros"`     // of all charges
	Executions int   `json:"executions"` // at the third party
	Results    int   `json:"results"`    // of effects, as the application has written them down
	Lost       int   `json:"lost"`       // clicks without an answer
}

// Plus adds two boards.
func (b Board) Plus(c Board) Board {
	return Board{
		b.Clicks + c.Clicks, b.Arrivals + c.Arrivals, b.Calls + c.Calls, b.Answers + c.Answers, b.Charges + c.Charges,
		b.Tokens + c.Tokens, b.Micros + c.Micros, b.Executions + c.Executions, b.Results + c.Results, b.Lost + c.Lost,
	}
}

// Figures are the names of a board's numbers that scenarios speak of.
var Figures = []string{"clicks", "arrivals", "calls", "answers", "charges", "executions", "results", "lost"}

// Figure returns the number of that name.
func (b Board) Figure(name string) int {
	switch name {
	case "clicks":
		return b.Clicks
	case "arrivals":
		return b.Arrivals
	case "calls":
		return b.Calls
	case "answers":
		return b.Answers
	case "charges":
		return b.Charges
	case "executions":
		return b.Executions
	case "results":
		return b.Results
	case "lost":
		return b.Lost
	}
	panic("lab: no figure " + name)
}

// A Result is how one run ended.
type Result struct {
	Scenario string `json:"scenario"`
	Seed     uint64 `json:"seed"`
	Naive    Board  `json:"naive"`
	Semel    Board  `json:"semel"`
	// Damage are the figures in which the naive lane is not as it should be.
	Damage []string `json:"damage"`
	// Broken says what does not hold in the right lane: "M03 …" for an invariant of the
	// file, "answers: 2, want 1" for what the scenario expects. Empty is success.
	Broken []string `json:"broken"`
	Facts  string   `json:"facts"` // SHA-256 of what the right lane's file says, without times
}

// Run runs one scenario and tells emit, from one goroutine, what happens. An error
// means that it could not run, which says nothing about either lane. Nothing of it is
// left when Run returns.
func (l *Lab) Run(ctx context.Context, r Run, emit func(Event)) (_ Result, err error) {
	s, ok := Find(r.Scenario)
	if !ok {
		return Result{}, fmt.Errorf("there is no scenario %q", r.Scenario)
	}
	dir, err := os.MkdirTemp("", "semel-lab-*")
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	lanes := make([]*lane, len(Lanes))
	defer func() {
		for _, n := range lanes {
			if n != nil {
				n.close()
			}
		}
	}()
	err = both(func(i int) (err error) {
		lanes[i], err = l.open(ctx, Lanes[i], filepath.Join(dir, string(Lanes[i])), r.Seed)
		return err
	})
	if err != nil {
		return Result{}, err
	}
	emit(Event{Kind: KindReady})
	for i, step := range s.Steps {
		if i > 0 && r.Next != nil {
			select {
			case <-r.Next:
			case <-ctx.Done():
				return Result{}, ctx.Err()
			}
		}
		emit(Event{Kind: KindStep, Step: i, Say: say(step.Say)})
		said, boards := make([]Sentence, len(lanes)), make([]Board, len(lanes))
		err := both(func(n int) (err error) {
			if said[n], err = lanes[n].do(ctx, i, step); err != nil {
				return fmt.Errorf("%s, step %d (%s), %s: %w", s.Name, i+1, step.Do, lanes[n].name, err)
			}
			boards[n], err = lanes[n].board(ctx)
			return err
		})
		if err != nil {
			return Result{}, err
		}
		for n := range lanes {
			emit(Event{Kind: KindOutcome, Lane: Lanes[n], Step: i, Say: said[n], Board: &boards[n]})
		}
	}
	res, err := judge(ctx, s, lanes[0], lanes[1])
	if err != nil {
		return Result{}, err
	}
	res.Scenario, res.Seed = s.Name, r.Seed
	emit(Event{Kind: KindVerdict, Step: len(s.Steps) - 1, Result: &res})
	return res, nil
}

// both does something for each lane at the same time.
func both(do func(i int) error) error {
	errs := make([]error, len(Lanes))
	var all sync.WaitGroup
	for i := range Lanes {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// judge compares the lanes with what the scenario wants, and checks every invariant of
// the right lane's file.
func judge(ctx context.Context, s Scenario, naive, semel *lane) (r Result, err error) {
	r.Damage, r.Broken = []string{}, []string{}
	if r.Naive, err = naive.board(ctx); err != nil {
		return r, err
	}
	if r.Semel, err = semel.board(ctx); err != nil {
		return r, err
	}
	for _, name := range Figures {
		want, judged := s.Want[name]
		if !judged {
			continue
		}
		if got := r.Semel.Figure(name); got != want {
			r.Broken = append(r.Broken, fmt.Sprintf("%s: %d, want %d", name, got, want))
		}
		if r.Naive.Figure(name) != want {
			r.Damage = append(r.Damage, name)
		}
	}
	broken, err := violations(ctx, semel.file)
	if err != nil {
		return r, err
	}
	r.Broken = append(r.Broken, broken...)
	r.Facts, err = semel.facts()
	return r, err
}

// violations says which invariants of a database file do not hold.
func violations(ctx context.Context, file string) (list []string, err error) {
	d, err := db.Open(db.Options{Path: file, ReadOnly: true, Readers: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	checks, err := d.Verify(ctx)
	for _, c := range checks {
		if c.Count > 0 {
			list = append(list, fmt.Sprintf("%s %s: %d, such as %s", c.ID, c.Name, c.Count, c.Samples[0]))
		}
	}
	return list, err
}

// Find returns the scenario of that name.
func Find(name string) (Scenario, bool) {
	i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return Scenarios[i], true
}
