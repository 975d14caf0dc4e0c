package lab

import (
	"net/http"
	"net/http/httptest"
	"sync"
)

// A gate stands before the third party. It keeps a delivery on its way there, or the
// answer to it on the way back, so that an application can be killed at that moment; and
// it can take an answer away.
type gate struct {
	next http.Handler

	mu   sync.Mutex // guards what follows
	path string     // of the delivery that is meant next, "" for none
	kept *kept      // what becomes of it; nil: its answer is 500
	work bool       // it is executed before it is kept
	all  []*kept
}

// A kept is a thing on its way that goes no further for now.
type kept struct {
	reached  chan struct{} // closed when it is there
	let      chan struct{} // closed when it goes on
	arrived  sync.Once
	released sync.Once
}

func newKept() *kept { return &kept{reached: make(chan struct{}), let: make(chan struct{})} }

func (k *kept) arrive() { k.arrived.Do(func() { close(k.reached) }) }

func (k *kept) release() { k.released.Do(func() { close(k.let) }) }

// keepNext keeps the next delivery to path, before or after it is executed, and says
// when it is there. Whoever sent it hears nothing of it.
func (g *gate) keepNext(path string, work bool) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.path, g.kept, g.work = path, newKept(), work
	g.all = append(g.all, g.kept)
	return g.kept.reached
}

// breakNext lets the next delivery to path be executed and answered with 500.
func (g *gate) breakNext(path string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.path, g.kept, g.work = path, nil, true
}

// release lets go what is kept.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range g.all {
		k.release()
	}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	meant, k, work := g.path != "" && r.URL.Path == g.path, g.kept, g.work
	if meant {
		g.path = ""
	}
	g.mu.Unlock()
	if !meant {
		g.next.ServeHTTP(w, r)
		return
	}
	if work {
		g.next.ServeHTTP(httptest.NewRecorder(), r)
	}
	if k == nil {
		http.Error(w, "executed, and then something went wrong", http.StatusInternalServerError)
		return
	}
	k.arrive()
	<-k.let
	panic(http.ErrAbortHandler)
}
