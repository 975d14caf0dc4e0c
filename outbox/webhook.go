package outbox

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"semel/chat"
	"semel/dial"
)

// A webhook delivers by HTTP POST, signed as Standard Webhooks 1.0 has it. Every try
// has a connection of its own: so the guard sees the address of each, net/http has
// none that it could find dead and send again, and whether a byte has left is a count
// that nobody shares.
type webhook struct {
	url     string
	status  string // key mode query
	host    string // for people
	keys    [][]byte
	timeout time.Duration
	client  *http.Client
}

// A queried webhook can be asked.
type queried struct{ *webhook }

func newWebhook(t Target, wrong *findings) Sink {
	w := &webhook{url: t.URL, status: t.StatusURL, timeout: t.Timeout}
	u := checkURL("url", t, t.URL, wrong)
	if u != nil {
		w.host = u.Host
	}
	var err error
	if w.keys, err = signingKeys(t.Secrets); err != nil {
		wrong.add("secrets", "%w", err)
	}
	switch t.KeyMode {
	case "", KeyModeKeyed, KeyModeNone:
		if t.StatusURL != "" {
			wrong.add("status_url", "is asked only with key_mode = %q", KeyModeQuery)
		}
	case KeyModeQuery:
		checkURL("status_url", t, t.StatusURL, wrong)
	default:
		wrong.add("key_mode", "must be %q, %q or %q", KeyModeKeyed, KeyModeQuery, KeyModeNone)
	}
	for _, name := range []struct {
		key   string
		given bool
	}{
		{"server", t.Server != ""}, {"tls", t.TLS != ""}, {"from", t.From != ""}, {"to", len(t.To) > 0},
		{"subject", t.Subject != ""}, {"username", t.Username != ""}, {"password", t.Password != ""},
	} {
		if name.given {
			wrong.add(name.key, "a webhook has no use for it")
		}
	}
	w.client = &http.Client{
		Transport: &http.Transport{
			// No Proxy: it would be what is called, and the guard would see its address.
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				s := ctx.Value(sentKey{}).(*sent)
				// net/http would go on for the sake of another request.
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				s.atEnd(cancel)
				c, err := (guard{allow: t.Allow, inClear: s.inClear}).dial(ctx, network, address)
				if err != nil {
					return nil, err
				}
				s.atEnd(func() { c.Close() })
				return &sendingConn{Conn: c, sent: s}, nil
			},
			TLSClientConfig:        &tls.Config{RootCAs: t.RootCAs, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    10 * time.Second,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if t.KeyMode == KeyModeQuery {
		return queried{w}
	}
	return w
}

// checkURL returns nil where raw cannot be called.
func checkURL(key string, t Target, raw string, wrong *findings) *url.URL {
	// What url.Parse says holds the address, and with it a password.
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		wrong.add(key, "must be an http or https address")
		return nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case u.Port() != "" && (err != nil || port == 0):
		wrong.add(key, "the port must be a number from 1 to 65535")
		return nil
	case len(raw) > 2000:
		wrong.add(key, "must be at most 2000 bytes")
		return nil
	case strings.Contains(raw, "#"):
		wrong.add(key, "must have no fragment: it would not be sent")
		return nil
	}
	if g := (guard{allow: t.Allow, inClear: u.Scheme == "http"}); !g.checkHost(strings.ToLower(u.Hostname())) {
		if isLiteral := g.inClear && (guard{allow: t.Allow}).checkHost(strings.ToLower(u.Hostname())); isLiteral {
			wrong.add(key, "plain http goes only to an address that allow has; use https")
		} else {
			wrong.add(key, "%s is an address of this machine, of a private network or for a special purpose; where it is meant, allow must have it", u.Hostname())
		}
		return nil
	}
	return u
}

// Deliver implements [Sink].
func (w *webhook) Deliver(ctx context.Context, m Message) Result {
	if !isMessageID(m.WebhookID) {
		return Result{Outcome: chat.OutcomeNone, Code: CodeBadMessage, Detail: "The webhook-id cannot be sent in a header."}
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	header := signed(w.keys, m.WebhookID, m.At, m.Payload)
	header.Set("Content-Type", "application/json")
	// Without a type that net/http could rewind, and with it GetBody.
	body := struct{ io.Reader }{bytes.NewReader(m.Payload)}
	resp, s, err := w.do(ctx, http.MethodPost, w.url, header, body, int64(len(m.Payload)))
	if err != nil {
		return w.failed(ctx, s, err)
	}
	dropBody(resp)
	return w.answered(resp)
}

// Executed implements [Querier].
func (w queried) Executed(ctx context.Context, webhookID string) (bool, Result) {
	if !isMessageID(webhookID) {
		return false, Result{Outcome: chat.OutcomeNone, Code: CodeBadMessage, Detail: "The webhook-id cannot be sent in a header."}
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	u, err := url.Parse(w.status)
	if err != nil {
		panic("outbox: status_url was not checked") // New has
	}
	// Added and not encoded anew: whoever reads the query may care for its order.
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += "webhook-id=" + url.QueryEscape(webhookID)
	resp, s, err := w.do(ctx, http.MethodGet, u.String(), signed(w.keys, webhookID, time.Now(), nil), nil, 0)
	if err != nil {
		return false, w.failed(ctx, s, err)
	}
	if resp.StatusCode != http.StatusOK {
		dropBody(resp)
		r := w.answered(resp)
		if r.Outcome == chat.OutcomeOK { // another 2xx says nothing
			r = badAnswer(resp.StatusCode)
		}
		return false, r
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, bodyBytes))
	if err != nil {
		return false, w.failed(ctx, s, err)
	}
	var said struct {
		Executed *bool `json:"executed"`
	}
	if json.Unmarshal(text, &said) != nil || said.Executed == nil {
		return false, badAnswer(resp.StatusCode)
	}
	return *said.Executed, Result{Outcome: chat.OutcomeOK, Status: resp.StatusCode}
}

func badAnswer(status int) Result {
	return Result{Outcome: chat.OutcomeUnknown, Status: status, Code: CodeBadAnswer, Detail: `The receiver's answer is not {"executed": true} or {"executed": false}.`}
}

func (w *webhook) do(ctx context.Context, method, url string, header http.Header, body io.Reader, length int64) (*http.Response, *sent, error) {
	s := &sent{inClear: strings.HasPrefix(strings.ToLower(url), "http:")}
	ctx = context.WithValue(ctx, sentKey{}, s)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: s.gotConn})
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, s, err
	}
	req.ContentLength = length
	// Never Idempotency-Key: net/http takes it for a permission to send twice.
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "semel")
	resp, err := w.client.Do(req)
	return resp, s, err
}

