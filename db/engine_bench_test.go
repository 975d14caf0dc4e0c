package db_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
)

// instant is a model without latency.
type instant struct{}

func (instant) Stream(_ context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	a := db.BenchAnswer
	emit(llm.Piece{Text: a.Content})
	return llm.Answer{Content: a.Content, Finish: a.Finish, UpstreamID: a.UpstreamID, Usage: a.Usage}, nil
}

// silent is a model that never answers: with it only acceptance is measured.
type silent struct{}

func (silent) Stream(ctx context.Context, _ llm.Call, _ func(llm.Piece)) (llm.Answer, error) {
	<-ctx.Done()
	return llm.Answer{}, ctx.Err()
}

// BenchmarkEngine measures the real engine (dedupe look-up, acceptance, claim,
// call, answer, wake-up of whoever waits) against the best plain database/sql
// loop, which does the durable work alone: claims are acceptances of a new id,
// lifecycles go on to the stored answer. Both run in turn in one process.
func BenchmarkEngine(b *testing.B) {
	const rounds, slice = 7, time.Second
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // for both: as semel serve does
	plainAccept, plainLive := db.BenchPlain(b)
	for _, w := range []struct {
		name   string
		client llm.Client
		slots  int
		plain  func(db.Submission) error
		wait   bool
	}{
		{"claim", silent{}, 1, plainAccept, false},
		{"lifecycle", instant{}, 2000, plainLive, true},
	} {
		for _, callers := range db.BenchCallers {
			b.Run(fmt.Sprintf("%s/%d", w.name, callers), func(b *testing.B) {
				for b.Loop() {
					do := benchEngine(b, w.client, w.slots, w.wait)
					e, p, ratio := db.BenchEngine(b, callers, do, w.plain, rounds, slice)
					b.ReportMetric(e.PerSecond, "engine/s")
					b.ReportMetric(p.PerSecond, "plain/s")
					b.ReportMetric(ratio, "ratio")
					b.ReportMetric(e.CPUMicros, "engine-cpu-µs")
					b.ReportMetric(p.CPUMicros, "plain-cpu-µs")
					b.ReportMetric(e.Spread, "p99/p50")
					b.ReportMetric(0, "ns/op")
				}
			})
		}
	}
}

// benchEngine starts an engine on a file of its own and returns one piece of its
// work.
func benchEngine(b *testing.B, client llm.Client, slots int, wait bool) func(db.Submission) error {
	b.Helper()
	// Not dbtest's: that does not wait for the disk.
	d, err := db.Open(db.Options{Path: filepath.Join(b.TempDir(), "engine.db"), Schema: dbtest.Schema(b)})
	if err != nil {
		b.Fatal(err)
	}
	e, err := engine.New(engine.Options{DB: d, Queue: 1 << 30, Models: []engine.Model{{
		Name: "demo", Client: client, Price: dbtest.DemoPrice, Concurrency: slots, FirstTokenTimeout: time.Hour,
	}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	if err := e.Start(ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		e.Drain(ended)
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	return func(s db.Submission) error {
		res, err := e.Submit(ctx, engine.Ask{Key: s.Key, Kind: chat.KindMessage, Content: s.Content, Source: chat.SourceAPI})
		if err == nil && wait {
			err = e.Wait(ctx, res.Request.ID)
		}
		return err
	}
}
