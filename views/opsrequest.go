package views

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"semel/chat"
)

// An OpsRequestPage is all there is about one request, for whoever runs the place. What
// was said is in none of it until it is asked for.
type OpsRequestPage struct {
	Frame
	Currency             string
	Receipt              Receipt
	SessionID            string
	UserID               int64
	Model, Owner         string
	Attempt              int64
	LeaseUntil, RetryAt  time.Time
	CreatedAt, Now       time.Time
	Charged              bool        // there is something to refund
	Models               []string    // that a failed one may be asked again with
	Sent                 []OutboxRow // what leaves for others, and what can be done about it
	JSON                 string      // the receipt, without what was said
	Key                  string      // of what is done with this page's forms: once
	Done                 bool
	Error                *chat.Problem
	Text                 *OpsText // nil while nobody has asked
	Reason, Amount, Open string   // what a refused form had
	Confirm              bool     // asking again wants a person's word: a restore may have lost the answer
}

// An OpsText is what was said.
type OpsText struct {
	Question, Answer, Reasoning string
	Asked                       []chat.Effect
}

func (p OpsRequestPage) row() OpsRow {
	return OpsRow{RequestID: p.Receipt.RequestID, SessionID: p.SessionID, UserID: p.UserID}
}

func (p OpsRequestPage) jsonURL() templ.SafeURL {
	q := url.Values{"sessionId": {p.SessionID}, "user": {strconv.FormatInt(p.UserID, 10)}}
	return templ.SafeURL("/api/ops/requests/" + url.PathEscape(p.Receipt.RequestID) + "?" + q.Encode())
}

// own reports whether it is the reader's own, who has its receipt.
func (p OpsRequestPage) own() bool { return p.Account == strconv.FormatInt(p.UserID, 10) }

// A byHand is a way that a person can go on.
type byHand struct{ do, name, what, button string }

// ways are those that there are as the request stands.
func (p OpsRequestPage) ways() (list []byHand) {
	l, n := p.Locale, strconv.FormatInt(p.Attempt, 10)
	if p.Receipt.State.Live() {
		list = append(list, byHand{"stop", l.T("req.stop"), l.T("req.stop.what"), l.T("req.stop.button")})
	}
	if p.Receipt.State == chat.StateGenerating {
		list = append(list, byHand{"release", l.T("req.release"), l.T("req.release.what", "n", n), l.T("req.release.button", "n", n)})
	}
	if p.Receipt.State == chat.StateFailed {
		list = append(list, byHand{"retry", l.T("req.retry"), l.T("req.retry.what"), l.T("req.retry.button")})
	}
	if p.Charged {
		list = append(list,
			byHand{"refund", l.T("req.refund"), l.T("req.refund.what", "currency", p.Currency), l.T("req.refund.button")},
			byHand{"adjustment", l.T("req.adjust"), l.T("req.adjust.what", "currency", p.Currency), l.T("req.adjust.button")})
	}
	return list
}

// resolvable reports whether effects are open that a person can do something about here.
func (p OpsRequestPage) resolvable() bool {
	return slices.ContainsFunc(p.Sent, func(r OutboxRow) bool { return r.Redrive || r.Abandon || r.Compensate })
}

// Lanes

// A lane is one kind of event on the axis that all share.
type lane struct {
	name, note string
	bars       []bar
	marks      []laneMark
}

// A bar is something that took its time. tone is a class of the style sheet.
type bar struct {
	x, width           float64
	tone, title, label string
}

// A laneMark is a moment: a dot, a ring or a diamond.
type laneMark struct {
	x                  float64
	shape, tone, title string
}

// A chart is the life of a request: lanes under one axis.
type lifeChart struct {
	axis  axis
	lanes []lane
	scale bar // how wide a round time is where the axis is to scale
	title string
}

// chart draws the life of a request. What runs still ends now.
func (p OpsRequestPage) chart() lifeChart {
	r, l := p.Receipt, p.Locale
	var at []time.Time
	for _, e := range r.events(l) {
		at = append(at, e.at)
	}
	if r.State.Live() {
		at = append(at, p.Now)
	}
	if len(at) == 0 { // of an import whose evidence is gone
		at = append(at, p.CreatedAt)
	}
	a := newAxis(at)
	end := a.stops[len(a.stops)-1].at
	c := lifeChart{axis: a, scale: a.scale(l), lanes: []lane{
		p.arrivalLane(a), p.claimLane(a, end), p.attemptLane(a, end), p.providerLane(a, end), p.ledgerLane(a),
	}}
	for _, more := range []lane{p.effectLane(a, end), p.handLane(a)} {
		if len(more.bars)+len(more.marks) > 0 {
			c.lanes = append(c.lanes, more)
		}
	}
	c.title = l.T("req.chart", "time", l.seconds(a.span()))
	return c
}

