package llm

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/dial"
)

const testKey = "sk-test-0123456789abcdef"

func newTestTransport(t *testing.T) *Transport {
	t.Helper()
	tr := NewTransport()
	t.Cleanup(tr.Close)
	return tr
}

// postTo sends a prompt and reads what is answered.
func postTo(ctx context.Context, tr *Transport, url string) (string, error) {
	h := http.Header{"Authorization": {"Bearer " + testKey}}
	resp, err := tr.post(ctx, url, h, []byte(`{"prompt":"once"}`), testKey)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// wantOutcome checks what must hold of every error of a call, too.
func wantOutcome(t *testing.T, err error, want chat.Outcome) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error with outcome %s", err, want)
	}
	if e.Outcome != want {
		t.Errorf("got outcome %s (%v, %v), want %s", e.Outcome, e, e.Err, want)
	}
	if chat.Title(e.Code) == chat.Title("") || e.Detail == "" {
		t.Errorf("%+v does not say what happened", e)
	}
	for said := error(e); said != nil; said = errors.Unwrap(said) {
		if strings.Contains(said.Error(), testKey) || strings.Contains(fmt.Sprintf("%+v", said), testKey) {
			t.Errorf("the key is in %v", said)
		}
	}
	return e
}

func TestARedirectIsNotFollowed(t *testing.T) {
	var followed atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, status)
		}))
		_, err := postTo(t.Context(), newTestTransport(t), s.URL)
		s.Close()
		if e := wantOutcome(t, err, chat.OutcomeUnknown); e.Status != status {
			t.Errorf("got status %d, want %d", e.Status, status)
		}
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// A promptServer speaks HTTP/1.1 by hand: handle gets each connection, and read
// reads one prompt from it.
type promptServer struct {
	url     string
	prompts atomic.Int64
}

func newPromptServer(t *testing.T, handle func(s *promptServer, conn int, c net.Conn, r *bufio.Reader)) *promptServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &promptServer{url: "http://" + l.Addr().String()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handle(s, n, c, bufio.NewReader(c))
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return s
}

// read reads one prompt, and reports whether there was one.
func (s *promptServer) read(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return false
	}
	s.prompts.Add(1)
	return true
}

const keptAlive = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// A11, S59: a transport that asks again by itself is billed twice.
func TestAPromptIsNotSentAgainWhenItsLineBreaks(t *testing.T) {
	s := newPromptServer(t, func(s *promptServer, _ int, c net.Conn, r *bufio.Reader) {
		if s.read(r) {
			io.WriteString(c, keptAlive)
			s.read(r)
		}
	})
	tr := newTestTransport(t)
	if got, err := postTo(t.Context(), tr, s.url); got != "ok" || err != nil {
		t.Fatalf("the first prompt: got %q, %v", got, err)
	}
	_, err := postTo(t.Context(), tr, s.url)
	if e := wantOutcome(t, err, chat.OutcomeUnknown); e.Code != "line_lost" {
		t.Errorf("got code %s", e.Code)
	}
	if n := s.prompts.Load(); n != 2 || tr.Calls() != 2 {
		t.Errorf("got %d prompts and %d calls, want 2", n, tr.Calls())
	}
}

// S59: a server that closes a silent connection may do so while the next prompt goes
// out. Whatever comes of it, there are no two.
func TestAPromptOnAConnectionThatWasClosedIsNeverSentTwice(t *testing.T) {
	outcomes := map[chat.Outcome]int{}
	for i := range 100 {
		closed := make(chan struct{})
		s := newPromptServer(t, func(s *promptServer, conn int, c net.Conn, r *bufio.Reader) {
			if s.read(r) {
				io.WriteString(c, keptAlive)
			}
			if conn == 0 {
				if i%2 == 0 {
					c.(*net.TCPConn).SetLinger(0) // a reset instead of an end
				}
				c.Close()
				close(closed)
			}
		})
		tr := newTestTransport(t)
		if _, err := postTo(t.Context(), tr, s.url); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(err.Error(), "reset") {
			t.Fatal(err)
		}
		<-closed
		got, err := postTo(t.Context(), tr, s.url)
		var e *Error
		errors.As(err, &e)
		switch n := s.prompts.Load(); {
		case err == nil && got == "ok" && n == 2:
			outcomes[chat.OutcomeOK]++
		case e != nil && e.Outcome != chat.OutcomeDefinite && n == 1:
			outcomes[e.Outcome]++
		default:
			t.Fatalf("got %q, %v after %d prompts", got, err, n)
		}
	}
	t.Logf("outcomes: %v", outcomes)
}

