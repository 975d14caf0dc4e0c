package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/views"
)

const (
	commentEvery = 15 * time.Second      // so that no proxy and no client thinks the line is lost
	lookEvery    = 50 * time.Millisecond // at a request that is in nobody's care
)

// A cursor is how far a viewer got: contract, section 6. The zero cursor is the
// beginning.
type cursor struct {
	attempt int64
	offset  int
}

// parseCursor reads an event id; an unusable one is the beginning.
func parseCursor(id string) cursor {
	a, o, ok := strings.Cut(id, ".")
	attempt, err1 := strconv.ParseInt(a, 10, 64)
	offset, err2 := strconv.ParseInt(o, 10, 48)
	if !ok || err1 != nil || err2 != nil || attempt < 0 || offset < 0 {
		return cursor{}
	}
	return cursor{attempt, int(offset)}
}

func (s *server) getStream(w http.ResponseWriter, r *http.Request) error {
	k, err := s.key(r, r.URL.Query().Get("sessionId"))
	if err != nil {
		return err
	}
	req, err := s.DB.Find(r.Context(), k)
	if err != nil {
		return err
	}
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("after")
	}
	at := parseCursor(id)
	if !req.State.Live() {
		rec, err := s.DB.RecordOf(r.Context(), req.ID)
		if err != nil {
			return err
		}
		if id != "" && at == endCursor(rec) {
			cut, err := s.DB.CutShort(r.Context(), req.ID)
			if err != nil {
				return err
			}
			if !cut {
				w.WriteHeader(http.StatusNoContent) // an EventSource stops at this
				return nil
			}
			// Its viewers may have had more text than is left, a byte more for one:
			// that they saw the end is not certain.
		}
	}
	return s.stream(w, r, engine.Result{Request: req}, "", at)
}

// endCursor is the id of the last event of a finished run.
func endCursor(rec chat.Record) cursor { return cursor{rec.Attempt, len(rec.Content) + 1} }

// A viewer is one open stream of one request.
type viewer struct {
	s      *server
	w      http.ResponseWriter
	rc     *http.ResponseController
	ctx    context.Context
	id     int64
	at     cursor
	reason int // bytes of reasoning sent
	state  chat.State
	html   *views.BlockStream // nil: text
	isHTML bool
	buf    []byte    // to be sent; may be shared, so it is only ever appended to
	sentAt time.Time // when something was last sent
	until  time.Time // the deadline for writing
	idle   *time.Timer
}

// stream sends everything of a request so far from the cursor on, then what
// comes, then end or error. source is "" for a stream that is no arrival.
func (s *server) stream(w http.ResponseWriter, r *http.Request, res engine.Result, source chat.Source, at cursor) error {
	if source != "" {
		s.Engine.Answered(res, source, http.StatusOK)
	}
	v := &viewer{
		s: s, w: w, rc: http.NewResponseController(w), ctx: r.Context(), id: res.Request.ID, at: at,
		isHTML: r.URL.Query().Get("as") == "html",
	}
	if v.isHTML {
		v.at = cursor{attempt: at.attempt} // blocks are rendered anew from the first
		v.html = &views.BlockStream{}
	}
	req := res.Request
	s.requestHeaders(w, chat.Record{RequestID: req.Key.RequestID, Attempt: req.Attempt}, res.Decision)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	v.event("accepted", "", map[string]any{"requestId": req.Key.RequestID, "sessionId": req.Key.SessionID, "attempt": req.Attempt})
	if err := v.flush(); err != nil {
		return errHangUp
	}
	v.idle = time.NewTimer(commentEvery)
	defer v.idle.Stop()
	if err := v.run(res.Decision == chat.DecisionReplayed); err != nil {
		return errHangUp
	}
	return nil
}

func (v *viewer) run(replayed bool) error {
	for {
		l := v.s.Engine.Live(v.id)
		if l == nil {
			rec, err := v.s.DB.RecordOf(v.ctx, v.id)
			if err != nil {
				return err
			}
			if !rec.State.Live() {
				rec.FromCache = replayed
				return v.finish(rec)
			}
			// Stored as waiting, in nobody's care for this moment.
			look := time.NewTimer(lookEvery)
			err = v.pause(nil, look.C)
			look.Stop()
			if err != nil {
				return err
			}
			continue
		}
		if err := v.follow(l); err != nil {
			return err
		}
	}
}

// follow sends what a live request has until it is over.
func (v *viewer) follow(l *engine.Live) error {
	for {
		view := l.View()
		if view.Over {
			return nil
		}
		if n := len(view.Text); view.Request.State == chat.StateGenerating && (v.at.offset > n || !usable(view.Text, v.at.offset)) {
			v.at = cursor{}
		}
		v.newAttempt(view.Request.Attempt)
		if view.Request.State != v.state {
			v.state = view.Request.State
			v.event("state", "", map[string]any{"state": v.state})
		}
		v.more(view)
		v.thought(view.Reasoning)
		if err := v.flush(); err != nil {
			return err
		}
		if err := v.pause(view.Changed, nil); err != nil {
			return err
		}
	}
}

