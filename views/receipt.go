package views

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"semel/chat"
)

// A ReceiptPage is everything that happened to one intent.
type ReceiptPage struct {
	Frame
	SessionID string
	Receipt   Receipt
}

// A Receipt is the evidence of one intent, as it is stored.
type Receipt struct {
	RequestID   string
	Kind        chat.Kind
	State       chat.State
	Problem     *chat.Problem // of a failed one
	Arrivals    []Arrival
	Transitions []Transition
	Attempts    []Attempt
	Ledger      []LedgerRow
	Decisions   []Decision
	Deliveries  []Delivery
	Callbacks   []Callback
	Effects     []chat.Effect // as they stand
	Deeds       []Deed
	SnapshotAt  time.Time // zero: there is none
	Snapshot    string    // SHA-256, hexadecimal
	Pruned      bool      // repeats may be missing
	Imported    bool      // it came with a file, and no model was called since
	Account     string    // the reader's
	Currency    string
	Saved       int // repeats that cost nothing
	MoneySaved  int64
}

// An Arrival is one time the id came in.
type Arrival struct {
	At       time.Time
	Source   chat.Source
	Decision chat.Decision
	Status   int // 0: not answered yet
}

// A Transition is one change of state.
type Transition struct {
	At       time.Time
	From, To chat.State
	Attempt  int64
	Reason   string
}

// An Attempt is one call to a model.
type Attempt struct {
	N                                 int64
	Model, Code                       string
	DispatchedAt, FirstToken, EndedAt time.Time
	Outcome                           chat.Outcome // "" while it runs
	Usage                             chat.Usage
}

// A LedgerRow is one movement of money.
type LedgerRow struct {
	At        time.Time
	Kind      string
	Attempt   int64
	Micros    int64
	Estimated bool
}

// A Decision is what was decided of an action, and what a person said of one that asks.
type Decision struct {
	At, SaidAt                            time.Time
	Action                                string
	Descriptions                          map[string]string
	Verdict                               chat.Verdict
	Code, Reason, Said, Actor, SaidReason string
}

// A Delivery is one time that something was sent to somebody else.
type Delivery struct {
	At, EndedAt  time.Time
	N            int64
	Kind         string // effect, compensation or charge
	Action       string
	Descriptions map[string]string
	Target, Code string
	Outcome      chat.Outcome // "" while it is under way
	Status       int
}

// A Callback is what a receiver said.
type Callback struct {
	At               time.Time
	OK               bool
	Reason, Decision string
	Times            int64
}

// A Deed is what a person of operations did by hand.
type Deed struct {
	At                    time.Time
	Actor, Action, Reason string
}

// Mark is the delivery mark of its question.
func (r Receipt) Mark() Mark { return markOf(r.State, r.Problem) }

// An event is one line of the timeline: what it is, and the sentence that explains
// it.
type event struct {
	at         time.Time
	rank       int // among those of one millisecond
	lane       string
	head, text string
}

// offset is how long after the first event it was.
func (e event) offset(first time.Time) string {
	return "+" + strconv.FormatFloat(e.at.Sub(first).Seconds(), 'f', 3, 64)
}

// The order in which things follow each other within a millisecond.
const (
	rankArrival = iota
	rankAccepted
	rankClaimed
	rankSent
	rankFirst
	rankEnded
	rankKept
	rankFinal
	rankMoney
	rankDecided
	rankDelivered
	rankCalled
	rankSettled
)

// events are all there is, in order.
func (r Receipt) events(l *Locale) (list []event) {
	for _, a := range r.Arrivals {
		e := event{a.At, rankArrival, "arrival", l.arrivalName(a.Decision), l.arrivalText(a)}
		list = append(list, e)
	}
	for _, t := range r.Transitions {
		list = append(list, event{t.At, rankOf(t), "state", l.stateName(t.To), l.transitionText(t, r.Problem)})
	}
	for _, a := range r.Attempts {
		n := strconv.FormatInt(a.N, 10)
		list = append(list, event{a.DispatchedAt, rankSent, "attempt", l.T("receipt.attempt", "n", n), l.T("receipt.sent", "model", a.Model)})
		if !a.FirstToken.IsZero() {
			list = append(list, event{a.FirstToken, rankFirst, "attempt", l.T("receipt.attempt", "n", n),
				l.T("receipt.firstToken", "time", l.seconds(a.FirstToken.Sub(a.DispatchedAt)))})
		}
		if !a.EndedAt.IsZero() {
			list = append(list, event{a.EndedAt, rankEnded, "attempt", l.T("receipt.attempt", "n", n), l.attemptText(a)})
		}
	}
	if !r.SnapshotAt.IsZero() {
		list = append(list, event{r.SnapshotAt, rankKept, "snapshot", l.T("receipt.snapshot"), l.T("receipt.snapshotText", "sum", r.Snapshot)})
	}
	for _, row := range r.Ledger {
		list = append(list, event{row.At, rankMoney, "ledger", l.T("receipt.ledger"), l.ledgerText(row, r.Currency)})
	}
	list = append(list, r.followed(l)...)
	for _, d := range r.Deeds {
		list = append(list, event{d.At, rankSettled, "deed", l.T("deed.head"), l.deed(d, r.Account)})
	}
	slices.SortStableFunc(list, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at.UnixMilli(), b.at.UnixMilli()), cmp.Compare(a.rank, b.rank))
	})
	return list
}

