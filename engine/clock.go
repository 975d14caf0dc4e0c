package engine

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A clock knows whether the wall clock can be believed: not when it is behind
// what is stored, and not after it has jumped by more than an hour against the
// monotonic clock (contract, section 7).
type clock struct {
	start  time.Time    // carries both readings
	newest atomic.Int64 // milliseconds: when the newest request was stored
}

const (
	maxJump    = time.Hour
	clockSlack = 2 * time.Second // what a clock that is set right may go back
)

func newClock(newest time.Time) *clock {
	c := &clock{start: time.Now()}
	c.saw(newest)
	return c
}

// saw takes note of a stored row.
func (c *clock) saw(stored time.Time) {
	if ms := stored.UnixMilli(); ms > c.newest.Load() {
		c.newest.Store(ms)
	}
}

// trusted returns nil when now can be believed.
func (c *clock) trusted(now time.Time) error {
	if newest := time.UnixMilli(c.newest.Load()); now.Before(newest.Add(-clockSlack)) {
		return fmt.Errorf("the clock says %s, which is before the newest stored request (%s): set the clock",
			now.UTC().Format(time.RFC3339), newest.UTC().Format(time.RFC3339))
	}
	elapsed := now.Sub(c.start)                // monotonic
	wall := now.Round(0).Sub(c.start.Round(0)) // wall
	if jump := (wall - elapsed).Abs(); jump > maxJump {
		return fmt.Errorf("the clock has jumped by %s since the start: check it, then restart", jump.Round(time.Second))
	}
	return nil
}
