package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/engine"
	"semel/llm"
)

const (
	defaultWait = 120 * time.Second // of a first call without Prefer
	longestWait = 10 * time.Minute
)

// A chatBody is the body of POST /api/chat.
type chatBody struct {
	SessionID   string          `json:"sessionId"`
	Content     string          `json:"content"`
	RequestID   string          `json:"requestId"`
	Kind        chat.Kind       `json:"kind"`
	ParentID    string          `json:"parentId"`
	Model       string          `json:"model"`
	Params      json.RawMessage `json:"params"`
	Attachments []string        `json:"attachments"`
	Confirm     string          `json:"confirm"` // "restored": a person wants it run after a restore
}

// postChat takes an intent, new or again (contract, section 3).
func (s *server) postChat(w http.ResponseWriter, r *http.Request) error {
	var body chatBody
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	ask, err := s.parseAsk(r, body)
	if err != nil {
		return about(ask.Key.RequestID, err)
	}
	// Before the work, so that a wait nobody understands never runs anything.
	wait, waits, err := preferWait(r)
	if err != nil {
		return about(ask.Key.RequestID, err)
	}
	res, err := s.Engine.Submit(r.Context(), ask)
	if err != nil {
		return err
	}
	if wantsStream(r) {
		return s.stream(w, r, res, ask.Source, cursor{})
	}
	if !waits && (res.Decision == chat.DecisionFirst || res.Decision == chat.DecisionRestarted) {
		wait = defaultWait
	}
	return s.answer(w, r, res, ask.Source, wait)
}

// answer waits for the answer as long as it may and sends what there is then.
func (s *server) answer(w http.ResponseWriter, r *http.Request, res engine.Result, source chat.Source, wait time.Duration) error {
	if res.Request.State.Live() && wait > 0 {
		res = s.Engine.Waiting(res, source)
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		go func() {
			select {
			case <-s.closing:
				cancel()
			case <-ctx.Done():
			}
		}()
		if err := s.Engine.Wait(ctx, res.Request.ID); err != nil && r.Context().Err() != nil {
			return r.Context().Err() // nobody is there to be told; the run goes on
		}
	}
	if kept := s.replays.get(res.Request.ID); kept != nil && res.Decision == chat.DecisionReplayed {
		s.Engine.Answered(res, source, http.StatusOK)
		s.requestHeaders(w, chat.Record{RequestID: res.Request.Key.RequestID, Attempt: res.Request.Attempt}, res.Decision)
		send(w, http.StatusOK, "application/json", kept)
		return nil
	}
	// An arrival is recorded also when its client hangs up now.
	rec, err := s.DB.RecordOf(context.WithoutCancel(r.Context()), res.Request.ID)
	if err != nil {
		return err
	}
	status := recordStatus(rec)
	s.Engine.Answered(res, source, status)
	s.requestHeaders(w, rec, res.Decision)
	if rec.Error != nil {
		s.writeProblem(w, rec.Error)
		return nil
	}
	rec.FromCache = res.Decision == chat.DecisionReplayed
	if status == http.StatusAccepted {
		w.Header().Set("Location", rec.StatusURL)
		w.Header().Set("Retry-After", strconv.Itoa(1+rand.IntN(3)))
	}
	body := encode(s.priced(rec))
	if rec.FromCache && rec.State == chat.StateCommitted && len(rec.Effects) == 0 {
		s.replays.put(res.Request.ID, body)
	}
	send(w, status, "application/json", body)
	return nil
}

// recordStatus is the HTTP status that a record is answered with.
func recordStatus(rec chat.Record) int {
	switch {
	case rec.Error != nil:
		return rec.Error.Status
	case rec.State.Answered():
		return http.StatusOK
	}
	return http.StatusAccepted
}

// requestHeaders are on every answer about an accepted request.
func (s *server) requestHeaders(w http.ResponseWriter, rec chat.Record, d chat.Decision) {
	h := w.Header()
	h.Set("X-Request-Id", rec.RequestID)
	h.Set("X-Attempt", strconv.FormatInt(rec.Attempt, 10))
	switch d {
	case chat.DecisionReplayed:
		h.Set("X-Idempotent-Replayed", "true")
		h.Set("Idempotent-Replayed", "true")
	case chat.DecisionJoined:
		h.Set("X-Idempotent-Joined", "true")
	}
}

func (s *server) writeRecord(w http.ResponseWriter, status int, rec chat.Record) {
	s.writeJSON(w, status, s.priced(rec))
}

// priced names the currency of a record's cost.
func (s *server) priced(rec chat.Record) chat.Record {
	if rec.Cost != nil {
		rec.Cost = &chat.Money{Currency: s.Currency, Micros: rec.Cost.Micros}
	}
	return rec
}

