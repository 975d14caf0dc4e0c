package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
)

// A runServer keeps one run.
type runServer struct {
	// What follows may be set before the calls that it concerns.
	post   func(w http.ResponseWriter)               // nil: the whole stream
	stream func(w http.ResponseWriter, n, after int) // nil: what comes after that event; n counts from 1
	look   func(w http.ResponseWriter, n int)        // nil: the final state
	cancel func(w http.ResponseWriter)               // nil: the final state

	mu    sync.Mutex
	log   []string // method and path of each request
	looks int
}

func (s *runServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.log = append(s.log, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), "/v1/responses"))
	streams := len(s.streams())
	stream := r.URL.Query().Get("stream") == "true"
	if r.Method == http.MethodGet && !stream {
		s.looks++
	}
	looks := s.looks
	s.mu.Unlock()
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/cancel"):
		if s.cancel != nil {
			s.cancel(w)
			return
		}
		reply(w, "application/json", responseDone, false)
	case r.Method == http.MethodPost:
		if s.post != nil {
			s.post(w)
			return
		}
		reply(w, "text/event-stream", sse(responseRecorded...), false)
	case stream:
		after := -1
		if v := r.URL.Query().Get("starting_after"); v != "" {
			after, _ = strconv.Atoi(v)
		}
		if s.stream != nil {
			s.stream(w, streams, after)
			return
		}
		reply(w, "text/event-stream", sse(responseRecorded[after+1:]...), false)
	case s.look != nil:
		s.look(w, looks)
	default:
		reply(w, "application/json", responseDone, false)
	}
}

// streams returns which requests were for a stream of the run; s.mu is held.
func (s *runServer) streams() []string {
	return slices.DeleteFunc(slices.Clone(s.log), func(l string) bool { return !strings.Contains(l, "stream=true") })
}

