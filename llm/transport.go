package llm

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"semel/chat"
	"semel/dial"
)

// A Transport carries calls to providers over HTTP. It sends each prompt once:
// it follows no redirect and never sends a body again, which net/http would do
// with a body it can rewind, and it knows of each failure whether a byte of the
// request may have reached the other side. It is safe for use by many goroutines
// at once. How long a silent provider is waited for is its caller's affair: it
// ends the context.
type Transport struct {
	client *http.Client
	calls  atomic.Int64
}

// NewTransport returns a transport that has carried nothing yet. Proxies of the
// environment (HTTPS_PROXY, NO_PROXY) are used, never for loopback addresses. Models may be
// on this machine and in private networks, but not where machines of clouds ask for
// their own secrets; what a proxy calls is the proxy's affair.
func NewTransport() *Transport {
	dialer := dial.Guarded(func(a netip.Addr) bool { return !dial.IsMetadata(a) })
	dialer.KeepAlive = 30 * time.Second
	return &Transport{client: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dialer.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return &countedConn{Conn: c}, nil
			},
			ForceAttemptHTTP2:   true,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: 128,
			// Shorter than servers keep a silent connection, so that it is seldom
			// closed by the other side while a prompt goes out on it.
			IdleConnTimeout: 30 * time.Second,
			// A compressed stream arrives late and in lumps. Who compresses unasked
			// is understood all the same.
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Calls returns how many prompts this transport was told to send, whatever came
// of them: the number that must equal the number of attempts on record.
func (t *Transport) Calls() int64 { return t.calls.Load() }

// Close closes the connections that are idle.
func (t *Transport) Close() { t.client.CloseIdleConnections() }

// post sends a prompt, once, and returns the response when the provider accepted
// it (2xx). Every error is an *Error. secret is kept out of what errors say.
func (t *Transport) post(ctx context.Context, url string, header http.Header, body []byte, secret string) (*http.Response, error) {
	t.calls.Add(1)
	return t.do(ctx, http.MethodPost, url, header, body, secret)
}

// ask sends a request that runs no model: a list of models, the state of a run
// that the provider keeps, the end of one.
func (t *Transport) ask(ctx context.Context, method, url string, header http.Header, secret string) (*http.Response, error) {
	return t.do(ctx, method, url, header, nil, secret)
}

// errorBodyWait is how long the words of a refusal are waited for.
const errorBodyWait = 2 * time.Second

func (t *Transport) do(ctx context.Context, method, url string, header http.Header, body []byte, secret string) (*http.Response, error) {
	var sent sentMark
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: sent.gotConn})
	var r io.Reader
	if body != nil {
		r = struct{ io.Reader }{bytes.NewReader(body)} // without a type that net/http could rewind
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		return nil, &Error{Outcome: chat.OutcomeNone, Code: "provider_unreachable", Detail: "The address of the model is not usable.", Err: scrubbed(err, secret)}
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "semel")
	if body != nil {
		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := t.client.Do(req)
	if err != nil {
		if sent.any() {
			return nil, lineLost(scrubbed(err, secret))
		}
		detail := "No connection to the model could be made."
		if errors.Is(err, dial.ErrRefused) {
			detail = "The address of the model is not called: it is link-local, or where machines of a cloud ask for their own secrets."
		}
		return nil, &Error{Outcome: chat.OutcomeNone, Code: "provider_unreachable", Detail: detail, Err: scrubbed(err, secret)}
	}
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		resp.Body = &gunzip{from: resp.Body}
	}
	if resp.StatusCode/100 == 2 {
		resp.Body = &patientBody{resp.Body}
		return resp, nil
	}
	defer resp.Body.Close()
	// The status is the answer; a body that ends early takes nothing from it, nor
	// does one that does not end.
	defer time.AfterFunc(errorBodyWait, func() { resp.Body.Close() }).Stop()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	e := statusError(resp.StatusCode, parseProviderError(text), secret)
	e.RetryAfter = retryAfter(resp.Header, time.Now())
	return nil, e
}

