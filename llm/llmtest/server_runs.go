package llmtest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// A run is a response that the provider keeps and that goes on by itself
// (https://developers.openai.com/api/docs/guides/background). The server's mutex
// guards what follows call.
type run struct {
	call    *call
	cancel  context.CancelFunc
	frames  []frame       // so far
	more    chan struct{} // closed and made anew when there is more
	ended   bool
	status  string
	failure *Failure
	recuts  int // streams that were resumed and cut
	asked   int // questions that were refused
}

// startRun begins a run, which nobody's leaving ends.
func (s *Server) startRun(c *call) *run {
	ctx, cancel := context.WithCancel(s.ctx)
	r := &run{call: c, cancel: cancel, more: make(chan struct{}), status: "queued"}
	s.mu.Lock()
	s.runs[c.id] = r
	s.working++
	s.mu.Unlock()
	s.done.Go(func() {
		defer s.rest()
		defer cancel()
		err := s.run(ctx, c, s.wire.frames(c), func(f frame) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if r.ended {
				return context.Canceled
			}
			if r.frames = append(r.frames, f); len(r.frames) > 2 { // created, queued
				r.status = "in_progress"
			}
			r.wake()
			return nil
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err != nil || r.ended:
			return // cancelled, or the server is
		case c.ErrorFrame != nil:
			r.status, r.failure = "failed", c.ErrorFrame
		default:
			r.status = c.responseStatus()
		}
		r.ended = true
		r.wake()
	})
	return r
}

// wake tells whoever follows that there is more.
func (r *run) wake() {
	close(r.more)
	r.more = make(chan struct{})
}

// follow writes the events of r after the one numbered n, as they come, to the end.
func (s *Server) follow(ctx context.Context, r *run, n int, l *line) error {
	for {
		s.mu.Lock()
		frames, more, ended := r.frames[min(n+1, len(r.frames)):], r.more, r.ended
		s.mu.Unlock()
		for _, f := range frames {
			if err := l.write(f.bytes(r.call.KeepAlive)); err != nil {
				return err
			}
			n++
		}
		if ended {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// state is what GET says of r.
func (s *Server) state(r *run) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.status == "completed" || r.status == "incomplete" {
		return s.wire.whole(r.call)
	}
	return r.call.response(r.status, r.failure)
}

// serveRun answers what is asked of a stored run, below /responses/.
func (s *Server) serveRun(w http.ResponseWriter, req *http.Request, path string) {
	id, verb, _ := strings.Cut(path, "/")
	s.mu.Lock()
	r := s.runs[id]
	var refused bool
	if r != nil && r.asked < r.call.AskFails {
		r.asked++
		refused = true
	}
	s.mu.Unlock()
	switch {
	case r == nil || r.call.Forgets:
		s.refuse(w, Failure{Status: http.StatusNotFound, Message: fmt.Sprintf("Response with id '%s' not found.", id)})
	case refused:
		s.refuse(w, Failure{Status: http.StatusServiceUnavailable})
	case req.Method == http.MethodPost && verb == "cancel":
		s.cancelRun(r)
		writeJSON(w, http.StatusOK, s.state(r))
	case req.Method == http.MethodGet && verb == "" && req.URL.Query().Get("stream") != "true":
		writeJSON(w, http.StatusOK, s.state(r))
	case req.Method == http.MethodGet && verb == "":
		s.resume(w, req, r)
	default:
		s.refuse(w, Failure{Status: http.StatusMethodNotAllowed})
	}
}

// cancelRun ends a run that has not ended.
func (s *Server) cancelRun(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ended {
		return
	}
	r.ended, r.status = true, "cancelled"
	r.wake()
	r.cancel()
}

// resume streams the events of a run again.
func (s *Server) resume(w http.ResponseWriter, req *http.Request, r *run) {
	after := -1
	if v := req.URL.Query().Get("starting_after"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			s.refuse(w, Failure{Status: http.StatusBadRequest, Message: "Invalid starting_after."})
			return
		}
		after = n
	}
	if r.call.NoResume || !r.call.stream {
		s.refuse(w, Failure{Status: http.StatusBadRequest, Message: "This response cannot be streamed."})
		return
	}
	c := *r.call // for how it is written
	s.mu.Lock()
	if r.recuts++; r.recuts > c.CutAgain {
		c.Cut = 0
	}
	s.mu.Unlock()
	l := &line{w: w, call: &c}
	l.open("text/event-stream")
	l.close(s.follow(req.Context(), r, after, l)) // the client may be gone
}
