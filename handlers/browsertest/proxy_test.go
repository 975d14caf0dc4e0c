package browsertest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A proxy stands between the browser and the server and loses what it is told to
// lose. It adds no header: the server sees the browser.
type proxy struct {
	addr    string
	backend atomic.Value // host:port; a restarted server has another
	server  *http.Server
	client  *http.Transport
	cut     atomic.Bool // offline: every connection is reset

	mu    sync.Mutex
	fault func(exchange) fault  // under mu
	sent  []exchange            // under mu; everything but GET
	conns map[net.Conn]struct{} // under mu
	open  int                   // under mu; event streams
}

// An exchange is one request as the proxy sees it.
type exchange struct {
	Method, Path string
	RequestID    string // of a chat message
	Body         string
}

// A fault is what is done to an exchange; the zero fault is nothing.
type fault struct {
	Hold   <-chan struct{} // forward it once this is closed
	Late   <-chan struct{} // forward it, and reply once this is closed
	Delay  time.Duration   // forward it later
	Copies int             // forward it so many times more, all at once
	Drop   bool            // forward it, and reset the connection instead of replying
	Cut    bool            // forward it, and reset the connection in the middle of the reply
}

func newProxy(t *testing.T, backend string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		addr: listener.Addr().String(), conns: map[net.Conn]struct{}{},
		client: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	}
	p.backend.Store(backend)
	p.server = &http.Server{Handler: p, ConnState: p.track}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.server.Serve(listener) // ends with Close
	}()
	t.Cleanup(func() {
		_ = p.server.Close()
		<-done
	})
	return p
}

func (p *proxy) track(c net.Conn, s http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s {
	case http.StateNew:
		p.conns[c] = struct{}{}
		if p.cut.Load() {
			reset(c)
		}
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, c)
	}
}

// reset closes a connection as a cable that is cut does.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// online lets connections through, or resets those there are and those to come.
func (p *proxy) online(online bool) {
	p.cut.Store(!online)
	if !online {
		p.hangUp()
	}
}

// hangUp resets every connection there is.
func (p *proxy) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

// do sets what is done to exchanges from now on; nil does nothing.
func (p *proxy) do(f func(exchange) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// lose does f to the next n messages.
func (p *proxy) lose(n int, f fault) {
	left := n // under p.mu, which is held where faults are asked for
	p.do(func(e exchange) fault {
		if e.RequestID == "" || left == 0 {
			return fault{}
		}
		left--
		return f
	})
}

// streams returns how many event streams are open.
func (p *proxy) streams() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

func (p *proxy) streaming(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += n
}

// posts returns what was sent to a path, of all requests where id is "".
func (p *proxy) posts(path, id string) (list []exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.sent {
		if e.Path == path && (id == "" || e.RequestID == id) {
			list = append(list, e)
		}
	}
	return list
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	e := exchange{Method: r.Method, Path: r.URL.Path, Body: string(body)}
	if r.Method == http.MethodPost && r.URL.Path == "/api/chat" {
		var m struct{ RequestID string }
		_ = json.Unmarshal(body, &m) // a body of another kind has none
		e.RequestID = m.RequestID
	}
	var f fault
	p.mu.Lock()
	if r.Method != http.MethodGet {
		p.sent = append(p.sent, e)
	}
	if p.fault != nil {
		f = p.fault(e)
	}
	p.mu.Unlock()
	ctx := r.Context()
	if f.Drop || f.Cut || f.Late != nil {
		ctx = context.Background() // what was forwarded arrives whole
	}
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-ctx.Done():
			return
		}
	}
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-ctx.Done():
			return
		}
	}
	var copies sync.WaitGroup
	for range f.Copies {
		copies.Go(func() {
			if res, err := p.forward(ctx, r, body); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
	defer copies.Wait()
	res, err := p.forward(ctx, r, body)
	if err != nil {
		hijackAndReset(w)
		return
	}
	defer res.Body.Close()
	if f.Late != nil {
		select {
		case <-f.Late:
		case <-r.Context().Done():
			return
		}
	}
	if f.Drop {
		_, _ = io.Copy(io.Discard, res.Body)
		hijackAndReset(w)
		return
	}
	h := w.Header()
	for name, values := range res.Header {
		h[name] = values
	}
	if strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		p.streaming(1)
		defer p.streaming(-1)
	}
	w.WriteHeader(res.StatusCode)
	rc := http.NewResponseController(w)
	if f.Cut {
		reply, _ := io.ReadAll(res.Body)
		_, _ = w.Write(reply[:len(reply)/2])
		_ = rc.Flush()
		hijackAndReset(w)
		return
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			if rc.Flush() != nil {
				return
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the server died in the middle
		}
	}
}

func (p *proxy) forward(ctx context.Context, r *http.Request, body []byte) (*http.Response, error) {
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = "http", p.backend.Load().(string)
	out.RequestURI = ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		out.Body = nil
	}
	out.Header.Del("Connection")
	out.Header.Del("Accept-Encoding")
	return p.client.RoundTrip(out)
}

func hijackAndReset(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	reset(c)
}
