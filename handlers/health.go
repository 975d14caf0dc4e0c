package handlers

import (
	"context"
	"net/http"
	"time"

	"semel/chat"
)

// healthz says that the process answers.
func (s *server) healthz(w http.ResponseWriter, r *http.Request) error {
	s.writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	return nil
}

// readyz says whether traffic should come: the database can be written, the
// clock can be believed, there is room on the disk, nothing is stopping.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	err := s.Engine.Ready(ctx)
	if err == nil {
		err = s.Ops.Ready()
	}
	if err != nil {
		p := refuse(http.StatusServiceUnavailable, "not_ready", chat.RetrySameID, err.Error())
		p.RetryAfter = 2 * time.Second
		return p
	}
	said := map[string]any{"status": "ready"}
	if has, err := s.hasAccounts(r.Context()); err == nil && !has && !s.Public {
		said["counters"] = s.Engine.Counters() // of what people do here: nobody else's business
	}
	s.writeJSON(w, http.StatusOK, said)
	return nil
}

// getEvents is the feed of a tab: what happens to this user's conversations and
// runs. It begins with the epoch of the file; a page of another epoch reloads.
func (s *server) getEvents(w http.ResponseWriter, r *http.Request) error {
	in, err := s.DB.Instance(r.Context())
	if err != nil {
		return err
	}
	watch := s.Engine.Events().Watch(s.user(r))
	defer watch.Close()
	v := s.feed(w, r)
	if r.Method == http.MethodHead {
		return nil
	}
	v.event("hello", "", map[string]any{"epoch": in.Epoch, "serverTime": chat.Stamp{Time: time.Now()}})
	if err := v.flush(); err != nil {
		return errHangUp
	}
	comment := time.NewTicker(commentEvery)
	defer comment.Stop()
	for {
		select {
		case _, open := <-watch.Wake():
			if !open {
				return nil
			}
			for _, ev := range watch.Take() {
				v.event(ev.Type, "", ev)
			}
		case <-comment.C:
			v.buf = append(v.buf, ": still here\n\n"...)
		case <-r.Context().Done():
			return errHangUp
		case <-s.closing:
			return nil
		}
		if err := v.flush(); err != nil {
			return errHangUp
		}
	}
}

// feed begins the answer of a feed.
func (s *server) feed(w http.ResponseWriter, r *http.Request) *viewer {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return &viewer{s: s, w: w, rc: http.NewResponseController(w), ctx: r.Context()}
}

const (
	opsEvery = 500 * time.Millisecond // between two events of the feed of operations, however much happens
	opsStale = 5 * time.Second        // figures are that old at most, where nothing happens
)

// getOpsEvents is the feed of a tab of operations: that of its user, and "changed" when
// anything happened to anybody, at most twice a second. It says no more than that:
// whoever hears it reads the page again.
func (s *server) getOpsEvents(w http.ResponseWriter, r *http.Request) error {
	in, err := s.DB.Instance(r.Context())
	if err != nil {
		return err
	}
	own, all := s.Engine.Events().Watch(s.user(r)), s.Engine.Events().WatchAll()
	defer own.Close()
	defer all.Close()
	v := s.feed(w, r)
	if r.Method == http.MethodHead {
		return nil
	}
	v.event("hello", "", map[string]any{"epoch": in.Epoch, "serverTime": chat.Stamp{Time: time.Now()}})
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		if err := v.flush(); err != nil {
			return errHangUp
		}
		// First the pause, in which events gather; then the wait for one.
		t.Reset(opsEvery)
		for paused, wake := true, (<-chan struct{})(nil); ; {
			select {
			case _, open := <-wake:
				if !open {
					return nil
				}
			case <-t.C:
				if paused {
					paused, wake = false, all.Wake()
					t.Reset(opsStale)
					continue
				}
			case <-r.Context().Done():
				return errHangUp
			case <-s.closing:
				return nil
			}
			break
		}
		for _, ev := range own.Take() {
			v.event(ev.Type, "", ev)
		}
		v.event("changed", "", map[string]any{})
	}
}