// more sends what came of a live text.
func (v *viewer) more(view engine.View) {
	from, to := v.at.offset, len(view.Text)
	switch {
	case from >= to:
	case v.isHTML || len(v.buf) > 0: // in a row with something of this viewer alone
		v.text(string(view.Text[from:]))
	default:
		v.at.offset = to
		v.buf = view.Frame.Encoded(from, to, func() []byte {
			return appendEvent(nil, "delta", db.EventID(v.at.attempt, to), map[string]any{"text": string(view.Text[from:])})
		})
	}
}

// newAttempt tells a viewer of another attempt, or with an unusable cursor, to
// discard what it has.
func (v *viewer) newAttempt(n int64) {
	if n == v.at.attempt {
		return
	}
	reason, err := v.s.DB.AttemptReason(v.ctx, v.id, n)
	if err != nil {
		reason = "unknown"
	}
	v.at = cursor{attempt: n}
	v.reason = 0
	if v.isHTML {
		v.html = &views.BlockStream{}
	}
	v.event("attempt", db.EventID(n, 0), map[string]any{"attempt": n, "reason": reason})
}

// text sends more of the answer's text.
func (v *viewer) text(more string) {
	if more == "" {
		return
	}
	v.at.offset += len(more)
	if v.isHTML {
		v.blocks(v.html.Write(more))
		return
	}
	v.event("delta", db.EventID(v.at.attempt, v.at.offset), map[string]any{"text": more})
}

func (v *viewer) blocks(list []views.Block) {
	for _, b := range list {
		v.event("delta", db.EventID(v.at.attempt, v.at.offset), b)
	}
}

func (v *viewer) thought(all []byte) {
	if len(all) > v.reason {
		v.event("reasoning", "", map[string]any{"text": string(all[v.reason:])})
		v.reason = len(all)
	}
}

// finish sends what is missing of a finished request, and its end.
func (v *viewer) finish(rec chat.Record) error {
	if !usable(rec.Content, v.at.offset) {
		v.at = cursor{}
	}
	v.newAttempt(rec.Attempt)
	v.text(rec.Content[min(v.at.offset, len(rec.Content)):])
	if v.isHTML {
		v.blocks(v.html.Close())
	}
	if rec.Message != nil {
		v.thought([]byte(rec.Message.Reasoning))
	}
	end := endCursor(rec)
	id := db.EventID(end.attempt, end.offset)
	if rec.Error != nil {
		v.event("error", id, rec.Error)
		return v.flush()
	}
	if v.isHTML {
		rec.HTML = views.Markdown(rec.Content)
	}
	v.event("end", id, v.s.priced(rec))
	return v.flush()
}

// usable reports whether offset does not split a character.
func usable[T string | []byte](text T, offset int) bool {
	return offset >= len(text) || utf8.RuneStart(text[offset])
}

// event appends one event to the buffer.
func (v *viewer) event(name, id string, data any) { v.buf = appendEvent(v.buf, name, id, data) }

func appendEvent(buf []byte, name, id string, data any) []byte {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err) // our own types
	}
	buf = fmt.Appendf(buf, "event: %s\n", name)
	if id != "" {
		buf = fmt.Appendf(buf, "id: %s\n", id)
	}
	buf = append(buf, "data: "...)
	buf = append(buf, b...)
	return append(buf, "\n\n"...)
}

// flush sends the buffer. A viewer that does not read is hung up on.
func (v *viewer) flush() error {
	if len(v.buf) == 0 {
		return nil
	}
	v.sentAt = time.Now()
	if v.until.Sub(v.sentAt) < writeTimeout-time.Second { // not each time: it costs as much as the encoding
		v.until = v.sentAt.Add(writeTimeout)
		_ = v.rc.SetWriteDeadline(v.until) // recorders in tests have none
	}
	_, err := v.w.Write(v.buf)
	v.buf = nil // most of what is sent is shared: a buffer of its own would lie idle
	if err != nil {
		return err
	}
	return v.rc.Flush()
}

// pause waits for a change, or for look when that is not nil. When nothing was
// sent for long it sends a comment.
func (v *viewer) pause(changed <-chan struct{}, look <-chan time.Time) error {
	select {
	case <-changed:
		return nil
	case <-look:
		return nil
	case <-v.idle.C:
		silent := time.Since(v.sentAt)
		if silent >= commentEvery {
			v.buf = append(v.buf, ": still here\n\n"...)
			silent = 0
		}
		v.idle.Reset(commentEvery - silent)
		return v.flush()
	case <-v.ctx.Done():
		return v.ctx.Err()
	case <-v.s.closing:
		return errHangUp // a clean close without an end: come again
	}
}
