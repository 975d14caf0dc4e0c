package views

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
)

// OpsStats are how the program is doing.
type OpsStats struct {
	Now                                                  time.Time
	ArrivalsPerMinute                                    float64
	HitRate                                              *float64 // of the last hour; nil without arrivals
	Intents, Joined, Replayed, Conflicts, Calls, Charges int64    // of the whole file
	Saved                                                int64    // micros
	Waiting, Running                                     int
	Oldest                                               time.Duration // the age of the oldest unfinished request; 0: there is none
	Stuck                                                bool          // it is too old
	P50, P95                                             time.Duration // of the last answers
	Outbox, Awaiting, Troubled, Dead                     int           // effects
	Average                                              time.Duration // of the deliveries of the last hour; 0: there were none
	Bytes, Free, WAL, DiskFree                           int64
	DiskTrouble                                          bool
	Backup                                               time.Time // zero: there is none
	BacksUp                                              bool      // one can be asked for
	BackingUp                                            time.Time // since when one is made; zero for none
	ModelCalls, Charged                                  OpsLamp
	Alerts                                               []OpsAlert // that fire
	Points                                               []OpsPoint // a minute each, of an hour
	Rows                                                 []OpsPoint // five minutes each
	Days                                                 []OpsDay
	Check                                                OpsCheck
	Pruned                                               int64 // intents whose evidence is pruned
	PrunedUntil, Horizon                                 time.Time
	Version                                              string
	Started                                              time.Time
	Epoch                                                int64
}

// An OpsLamp compares two counts that must be equal.
type OpsLamp struct {
	State                 string // ok, pending or broken
	Left, Right, InFlight int64
}

// An OpsAlert is one that fires.
type OpsAlert struct {
	On               string
	Value, Threshold float64
	Since            time.Time
}

// An OpsPoint is what happened in a while.
type OpsPoint struct {
	At              time.Time
	Arrivals        int64
	HitRate         *float64 // nil without arrivals
	P50, P95        time.Duration
	Waiting, Outbox int64
}

// An OpsDay is what a day cost.
type OpsDay struct {
	Day    time.Time
	Micros int64
}

// An OpsCheck is the last check of the invariants.
type OpsCheck struct {
	Running            bool
	Done, Of           int       // while it runs
	At                 time.Time // zero: there was none
	Took               time.Duration
	Checks, Violations int
	Violated           []string
	Share              float64 // of the requests there are now
	Error              string
}

// A figure is one number of the strip.
type figure struct {
	name, value, note string
	trouble           bool
}

func (p OpsPage) figures() []figure {
	l, t := p.Locale, p.Stats
	number := func(n int) string { return l.Number(int64(n)) }
	backup := l.T("ops.never")
	if !t.Backup.IsZero() {
		backup = l.age(t.Now.Sub(t.Backup))
	}
	average := ""
	if t.Average > 0 {
		average = l.T("ops.figure.average", "time", l.span(t.Average))
	}
	return []figure{
		{l.T("ops.figure.arrivals"), strconv.FormatFloat(t.ArrivalsPerMinute, 'f', rounded(t.ArrivalsPerMinute), 64), "", false},
		{l.T("ops.figure.intents"), l.Number(t.Intents), "", false},
		{l.T("ops.figure.joined"), l.Number(t.Joined), "", false},
		{l.T("ops.figure.replayed"), l.Number(t.Replayed), "", false},
		{l.T("ops.figure.conflicts"), l.Number(t.Conflicts), "", false},
		{l.T("ops.figure.hitRate"), l.share(t.HitRate), l.T("ops.figure.lastHour"), false},
		{l.T("ops.figure.calls"), l.Number(t.Calls), "", false},
		{l.T("ops.figure.charges"), l.Number(t.Charges), "", false},
		{l.T("ops.figure.saved"), l.cents(p.Currency, t.Saved), "", false},
		{l.T("ops.figure.waiting"), number(t.Waiting), l.T("ops.figure.answering", "n", number(t.Running)), false},
		{l.T("ops.figure.oldest"), l.age(t.Oldest), "", t.Stuck},
		{l.T("ops.figure.latency"), l.age(t.P95), l.T("ops.figure.median", "time", l.age(t.P50)), false},
		{l.T("ops.figure.outbox"), number(t.Outbox), average, false},
		{l.T("ops.figure.awaiting"), number(t.Awaiting), "", false},
		{l.T("ops.figure.troubled"), number(t.Troubled), l.N("ops.figure.dead", int64(t.Dead)), t.Troubled > 0},
		{l.T("ops.figure.size"), l.size(t.Bytes), "", false},
		{l.T("ops.figure.disk"), l.size(t.DiskFree), "", t.DiskTrouble},
		{l.T("ops.figure.backup"), backup, "", false},
	}
}

