package llmtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
	"unicode/utf8"
)

// A frame is one event of a stream.
type frame struct {
	event string // "" where the format has none
	data  []byte
	kind  kind
}

type kind int

const (
	around kind = iota // neither of the following
	piece              // carries something of the answer
	ending             // says that the answer has ended
)

func (f frame) bytes(keepAlive bool) []byte {
	var b bytes.Buffer
	if f.data == nil {
		return nil
	}
	if keepAlive {
		b.WriteString(": still at it\n\n")
	}
	if f.event != "" {
		b.WriteString("event: " + f.event + "\n")
	}
	b.WriteString("data: ")
	b.Write(f.data)
	b.WriteString("\n\n")
	return b.Bytes()
}

// errCut is a line that ended as its script wanted.
var errCut = errors.New("the line was cut")

// playCall answers one prompt. The error is errCut, or says why the client did
// not get what it was to get.
func (s *Server) playCall(ctx context.Context, w http.ResponseWriter, c *call) error {
	var stored *run
	if c.background && c.Redirect == "" && c.Refuse == nil && !c.HTML {
		stored = s.startRun(c) // its end is nobody's business here
	} else if c.Late {
		s.stall()
		<-ctx.Done()
		if !s.closing.Load() {
			s.ran()
		}
		return ctx.Err()
	}
	if err := pause(ctx, c.HeaderDelay); err != nil {
		return err
	}
	if c.Hang == BeforeHeaders {
		if err := s.hang(ctx); err != nil {
			return err
		}
	}
	l := &line{w: w, call: c}
	switch {
	case c.Cut != 0 && c.CutAt < 0:
		return l.cut()
	case c.Redirect != "":
		w.Header().Set("Location", c.Redirect)
		w.WriteHeader(http.StatusTemporaryRedirect) // keeps the method and the body
		return nil
	case c.Refuse != nil:
		s.refuse(w, *c.Refuse)
		return nil
	case c.HTML:
		if err := s.open(ctx, l, "text/html; charset=utf-8"); err != nil {
			return err
		}
		return l.close(l.write([]byte("<!DOCTYPE html><title>Sign in</title><p>Sign in to use this network.</p>")))
	case stored != nil && (!c.stream || c.JSON):
		if err := s.open(ctx, l, "application/json"); err != nil {
			return err
		}
		return l.close(l.write(encode(s.state(stored))))
	case !c.stream || c.JSON:
		return s.playWhole(ctx, l)
	}
	if err := s.open(ctx, l, "text/event-stream"); err != nil {
		return err
	}
	if stored != nil {
		return l.close(s.follow(ctx, stored, -1, l))
	}
	err := s.run(ctx, c, s.wire.frames(c), func(f frame) error { return l.write(f.bytes(c.KeepAlive)) })
	return l.close(err)
}

