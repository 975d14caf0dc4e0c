package handlers

import (
	"encoding/json"
	"math/big"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/views"
)

// opsKey is the request that a path of operations names. It may be anybody's: the
// parameter user says whose, without it it is the asker's own.
func (s *server) opsKey(r *http.Request) (chat.Key, error) {
	k, err := s.key(r, r.URL.Query().Get("sessionId"))
	if u := r.URL.Query().Get("user"); err == nil && u != "" {
		if k.UserID, err = strconv.ParseInt(u, 10, 64); err != nil {
			err = badRequest("user is a number.")
		}
	}
	return k, err
}

// evidence is all there is about a request, up to the moment it is read.
func (s *server) evidence(r *http.Request) (db.Receipt, error) {
	k, err := s.opsKey(r)
	if err != nil {
		return db.Receipt{}, err
	}
	if err := s.Engine.FlushArrivals(r.Context()); err != nil {
		return db.Receipt{}, err
	}
	return s.DB.Evidence(r.Context(), k)
}

// getOpsRequest is a receipt for operations: of any user, and without what was said.
func (s *server) getOpsRequest(w http.ResponseWriter, r *http.Request) error {
	rc, err := s.evidence(r)
	if err != nil {
		return err
	}
	s.requestHeaders(w, rc.Record, "")
	s.writeJSON(w, http.StatusOK, s.receiptOf(wordless(rc)))
	return nil
}

// wordless is a receipt without what was said, by the model or by those who answered an
// action: it may repeat what they were sent.
func wordless(rc db.Receipt) db.Receipt {
	rc.Record = withoutWords(rc.Record)
	decisions := make([]db.Decided, len(rc.Decisions))
	for i, d := range rc.Decisions {
		if d.Verdict == chat.VerdictInvalid {
			d.Reason = "" // what does not fit may be quoted
		}
		decisions[i] = d
	}
	rc.Decisions = decisions
	sent := make([]db.Sent, len(rc.Sent))
	for i, o := range rc.Sent {
		tries := make([]db.Try, len(o.Deliveries))
		for j, t := range o.Deliveries {
			t.Detail = ""
			tries[j] = t
		}
		o.Deliveries = tries
		sent[i] = o
	}
	rc.Sent = sent
	return rc
}

func withoutWords(rec chat.Record) chat.Record {
	rec.Content, rec.Reasoning, rec.Message = "", "", nil
	effects := make([]chat.Effect, len(rec.Effects))
	for i, e := range rec.Effects {
		e.Arguments = nil
		if e.Verdict == string(chat.VerdictInvalid) {
			e.Reason = ""
		}
		effects[i] = e
	}
	rec.Effects = effects
	return rec
}

func (s *server) getOpsRequestPage(w http.ResponseWriter, r *http.Request) error {
	return s.opsRequestPage(w, r, http.StatusOK, func(*views.OpsRequestPage) {})
}

// opsRequestPage writes that page, changed by what a form of it led to.
func (s *server) opsRequestPage(w http.ResponseWriter, r *http.Request, status int, change func(*views.OpsRequestPage)) error {
	rc, err := s.evidence(r)
	if err != nil {
		return err
	}
	side, err := s.freshChat(r, "")
	if err != nil {
		return err
	}
	at := time.Time{}
	if rc.Record.Message != nil {
		at = rc.Record.Message.CreatedAt.Time
	}
	rc = wordless(rc)
	q := rc.Request
	p := views.OpsRequestPage{
		Frame: side.Frame, Currency: s.Currency, Receipt: s.receiptView(rc), SessionID: q.Key.SessionID, UserID: q.Key.UserID,
		Model: q.Model, Owner: q.Owner, Attempt: q.Attempt, RetryAt: q.RetryAt, CreatedAt: q.CreatedAt, Now: time.Now(),
		Models: side.Models, Key: chat.NewID(), Done: r.URL.Query().Get("done") != "",
	}
	p.Receipt.SnapshotAt, p.Receipt.Account = at, p.Frame.Account
	for _, l := range rc.Ledger {
		p.Charged = p.Charged || l.Kind == "charge"
	}
	for _, o := range rc.Sent {
		row := outboxRow(o.Outgoing)
		row.Tries = triedOf(o.Deliveries)
		p.Sent = append(p.Sent, row)
	}
	text, err := json.MarshalIndent(s.receiptOf(rc), "", "  ")
	if err != nil {
		return err
	}
	p.JSON = string(text)
	change(&p)
	return s.writePage(w, r, status, views.OpsRequest(p))
}

// triedOf are deliveries, in the order of numbers, as the page shows them.
func triedOf(list []db.Try) (shown []views.Tried) {
	for i := len(list) - 1; i >= 0; i-- {
		t := list[i]
		shown = append(shown, views.Tried{N: t.N, At: t.StartedAt, Outcome: t.Outcome, Status: t.Status, Code: t.Code})
	}
	return shown
}

