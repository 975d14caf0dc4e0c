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
	mu      sync.Mutex
	pending []db.Repeat
	wake    chan struct{} // capacity 1
}

// Answered records what an arrival of an accepted id was answered with. It does
// not wait; FlushArrivals does.
func (e *Engine) Answered(r Result, source chat.Source, status int) {
	e.arrivals.mu.Lock()
	e.arrivals.pending = append(e.arrivals.pending, db.Repeat{
		RequestID: r.Request.ID, At: time.Now(), Source: source, Decision: r.Decision, Status: status,
	})
	e.arrivals.mu.Unlock()
	select {
	case e.arrivals.wake <- struct{}{}:
	default:
	}
}

// FlushArrivals returns when every arrival recorded before it is stored: a
// receipt read afterwards has it.
func (e *Engine) FlushArrivals(ctx context.Context) error {
	e.arrivals.mu.Lock()
	batch := e.arrivals.pending
	e.arrivals.pending = nil
	e.arrivals.mu.Unlock()
	if len(batch) == 0 {
		return e.db.Flush(ctx) // a batch may be on its way
	}
	err := e.db.RecordArrivals(context.WithoutCancel(ctx), batch)
	if err != nil {
		e.arrivals.mu.Lock()
		e.arrivals.pending = append(batch, e.arrivals.pending...)
		e.arrivals.mu.Unlock()
	}
	return err
}

// arrivalLoop stores arrivals as they come, whatever is there in one batch.
func (e *Engine) arrivalLoop() {
	defer e.loops.Done()
	for stopping := false; !stopping; {
		select {
		case <-e.stopping:
			stopping = true
		case <-e.arrivals.wake:
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
