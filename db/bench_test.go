package db

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"semel/chat"
)

// How to run: `go test ./db -run '^$' -bench .` Temporary files must be on the disk
// that is to be measured: set TMPDIR where /tmp is in memory.

const turnsPerConversation = 8

var answer4K = strings.Repeat("All is well here. ", 4096/18+1)[:4096]

func testSchema(tb testing.TB) string {
	tb.Helper()
	b, err := os.ReadFile("../schema.sql")
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func openForTest(tb testing.TB, path string) *DB {
	tb.Helper()
	d, err := Open(Options{Path: path, Schema: testSchema(tb), Fatal: func(err error) { tb.Errorf("fatal: %v", err) }})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

var benchPrice = chat.Price{Input: 150_000, Cached: 75_000, Output: 600_000}

func benchSubmission(session string) Submission {
	const content = "What is the best way to see that all is well?"
	return Submission{
		Key:  chat.Key{UserID: LocalUser, SessionID: session, RequestID: chat.NewID()},
		Kind: chat.KindMessage, Fingerprint: chat.Fields{Kind: chat.KindMessage, Content: content}.Fingerprint(),
		Content: content, Title: content, Default: "demo", Source: chat.SourceAPI,
		Price: func(string) (chat.Price, bool) { return benchPrice, true },
	}
}

var benchAnswer = Answer{
	Content: answer4K, ToolCalls: "[]", Finish: chat.FinishStop, UpstreamID: "up", Outcome: chat.OutcomeOK,
	Usage: chat.Usage{InputTokens: 20, OutputTokens: 1024}, Actor: "worker:life", Reason: "answered",
}

// A store is what both contenders can do.
type store interface {
	accepts(Submission) (chat.Request, error)
	lives(Submission) error
}

type queueStore struct{ d *DB }

func (q queueStore) accepts(s Submission) (chat.Request, error) {
	return q.d.Accept(context.Background(), s)
}

func (q queueStore) lives(s Submission) error {
	ctx := context.Background()
	r, err := q.d.Accept(ctx, s)
	if err != nil {
		return err
	}
	if r, _, err = q.d.Claim(ctx, Claim{Request: r, Owner: "life", Lease: time.Minute}); err != nil {
		return err
	}
	_, err = q.d.Finish(ctx, r, benchAnswer)
	return err
}

type plainStore struct{ p *plain }

func (p plainStore) accepts(s Submission) (chat.Request, error) { return p.p.accept(s) }

func (p plainStore) lives(s Submission) error {
	r, err := p.p.accept(s)
	if err != nil {
		return err
	}
	if r, err = p.p.claim(Claim{Request: r, Owner: "life", Lease: time.Minute}); err != nil {
		return err
	}
	return p.p.finish(r, benchAnswer)
}

var work = []struct {
	name string
	goal float64 // ratio at 128 callers
	do   func(store, Submission) error
}{
	{"accept", 6, func(s store, sub Submission) error { _, err := s.accepts(sub); return err }},
	{"lifecycle", 5, func(s store, sub Submission) error { return s.lives(sub) }},
}

// contenders opens both, each with a file of its own.
func contenders(tb testing.TB) (queue, loop store) {
	tb.Helper()
	dir := tb.TempDir()
	d := openForTest(tb, filepath.Join(dir, "queue.db"))
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	path := filepath.Join(dir, "plain.db")
	if err := openForTest(tb, path).Close(); err != nil {
		tb.Fatal(err)
	}
	return queueStore{d}, plainStore{openPlain(tb, path)}
}

// drive has that many callers do work until stop says so, and returns how long
// each piece took.
func drive(tb testing.TB, s store, callers int, do func(store, Submission) error, more func() bool) []time.Duration {
	tb.Helper()
	took := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			session := ""
			for n := 0; more(); n++ {
				if n%turnsPerConversation == 0 {
					session = chat.NewID()
				}
				started := time.Now()
				if err := do(s, benchSubmission(session)); err != nil {
					tb.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(started))
			}
		})
	}
	wg.Wait()
	all := slices.Concat(took...)
	slices.Sort(all)
	return all
}

func during(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().Before(end) }
}

