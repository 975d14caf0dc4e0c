package handlers

import (
	"encoding/hex"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
	"semel/views"
)

// getReceiptPage is the receipt of an intent for people.
func (s *server) getReceiptPage(w http.ResponseWriter, r *http.Request) error {
	k, err := s.key(r, chi.URLParam(r, "sessionID"))
	if err != nil {
		return db.ErrNotFound
	}
	// A receipt counts every arrival up to the moment it is read.
	if err := s.Engine.FlushArrivals(r.Context()); err != nil {
		return err
	}
	rc, err := s.DB.Receipt(r.Context(), k)
	if err != nil {
		return err
	}
	p, err := s.freshChat(r, k.SessionID)
	if err != nil {
		return err
	}
	return s.writePage(w, r, http.StatusOK, views.ReceiptOf(views.ReceiptPage{
		Frame: p.Frame, SessionID: k.SessionID, Receipt: s.receiptView(rc),
	}))
}

// receiptView is a receipt as its page takes it; the numbers are those of the API.
func (s *server) receiptView(rc db.Receipt) views.Receipt {
	api := s.receiptOf(rc)
	v := views.Receipt{
		RequestID: api.RequestID, Kind: rc.Record.Kind, State: api.State, Problem: rc.Record.Error, Pruned: rc.Pruned,
		Imported: imported(rc), Currency: s.Currency, Saved: api.CallsSaved, MoneySaved: api.MoneySaved.Micros, Snapshot: hex.EncodeToString(rc.Snapshot),
	}
	if rc.Record.Message != nil {
		v.SnapshotAt = rc.Record.Message.CreatedAt.Time
	}
	for _, a := range rc.Arrivals {
		v.Arrivals = append(v.Arrivals, views.Arrival{At: a.At, Source: a.Source, Decision: a.Decision, Status: a.Status})
	}
	for _, t := range rc.Transitions {
		if t.Reason == "imported" && t.From != chat.StateNew {
			continue // it happened elsewhere
		}
		v.Transitions = append(v.Transitions, views.Transition{At: t.At, From: t.From, To: t.To, Attempt: t.Attempt, Reason: t.Reason})
	}
	for _, a := range callsOf(rc) {
		one := views.Attempt{N: a.N, Model: a.Model, Code: a.Code, DispatchedAt: a.DispatchedAt, FirstToken: a.FirstToken,
			EndedAt: a.EndedAt, Outcome: a.Outcome}
		if a.Usage != nil {
			one.Usage = *a.Usage
		}
		v.Attempts = append(v.Attempts, one)
	}
	for _, l := range rc.Ledger {
		v.Ledger = append(v.Ledger, views.LedgerRow{At: l.At, Kind: l.Kind, Attempt: l.Attempt, Micros: l.Micros, Estimated: l.Usage.Estimated})
	}
	for _, d := range rc.Deeds {
		v.Deeds = append(v.Deeds, views.Deed{At: d.At, Actor: d.Actor, Action: d.Action, Reason: d.Reason})
	}
	v.Account = strconv.FormatInt(rc.Request.Key.UserID, 10)
	addFollowed(&v, rc)
	return v
}

// addFollowed adds what followed from the answer.
func addFollowed(v *views.Receipt, rc db.Receipt) {
	v.Effects = rc.Record.Effects
	words := map[int64]map[string]string{} // by position
	for i, d := range rc.Decisions {
		words[int64(i)] = d.Description
		v.Decisions = append(v.Decisions, views.Decision{
			At: d.At, SaidAt: d.SaidAt, Action: d.Action, Descriptions: d.Description, Verdict: d.Verdict,
			Code: d.Code, Reason: d.Reason, Said: d.Said, Actor: d.Actor, SaidReason: d.SaidReason,
		})
	}
	for _, o := range rc.Sent {
		one := views.Delivery{Kind: o.Kind, Action: o.Destination}
		if o.Kind != db.KindCharge {
			one.Descriptions = words[o.Position]
		}
		for _, t := range o.Deliveries {
			one.At, one.EndedAt, one.N, one.Target, one.Code, one.Outcome, one.Status = t.StartedAt, t.EndedAt, t.N, t.Target, t.Code, t.Outcome, t.Status
			v.Deliveries = append(v.Deliveries, one)
		}
		for _, c := range o.Callbacks {
			v.Callbacks = append(v.Callbacks, views.Callback{At: c.At, OK: c.OK, Reason: c.Reason, Decision: string(c.Decision), Times: c.Times})
		}
	}
}
