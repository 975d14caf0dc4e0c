package db

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"semel/chat"
)

// BenchmarkOperationsInALargeFile compares what the pages of operations read from a file
// with 1,000,000 requests with what they read from one with 10,000.
func BenchmarkOperationsInALargeFile(b *testing.B) {
	const rounds = 15
	dir, ctx := b.TempDir(), context.Background()
	open := func(n int) (*DB, chat.Key) {
		path := filepath.Join(dir, fmt.Sprintf("%d.db", n))
		d := openForTest(b, path)
		fill(b, d, n)
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
		d = openForTest(b, path)
		b.Cleanup(func() {
			if err := d.Close(); err != nil {
				b.Error(err)
			}
		})
		list, _, err := d.Requests(ctx, RequestFilter{Limit: 1})
		if err != nil {
			b.Fatal(err)
		}
		return d, list[0].Request.Key
	}
	small, smallKey := open(10_000)
	large, largeKey := open(1_000_000)
	newest, err := large.LedgerBefore(ctx, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	for _, look := range []struct {
		name string
		do   func(d *DB, k chat.Key) error
	}{
		{"newest", func(d *DB, _ chat.Key) error { _, _, err := d.Requests(ctx, RequestFilter{Limit: 50}); return err }},
		{"view", func(d *DB, _ chat.Key) error {
			_, _, err := d.Requests(ctx, RequestFilter{View: "conflicts", Limit: 50})
			return err
		}},
		{"part", func(d *DB, k chat.Key) error {
			_, _, err := d.Requests(ctx, RequestFilter{ID: k.RequestID[10:], Limit: 50})
			return err
		}},
		{"one", func(d *DB, k chat.Key) error { _, err := d.Evidence(ctx, k); return err }},
		{"stats", func(d *DB, _ chat.Key) error {
			if _, err := d.Counts(ctx); err != nil {
				return err
			}
			_, err := d.Totals(ctx)
			return err
		}},
		{"costs-since", func(d *DB, _ chat.Key) error { _, _, err := d.CostsAfter(ctx, newest); return err }},
	} {
		b.Run(look.name, func(b *testing.B) {
			for b.Loop() {
				var of, ratio []float64
				for range rounds {
					at := time.Now()
					if err := look.do(small, smallKey); err != nil {
						b.Fatal(err)
					}
					took := time.Since(at)
					at = time.Now()
					if err := look.do(large, largeKey); err != nil {
						b.Fatal(err)
					}
					of, ratio = append(of, float64(time.Since(at).Microseconds())/1000), append(ratio, float64(time.Since(at))/float64(took))
				}
				b.ReportMetric(median(of), "ms")
				b.ReportMetric(median(ratio), "ratio")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
	at := time.Now()
	if _, _, err := large.CostsAfter(ctx, 0); err != nil {
		b.Fatal(err)
	}
	b.Logf("the first sum of the costs of 1,000,000 requests took %s", time.Since(at).Round(time.Millisecond))
}
