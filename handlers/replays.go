package handlers

import "sync"

// replayBytes bounds what is kept of encoded records, and replayMost one of them.
const (
	replayBytes = 16 << 20
	replayMost  = 256 << 10
)

// replays keeps records of committed requests as a repeat is answered with them,
// the most recently used, by internal id. They need no invalidation: a committed
// record without effects does not change (of an effect the last status may: a callback
// may settle it before its delivery ends), its internal id is never given out again,
// and whether it may still be told is looked up in the database before.
type replays struct {
	mu         sync.Mutex
	young, old map[int64][]byte // under mu; old is dropped when young is half of all
	bytes      int              // of young; under mu
}

// get returns the record of a request, nil when it is not kept. Nobody may change
// it.
func (c *replays) get(id int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.young[id]; b != nil {
		return b
	}
	b := c.old[id]
	if b != nil {
		c.add(id, b)
	}
	return b
}

func (c *replays) put(id int64, record []byte) {
	if len(record) > replayMost {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young[id] == nil {
		c.add(id, record)
	}
}

// add makes record one of the young. c.mu is held.
func (c *replays) add(id int64, record []byte) {
	if c.young == nil || c.bytes+len(record) > replayBytes/2 {
		c.old, c.young, c.bytes = c.young, map[int64][]byte{}, 0
	}
	c.young[id] = record
	c.bytes += len(record)
}
