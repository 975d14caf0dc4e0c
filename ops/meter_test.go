package ops

import (
	"slices"
	"sync"
	"testing"
	"time"

	"semel/chat"
)

func TestEveryDecisionHasItsPlace(t *testing.T) {
	if !slices.Equal(decisions[:], chat.Decisions) {
		t.Errorf("counted are %v, there are %v", decisions, chat.Decisions)
	}
}

func TestPercentilesAreThoseOfTheBuckets(t *testing.T) {
	var h histogram
	for range 90 {
		h.observe(40 * time.Millisecond)
	}
	for range 9 {
		h.observe(4 * time.Second)
	}
	h.observe(2 * time.Hour)
	var s spread
	s.add(&h)
	for _, c := range []struct {
		p         float64
		low, high time.Duration
	}{
		{0.5, 30 * time.Millisecond, 50 * time.Millisecond},
		{0.95, 3 * time.Second, 5 * time.Second},
		{1, time.Hour, time.Hour}, // longer than every bound: at least that
	} {
		if got := s.percentile(c.p); got < c.low || got > c.high {
			t.Errorf("%v of all took up to %s, want %s to %s", c.p, got, c.low, c.high)
		}
	}
	if got := (&spread{}).percentile(0.95); got != 0 {
		t.Errorf("of nothing: %s", got)
	}
	if s.mean() != (90*40*time.Millisecond+9*4*time.Second+2*time.Hour)/100 {
		t.Errorf("mean %s", s.mean())
	}
	for i, b := range bounds {
		if i > 0 && b <= bounds[i-1] || bucketOf(b) != i || bucketOf(b*1.0001) != i+1 {
			t.Errorf("bound %v: bucket %d, %d above it", b, bucketOf(b), bucketOf(b*1.0001))
		}
	}
}

// What is noted is counted once, whatever is read meanwhile, and a day is kept.
func TestMinutesAddUpToWhatHappened(t *testing.T) {
	m := NewMeter()
	begin := m.now.Load().at
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 1000 {
				m.Arrived(chat.DecisionJoined)
				m.Answered(3, time.Second, 2*time.Second)
			}
		})
	}
	wait.Go(func() {
		for i := range 100 {
			m.saw(begin.Add(time.Duration(i)*Step), int64(i), 0, 0)
		}
	})
	wait.Wait()
	var s sum
	for _, v := range m.since(time.Time{}) {
		s.add(v)
	}
	if s.of(chat.DecisionJoined) != 4000 || s.micros != 12_000 || s.answer.count != 4000 || s.waiting != 99 {
		t.Errorf("minutes add up to %+v", s)
	}
	for i := range 2 * kept {
		m.saw(begin.Add(time.Duration(100+i)*Step), 0, 0, 0)
	}
	if n := len(m.since(time.Time{})); n != kept+1 {
		t.Errorf("%d minutes are kept, want %d and the one that runs", n, kept)
	}
}

func BenchmarkMeter(b *testing.B) {
	m := NewMeter()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			m.Arrived(chat.DecisionReplayed)
		}
	})
}
