package ops

import (
	"context"
	"path/filepath"
	"time"

	"semel/chat"
	"semel/db"
	"semel/disk"
)

// Stats are how the program is doing, as GET /api/ops/stats tells it. docs/operations.md
// says what each is.
type Stats struct {
	Now     chat.Stamp `json:"now"`
	Started chat.Stamp `json:"started"`
	Version string     `json:"version"`
	Epoch   int64      `json:"epoch"`

	ArrivalsPerMinute float64  `json:"arrivalsPerMinute"` // of the last five minutes
	HitRate           *float64 `json:"hitRate"`           // of the last hour; null without arrivals
	Total             Sums     `json:"total"`             // of the whole file
	Life              Life     `json:"life"`              // since the start

	Waiting          int        `json:"waiting"` // questions without their answer, those that run among them
	Running          int        `json:"running"`
	OldestUnfinished chat.Stamp `json:"oldestUnfinished"` // when it was accepted; null without one
	OldestSeconds    float64    `json:"oldestUnfinishedSeconds"`
	Latency          Latency    `json:"latency"` // of the last ten minutes

	Outbox    Outbox    `json:"outbox"`
	Database  Database  `json:"database"`
	Disk      Disk      `json:"disk"`
	Retention Retention `json:"retention"`
	Backup    *Backup   `json:"lastBackup"` // null: there is none
	Check     CheckUp   `json:"check"`
	Alerts    []Alert   `json:"alerts"`
	Lamps     Lamps     `json:"lamps"`
	Series    Series    `json:"series"`
}

// Sums are counts that a restart does not lose.
type Sums struct {
	Intents    int64      `json:"intents"`
	Joined     int64      `json:"joined"`
	Replayed   int64      `json:"replayed"`
	Restarted  int64      `json:"restarted"`
	Conflicts  int64      `json:"conflicts"`
	Expired    int64      `json:"expired"`
	ModelCalls int64      `json:"modelCalls"`
	Answers    int64      `json:"answers"`
	Charges    int64      `json:"charges"`
	Charged    chat.Money `json:"charged"`
	Saved      chat.Money `json:"saved"`
}

// Life is what was counted since the start.
type Life struct {
	Arrivals   map[chat.Decision]int64 `json:"arrivals"`
	Refused    map[string]int64        `json:"refused"` // by code
	ModelCalls int64                   `json:"modelCalls"`
	Attempts   map[chat.Outcome]int64  `json:"attempts"` // ended, by outcome
	Deliveries map[chat.Outcome]int64  `json:"deliveries"`
	Charges    int64                   `json:"charges"`
	Charged    chat.Money              `json:"charged"`
}

// Latency is how long people wait: percentiles in milliseconds, 0 where nothing was
// answered.
type Latency struct {
	Answers       int64 `json:"answers"`
	FirstTokenP50 int64 `json:"firstTokenP50Ms"` // from the dispatch
	FirstTokenP95 int64 `json:"firstTokenP95Ms"`
	TotalP50      int64 `json:"totalP50Ms"` // from the acceptance to the answer
	TotalP95      int64 `json:"totalP95Ms"`
}

// Outbox is what is on its way to others.
type Outbox struct {
	Pending     int     `json:"pending"`
	Awaiting    int     `json:"awaiting"`    // callbacks
	Troubled    int     `json:"troubled"`    // waiting for a person, dead letters among them
	DeadLetters int     `json:"deadLetters"` // given up
	OverdueSecs float64 `json:"overdueSeconds"`
	Delivered   int64   `json:"delivered"`         // in the last hour
	AverageMS   int64   `json:"averageDeliveryMs"` // of those, from the writing of the row, in milliseconds
}

// Database is how large the file is.
type Database struct {
	Bytes int64 `json:"bytes"`
	Free  int64 `json:"freeBytes"` // in the file, to be used again
	WAL   int64 `json:"walBytes"`
}

// Disk is what is left for the file. Trouble says why nothing should be taken on any
// more, "" where there is none.
type Disk struct {
	Free    int64  `json:"freeBytes"`
	Total   int64  `json:"totalBytes"`
	Trouble string `json:"trouble"`
}

// Retention is what is no longer there.
type Retention struct {
	Pruned       int64      `json:"prunedIntents"` // evidence of as many, the oldest, is pruned
	PrunedUntil  chat.Stamp `json:"prunedUntil"`
	PurgeHorizon chat.Stamp `json:"purgeHorizon"` // ULIDs that are not newer are never run any more
}

// Backup is the newest one.
type Backup struct {
	At    chat.Stamp `json:"at"`
	Path  string     `json:"path"`
	Bytes int64      `json:"bytes"`
}

// Alert is a rule and how it stands.
type Alert struct {
	On        string     `json:"on"`
	Threshold float64    `json:"threshold"` // seconds, bytes, a share or a count
	Below     bool       `json:"below"`
	Value     *float64   `json:"value"` // null: too little happened to judge
	Firing    bool       `json:"firing"`
	Since     chat.Stamp `json:"since"`
}

