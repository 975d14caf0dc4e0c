package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
)

const (
	outboxRows   = 50
	outboxMost   = 200
	redrivesMost = 1000 // in one call
)

// An outgoingJSON is a row of the outbox. Its payload is in the receipt of nobody: it
// may be secret, and who may see it has the arguments.
type outgoingJSON struct {
	ID          string           `json:"id"`   // the webhook id
	Kind        string           `json:"kind"` // effect, compensation or charge
	RequestID   string           `json:"requestId"`
	SessionID   string           `json:"sessionId"`
	Position    int64            `json:"position"`
	Destination string           `json:"destination"`
	State       chat.EffectState `json:"state"`
	Attempts    int64            `json:"attempts"`
	Code        string           `json:"code"`
	Unknown     bool             `json:"unknown"` // a delivery may have been executed although nobody said so
	Compensable bool             `json:"compensable"`
	NextAt      chat.Stamp       `json:"nextAt"` // pending: the next delivery
	DueAt       chat.Stamp       `json:"dueAt"`  // awaiting: until
	CreatedAt   chat.Stamp       `json:"createdAt"`
	SettledAt   chat.Stamp       `json:"settledAt"`
}

func outgoingOf(o db.Outgoing, k chat.Key) outgoingJSON {
	return outgoingJSON{
		ID: o.WebhookID, Kind: o.Kind, RequestID: k.RequestID, SessionID: k.SessionID, Position: o.Position, Destination: o.Destination,
		State: o.State, Attempts: o.Attempt, Code: o.Code, Unknown: o.Unknown, Compensable: o.Compensates,
		NextAt: chat.Stamp{Time: o.NextAt}, DueAt: chat.Stamp{Time: o.DueAt}, CreatedAt: chat.Stamp{Time: o.CreatedAt}, SettledAt: chat.Stamp{Time: o.SettledAt},
	}
}

// outboxStates are those that a row of the outbox can have.
var outboxStates = []chat.EffectState{
	chat.EffectPending, chat.EffectDelivering, chat.EffectAwaiting, chat.EffectDead, chat.EffectTimedOut, chat.EffectRefused,
	chat.EffectCompensating, chat.EffectDelivered, chat.EffectAbandoned, chat.EffectCompensated,
}

func outboxState(state string) (chat.EffectState, error) {
	if state != "" && !slices.Contains(outboxStates, chat.EffectState(state)) {
		return "", badRequest(fmt.Sprintf("state: there is no state %q of the outbox.", state))
	}
	return chat.EffectState(state), nil
}

// outboxFilter reads what the address asks for.
func outboxFilter(r *http.Request) (f db.OutboxFilter, err error) {
	q := r.URL.Query()
	f = db.OutboxFilter{Limit: outboxRows}
	if f.State, err = outboxState(q.Get("state")); err != nil {
		return f, err
	}
	if l := q.Get("limit"); l != "" {
		if f.Limit, err = strconv.Atoi(l); err != nil || f.Limit < 1 || f.Limit > outboxMost {
			return f, badRequest(fmt.Sprintf("limit goes from 1 to %d.", outboxMost))
		}
	}
	if b := q.Get("before"); b != "" {
		if f.Before, err = strconv.ParseInt(b, 10, 64); err != nil || f.Before < 1 {
			return f, badRequest("before is the next of an earlier page.")
		}
	}
	return f, nil
}

// listOutbox lists what leaves, the newest first, a page at a time.
func (s *server) listOutbox(w http.ResponseWriter, r *http.Request) error {
	f, err := outboxFilter(r)
	if err != nil {
		return err
	}
	most := f.Limit
	f.Limit++
	list, err := s.DB.Outbox(r.Context(), f)
	if err != nil {
		return err
	}
	out := struct {
		Outbox []outgoingJSON `json:"outbox"`
		Next   string         `json:"next"`
	}{Outbox: []outgoingJSON{}}
	if len(list) > most {
		list = list[:most]
		out.Next = strconv.FormatInt(list[most-1].ID, 10)
	}
	for _, o := range list {
		out.Outbox = append(out.Outbox, outgoingOf(o, o.Key))
	}
	s.writeJSON(w, http.StatusOK, out)
	return nil
}

// resolve returns a handler that does what a person decided about a row that stays
// open. Doing it again changes nothing.
func (s *server) resolve(do string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body struct {
			Reason string `json:"reason"`
		}
		if err := s.readJSON(w, r, &body); err != nil {
			return err
		}
		o, err := s.resolveOne(r, chi.URLParam(r, "webhookID"), do, body.Reason)
		if err != nil {
			return err
		}
		req, err := s.DB.Load(r.Context(), o.RequestID)
		if err != nil {
			return err
		}
		s.writeJSON(w, http.StatusOK, outgoingOf(o, req.Key))
		return nil
	}
}

