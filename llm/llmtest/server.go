package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// A Format is a wire format.
type Format string

const (
	Chat      Format = "chat"      // OpenAI chat completions, and all who speak it
	Responses Format = "responses" // OpenAI Responses
	Anthropic Format = "anthropic" // Anthropic Messages
)

// A wire says things in one format.
type wire interface {
	// path is where prompts are posted to, below the base address.
	path() string
	// read takes from a request what the answer depends on.
	read(c *call, header http.Header, body []byte) error
	// frames is the whole answer as a stream.
	frames(c *call) []frame
	// whole is the whole answer as one JSON document.
	whole(c *call) any
	// failure is the body of a response that failed.
	failure(f Failure) any
	// errorFrame is a failure inside a stream, after n frames.
	errorFrame(c *call, f Failure, n int) frame
	// models is the answer to GET /models.
	models(names []string) any
}

// A Server plays a model provider over HTTP, in one wire format, as its scripts
// say. It is safe for use by many goroutines at once.
type Server struct {
	URL string // the base address, as an llm.Endpoint has it

	wire wire
	http *http.Server
	ctx  context.Context // ends with Close
	end  context.CancelFunc
	done sync.WaitGroup // the server itself, its connections, its handlers

	closing atomic.Bool
	stalled chan struct{}

	mu       sync.Mutex // guards what follows
	next     func(n int64, body []byte) Script
	gate     chan struct{}
	requests []Request
	calls    int64
	aborted  int64
	executed int64
	runs     map[string]*run // by id; Responses only
	working  int             // prompts being answered and runs that go on
	idle     sync.Cond       // working is 0
}

// A Request is what a server was sent.
type Request struct {
	Method string
	Path   string // with its query
	Header http.Header
	Body   []byte
}

// epoch is when answers say that they were made: a body is the same byte for byte
// whenever it is asked for, so that CutAt means the same each time.
const epoch = 1_750_000_000

// A call is one prompt.
type call struct {
	Script
	number       int64
	id           string
	created      int64
	model        string
	stream       bool
	includeUsage bool // chat completions
	background   bool // responses
}

// Start starts a server on a free port of this machine. Close ends it.
func Start(f Format) (*Server, error) {
	s := &Server{stalled: make(chan struct{}, 4096), gate: make(chan struct{}), runs: map[string]*run{}}
	s.idle.L = &s.mu
	switch f {
	case Chat:
		s.wire = chatWire{}
	case Responses:
		s.wire = responsesWire{}
	case Anthropic:
		s.wire = anthropicWire{}
	default:
		return nil, fmt.Errorf("no wire format %q", f)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for prompts: %w", err)
	}
	s.URL = "http://" + l.Addr().String() + "/v1"
	s.ctx, s.end = context.WithCancel(context.Background())
	s.next = func(int64, []byte) Script { return Script{} }
	s.http = &http.Server{
		Handler:     s,
		BaseContext: func(net.Listener) context.Context { return s.ctx },
		ConnState:   s.connection,
	}
	s.done.Go(func() { s.http.Serve(l) }) // its error is that of Close
	return s, nil
}

// TB is what NewServer needs of a test.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// NewServer starts a server that ends with the test.
func NewServer(t TB, f Format) *Server {
	t.Helper()
	s, err := Start(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Close cuts every line, ends every run and waits until all of them are gone.
func (s *Server) Close() {
	s.closing.Store(true)
	s.http.Close() // before handlers hear of the end, which would end their bodies properly
	s.end()
	s.done.Wait()
}

// Play makes the next calls do as these scripts say, in order; the last one is
// played again and again.
func (s *Server) Play(scripts ...Script) {
	if len(scripts) == 0 {
		panic("llmtest: a server without scripts")
	}
	var played int // under s.mu, as next is called
	s.setNext(func(int64, []byte) Script {
		script := scripts[min(played, len(scripts)-1)]
		played++
		return script
	})
}

// PlayFunc asks script, one call at a time, what the n-th call of this server is
// to do; n counts from 1. It must not call the server.
func (s *Server) PlayFunc(script func(n int64, body []byte) Script) { s.setNext(script) }

func (s *Server) setNext(next func(int64, []byte) Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = next
}

// Release lets go on whatever hangs now.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
	s.gate = make(chan struct{})
}

// Settle waits until no prompt is being answered and no stored run goes on: what
// the counts say then is all of it. What hangs keeps it waiting.
func (s *Server) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.working > 0 {
		s.idle.Wait()
	}
}

// rest ends what was counted as working.
func (s *Server) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.working--; s.working == 0 {
		s.idle.Broadcast()
	}
}

// Stalled receives once for each call that begins to hang, or to wait for its
// client to go.
func (s *Server) Stalled() <-chan struct{} { return s.stalled }

// Calls returns how many prompts arrived, whatever came of them.
func (s *Server) Calls() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Aborted returns how many calls ended because their client went away. A stored run
// does not end so.
func (s *Server) Aborted() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aborted
}

// Executed returns how many calls a model ran for to the end, whether or not
// anybody was there to hear it.
func (s *Server) Executed() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executed
}

// Requests returns what was sent so far, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// connection counts connections: net/http tells of a new one before it serves it.
func (s *Server) connection(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.done.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.done.Done()
	}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.done.Add(1) // its connection is counted now, but not once it is cut
	defer s.done.Done()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // half a prompt runs nothing
	}
	prompt := r.Method == http.MethodPost && r.URL.Path == "/v1"+s.wire.path()
	number, script := s.record(r, body, prompt)
	path := strings.TrimPrefix(r.URL.Path, "/v1")
	switch {
	case prompt:
		s.answer(w, r, number, script, body)
	case s.wire == responsesWire{} && strings.HasPrefix(path, "/responses/"):
		s.serveRun(w, r, strings.TrimPrefix(path, "/responses/"))
	case r.Method == http.MethodGet && path == "/models":
		writeJSON(w, http.StatusOK, s.wire.models([]string{"model-a", "model-b"}))
	default:
		s.refuse(w, Failure{Status: http.StatusNotFound, Message: "There is nothing at " + r.Method + " " + r.URL.Path + "."})
	}
}

// record remembers a request, and numbers it and takes its script when it is a
// prompt.
func (s *Server) record(r *http.Request, body []byte, prompt bool) (int64, Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, Request{Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header.Clone(), Body: body})
	if !prompt {
		return 0, Script{}
	}
	s.calls++
	s.working++
	return s.calls, s.next(s.calls, body).filled(s.calls, body)
}

// answer plays a script for a prompt.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, number int64, script Script, body []byte) {
	defer s.rest()
	c := &call{Script: script, number: number, created: epoch + number}
	err := s.wire.read(c, r.Header, body)
	if err != nil {
		s.refuse(w, Failure{Status: http.StatusBadRequest, Message: err.Error()})
		return
	}
	w.Header().Set("X-Request-Id", fmt.Sprintf("req_%d", number))
	err = s.playCall(r.Context(), w, c)
	if err == nil || errors.Is(err, errCut) || c.background || s.closing.Load() {
		return
	}
	s.mu.Lock()
	s.aborted++
	s.mu.Unlock()
}

// refuse answers with a failure.
func (s *Server) refuse(w http.ResponseWriter, f Failure) {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	if f.Body != nil {
		w.WriteHeader(f.status())
		io.WriteString(w, *f.Body) // the client may be gone
		return
	}
	writeJSON(w, f.status(), s.wire.failure(f))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(encode(v)) // the client may be gone
}

// encode returns v as JSON, with characters as they are and without a newline.
func encode(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("llmtest: " + err.Error()) // all of it is our own
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}