// lineLost is a failure after the prompt went out and before an end was seen.
func lineLost(err error) *Error {
	return &Error{Outcome: chat.OutcomeUnknown, Code: "line_lost", Detail: "The line to the model was lost before the end of its answer.", Err: err}
}

// A patientBody waits a moment for its end when it is closed: mostly it is there,
// behind the last event that anybody reads, and only a connection whose answer was
// read to the end is used again.
type patientBody struct{ io.ReadCloser }

const (
	endWait  = 10 * time.Millisecond
	endBytes = 64 << 10
)

func (b *patientBody) Close() error {
	defer time.AfterFunc(endWait, func() { b.ReadCloser.Close() }).Stop()
	_, _ = io.CopyN(io.Discard, b.ReadCloser, endBytes)
	return b.ReadCloser.Close()
}

// A countedConn counts the bytes that were handed to the network.
type countedConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	// Before, so that it counts while it is under way. What the network did not
	// take, as when the other side had closed an idle connection, does not.
	c.written.Add(int64(len(p)))
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n - len(p)))
	return n, err
}

// A sentMark tells whether anything was written since a request got its
// connection. On a connection shared with others it may say yes for their bytes:
// then nobody knows, and unknown is what it has to be.
type sentMark struct {
	mu   sync.Mutex
	conn *countedConn
	base int64
	got  bool
}

func (m *sentMark) gotConn(i httptrace.GotConnInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := i.Conn
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if m.got && m.written() {
		return // it stays said, whatever connection comes next
	}
	m.got, m.base = true, 0
	if m.conn, _ = c.(*countedConn); m.conn != nil {
		m.base = m.conn.written.Load()
	}
}

func (m *sentMark) any() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.got && m.written()
}

func (m *sentMark) written() bool { return m.conn == nil || m.conn.written.Load() > m.base }

// gunzip reads a compressed body; the header of it is read at the first Read.
type gunzip struct {
	from io.ReadCloser
	r    *gzip.Reader
}

func (g *gunzip) Read(p []byte) (int, error) {
	if g.r == nil {
		r, err := gzip.NewReader(g.from)
		if err != nil {
			return 0, err
		}
		g.r = r
	}
	return g.r.Read(p)
}

func (g *gunzip) Close() error { return g.from.Close() }

// statusError classifies an HTTP status that came instead of an answer (contract,
// section 4).
func statusError(status int, p providerError, secret string) *Error {
	e := &Error{Status: status, Outcome: chat.OutcomeUnknown, Code: "provider_error"}
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, status == 529:
		e.Outcome, e.Transient, e.Code = chat.OutcomeDefinite, true, "provider_busy"
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout:
		e.Outcome, e.Code = chat.OutcomeDefinite, p.refusal()
	}
	e.Detail = fmt.Sprintf("The model's server answered with status %d.", status)
	if said := p.said(secret); said != "" {
		e.Detail = fmt.Sprintf("The model's server answered with status %d: %s", status, said)
	}
	return e
}

// A providerError is what a provider says of a failure, in any of the forms they
// use: {"error": {…}}, {"error": "text"}, {"type": "error", "error": {…}},
// {"message": "text"}, {"error": "title", "message": "text"}, {"detail": …}, or no
// JSON at all.
type providerError struct {
	Message, Type, Code string
	Status              int // inside the error, 0 when there is none
}

func parseProviderError(body []byte) providerError {
	var doc struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return providerError{}
	}
	p := providerError{Message: doc.Message, Type: doc.Type}
	p.setCode(doc.Code)
	var inner struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Status  json.RawMessage `json:"status"`
	}
	switch {
	case len(doc.Error) > 0 && doc.Error[0] == '{' && json.Unmarshal(doc.Error, &inner) == nil:
		p.Message, p.Type = inner.Message, inner.Type
		p.setCode(inner.Code)
		if p.Status == 0 {
			var n int
			if json.Unmarshal(inner.Status, &n) == nil {
				p.Status = n
			}
		}
	case p.Message == "" && len(doc.Error) > 0 && doc.Error[0] == '"': // beside a message it is its title
		_ = json.Unmarshal(doc.Error, &p.Message)
	case p.Message == "" && len(doc.Detail) > 0:
		if json.Unmarshal(doc.Detail, &p.Message) != nil {
			p.Message = string(doc.Detail)
		}
	}
	return p
}

