package engine

import (
	"fmt"
	"time"
)

// A clock knows whether the wall clock can be believed: not when it is behind
// what is stored, and not after it has jumped by more than an hour against the
// monotonic clock (contract, section 7).
type clock struct {
	start  time.Time // carries both readings
	newest time.Time // the newest stored row when we started
}

const maxJump = time.Hour

func newClock(newest time.Time) *clock { return &clock{start: time.Now(), newest: newest} }

// trusted returns nil when now can be believed.
func (c *clock) trusted(now time.Time) error {
	if now.Before(c.newest) {
		return fmt.Errorf("the clock says %s, which is before the newest stored request (%s): set the clock",
			now.UTC().Format(time.RFC3339), c.newest.UTC().Format(time.RFC3339))
	}
	elapsed := now.Sub(c.start)                // monotonic
	wall := now.Round(0).Sub(c.start.Round(0)) // wall
	if jump := (wall - elapsed).Abs(); jump > maxJump {
		return fmt.Errorf("the clock has jumped by %s since the start: check it, then restart", jump.Round(time.Second))
	}
	return nil
}