// scale is the longest round time that is no wider than a quarter.
func (a axis) scale(l *Locale) bar {
	for i := range len(a.stops) - 1 {
		from, to := a.stops[i], a.stops[i+1]
		long := to.at.Sub(from.at)
		if slices.ContainsFunc(a.cuts, func(c cut) bool { return c.x == from.x }) || long < time.Millisecond {
			continue
		}
		per := (to.x - from.x) / float64(long) // percent a nanosecond
		for unit := 100 * time.Hour; unit >= time.Millisecond; unit /= 10 {
			for _, n := range []time.Duration{5, 2, 1} {
				if w := per * float64(n*unit); w <= 25 {
					return bar{width: w, label: l.short(n * unit)}
				}
			}
		}
	}
	return bar{}
}

// short is a duration for a label.
func (l *Locale) short(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	case d < time.Hour:
		return strconv.FormatFloat(d.Round(6*time.Second).Minutes(), 'f', -1, 64) + " min"
	case d < 48*time.Hour:
		return strconv.FormatFloat(d.Round(6*time.Minute).Hours(), 'f', -1, 64) + " h"
	}
	return strconv.FormatFloat(d.Round(144*time.Minute).Hours()/24, 'f', -1, 64) + " d"
}

func (c lifeChart) total() string { return "+" + (*Locale)(nil).short(c.axis.span()) }

func (a axis) bar(from, to time.Time, tone, title string) bar {
	x := a.x(from)
	return bar{x: x, width: max(a.x(to)-x, 0.3), tone: tone, title: title}
}

func (p OpsRequestPage) arrivalLane(a axis) lane {
	l := p.Locale
	v := lane{name: l.T("req.arrivals"), note: OpsRow{Arrivals: map[chat.Decision]int{"": len(p.Receipt.Arrivals)}}.repeats()}
	drawn := map[string]bool{} // a storm is as many marks as there is room for
	for _, one := range p.Receipt.Arrivals {
		m := laneMark{a.x(one.At), "ring", "good", l.arrivalText(one)}
		switch one.Decision {
		case chat.DecisionFirst:
			m.shape = "dot"
		case chat.DecisionConflict, chat.DecisionExpired:
			m.shape, m.tone = "diamond", "warn"
		}
		if key := fmt.Sprintf("%s %.1f", m.shape, m.x); !drawn[key] {
			drawn[key] = true
			v.marks = append(v.marks, m)
		}
	}
	return v
}

func (p OpsRequestPage) claimLane(a axis, end time.Time) lane {
	l := p.Locale
	v := lane{name: l.T("req.claim"), note: l.stateName(p.Receipt.State)}
	for i, t := range p.Receipt.Transitions {
		until := end
		if i+1 < len(p.Receipt.Transitions) {
			until = p.Receipt.Transitions[i+1].At
		}
		text := l.stateName(t.To) + ": " + l.transitionText(t, p.Receipt.Problem)
		switch t.To {
		case chat.StatePending:
			v.bars = append(v.bars, a.bar(t.At, until, "wait", text))
		case chat.StateGenerating:
			v.marks = append(v.marks, laneMark{a.x(t.At), "ring", "good", text})
		case chat.StateAcknowledged, chat.StateCommitted:
			if t.To == chat.StateAcknowledged && until.Sub(t.At) >= time.Millisecond {
				v.bars = append(v.bars, a.bar(t.At, until, "wait", text))
			}
			v.marks = append(v.marks, laneMark{a.x(t.At), "dot", "good", text})
		default:
			v.marks = append(v.marks, laneMark{a.x(t.At), "diamond", "bad", text})
		}
	}
	return v
}

// toneOf an outcome.
func toneOf(o chat.Outcome) string {
	switch o {
	case chat.OutcomeOK:
		return "good"
	case chat.OutcomeUnknown:
		return "warn"
	case chat.OutcomeStopped, chat.OutcomeFenced:
		return "quiet"
	case "":
		return "busy"
	}
	return "bad"
}

func (p OpsRequestPage) attemptLane(a axis, end time.Time) lane {
	l := p.Locale
	v := lane{name: l.T("req.attempts"), note: strconv.Itoa(len(p.Receipt.Attempts))}
	for _, one := range p.Receipt.Attempts {
		until, text := one.EndedAt, l.T("req.running")
		if until.IsZero() {
			until = end
		} else {
			text = l.attemptText(one)
		}
		b := a.bar(one.DispatchedAt, until, toneOf(one.Outcome), l.T("receipt.attempt", "n", strconv.FormatInt(one.N, 10))+": "+text)
		if b.width > 4 {
			b.label = strconv.FormatInt(one.N, 10)
		}
		v.bars = append(v.bars, b)
	}
	return v
}

func (p OpsRequestPage) providerLane(a axis, end time.Time) lane {
	l := p.Locale
	v := lane{name: l.T("req.provider"), note: p.Model}
	for _, one := range p.Receipt.Attempts {
		first, until := one.FirstToken, one.EndedAt
		if until.IsZero() {
			until = end
		}
		if first.IsZero() {
			v.bars = append(v.bars, a.bar(one.DispatchedAt, until, "wait", l.T("req.silent")))
			continue
		}
		v.bars = append(v.bars, a.bar(one.DispatchedAt, first, "wait", l.T("receipt.firstToken", "time", l.seconds(first.Sub(one.DispatchedAt)))),
			a.bar(first, until, toneOf(one.Outcome), l.T("req.speaks", "time", l.seconds(until.Sub(first)))))
	}
	return v
}

