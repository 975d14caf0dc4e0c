package upkeep

// WithSpace returns o for a disk whose room space says.
func WithSpace(o Options, space func() (free, total int64, err error)) Options {
	o.space = space
	return o
}
