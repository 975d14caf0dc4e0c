package outbox

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"semel/chat"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func webhookTo(url string) Target {
	return Target{Kind: KindWebhook, URL: url, Secrets: []string{secretA}, Allow: loopback}
}

func mustNew(t testing.TB, target Target) Sink {
	t.Helper()
	s, err := New(target)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func message() Message {
	return Message{WebhookID: "msg_1", At: time.Now(), Payload: []byte(`{"type":"action.sign_contract","data":{}}`)}
}

// wantResult checks what must hold of every result, too.
func wantResult(t *testing.T, r Result, outcome chat.Outcome, code string) {
	t.Helper()
	if r.Outcome != outcome || r.Code != code {
		t.Errorf("got %+v, want %s %q", r, outcome, code)
	}
	if good := r.Outcome == chat.OutcomeOK; good != (r.Code == "") || good != (r.Detail == "") || !good && !slices.Contains(Codes, r.Code) {
		t.Errorf("%+v does not say what happened", r)
	}
	if (r.Outcome == chat.OutcomeDefinite) && r.Status == 0 || r.Outcome == chat.OutcomeNone && r.Status != 0 {
		t.Errorf("%+v: the outcome does not go with the status", r)
	}
	wantNoSecret(t, fmt.Sprintf("%+v", r))
}

// What must be in no text: the parts of every address and secret of these tests.
func wantNoSecret(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{"canary", secretA, secretB, strings.TrimPrefix(secretA, secretPrefix)} {
		if strings.Contains(text, secret) {
			t.Errorf("a secret is in %q", text)
		}
	}
}

func TestAWebhookIsSignedAndPostedAsItIs(t *testing.T) {
	var got *http.Request
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "thanks")
	}))
	defer s.Close()
	target := webhookTo(strings.Replace(s.URL, "http://", "http://user:pass@", 1) + "/sign?tenant=7")
	target.Secrets = []string{secretA, secretB}
	m := message()
	r := mustNew(t, target).Deliver(t.Context(), m)
	wantResult(t, r, chat.OutcomeOK, "")
	if r.Status != http.StatusAccepted {
		t.Errorf("got status %d", r.Status)
	}
	if got.Method != http.MethodPost || got.RequestURI != "/sign?tenant=7" || string(body) != string(m.Payload) || got.ContentLength != int64(len(m.Payload)) {
		t.Errorf("got %s %s with %q", got.Method, got.RequestURI, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "semel", "Webhook-Id": "msg_1",
		"Webhook-Timestamp": fmt.Sprint(m.At.Unix()), "Idempotency-Key": "", "X-Idempotency-Key": "", "Accept-Encoding": "",
		"Connection": "close",
	} {
		if got := got.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for _, secret := range target.Secrets {
		judge, err := standardwebhooks.NewWebhook(secret)
		if err == nil {
			err = judge.Verify(body, got.Header)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestAnIDThatNoHeaderCanCarryIsNotSent(t *testing.T) {
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer s.Close()
	target := webhookTo(s.URL)
	target.KeyMode, target.StatusURL = KeyModeQuery, s.URL
	sink := mustNew(t, target).(Querier)
	for _, id := range []string{"", "a b", "a\r\nX-Injected: 1", "a.b", "合同"} {
		m := message()
		m.WebhookID = id
		wantResult(t, sink.Deliver(t.Context(), m), chat.OutcomeNone, CodeBadMessage)
		_, r := sink.Executed(t.Context(), id)
		wantResult(t, r, chat.OutcomeNone, CodeBadMessage)
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestAStatusSaysWhatIsKnown(t *testing.T) {
	var status int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
	}))
	defer s.Close()
	sink := mustNew(t, webhookTo(s.URL+"/canary?canary"))
	for _, tt := range []struct {
		status  int
		outcome chat.Outcome
		code    string
	}{
		{200, chat.OutcomeOK, ""}, {201, chat.OutcomeOK, ""}, {202, chat.OutcomeOK, ""}, {204, chat.OutcomeOK, ""}, {299, chat.OutcomeOK, ""},
		{300, chat.OutcomeDefinite, CodeRedirectRefused}, {304, chat.OutcomeDefinite, CodeRedirectRefused},
		{400, chat.OutcomeDefinite, CodeReceiverRefused}, {401, chat.OutcomeDefinite, CodeReceiverRefused}, {404, chat.OutcomeDefinite, CodeReceiverRefused},
		{409, chat.OutcomeDefinite, CodeReceiverRefused}, {422, chat.OutcomeDefinite, CodeReceiverRefused}, {425, chat.OutcomeDefinite, CodeReceiverRefused},
		{408, chat.OutcomeUnknown, CodeReceiverFailed}, {410, chat.OutcomeDefinite, CodeReceiverGone},
		{429, chat.OutcomeDefinite, CodeReceiverBusy}, {503, chat.OutcomeDefinite, CodeReceiverBusy},
		{500, chat.OutcomeUnknown, CodeReceiverFailed}, {502, chat.OutcomeUnknown, CodeReceiverFailed}, {504, chat.OutcomeUnknown, CodeReceiverFailed},
		{520, chat.OutcomeUnknown, CodeReceiverFailed}, {524, chat.OutcomeUnknown, CodeReceiverFailed}, {599, chat.OutcomeUnknown, CodeReceiverFailed},
		{501, chat.OutcomeDefinite, CodeReceiverRefused}, {505, chat.OutcomeDefinite, CodeReceiverRefused}, {511, chat.OutcomeDefinite, CodeReceiverRefused}, {529, chat.OutcomeDefinite, CodeReceiverRefused},
	} {
		status = tt.status
		r := sink.Deliver(t.Context(), message())
		wantResult(t, r, tt.outcome, tt.code)
		if r.Status != tt.status || r.Gone != (tt.status == 410) {
			t.Errorf("%d: got %+v", tt.status, r)
		}
		if want := 7 * time.Second; tt.outcome != chat.OutcomeOK && r.RetryAfter != want {
			t.Errorf("%d: got Retry-After %s, want %s", tt.status, r.RetryAfter, want)
		}
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	var followed atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, status) }))
		r := mustNew(t, webhookTo(s.URL)).Deliver(t.Context(), message())
		s.Close()
		wantResult(t, r, chat.OutcomeDefinite, CodeRedirectRefused)
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// A rawServer speaks HTTP/1.1 by hand: handle gets each connection.
type rawServer struct {
	url      string
	requests atomic.Int64
}

func newRawServer(t *testing.T, handle func(s *rawServer, c net.Conn)) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{url: "http://" + l.Addr().String() + "/canary?canary"}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				handle(s, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return s
}

// read reads a whole request.
func (s *rawServer) read(c net.Conn) {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	if err == nil {
		s.requests.Add(1)
	}
}

func TestWhatMayHaveBeenExecutedIsUnknownAndNotSentAgain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		handle func(*rawServer, net.Conn)
		code   string
	}{
		{"the line is lost", (*rawServer).read, CodeLineLost},
		{"reset", func(s *rawServer, c net.Conn) { s.read(c); c.(*net.TCPConn).SetLinger(0) }, CodeLineLost},
		{"half an answer", func(s *rawServer, c net.Conn) { s.read(c); io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-") }, CodeLineLost},
		{"no HTTP", func(s *rawServer, c net.Conn) { s.read(c); io.WriteString(c, "canary\r\n\r\n") }, CodeLineLost},
		{"endless headers", func(s *rawServer, c net.Conn) {
			s.read(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, "X: "+strings.Repeat("x", 1000)+"\r\n")
			}
		}, CodeLineLost},
		{"closed while it is written", func(s *rawServer, c net.Conn) {
			s.requests.Add(1)
			c.Read(make([]byte, 1))
			c.(*net.TCPConn).SetLinger(0)
		}, CodeLineLost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newRawServer(t, tt.handle)
			wantResult(t, mustNew(t, webhookTo(s.url)).Deliver(t.Context(), message()), chat.OutcomeUnknown, tt.code)
			if n := s.requests.Load(); n != 1 {
				t.Errorf("sent %d times", n)
			}
		})
	}
}

