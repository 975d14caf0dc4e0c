package lab

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
)

// A fault is what happens to a reply on its way back to whoever asked.
type fault struct {
	cut   int  // so many bytes of the reply pass, then the line is closed
	reset bool // it is not closed but reset
}

// A proxy stands before an application, keeps its address while it is killed and
// started again, and loses replies on demand. What was asked always arrives.
type proxy struct {
	srv     *httptest.Server
	next    *http.Transport
	rewrite func(body []byte) []byte // of a question; nil leaves it

	mu       sync.Mutex // guards what follows
	upstream string     // its address, "" while there is none
	faults   []fault    // of the next answers, in order
	asked    int        // questions that arrived
	held     *kept      // where callbacks are kept, nil while they pass
}

func newProxy() *proxy {
	// No kept connections: a transport would send again what a dead one has lost.
	p := &proxy{next: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	p.srv = httptest.NewServer(p)
	return p
}

func (p *proxy) close() {
	p.srv.CloseClientConnections()
	p.srv.Close()
}

func (p *proxy) setUpstream(address string) {
	p.mu.Lock()
	p.upstream = address
	p.mu.Unlock()
}

// keepCallbacks keeps what third parties say from now on, and says when the first is
// there.
func (p *proxy) keepCallbacks() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = newKept()
	return p.held.reached
}

// releaseCallbacks lets them go.
func (p *proxy) releaseCallbacks() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.held.release()
		p.held = nil
	}
}

// arm lets a fault happen to the next reply that brings an answer.
func (p *proxy) arm(f fault) {
	p.mu.Lock()
	p.faults = append(p.faults, f)
	p.mu.Unlock()
}

// down reports whether nobody is behind it.
func (p *proxy) down() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream == ""
}

func (p *proxy) arrived() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// keep waits until callbacks may pass.
func (p *proxy) keep() {
	p.mu.Lock()
	k := p.held
	if k != nil {
		k.arrive()
	}
	p.mu.Unlock()
	if k != nil {
		<-k.let
	}
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	isQuestion := r.Method == http.MethodPost && (r.URL.Path == "/api/chat" || strings.HasPrefix(r.URL.Path, "/api/chat/retry/"))
	if strings.HasPrefix(r.URL.Path, "/callbacks/") {
		p.keep()
	}
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	if isQuestion && p.rewrite != nil {
		body = p.rewrite(body)
	}
	if upstream == "" {
		panic(http.ErrAbortHandler) // nobody is there
	}
	// Not r's context: what was sent arrives, whether its sender still waits or not.
	out, err := http.NewRequest(r.Method, "http://"+upstream+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header = r.Header.Clone()
	out.Header.Del("Connection")
	if isQuestion {
		p.mu.Lock()
		p.asked++
		p.mu.Unlock()
	}
	res, err := p.next.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler) // it died; so does this line
	}
	defer res.Body.Close()
	reply, err := httputil.DumpResponse(res, true)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var f *fault
	p.mu.Lock()
	if isQuestion && res.StatusCode < 300 && len(p.faults) > 0 {
		f, p.faults = &p.faults[0], p.faults[1:]
	}
	p.mu.Unlock()
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err) // HTTP/1.1 can
	}
	defer c.Close()
	if f != nil {
		reply = reply[:min(f.cut, len(reply)-1)]
	}
	_, _ = c.Write(reply) // whoever has gone does not read it
	if t, ok := c.(*net.TCPConn); ok && f != nil && f.reset {
		_ = t.SetLinger(0)
	}
}
