package db

import (
	"sync"

	"semel/chat"
)

// textsBytes bounds what is remembered of messages in each of two generations.
const textsBytes = 8 << 20

// texts remembers messages that were written or read a moment ago: the next turn
// of their conversation sends them again. Messages never change, so there is nothing to
// keep in step; what is not asked for again falls out with its generation.
type texts struct {
	mu       sync.Mutex
	now, old map[textKey]chat.Message // under mu
	bytes    int                      // of now; under mu
}

type textKey struct{ conversation, seq int64 }

// get returns the messages with these numbers, as far as they are remembered, and
// the numbers of the others. The result has a place for each.
func (t *texts) get(conversation int64, seqs []int64) (turns []chat.Message, missing []int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	turns = make([]chat.Message, len(seqs))
	for i, seq := range seqs {
		k := textKey{conversation, seq}
		m, ok := t.now[k]
		if !ok {
			if m, ok = t.old[k]; ok {
				t.add(k, m)
			}
		}
		if !ok {
			missing = append(missing, seq)
		}
		turns[i] = m
	}
	return turns, missing
}

func (t *texts) put(conversation int64, m chat.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(textKey{conversation, m.Seq}, m)
}

// add remembers m. t.mu is held.
func (t *texts) add(k textKey, m chat.Message) {
	if t.now == nil || t.bytes > textsBytes {
		t.old, t.now, t.bytes = t.now, make(map[textKey]chat.Message), 0
	}
	t.now[k] = m
	t.bytes += len(m.Content) + 64
}
