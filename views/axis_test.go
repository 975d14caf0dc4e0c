package views

import (
	"math/rand/v2"
	"testing"
	"time"
)

func moments(offsets ...time.Duration) (list []time.Time) {
	for _, d := range offsets {
		list = append(list, time.UnixMilli(1_700_000_000_000).Add(d))
	}
	return list
}

func TestALongSilenceDoesNotSquashTheRest(t *testing.T) {
	at := moments(0, 3*time.Millisecond, 900*time.Millisecond, 2*time.Second, 26*time.Hour, 26*time.Hour+time.Second)
	a := newAxis(at)
	if len(a.cuts) != 1 || a.cuts[0].long != at[4].Sub(at[3]) {
		t.Fatalf("cut: %+v", a.cuts)
	}
	if w := a.x(at[3]) - a.x(at[0]); w < 25 {
		t.Errorf("two seconds beside a day are %.1f %% wide", w)
	}
	if w, same := a.x(at[5])-a.x(at[4]), (a.x(at[3])-a.x(at[0]))/2; w < same*0.99 || w > same*1.01 {
		t.Errorf("a second is %.2f %% wide after the cut and %.2f %% before it", w, same)
	}
}

func TestWhatIsEvenIsNotCut(t *testing.T) {
	if a := newAxis(moments(0, time.Second, 2*time.Second, 5*time.Second)); len(a.cuts) != 0 || a.x(moments(time.Second)[0]) != axisMargin+19 {
		t.Errorf("%+v", a)
	}
	// A storm of repeats leaves room for what came before it.
	at := moments(0)
	for i := range 1000 {
		at = append(at, at[0].Add(time.Hour+time.Duration(i)*time.Millisecond))
	}
	if a := newAxis(at); len(a.cuts) != 1 {
		t.Errorf("cut: %+v", a.cuts)
	}
}

func TestAnAxisIsInOrderAndWithinItsWidth(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		at := moments(0)
		for range r.IntN(40) {
			at = append(at, at[len(at)-1].Add(time.Duration(r.Int64N(int64(1)<<(10+r.IntN(40))))))
		}
		a := newAxis(at)
		last := 0.0
		for _, m := range at {
			x := a.x(m)
			if x < last || x < axisMargin-1e-9 || x > 100-axisMargin+1e-9 {
				t.Fatalf("seed %d: %v is at %f, after %f", seed, m, x, last)
			}
			last = x
			if between := a.x(m.Add(time.Millisecond)); between < x-1e-9 {
				t.Fatalf("seed %d: %f comes after %f", seed, between, x)
			}
		}
		if len(a.cuts) > mostCuts {
			t.Fatalf("seed %d: %d cuts", seed, len(a.cuts))
		}
		if len(a.stops) > 1 && last < 100-axisMargin-1e-6 {
			t.Fatalf("seed %d: it ends at %f", seed, last)
		}
	}
}
