package lab

import "slices"

// A Report is what several runs have shown. The same program gives the same report for
// the same seeds.
type Report struct {
	Semel   string   `json:"semel"` // versions
	SQLite  string   `json:"sqlite"`
	Go      string   `json:"go"`
	Seed    uint64   `json:"seed"` // of each scenario's first run; the next ones count up
	Runs    int      `json:"runs"` // of each scenario
	Results []Result `json:"results"`
	Digest  string   `json:"digest"` // SHA-256 of the rest as canonical JSON; see Seal
}

// Seal sets the digest. Tokens and money of the naive lane are left out: where things
// happen at once there, what each call was sent depends on who came first.
func (r *Report) Seal() (err error) {
	c := *r
	c.Digest, c.Results = "", slices.Clone(r.Results)
	for i := range c.Results {
		c.Results[i].Naive.Tokens, c.Results[i].Naive.Micros = 0, 0
	}
	r.Digest, err = digest(c)
	return err
}

// Failed returns the results in which something does not hold in the right lane.
func (r *Report) Failed() (failed []Result) {
	for _, one := range r.Results {
		if len(one.Broken) > 0 {
			failed = append(failed, one)
		}
	}
	return failed
}
