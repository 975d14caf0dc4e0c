package ops

import (
	"context"
	"errors"
	"time"

	"semel/chat"
	"semel/db"
)

// A CheckUp is what the last check of the invariants found. It is of this life: what an
// earlier one found says nothing of what became of the file since.
type CheckUp struct {
	EverySeconds float64    `json:"everySeconds"` // 0: only when asked
	Running      bool       `json:"running"`
	Done         int        `json:"done"` // invariants that the one that runs has been through
	At           chat.Stamp `json:"at"`   // when it began; null before the first
	TookMS       int64      `json:"tookMs"`
	Checks       int        `json:"checks"`
	Violations   int        `json:"violations"` // invariants that do not hold
	Violated     []string   `json:"violated"`
	Intents      int64      `json:"intents"` // accepted when it began: all of them were looked at
	Share        float64    `json:"share"`   // of those accepted by now
	Error        string     `json:"error"`   // why the newest could not run; the rest is of the one before

	miscounted bool // the running counts are not those of the rows
}

// ErrVerifying: a check is running already.
var ErrVerifying = errors.New("a check is running already")

// Verify runs every invariant and keeps what it found. One runs at a time. Errors:
// ErrVerifying.
//
// Each invariant has a read transaction of its own, so that the log beside the file
// does not grow for the whole of it. gently leaves as much time to others between two
// of them as the last one took.
func (m *Monitor) Verify(ctx context.Context, gently bool) ([]db.Check, error) {
	if !m.verifying.TryLock() {
		return nil, ErrVerifying
	}
	defer m.verifying.Unlock()
	m.set(func() { m.checking, m.done = true, 0 })
	defer m.set(func() { m.checking = false })
	started := time.Now()
	checks, intents, err := m.verify(ctx, gently)
	if err != nil {
		if ctx.Err() == nil {
			m.set(func() { m.last.Error = err.Error() })
		}
		return nil, err
	}
	c := CheckUp{At: chat.Stamp{Time: started}, TookMS: time.Since(started).Milliseconds(), Checks: len(checks), Violated: []string{}, Intents: intents}
	for _, k := range checks {
		if k.Count > 0 {
			c.Violations++
			c.Violated = append(c.Violated, k.ID)
			c.miscounted = c.miscounted || k.ID == db.CountsInvariant
			m.o.Log.Error("an invariant is violated", "id", k.ID, "name", k.Name, "count", k.Count, "samples", k.Samples)
		}
	}
	m.o.Log.Info("checked", "invariants", c.Checks, "violated", c.Violations, "requests", intents, "took", time.Since(started).Round(time.Millisecond).String())
	m.set(func() { m.last = c })
	return checks, nil
}

func (m *Monitor) verify(ctx context.Context, gently bool) (checks []db.Check, intents int64, err error) {
	n, err := m.o.DB.Counts(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, inv := range db.Invariants {
		k, err := m.o.DB.Check(ctx, inv)
		if err != nil {
			return nil, 0, err
		}
		checks = append(checks, k)
		m.set(func() { m.done = len(checks) })
		if !gently {
			continue
		}
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-time.After(k.Took):
		}
	}
	return checks, n.Intents, nil
}

// Begin begins a check that somebody asked for and does not wait for; Stop gives it up.
// One that runs already will do.
func (m *Monitor) Begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checking || m.ctx.Err() != nil {
		return
	}
	m.checking, m.done = true, 0 // said before it is so: who looks now sees that it begins
	m.running.Go(func() {
		if _, err := m.Verify(m.ctx, false); err != nil && !errors.Is(err, ErrVerifying) && m.ctx.Err() == nil {
			m.o.Log.Error("the invariants could not be checked", "error", err)
		}
	})
}

func (m *Monitor) set(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
}

// scheduled is a check that nobody asked for.
func (m *Monitor) scheduled(ctx context.Context) {
	_, err := m.Verify(ctx, true)
	if err != nil && !errors.Is(err, ErrVerifying) && ctx.Err() == nil {
		m.o.Log.Error("the invariants could not be checked", "error", err)
	}
}