// postOpsRequest does what a person decided on that page. Whatever it is, it is written
// down with a reason, and done once however often the form comes.
func (s *server) postOpsRequest(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	k, err := s.opsKey(r)
	if err != nil {
		return err
	}
	if form.Get("do") == "reveal" {
		return s.reveal(w, r, k, form.Get("reason"))
	}
	if err := s.actOn(r, k, form); err != nil {
		p := s.told(r, err)
		if p.Status >= 500 {
			return err
		}
		return s.opsRequestPage(w, r, p.Status, func(v *views.OpsRequestPage) {
			v.Error, v.Open, v.Reason, v.Amount = p, form.Get("do"), form.Get("reason"), form.Get("amount")
			v.Confirm = p.Code == "restored_gap"
		})
	}
	q := r.URL.Query()
	q.Set("done", "1")
	http.Redirect(w, r, r.URL.EscapedPath()+"?"+q.Encode(), http.StatusSeeOther)
	return nil
}

func (s *server) actOn(r *http.Request, k chat.Key, form url.Values) error {
	do := form.Get("do")
	switch do {
	case db.Redrive, db.Abandon, db.Compensate:
		return s.resolveHere(r, k, form)
	}
	reason, err := reasonOf(form.Get("reason"))
	if err == nil && reason == "" {
		err = badRequest("reason is needed: it is written down with what you do.")
	}
	if err != nil {
		return err
	}
	deed := db.Deed{Actor: s.actor(r), Reason: reason}
	if deed.Key, err = chat.ParseID(form.Get("key")); err != nil {
		return badRequest("The form has no key: load the page anew.")
	}
	attempt, err := strconv.ParseInt(form.Get("attempt"), 10, 64)
	if err != nil || attempt < 0 {
		return badRequest("attempt is the one that you saw.")
	}
	switch do {
	case "stop":
		_, err = s.Engine.StopByHand(r.Context(), k, attempt, &deed)
	case "release":
		_, err = s.Engine.Release(r.Context(), k, attempt, deed)
	case "retry":
		again := engine.Again{Key: k, Attempt: attempt, Model: form.Get("model"), Deed: &deed}
		if again.Confirmed, err = confirms(form.Get("confirm")); err == nil {
			_, err = s.Engine.Retry(r.Context(), again)
		}
	case "refund", "adjustment":
		micros, ok := microsOf(form.Get("amount"))
		if !ok || micros == 0 || micros < 0 && do == "refund" {
			return badRequest("The amount is a number like 0.25: of a refund what is given back, of an adjustment what is added.")
		}
		err = s.correctOne(r, k, do, micros, deed)
	default:
		err = badRequest("The form names nothing to do.")
	}
	return err
}

// resolveHere does something about an effect of this request, and of no other.
func (s *server) resolveHere(r *http.Request, k chat.Key, form url.Values) error {
	o, err := s.DB.Outgoing(r.Context(), form.Get("id"))
	if err != nil {
		return err
	}
	req, err := s.DB.Load(r.Context(), o.RequestID)
	if err != nil {
		return err
	}
	if req.Key != k {
		return db.ErrNotFound
	}
	_, err = s.resolveOne(r, o.WebhookID, form.Get("do"), form.Get("reason"))
	return err
}

// microsOf reads an amount of money as people write it.
func microsOf(amount string) (int64, bool) {
	amount = strings.TrimSpace(strings.ReplaceAll(amount, "−", "-"))
	if strings.ContainsAny(amount, "/eEpPxX_") { // of a number as programs write it
		return 0, false
	}
	v, ok := new(big.Rat).SetString(amount)
	if !ok {
		return 0, false
	}
	v.Mul(v, big.NewRat(1_000_000, 1))
	return v.Num().Int64(), v.IsInt() && v.Num().IsInt64()
}

// reveal is the page with what was said on it. That somebody looked is written down
// first.
func (s *server) reveal(w http.ResponseWriter, r *http.Request, k chat.Key, reason string) error {
	reason, err := reasonOf(reason)
	if err != nil {
		return err
	}
	rc, err := s.DB.Evidence(r.Context(), k)
	if err != nil {
		return err
	}
	said, err := s.DB.Reveal(r.Context(), rc.Request.ID, db.Deed{Actor: s.actor(r), Reason: reason})
	if err != nil {
		return err
	}
	return s.opsRequestPage(w, r, http.StatusOK, func(p *views.OpsRequestPage) {
		p.Text = &views.OpsText{Question: said.Question, Answer: said.Answer, Reasoning: said.Reasoning, Asked: said.Asked}
	})
}