func TestNothingWasSentWhereNoConnectionCouldBeMade(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := l.Addr().String()
	l.Close()
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a prompt arrived") }))
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	defer secure.Close()
	garbled := newPromptServer(t, func(_ *promptServer, _ int, c net.Conn, r *bufio.Reader) { io.WriteString(c, "no TLS here\n") })
	for name, url := range map[string]string{
		"refused":                       "http://" + refused,
		"a name that does not exist":    "http://semel.invalid",
		"a certificate nobody knows":    secure.URL,
		"no TLS at the other side":      "https" + strings.TrimPrefix(garbled.url, "http"),
		"an address that cannot be one": "http://[::1",
		"a scheme that cannot be one":   "gopher://127.0.0.1",
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTestTransport(t)
			_, err := postTo(t.Context(), tr, url)
			if e := wantOutcome(t, err, chat.OutcomeNone); e.Code != "provider_unreachable" || e.Status != 0 {
				t.Errorf("got %+v", e)
			}
			if tr.Calls() != 1 {
				t.Errorf("got %d calls, want 1", tr.Calls())
			}
		})
	}
}

func TestWhatWasWrittenMayHaveRun(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":         "",
		"half a header":   "HTTP/1.1 200 OK\r\nContent-Le",
		"no HTTP":         "hello\r\n\r\n",
		"a broken header": "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"only a 100":      "HTTP/1.1 100 Continue\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newPromptServer(t, func(s *promptServer, _ int, c net.Conn, r *bufio.Reader) {
				if s.read(r) {
					io.WriteString(c, answer)
				}
			})
			_, err := postTo(t.Context(), newTestTransport(t), s.url)
			if e := wantOutcome(t, err, chat.OutcomeUnknown); e.Code != "line_lost" {
				t.Errorf("got code %s", e.Code)
			}
			if n := s.prompts.Load(); n != 1 {
				t.Errorf("got %d prompts, want 1", n)
			}
		})
	}
}

// Of a prompt that was only begun nobody knows how much arrived.
func TestAPromptOfWhichAPartWasWrittenMayHaveRun(t *testing.T) {
	s := newPromptServer(t, func(_ *promptServer, _ int, c net.Conn, r *bufio.Reader) {
		r.Peek(1)
		c.(*net.TCPConn).SetLinger(0)
	})
	resp, err := newTestTransport(t).post(t.Context(), s.url, http.Header{}, make([]byte, 32<<20), "")
	if err == nil {
		resp.Body.Close()
	}
	wantOutcome(t, err, chat.OutcomeUnknown)
}

// S59: net/http sends a request again when an HTTP/2 server refuses its stream, where it
// can read the body again: it must not.
func TestAPromptIsNotSentAgainOverHTTP2(t *testing.T) {
	ts := httptest.NewUnstartedServer(nil) // for its certificate
	ts.StartTLS()
	defer ts.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: ts.TLS.Certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var prompts atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			refuseStreams(c, func() {
				if prompts.Add(1) > 1 {
					cancel() // it would go on for a minute
				}
			})
			c.Close()
		}
	}()
	tr := newTestTransport(t)
	roots := x509.NewCertPool()
	roots.AddCert(ts.Certificate())
	tr.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	_, err = postTo(ctx, tr, "https://"+l.Addr().String())
	wantOutcome(t, err, chat.OutcomeUnknown)
	if n := prompts.Load(); n != 1 {
		t.Errorf("got %d prompts, want 1", n)
	}
	tr.Close()
	l.Close()
	<-ended
}