func (p OpsRequestPage) ledgerLane(a axis) lane {
	l := p.Locale
	v := lane{name: l.T("req.ledger")}
	sum := int64(0)
	for _, row := range p.Receipt.Ledger {
		m := laneMark{a.x(row.At), "diamond", "good", l.ledgerText(row, p.Currency)}
		if row.Kind != "charge" {
			m.tone = "warn"
		}
		v.marks = append(v.marks, m)
		if row.Kind != "waste" {
			sum += row.Micros
		}
	}
	if len(v.marks) > 0 {
		v.note = l.Money(p.Currency, sum)
	}
	return v
}

func (p OpsRequestPage) effectLane(a axis, end time.Time) lane {
	l := p.Locale
	v := lane{name: l.T("req.effects")}
	for _, d := range p.Receipt.Decisions {
		if d.Said != "" {
			v.marks = append(v.marks, laneMark{a.x(d.SaidAt), "ring", "good", l.T("receipt.verdict")})
		}
	}
	for _, d := range p.Receipt.Deliveries {
		until := d.EndedAt
		if until.IsZero() {
			until = end
		}
		v.bars = append(v.bars, a.bar(d.At, until, toneOf(d.Outcome), l.T("receipt.delivery", "n", strconv.FormatInt(d.N, 10))+": "+l.deliveryText(d)))
	}
	for _, c := range p.Receipt.Callbacks {
		m := laneMark{a.x(c.At), "dot", "good", l.callbackText(c)}
		if !c.OK {
			m.shape, m.tone = "diamond", "bad"
		}
		v.marks = append(v.marks, m)
	}
	if n := len(p.Receipt.Effects); n > 0 {
		v.note = strconv.Itoa(n)
	}
	return v
}

func (p OpsRequestPage) handLane(a axis) lane {
	v := lane{name: p.Locale.T("deed.head"), note: strconv.Itoa(len(p.Receipt.Deeds))}
	for _, d := range p.Receipt.Deeds {
		v.marks = append(v.marks, laneMark{a.x(d.At), "ring", "quiet", p.Locale.deed(d, p.Receipt.Account)})
	}
	return v
}

// percent is a place in an SVG that is as wide as its box.
func percent(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) + "%" }

// Why arrivals were duplicates

// why says why an arrival was or was not a duplicate.
func (p OpsRequestPage) why(a Arrival) string {
	l := p.Locale
	stood, attempt := chat.StateNew, int64(0)
	for _, t := range p.Receipt.Transitions {
		if t.At.After(a.At) || (t.At.Equal(a.At) && t.From == chat.StateNew && a.Decision == chat.DecisionFirst) {
			break
		}
		stood, attempt = t.To, t.Attempt
	}
	n := strconv.FormatInt(attempt, 10)
	switch a.Decision {
	case chat.DecisionFirst:
		if a.Source == chat.SourceImport {
			return l.T("req.why.imported")
		}
		return l.T("req.why.first")
	case chat.DecisionJoined:
		if stood == chat.StateGenerating {
			return l.T("req.why.joinedRunning", "n", n)
		}
		return l.T("req.why.joinedWaiting")
	case chat.DecisionReplayed:
		if stood == chat.StateFailed {
			return l.T("req.why.replayedFailure")
		}
		return l.T("req.why.replayed")
	case chat.DecisionConflict:
		return l.T("req.why.conflict")
	case chat.DecisionRestarted:
		return l.T("req.why.restarted")
	}
	return l.T("req.why.expired")
}

// source says in a word where an arrival came from.
func (l *Locale) source(s chat.Source) string {
	switch s {
	case chat.SourceWeb:
		return l.T("receipt.fromPage")
	case chat.SourceForm:
		return l.T("receipt.fromForm")
	case chat.SourceImport:
		return l.T("receipt.fromFile")
	}
	return l.T("receipt.fromAPI")
}

// A shownArrival is one of the table, or how many are left out in its place.
type shownArrival struct {
	Arrival
	hidden int
}

// arrivalsOf are all, of a storm the first and the last.
func arrivalsOf(p OpsRequestPage) (list []shownArrival) {
	const most = 100
	all := p.Receipt.Arrivals
	hidden := max(len(all)-most, 0)
	for i, a := range all {
		switch {
		case hidden == 0 || i < most/2 || i >= most/2+hidden:
			list = append(list, shownArrival{Arrival: a})
		case i == most/2:
			list = append(list, shownArrival{hidden: hidden})
		}
	}
	return list
}

// argumentsOf is what an action was asked for with.
func argumentsOf(e chat.Effect) string { return strings.TrimSpace(string(e.Arguments)) }
