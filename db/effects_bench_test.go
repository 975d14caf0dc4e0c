package db_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
	"semel/outbox"
)

// benchSink takes what is delivered on this machine, and tells whom it may concern.
type benchSink struct {
	url     string
	taken   atomic.Int64
	waiting sync.Map // request id → chan struct{}
}

func newBenchSink(b *testing.B) *benchSink {
	s := &benchSink{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.taken.Add(1)
		var p struct{ Data struct{ RequestID string } }
		if json.Unmarshal(body, &p) == nil {
			if c, ok := s.waiting.LoadAndDelete(p.Data.RequestID); ok {
				close(c.(chan struct{}))
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	b.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *benchSink) destination(b *testing.B) engine.Destination {
	t := outbox.Target{
		Kind: outbox.KindWebhook, URL: s.url, Secrets: []string{"whsec_b25seSBmb3IgdGhlIHRlc3RzIG9mIGVmZmVjdHM="},
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
	sink, err := outbox.New(t)
	if err != nil {
		b.Fatal(err)
	}
	return engine.Destination{Sink: sink, Target: t}
}

// startEffects starts an engine over d whose action note goes to s.
func startEffects(b *testing.B, d *db.DB, client llm.Client, s *benchSink) (e *engine.Engine, stop func()) {
	e, err := engine.New(engine.Options{
		DB: d, Queue: 1 << 30, Actions: dbtest.Declared, Destinations: map[string]engine.Destination{"note": s.destination(b)},
		Models: []engine.Model{{Name: "demo", Client: client, Price: dbtest.DemoPrice, Concurrency: 2000, FirstTokenTimeout: time.Hour}},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Start(bg); err != nil {
		b.Fatal(err)
	}
	return e, func() {
		ended, cancel := context.WithCancel(bg)
		cancel()
		e.Drain(ended)
	}
}

func openSynced(b *testing.B, name string) *db.DB {
	// Not dbtest's: that does not wait for the disk.
	d, err := db.Open(db.Options{Path: filepath.Join(b.TempDir(), name), Schema: dbtest.Schema(b)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	return d
}

// BenchmarkDeliveries measures the relay, which writes down each delivery before and
// after it, against a loop of as many http.Client.Post at once that remembers nothing: to
// the same sink, in turn. The loop opens a connection for each, as webhooks do, or keeps
// them.
func BenchmarkDeliveries(b *testing.B) {
	const rounds, each, atOnce = 7, 400, 8 // the relay delivers as many at once to one destination
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for b.Loop() {
		d, s := openSynced(b, "deliveries.db"), newBenchSink(b)
		kept := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}}
		anew := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		payload := []byte(`{"type":"action.note","data":{"arguments":{"n":0},"text":"` + strings.Repeat("x", 200) + `"}}`)
		var relay, loop, keeping, ratios, keptRatios []float64
		for range rounds {
			for n := range each {
				dbtest.Effects(b, d, fmt.Sprint("session-", n%20), "note")
			}
			before := s.taken.Load()
			began := time.Now()
			_, stop := startEffects(b, d, instant{}, s)
			for open := int64(1); open > 0; {
				time.Sleep(5 * time.Millisecond)
				if s.taken.Load() < before+each {
					continue // not to be in the way
				}
				var err error
				if open, err = db.Int(bg, d, `SELECT count(*) FROM outbox WHERE state = 'pending' OR state = 'delivering'`); err != nil {
					b.Fatal(err)
				}
			}
			ours := each / time.Since(began).Seconds()
			stop()
			if n := s.taken.Load() - before; n != each {
				b.Fatalf("%d deliveries of %d effects", n, each)
			}
			post := func(c *http.Client) float64 {
				began := time.Now()
				var all sync.WaitGroup
				for range atOnce {
					all.Go(func() {
						for range each / atOnce {
							res, err := c.Post(s.url, "application/json", bytes.NewReader(payload))
							if err != nil {
								b.Error(err)
								return
							}
							res.Body.Close()
						}
					})
				}
				all.Wait()
				return each / time.Since(began).Seconds()
			}
			bare, bareKept := post(anew), post(kept)
			relay, loop, keeping = append(relay, ours), append(loop, bare), append(keeping, bareKept)
			ratios, keptRatios = append(ratios, ours/bare), append(keptRatios, ours/bareKept)
		}
		b.ReportMetric(middle(relay), "relay/s")
		b.ReportMetric(middle(loop), "posts/s")
		b.ReportMetric(middle(keeping), "kept-posts/s")
		b.ReportMetric(middle(ratios), "ratio")
		b.ReportMetric(middle(keptRatios), "kept-ratio")
		b.ReportMetric(0, "ns/op")
	}
}

func middle(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// asking is a model without latency that asks for an action each time.
type asking struct{ instant }

func (a asking) Stream(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	answer, err := a.instant.Stream(ctx, c, emit)
	answer.Finish, answer.ToolCalls = chat.FinishTool, []llm.ToolCall{{ID: "call-0", Name: "note", Arguments: `{"n": 0}`}}
	return answer, err
}

// BenchmarkEffectLifecycle measures what an automatic action adds: a lifecycle up to the
// delivery of what its answer asked for, against one whose answer asks for nothing.
func BenchmarkEffectLifecycle(b *testing.B) {
	const rounds, slice = 7, time.Second
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for _, callers := range []int{1, 8} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			for b.Loop() {
				s := newBenchSink(b)
				start := func(name string, client llm.Client, waits bool) func(db.Submission) error {
					e, stop := startEffects(b, openSynced(b, name), client, s)
					b.Cleanup(stop)
					return func(sub db.Submission) error {
						delivered := make(chan struct{})
						if waits {
							s.waiting.Store(sub.Key.RequestID, delivered)
						}
						res, err := e.Submit(bg, engine.Ask{Key: sub.Key, Kind: chat.KindMessage, Content: sub.Content, Source: chat.SourceAPI})
						if err == nil {
							err = e.Wait(bg, res.Request.ID)
						}
						if err == nil && waits {
							<-delivered
						}
						return err
					}
				}
				with, without, ratio := db.BenchEngine(b, callers, start("with.db", asking{}, true), start("without.db", instant{}, false), rounds, slice)
				b.ReportMetric(with.PerSecond, "with/s")
				b.ReportMetric(without.PerSecond, "without/s")
				b.ReportMetric(ratio, "ratio")
				b.ReportMetric(with.CPUMicros, "with-cpu-µs")
				b.ReportMetric(without.CPUMicros, "without-cpu-µs")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