// A sent tells whether a byte of a request may have left. The bytes of a TLS
// handshake are none: they are written before the connection is ready.
type sent struct {
	inClear bool

	mu    sync.Mutex
	ready bool
	over  bool
	bytes int    // handed to the network, or about to be
	stop  func() // at the end
}

type sentKey struct{}

func (s *sent) gotConn(httptrace.GotConnInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = true
}

// end reports whether any byte may have left, and sees to it that none does from now
// on: net/http writes on a goroutine of its own, which may come late.
func (s *sent) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.stop != nil {
		s.stop()
	}
	return s.bytes > 0
}

// atEnd has stop called at the end, and nothing that was to be called before.
func (s *sent) atEnd(stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop = stop; s.over {
		stop()
	}
}

// begin counts before the bytes are written, so that they count while they are under
// way. It reports whether they count and whether they may be written at all.
func (s *sent) begin(n int) (counted, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false, false
	}
	if s.ready {
		s.bytes += n
	}
	return s.ready, true
}

// takeBack uncounts what the network did not take.
func (s *sent) takeBack(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= n
}

type sendingConn struct {
	net.Conn
	sent *sent
}

func (c *sendingConn) Write(p []byte) (int, error) {
	counted, ok := c.sent.begin(len(p))
	if !ok {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(p)
	if counted {
		c.sent.takeBack(len(p) - n)
	}
	return n, err
}

const bodyBytes = 64 << 10

var bodyWait = 2 * time.Second // shorter in a test

// dropBody reads what a receiver says beside its status, so that it can end saying
// it, but not for ever. Nothing of it is kept: it could hold anything.
func dropBody(resp *http.Response) {
	defer resp.Body.Close()
	defer time.AfterFunc(bodyWait, func() { resp.Body.Close() }).Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, bodyBytes) // the status is the answer
}

