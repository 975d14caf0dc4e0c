package db

import (
	"sync"

	"semel/chat"
)

// answeredMost bounds how many look-ups are kept: some five megabytes.
const answeredMost = 16384

// An answeredCache keeps what LookUp found of answered requests, the most recently
// used. An answer is final; only the deletion of its conversation makes another
// word of it. So each entry carries the number of deletions at the time before it
// was read, and counts only while there were no more.
type answeredCache struct {
	mu         sync.Mutex
	young, old map[chat.Key]answeredEntry // under mu; old is dropped when young is half of all
}

type answeredEntry struct {
	request   chat.Request
	deletions int64
}

func (c *answeredCache) get(k chat.Key, deletions int64) (chat.Request, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.young[k]
	if !ok {
		if e, ok = c.old[k]; ok {
			c.add(k, e)
		}
	}
	return e.request, ok && e.deletions == deletions
}

func (c *answeredCache) put(k chat.Key, r chat.Request, deletions int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(k, answeredEntry{r, deletions})
}

// add makes e one of the young. c.mu is held.
func (c *answeredCache) add(k chat.Key, e answeredEntry) {
	if c.young == nil || len(c.young) >= answeredMost/2 {
		c.old, c.young = c.young, map[chat.Key]answeredEntry{}
	}
	c.young[k] = e
}