// refuseStreams speaks HTTP/2 (RFC 9113): it answers each request, once it is read,
// with RST_STREAM and REFUSED_STREAM.
func refuseStreams(c net.Conn, read func()) {
	const (
		typeData, typeHeaders, typeReset, typeSettings = 0, 1, 3, 4
		flagAck, flagEndStream                         = 1, 1
		refusedStream                                  = 7
	)
	send := func(kind, flags byte, stream uint32, payload []byte) {
		f := []byte{0, 0, byte(len(payload)), kind, flags}
		c.Write(append(binary.BigEndian.AppendUint32(f, stream), payload...))
	}
	preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	send(typeSettings, 0, 0, nil)
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		if _, err := io.CopyN(io.Discard, c, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			return
		}
		switch {
		case kind == typeSettings && flags&flagAck == 0:
			send(typeSettings, flagAck, 0, nil)
		case (kind == typeData || kind == typeHeaders) && flags&flagEndStream != 0:
			read()
			send(typeReset, 0, stream, []byte{0, 0, 0, refusedStream})
		}
	}
}

func TestAStatusSaysWhatIsKnown(t *testing.T) {
	type kind struct {
		outcome   chat.Outcome
		transient bool
		code      string
	}
	var (
		unknown   = kind{chat.OutcomeUnknown, false, "provider_error"}
		transient = kind{chat.OutcomeDefinite, true, "provider_busy"}
		permanent = kind{chat.OutcomeDefinite, false, "provider_refused"}
	)
	for status := 300; status < 600; status++ {
		want := unknown
		switch {
		case status == 429, status == 503, status == 529:
			want = transient
		case status >= 400 && status < 500 && status != 408:
			want = permanent
		}
		e := statusError(status, providerError{}, "")
		if got := (kind{e.Outcome, e.Transient, e.Code}); got != want || e.Status != status {
			t.Errorf("%d: got %+v, want %+v", status, e, want)
		}
	}
	for _, tt := range []struct {
		status int
		body   string
		code   string
		said   string
	}{
		{400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}`, "context_too_long", "maximum context length"},
		{400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`, "context_too_long", "available context"},
		{400, `{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}`, "context_too_long", "4096"},
		{400, `{"error":{"message":"<400> Input data may contain inappropriate content.","type":"data_inspection_failed","code":"data_inspection_failed"}}`, "content_refused", "inappropriate"},
		{400, `{"error":{"message":"The response was filtered.","type":null,"code":"content_filter"}}`, "content_refused", "filtered"},
		{400, `{"error":{"code":"1301","message":"系统检测到输入或生成内容可能包含不安全或敏感内容"}}`, "content_refused", "系统检测"},
		{403, `{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged"}}`, "content_refused", "flagged"},
		{404, `{"error":{"message":"Model names are case-sensitive."}}`, "provider_refused", "case-sensitive"},
		{401, `{"error":{"message":"Incorrect API key provided: ` + testKey + `","code":"invalid_api_key"}}`, "provider_refused", "***"},
		{422, `{"detail":[{"loc":["body"],"msg":"field required"}]}`, "provider_refused", "field required"},
		{404, `{"error":"model 'x' not found"}`, "provider_refused", "model 'x' not found"},
		{404, `{"error":"Not Found","message":"Cannot GET /v1/nope","status":404}`, "provider_refused", "Cannot GET /v1/nope"},
		{400, "<html>nginx</html>", "provider_refused", "status 400"},
		{429, `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`, "provider_busy", "quota"},
		{500, `{"error":{"message":"line one\nline\ttwo \u001b[31m` + strings.Repeat("长", 400) + `"}}`, "provider_error", "line one line two [31m长"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			io.WriteString(w, tt.body)
		}))
		_, err := postTo(t.Context(), newTestTransport(t), s.URL)
		s.Close()
		var e *Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Status != tt.status || !strings.Contains(e.Detail, tt.said) || len(e.Detail) > 400 {
			t.Errorf("%d %s: got %+v", tt.status, tt.body, err)
			continue
		}
		wantOutcome(t, err, e.Outcome)
	}
}