// setCode takes a code that may be a word, a number, or a number in a string.
func (p *providerError) setCode(raw json.RawMessage) {
	var n int
	if json.Unmarshal(raw, &n) == nil {
		p.Status = n
		return
	}
	if json.Unmarshal(raw, &p.Code) == nil {
		if n, err := strconv.Atoi(p.Code); err == nil {
			p.Status, p.Code = n, ""
		}
	}
}

// refusal returns the code of a definite, permanent failure.
func (p providerError) refusal() string {
	word, said := strings.ToLower(p.Code+" "+p.Type), strings.ToLower(p.Message)
	switch {
	case mentions(word, "context_length", "exceed_context_size"),
		mentions(said, "context length", "maximum context", "context window", "context size", "prompt is too long", "too many tokens", "available context"):
		return "context_too_long"
	case mentions(word, "content_filter", "content_policy", "moderation", "data_inspection", "datainspection", "sensitive"),
		mentions(said, "content policy", "content management policy", "moderation", "inappropriate content", "敏感内容"):
		return "content_refused"
	}
	return "provider_refused"
}

func mentions(s string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}

// said is what a person may read of it: one line, bounded, without the key.
func (p providerError) said(secret string) string {
	s := scrub(strings.ToValidUTF8(p.Message, "\uFFFD"), secret)
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(s) > 300 {
		s = s[:300]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
		s += "…"
	}
	return s
}

// frameError classifies a failure that a provider told inside a stream or a body
// after it had accepted the prompt with 200. After text it is definite: what came
// is kept. Before, it counts as the status that it names or means.
func frameError(p providerError, text bool, secret string) *Error {
	status := p.Status
	named := status >= 400 && status <= 599
	if !named {
		status = http.StatusInternalServerError
		word := strings.ToLower(p.Code + " " + p.Type)
		for _, m := range []struct {
			word   string
			status int
		}{
			{"rate_limit", 429}, {"insufficient_quota", 429}, {"overloaded", 529}, {"unavailable", 503},
			{"invalid_request", 400}, {"context_length", 400}, {"content_filter", 400}, {"invalid_prompt", 400},
			{"data_inspection", 400}, {"datainspection", 400}, {"throttling", 429}, // DashScope
			{"authentication", 401}, {"permission", 403}, {"not_found", 404}, {"billing", 402}, {"request_too_large", 413},
		} {
			if strings.Contains(word, m.word) {
				status, named = m.status, true
				break
			}
		}
	}
	e := statusError(status, p, secret)
	if !named {
		e.Status = 0
	}
	e.Detail = "The model's server reported a failure."
	if said := p.said(secret); said != "" {
		e.Detail = "The model's server reported a failure: " + said
	}
	if text {
		e.Outcome, e.Transient, e.Code = chat.OutcomeDefinite, false, "provider_error"
	}
	return e
}

// retryAfter reads Retry-After (RFC 9110, section 10.2.3: seconds or a date) or
// the milliseconds that some providers say more exactly; 0 when there is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 365 * 24 * time.Hour
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, float64(most/time.Millisecond)) * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return time.Duration(min(s, most.Seconds()) * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(at.Sub(now), 0), most)
	}
	return 0
}

func scrub(s, secret string) string {
	if len(secret) < 4 {
		return s
	}
	return strings.ReplaceAll(s, secret, "***")
}

// scrubbed keeps a secret out of an error's words; what it wraps stays reachable.
func scrubbed(err error, secret string) error {
	if len(secret) < 4 || !strings.Contains(err.Error(), secret) {
		return err
	}
	if cause := errors.Unwrap(err); cause != nil && !strings.Contains(cause.Error(), secret) {
		return cause
	}
	return errors.New(scrub(err.Error(), secret))
}
