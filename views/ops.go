package views

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"semel/chat"
)

// An OpsPage shows the newest requests of all users with their dedupe state.
type OpsPage struct {
	Frame
	Currency string
	Stats    OpsStats
	Filter   OpsFilter
	Rows     []OpsRow
	Next     int64 // the next page begins before it; 0: there is none
	Examined int   // with a filter: how many requests were looked at
	Now      time.Time
}

// A savedView is a filter by name.
type savedView struct{ view, name string }

func (p OpsPage) views() []savedView {
	l := p.Locale
	return []savedView{
		{"stuck", l.T("ops.view.stuck")}, {"repeated", l.T("ops.view.repeated")}, {"conflicts", l.T("ops.view.conflicts")},
		{"unknown", l.T("ops.view.unknown")}, {"waiting", l.T("ops.view.waiting")},
	}
}

// An OpsFilter is what the address asks for.
type OpsFilter struct {
	State, Decision, View, ID string
	Before                    int64
	Limit                     int
}

// Filtered reports whether the filter leaves anything out.
func (f OpsFilter) Filtered() bool { return f.State+f.Decision+f.View+f.ID != "" }

func (f OpsFilter) address() templ.SafeURL {
	q := url.Values{}
	for name, v := range map[string]string{"state": f.State, "decision": f.Decision, "view": f.View, "q": f.ID} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if f.Before != 0 {
		q.Set("before", strconv.FormatInt(f.Before, 10))
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	if len(q) == 0 {
		return "/ops"
	}
	return templ.SafeURL("/ops?" + q.Encode())
}

// in returns the address of a saved view.
func (f OpsFilter) in(view string) templ.SafeURL {
	return OpsFilter{View: view, Limit: f.Limit}.address()
}

func (f OpsFilter) after(next int64) templ.SafeURL {
	f.Before = next
	return f.address()
}

// OpsStates and OpsDecisions are what can be asked for, in the order of the page.
var (
	OpsStates    = chat.States
	OpsDecisions = []chat.Decision{chat.DecisionJoined, chat.DecisionReplayed, chat.DecisionConflict, chat.DecisionRestarted, chat.DecisionExpired}
)

// An OpsRow is one request.
type OpsRow struct {
	ID                   int64 // of the row
	At                   time.Time
	RequestID, SessionID string
	UserID               int64
	Kind                 chat.Kind
	State                chat.State
	Code                 string // of a failure
	Arrivals             map[chat.Decision]int
	Attempt              int64
	Model                string
	FirstToken, Total    time.Duration
	Tokens               int64
	Micros, Waste        int64
	Open, Troubled       int // effects
}

// repeats is the dedupe state in short: 1 + n.
func (r OpsRow) repeats() string {
	n := 0
	for _, k := range r.Arrivals {
		n += k
	}
	if n <= 1 {
		return "1"
	}
	return fmt.Sprintf("1 + %d", n-1)
}

func (r OpsRow) receipt() templ.SafeURL {
	return templ.SafeURL("/c/" + url.PathEscape(r.SessionID) + "/r/" + url.PathEscape(r.RequestID))
}

// short is an id as far as a table needs it: the end of a ULID tells them apart.
func short(id string) string {
	if len(id) <= 14 {
		return id
	}
	return "…" + id[len(id)-10:]
}

func (l *Locale) span(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < time.Second:
		return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < 2*time.Hour:
		return strconv.FormatInt(int64(d.Minutes()), 10) + " min"
	}
	return strconv.FormatInt(int64(d.Hours()), 10) + " h"
}

// age is how long ago something was, in short.
func (l *Locale) age(d time.Duration) string {
	if d <= 0 {
		return "–"
	}
	return l.span(d)
}

// size is a number of bytes in short.
func (l *Locale) size(n int64) string {
	switch {
	case n < 10<<20:
		return strconv.FormatInt(n>>10, 10) + " KiB"
	case n < 10<<30:
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n>>30, 10) + " GiB"
}

// An OutboxPage shows what leaves.
type OutboxPage struct {
	Frame
	State  string // what is shown; "" is all
	States []chat.EffectState
	Rows   []OutboxRow
	Next   string // the next page begins before it; "": there is none
	Done   bool   // something was just done
	Error  *chat.Problem
	Reason string // what a refused form had
	Count  int    // of that state, where all of them can be sent again
	// Results are what came of each of many.
	Results []Redriven
}

// A Redriven says what came of one that was sent again.
type Redriven struct {
	ID    string
	State chat.EffectState
	Error *chat.Problem
}

// An OutboxRow is one row of the outbox.
type OutboxRow struct {
	At                   time.Time
	WebhookID            string
	Kind, Destination    string
	RequestID, SessionID string
	State                chat.EffectState
	Attempt              int64
	Code                 string
	UserID               int64
	NextAt, DueAt        time.Time
	Tries                []Tried // the newest first, as many as are shown
	Redrive, Abandon     bool    // what can be done
	Compensate           bool
}

// A Tried is one time that it was sent.
type Tried struct {
	N       int64
	At      time.Time
	Outcome chat.Outcome // "" while it is under way
	Status  int
	Code    string
}

// tried says in short what came of it.
func (l *Locale) tried(t Tried) string {
	switch {
	case t.Outcome == "":
		return l.T("req.running")
	case t.Status != 0:
		return string(t.Outcome) + " " + strconv.Itoa(t.Status)
	}
	return string(t.Outcome)
}

func (r OutboxRow) detail() templ.SafeURL {
	return OpsRow{SessionID: r.SessionID, RequestID: r.RequestID, UserID: r.UserID}.detail()
}

func (p OutboxPage) in(state string) templ.SafeURL {
	if state == "" {
		return "/ops/outbox"
	}
	return templ.SafeURL("/ops/outbox?state=" + url.QueryEscape(state))
}

func (p OutboxPage) more() templ.SafeURL {
	q := url.Values{"before": {p.Next}}
	if p.State != "" {
		q.Set("state", p.State)
	}
	return templ.SafeURL("/ops/outbox?" + q.Encode())
}