func TestAFailureInsideAnAnswerIsJudgedByWhatCameBefore(t *testing.T) {
	for _, tt := range []struct {
		body      string
		outcome   chat.Outcome // before any text
		transient bool
		status    int
	}{
		{`{"error":{"message":"Rate limited","code":429}}`, chat.OutcomeDefinite, true, 429},
		{`{"error":{"message":"Slow down","code":"rate_limit_exceeded"}}`, chat.OutcomeDefinite, true, 429},
		{`{"error":{"message":"Overloaded","type":"overloaded_error"}}`, chat.OutcomeDefinite, true, 529},
		{`{"error":{"message":"No provider","code":"503"}}`, chat.OutcomeDefinite, true, 503},
		{`{"error":{"message":"Bad","type":"invalid_request_error"}}`, chat.OutcomeDefinite, false, 400},
		{`{"error":{"message":"Gone","code":502}}`, chat.OutcomeUnknown, false, 502},
		{`{"error":{"message":"Timed out","code":408}}`, chat.OutcomeUnknown, false, 408},
		{`{"error":{"message":"The server had an error","type":"server_error"}}`, chat.OutcomeUnknown, false, 0},
		{`{"error":{"code":"1302","message":"并发数过高"}}`, chat.OutcomeUnknown, false, 0},
		{`{"error":{}}`, chat.OutcomeUnknown, false, 0},
	} {
		p := parseProviderError([]byte(tt.body))
		if e := frameError(p, false, ""); e.Outcome != tt.outcome || e.Transient != tt.transient || e.Status != tt.status {
			t.Errorf("%s before text: got %+v", tt.body, e)
		}
		if e := frameError(p, true, ""); e.Outcome != chat.OutcomeDefinite || e.Transient || e.Code != "provider_error" {
			t.Errorf("%s after text: got %+v", tt.body, e)
		}
	}
}

func TestRetryAfterIsReadInEveryForm(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	const year = 365 * 24 * time.Hour
	for _, tt := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", " 0.25 ", 250 * time.Millisecond},
		{"Retry-After", "Fri, 01 May 2026 12:01:30 GMT", 90 * time.Second},
		{"Retry-After", "Friday, 01-May-26 12:01:30 GMT", 90 * time.Second},
		{"Retry-After", "Fri, 01 May 2026 11:00:00 GMT", 0},
		{"Retry-After", "Fri, 01 May 2099 11:00:00 GMT", year},
		{"Retry-After", "99999999999999999999", year},
		{"Retry-After", "-5", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "Inf", year},
		{"Retry-After", "soon", 0},
		{"Retry-After", "", 0},
		{"Retry-After-Ms", "1500", 1500 * time.Millisecond},
		{"Retry-After-Ms", "1e300", year},
		{"Retry-After-Ms", "-1", 0},
		{"X-Other", "7", 0},
	} {
		h := http.Header{}
		h.Set(tt.name, tt.value)
		if got := retryAfter(h, now); got != tt.want {
			t.Errorf("%s: %q: got %s, want %s", tt.name, tt.value, got, tt.want)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(429)
	}))
	defer s.Close()
	_, err := postTo(t.Context(), newTestTransport(t), s.URL)
	if e := wantOutcome(t, err, chat.OutcomeDefinite); e.RetryAfter != 7*time.Second {
		t.Errorf("got %s, want 7s", e.RetryAfter)
	}
}