// Series are counts by time, oldest first. A point stands for StepSeconds from its time
// on; the last is not over.
type Series struct {
	StepSeconds int     `json:"stepSeconds"`
	Points      []Point `json:"points"`
}

// Point is one of a series.
type Point struct {
	At            chat.Stamp `json:"at"`
	Intents       int64      `json:"intents"`
	Joined        int64      `json:"joined"`
	Replayed      int64      `json:"replayed"`
	Restarted     int64      `json:"restarted"`
	Conflicts     int64      `json:"conflicts"`
	Refused       int64      `json:"refused"`
	Charges       int64      `json:"charges"`
	ChargedMicros int64      `json:"chargedMicros"`
	HitRate       *float64   `json:"hitRate"` // null without arrivals
	FirstTokenP50 int64      `json:"firstTokenP50Ms"`
	FirstTokenP95 int64      `json:"firstTokenP95Ms"`
	TotalP50      int64      `json:"totalP50Ms"`
	TotalP95      int64      `json:"totalP95Ms"`
	Waiting       int64      `json:"waiting"` // the most that was seen
	Running       int64      `json:"running"`
	Outbox        int64      `json:"outbox"`
}

// Range chooses a series: the last Minutes, Step of them a point.
type Range struct{ Minutes, Step int }

// Most and Usual are the longest range and the one without a wish.
var (
	Most  = Range{Minutes: kept, Step: kept}
	Usual = Range{Minutes: 60, Step: 1}
)

// Stats reads how the program is doing. It costs the same however large the file is.
func (m *Monitor) Stats(ctx context.Context, over Range) (Stats, error) {
	now := time.Now()
	n, err := m.o.DB.Counts(ctx)
	if err != nil {
		return Stats{}, err
	}
	t, err := m.o.DB.Totals(ctx)
	if err != nil {
		return Stats{}, err
	}
	lamps, err := m.Lamps(ctx)
	if err != nil {
		return Stats{}, err
	}
	s := Stats{
		Now: chat.Stamp{Time: now}, Started: chat.Stamp{Time: m.started}, Version: m.o.Version, Epoch: n.Epoch,
		Total: Sums{
			Intents: n.Intents, Joined: n.Joined, Replayed: n.Replayed, Restarted: n.Restarted, Conflicts: n.Conflicts, Expired: n.Expired,
			ModelCalls: n.Attempts, Answers: n.Answers, Charges: n.Charges, Charged: m.money(n.Charged), Saved: m.money(n.Saved),
		},
		Waiting: t.Waiting, Running: t.Running, OldestUnfinished: chat.Stamp{Time: t.Oldest}, OldestSeconds: age(now, t.Oldest),
		Outbox: Outbox{
			Pending: t.Outbox, Awaiting: t.Awaiting, Troubled: t.Troubled, DeadLetters: t.Dead, OverdueSecs: age(now, t.Overdue),
		},
		Database:  Database{Bytes: t.Bytes, Free: t.Free, WAL: t.WAL},
		Disk:      m.Disk(),
		Retention: Retention{Pruned: n.Pruned, PrunedUntil: chat.Stamp{Time: n.PrunedUntil}, PurgeHorizon: chat.Stamp{Time: n.PurgeHorizon}},
		Check:     m.checkUp(n),
		Alerts:    []Alert{},
		Lamps:     lamps,
		Life:      m.life(),
		Series:    m.series(now, over),
	}
	if m.o.LastBackup != nil {
		s.Backup = m.o.LastBackup()
	}
	for _, a := range m.alerts.now() {
		j := Alert{On: a.On, Threshold: a.Threshold, Below: a.Below, Firing: a.firing, Since: chat.Stamp{Time: a.since}}
		if a.known {
			j.Value = &a.value
		}
		s.Alerts = append(s.Alerts, j)
	}
	five := m.sum(now, 5*time.Minute)
	s.ArrivalsPerMinute = float64(five.arrivals()) / min(5, max(1, now.Sub(m.started).Minutes()))
	hour := m.sum(now, time.Hour)
	s.HitRate = hour.hitRate()
	s.Outbox.Delivered, s.Outbox.AverageMS = hour.delivery.count, hour.delivery.mean().Milliseconds()
	last := m.sum(now, judged)
	s.Latency = Latency{
		Answers: last.answer.count, FirstTokenP50: last.firstToken.ms(0.5), FirstTokenP95: last.firstToken.ms(0.95),
		TotalP50: last.answer.ms(0.5), TotalP95: last.answer.ms(0.95),
	}
	return s, nil
}

func (s *spread) ms(p float64) int64 { return s.percentile(p).Milliseconds() }

// age is how long ago something was, in seconds; 0 where it is still to come, or never was.
func age(now, at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at).Seconds())
}

func (m *Monitor) money(micros int64) chat.Money {
	return chat.Money{Currency: m.o.Currency, Micros: micros}
}