// playWhole answers with one JSON document, as late as its last piece would come.
func (s *Server) playWhole(ctx context.Context, l *line) error {
	c := l.call
	doc := encode(s.wire.whole(c))
	err := s.run(ctx, c, s.wire.frames(c), func(f frame) error {
		if c.ErrorFrame != nil {
			doc = encode(s.wire.failure(*c.ErrorFrame)) // if run comes that far, which it does
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.open(ctx, l, "application/json"); err != nil {
		return err
	}
	return l.close(l.write(doc))
}

// open sends the headers of a call, after which it may be to fall silent.
func (s *Server) open(ctx context.Context, l *line, contentType string) error {
	l.open(contentType)
	if l.call.Hang == AfterHeaders {
		return s.hang(ctx)
	}
	return nil
}

// run is the model at work: it hands out frames when they are due. It ends with
// the error of give or of ctx.
func (s *Server) run(ctx context.Context, c *call, frames []frame, give func(frame) error) error {
	given, pieces, hung := 0, 0, false
	var due time.Time // of the next piece
	for _, f := range frames {
		if f.kind != around {
			if c.ErrorFrame != nil && (pieces >= c.ErrorAfter || f.kind == ending) {
				return give(s.wire.errorFrame(c, *c.ErrorFrame, given))
			}
			if c.Hang == AfterPieces && !hung && (pieces >= c.HangAfter || f.kind == ending) {
				hung = true
				if err := s.hang(ctx); err != nil {
					return err
				}
			}
		}
		if f.kind == piece {
			switch {
			case pieces == 0:
				due = time.Now().Add(c.TokenDelay)
			case c.Rate > 0:
				due = due.Add(time.Duration(float64(time.Second) / c.Rate))
			}
			if err := pause(ctx, time.Until(due)); err != nil {
				return err
			}
			pieces++
		}
		if err := give(f); err != nil {
			return err
		}
		given++
	}
	s.ran()
	return nil
}

func (s *Server) ran() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.executed++
}

// hang waits for Release.
func (s *Server) hang(ctx context.Context) error {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	s.stall()
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) stall() {
	select {
	case s.stalled <- struct{}{}:
	default: // nobody counts that many
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A line is the body of one response, with everything that a script does to it.
type line struct {
	w       http.ResponseWriter
	call    *call
	zip     *gzip.Writer
	written int
}

// open sends the headers.
func (l *line) open(contentType string) {
	l.w.Header().Set("Content-Type", contentType)
	if l.call.Gzip {
		l.w.Header().Set("Content-Encoding", "gzip")
		l.zip = gzip.NewWriter(wireWriter{l})
	}
	l.w.WriteHeader(http.StatusOK)
	http.NewResponseController(l.w).Flush() // a client that is gone shows at the next write
}

// write sends b in as many writes as the script wants.
func (l *line) write(b []byte) error {
	for len(b) > 0 {
		n := l.step(b)
		if err := l.send(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// step returns how much of b goes into the next write.
func (l *line) step(b []byte) int {
	switch {
	case l.call.OneByte:
		return 1
	case l.call.SplitRunes:
		for i := range b {
			if i > 0 && !utf8.RuneStart(b[i]) {
				return i
			}
		}
	}
	return len(b)
}

func (l *line) send(b []byte) error {
	if l.zip == nil {
		return l.sendRaw(b)
	}
	if _, err := l.zip.Write(b); err != nil {
		return err
	}
	return l.zip.Flush()
}

// sendRaw sends b as it is, up to where the line is to be cut.
func (l *line) sendRaw(b []byte) error {
	cuts := l.call.Cut != 0 && l.written+len(b) > l.call.CutAt
	if cuts {
		b = b[:max(0, l.call.CutAt-l.written)]
	}
	l.written += len(b)
	if _, err := l.w.Write(b); err != nil {
		return err
	}
	if err := http.NewResponseController(l.w).Flush(); err != nil {
		return err
	}
	if cuts {
		return l.cut()
	}
	return nil
}

// close ends the body after err, which it returns. A line that was to be cut
// behind the last byte is cut now.
func (l *line) close(err error) error {
	if err != nil {
		return err
	}
	if l.zip != nil {
		if err := l.zip.Close(); err != nil {
			return err
		}
	}
	if l.call.Cut != 0 {
		return l.cut()
	}
	return nil
}

func (l *line) cut() error {
	if l.call.Cut == CutClean {
		return errCut
	}
	c, _, err := http.NewResponseController(l.w).Hijack()
	if err != nil {
		return err
	}
	if l.call.Cut == CutReset {
		c.(*net.TCPConn).SetLinger(0) // else it is closed, which ends the line as well
	}
	c.Close()
	return errCut
}

// A wireWriter writes to a line what is compressed.
type wireWriter struct{ l *line }

var _ io.Writer = wireWriter{}

func (w wireWriter) Write(b []byte) (int, error) {
	if err := w.l.sendRaw(b); err != nil {
		return 0, err
	}
	return len(b), nil
}
