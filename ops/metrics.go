package ops

import (
	"context"
	"errors"
	"io"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// MetricsType is the content type of what WriteMetrics writes, in UTF-8.
const MetricsType = "text/plain; version=" + expfmt.TextVersion

// WriteMetrics writes everything that is measured in the text format of Prometheus.
// docs/operations.md says what each is.
func (m *Monitor) WriteMetrics(ctx context.Context, w io.Writer) error {
	reg := prometheus.NewPedanticRegistry()
	err := errors.Join(
		reg.Register(collectors.NewGoCollector()),
		reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		reg.Register(&collector{m, ctx}),
	)
	if err != nil {
		return err
	}
	families, err := reg.Gather()
	if err != nil {
		return err
	}
	enc := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// A collector reads a monitor for one scrape. What is counted is counted by the meter,
// so that the work pays for no library.
type collector struct {
	m   *Monitor
	ctx context.Context //nolint:containedctx // of the one scrape it is made for
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("semel_"+name, help, labels, nil)
}

var (
	descArrivals   = desc("arrivals_total", "Arrivals of accepted request ids, by what was made of them.", "decision")
	descRefused    = desc("refused_total", "Answers that say what was not done, by problem code.", "code")
	descCalls      = desc("model_calls_total", "Prompts sent to models.")
	descAttempts   = desc("attempts_total", "Attempts that ended, by what is known of the call.", "outcome")
	descDeliveries = desc("deliveries_total", "Deliveries that ended, by what is known of them.", "outcome")
	descCharges    = desc("charges_total", "Charges written.")
	descCharged    = desc("charged_total", "What was charged, in units of the currency.", "currency")
	descSaved      = desc("saved_total", "What repeats would have cost that were answered without a call, since the file was made, in units of the currency.", "currency")
	descFirst      = desc("first_token_seconds", "From the dispatch to the first token.")
	descAnswer     = desc("answer_seconds", "From the acceptance to the final answer.")
	descDelivery   = desc("outbox_delivery_seconds", "From the writing of an outbox row to its accepted delivery.")

	descReadable  = desc("file_readable", "Whether the database could be read for this scrape: 1, or 0 and what it says is missing.")
	descWaiting   = desc("requests_waiting", "Questions without their answer that wait for their turn.")
	descRunning   = desc("requests_running", "Questions that a model is answering.")
	descOldest    = desc("oldest_unfinished_seconds", "Age of the oldest question without its answer; 0 without one.")
	descOutbox    = desc("outbox_rows", "Rows of the outbox that are not settled, by what they wait for.", "waits")
	descDead      = desc("dead_letters", "Rows of the outbox that were given up.")
	descOverdue   = desc("outbox_overdue_seconds", "How long the longest waiting delivery is due; 0 without one.")
	descBytes     = desc("database_bytes", "Size of what the database file holds.")
	descFree      = desc("database_free_bytes", "Room in the database file that is free to be used again.")
	descWAL       = desc("wal_bytes", "Size of the write-ahead log.")
	descDiskFree  = desc("disk_free_bytes", "Room left on the disk of the database.")
	descDiskTotal = desc("disk_total_bytes", "Size of the disk of the database.")
	descAlert     = desc("alert_active", "Whether an alert fires.", "alert")
	descLamp      = desc("lamp_ok", "Whether two counts are equal that must be: calls and their rows, charges and answers.", "lamp")
	descViolated  = desc("check_violations", "Invariants that did not hold at the last check of this process.")
	descChecked   = desc("check_timestamp_seconds", "When the last check of this process began.")
	descCheckTook = desc("check_duration_seconds", "How long it took.")
	descVerified  = desc("verified_ratio", "Share of all requests that it looked at.")
	descBackup    = desc("backup_timestamp_seconds", "When the newest backup was made.")
	descBuild     = desc("build_info", "Always 1; the labels say what runs.", "version", "goversion")
)

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descArrivals, descRefused, descCalls, descAttempts, descDeliveries, descCharges, descCharged, descSaved, descFirst, descAnswer, descDelivery,
		descReadable, descWaiting, descRunning, descOldest, descOutbox, descDead, descOverdue, descBytes, descFree, descWAL, descDiskFree, descDiskTotal,
		descAlert, descLamp, descViolated, descChecked, descCheckTook, descVerified, descBackup, descBuild,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	m := c.m
	t := &m.o.Meter.all
	for i, d := range decisions {
		count(descArrivals, float64(t.arrivals[i].Load()), string(d))
	}
	for code, n := range m.o.Meter.refusals() {
		count(descRefused, float64(n), code)
	}
	for i, o := range outcomes {
		count(descAttempts, float64(t.attempts[i].Load()), string(o))
		if i < deliveryOutcomes {
			count(descDeliveries, float64(t.deliveries[i].Load()), string(o))
		}
	}
	count(descCalls, float64(m.calls()))
	count(descCharges, float64(t.charges.Load()))
	count(descCharged, float64(t.micros.Load())/1e6, m.o.Currency)
	histo(ch, descFirst, &t.firstToken)
	histo(ch, descAnswer, &t.answer)
	histo(ch, descDelivery, &t.delivery)
	gauge(descBuild, 1, m.o.Version, runtime.Version())

	s, err := m.Stats(c.ctx, Range{Minutes: 1, Step: 1})
	if err != nil {
		if c.ctx.Err() == nil {
			m.o.Log.Error("metrics", "error", err)
		}
		gauge(descReadable, 0)
		return
	}
	gauge(descReadable, 1)
	count(descSaved, float64(s.Total.Saved.Micros)/1e6, m.o.Currency)
	gauge(descWaiting, float64(s.Waiting-s.Running))
	gauge(descRunning, float64(s.Running))
	gauge(descOldest, s.OldestSeconds)
	gauge(descOutbox, float64(s.Outbox.Pending), "delivery")
	gauge(descOutbox, float64(s.Outbox.Awaiting), "callback")
	gauge(descOutbox, float64(s.Outbox.Troubled), "person")
	gauge(descDead, float64(s.Outbox.DeadLetters))
	gauge(descOverdue, s.Outbox.OverdueSecs)
	gauge(descBytes, float64(s.Database.Bytes))
	gauge(descFree, float64(s.Database.Free))
	gauge(descWAL, float64(s.Database.WAL))
	if s.Disk.Total > 0 {
		gauge(descDiskFree, float64(s.Disk.Free))
		gauge(descDiskTotal, float64(s.Disk.Total))
	}
	for _, a := range s.Alerts {
		gauge(descAlert, one(a.Firing), a.On)
	}
	gauge(descLamp, one(s.Lamps.Calls.State != LampBroken), "calls")
	gauge(descLamp, one(s.Lamps.Charges.State != LampBroken), "charges")
	if at := s.Check.At; !at.IsZero() {
		gauge(descViolated, float64(s.Check.Violations))
		gauge(descChecked, unix(at.Time))
		gauge(descCheckTook, float64(s.Check.TookMS)/1000)
		gauge(descVerified, s.Check.Share)
	}
	if s.Backup != nil {
		gauge(descBackup, unix(s.Backup.At.Time))
	}
}

// histo is a histogram as Prometheus has it: each bucket counts what is not longer.
func histo(ch chan<- prometheus.Metric, d *prometheus.Desc, h *histogram) {
	var s spread
	s.add(h)
	buckets := map[float64]uint64{}
	var below uint64
	for i, b := range bounds {
		below += uint64(s.n[i])
		buckets[b] = below
	}
	ch <- prometheus.MustNewConstHistogram(d, uint64(s.count), s.sum.Seconds(), buckets)
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
