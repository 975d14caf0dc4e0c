package engine

import (
	"context"
	"sync"
	"time"

	"semel/chat"
	"semel/db"
)

// An arrivalLog keeps what repeats were answered until the next batch. Recording
// one costs the answer an append to memory.
type arrivalLog struct {
	flushing sync.Mutex // held while a batch is on its way: batches keep their order
	mu       sync.Mutex
	pending  []db.Repeat   // under mu
	wake     chan struct{} // capacity 1
}

// Waiting records an arrival that will be answered later, or never when its client
// hangs up, so that a receipt read meanwhile has it. The caller hands the Result
// that it returns to Answered.
func (e *Engine) Waiting(r Result, source chat.Source) Result {
	if r.Decision != chat.DecisionFirst { // that one is stored with its acceptance
		r.waiting = time.Now()
		e.arrived(db.Repeat{RequestID: r.Request.ID, At: r.waiting, Source: source, Decision: r.Decision})
	}
	return r
}

// Answered records what an arrival of an accepted id was answered with. It does
// not wait; FlushArrivals does.
func (e *Engine) Answered(r Result, source chat.Source, status int) {
	a := db.Repeat{RequestID: r.Request.ID, At: r.waiting, Source: source, Decision: r.Decision, Status: status, Recorded: true}
	if a.At.IsZero() {
		a.At, a.Recorded = time.Now(), false
	}
	e.arrived(a)
}

func (e *Engine) arrived(a db.Repeat) {
	e.arrivals.mu.Lock()
	e.arrivals.pending = append(e.arrivals.pending, a)
	e.arrivals.mu.Unlock()
	select {
	case e.arrivals.wake <- struct{}{}:
	default:
	}
}

// FlushArrivals returns when every arrival recorded before it is stored: a
// receipt read afterwards has it.
func (e *Engine) FlushArrivals(ctx context.Context) error {
	e.arrivals.flushing.Lock()
	defer e.arrivals.flushing.Unlock()
	e.arrivals.mu.Lock()
	batch := e.arrivals.pending
	e.arrivals.pending = nil
	e.arrivals.mu.Unlock()
	for len(batch) > 0 {
		n := min(len(batch), arrivalBatch)
		if err := e.db.RecordArrivals(context.WithoutCancel(ctx), batch[:n]); err != nil {
			e.arrivals.mu.Lock()
			e.arrivals.pending = append(batch, e.arrivals.pending...)
			e.arrivals.mu.Unlock()
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// arrivalBatch is how many arrivals share a transaction at the most: a question
// that comes in between waits for one batch.
const arrivalBatch = 500

// arrivalPause is how long repeats gather, so that many share a commit. A death
// loses no more than these of the record; a receipt waits for none of them.
const arrivalPause = 50 * time.Millisecond

// arrivalLoop stores arrivals soon after they come, whatever is there in one batch.
func (e *Engine) arrivalLoop() {
	defer e.loops.Done()
	for stopping := false; !stopping; {
		select {
		case <-e.stopping:
			stopping = true
		case <-e.arrivals.wake:
			select {
			case <-e.stopping:
				stopping = true
			case <-time.After(arrivalPause):
			}
		}
		if err := e.FlushArrivals(context.Background()); err != nil {
			e.log.Error("record arrivals", "error", err)
			select { // try again when more arrive, or after a while
			case <-e.stopping:
			case <-time.After(time.Second):
				select {
				case e.arrivals.wake <- struct{}{}:
				default:
				}
			}
		}
	}
}
