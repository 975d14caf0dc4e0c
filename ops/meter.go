// Package ops says how the program is doing: what it counts while it works, what it
// reads of its file and its disk, what is worth an alarm, and whether the invariants
// hold.
//
// Everything that happens is noted in one [Meter], which costs a few atomic additions
// and no lock; the engine and the doors only note. A [Monitor] reads.
package ops

import (
	"sync"
	"sync/atomic"
	"time"

	"semel/chat"
)

// Step is the time that one point of a series stands for, and kept is how many there
// are.
const (
	Step = time.Minute
	kept = 24 * 60
)

// A Meter counts what happens, since the start and by the minute. All its methods may
// be called by many goroutines; those that note something take no lock and read no
// clock.
type Meter struct {
	all     tally
	now     atomic.Pointer[minute]
	running atomic.Int64 // jobs that are about to claim, or have claimed and not ended
	unsent  atomic.Int64 // attempts that ended before their call
	called  atomic.Int64
	refused sync.Map // code → *atomic.Int64

	mu   sync.Mutex
	past []*minute // under mu; closed, oldest first, at most kept
}

// A tally is what is counted, of whatever time.
type tally struct {
	arrivals   [len(decisions)]atomic.Int64
	refused    atomic.Int64
	attempts   [len(outcomes)]atomic.Int64
	deliveries [len(outcomes)]atomic.Int64
	charges    atomic.Int64
	micros     atomic.Int64
	firstToken histogram
	answer     histogram
	delivery   histogram
}

// A minute is the tally of one, with the depths of the queues: the greatest seen.
type minute struct {
	tally
	at                       time.Time
	waiting, running, outbox atomic.Int64
}

// decisions and outcomes are in the order of their places in a tally. chat.Decisions has
// no length that a type could take; a test compares.
var (
	decisions = [6]chat.Decision{chat.DecisionFirst, chat.DecisionJoined, chat.DecisionReplayed, chat.DecisionConflict, chat.DecisionExpired, chat.DecisionRestarted}
	outcomes  = [6]chat.Outcome{chat.OutcomeOK, chat.OutcomeNone, chat.OutcomeDefinite, chat.OutcomeUnknown, chat.OutcomeStopped, chat.OutcomeFenced}
)

// deliveryOutcomes are the first of them: a delivery is neither stopped nor fenced.
const deliveryOutcomes = 4

func place[T comparable](list *[6]T, v T) int {
	for i := range list {
		if list[i] == v {
			return i
		}
	}
	return -1
}

// NewMeter returns a meter that has counted nothing yet.
func NewMeter() *Meter {
	m := &Meter{}
	m.now.Store(&minute{at: time.Now().Truncate(Step)})
	return m
}

// Arrived notes an arrival of an accepted id, and what was made of it.
func (m *Meter) Arrived(d chat.Decision) {
	if i := place(&decisions, d); i >= 0 {
		m.all.arrivals[i].Add(1)
		m.now.Load().arrivals[i].Add(1)
	}
}

// Refused notes something that was not done for a client, with the code it was told.
func (m *Meter) Refused(code string) {
	c, ok := m.refused.Load(code)
	if !ok {
		c, _ = m.refused.LoadOrStore(code, new(atomic.Int64))
	}
	c.(*atomic.Int64).Add(1)
	m.all.refused.Add(1)
	m.now.Load().refused.Add(1)
}

// Began notes that somebody is about to claim an attempt: before the claim, so that at
// no moment there is a row that nobody has noted. Whoever began ends it.
func (m *Meter) Began() { m.running.Add(1) }

// Called notes that a model is about to be called.
func (m *Meter) Called() { m.called.Add(1) }

// NotCalled notes that a claimed attempt ends before its call.
func (m *Meter) NotCalled() { m.unsent.Add(1) }

// Ended is the other half of Began.
func (m *Meter) Ended() { m.running.Add(-1) }

// Attempted notes how an attempt ended, once that is stored.
func (m *Meter) Attempted(o chat.Outcome) {
	if i := place(&outcomes, o); i >= 0 {
		m.all.attempts[i].Add(1)
		m.now.Load().attempts[i].Add(1)
	}
}

