package lab

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// A gate stands before the third party and keeps a delivery on its way there, or its
// answer on the way back, so that an application can be killed at that moment.
type gate struct {
	next http.Handler

	mu      sync.Mutex // guards what follows
	waiting *waiting   // for the next delivery, nil for none
	all     []*waiting
}

// A waiting keeps one delivery.
type waiting struct {
	worked  bool          // it is kept after it was executed, not before
	reached chan struct{} // closed when it is kept
	let     chan struct{} // closed when it goes on
	once    sync.Once
}

func (w *waiting) release() { w.once.Do(func() { close(w.let) }) }

// keepNext keeps the next delivery, before or after it is executed.
func (g *gate) keepNext(worked bool) *waiting {
	w := &waiting{worked: worked, reached: make(chan struct{}), let: make(chan struct{})}
	g.mu.Lock()
	g.waiting, g.all = w, append(g.all, w)
	g.mu.Unlock()
	return w
}

// open lets everything go on.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.all {
		w.release()
	}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var kept *waiting
	if strings.HasPrefix(r.URL.Path, "/sign") || strings.HasPrefix(r.URL.Path, "/void") {
		g.mu.Lock()
		kept, g.waiting = g.waiting, nil
		g.mu.Unlock()
	}
	if kept == nil {
		g.next.ServeHTTP(w, r)
		return
	}
	if !kept.worked {
		// What was not heard is not executed: its sender is dead before it goes on.
		close(kept.reached)
		<-kept.let
		panic(http.ErrAbortHandler)
	}
	answer := httptest.NewRecorder()
	g.next.ServeHTTP(answer, r)
	close(kept.reached)
	<-kept.let
	panic(http.ErrAbortHandler)
}
