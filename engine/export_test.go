package engine

import (
	"fmt"
	"time"

	"semel/chat"
)

// Minted reports whether an arrival with this key would be taken for new unseen.
func (e *Engine) Minted(k chat.Key) bool { return e.minted(k) }

// Idle returns what the engine still holds when nothing waits for an answer: it
// should be nothing.
func (e *Engine) Idle() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	slots, ready := 0, 0
	for _, m := range e.roster.Load().byName {
		slots += m.slots
		ready += len(m.ready) + len(m.turn)
	}
	slots += e.gone.slots
	if len(e.sched.conversations)+len(e.sched.running)+e.sched.waiting+len(e.lives)+len(e.accepting)+slots+ready != 0 {
		return fmt.Errorf("%d conversations, %d users running, %d waiting, %d lives, %d acceptances, %d slots, %d ready",
			len(e.sched.conversations), len(e.sched.running), e.sched.waiting, len(e.lives), len(e.accepting), slots, ready)
	}
	return nil
}

// ForgetReaper makes the reaper's last round that long ago.
func (e *Engine) ForgetReaper(d time.Duration) {
	then := time.Now().Add(-d)
	e.reaped.Store(&then)
}
