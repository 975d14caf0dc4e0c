package engine

import (
	"time"

	"semel/chat"
)

// mintedWithin is how young an id is that is taken for new.
const mintedWithin = 10 * time.Second

// minted reports whether the id was made just now by a clock like ours, and did not
// arrive since. It may err either way: that costs a look, or an acceptance in vain.
func (e *Engine) minted(k chat.Key) bool {
	at, timed := chat.IDTime(k.RequestID)
	if !timed || time.Since(at).Abs() > mintedWithin {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.recent.has(k)
}

// A recently is a set that forgets: it has what was added last, at least half of the
// most that it holds.
type recently struct{ now, before map[chat.Key]struct{} }

const recentlyMost = 8192

func (s *recently) add(k chat.Key) {
	if len(s.now) >= recentlyMost/2 || s.now == nil {
		s.before, s.now = s.now, make(map[chat.Key]struct{})
	}
	s.now[k] = struct{}{}
}

func (s *recently) has(k chat.Key) bool {
	_, now := s.now[k]
	_, before := s.before[k]
	return now || before
}
