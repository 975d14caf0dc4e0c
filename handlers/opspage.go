package handlers

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"semel/chat"
	"semel/db"
	"semel/views"
)

// The lists of requests, for people and programs.
const (
	requestsPage = 50
	requestsMost = 1000
)

// requestFilter reads what the address asks for.
func requestFilter(r *http.Request) (f db.RequestFilter, err error) {
	q := r.URL.Query()
	f = db.RequestFilter{State: chat.State(q.Get("state")), Decision: chat.Decision(q.Get("decision")), View: q.Get("view"), ID: q.Get("q"), Limit: requestsPage}
	switch {
	case f.State != "" && !slices.Contains(chat.States, f.State):
		return f, badRequest(fmt.Sprintf("state: there is no state %q.", f.State))
	case f.Decision != "" && !slices.Contains(chat.Decisions, f.Decision):
		return f, badRequest(fmt.Sprintf("decision: there is no decision %q.", f.Decision))
	case f.View != "" && !slices.Contains(db.Views, f.View):
		return f, badRequest(fmt.Sprintf("view: there is no view %q; there are %v.", f.View, db.Views))
	case len(f.ID) > 64:
		return f, badRequest("q: an id has at most 64 characters.")
	}
	if l := q.Get("limit"); l != "" {
		if f.Limit, err = strconv.Atoi(l); err != nil || f.Limit < 1 || f.Limit > requestsMost {
			return f, badRequest(fmt.Sprintf("limit goes from 1 to %d.", requestsMost))
		}
	}
	if b := q.Get("before"); b != "" {
		if f.Before, err = strconv.ParseInt(b, 10, 64); err != nil || f.Before < 1 {
			return f, badRequest("before is the next of an earlier page.")
		}
	}
	return f, nil
}

// listRequests lists the newest requests of all users with their dedupe state. A filter
// looks at the newest ten thousand from before on; next goes on where that ended.
func (s *server) listRequests(w http.ResponseWriter, r *http.Request) error {
	list, next, err := s.newest(r)
	if err != nil {
		return err
	}
	type summary struct {
		RequestID       string                `json:"requestId"`
		SessionID       string                `json:"sessionId"`
		UserID          int64                 `json:"userId"`
		Kind            chat.Kind             `json:"kind"`
		Status          chat.Status           `json:"status"`
		State           chat.State            `json:"state"`
		Code            string                `json:"code"` // of a failure
		Arrivals        map[chat.Decision]int `json:"arrivals"`
		Attempt         int64                 `json:"attempt"`
		Model           string                `json:"model"`
		FirstTokenMS    int64                 `json:"firstTokenMs"` // 0: none came
		TotalMS         int64                 `json:"totalMs"`      // 0 while it waits
		Usage           chat.Usage            `json:"usage"`
		Cost            chat.Money            `json:"cost"`
		Waste           chat.Money            `json:"waste"`
		OpenEffects     int                   `json:"openEffects"`
		TroubledEffects int                   `json:"troubledEffects"`
		CreatedAt       chat.Stamp            `json:"createdAt"`
	}
	out := struct {
		Requests []summary `json:"requests"`
		Next     string    `json:"next"`
	}{Requests: []summary{}}
	if next != 0 {
		out.Next = strconv.FormatInt(next, 10)
	}
	for _, v := range list {
		q := v.Request
		out.Requests = append(out.Requests, summary{
			RequestID: q.Key.RequestID, SessionID: q.Key.SessionID, UserID: q.Key.UserID, Kind: q.Kind, Status: q.State.Status(), State: q.State, Code: q.Failure.Code,
			Arrivals: v.Arrivals, Attempt: q.Attempt, Model: q.Model, FirstTokenMS: v.FirstToken.Milliseconds(), TotalMS: v.Total.Milliseconds(), Usage: v.Usage,
			Cost: chat.Money{Currency: s.Currency, Micros: v.Micros}, Waste: chat.Money{Currency: s.Currency, Micros: v.Waste},
			OpenEffects: v.Open, TroubledEffects: v.Troubled, CreatedAt: chat.Stamp{Time: q.CreatedAt},
		})
	}
	s.writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *server) newest(r *http.Request) ([]db.Summary, int64, error) {
	f, err := requestFilter(r)
	if err != nil {
		return nil, 0, err
	}
	// A list counts every arrival up to the moment it is read, as a receipt does.
	if err := s.Engine.FlushArrivals(r.Context()); err != nil {
		return nil, 0, err
	}
	return s.DB.Requests(r.Context(), f)
}