func (s *server) resolveOne(r *http.Request, webhookID, do, reason string) (db.Outgoing, error) {
	reason, err := reasonOf(reason)
	if err != nil {
		return db.Outgoing{}, err
	}
	if reason == "" {
		return db.Outgoing{}, badRequest("reason is needed: it is written down with what you do.")
	}
	return s.Engine.Resolve(r.Context(), db.Resolution{WebhookID: webhookID, Do: do, Actor: s.actor(r), Reason: reason})
}

// A redriven says what became of one row of many.
type redriven struct {
	ID    string           `json:"id"`
	State chat.EffectState `json:"state,omitempty"`
	Error *chat.Problem    `json:"error,omitempty"`
}

// postRedrive sends again several rows of the outbox, or all of a state. Each is a
// change of its own: what cannot be done of one stops no other.
func (s *server) postRedrive(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		IDs    []string `json:"ids"`
		State  string   `json:"state"`
		Reason string   `json:"reason"`
	}
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	state, err := outboxState(body.State)
	switch {
	case err != nil:
		return err
	case (len(body.IDs) > 0) == (state != ""):
		return badRequest("Send either ids or state.")
	case state != "" && state != chat.EffectDead && state != chat.EffectTimedOut:
		return badRequest("state is dead or timed_out: nothing else can be sent again.")
	case len(body.IDs) > redrivesMost:
		return badRequest(fmt.Sprintf("At most %d ids at a time.", redrivesMost))
	}
	ids, more, err := body.IDs, false, nil
	if state != "" {
		if ids, err = s.DB.Troubled(r.Context(), state, redrivesMost+1); err != nil {
			return err
		}
		if more = len(ids) > redrivesMost; more {
			ids = ids[:redrivesMost]
		}
	}
	out := struct {
		Results []redriven `json:"results"`
		More    bool       `json:"more"` // of that state: ask again
	}{More: more}
	if out.Results, err = s.redrive(r, ids, body.Reason); err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, out)
	return nil
}

// redrive sends several rows again and says of each what came of it.
func (s *server) redrive(r *http.Request, ids []string, reason string) ([]redriven, error) {
	list := []redriven{}
	for _, id := range ids {
		one := redriven{ID: id}
		o, err := s.resolveOne(r, id, db.Redrive, reason)
		if err != nil {
			var p *chat.Problem
			if errors.As(err, &p) && p.Code == "bad_request" {
				return nil, err // of the reason, which is that of all
			}
			one.Error = s.told(r, err)
		} else {
			one.State = o.State
		}
		list = append(list, one)
	}
	return list, nil
}

// correct returns a handler that changes what a request cost, by hand, once for each
// key: the header Idempotency-Key. A refund is given as what is given back.
func (s *server) correct(kind string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body struct {
			Micros *int64 `json:"micros"`
			Reason string `json:"reason"`
		}
		if err := s.readJSON(w, r, &body); err != nil {
			return err
		}
		k, err := s.opsKey(r)
		if err != nil {
			return err
		}
		key, err := idempotencyKey(r.Header.Values("Idempotency-Key"))
		if err == nil {
			key, err = chat.ParseID(key)
		}
		reason, rerr := reasonOf(body.Reason)
		switch {
		case err != nil:
			return refuse(http.StatusBadRequest, "key_missing", chat.RetryNewID,
				"Send a new ULID in the header Idempotency-Key, once for each correction and again with each retry.")
		case rerr != nil:
			return rerr
		case reason == "":
			return badRequest("reason is needed: it is written down with the correction.")
		case body.Micros == nil || *body.Micros == 0 || *body.Micros < 0 && kind == "refund":
			return badRequest("micros is needed: of a refund what is given back, of an adjustment what is added.")
		}
		if err := s.correctOne(r, k, kind, *body.Micros, db.Deed{Actor: s.actor(r), Reason: reason, Key: key}); err != nil {
			return err
		}
		return s.writeReceipt(w, r, k)
	}
}

// correctOne changes what the request with a key cost. A refund is given as what is given
// back.
func (s *server) correctOne(r *http.Request, k chat.Key, kind string, micros int64, deed db.Deed) error {
	req, err := s.DB.Find(r.Context(), k)
	if err != nil {
		return err
	}
	if kind == "refund" {
		micros = -micros
	}
	return s.DB.Correct(r.Context(), db.Correction{RequestID: req.ID, Kind: kind, Micros: micros, Actor: deed.Actor, Reason: deed.Reason, Key: deed.Key})
}
