//go:build linux

package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
)

// The usual way to show one stream to many, for comparison: a hub keeps a
// buffered channel a viewer and sends every event to each of them; a viewer's
// handler marshals it, writes it and flushes it. No database, no attempts, no
// records, no deadlines: it does less than Semel does.

// A hubEvent is a piece of a text, and how long the text is with it.
type hubEvent struct {
	Text string `json:"text"`
	end  int
}

// A hub is one text that grows, and whoever watches it.
type hub struct {
	mu      sync.Mutex
	text    []byte
	viewers map[chan hubEvent]bool
}

// hubBuffer is how many events a viewer may be behind before it is hung up on.
const hubBuffer = 256

func (h *hub) publish(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, text...)
	ev := hubEvent{Text: text, end: len(h.text)}
	for c := range h.viewers {
		select {
		case c <- ev:
		default:
			delete(h.viewers, c)
			close(c)
		}
	}
}

// join returns what there is so far and a channel of what comes.
func (h *hub) join() (hubEvent, chan hubEvent) {
	c := make(chan hubEvent, hubBuffer)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.viewers[c] = true
	return hubEvent{Text: string(h.text), end: len(h.text)}, c
}

func (h *hub) leave(c chan hubEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, c)
}

// hubForBench serves streams that the talk fills: GET /{number}.
func hubForBench(_ testing.TB, s benchServer) (http.Handler, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	hubs := make([]*hub, s.Talk.Streams)
	var talks sync.WaitGroup
	for i := range hubs {
		h := &hub{viewers: map[chan hubEvent]bool{}}
		hubs[i] = h
		talks.Go(func() { s.Talk.say(ctx, i, h.publish) })
	}
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			next.ServeHTTP(w, r)
		})
	})
	r.Get("/{number}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(chi.URLParam(r, "number"))
		if err != nil || n < 0 || n >= len(hubs) {
			http.NotFound(w, r)
			return
		}
		hubs[n].serve(w, r)
	})
	return r, func() { cancel(); talks.Wait() }
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	send := func(ev hubEvent) error {
		b, err := json.Marshal(ev)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: delta\nid: %d\ndata: %s\n\n", ev.end, b); err != nil {
			return err
		}
		return rc.Flush()
	}
	sofar, c := h.join()
	defer h.leave(c)
	if send(sofar) != nil {
		return
	}
	silence := time.NewTicker(15 * time.Second)
	defer silence.Stop()
	for {
		select {
		case ev, ok := <-c:
			if !ok || send(ev) != nil {
				return
			}
		case <-silence.C:
			if _, err := fmt.Fprint(w, ": still here\n\n"); err != nil || rc.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