// rounded is how many decimals a rate is worth.
func rounded(v float64) int {
	if v == 0 || v >= 10 {
		return 0
	}
	return 1
}

// cents is an amount as a figure: a fraction of a cent matters only while there is no more.
func (l *Locale) cents(currency string, micros int64) string {
	if micros >= 1_000_000 {
		micros -= micros % 10_000
	}
	return l.Money(currency, micros)
}

// share is a part of a whole in percent.
func (l *Locale) share(v *float64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatFloat(math.Round(*v*1000)/10, 'f', -1, 64) + " %"
}

// A lampView is a lamp with its words.
type lampView struct {
	id, name, icon, word, counts, says string
	state                              string
}

func (p OpsPage) lamps() []lampView {
	l := p.Locale
	view := func(id, name, says string, v OpsLamp) lampView {
		w := lampView{id: id, name: name, says: says, state: v.State, counts: l.Number(v.Left) + " = " + l.Number(v.Right)}
		switch v.State {
		case "ok":
			w.icon, w.word = "answered", l.T("ops.lamp.ok")
		case "pending":
			w.icon, w.word, w.counts = "answering", l.N("ops.lamp.pending", v.InFlight), l.Number(v.Left)+" … "+l.Number(v.Right)
		default:
			w.icon, w.word, w.counts = "failed", l.T("ops.lamp.broken"), l.Number(v.Left)+" ≠ "+l.Number(v.Right)
			if v.Left == v.Right { // the check found that what was counted is not what is there
				w.counts = l.T("ops.lamp.miscounted")
			}
		}
		return w
	}
	return []lampView{
		view("lamp-calls", l.T("ops.lamp.calls"), l.T("ops.lamp.calls.says"), p.Stats.ModelCalls),
		view("lamp-charges", l.T("ops.lamp.charges"), l.T("ops.lamp.charges.says"), p.Stats.Charged),
	}
}

// alert says what is wrong and where to look.
func (p OpsPage) alert(a OpsAlert) (text string, to templ.SafeURL) {
	l := p.Locale
	percent := func(v float64) string { return l.share(&v) }
	seconds := func(v float64) string { return l.span(time.Duration(v * float64(time.Second))) }
	count := func(v float64) string { return l.Number(int64(v)) }
	size := func(v float64) string { return l.size(int64(v)) }
	name, show, to := a.On, count, templ.SafeURL("/ops")
	switch a.On {
	case "duplicate_rate":
		name, show, to = l.T("alert.duplicate_rate"), percent, "/ops?view=repeated"
	case "duplicate_errors":
		name, to = l.T("alert.duplicate_errors"), "/ops?view=conflicts"
	case "dead_letters":
		name, to = l.T("alert.dead_letters"), "/ops/outbox?state=dead"
	case "oldest_unfinished":
		name, show, to = l.T("alert.oldest_unfinished"), seconds, "/ops?view=stuck"
	case "latency":
		name, show, to = l.T("alert.latency"), seconds, "#charts"
	case "outbox_oldest":
		name, show, to = l.T("alert.outbox_oldest"), seconds, "/ops/outbox?state=pending"
	case "disk_free":
		name, show, to = l.T("alert.disk_free"), size, "#file"
	case "backup_age":
		name, show, to = l.T("alert.backup_age"), seconds, "#file"
	case "invariant_violations":
		name, to = l.T("alert.invariant_violations"), "#check"
	}
	return l.T("alert.text", "name", name, "value", show(a.Value), "threshold", show(a.Threshold)), to
}

// Charts

// A line is one series of a chart: stretches of points in percent, y from above. A
// stretch ends where nothing is known.
type line struct {
	tone      string
	stretches []string // as the points of a polyline
}

// A chartView is one small chart.
type chartView struct {
	id, name, value, says, top string
	lines                      []line
	bars                       []bar // y is 100 - height
	heights                    []float64
	from, to                   string
}

// lineOf draws values over the width; NaN is a gap. A lone value is a short stroke.
func lineOf(values []float64, top float64, tone string) line {
	v := line{tone: tone}
	var at []string
	end := func() {
		if len(at) == 1 {
			at = append(at, at[0])
		}
		if len(at) > 0 {
			v.stretches = append(v.stretches, strings.Join(at, " "))
		}
		at = nil
	}
	for i, y := range values {
		if math.IsNaN(y) {
			end()
			continue
		}
		x := 100 * float64(i) / float64(max(len(values)-1, 1))
		at = append(at, strconv.FormatFloat(x, 'f', 1, 64)+","+strconv.FormatFloat(100-94*y/top-3, 'f', 1, 64))
	}
	end()
	return v
}