func (s *runServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func (s *runServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.looks = nil, 0
}

func refuseWith(w http.ResponseWriter, status int) {
	w.WriteHeader(status)
	io.WriteString(w, `{"error":{"message":"no","type":"invalid_request_error"}}`)
}

// A background is a client of a runServer.
type background struct {
	*runServer
	client    *BackgroundResponses
	transport *Transport
	started   []string
}

func newBackground(t testing.TB, s *runServer) *background {
	e, transport := serve(t, s.ServeHTTP)
	return &background{runServer: s, client: backgroundClient(transport, e).(*BackgroundResponses), transport: transport}
}

// ask makes a call, and checks that the run is named once and before any piece.
func (b *background) ask(t testing.TB) heardAnswer {
	t.Helper()
	b.started = nil
	b.forget()
	c := user("What is tea?")
	c.Started = func(id string) { b.started = append(b.started, id) }
	posts := b.transport.Calls()
	h := hear(t, func(emit func(Piece)) (Answer, error) {
		return b.client.Stream(t.Context(), c, func(p Piece) {
			if len(b.started) != 1 {
				t.Errorf("a piece came when %d names were told", len(b.started))
			}
			emit(p)
		})
	})
	if len(b.started) > 1 || len(b.started) == 1 && b.started[0] != "resp_1" {
		t.Errorf("started was told %q", b.started)
	}
	if n := b.transport.Calls() - posts; n != 1 {
		t.Errorf("%d prompts were sent for one call", n)
	}
	return h
}

func (b *background) reattach(t testing.TB) heardAnswer {
	t.Helper()
	b.forget()
	c := user("What is tea?")
	c.Started = func(string) { t.Error("a run was named that is known") }
	posts := b.transport.Calls()
	h := hear(t, func(emit func(Piece)) (Answer, error) {
		return b.client.Reattach(t.Context(), c, "resp_1", emit)
	})
	if b.transport.Calls() != posts {
		t.Error("a prompt was sent")
	}
	return h
}

// In background mode the answer is whole, wherever the line of the prompt dies once
// the run has its name, and however it is asked for then.
func TestARunIsFollowedWhereverItsLineDies(t *testing.T) {
	text := sse(responseRecorded...)
	named := strings.Index(text, "\n\n") + 2
	at := 0 // one call at a time
	event := func(i int) string { return sse(responseRecorded[i]) }
	gone := func(w http.ResponseWriter, n int) { refuseWith(w, http.StatusNotFound) }
	for name, s := range map[string]*runServer{
		"streamed": {},
		"streamed from the first event again": {
			stream: func(w http.ResponseWriter, n, after int) { reply(w, "text/event-stream", text, false) },
			look:   gone},
		"one event a line": {stream: func(w http.ResponseWriter, n, after int) {
			reply(w, "text/event-stream", event(after + 1)[:len(event(after+1))-1], false)
		}, look: gone},
		"one event a line, and nothing on every other": {stream: func(w http.ResponseWriter, n, after int) {
			if n%2 == 0 {
				reply(w, "text/event-stream", event(after+1), false)
				return
			}
			refuseWith(w, http.StatusServiceUnavailable)
		}, look: func(w http.ResponseWriter, n int) { refuseWith(w, http.StatusServiceUnavailable) }},
		"cut in each event": {stream: func(w http.ResponseWriter, n, after int) {
			next := event(after + 1)
			if after+2 < len(responseRecorded) {
				next += event(after + 2)[:20]
			}
			reply(w, "text/event-stream", next, true)
		}, look: gone},
		"only looked at": {stream: func(w http.ResponseWriter, n, after int) { refuseWith(w, http.StatusBadRequest) }},
		"looked at, at last": {
			stream: func(w http.ResponseWriter, n, after int) { refuseWith(w, http.StatusNotFound) },
			look: func(w http.ResponseWriter, n int) {
				switch n {
				case 1:
					reply(w, "application/json", response("in_progress", "", ""), false)
				case 2:
					refuseWith(w, http.StatusServiceUnavailable)
				case 3:
					reply(w, "application/json", responseDone[:500], true)
				default:
					reply(w, "application/json", responseDone, false)
				}
			}},
		"looked at where the stream has a gap": {stream: func(w http.ResponseWriter, n, after int) {
			reply(w, "text/event-stream", sse(responseRecorded[min(after+2, len(responseRecorded)-1):]...), false)
		}},
		"looked at where the stream is not numbered": {stream: func(w http.ResponseWriter, n, after int) {
			reply(w, "text/event-stream", sse(`{"type":"response.output_text.delta","delta":"Tea"}`), false)
		}},
		"looked at where the stream says nothing": {stream: func(w http.ResponseWriter, n, after int) {
			reply(w, "text/event-stream", "", false)
		}},
		"looked at where the stream is a page": {stream: func(w http.ResponseWriter, n, after int) {
			reply(w, "text/html", "<html>Sign in</html>", false)
		}},
		"told at once where a stream was wanted": {stream: func(w http.ResponseWriter, n, after int) {
			reply(w, "application/json", responseDone, false)
		}},
	} {
		s.post = func(w http.ResponseWriter) { reply(w, "text/event-stream", text[:at], true) }
		b := newBackground(t, s)
		step := 61
		if name == "streamed" || name == "only looked at" {
			step = 1
		}
		for at = 0; at < len(text); at += step {
			h := b.ask(t)
			if at < named {
				if !is(h.err, chat.OutcomeUnknown, false, "line_lost") || len(b.started) != 0 {
					t.Fatalf("%s: cut at %d, before the name: got %v", name, at, h.err)
				}
				continue
			}
			if h.want(t, fmt.Sprintf("%s: cut at %d", name, at), responseWant); t.Failed() {
				t.Fatalf("after %q", b.requests())
			}
		}
	}
}

func TestARunGoesOnBehindTheLastEvent(t *testing.T) {
	first := sse(responseRecorded[:15]...)
	b := newBackground(t, &runServer{post: func(w http.ResponseWriter) { reply(w, "text/event-stream", first, true) }})
	b.ask(t).want(t, "followed", responseWant)
	if got, want := b.requests(), []string{"POST ", "GET /resp_1?stream=true&starting_after=14"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestARunIsReattachedFromItsFirstByte(t *testing.T) {
	whole := sse(responseRecorded...)
	refused := func(w http.ResponseWriter, n, after int) { refuseWith(w, http.StatusBadRequest) }
	for name, tt := range map[string]struct {
		server *runServer
		want   []string
	}{
		"by stream": {&runServer{}, []string{"GET /resp_1?stream=true"}},
		"by a stream that is cut": {&runServer{stream: func(w http.ResponseWriter, n, after int) {
			if n == 1 {
				reply(w, "text/event-stream", whole[:len(whole)/2], true)
			}
			reply(w, "text/event-stream", sse(responseRecorded[after+1:]...), false)
		}}, nil},
		"by a stream that begins to count at one": {&runServer{stream: func(w http.ResponseWriter, n, after int) {
			reply(w, "text/event-stream", sse(responseRecorded[0][:len(responseRecorded[0])-2]+"1}", responseRecorded[2])+
				sse(responseRecorded[3:]...), false)
		}}, []string{"GET /resp_1?stream=true"}},
		"by looking": {&runServer{stream: refused}, []string{"GET /resp_1?stream=true", "GET /resp_1"}},
	} {
		b := newBackground(t, tt.server)
		b.reattach(t).want(t, name, responseWant)
		if got := b.requests(); tt.want != nil && !slices.Equal(got, tt.want) {
			t.Errorf("%s: asked for %q, want %q", name, got, tt.want)
		}
	}
}

// An error event may concern the line only: what became of the run, the run says.
func TestAnErrorEventOfARunIsLookedInto(t *testing.T) {
	broken := sse(responseRecorded[:14]...) + sse(`{"type":"error","sequence_number":14,"code":"server_error","message":"Sorry.","param":null}`)
	refused := func(w http.ResponseWriter, n, after int) { refuseWith(w, http.StatusBadRequest) }
	post := func(w http.ResponseWriter) { reply(w, "text/event-stream", broken, false) }
	newBackground(t, &runServer{post: post}).ask(t).want(t, "the run goes on", responseWant)
	newBackground(t, &runServer{post: post, stream: refused}).ask(t).want(t, "the run was completed", responseWant)
	h := newBackground(t, &runServer{post: post, stream: refused, look: func(w http.ResponseWriter, n int) { refuseWith(w, http.StatusNotFound) }}).ask(t)
	if !is(h.err, chat.OutcomeDefinite, false, "provider_error") || h.text != "Tea 茶" {
		t.Errorf("the run was never kept: got %q, %v", h.text, h.err)
	}
}

func TestARunThatCannotBeAskedForIsUnknown(t *testing.T) {
	for status, code := range map[int]string{404: "run_forgotten", 403: "run_unavailable", 410: "run_unavailable"} {
		b := newBackground(t, &runServer{
			post:   func(w http.ResponseWriter) { reply(w, "text/event-stream", sse(responseRecorded[:14]...), true) },
			stream: func(w http.ResponseWriter, n, after int) { refuseWith(w, status) },
			look:   func(w http.ResponseWriter, n int) { refuseWith(w, status) },
		})
		for how, h := range map[string]heardAnswer{"followed": b.ask(t), "reattached": b.reattach(t)} {
			if !is(h.err, chat.OutcomeUnknown, false, code) {
				t.Errorf("%s, status %d: got %v", how, status, h.err)
			}
		}
	}
	e, transport := serve(t, nil)
	e.URL = "http://127.0.0.1:1/v1"
	h := hear(t, func(emit func(Piece)) (Answer, error) {
		return backgroundClient(transport, e).(Reattacher).Reattach(t.Context(), user("x"), "resp_1", emit)
	})
	if !is(h.err, chat.OutcomeUnknown, false, "line_lost") {
		t.Errorf("nobody there: got %v, want unknown, because the run has begun", h.err)
	}
}

func TestARunThatDiffersFromWhatItSaidIsUnknown(t *testing.T) {
	other := strings.Replace(responseDone, "Tea", "Milk", 1)
	begun := func(w http.ResponseWriter) { reply(w, "text/event-stream", sse(responseRecorded[:14]...), true) }
	for name, s := range map[string]*runServer{
		"looked at": {post: begun,
			stream: func(w http.ResponseWriter, n, after int) { refuseWith(w, http.StatusBadRequest) },
			look:   func(w http.ResponseWriter, n int) { reply(w, "application/json", other, false) }},
		"looked at, without text": {post: begun,
			stream: func(w http.ResponseWriter, n, after int) { refuseWith(w, http.StatusBadRequest) },
			look:   func(w http.ResponseWriter, n int) { reply(w, "application/json", response("completed", "", ""), false) }},
		"streamed": {post: begun, stream: func(w http.ResponseWriter, n, after int) {
			reply(w, "text/event-stream", sse(`{"type":"response.completed","sequence_number":14,"response":`+other+`}`), false)
		}},
	} {
		if h := newBackground(t, s).ask(t); !is(h.err, chat.OutcomeUnknown, false, "run_differs") || h.text != "Tea 茶" {
			t.Errorf("%s: got %q, %+v, %v", name, h.text, h.Answer, h.err)
		}
	}
}

func TestACancelledRunIsAskedForOnce(t *testing.T) {
	b := newBackground(t, &runServer{})
	for range 2 {
		if err := b.client.Cancel(t.Context(), "resp_1"); err != nil {
			t.Error(err)
		}
	}
	if err := b.client.Cancel(t.Context(), "a/../b?c"); err != nil {
		t.Error(err)
	}
	if got, want := b.requests(), []string{"POST /resp_1/cancel", "POST /resp_1/cancel", "POST /a%2F..%2Fb%3Fc/cancel"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	b.cancel = func(w http.ResponseWriter) { refuseWith(w, http.StatusNotFound) }
	if err := b.client.Cancel(t.Context(), "resp_1"); !is(err, chat.OutcomeDefinite, false, "provider_refused") {
		t.Errorf("got %v", err)
	}
	if n := b.transport.Calls(); n != 0 {
		t.Errorf("to cancel counted as %d prompts", n)
	}
}

func TestTheEndOfTheContextCancelsNoRun(t *testing.T) {
	stuck := func(w http.ResponseWriter, events ...string) {
		reply(w, "text/event-stream", sse(events...), false)
		http.NewResponseController(w).Flush()
	}
	hang := make(chan struct{})
	defer close(hang)
	for name, s := range map[string]*runServer{
		"on the line of the prompt": {post: func(w http.ResponseWriter) { stuck(w, responseRecorded[:14]...); <-hang }},
		"on a later line": {
			post:   func(w http.ResponseWriter) { reply(w, "text/event-stream", sse(responseRecorded[:12]...), true) },
			stream: func(w http.ResponseWriter, n, after int) { stuck(w, responseRecorded[12:14]...); <-hang },
		},
	} {
		e, transport := serve(t, s.ServeHTTP)
		ctx, cancel := context.WithCancel(t.Context())
		h := hear(t, func(emit func(Piece)) (Answer, error) {
			return backgroundClient(transport, e).Stream(ctx, user("Hi"), func(p Piece) {
				if emit(p); p.Text != "" {
					cancel()
				}
			})
		})
		cancel()
		if !errors.Is(h.err, context.Canceled) || !is(h.err, chat.OutcomeUnknown, false, "line_lost") {
			t.Errorf("%s: got %v", name, h.err)
		}
		for _, l := range s.requests() {
			if strings.Contains(l, "cancel") {
				t.Errorf("%s: the client asked %q", name, l)
			}
		}
	}
}

// pretend makes a transport that is answered without a network, so that time can
// be pretended, too.
func pretend(answer func(r *http.Request) (*http.Response, error)) *Transport {
	return &Transport{client: &http.Client{Transport: roundTrip(answer)}}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answered(status int, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func TestARunIsLookedAtInEvenPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for status, stream := range map[int]string{400: "", 200: response("in_progress", "", "")} {
			start, streams, looks, signs := time.Now(), 0, 0, 0
			transport := pretend(func(r *http.Request) (*http.Response, error) {
				if r.URL.RawQuery != "" {
					streams++
					return answered(status, stream)
				}
				switch looks++; {
				case looks > 100:
					return answered(200, responseDone)
				case looks%2 == 0: // not in a row
					return answered(503, "")
				}
				return answered(200, response("in_progress", "", ""))
			})
			a, err := NewResponses(transport, Endpoint{}, true).(Reattacher).Reattach(t.Context(), user("Hi"), "resp_1", func(p Piece) {
				if p == (Piece{}) {
					signs++
				}
			})
			if err != nil || a.Content != responseWant.Content || time.Since(start) != 100*time.Second || streams != 1 || signs != 50 {
				t.Errorf("got %+v, %v after %v, %d streams and %d signs of life", a, err, time.Since(start), streams, signs)
			}
		}
	})
}

func TestARunIsGivenUpWhenItIsAskedForInVain(t *testing.T) {
	for name, tt := range map[string]struct {
		after string // Retry-After
		fails int    // before the first success
		took  time.Duration
		lost  bool
	}{
		"always":           {"", 1000, 31 * time.Second, true},
		"five times":       {"", 5, 31 * time.Second, false},
		"with a wish":      {"7", 5, (7 + 7 + 7 + 8 + 16) * time.Second, false},
		"with a long wish": {"3600", 1, time.Minute, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, looks := time.Now(), 0
			transport := pretend(func(r *http.Request) (*http.Response, error) {
				if r.URL.RawQuery != "" {
					return answered(500, "")
				}
				if looks++; looks > tt.fails {
					return answered(200, responseDone)
				}
				resp, err := answered(503, "")
				resp.Header.Set("Retry-After", tt.after)
				return resp, err
			})
			a, err := NewResponses(transport, Endpoint{}, true).(Reattacher).Reattach(t.Context(), user("Hi"), "resp_1", func(Piece) {})
			if took := time.Since(start); took != tt.took || tt.lost != (err != nil) || tt.lost && !is(err, chat.OutcomeUnknown, false, "line_lost") {
				t.Errorf("%s: got %q, %v after %v, want %v", name, a.Content, err, took, tt.took)
			}
		})
	}
}

func TestAStateWithoutAnEndIsNotReadToIt(t *testing.T) {
	looks := 0
	transport := pretend(func(r *http.Request) (*http.Response, error) {
		resp, err := answered(400, "")
		if r.URL.RawQuery == "" {
			looks++
			resp.StatusCode, resp.Body = 200, io.NopCloser(endless('x'))
		}
		return resp, err
	})
	h := hear(t, func(emit func(Piece)) (Answer, error) {
		return backgroundClient(transport, Endpoint{}).(Reattacher).Reattach(t.Context(), user("Hi"), "resp_1", emit)
	})
	if !is(h.err, chat.OutcomeDefinite, false, "answer_too_long") || looks != 1 {
		t.Errorf("got %v after %d looks", h.err, looks)
	}
}

func TestAPauseEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := pretend(func(r *http.Request) (*http.Response, error) { return answered(200, response("queued", "", "")) })
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := NewResponses(transport, Endpoint{}, true).(Reattacher).Reattach(ctx, user("Hi"), "resp_1", func(Piece) {})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2500*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func FuzzResponses(f *testing.F) {
	f.Add(sse(responseRecorded...), "", "")
	f.Add(sse(responseRecorded[:15]...), sse(responseRecorded[12:]...), "")
	f.Add(sse(responseRecorded[:9]...), "", responseDone)
	f.Add(responseDone, "", "")
	f.Add(response("queued", "", ""), "data: {}\n\n", response("failed", "", ""))
	f.Add(sse(`{"type":"response.output_item.done","output_index":-5,"item":{"type":"function_call"}}`), "\r\r", "{")
	f.Add(sse(`{"type":"error","code":1}`), "", "")
	f.Add(sse(`{"type":"response.function_call_arguments.delta","output_index":9,"delta":"x"}`), "", "")
	f.Fuzz(func(t *testing.T, post, stream, look string) {
		asked, names := 0, 0
		transport := pretend(func(r *http.Request) (*http.Response, error) {
			switch asked++; {
			case r.Method == http.MethodPost:
				return answered(200, post)
			case asked > 20: // else one that never ends would be followed for ever
				return answered(404, "")
			case r.URL.RawQuery != "":
				return answered(200, stream)
			}
			return answered(200, look)
		})
		c := user("Hi")
		c.Started = func(string) { names++ }
		hear(t, func(emit func(Piece)) (Answer, error) {
			return backgroundClient(transport, Endpoint{}).Stream(t.Context(), c, emit)
		})
		if names > 1 || transport.Calls() != 1 {
			t.Errorf("%d names, %d prompts", names, transport.Calls())
		}
		hear(t, func(emit func(Piece)) (Answer, error) {
			return responsesClient(transport, Endpoint{}).Stream(t.Context(), user("Hi"), emit)
		})
	})
}
