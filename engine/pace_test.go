package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
)

func TestTextWakesViewersAtOnceAndThenGathers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := chat.Request{ID: 7, Attempt: 1, State: chat.StateGenerating}
		l := newLive(r)
		wants := func(v View, woken bool, what string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-v.Changed:
				if !woken {
					t.Errorf("woken: %s", what)
				}
			default:
				if woken {
					t.Errorf("not woken: %s", what)
				}
			}
		}
		v := l.View()
		l.add(1, "a", "")
		wants(v, true, "the first text")

		v = l.View()
		l.add(1, "b", "")
		time.Sleep(wakeEvery / 2)
		l.add(1, "c", "")
		wants(v, false, "text that came soon after")
		time.Sleep(wakeEvery / 2)
		wants(v, true, "text has gathered for long enough")
		v = l.View()
		if string(v.Text) != "abc" {
			t.Errorf("text %q", v.Text)
		}
		time.Sleep(2 * wakeEvery)
		wants(v, false, "nothing came")

		l.add(1, "d", "")
		wants(v, true, "text after a pause")
		for range 2 { // the timer is used again
			v = l.View()
			l.add(1, "", "e")
			wants(v, false, "a thought soon after")
			time.Sleep(wakeEvery)
			wants(v, true, "a thought has waited for long enough")
		}

		time.Sleep(2 * wakeEvery)
		v = l.View()
		l.update(r, false)
		wants(v, true, "another state")
		v = l.View()
		l.add(1, "f", "")
		wants(v, true, "text right after another state")
		l.add(1, "g", "") // waits for the timer
		r.Attempt = 2
		l.begin(r, func(error) {})
		v = l.View()
		time.Sleep(wakeEvery)
		wants(v, false, "there is nothing of the new attempt")
		l.add(2, "h", "")
		wants(v, true, "the first text of another attempt")
		r.Attempt = 3
		l.begin(r, func(error) {})
		v = l.View()
		l.add(3, "i", "")
		wants(v, true, "the first text of an attempt right after the other")

		v = l.View()
		l.add(3, "j", "")
		l.update(r, true)
		wants(v, true, "it is over")
	})
}

func TestViewersThatAreEquallyFarShareOneFrame(t *testing.T) {
	t.Parallel()
	r := chat.Request{ID: 7, Attempt: 1, State: chat.StateGenerating}
	l := newLive(r)
	l.add(1, "text", "")
	encoded := 0
	get := func(from, to int) string {
		b := l.View().Frame.Encoded(from, to, func() []byte {
			encoded++
			return append(make([]byte, 0, 100), l.View().Text[from:to]...)
		})
		if cap(b) != len(b) {
			t.Error("a viewer that appends would write where others do")
		}
		return string(b)
	}
	for _, tt := range []struct {
		from, to int
		want     string
		encoded  int
	}{
		{0, 4, "text", 1},
		{0, 4, "text", 1},
		{1, 4, "ext", 2},
		{1, 3, "ex", 3},
		{1, 4, "ext", 4},
	} {
		if got := get(tt.from, tt.to); got != tt.want || encoded != tt.encoded {
			t.Errorf("from %d to %d: %q after %d encodings, want %q after %d", tt.from, tt.to, got, encoded, tt.want, tt.encoded)
		}
	}
	r.Attempt = 2
	l.begin(r, func(error) {})
	l.add(2, "word", "")
	if got := get(1, 4); got != "ord" {
		t.Errorf("another attempt's frame: %q", got)
	}
}