func TestACompressedBodyIsUnderstoodUnasked(t *testing.T) {
	var asked string
	status := 200
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Accept-Encoding")
		w.Header().Set("Content-Encoding", "GZip")
		w.WriteHeader(status)
		z := gzip.NewWriter(w)
		io.WriteString(z, `{"error":{"message":"told in gzip"}}`)
		z.Close()
	}))
	defer s.Close()
	tr := newTestTransport(t)
	if got, err := postTo(t.Context(), tr, s.URL); !strings.Contains(got, "told in gzip") || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if asked != "identity" {
		t.Errorf("compression was asked for: %q", asked)
	}
	status = 400
	_, err := postTo(t.Context(), tr, s.URL)
	if e := wantOutcome(t, err, chat.OutcomeDefinite); !strings.Contains(e.Detail, "told in gzip") {
		t.Errorf("got %q", e.Detail)
	}
}

func TestACallThatIsCancelledSaysWhetherItWasSent(t *testing.T) {
	arrived := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
	}))
	defer s.Close()
	tr := newTestTransport(t)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := postTo(ctx, tr, s.URL)
	wantOutcome(t, err, chat.OutcomeNone)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("before: got %v, want the error of the context", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err = postTo(ctx, tr, s.URL)
	wantOutcome(t, err, chat.OutcomeUnknown)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after: got %v, want the error of the context", err)
	}
	if tr.Calls() != 2 {
		t.Errorf("got %d calls, want 2", tr.Calls())
	}
}

func TestOnlyPromptsCount(t *testing.T) {
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.Header.Get("Content-Type"))
		for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			if r.Header.Get(name) != "" {
				t.Errorf("%s was sent: net/http sends such a request again", name)
			}
		}
	}))
	defer s.Close()
	tr := newTestTransport(t)
	resp, err := tr.ask(t.Context(), http.MethodGet, s.URL, http.Header{}, "")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if tr.Calls() != 0 {
		t.Errorf("a question that runs no model counts")
	}
	if _, err := postTo(t.Context(), tr, s.URL); err != nil || tr.Calls() != 1 {
		t.Errorf("got %v, %d calls", err, tr.Calls())
	}
	if got := strings.Join(seen, ", "); got != "GET , POST application/json" {
		t.Errorf("the server saw %q", got)
	}
}

// pipeServer answers every connection of tr with handle, without a network: inside
// a synctest bubble time passes when all wait.
func pipeServer(tr *Transport, handle func(c net.Conn, r *bufio.Reader)) {
	tr.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			r := bufio.NewReader(there)
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.Copy(io.Discard, req.Body)
			handle(there, r)
		}()
		return &countedConn{Conn: here}, nil
	}
}

// What asks for a model's words must not bring a machine's secrets to the page.
func TestAModelIsNotWhereACloudKeepsItsSecrets(t *testing.T) {
	tr := newTestTransport(t)
	tr.client.Transport.(*http.Transport).Proxy = nil // it would be what is called
	for _, host := range []string{"169.254.169.254", "[::ffff:a9fe:a9fe]", "100.100.100.200", "169.254.1.1:11434"} {
		_, err := postTo(t.Context(), tr, "http://"+host+"/latest/meta-data/")
		if e := wantOutcome(t, err, chat.OutcomeNone); !errors.Is(e.Err, dial.ErrRefused) || !strings.Contains(e.Detail, "secrets") {
			t.Errorf("%s: %s, %v", host, e.Detail, e.Err)
		}
	}
}

func TestARefusalIsHeardAlthoughItsBodyDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTransport()
		pipeServer(tr, func(c net.Conn, r *bufio.Reader) {
			io.WriteString(c, "HTTP/1.1 429 Busy\r\nRetry-After: 3\r\nContent-Length: 100\r\n\r\n{\"error\":")
			r.ReadByte() // until the other side hangs up
		})
		start := time.Now()
		_, err := postTo(t.Context(), tr, "http://provider.test")
		if e := wantOutcome(t, err, chat.OutcomeDefinite); !e.Transient || e.RetryAfter != 3*time.Second {
			t.Errorf("got %+v", e)
		}
		if took := time.Since(start); took != errorBodyWait {
			t.Errorf("it took %s, want %s", took, errorBodyWait)
		}
		tr.Close()
	})
}

