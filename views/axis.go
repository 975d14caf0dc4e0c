package views

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// An axis puts moments side by side. Time runs to scale, but for the few stretches in
// which nothing happened for so long that all else would be squashed: those are cut, and
// how long each is says its label. A scale by logarithm would show either the beginning
// or the end of a life that has both.
type axis struct {
	stops []stop // in order; what lies between two runs to scale
	cuts  []cut
}

// A stop is a moment with its place in percent of the width.
type stop struct {
	at time.Time
	x  float64
}

// A cut is a stretch that is not to scale.
type cut struct {
	x, width float64
	long     time.Duration
}

const (
	axisMargin = 2.5 // percent on either side: what stands at an end is seen whole
	mostCuts   = 4
	shortest   = 50 * time.Millisecond // is never cut
	squashes   = 4                     // a stretch is cut that is so many times as long as all that is to scale
	toScale    = 8                     // how wide all that is to scale is, in powers of ten of a cut
)

// newAxis makes the axis of these moments, of which there is at least one.
func newAxis(moments []time.Time) axis {
	at := slices.Clone(moments)
	slices.SortFunc(at, time.Time.Compare)
	at = slices.CompactFunc(at, func(a, b time.Time) bool { return a.UnixMilli() == b.UnixMilli() })
	gaps := make([]int, len(at)-1) // by length, the longest first
	total := time.Duration(0)
	for i := range gaps {
		gaps[i] = i
		total += at[i+1].Sub(at[i])
	}
	gap := func(i int) time.Duration { return at[i+1].Sub(at[i]) }
	slices.SortFunc(gaps, func(a, b int) int { return cmp.Compare(gap(b), gap(a)) })
	left := map[int]bool{} // gaps that are cut
	for _, i := range gaps {
		if rest := total - gap(i); len(left) < mostCuts && gap(i) > shortest && rest > 0 && gap(i) > squashes*rest {
			left[i] = true
			total = rest
		}
	}
	units := 0.0
	if total > 0 {
		units = toScale
	}
	for i := range left {
		units += decades(gap(i))
	}
	a := axis{stops: []stop{{at[0], axisMargin}}}
	x, per := axisMargin, (100-2*axisMargin)/max(units, 1)
	for i := range len(at) - 1 {
		width := 0.0
		if left[i] {
			width = decades(gap(i)) * per
			a.cuts = append(a.cuts, cut{x, width, gap(i)})
		} else if total > 0 {
			width = float64(gap(i)) / float64(total) * toScale * per
		}
		x += width
		a.stops = append(a.stops, stop{at[i+1], x})
	}
	return a
}

// decades is how wide a cut is: a longer one is wider, by little.
func decades(d time.Duration) float64 { return math.Log10(float64(d.Milliseconds()) + 1) }

// x is the place of a moment in percent.
func (a axis) x(t time.Time) float64 {
	i, found := slices.BinarySearchFunc(a.stops, t, func(s stop, t time.Time) int { return cmp.Compare(s.at.UnixMilli(), t.UnixMilli()) })
	switch {
	case found:
		return a.stops[i].x
	case i == 0:
		return a.stops[0].x
	case i == len(a.stops):
		return a.stops[i-1].x
	}
	from, to := a.stops[i-1], a.stops[i]
	return from.x + (to.x-from.x)*float64(t.Sub(from.at))/float64(to.at.Sub(from.at))
}

// span is how long all of it is.
func (a axis) span() time.Duration { return a.stops[len(a.stops)-1].at.Sub(a.stops[0].at) }
