package handlers

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"semel/chat"
)

type traceKey struct{}

func traceID(r *http.Request) string {
	id, _ := r.Context().Value(traceKey{}).(string)
	return id
}

// trace gives every request an id of our own (X-Request-Id is the intent's) and
// writes one line about it.
func (s *server) trace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := chat.NewID()
		w.Header().Set("X-Trace-Id", id)
		sw := &statusWriter{ResponseWriter: w}
		started := time.Now()
		next.ServeHTTP(sw, r.WithContext(context.WithValue(r.Context(), traceKey{}, id)))
		s.Log.Debug("http", "trace_id", id, "method", r.Method, "path", r.URL.Path, "status", sw.status,
			"duration_ms", time.Since(started).Milliseconds())
	})
}

// A statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets a ResponseController reach what is below.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// HeaderBytes is how long a request may be before its body, in bytes as they are plainly
// written: the first line, a line for each header, and the empty one. net/http has a bound
// of the same name that lets 4 kB more pass.
const HeaderBytes = 16 << 10

// brief refuses longer headers. Those that net/http has refused before it says so to in its own words.
func (s *server) brief(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		if n := headerBytes(r); n > HeaderBytes {
			return refuse(http.StatusRequestHeaderFieldsTooLarge, "header_too_large", chat.RetryNewID,
				fmt.Sprintf("The address and the headers have %d bytes; at most %d are taken. Cookies of other programs under this name count, too.", n, HeaderBytes))
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

func headerBytes(r *http.Request) int {
	n := len(r.Method) + len(r.RequestURI) + len(r.Proto) + len("  \r\n") + len("Host: \r\n") + len(r.Host) + len("\r\n")
	if len(r.TransferEncoding) > 0 { // net/http has taken it out
		n += len("Transfer-Encoding: chunked\r\n")
	}
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// unpacked refuses a body that is packed (RFC 9110, section 8.4): a few bytes could become
// gigabytes, and nobody who asks needs it.
func (s *server) unpacked(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		if e := strings.Join(r.Header.Values("Content-Encoding"), ", "); e != "" && !strings.EqualFold(e, "identity") {
			return refuse(http.StatusUnsupportedMediaType, "unsupported_media", chat.RetryNewID,
				fmt.Sprintf("A body with Content-Encoding %q is not taken. Send it as it is.", e))
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// recovered turns a panic of a handler into an answer, or hangs up when one has
// begun.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler {
				panic(v)
			}
			s.Log.Error("panic", "trace_id", traceID(r), "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
			if sw, ok := w.(*statusWriter); ok && sw.status != 0 {
				panic(http.ErrAbortHandler)
			}
			s.writeProblem(w, s.told(r, errPanic))
		}()
		next.ServeHTTP(w, r)
	})
}

var errPanic = errString("panic")

type errString string

func (e errString) Error() string { return string(e) }

// patience bounds how long a client may take to send a body, also one that no
// handler reads: net/http waits for the rest of it before it replies. Whoever has
// read a body lifts the bound, or the wait for the answer would end with it.
func (s *server) patience(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc, now := http.NewResponseController(w), time.Now()
		if r.Body != http.NoBody {
			_ = rc.SetReadDeadline(now.Add(readTimeout)) // recorders in tests have none
		}
		_ = rc.SetWriteDeadline(now.Add(answerTimeout)) // whoever waits first sets a new one
		next.ServeHTTP(w, r)
	})
}

// csp lets a page run our own files and nothing else. Trusted Types: HTML enters
// a page through the one policy "semel".
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'; trusted-types semel"

// readOnly refuses every change where the database is only read. A stream would wait for
// an answer that nobody gives.
func (s *server) readOnly(next http.Handler) http.Handler {
	if s.Safe == "" {
		return next
	}
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if reads && r.URL.Path != "/readyz" && !strings.HasPrefix(r.URL.Path, "/api/chat/stream/") {
			next.ServeHTTP(w, r)
			return nil
		}
		p := refuse(http.StatusServiceUnavailable, "safe_mode", chat.RetrySameID, "The database is only read: "+s.Safe+". Ask again with the same id when it is served as ever.")
		p.RetryAfter = time.Minute
		if wantsPage(r) {
			return s.note(w, r, s.told(r, p))
		}
		return p
	})
}

// headers are on every answer.
func (s *server) headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		maps.Copy(w.Header(), everywhere)
		if s.Strict && r.TLS != nil {
			w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// everywhere is copied as it is: the names are canonical, and Set replaces a value
// instead of changing it.
var everywhere = http.Header{
	"Cache-Control":                {"no-store"}, // files that may be kept say so themselves
	"Content-Security-Policy":      {csp},
	"X-Content-Type-Options":       {"nosniff"},
	"X-Frame-Options":              {"DENY"},
	"Referrer-Policy":              {"no-referrer"},
	"Cross-Origin-Opener-Policy":   {"same-origin"},
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"Permissions-Policy":           {"camera=(), geolocation=(), microphone=(), payment=(), usb=()"},
}

// onlyHere refuses requests under a name that is not ours, which is how a foreign
// page reaches a server on loopback (DNS rebinding), and requests that came
// through a proxy: without accounts there is nobody to tell apart.
func (s *server) onlyHere(r *http.Request) error {
	if !s.ownHost(r.Host) {
		return refuse(http.StatusForbidden, "forbidden_host", chat.RetryNever,
			"Without accounts this server answers under loopback names only, not as "+r.Host+".")
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"} {
		if len(r.Header.Values(name)) > 0 {
			return refuse(http.StatusForbidden, "forwarded_refused", chat.RetryNever,
				"Without accounts this server is for this machine alone; this request came through a proxy ("+name+"). semel user add makes the first account.")
		}
	}
	return nil
}

func (s *server) ownHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if ip := net.ParseIP(name); ip != nil && ip.IsLoopback() {
		return true
	}
	return name == "localhost" || slices.Contains(s.Hosts, name)
}

// sameOrigin refuses what another site makes a browser send.
func (s *server) sameOrigin(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(s.handle(func(w http.ResponseWriter, r *http.Request) error {
		return refuse(http.StatusForbidden, "forbidden_origin", chat.RetryNever, "A page of another origin may not do this.")
	}))
	return p.Handler(next)
}