// postRelease takes a request from whoever is answering it. The same again changes
// nothing.
func (s *server) postRelease(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Attempt int64  `json:"attempt"`
		Reason  string `json:"reason"`
	}
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	k, err := s.opsKey(r)
	if err != nil {
		return err
	}
	reason, err := reasonOf(body.Reason)
	switch {
	case err != nil:
		return err
	case reason == "":
		return badRequest("reason is needed: it is written down with what you do.")
	case body.Attempt < 1:
		return badRequest("attempt is needed: the one that you saw.")
	}
	req, err := s.Engine.Release(r.Context(), k, body.Attempt, db.Deed{Actor: s.actor(r), Reason: reason})
	if err != nil {
		return about(k.RequestID, err)
	}
	rec, err := s.DB.RecordOf(r.Context(), req.ID)
	if err != nil {
		return err
	}
	s.requestHeaders(w, rec, "")
	s.writeRecord(w, http.StatusOK, withoutWords(rec)) // it may be another's
	return nil
}

// The audit

const auditRows = 100

func auditFilter(r *http.Request) (f db.AuditFilter, err error) {
	q := r.URL.Query()
	f = db.AuditFilter{Object: strings.TrimSpace(q.Get("object")), Actor: strings.TrimSpace(q.Get("actor")), Action: q.Get("action"), Limit: auditRows}
	if id, err := chat.ParseID(f.Object); err == nil {
		f.Object = id // as it is stored
	}
	if l := q.Get("limit"); l != "" {
		if f.Limit, err = strconv.Atoi(l); err != nil || f.Limit < 1 || f.Limit > requestsMost {
			return f, badRequest("limit goes from 1 to " + strconv.Itoa(requestsMost) + ".")
		}
	}
	if b := q.Get("before"); b != "" {
		if f.Before, err = strconv.ParseInt(b, 10, 64); err != nil || f.Before < 1 {
			return f, badRequest("before is the next of an earlier page.")
		}
	}
	return f, nil
}

// audited is a page of the audit, and where the next one begins.
func (s *server) audited(r *http.Request) (f db.AuditFilter, list []db.AuditRow, next string, err error) {
	if f, err = auditFilter(r); err != nil {
		return f, nil, "", err
	}
	most := f.Limit
	f.Limit++
	if list, err = s.DB.Audit(r.Context(), f); err == nil && len(list) > most {
		list = list[:most]
		next = strconv.FormatInt(list[most-1].ID, 10)
	}
	return f, list, next, err
}

// listAudit lists what was done by hand, the newest first.
func (s *server) listAudit(w http.ResponseWriter, r *http.Request) error {
	_, list, next, err := s.audited(r)
	if err != nil {
		return err
	}
	type row struct {
		deedJSON
		RequestID string `json:"requestId"` // that it is about; "" where it is about none
		SessionID string `json:"sessionId"`
		UserID    int64  `json:"userId"`
	}
	out := struct {
		Audit []row  `json:"audit"`
		Next  string `json:"next"`
	}{[]row{}, next}
	for _, a := range list {
		out.Audit = append(out.Audit, row{deedJSON{chat.Stamp{Time: a.At}, a.Actor, a.Action, a.Object, a.Reason}, a.Key.RequestID, a.Key.SessionID, a.Key.UserID})
	}
	s.writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *server) getAuditPage(w http.ResponseWriter, r *http.Request) error {
	f, list, next, err := s.audited(r)
	if err != nil {
		return err
	}
	side, err := s.freshChat(r, "")
	if err != nil {
		return err
	}
	p := views.AuditPage{Frame: side.Frame, Next: next, Filter: views.AuditFilter{Object: f.Object, Actor: f.Actor, Action: f.Action}}
	for _, a := range list {
		p.Rows = append(p.Rows, views.AuditRow{
			ID: a.ID, At: a.At, Actor: a.Actor, Action: a.Action, Object: a.Object, Reason: a.Reason,
			RequestID: a.Key.RequestID, SessionID: a.Key.SessionID, UserID: a.Key.UserID,
		})
	}
	return s.writePage(w, r, http.StatusOK, views.Audit(p))
}

// outboxRow is a row of the outbox as pages show it.
func outboxRow(o db.Outgoing) views.OutboxRow {
	return views.OutboxRow{
		At: o.CreatedAt, WebhookID: o.WebhookID, Kind: o.Kind, Destination: o.Destination,
		RequestID: o.Key.RequestID, SessionID: o.Key.SessionID, UserID: o.Key.UserID,
		State: o.State, Attempt: o.Attempt, Code: o.Code, NextAt: o.NextAt, DueAt: o.DueAt,
		Redrive: o.Can(db.Redrive), Abandon: o.Can(db.Abandon), Compensate: o.Can(db.Compensate),
	}
}