func TestATryEndsInTime(t *testing.T) {
	released := make(chan struct{})
	s := newRawServer(t, func(s *rawServer, c net.Conn) { s.read(c); <-released })
	defer close(released)
	inTime(t, webhookTo(s.url), message())

	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan struct{})
	s = newRawServer(t, func(s *rawServer, c net.Conn) { s.read(c); close(read); <-released })
	go func() { <-read; cancel() }()
	wantResult(t, mustNew(t, webhookTo(s.url)).Deliver(ctx, message()), chat.OutcomeUnknown, CodeInterrupted)
	wantResult(t, mustNew(t, webhookTo(s.url)).Deliver(ctx, message()), chat.OutcomeNone, CodeInterrupted)
}

// inTime delivers to who never answers, with a timeout that is long enough for it to
// arrive, on whatever machine this is.
func inTime(t *testing.T, target Target, m Message) {
	t.Helper()
	for target.Timeout = 50 * time.Millisecond; target.Timeout < time.Minute; target.Timeout *= 2 {
		r := mustNew(t, target).Deliver(t.Context(), m)
		if r.Code != CodeTimeout {
			t.Fatalf("got %+v", r)
		}
		if r.Outcome == chat.OutcomeUnknown {
			return
		}
	}
	t.Error("it is said that nothing has left")
}

