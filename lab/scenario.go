package lab

import (
	"context"
	"fmt"
)

// A Scenario is what happens to both lanes, and what must come of it in the right one.
// Its texts are keys of the catalogue of the pages.
type Scenario struct {
	Number int
	Name   string // in addresses and on the command line
	Title  string
	About  string // why it happens in real life
	Steps  []Step
	// Want are the figures at the end, in the right lane: each of Figures that is here
	// is judged.
	Want map[string]int
	// Damage are those of them that the naive lane misses.
	Damage []string
}

// A Step is one thing that is done to both lanes. What the fields mean is said at the
// verbs.
type Step struct {
	Do    string `json:"do"`              // a verb
	Click string `json:"click,omitempty"` // the intent that it is about
	In    string `json:"in,omitempty"`    // the click in whose conversation a new one is; else it has its own
	Words string `json:"words,omitempty"`
	Fault string `json:"fault,omitempty"` // what goes wrong; "" is nothing
	Times int    `json:"times,omitempty"`
	Say   string `json:"say"` // announces it; a key
}

// do does a step in one lane and says what was seen.
func (n *lane) do(ctx context.Context, i int, s Step) (Sentence, error) {
	verb := verbs[s.Do]
	if verb == nil {
		return Sentence{}, fmt.Errorf("no verb %q", s.Do)
	}
	d := &doing{Step: s, ctx: ctx, rng: n.random(i)}
	if s.Click != "" {
		var err error
		if d.click, err = n.click(s.Click); err != nil {
			if d.click, err = n.newClick(s); err != nil {
				return Sentence{}, err
			}
		}
	}
	return verb(n, d)
}