// getOps is that list for people.
func (s *server) getOps(w http.ResponseWriter, r *http.Request) error {
	f, err := requestFilter(r)
	if err != nil {
		return err
	}
	list, next, err := s.newest(r)
	if err != nil {
		return err
	}
	chatPage, err := s.freshChat(r, "")
	if err != nil {
		return err
	}
	now := time.Now()
	p := views.OpsPage{
		Frame: chatPage.Frame, Currency: s.Currency, Next: next, Examined: db.Examined, Now: now,
		Filter: views.OpsFilter{State: string(f.State), Decision: string(f.Decision), View: f.View, ID: f.ID, Before: f.Before, Limit: f.Limit},
	}
	if p.Stats, err = s.opsStats(r.Context(), now); err != nil {
		return err
	}
	for _, v := range list {
		q := v.Request
		p.Rows = append(p.Rows, views.OpsRow{
			ID: q.ID, At: q.CreatedAt, RequestID: q.Key.RequestID, SessionID: q.Key.SessionID, UserID: q.Key.UserID, Kind: q.Kind, State: q.State, Code: q.Failure.Code,
			Arrivals: v.Arrivals, Attempt: q.Attempt, Model: q.Model, FirstToken: v.FirstToken, Total: v.Total,
			Tokens: v.Usage.InputTokens + v.Usage.OutputTokens, Micros: v.Micros, Waste: v.Waste, Open: v.Open, Troubled: v.Troubled,
		})
	}
	return s.writePage(w, r, http.StatusOK, views.Ops(p))
}

// getOutboxPage is the outbox for people.
func (s *server) getOutboxPage(w http.ResponseWriter, r *http.Request) error {
	return s.outboxPage(w, r, http.StatusOK, func(*views.OutboxPage) {})
}

// outboxPage writes that page, changed by what a form of it led to.
func (s *server) outboxPage(w http.ResponseWriter, r *http.Request, status int, change func(*views.OutboxPage)) error {
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
	chatPage, err := s.freshChat(r, "")
	if err != nil {
		return err
	}
	p := views.OutboxPage{Frame: chatPage.Frame, State: string(f.State), States: outboxStates, Done: r.URL.Query().Get("done") != ""}
	if len(list) > most {
		list = list[:most]
		p.Next = strconv.FormatInt(list[most-1].ID, 10)
	}
	for _, o := range list {
		row := outboxRow(o)
		for _, t := range o.Last {
			row.Tries = append(row.Tries, views.Tried{N: t.N, At: t.StartedAt, Outcome: t.Outcome, Status: t.Status, Code: t.Code})
		}
		p.Rows = append(p.Rows, row)
	}
	if f.State == chat.EffectDead || f.State == chat.EffectTimedOut {
		ids, err := s.DB.Troubled(r.Context(), f.State, redrivesMost)
		if err != nil {
			return err
		}
		p.Count = len(ids)
	}
	change(&p)
	return s.writePage(w, r, status, views.Outbox(p))
}

// postOutbox does what a person decided on that page.
func (s *server) postOutbox(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return badRequest("The form cannot be read.")
	}
	do, reason := r.PostForm.Get("do"), r.PostForm.Get("reason")
	var results []redriven
	var err error
	switch do {
	case db.Redrive, db.Abandon, db.Compensate:
		_, err = s.resolveOne(r, r.PostForm.Get("id"), do, reason)
	case "redrive-all":
		results, err = s.redriveState(r, reason)
	default:
		return badRequest("do is redrive, abandon, compensate or redrive-all.")
	}
	if err != nil {
		p := s.told(r, err)
		if p.Status >= 500 {
			return err
		}
		return s.outboxPage(w, r, p.Status, func(v *views.OutboxPage) { v.Error, v.Reason = p, reason })
	}
	if do == "redrive-all" {
		return s.outboxPage(w, r, http.StatusOK, func(v *views.OutboxPage) {
			v.Done = true
			for _, one := range results {
				v.Results = append(v.Results, views.Redriven(one))
			}
		})
	}
	q := r.URL.Query()
	q.Set("done", "1")
	q.Del("before")
	http.Redirect(w, r, "/ops/outbox?"+q.Encode(), http.StatusSeeOther)
	return nil
}

// redriveState sends all again that are in the state of the page.
func (s *server) redriveState(r *http.Request, reason string) ([]redriven, error) {
	f, err := outboxFilter(r)
	if err != nil {
		return nil, err
	}
	ids, err := s.DB.Troubled(r.Context(), f.State, redrivesMost)
	if err != nil {
		return nil, err
	}
	return s.redrive(r, ids, reason)
}