// class of a stretch: one that is a lone value is drawn as a dot.
func (v line) class(stretch string) string {
	if a, b, _ := strings.Cut(stretch, " "); a == b {
		return v.tone + " lone"
	}
	return v.tone
}

// niceTop is a round number that is not below v.
func niceTop(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5, 10} {
		if n*unit >= v {
			return n * unit
		}
	}
	return 10 * unit
}

func (p OpsPage) charts() []chartView {
	l, s := p.Locale, p.Stats
	series := func(of func(OpsPoint) float64) (list []float64) {
		for _, v := range s.Points {
			list = append(list, of(v))
		}
		return list
	}
	most := func(lists ...[]float64) (top float64) {
		for _, list := range lists {
			for _, v := range list {
				if !math.IsNaN(v) {
					top = max(top, v)
				}
			}
		}
		return top
	}
	span := func(seconds float64) string { return l.span(time.Duration(seconds * float64(time.Second))) }
	rate := series(func(v OpsPoint) float64 {
		if v.HitRate == nil {
			return math.NaN()
		}
		return *v.HitRate
	})
	known := func(d time.Duration) float64 {
		if d == 0 {
			return math.NaN()
		}
		return d.Seconds()
	}
	p50, p95 := series(func(v OpsPoint) float64 { return known(v.P50) }), series(func(v OpsPoint) float64 { return known(v.P95) })
	waiting, outbox := series(func(v OpsPoint) float64 { return float64(v.Waiting) }), series(func(v OpsPoint) float64 { return float64(v.Outbox) })
	slow, deep := niceTop(most(p50, p95)), niceTop(most(waiting, outbox))
	hour, now := l.T("chart.hourAgo"), l.T("chart.now")
	list := []chartView{
		{id: "chart-rate", name: l.T("chart.rate"), value: l.share(s.HitRate), top: "100 %", lines: []line{lineOf(rate, 1, "good")}, from: hour, to: now,
			says: l.T("chart.rate.says", "value", l.share(s.HitRate))},
		{id: "chart-latency", name: l.T("chart.latency"), value: l.age(s.P50) + " · " + l.age(s.P95), top: span(slow),
			lines: []line{lineOf(p95, slow, "soft"), lineOf(p50, slow, "good")}, from: hour, to: now,
			says: l.T("chart.latency.says", "p50", l.age(s.P50), "p95", l.age(s.P95))},
		{id: "chart-queue", name: l.T("chart.queue"), value: l.Number(int64(s.Waiting)) + " · " + l.Number(int64(s.Outbox)), top: l.Number(int64(deep)),
			lines: []line{lineOf(outbox, deep, "soft"), lineOf(waiting, deep, "good")}, from: hour, to: now,
			says: l.T("chart.queue.says", "waiting", l.Number(int64(s.Waiting)), "outbox", l.Number(int64(s.Outbox)))},
	}
	if len(s.Days) > 0 {
		top := niceTop(float64(slices.MaxFunc(s.Days, func(a, b OpsDay) int { return int(min(max(a.Micros-b.Micros, -1), 1)) }).Micros))
		today := l.cents(p.Currency, s.Days[len(s.Days)-1].Micros)
		c := chartView{id: "chart-cost", name: l.T("chart.cost"), value: today, top: l.cents(p.Currency, int64(top)),
			from: s.Days[0].Day.Format("01-02"), to: l.T("chart.today"), says: l.T("chart.cost.says", "value", today)}
		width := 100 / float64(len(s.Days))
		for i, d := range s.Days {
			height := 94 * float64(max(d.Micros, 0)) / top
			if d.Micros > 0 {
				height = max(height, 2)
			}
			c.bars = append(c.bars, bar{x: float64(i)*width + width*0.15, width: width * 0.7, tone: "good", title: d.Day.Format(time.DateOnly) + ": " + l.Money(p.Currency, d.Micros)})
			c.heights = append(c.heights, height)
		}
		list = append(list, c)
	}
	return list
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

// checked says what the last check found.
func (p OpsPage) checked() string {
	l, c := p.Locale, p.Stats.Check
	if c.At.IsZero() {
		return l.T("check.never")
	}
	text := l.T("check.ok", "n", strconv.Itoa(c.Checks))
	if c.Violations > 0 {
		text = l.N("check.bad", int64(c.Violations), "ids", strings.Join(c.Violated, ", "))
	}
	return text + " " + l.T("check.when", "ago", l.age(max(p.Stats.Now.Sub(c.At), time.Second)), "took", l.seconds(c.Took), "share", l.share(&c.Share))
}

// moment is a date with its time, or a dash.
func moment(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04") + " UTC"
}
