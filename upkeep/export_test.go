package upkeep

import "time"

// WithSpace returns o for a disk whose room space says.
func WithSpace(o Options, space func() (free, total int64, err error)) Options {
	o.space = space
	return o
}

// Old returns which of the backups of these moments need not stay.
func Old(k Keep, made []time.Time, now time.Time) []int { return k.old(made, now) }