func TestABodyIsNotReadForEver(t *testing.T) {
	defer func(d time.Duration) { bodyWait = d }(bodyWait)
	endless := newRawServer(t, func(s *rawServer, c net.Conn) {
		s.read(c)
		io.WriteString(c, "HTTP/1.1 201 Created\r\n\r\n")
		for err := error(nil); err == nil; {
			_, err = io.WriteString(c, strings.Repeat("x", 4096))
		}
	})
	silent := newRawServer(t, func(s *rawServer, c net.Conn) {
		s.read(c)
		io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\n")
		c.Read(make([]byte, 1)) // until the other side closes
	})
	for _, tt := range []struct {
		url  string
		wait time.Duration
	}{{endless.url, time.Hour}, {silent.url, time.Millisecond}} {
		bodyWait = tt.wait
		target := webhookTo(tt.url)
		target.Timeout = maxTimeout
		r := mustNew(t, target).Deliver(t.Context(), message())
		wantResult(t, r, chat.OutcomeOK, "")
	}
}

// None means that the receiver cannot have seen a byte of it.
func TestWhatNeverLeftIsKnownNotToHave(t *testing.T) {
	var requests atomic.Int64
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	secure := httptest.NewUnstartedServer(count)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(count)
	defer plain.Close()
	mute := newRawServer(t, func(_ *rawServer, c net.Conn) { io.Copy(io.Discard, c) })
	shut := newRawServer(t, func(*rawServer, net.Conn) {})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	host := func(url string) string { return strings.Split(url, "/")[2] }
	trusted := x509.NewCertPool()
	trusted.AddCert(secure.Certificate())
	for _, tt := range []struct {
		name, url, code, says string
		target                func(*Target)
	}{
		{name: "nobody listens", url: "http://user:canary@" + l.Addr().String() + "/canary?k=canary", code: CodeUnreachable, says: "refuses connections"},
		{name: "an untrusted certificate", url: secure.URL + "/canary", code: CodeUnreachable, says: "authority"},
		{name: "a certificate for another name", url: "https://localhost:" + strings.Split(host(secure.URL), ":")[1], code: CodeUnreachable, says: "another name",
			target: func(t *Target) { t.RootCAs = trusted }},
		{name: "no TLS there", url: "https://" + host(plain.URL), code: CodeUnreachable, says: "encrypted"},
		{name: "a handshake that ends", url: "https://" + host(shut.url), code: CodeUnreachable, says: "No connection"},
		{name: "a handshake without an answer", url: "https://" + host(mute.url), code: CodeTimeout, says: "in time",
			target: func(t *Target) { t.Timeout = 50 * time.Millisecond }},
		{name: "an address that is not allowed", url: "https://127.1:1", code: CodeUnreachable,
			target: func(t *Target) { t.Allow = nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := webhookTo(tt.url)
			if tt.target != nil {
				tt.target(&target)
			}
			r := mustNew(t, target).Deliver(t.Context(), message())
			if tt.name == "an address that is not allowed" && r.Code == CodeAddressRefused { // by a resolver that knows this form
				tt.code = CodeAddressRefused
			}
			wantResult(t, r, chat.OutcomeNone, tt.code)
			if !strings.Contains(r.Detail, tt.says) {
				t.Errorf("got %q, want it to say %q", r.Detail, tt.says)
			}
		})
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests were received", n)
	}
}

