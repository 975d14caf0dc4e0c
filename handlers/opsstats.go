package handlers

import (
	"context"
	"net/http"
	"sync"
	"time"

	"semel/db"
	"semel/ops"
	"semel/views"
)

// opsStats are the figures of the page of operations.
func (s *server) opsStats(ctx context.Context, now time.Time) (v views.OpsStats, err error) {
	st, err := s.Ops.Stats(ctx, ops.Usual)
	if err != nil {
		return v, err
	}
	coarse, err := s.Ops.Stats(ctx, ops.Range{Minutes: 60, Step: 5})
	if err != nil {
		return v, err
	}
	days, err := s.costs.lately(ctx, s.DB, now)
	if err != nil {
		return v, err
	}
	v = views.OpsStats{
		Now: now, ArrivalsPerMinute: st.ArrivalsPerMinute, HitRate: st.HitRate,
		Intents: st.Total.Intents, Joined: st.Total.Joined, Replayed: st.Total.Replayed, Conflicts: st.Total.Conflicts,
		Calls: st.Total.ModelCalls, Charges: st.Total.Charges, Saved: st.Total.Saved.Micros,
		Waiting: st.Waiting, Running: st.Running, Oldest: ofSeconds(st.OldestSeconds),
		P50: ofMillis(st.Latency.TotalP50), P95: ofMillis(st.Latency.TotalP95),
		Outbox: st.Outbox.Pending, Awaiting: st.Outbox.Awaiting, Troubled: st.Outbox.Troubled, Dead: st.Outbox.DeadLetters, Average: ofMillis(st.Outbox.AverageMS),
		Bytes: st.Database.Bytes, Free: st.Database.Free, WAL: st.Database.WAL, DiskFree: st.Disk.Free, DiskTrouble: st.Disk.Trouble != "",
		ModelCalls: lampView(st.Lamps.Calls), Charged: lampView(st.Lamps.Charges),
		Points: points(st.Series), Rows: points(coarse.Series), Days: days,
		Check: views.OpsCheck{
			Running: st.Check.Running, Done: st.Check.Done, Of: len(db.Invariants), At: st.Check.At.Time, Took: ofMillis(st.Check.TookMS),
			Checks: st.Check.Checks, Violations: st.Check.Violations, Violated: st.Check.Violated, Share: st.Check.Share, Error: st.Check.Error,
		},
		Pruned: st.Retention.Pruned, PrunedUntil: st.Retention.PrunedUntil.Time, Horizon: st.Retention.PurgeHorizon.Time,
		Version: st.Version, Started: st.Started.Time, Epoch: st.Epoch,
	}
	if s.Keeper != nil {
		v.BacksUp, v.BackingUp = true, s.Keeper.Making()
	}
	v.Stuck = v.Oldest > db.StuckAfter
	if st.Backup != nil {
		v.Backup = st.Backup.At.Time
	}
	for _, a := range st.Alerts {
		if a.Firing && a.Value != nil {
			v.Alerts = append(v.Alerts, views.OpsAlert{On: a.On, Value: *a.Value, Threshold: a.Threshold, Since: a.Since.Time})
		}
	}
	return v, nil
}

func ofSeconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

func ofMillis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func lampView(l ops.Lamp) views.OpsLamp {
	return views.OpsLamp{State: l.State, Left: l.Left, Right: l.Right, InFlight: l.InFlight}
}

func points(s ops.Series) (list []views.OpsPoint) {
	for _, v := range s.Points {
		list = append(list, views.OpsPoint{
			At: v.At.Time, Arrivals: v.Intents + v.Joined + v.Replayed + v.Restarted + v.Conflicts, HitRate: v.HitRate,
			P50: ofMillis(v.TotalP50), P95: ofMillis(v.TotalP95), Waiting: v.Waiting, Outbox: v.Outbox,
		})
	}
	return list
}

// costDays is how many days of costs are shown.
const costDays = 14

// costs are what the last days cost. Rows of the ledger are only ever added, so what was
// summed up once is summed up for good: after the first time only what came since is read.
type costs struct {
	mu   sync.Mutex
	last int64           // under mu; the ledger is summed up so far
	days map[int64]int64 // under mu; micros by the first second of a day, UTC
}

func (c *costs) lately(ctx context.Context, d *db.DB, now time.Time) (list []views.OpsDay, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	today := now.UTC().Truncate(24 * time.Hour)
	first := today.AddDate(0, 0, 1-costDays)
	if c.days == nil {
		if c.last, err = d.LedgerBefore(ctx, first); err != nil {
			return nil, err
		}
		c.days = map[int64]int64{}
	}
	more, last, err := d.CostsAfter(ctx, c.last)
	if err != nil {
		return nil, err
	}
	c.last = last
	for _, v := range more {
		c.days[v.Day.Unix()] += v.Micros
	}
	for day := range c.days {
		if day < first.Unix() {
			delete(c.days, day)
		}
	}
	for day := first; !day.After(today); day = day.AddDate(0, 0, 1) {
		list = append(list, views.OpsDay{Day: day, Micros: c.days[day.Unix()]})
	}
	return list, nil
}

// postVerifyPage begins a check and leads back to the page that shows how far it is.
func (s *server) postVerifyPage(w http.ResponseWriter, r *http.Request) error {
	s.Ops.Begin() // one that runs already will do
	http.Redirect(w, r, "/ops#check", http.StatusSeeOther)
	return nil
}