// Answered notes a stored answer: what it was charged, how long its first token took
// from the dispatch on (0: none came, or it is not known) and the whole of it from the
// acceptance on.
func (m *Meter) Answered(micros int64, firstToken, whole time.Duration) {
	for _, t := range [...]*tally{&m.all, &m.now.Load().tally} {
		t.charges.Add(1)
		t.micros.Add(micros)
		t.answer.observe(whole)
		if firstToken > 0 {
			t.firstToken.observe(firstToken)
		}
	}
}

// Delivered notes how a delivery ended; of one that was accepted, how long after the row
// was written.
func (m *Meter) Delivered(o chat.Outcome, delay time.Duration) {
	i := place(&outcomes, o)
	if i < 0 {
		return
	}
	for _, t := range [...]*tally{&m.all, &m.now.Load().tally} {
		t.deliveries[i].Add(1)
		if o == chat.OutcomeOK {
			t.delivery.observe(delay)
		}
	}
}

// saw notes how deep the queues are, and begins a new minute where it is time.
func (m *Meter) saw(now time.Time, waiting, running, outbox int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cur := m.now.Load()
	if at := now.Truncate(Step); !at.Equal(cur.at) {
		m.past = append(m.past, cur)
		if len(m.past) > kept {
			m.past = append(m.past[:0:0], m.past[len(m.past)-kept:]...)
		}
		cur = &minute{at: at}
		m.now.Store(cur)
	}
	for _, d := range []struct {
		at   *atomic.Int64
		seen int64
	}{{&cur.waiting, waiting}, {&cur.running, running}, {&cur.outbox, outbox}} {
		d.at.Store(max(d.at.Load(), d.seen))
	}
}

// since returns the minutes that began at from or later, the one that runs among them,
// oldest first.
func (m *Meter) since(from time.Time) (list []*minute) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range append(m.past[:len(m.past):len(m.past)], m.now.Load()) {
		if !v.at.Before(from) {
			list = append(list, v)
		}
	}
	return list
}

// refusals returns what was refused since the start, by code.
func (m *Meter) refusals() map[string]int64 {
	codes := map[string]int64{}
	m.refused.Range(func(k, v any) bool {
		codes[k.(string)] = v.(*atomic.Int64).Load()
		return true
	})
	return codes
}

// bounds are the upper ends of a histogram's buckets, in seconds. They are close enough
// for a percentile to be drawn, and few enough to be scraped.
var bounds = [...]float64{0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1800, 3600}

// A histogram counts durations. The last bucket is for what is longer than every bound.
type histogram struct {
	n     [len(bounds) + 1]atomic.Int64
	nanos atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	d = max(d, 0)
	h.n[bucketOf(d.Seconds())].Add(1)
	h.nanos.Add(int64(d))
}

func bucketOf(seconds float64) int {
	low, high := 0, len(bounds)
	for low < high {
		if mid := (low + high) / 2; bounds[mid] < seconds {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// A spread is a histogram at one moment, or the sum of several.
type spread struct {
	n     [len(bounds) + 1]int64
	count int64
	sum   time.Duration
}

func (s *spread) add(h *histogram) {
	for i := range h.n {
		n := h.n[i].Load()
		s.n[i] += n
		s.count += n
	}
	s.sum += time.Duration(h.nanos.Load())
}

// percentile returns the duration that a share p of all did not exceed, as far as the
// buckets say; 0 where nothing was counted.
func (s *spread) percentile(p float64) time.Duration {
	if s.count == 0 {
		return 0
	}
	rank := p * float64(s.count)
	below := 0.0
	for i, n := range s.n {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		if i == len(bounds) {
			return seconds(bounds[i-1])
		}
		from := 0.0
		if i > 0 {
			from = bounds[i-1]
		}
		return seconds(from + (bounds[i]-from)*(rank-below)/float64(n))
	}
	return seconds(bounds[len(bounds)-1])
}

func (s *spread) mean() time.Duration {
	if s.count == 0 {
		return 0
	}
	return s.sum / time.Duration(s.count)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
