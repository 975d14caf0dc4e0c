package views

import "sync"

// Messages never change, and a page is rendered again after each answer: what was
// rendered a moment ago is kept. Two generations, so that what is not asked for
// falls out.
const keepBytes = 4 << 20 // of each generation

var rendered keep

// A keep remembers strings made from strings. Any number of goroutines may use it.
type keep struct {
	mu         sync.Mutex
	young, old map[string]string
	size       int // of young
}

func (k *keep) get(from string) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	made, ok := k.young[from]
	if !ok {
		if made, ok = k.old[from]; ok {
			k.add(from, made)
		}
	}
	return made, ok
}

func (k *keep) put(from, made string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(from)+len(made) < keepBytes/8 {
		k.add(from, made)
	}
}

func (k *keep) add(from, made string) {
	if k.size += len(from) + len(made); k.young == nil || k.size > keepBytes {
		k.young, k.old, k.size = map[string]string{}, k.young, len(from)+len(made)
	}
	k.young[from] = made
}
