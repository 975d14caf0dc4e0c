package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
)

const (
	reasonBytes   = 2000     // of a person's reason, and of a receiver's
	callbackBytes = 64 << 10 // of a callback
)

// postDecision takes a person's verdict on an action that asks. The same one again is
// answered the same.
func (s *server) postDecision(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Verdict string `json:"verdict"`
		Reason  string `json:"reason"`
		Digest  string `json:"digest"`
	}
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	req, err := s.decide(r, chi.URLParam(r, "decisionID"), body.Verdict, body.Reason, body.Digest)
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

// decide makes a verdict durable. Without a digest it is about whatever there is: a
// program may have read it elsewhere. Pages send that of what they showed.
func (s *server) decide(r *http.Request, id, verdict, reason, digest string) (chat.Request, error) {
	if verdict != "approve" && verdict != "reject" {
		return chat.Request{}, badRequest(fmt.Sprintf("verdict is approve or reject, not %q.", verdict))
	}
	reason, err := reasonOf(reason)
	if err != nil {
		return chat.Request{}, err
	}
	return s.Engine.Decide(r.Context(), db.Verdict{
		UserID: s.user(r), WebhookID: id, Approve: verdict == "approve", Digest: strings.ToLower(digest), Actor: s.actor(r), Reason: reason,
	})
}

// actor names who asks in what is written down.
func (s *server) actor(r *http.Request) string { return fmt.Sprintf("user:%d", s.user(r)) }

// reasonOf is a reason as it is stored.
func reasonOf(reason string) (string, error) {
	reason = strings.TrimSpace(reason)
	if len(reason) > reasonBytes {
		return "", badRequest(fmt.Sprintf("reason has more than %d bytes.", reasonBytes))
	}
	return reason, nil
}

// A callbackBody is what a receiver says of an effect.
type callbackBody struct {
	OK        *bool  `json:"ok"`
	RequestID string `json:"requestId"`
	Reason    string `json:"reason"`
}

// postCallback takes what a receiver says of the effect that the path names. It is
// believed by its signature, so it may come from anywhere.
func (s *server) postCallback(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, callbackBytes))
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // see patience
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, "too_large", chat.RetryNever, fmt.Sprintf("A callback has at most %d bytes.", callbackBytes))
	case err != nil:
		return refuse(http.StatusRequestTimeout, "bad_request", chat.RetrySameID, "The body did not arrive whole.")
	}
	id := chi.URLParam(r, "webhookID")
	messageID, err := s.Engine.VerifyCallback(r.Context(), id, r.Header, body)
	if err != nil {
		return err
	}
	said, err := parseCallback(body)
	if err != nil {
		return err
	}
	decision, err := s.Engine.Callback(r.Context(), db.Callback{
		WebhookID: id, MessageID: messageID, OK: *said.OK, Reason: said.Reason, RequestID: said.RequestID,
	})
	if err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, map[string]any{"decision": decision})
	return nil
}

// parseCallback reads {type, data: {ok, requestId?, reason?}}. Receivers add members of
// their own, which are passed over.
func parseCallback(body []byte) (said callbackBody, err error) {
	var whole struct {
		Type string        `json:"type"`
		Data *callbackBody `json:"data"`
	}
	if err := json.Unmarshal(body, &whole); err != nil {
		return said, badRequest("The body is no callback: " + explain(err, ""))
	}
	if whole.Type == "" || whole.Data == nil || whole.Data.OK == nil {
		return said, badRequest(`The body is no callback: it must be {"type": …, "data": {"ok": true or false}}.`)
	}
	said = *whole.Data
	for len(said.Reason) > reasonBytes { // it is for people: the beginning will do
		_, n := utf8.DecodeLastRuneInString(said.Reason)
		said.Reason = said.Reason[:len(said.Reason)-n]
	}
	return said, nil
}