func TestAWriteThatTheNetworkDidNotTakeDoesNotCount(t *testing.T) {
	here, there := net.Pipe()
	there.Close()
	c := &countedConn{Conn: here}
	if n, err := c.Write([]byte("prompt")); n != 0 || err == nil || c.written.Load() != 0 {
		t.Errorf("got %d, %v, %d written", n, err, c.written.Load())
	}
	here, there = net.Pipe()
	go func() { there.Read(make([]byte, 2)); there.Close() }()
	c = &countedConn{Conn: here}
	if n, err := c.Write([]byte("prompt")); n != 2 || err == nil || c.written.Load() != 2 {
		t.Errorf("half way: got %d, %v, %d written", n, err, c.written.Load())
	}
}

func TestASecretIsKeptOutOfErrors(t *testing.T) {
	inner := errors.New("inner")
	if got := scrubbed(fmt.Errorf("key %s: %w", testKey, inner), testKey); !errors.Is(got, inner) || strings.Contains(got.Error(), testKey) {
		t.Errorf("got %v", got)
	}
	if got := scrubbed(fmt.Errorf("outer: %w", errors.New(testKey)), testKey); strings.Contains(got.Error(), testKey) {
		t.Errorf("got %v", got)
	}
	if got := scrub("abc", "abc"); got != "abc" {
		t.Errorf("a secret too short to be one: got %q", got)
	}
	// A key that no header can carry is not shown either.
	_, err := newTestTransport(t).post(t.Context(), "http://127.0.0.1:1", http.Header{"Authorization": {"Bearer " + testKey + "\n"}}, []byte("{}"), testKey)
	wantOutcome(t, err, chat.OutcomeNone)
}

func FuzzProviderError(f *testing.F) {
	for _, s := range []string{`{"error":{"message":"m","code":429,"status":"x"}}`, `{"error":"m"}`, `{"detail":[1]}`, `{"message":"m","code":"400"}`, `[{}]`, "null", "<html>"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p := parseProviderError(bytes.ReplaceAll(body, []byte("0"), []byte(testKey)))
		for _, text := range []bool{true, false} {
			if e := frameError(p, text, testKey); e.Outcome != chat.OutcomeDefinite && e.Outcome != chat.OutcomeUnknown || strings.Contains(e.Detail, testKey) || len(e.Detail) > 400 {
				t.Fatalf("got %+v", e)
			}
		}
	})
}

// quiet is the log of servers whose complaints are expected.
var quiet = log.New(io.Discard, "", 0)

// A connection costs a round trip or three before the first token.
func TestAConnectionIsUsedAgain(t *testing.T) {
	stop := `{"choices":[{"index":0,"delta":{"content":"Tea"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`
	var connections atomic.Int64
	heard := make(chan struct{}, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, sse(stop))
		w.(http.Flusher).Flush()
		<-heard // the client has all it needs
		io.WriteString(w, "data: [DONE]\n\n")
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	tr := NewTransport()
	defer tr.Close()
	const calls = 20
	for range calls {
		if a, err := NewOpenAI(tr, Endpoint{URL: srv.URL}).Stream(t.Context(), user("Tea?"), func(Piece) { heard <- struct{}{} }); err != nil || a.Content != "Tea" {
			t.Fatalf("got %+v, %v", a, err)
		}
	}
	if n := connections.Load(); n > calls/2 { // a busy machine may miss the moment
		t.Errorf("%d connections for %d calls", n, calls)
	}
}

func TestALineThatStaysOpenIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		defer w.Close()
		started := time.Now()
		if (&patientBody{r}).Close(); time.Since(started) != endWait {
			t.Errorf("closed after %v", time.Since(started))
		}
	})
}
