package handlers

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"semel/chat"
	"semel/db"
)

// A receiptJSON is everything that happened to one intent, and one sentence that
// says it in words.
type receiptJSON struct {
	RequestID   string           `json:"requestId"`
	SessionID   string           `json:"sessionId"`
	State       chat.State       `json:"state"`
	Status      chat.Status      `json:"status"`
	Arrivals    []arrivalJSON    `json:"arrivals"`
	Transitions []transitionJSON `json:"transitions"`
	Attempts    []attemptJSON    `json:"attempts"`
	Snapshot    *string          `json:"snapshot"` // SHA-256, hexadecimal
	Decisions   []decidedJSON    `json:"decisions"`
	Effects     []effectJSON     `json:"effects"`
	Billing     *sentJSON        `json:"billing"` // what a billing system was told; null where there is none
	Ledger      []ledgerJSON     `json:"ledger"`
	ByHand      []deedJSON       `json:"byHand"` // what people of operations did
	CallsSaved  int              `json:"callsSaved"`
	MoneySaved  chat.Money       `json:"moneySaved"`
	Sentence    string           `json:"sentence"`
}

type arrivalJSON struct {
	At       chat.Stamp    `json:"at"`
	Source   chat.Source   `json:"source"`
	Decision chat.Decision `json:"decision"`
	Status   *int          `json:"status"`
}

type transitionJSON struct {
	From    chat.State `json:"from"`
	To      chat.State `json:"to"`
	Attempt int64      `json:"attempt"`
	Actor   string     `json:"actor"`
	Reason  string     `json:"reason"`
	At      chat.Stamp `json:"at"`
}

type attemptJSON struct {
	N            int64        `json:"n"`
	Reason       string       `json:"reason"`
	Model        string       `json:"model"`
	StartedAt    chat.Stamp   `json:"startedAt"`
	DispatchedAt chat.Stamp   `json:"dispatchedAt"`
	FirstTokenAt chat.Stamp   `json:"firstTokenAt"`
	EndedAt      chat.Stamp   `json:"endedAt"`
	Outcome      chat.Outcome `json:"outcome,omitempty"`
	Code         string       `json:"code,omitempty"`
	Usage        *chat.Usage  `json:"usage"`
}

type ledgerJSON struct {
	Kind     string     `json:"kind"`
	Attempt  int64      `json:"attempt"`
	Currency string     `json:"currency"`
	Micros   int64      `json:"micros"`
	Usage    chat.Usage `json:"usage"`
	At       chat.Stamp `json:"at"`
}

// A deedJSON is what a person of operations did.
type deedJSON struct {
	At     chat.Stamp `json:"at"`
	Actor  string     `json:"actor"`
	Action string     `json:"action"`
	Object string     `json:"object"` // a webhook id, or request and its number
	Reason string     `json:"reason"`
}

func (s *server) getReceipt(w http.ResponseWriter, r *http.Request) error {
	k, err := s.key(r, r.URL.Query().Get("sessionId"))
	if err != nil {
		return err
	}
	return s.writeReceipt(w, r, k)
}

func (s *server) writeReceipt(w http.ResponseWriter, r *http.Request, k chat.Key) error {
	// A receipt counts every arrival up to the moment it is read.
	if err := s.Engine.FlushArrivals(r.Context()); err != nil {
		return err
	}
	rc, err := s.DB.Receipt(r.Context(), k)
	if err != nil {
		return err
	}
	s.requestHeaders(w, rc.Record, "")
	s.writeJSON(w, http.StatusOK, s.receiptOf(rc))
	return nil
}