// parseAsk checks a body and finds its request id. Whatever is wrong is said
// before anything is stored, and the id remains unused.
func (s *server) parseAsk(r *http.Request, b chatBody) (engine.Ask, error) {
	var a engine.Ask
	id, err := s.requestID(r, b.RequestID)
	if err != nil {
		return a, err
	}
	a.Key.RequestID = id // a refusal names it
	session, err := chat.ParseID(b.SessionID)
	if err != nil {
		return a, refuse(http.StatusBadRequest, "session_invalid", chat.RetryNewID, "sessionId: "+err.Error()+".")
	}
	if b.Kind == "" {
		b.Kind = chat.KindMessage
	}
	params, err := parseParams(b.Params)
	if err != nil {
		return a, err
	}
	confirmed, err := confirms(b.Confirm)
	if err != nil {
		return a, err
	}
	a = engine.Ask{
		Key:  chat.Key{UserID: s.user(r), SessionID: session, RequestID: id},
		Kind: b.Kind, Content: b.Content, ParentID: b.ParentID, Model: b.Model, Params: params, Source: source(r), Trace: traceID(r),
		Attachments: b.Attachments, Confirmed: confirmed,
	}
	return a, s.checkAsk(a)
}

// confirms reads a person's word that something is to run although a restore may have
// lost its answer; "" is none.
func confirms(word string) (bool, error) {
	if word != "" && word != "restored" {
		return false, badRequest(`confirm can be "restored" only.`)
	}
	return word != "", nil
}

func (s *server) checkAsk(a engine.Ask) error {
	switch a.Kind {
	case chat.KindMessage:
		if a.ParentID != "" {
			return badRequest("A message follows the head of its conversation: only edit, regenerate and continue send parentId.")
		}
	case chat.KindEdit, chat.KindRegenerate, chat.KindContinue:
		if a.ParentID == "" {
			return badRequest(string(a.Kind) + " needs parentId, the message it is about.")
		}
	default:
		return badRequest(fmt.Sprintf("kind is message, edit, regenerate or continue, not %q.", a.Kind))
	}
	switch {
	case a.Kind.WritesQuestion() && strings.TrimSpace(a.Content) == "" && len(a.Attachments) == 0:
		return badRequest("content is empty.")
	case !a.Kind.WritesQuestion() && a.Content != "":
		return badRequest(string(a.Kind) + " sends no content.")
	case len(a.Content) > s.MessageBytes:
		return s.tooLarge(fmt.Sprintf("The question has %d bytes; limits.message_bytes allows %d.", len(a.Content), s.MessageBytes))
	}
	return s.checkAttachments(a.Kind, a.Attachments)
}

// requestID finds the id in its carriers, strongest first: body, Idempotency-Key,
// X-Request-Id (contract, section 1).
func (s *server) requestID(r *http.Request, body string) (string, error) {
	key, err := idempotencyKey(r.Header.Values("Idempotency-Key"))
	if err != nil {
		return "", err
	}
	carried, from := body, "requestId"
	if carried == "" {
		carried, from = key, "Idempotency-Key"
	}
	weak := r.Header.Get("X-Request-Id")
	if carried == "" {
		carried, from = weak, "X-Request-Id"
	}
	if carried == "" {
		return "", refuse(http.StatusBadRequest, "key_missing", chat.RetryNewID,
			"Send a new ULID as requestId in the body, or in the header Idempotency-Key, once for each intent and again with each retry.")
	}
	id, err := chat.ParseID(carried)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "key_invalid", chat.RetryNewID, from+": "+err.Error()+".")
	}
	if body != "" && key != "" {
		if other, err := chat.ParseID(key); err != nil || other != id {
			return "", refuse(http.StatusBadRequest, "key_mismatch", chat.RetryNewID, "requestId in the body and the header Idempotency-Key differ.")
		}
	}
	if weak != "" && from != "X-Request-Id" {
		if other, err := chat.ParseID(weak); err != nil || other != id {
			s.Engine.Count("x_request_id_ignored") // proxies rewrite it
		}
	}
	return id, nil
}

// idempotencyKey returns the key of the header, bare or as a quoted string
// (RFC 8941), "" when there is none.
func idempotencyKey(values []string) (string, error) {
	key := ""
	for i, v := range values {
		v = strings.TrimSpace(v)
		if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
			v = v[1 : len(v)-1]
		}
		if v == "" { // a program that lost its key must not run without one
			return "", refuse(http.StatusBadRequest, "key_invalid", chat.RetryNewID, "The header Idempotency-Key is empty.")
		}
		if i > 0 && v != key {
			return "", refuse(http.StatusBadRequest, "key_mismatch", chat.RetryNewID, "There are several headers Idempotency-Key, and they differ.")
		}
		key = v
	}
	return key, nil
}