func rankOf(t Transition) int {
	switch {
	case t.From == chat.StateNew:
		return rankAccepted
	case t.To == chat.StateGenerating:
		return rankClaimed
	case t.To == chat.StateAcknowledged:
		return rankFinal
	}
	return rankSettled
}

// sentence says in plain words what happened.
func (r Receipt) sentence(l *Locale) string {
	came := int64(0)
	for _, a := range r.Arrivals {
		if a.Decision != chat.DecisionConflict { // that was another question under this id
			came++
		}
	}
	arrived := l.N("receipt.came", came)
	if r.Pruned {
		arrived = l.T("receipt.cameOnce")
	}
	if r.Imported {
		return l.T("receipt.imported")
	}
	called := l.T("receipt.notCalled")
	if n := len(r.Attempts); n > 0 {
		called = l.N("receipt.called", int64(n))
	}
	open := int64(0)
	for _, a := range r.Attempts {
		if a.Outcome == chat.OutcomeUnknown || a.Outcome == chat.OutcomeFenced {
			open++
		}
	}
	if open > 0 { // said openly, always: it may have been billed by the provider
		called += l.N("receipt.open", open)
	}
	end := ""
	switch {
	case r.State.Answered():
		end = l.T("receipt.billed")
		if r.Saved > 0 {
			end += l.N("receipt.absorbed", int64(r.Saved))
		}
		end += l.asked(r.Effects)
	case r.State == chat.StateFailed && r.Problem != nil:
		end = l.T("receipt.failed", "why", strings.TrimRight(l.Problem(chat.Problem{Code: r.Problem.Code, Detail: r.Problem.Detail}), ".。"))
	default:
		end = l.T("receipt.waiting")
	}
	return l.T("receipt.sentence", "came", arrived, "called", called, "end", end)
}

func (l *Locale) arrivalName(d chat.Decision) string {
	if d == chat.DecisionFirst {
		return l.T("receipt.arrival")
	}
	return l.T("receipt.repeat")
}

func (l *Locale) arrivalText(a Arrival) string {
	from := l.T("receipt.fromAPI")
	switch a.Source {
	case chat.SourceWeb:
		from = l.T("receipt.fromPage")
	case chat.SourceForm:
		from = l.T("receipt.fromForm")
	case chat.SourceImport:
		from = l.T("receipt.fromFile")
	}
	text := ""
	switch a.Decision {
	case chat.DecisionFirst:
		text = l.T("receipt.first", "from", from)
	case chat.DecisionJoined:
		text = l.T("receipt.joined", "from", from)
	case chat.DecisionReplayed:
		text = l.T("receipt.replayed", "from", from)
	case chat.DecisionConflict:
		text = l.T("receipt.conflict", "from", from)
	case chat.DecisionRestarted:
		text = l.T("receipt.restarted", "from", from)
	default:
		text = l.T("receipt.expired", "from", from)
	}
	if a.Status != 0 {
		text += " " + l.T("receipt.status", "status", strconv.Itoa(a.Status))
	}
	return text
}

func (l *Locale) stateName(s chat.State) string {
	switch s {
	case chat.StatePending:
		return l.T("state.pending")
	case chat.StateGenerating:
		return l.T("state.generating")
	case chat.StateAcknowledged:
		return l.T("state.acknowledged")
	case chat.StateCommitted:
		return l.T("state.committed")
	}
	return l.T("state.failed")
}

func (l *Locale) transitionText(t Transition, p *chat.Problem) string {
	switch {
	case t.From == chat.StateNew:
		return l.T("receipt.accepted")
	case t.To == chat.StateGenerating:
		return l.T("receipt.claimed", "n", strconv.FormatInt(t.Attempt, 10))
	case t.To == chat.StateAcknowledged:
		return l.T("receipt.final")
	case t.To == chat.StateCommitted:
		return l.T("receipt.settled")
	case t.To == chat.StateFailed:
		problem := chat.Problem{Code: t.Reason}
		if p != nil && p.Code == t.Reason {
			problem = *p
		}
		return l.Problem(problem)
	case t.Reason == "explicit":
		return l.T("receipt.explicit")
	case t.Reason == "restarted":
		return l.T("receipt.restartedText")
	case t.Reason == "engine_retry":
		return l.T("receipt.engineRetry")
	}
	return l.T("receipt.rerun")
}

func (l *Locale) attemptText(a Attempt) string {
	switch a.Outcome {
	case chat.OutcomeOK:
		return l.T("receipt.ok", "in", l.Number(a.Usage.InputTokens), "out", l.Number(a.Usage.OutputTokens))
	case chat.OutcomeNone:
		return l.T("receipt.none")
	case chat.OutcomeDefinite:
		return l.T("receipt.definite")
	case chat.OutcomeStopped:
		return l.T("receipt.stopped")
	case chat.OutcomeFenced:
		return l.T("receipt.fenced")
	}
	return l.T("receipt.unknown")
}

func (l *Locale) ledgerText(row LedgerRow, currency string) string {
	money := l.Money(currency, row.Micros)
	switch row.Kind {
	case "charge":
		if row.Micros == 0 {
			return l.T("receipt.free")
		}
		return l.T("receipt.charge", "money", money)
	case "waste":
		return l.T("receipt.waste", "money", money, "n", strconv.FormatInt(row.Attempt, 10))
	case "refund":
		return l.T("receipt.refund", "money", money)
	}
	return l.T("receipt.adjustment", "money", money)
}
