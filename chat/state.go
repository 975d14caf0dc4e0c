package chat

// State is where a request stands. The answer is final at acknowledged.
type State string

const (
	StateNew          State = "new" // before acceptance; never stored in a request
	StatePending      State = "pending"
	StateGenerating   State = "generating"
	StateAcknowledged State = "acknowledged"
	StateCommitted    State = "committed"
	StateFailed       State = "failed"
)

// Status is what clients see of a state.
type Status string

const (
	StatusProcessing Status = "PROCESSING"
	StatusCompleted  Status = "COMPLETED"
	StatusFailed     Status = "FAILED"
)

// An Edge is one allowed change of state.
type Edge struct{ From, To State }

// Edges are all changes of state that exist (contract, section 2). The database
// holds the same list and refuses any other.
var Edges = []Edge{
	{StateNew, StatePending},
	{StatePending, StateGenerating},
	{StatePending, StateFailed},
	{StateGenerating, StatePending},
	{StateGenerating, StateFailed},
	{StateGenerating, StateAcknowledged},
	{StateAcknowledged, StateCommitted},
	{StateFailed, StatePending},
}

// States are all states a stored request can be in.
var States = []State{StatePending, StateGenerating, StateAcknowledged, StateCommitted, StateFailed}

// CanBecome reports whether the edge from s to next exists.
func (s State) CanBecome(next State) bool {
	for _, e := range Edges {
		if e.From == s && e.To == next {
			return true
		}
	}
	return false
}

// Status returns what clients are told of s.
func (s State) Status() Status {
	switch s {
	case StateCommitted:
		return StatusCompleted
	case StateFailed:
		return StatusFailed
	}
	return StatusProcessing
}

// Answered reports whether a request in s has its final answer.
func (s State) Answered() bool { return s == StateAcknowledged || s == StateCommitted }

// Live reports whether a request in s still waits for its answer.
func (s State) Live() bool { return s == StatePending || s == StateGenerating }
