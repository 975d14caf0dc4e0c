package engine

import (
	"sync"

	"semel/chat"
)

// An Event says that something of a user changed. It is a hint: whoever gets it
// reads the database.
type Event struct {
	Type      string     `json:"type"` // "request" or "conversation"
	SessionID string     `json:"sessionId"`
	RequestID string     `json:"requestId,omitempty"`
	State     chat.State `json:"state,omitempty"`
	Attempt   int64      `json:"attempt,omitempty"`
}

// A Hub hands events to whoever watches. A watcher that is slow loses none that
// matter: of each request and conversation it gets the last.
type Hub struct {
	mu       sync.Mutex
	watchers map[int64]map[*Watcher]bool // by user; everybody's under everyone
	closed   bool
}

// A Watcher is one open feed.
type Watcher struct {
	hub  *Hub
	user int64
	wake chan struct{} // capacity 1

	pending map[[2]string]Event // under hub.mu
	order   [][2]string         // under hub.mu
}

func newHub() *Hub { return &Hub{watchers: map[int64]map[*Watcher]bool{}} }

// everyone stands for all users; no user has this number.
const everyone = 0

// WatchAll opens a feed that is woken by whatever happens to anybody, and says no more
// than that: Take has nothing. The caller must Close it.
func (h *Hub) WatchAll() *Watcher { return h.Watch(everyone) }

// Watch opens a feed of a user's events. The caller must Close it.
func (h *Hub) Watch(user int64) *Watcher {
	w := &Watcher{hub: h, user: user, wake: make(chan struct{}, 1), pending: map[[2]string]Event{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(w.wake)
		return w
	}
	if h.watchers[user] == nil {
		h.watchers[user] = map[*Watcher]bool{}
	}
	h.watchers[user][w] = true
	return w
}

// Wake is readable when Take has something, and closed when the engine stops.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take returns the events since the last Take, in order.
func (w *Watcher) Take() []Event {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	var list []Event
	for _, k := range w.order {
		list = append(list, w.pending[k])
		delete(w.pending, k)
	}
	w.order = w.order[:0]
	return list
}

// Close ends the feed.
func (w *Watcher) Close() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	delete(w.hub.watchers[w.user], w)
	if len(w.hub.watchers[w.user]) == 0 {
		delete(w.hub.watchers, w.user)
	}
}

func (h *Hub) publish(user int64, ev Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers[everyone] {
		w.tell()
	}
	for w := range h.watchers[user] {
		k := [2]string{ev.SessionID, ev.RequestID}
		if _, ok := w.pending[k]; !ok {
			w.order = append(w.order, k)
		}
		w.pending[k] = ev
		w.tell()
	}
}

// tell wakes whoever watches, once for all that came since.
func (w *Watcher) tell() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (h *Hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, ws := range h.watchers {
		for w := range ws {
			close(w.wake)
		}
	}
	h.watchers = map[int64]map[*Watcher]bool{}
}