// answered judges a status.
func (w *webhook) answered(resp *http.Response) Result {
	status := resp.StatusCode
	r := Result{Status: status, RetryAfter: retryAfter(resp.Header, time.Now())}
	switch {
	case status/100 == 2:
		return Result{Outcome: chat.OutcomeOK, Status: status}
	case status/100 == 3:
		r.Outcome, r.Code = chat.OutcomeDefinite, CodeRedirectRefused
		r.Detail = fmt.Sprintf("%s answered with status %d, a redirect: none is followed.", w.host, status)
		return r
	case status == http.StatusGone:
		r.Outcome, r.Code, r.Gone = chat.OutcomeDefinite, CodeReceiverGone, true
		r.Detail = fmt.Sprintf("%s answered with status 410: it wants no more messages.", w.host)
		return r
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		r.Outcome, r.Code = chat.OutcomeDefinite, CodeReceiverBusy
	case status == http.StatusRequestTimeout, status >= 500 && !refusals[status]:
		r.Outcome, r.Code = chat.OutcomeUnknown, CodeReceiverFailed
	default:
		r.Outcome, r.Code = chat.OutcomeDefinite, CodeReceiverRefused
	}
	r.Detail = fmt.Sprintf("%s answered with status %d.", w.host, status)
	return r
}

// refusals are the statuses from 500 up which say that nothing was done. Any other
// may come from somebody between, who does not know what the receiver did.
var refusals = map[int]bool{
	http.StatusNotImplemented: true, http.StatusHTTPVersionNotSupported: true, http.StatusNetworkAuthenticationRequired: true, 529: true,
}

// failed judges a try that brought no answer.
func (w *webhook) failed(ctx context.Context, s *sent, err error) Result {
	code, detail := explain(ctx, err, w.host)
	if !s.end() {
		return Result{Outcome: chat.OutcomeNone, Code: code, Detail: detail}
	}
	if code == CodeUnreachable {
		code, detail = CodeLineLost, "The connection to "+w.host+" ended before an answer came."
	}
	return Result{Outcome: chat.OutcomeUnknown, Code: code, Detail: detail}
}

// explain says why there is no answer, in words that hold nothing of the address but
// its host.
func explain(ctx context.Context, err error, host string) (code, detail string) {
	var (
		name     *net.DNSError
		verify   *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		invalid  x509.CertificateInvalidError
		hostname x509.HostnameError
		unknown  x509.UnknownAuthorityError
		timeout  net.Error
	)
	switch {
	case errors.Is(err, dial.ErrRefused):
		return CodeAddressRefused, host + " is at an address that may not be called: one of this machine, of a private network, for a special purpose, or one for plain text that is not allowed."
	case errors.Is(ctx.Err(), context.Canceled):
		return CodeInterrupted, "The delivery was interrupted on this side."
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return CodeTimeout, host + " gave no answer in time."
	case errors.As(err, &name):
		return CodeUnreachable, "The name of " + host + " could not be resolved."
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return CodeUnreachable, "The certificate of " + host + " is not valid at this time."
	case errors.As(err, &hostname):
		return CodeUnreachable, "The certificate of " + host + " is for another name."
	case errors.As(err, &unknown):
		return CodeUnreachable, "The certificate of " + host + " is by an authority that is not trusted."
	case errors.As(err, &verify):
		return CodeUnreachable, "The certificate of " + host + " is not trusted."
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return CodeUnreachable, "No encrypted connection to " + host + " could be agreed on."
	case errors.Is(err, syscall.ECONNREFUSED):
		return CodeUnreachable, host + " refuses connections."
	}
	return CodeUnreachable, "No connection to " + host + " could be made."
}

// maxRetryAfter is the longest wait that a receiver can ask for.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads Retry-After (RFC 9110, section 10.2.3): seconds or a date. 0 when
// there is none, when it is past and when it is neither.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return time.Duration(min(s, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
