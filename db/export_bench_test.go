package db

import (
	"testing"
	"time"

	"semel/chat"
)

// The benchmark of the whole engine stands outside this package, because the
// engine imports it. This is what it shares with the others here.

// BenchAnswer is the answer that the plain loop stores.
var BenchAnswer = benchAnswer

// BenchCallers are the numbers of callers at once.
var BenchCallers = callerCounts

// funcStore makes a contender of two functions.
type funcStore struct {
	accept, live func(Submission) error
}

func (f funcStore) accepts(s Submission) (chat.Request, error) { return chat.Request{}, f.accept(s) }
func (f funcStore) lives(s Submission) error                   { return f.live(s) }

// A BenchFigure is what one contender did in one round.
type BenchFigure struct{ PerSecond, CPUMicros, Spread float64 }

// BenchEngine measures the plain loop and an engine in turn, several rounds, and
// returns the medians of each and of their ratios.
func BenchEngine(tb testing.TB, callers int, engine, loop func(Submission) error, rounds int, slice time.Duration) (e, p BenchFigure, ratio float64) {
	tb.Helper()
	var es, ps, ratios, ecpu, pcpu, spread []float64
	do := func(s store, sub Submission) error { return s.(funcStore).live(sub) }
	for range rounds {
		a := measure(tb, funcStore{live: engine}, callers, do, slice)
		z := measure(tb, funcStore{live: loop}, callers, do, slice)
		es, ps, ratios = append(es, a.perSecond), append(ps, z.perSecond), append(ratios, a.perSecond/z.perSecond)
		ecpu, pcpu, spread = append(ecpu, a.cpuMicros), append(pcpu, z.cpuMicros), append(spread, a.spread)
	}
	return BenchFigure{median(es), median(ecpu), median(spread)}, BenchFigure{median(ps), median(pcpu), 0}, median(ratios)
}

// BenchPlain returns the two pieces of work of the best plain loop, on a file of
// its own.
func BenchPlain(tb testing.TB) (accept, live func(Submission) error) {
	tb.Helper()
	_, loop := contenders(tb)
	return func(s Submission) error { _, err := loop.accepts(s); return err }, loop.lives
}