func (s *server) receiptOf(rc db.Receipt) receiptJSON {
	out := receiptJSON{
		RequestID: rc.Record.RequestID, SessionID: rc.Record.SessionID, State: rc.Record.State, Status: rc.Record.Status,
		Arrivals: []arrivalJSON{}, Transitions: []transitionJSON{}, Attempts: []attemptJSON{}, Ledger: []ledgerJSON{},
		Decisions: []decidedJSON{}, Effects: []effectJSON{}, ByHand: []deedJSON{}, MoneySaved: chat.Money{Currency: s.Currency},
	}
	for _, a := range rc.Arrivals {
		j := arrivalJSON{At: chat.Stamp{Time: a.At}, Source: a.Source, Decision: a.Decision}
		if a.Status != 0 {
			j.Status = &a.Status
		}
		if a.Decision == chat.DecisionJoined || a.Decision == chat.DecisionReplayed {
			out.CallsSaved++
		}
		out.Arrivals = append(out.Arrivals, j)
	}
	for _, t := range rc.Transitions {
		out.Transitions = append(out.Transitions, transitionJSON{t.From, t.To, t.Attempt, t.Actor, t.Reason, chat.Stamp{Time: t.At}})
	}
	for _, a := range rc.Attempts {
		out.Attempts = append(out.Attempts, attemptJSON{
			a.N, a.Reason, a.Model, chat.Stamp{Time: a.StartedAt}, chat.Stamp{Time: a.DispatchedAt},
			chat.Stamp{Time: a.FirstToken}, chat.Stamp{Time: a.EndedAt}, a.Outcome, a.Code, a.Usage,
		})
	}
	charge := int64(0)
	for _, l := range rc.Ledger {
		if l.Kind == "charge" {
			charge = l.Micros
		}
		out.Ledger = append(out.Ledger, ledgerJSON{l.Kind, l.Attempt, s.Currency, l.Micros, l.Usage, chat.Stamp{Time: l.At}})
	}
	addEffects(&out, rc)
	for _, d := range rc.Deeds {
		out.ByHand = append(out.ByHand, deedJSON{chat.Stamp{Time: d.At}, d.Actor, d.Action, d.Object, d.Reason})
	}
	if rc.Snapshot != nil {
		sum := hex.EncodeToString(rc.Snapshot)
		out.Snapshot = &sum
	}
	out.MoneySaved.Micros = charge * int64(out.CallsSaved)
	out.Sentence = sentence(rc, out.CallsSaved)
	return out
}

// sentence says in plain words what happened.
func sentence(rc db.Receipt, saved int) string {
	came := 0
	for _, a := range rc.Arrivals {
		if a.Decision != chat.DecisionConflict { // that was another question under this id
			came++
		}
	}
	times := plural(came, "once", "%d times")
	if rc.Pruned {
		times = "at least once (older repeats are no longer on record)"
	}
	made := callsOf(rc)
	if imported(rc) {
		told := "This came with a file that was imported: no model was called for it here, and nothing was billed"
		if rc.Record.State == chat.StateFailed {
			told += "; it ended as failed: " + rc.Request.Failure.Code
		}
		if saved > 0 {
			told += "; " + plural(saved, "one repeat was absorbed", "%d repeats were absorbed")
		}
		return told + "."
	}
	calls := "not called"
	if n := len(made); n > 0 {
		calls = "called " + plural(n, "once", "%d times")
	}
	open := 0
	for _, a := range made {
		if a.Outcome == chat.OutcomeUnknown || a.Outcome == chat.OutcomeFenced {
			open++
		}
	}
	if open > 0 {
		// Said openly, always: it may have been billed by the provider.
		calls += plural(open, " (what came of one call nobody can know)", " (what came of %d calls nobody can know)")
	}
	switch rc.Record.State {
	case chat.StateFailed:
		return fmt.Sprintf("This question arrived %s and was accepted once; the model was %s, and it ended as failed: %s.",
			times, calls, rc.Request.Failure.Code)
	case chat.StatePending, chat.StateGenerating:
		return fmt.Sprintf("This question arrived %s and was accepted once; the model was %s so far, and its answer is still to come.", times, calls)
	}
	told := fmt.Sprintf("This question arrived %s and was accepted once; the model was %s, one answer is in the history, it was billed once, and %s",
		times, calls, plural(saved, "one repeat was absorbed", "%d repeats were absorbed"))
	if asked := askedFor(rc.Record.Effects); asked != "" {
		told += "; " + asked
	}
	return told + "."
}

// callsOf are the calls to a model that were made here.
func callsOf(rc db.Receipt) []db.Attempt {
	if len(rc.Attempts) > 0 && rc.Attempts[0].Reason == "imported" {
		return rc.Attempts[1:]
	}
	return rc.Attempts
}

// imported reports whether what became of a request came with a file.
func imported(rc db.Receipt) bool {
	return len(rc.Arrivals) > 0 && rc.Arrivals[0].Source == chat.SourceImport && len(callsOf(rc)) == 0 && !rc.Record.State.Live()
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return strings.ReplaceAll(many, "%d", strconv.Itoa(n))
}