// A name is looked up when it is called: that it was harmless before does not help.
func TestANameThatResolvesToThisMachineIsRefused(t *testing.T) {
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer s.Close()
	sink := mustNew(t, webhookTo(strings.Replace(s.URL, "127.0.0.1", "localhost", 1)))
	wantResult(t, sink.Deliver(t.Context(), message()), chat.OutcomeOK, "")
	target := webhookTo("https://rebound.test/canary")
	target.Allow = nil
	moved := mustNew(t, target).(*webhook)
	// As when the name's server gives another answer than when the target was made.
	moved.url = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	wantResult(t, moved.Deliver(t.Context(), message()), chat.OutcomeNone, CodeAddressRefused)
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests were received, want that of the allowed target", n)
	}
}

// However an address of this machine is written, nobody there is called.
func TestOddSpellingsOfThisMachineAreRefused(t *testing.T) {
	var calls atomic.Int64
	s := newRawServer(t, func(*rawServer, net.Conn) { calls.Add(1) })
	port := strings.Split(strings.Split(s.url, "/")[2], ":")[1]
	for _, host := range []string{
		"127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0.1.", "0", "0.0.0.0",
		"localhost", "LocalHost", "localhost.", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[::1%25lo]",
		"\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3",
		"example.com@127.0.0.1", "127.0.0.1%2f.example.com", "%31%32%37.0.0.1",
	} {
		target := webhookTo("https://" + host + ":" + port + "/")
		target.Allow = nil
		sink, err := New(target)
		if err != nil {
			continue // refused at once
		}
		if r := sink.Deliver(t.Context(), message()); r.Outcome != chat.OutcomeNone || r.Code != CodeAddressRefused && r.Code != CodeUnreachable {
			t.Errorf("%s: got %+v", host, r)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

func TestNoProxyIsCalledInsteadOfTheReceiver(t *testing.T) {
	if p := mustNew(t, webhookTo("https://example.com")).(*webhook).client.Transport.(*http.Transport).Proxy; p != nil {
		t.Error("a proxy would be used")
	}
}

// net/http writes on a goroutine of its own. Once it is said that nothing has left,
// nothing leaves.
func TestNothingLeavesAfterItWasSaidThatNothingHas(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	s := &sent{}
	c := &sendingConn{Conn: near, sent: s}
	s.gotConn(httptrace.GotConnInfo{})
	ended := 0
	s.atEnd(func() { t.Error("what is over was ended") })
	s.atEnd(func() { ended++ })
	if s.end() || ended != 1 {
		t.Errorf("something has left, or the connection was ended %d times", ended)
	}
	if s.atEnd(func() { ended++ }); ended != 2 { // one that was made too late
		t.Error("a connection is left open")
	}
	if n, err := c.Write([]byte("late")); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("a late write: got %d, %v", n, err)
	}
}

func TestTheBytesOfAHandshakeAreNoneOfTheRequest(t *testing.T) {
	near, far := net.Pipe()
	go io.Copy(io.Discard, far)
	defer far.Close()
	s := &sent{}
	c := &sendingConn{Conn: near, sent: s}
	if _, err := c.Write([]byte("hello")); err != nil || s.bytes != 0 {
		t.Errorf("a handshake: got %d bytes, %v", s.bytes, err)
	}
	s.gotConn(httptrace.GotConnInfo{})
	if _, err := c.Write([]byte("POST")); err != nil || !s.end() {
		t.Errorf("a request: got %d bytes, %v", s.bytes, err)
	}
	near.Close()
	s = &sent{ready: true}
	c.sent = s
	if _, err := c.Write([]byte("POST")); err == nil || s.end() {
		t.Error("what the network did not take counts")
	}
}

func TestAReceiverIsAskedWhetherItHasExecuted(t *testing.T) {
	answer, status := "", http.StatusOK
	var asked *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer s.Close()
	target := webhookTo(s.URL)
	target.KeyMode, target.StatusURL = KeyModeQuery, s.URL+"/status?z=1&a=canary"
	sink := mustNew(t, target).(Querier)
	for _, tt := range []struct {
		status   int
		answer   string
		executed bool
		outcome  chat.Outcome
		code     string
	}{
		{200, `{"executed": true}`, true, chat.OutcomeOK, ""},
		{200, `{"executed": false, "more": 1}`, false, chat.OutcomeOK, ""},
		{200, `{}`, false, chat.OutcomeUnknown, CodeBadAnswer},
		{200, `{"executed": null}`, false, chat.OutcomeUnknown, CodeBadAnswer},
		{200, `{"executed": "true"}`, false, chat.OutcomeUnknown, CodeBadAnswer},
		{200, `<html>canary`, false, chat.OutcomeUnknown, CodeBadAnswer},
		{200, ``, false, chat.OutcomeUnknown, CodeBadAnswer},
		{200, `{"executed": true, "x": "` + strings.Repeat("x", bodyBytes) + `"}`, false, chat.OutcomeUnknown, CodeBadAnswer},
		{202, `{"executed": true}`, false, chat.OutcomeUnknown, CodeBadAnswer},
		{404, `{"executed": true}`, false, chat.OutcomeDefinite, CodeReceiverRefused},
		{500, `{"executed": true}`, false, chat.OutcomeUnknown, CodeReceiverFailed},
		{302, ``, false, chat.OutcomeDefinite, CodeRedirectRefused},
	} {
		status, answer = tt.status, tt.answer
		executed, r := sink.Executed(t.Context(), "msg_1")
		wantResult(t, r, tt.outcome, tt.code)
		if executed != tt.executed {
			t.Errorf("%d %.40s: got %t", tt.status, tt.answer, executed)
		}
	}
	if asked.Method != http.MethodGet || asked.RequestURI != "/status?z=1&a=canary&webhook-id=msg_1" {
		t.Errorf("asked %s %s", asked.Method, asked.RequestURI)
	}
	if id, err := Verify(target.Secrets, asked.Header, nil, time.Now()); id != "msg_1" || err != nil {
		t.Errorf("the question is not signed: %q, %v", id, err)
	}
	for _, mode := range []string{"", KeyModeKeyed, KeyModeNone} {
		target.KeyMode, target.StatusURL = mode, ""
		if _, can := mustNew(t, target).(Querier); can {
			t.Errorf("key mode %q: it can be asked", mode)
		}
	}
}

func TestHowLongToWaitIsReadAndBounded(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"": 0, "0": 0, "-1": 0, "soon": 0, "NaN": 0, "120": 2 * time.Minute, " 3 ": 3 * time.Second, "86401": maxRetryAfter,
		"99999999999999999999": maxRetryAfter, "Inf": maxRetryAfter,
		now.Add(time.Minute).Format(http.TimeFormat):           time.Minute,
		now.Add(-time.Minute).Format(http.TimeFormat):          0,
		now.Add(50 * time.Hour).Format(http.TimeFormat):        maxRetryAfter,
		"Fri, 31 Dec 9999 23:59:59 GMT":                        maxRetryAfter,
		"Friday, 02-Jan-26 03:05:05 GMT":                       time.Minute,
		strings.Replace(now.Format(time.ANSIC), "5 ", "9 ", 1): 4 * time.Second,
	} {
		if got := retryAfter(http.Header{"Retry-After": {v}}, now); got != want {
			t.Errorf("%q: got %s, want %s", v, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, v := range []string{"120", "1e300", "-0", "0x1p-1074", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		if got := retryAfter(http.Header{"Retry-After": {v}}, time.Now()); got < 0 || got > maxRetryAfter {
			t.Errorf("%q: got %s", v, got)
		}
	})
}