func (m *Monitor) life() Life {
	t := &m.o.Meter.all
	l := Life{
		Arrivals: map[chat.Decision]int64{}, Refused: m.o.Meter.refusals(), ModelCalls: m.calls(),
		Attempts: map[chat.Outcome]int64{}, Deliveries: map[chat.Outcome]int64{},
		Charges: t.charges.Load(), Charged: m.money(t.micros.Load()),
	}
	for i, d := range decisions {
		l.Arrivals[d] = t.arrivals[i].Load()
	}
	for i, o := range outcomes {
		l.Attempts[o] = t.attempts[i].Load()
		if i < deliveryOutcomes {
			l.Deliveries[o] = t.deliveries[i].Load()
		}
	}
	return l
}

// A sum is the tallies of several minutes.
type sum struct {
	by                           [len(decisions)]int64
	refused, charges, micros     int64
	firstToken, answer, delivery spread
	waiting, running, outbox     int64 // the most
}

func (s *sum) add(v *minute) {
	for i := range s.by {
		s.by[i] += v.arrivals[i].Load()
	}
	s.refused += v.refused.Load()
	s.charges += v.charges.Load()
	s.micros += v.micros.Load()
	s.firstToken.add(&v.firstToken)
	s.answer.add(&v.answer)
	s.delivery.add(&v.delivery)
	s.waiting, s.running, s.outbox = max(s.waiting, v.waiting.Load()), max(s.running, v.running.Load()), max(s.outbox, v.outbox.Load())
}

func (s *sum) of(d chat.Decision) int64 { return s.by[place(&decisions, d)] }

func (s *sum) arrivals() (n int64) {
	for _, v := range s.by {
		n += v
	}
	return n
}

// absorbed are arrivals that were answered without another call.
func (s *sum) absorbed() int64 { return s.of(chat.DecisionJoined) + s.of(chat.DecisionReplayed) }

// hitRate is their share of all; nil where nothing arrived.
func (s *sum) hitRate() *float64 {
	all := s.arrivals()
	if all == 0 {
		return nil
	}
	r := float64(s.absorbed()) / float64(all)
	return &r
}

// sum adds up the minutes that touch the time before now, the one that runs among them.
func (m *Monitor) sum(now time.Time, d time.Duration) (s sum) {
	for _, v := range m.o.Meter.since(now.Truncate(Step).Add(Step - d)) {
		s.add(v)
	}
	return s
}

func (m *Monitor) series(now time.Time, over Range) Series {
	step := time.Duration(over.Step) * Step
	// Points begin at multiples of their step, so that one that is over does not change.
	last := now.Truncate(step)
	first := last.Add(step - time.Duration(over.Minutes)*Step).Truncate(step)
	sums := map[int64]*sum{}
	for _, v := range m.o.Meter.since(first) {
		at := v.at.Truncate(step).Unix()
		if sums[at] == nil {
			sums[at] = &sum{}
		}
		sums[at].add(v)
	}
	s := Series{StepSeconds: int(step.Seconds()), Points: []Point{}}
	for at := first; !at.After(last); at = at.Add(step) {
		v := sums[at.Unix()]
		if v == nil {
			v = &sum{}
		}
		s.Points = append(s.Points, Point{
			At: chat.Stamp{Time: at}, Intents: v.of(chat.DecisionFirst), Joined: v.of(chat.DecisionJoined), Replayed: v.of(chat.DecisionReplayed),
			Restarted: v.of(chat.DecisionRestarted), Conflicts: v.of(chat.DecisionConflict), Refused: v.refused, Charges: v.charges, ChargedMicros: v.micros,
			HitRate: v.hitRate(), FirstTokenP50: v.firstToken.ms(0.5), FirstTokenP95: v.firstToken.ms(0.95), TotalP50: v.answer.ms(0.5), TotalP95: v.answer.ms(0.95),
			Waiting: v.waiting, Running: v.running, Outbox: v.outbox,
		})
	}
	return s
}

// Disk returns what is left for the file.
func (m *Monitor) Disk() Disk {
	if m.o.Disk != nil {
		return m.o.Disk()
	}
	room, err := disk.At(filepath.Dir(m.o.DB.Path()))
	if err != nil {
		return Disk{Trouble: "the disk cannot be measured: " + err.Error()}
	}
	d := Disk{Free: room.Free, Total: room.Total}
	if room.Free < leastFree {
		d.Trouble = "the disk of the database is full"
	}
	return d
}

// leastFree is what must be free for anything to be stored at all.
const leastFree = 1 << 20

// checkUp is what is known of the last check.
func (m *Monitor) checkUp(n db.Counts) CheckUp {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.last
	c.EverySeconds, c.Running, c.Done = m.o.VerifyEvery.Seconds(), m.checking, m.done
	if c.At.IsZero() {
		c.Violated = []string{}
		return c
	}
	c.Share = 1
	if n.Intents > 0 {
		c.Share = float64(c.Intents) / float64(n.Intents)
	}
	return c
}
