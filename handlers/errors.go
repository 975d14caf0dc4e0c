package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/password"
)

// A handler answers a request, or returns why it does not.
type handler func(http.ResponseWriter, *http.Request) error

// handle turns a handler's error into an answer.
func (s *server) handle(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err != nil && !errors.Is(err, errHangUp) && errors.Is(context.Cause(r.Context()), errSignedOut) {
			err = signedOut() // it was cut, and nothing is said yet
		} else if err == nil || errors.Is(err, errHangUp) || r.Context().Err() != nil && errors.Is(err, context.Canceled) {
			return
		}
		s.writeProblem(w, s.told(r, err))
	}
}

// told is how an error is told to the sender of r. What nobody foresaw goes to
// the log. To a sender of questions it is 503, not 500: the question may be
// stored, and a client that takes the answer for the end of it would let the
// person send it a second time under a new id (contract, section 1).
func (s *server) told(r *http.Request, err error) *chat.Problem {
	q := *problemOf(err) // which may be everybody's
	p := &q
	p.Detail = cut(p.Detail, detailBytes)
	if p.Status != http.StatusInternalServerError {
		s.Engine.Count("refused_" + p.Code)
		s.Engine.Meter().Refused(p.Code)
		return p
	}
	s.Log.Error("internal", "trace_id", traceID(r), "method", r.Method, "path", r.URL.Path, "error", err)
	if r.Method == http.MethodPost && r.URL.Path == "/api/chat" {
		p.Status, p.RetryAfter = http.StatusServiceUnavailable, 2*time.Second
	}
	return p
}

// detailBytes is how much is said of what is wrong: it may quote what came.
const detailBytes = 1000

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// errHangUp: the response has begun and cannot be finished.
var errHangUp = errors.New("hang up")

// problemOf is the one table of how an error is told.
func problemOf(err error) *chat.Problem {
	var p *chat.Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, db.ErrNotFound):
		return refuse(http.StatusNotFound, "not_found", chat.RetrySameID, "There is nothing by this id.")
	case errors.Is(err, db.ErrGone):
		return refuse(http.StatusGone, "conversation_gone", chat.RetryNever, "The conversation was deleted.")
	case errors.Is(err, db.ErrParent):
		return refuse(http.StatusUnprocessableEntity, "parent_not_found", chat.RetryNewID, "The conversation has no such message.")
	case errors.Is(err, db.ErrAlreadyDecided):
		return refuse(http.StatusConflict, "already_decided", chat.RetryNever, "It is decided, and not so.")
	case errors.Is(err, db.ErrDigest):
		return refuse(http.StatusConflict, "digest_mismatch", chat.RetryNever, "The digest is not that of the action and its arguments: the verdict is about something else.")
	case errors.Is(err, db.ErrNotNow):
		return refuse(http.StatusConflict, "not_now", chat.RetryNever, "That cannot be done as it stands: it is under way, or settled, or nothing is declared that does it.")
	case errors.Is(err, db.ErrOtherRequest):
		return refuse(http.StatusConflict, "other_request", chat.RetryNever, "The effect is of another request than the callback names.")
	case errors.Is(err, db.ErrKeyReused):
		return refuse(http.StatusUnprocessableEntity, "key_reused", chat.RetryNewID, "This key was used for something else.")
	case errors.Is(err, engine.ErrSignature):
		return refuse(http.StatusUnauthorized, "signature_invalid", chat.RetryNever, "It is not signed with a secret of its destination, or more than five minutes ago or ahead.")
	case errors.Is(err, db.ErrNotYourTurn):
		return refuse(http.StatusConflict, "busy", chat.RetryNewID, "An answer is running in this conversation. Stop it or wait for its end.")
	case errors.Is(err, db.ErrDisabled):
		return signedOut()
	case errors.Is(err, password.ErrBusy):
		p := refuse(http.StatusTooManyRequests, "too_many_tries", chat.RetrySameID, "Many sign in at this moment. Try again.")
		p.RetryAfter = 2 * time.Second
		return p
	case errors.Is(err, db.ErrOutcomeOpen), errors.Is(err, db.ErrClosed), db.IsRetryable(err):
		p := refuse(http.StatusServiceUnavailable, "storage_failed", chat.RetrySameID, "The database cannot be written now. Ask again.")
		p.RetryAfter = 2 * time.Second
		return p
	}
	return refuse(http.StatusInternalServerError, "internal", chat.RetrySameID, "The log has the details, under the trace id of this answer.")
}

func refuse(status int, code string, retry chat.Retry, detail string) *chat.Problem {
	p := chat.NewProblem(status, code, detail, retry)
	return &p
}

// about names the request that a problem is about, where its id was understood.
func about(requestID string, err error) error {
	var p *chat.Problem
	if errors.As(err, &p) && p.RequestID == "" {
		p.RequestID = requestID
	}
	return err
}

func badRequest(detail string) *chat.Problem {
	return refuse(http.StatusBadRequest, "bad_request", chat.RetryNewID, detail)
}

func (s *server) writeProblem(w http.ResponseWriter, p *chat.Problem) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(p.RetryAfter.Seconds()))))
	}
	if p.RequestID != "" {
		w.Header().Set("X-Request-Id", p.RequestID)
	}
	if p.Attempt != nil {
		w.Header().Set("X-Attempt", strconv.FormatInt(*p.Attempt, 10))
	}
	s.write(w, p.Status, "application/problem+json", p)
}

func (s *server) writeJSON(w http.ResponseWriter, status int, v any) {
	s.write(w, status, "application/json", v)
}

// writeTimeout is how long a client may take to read one piece of an answer.
const writeTimeout = 30 * time.Second

// answerTimeout is for an answer as a whole: net/http may first wait for the rest
// of a body that nobody read.
const answerTimeout = readTimeout + writeTimeout

func (s *server) write(w http.ResponseWriter, status int, contentType string, v any) {
	send(w, status, contentType, encode(v))
}

// encode returns v as a JSON text that ends with a newline.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	return append(b, '\n')
}

func send(w http.ResponseWriter, status int, contentType string, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // recorders in tests have none
	h := w.Header()
	h.Set("Content-Type", contentType+"; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone asks again
}

// notFound answers a browser with a page and a program with a problem.
func (s *server) notFound(w http.ResponseWriter, r *http.Request) {
	h := s.handle
	if strings.Contains(r.Header.Get("Accept"), "text/html") && !strings.HasPrefix(r.URL.Path, "/api/") {
		h = s.page
	}
	h(func(http.ResponseWriter, *http.Request) error {
		return refuse(http.StatusNotFound, "not_found", chat.RetryNever, "There is no "+r.URL.Path+" here.")
	})(w, r)
}

func methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	routes := chi.RouteContext(r.Context()).Routes
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		as := m
		if m == http.MethodHead {
			as = http.MethodGet
		}
		if routes.Match(chi.NewRouteContext(), as, r.URL.Path) {
			w.Header().Add("Allow", m)
		}
	}
	return refuse(http.StatusMethodNotAllowed, "method_not_allowed", chat.RetryNever, r.Method+" does nothing at "+r.URL.Path+".")
}