func times(n int) func() bool {
	var done atomic.Int64
	return func() bool { return done.Add(1) <= int64(n) }
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

var callerCounts = []int{1, 16, 128, 1000}

// BenchmarkQueue and BenchmarkPlain give the figures of each contender alone, to
// profile. To compare, run BenchmarkRatio.
func BenchmarkQueue(b *testing.B) { benchmarkStore(b, func(q, _ store) store { return q }) }

func BenchmarkPlain(b *testing.B) { benchmarkStore(b, func(_, p store) store { return p }) }

func benchmarkStore(b *testing.B, pick func(queue, loop store) store) {
	for _, w := range work {
		for _, callers := range callerCounts {
			b.Run(fmt.Sprintf("%s/%d", w.name, callers), func(b *testing.B) {
				s := pick(contenders(b))
				b.ResetTimer()
				all := drive(b, s, callers, w.do, times(b.N))
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
				b.ReportMetric(float64(quantile(all, 0.99))/float64(max(quantile(all, 0.5), 1)), "p99/p50")
			})
		}
	}
}

// A figure is what one contender did in one round.
type figure struct{ perSecond, cpuMicros, spread float64 }

func measure(tb testing.TB, s store, callers int, do func(store, Submission) error, d time.Duration) figure {
	tb.Helper()
	started, cpu := time.Now(), cpuTime()
	all := drive(tb, s, callers, do, during(d))
	n := float64(max(len(all), 1))
	return figure{
		perSecond: n / time.Since(started).Seconds(),
		cpuMicros: float64((cpuTime() - cpu).Microseconds()) / n,
		spread:    float64(quantile(all, 0.99)) / float64(max(quantile(all, 0.5), 1)),
	}
}

// BenchmarkRatio runs both in turn, several rounds in one run, and reports the
// median of each and of their ratios: the machine's mood hits both alike.
func BenchmarkRatio(b *testing.B) {
	const rounds, slice = 7, time.Second
	for _, w := range work {
		for _, callers := range callerCounts {
			b.Run(fmt.Sprintf("%s/%d", w.name, callers), func(b *testing.B) {
				for b.Loop() {
					queue, loop := contenders(b)
					var q, p, ratio, cpuQ, cpuP, spread []float64
					for range rounds {
						a := measure(b, queue, callers, w.do, slice)
						z := measure(b, loop, callers, w.do, slice)
						q, p, ratio = append(q, a.perSecond), append(p, z.perSecond), append(ratio, a.perSecond/z.perSecond)
						cpuQ, cpuP, spread = append(cpuQ, a.cpuMicros), append(cpuP, z.cpuMicros), append(spread, a.spread)
					}
					b.ReportMetric(median(q), "queue/s")
					b.ReportMetric(median(p), "plain/s")
					b.ReportMetric(median(ratio), "ratio")
					b.ReportMetric(median(cpuQ), "queue-cpu-µs")
					b.ReportMetric(median(cpuP), "plain-cpu-µs")
					b.ReportMetric(median(spread), "p99/p50")
					b.ReportMetric(0, "ns/op")
				}
			})
		}
	}
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// BenchmarkAcceptInALargeFile compares what a lone and 128 callers pay for an
// acceptance with 10,000 and with 1,000,000 requests in the file.
func BenchmarkAcceptInALargeFile(b *testing.B) {
	const rounds, slice = 5, 600 * time.Millisecond
	dir := b.TempDir()
	open := func(n int) store {
		path := filepath.Join(dir, fmt.Sprintf("%d.db", n))
		d := openForTest(b, path)
		fill(b, d, n)
		// Closing moves the WAL of the filling, large as the file, into the file.
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
		d = openForTest(b, path)
		b.Cleanup(func() {
			if err := d.Close(); err != nil {
				b.Error(err)
			}
		})
		return queueStore{d}
	}
	small, large := open(10_000), open(1_000_000)
	for _, callers := range []int{1, 128} {
		b.Run(fmt.Sprintf("%d", callers), func(b *testing.B) {
			for b.Loop() {
				var cost, cpu []float64
				for range rounds {
					f, g := measure(b, small, callers, work[0].do, slice), measure(b, large, callers, work[0].do, slice)
					cost, cpu = append(cost, f.perSecond/g.perSecond), append(cpu, g.cpuMicros/max(f.cpuMicros, 1))
				}
				b.ReportMetric(median(cost), "cost-ratio")
				b.ReportMetric(median(cpu), "cpu-ratio")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// fill puts n committed requests into the file, quickly and without the write
// queue, in conversations of turnsPerConversation.
func fill(tb testing.TB, d *DB, n int) {
	tb.Helper()
	for from := 0; from < n; from += 50_000 {
		count := min(50_000, n-from)
		err := d.write(context.Background(), func(tx *Tx) error {
			conv := int64(0)
			for i := range count {
				if i%turnsPerConversation == 0 {
					var err error
					if conv, err = tx.insert(sqlInsertConversation, chat.NewID(), LocalUser, "filled", "", "{}", 1, tx.now, tx.now); err != nil {
						return err
					}
				}
				tx.n += 3 // each has transactions of its own
				d.tx = tx.n
				if err := tx.fillOne(conv, int64(i%turnsPerConversation)*2+1); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	if n <= 10_000 {
		checkHealthy(tb, d)
	}
}

func (tx *Tx) fillOne(conv, seq int64) error {
	s := benchSubmission("")
	id, err := tx.insert(`INSERT INTO requests (request_id, conversation_id, user_id, kind, seq, fingerprint, state, steps, attempt,
		model, params, system_prompt, price_input, price_cached, price_output, placed, parent_seq, context, accepted_tx,
		created_at, updated_at, acknowledged_at, completed_at)
		VALUES (?1, ?2, ?3, 'message', ?4, ?5, 'committed', 4, 1, 'demo', '{}', '', 0, 0, 0, 1, ?4 - 1, ?6, ?7, ?8, ?8, ?8, ?8)`,
		s.Key.RequestID, conv, s.Key.UserID, seq, []byte(s.Fingerprint), fmt.Sprint(seq), tx.n-2, tx.now)
	if err != nil {
		return err
	}
	for _, q := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO messages VALUES (?, ?, ?, 'user', ?, 10, ?, ?)`, []any{conv, seq, id, s.Content, tx.now, tx.n - 2}},
		{`INSERT INTO messages VALUES (?, ?, ?, 'assistant', NULL, 10, ?, ?)`, []any{conv, seq + 1, id, tx.now, tx.n}},
		{`INSERT INTO arrivals VALUES (?, 1, ?, 'api', 'first', 200)`, []any{id, tx.now}},
		{`INSERT INTO transitions VALUES (?1, 1, 'new', 'pending', 0, 'user:1', 'accepted', ?2, ?3 - 2),
			(?1, 2, 'pending', 'generating', 1, 'worker:fill', 'claimed', ?2, ?3 - 1),
			(?1, 3, 'generating', 'acknowledged', 1, 'worker:fill', 'answered', ?2, ?3),
			(?1, 4, 'acknowledged', 'committed', 1, 'worker:fill', 'no effects', ?2, ?3)`, []any{id, tx.now, tx.n}},
		{`INSERT INTO attempts VALUES (?1, 1, 'accepted', 'fill', 'demo', NULL, ?2, ?2, NULL, ?2, 'ok', NULL, 1, 0, 1, 0, ?3 - 1)`, []any{id, tx.now, tx.n}},
		{sqlInsertSnapshot, []any{id, 1, "demo", "", "filled", "", "[]", "stop", 1, 0, 1, 0, SnapshotDigest("filled", "", "[]"), 0, tx.now, tx.n, nil}},
		{sqlInsertLedger, []any{id, s.Key.UserID, "charge", 1, "demo", 1, 0, 1, 0, 0, tx.now, tx.n}},
		{sqlInsertProcessed, []any{s.Key.RequestID, conv, s.Key.UserID, id, []byte(s.Fingerprint), tx.now, tx.n}},
		{`UPDATE conversations SET next_seq = ?, head_seq = ?, ended_tx = ? WHERE id = ?`, []any{seq + 2, seq + 1, tx.n, conv}},
	} {
		if _, err := tx.exec(q.sql, q.args...); err != nil {
			return err
		}
	}
	tx.sum.add(tally{attempts: 1, answers: 1, charges: 1})
	return nil
}

func checkHealthy(tb testing.TB, d *DB) {
	tb.Helper()
	checks, err := d.Verify(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	for _, c := range checks {
		if c.Count > 0 {
			tb.Errorf("invariant %s (%s) is violated %d times: %v", c.ID, c.Name, c.Count, c.Samples)
		}
	}
}
