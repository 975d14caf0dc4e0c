package ops

import "context"

// How a lamp stands.
const (
	LampOK      = "ok"
	LampPending = "pending" // calls are on their way between their row and their dispatch
	LampBroken  = "broken"
)

// A Lamp compares two counts that must be equal.
type Lamp struct {
	State    string `json:"state"` // ok, pending or broken
	Left     int64  `json:"left"`
	Right    int64  `json:"right"`
	InFlight int64  `json:"inFlight"` // pending: at most as many
}

// Lamps are the two promises that can be seen at a glance.
type Lamps struct {
	// Calls: what was sent to models in this life (left) is what its attempt rows allowed
	// (right), without attempts that ended before their call.
	Calls Lamp `json:"calls"`
	// Charges: charges (left) and answered intents (right), of the whole file.
	Charges Lamp `json:"charges"`
}

// Lamps reads them.
//
// The row of a call is durable before the call is sent, so at every moment
//
//	calls <= rows - unsent <= calls + running
//
// and both ends are equal while nobody is between the two. The three are not read at
// one moment: calls are read before the row count and after it. Every count only grows,
// so a count of rows below the first reading is a call without a row, and one that is
// above the second by more than was running is a row without a call. Neither is ever
// said of a file where it is not so.
func (m *Monitor) Lamps(ctx context.Context) (l Lamps, err error) {
	meter := m.o.Meter
	before := m.calls() + meter.unsent.Load()
	n, err := m.o.DB.Counts(ctx)
	if err != nil {
		return l, err
	}
	running := meter.running.Load() // before the calls: who goes on from one to the other is counted in both
	unsent := meter.unsent.Load()
	calls := m.calls()
	rows := n.Attempts - m.before
	l.Calls = Lamp{State: LampOK, Left: calls, Right: rows - unsent}
	switch after := calls + unsent; {
	case rows < before:
		l.Calls.State = LampBroken
		l.Calls.Left = before - unsent
	case rows <= after: // equal, at a moment between the two readings
		l.Calls.Left = l.Calls.Right
	case rows-after <= running:
		l.Calls.State, l.Calls.InFlight = LampPending, rows-after
	default:
		l.Calls.State = LampBroken
	}
	l.Charges = Lamp{State: LampOK, Left: n.Charges, Right: n.Answers}
	m.mu.Lock()
	miscounted := m.last.miscounted
	m.mu.Unlock()
	if n.Charges != n.Answers || miscounted {
		l.Charges.State = LampBroken
	}
	return l, nil
}
