package ops

import (
	"log/slog"
	"sync"
	"time"
)

// What an alert can be on. Values are in seconds, shares of 1, bytes or counts.
const (
	OnDuplicateRate       = "duplicate_rate"       // share of repeats among the arrivals of the last ten minutes
	OnDuplicateErrors     = "duplicate_errors"     // repeats refused in the last ten minutes
	OnDeadLetters         = "dead_letters"         // rows of the outbox that were given up
	OnOldestUnfinished    = "oldest_unfinished"    // age of the oldest question without an answer
	OnLatency             = "latency"              // 95th percentile of the last ten minutes, from acceptance to answer
	OnOutboxOldest        = "outbox_oldest"        // how long the longest waiting delivery is due
	OnDiskFree            = "disk_free"            // bytes left for the database; the alert is when they are below
	OnBackupAge           = "backup_age"           // how long there has been no newer backup
	OnWAL                 = "wal_bytes"            // the write-ahead log: a reader that does not end makes it grow
	OnInvariantViolations = "invariant_violations" // violated invariants, by the last check
)

// kinds are all of them.
var kinds = []string{
	OnDuplicateRate, OnDuplicateErrors, OnDeadLetters, OnOldestUnfinished, OnLatency, OnOutboxOldest, OnDiskFree, OnBackupAge, OnWAL, OnInvariantViolations,
}

// A Rule says when an alert fires.
type Rule struct {
	On        string
	Threshold float64
	Below     bool // it fires when the value is below the threshold, not above
}

// judged is the time over which rates and latencies are judged, and the least that must
// have happened in it: of two arrivals one repeat is half, and nothing is wrong.
const (
	judged        = 10 * time.Minute
	leastArrivals = 100 // more than somebody who double-clicks to see what happens
	leastAnswers  = 5
)

// Hysteresis: an alert begins when its value is beyond the threshold at alertLooks looks
// in a row, and ends when the value has been back within alertMargin of the threshold
// for calmLooks looks in a row. At a look every ten seconds these are ten seconds and a
// minute. A value that swings around its threshold so gives one alert, not many.
const (
	alertLooks  = 2
	calmLooks   = 6
	alertMargin = 0.1
)

// An alert is a rule with how it stands.
type alert struct {
	Rule
	value  float64
	known  bool // there was something to judge
	firing bool
	since  time.Time // it fires
	streak int       // looks in a row that speak for a change
}

// alerts are judged at each look of a monitor.
type alerts struct {
	mu   sync.Mutex
	list []alert // under mu
	log  *slog.Logger
}

func newAlerts(rules []Rule, log *slog.Logger) *alerts {
	a := &alerts{log: log}
	for _, r := range rules {
		a.list = append(a.list, alert{Rule: r})
	}
	return a
}

// judge looks at the values once. What is not among them is not known, and calm.
func (a *alerts) judge(now time.Time, values map[string]float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.list {
		r := &a.list[i]
		r.value, r.known = values[r.On]
		switch changes := r.known && r.beyond(0); {
		case r.firing:
			changes = !r.known || !r.beyond(alertMargin)
			r.count(changes, calmLooks, func() {
				r.firing = false
				a.log.Info("alert ended", "alert", r.On, "value", r.value, "threshold", r.Threshold, "lasted", now.Sub(r.since).Round(time.Second).String())
				r.since = time.Time{}
			})
		default:
			r.count(changes, alertLooks, func() {
				r.firing, r.since = true, now
				a.log.Error("alert", "alert", r.On, "value", r.value, "threshold", r.Threshold)
			})
		}
	}
}

// beyond reports whether the value is beyond the threshold, drawn in by a margin.
func (r *alert) beyond(margin float64) bool {
	if r.Below {
		return r.value < r.Threshold*(1+margin)
	}
	return r.value > r.Threshold*(1-margin)
}

func (r *alert) count(speaks bool, enough int, change func()) {
	if !speaks {
		r.streak = 0
		return
	}
	if r.streak++; r.streak >= enough {
		r.streak = 0
		change()
	}
}

func (a *alerts) now() []alert {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]alert{}, a.list...)
}
