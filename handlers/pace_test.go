package handlers_test

import (
	"testing"
	"time"

	"semel/chat"
)

// The first token is what a person waits for: nothing holds it back. What comes
// right after it may gather for a moment.
func TestTheFirstTokenIsNotHeldBack(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id := chat.NewID(), chat.NewID()
		f := d.stream("/api/chat", ask(session, id, "Pour.", "model", "tap"))
		f.generating()
		for i, most := range []time.Duration{0, 100 * time.Millisecond, 100 * time.Millisecond} {
			poured := time.Now()
			d.tap.pour(id, 1, "word ")
			f.texts("word ")
			if took := time.Since(poured); took > most {
				t.Errorf("token %d came after %s, want %s at the most", i+1, took, most)
			}
		}
	})
}

// Whoever watches gets the words of the attempt that runs, also where an earlier
// one had as many.
func TestViewersOfTheNextAttemptGetItsOwnWords(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id := chat.NewID(), chat.NewID()
		first := d.stream("/api/chat", ask(session, id, "Pour.", "model", "tap"))
		other := d.stream(streamPath(session, id), nil)
		for attempt, word := range []string{"This.", "That!"} {
			for _, f := range []*feed{first, other} {
				f.until("attempt")
				f.generating()
			}
			d.tap.pour(id, int64(attempt+1), word)
			first.texts(word)
			other.texts(word)
			d.tap.pour(id, int64(attempt+1), errLost)
		}
	}, func(s *setup) { s.engine.Models[1].Rerun = true })
}

// generating reads until the model is asked.
func (f *feed) generating() {
	f.t.Helper()
	for {
		var s struct{ State chat.State }
		list := f.until("state")
		if list[len(list)-1].into(f.t, &s); s.State == chat.StateGenerating {
			return
		}
	}
}