// parseParams returns the canonical JSON of the parameters, "" when none were
// sent.
func parseParams(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var p llm.Params
	if err := decode(raw, &p); err != nil {
		var problem *chat.Problem
		if errors.As(err, &problem) {
			problem.Detail = "params: " + problem.Detail
		}
		return "", err
	}
	switch {
	case p.Temperature != nil && (*p.Temperature < 0 || *p.Temperature > 2):
		return "", badRequest("params: temperature goes from 0 to 2.")
	case p.TopP != nil && (*p.TopP < 0 || *p.TopP > 1):
		return "", badRequest("params: top_p goes from 0 to 1.")
	case p.MaxTokens != nil && *p.MaxTokens < 1:
		return "", badRequest("params: max_tokens is at least 1.")
	}
	b, err := json.Marshal(p)
	return string(b), err
}

// source says which door a request came through. Browsers say so themselves.
func source(r *http.Request) chat.Source {
	if r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		return chat.SourceWeb
	}
	return chat.SourceAPI
}

// preferWait reads Prefer: wait=N (RFC 7240): seconds, and whether it was there.
func preferWait(r *http.Request) (wait time.Duration, there bool, err error) {
	for _, line := range r.Header.Values("Prefer") {
		for _, p := range strings.Split(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue // an unknown preference is ignored
			}
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if err != nil {
				return 0, false, badRequest("Prefer: wait is a whole number of seconds.")
			}
			return min(time.Duration(n)*time.Second, longestWait), true, nil
		}
	}
	return 0, false, nil
}

func wantsStream(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if !strings.Contains(accept, "/") {
		return false
	}
	for part := range strings.SplitSeq(accept, ",") {
		t, params, err := mime.ParseMediaType(part)
		if err == nil && t == "text/event-stream" {
			q, err := strconv.ParseFloat(params["q"], 64)
			return err != nil || q > 0
		}
	}
	return false
}

// key reads the key of a request from the path and the query.
func (s *server) key(r *http.Request, session string) (chat.Key, error) {
	id, err := chat.ParseID(chi.URLParam(r, "requestID"))
	if err != nil {
		return chat.Key{}, refuse(http.StatusBadRequest, "key_invalid", chat.RetryNever, err.Error()+".")
	}
	k := chat.Key{UserID: s.user(r), RequestID: id}
	if k.SessionID, err = chat.ParseID(session); err != nil {
		return k, refuse(http.StatusBadRequest, "session_invalid", chat.RetryNever, "sessionId: "+err.Error()+".")
	}
	return k, nil
}

func (s *server) getStatus(w http.ResponseWriter, r *http.Request) error {
	k, err := s.key(r, r.URL.Query().Get("sessionId"))
	if err != nil {
		return err
	}
	rec, err := s.DB.Record(r.Context(), k)
	if err != nil {
		return err
	}
	s.requestHeaders(w, rec, "")
	s.writeRecord(w, http.StatusOK, rec)
	return nil
}

// postStop ends an answer; it is idempotent.
func (s *server) postStop(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		SessionID string `json:"sessionId"`
		Attempt   int64  `json:"attempt"`
	}
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	k, err := s.key(r, body.SessionID)
	if err != nil {
		return err
	}
	req, err := s.Engine.Stop(r.Context(), k, body.Attempt)
	if err != nil {
		return err
	}
	rec, err := s.DB.RecordOf(r.Context(), req.ID)
	if err != nil {
		return err
	}
	s.requestHeaders(w, rec, "")
	s.writeRecord(w, http.StatusOK, rec)
	return nil
}

// postRetry asks a failed request again because a person wants it.
func (s *server) postRetry(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		SessionID string `json:"sessionId"`
		Attempt   *int64 `json:"attempt"`
		Model     string `json:"model"`
		Confirm   string `json:"confirm"` // as of a question
	}
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	confirmed, err := confirms(body.Confirm)
	if err != nil {
		return err
	}
	k, err := s.key(r, body.SessionID)
	if err != nil {
		return err
	}
	if body.Attempt == nil {
		return badRequest("attempt is needed: the one you saw fail.")
	}
	wait, _, err := preferWait(r)
	if err != nil {
		return err
	}
	res, err := s.Engine.Retry(r.Context(), engine.Again{Key: k, Attempt: *body.Attempt, Model: body.Model, Confirmed: confirmed})
	if err != nil {
		return err
	}
	return s.answer(w, r, res, source(r), wait)
}
