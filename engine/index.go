package engine

import (
	"context"
	"time"
)

// The search index is filled behind the writers: a search reads what it has not got
// yet, so it may be late. It takes slices of the write queue, and few while others
// write.

// busyRest is how many times as long as a slice the index rests while others write:
// it then has a fiftieth of the writer.
const busyRest = 50

// wantIndex says that there is a message or a title for the index.
func (e *Engine) wantIndex() {
	select {
	case e.unindexed <- struct{}{}:
	default: // it has been said
	}
}

func (e *Engine) indexLoop() {
	defer e.loops.Done()
	for {
		select {
		case <-e.stopping:
			return
		case <-e.unindexed:
		}
		rest := e.o.IndexAfter
		for more := true; more; {
			if !e.rest(rest) {
				return
			}
			started := time.Now()
			var err error
			if more, err = e.db.IndexSlice(context.Background()); err != nil {
				e.log.Error("index for search", "error", err) // the next message tries again
			}
			if rest = time.Since(started); len(e.unindexed) > 0 { // others wrote meanwhile
				rest *= busyRest
			}
		}
	}
}

// rest waits, not beyond the beginning of a shutdown: that it reports.
func (e *Engine) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-e.stopping:
		return false
	case <-t.C:
		return true
	}
}
