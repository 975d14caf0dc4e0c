package lab

import (
	"context"
	"fmt"
	"strconv"

	"semel/chat"
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
	Do    string `json:"do"` // a verb
	Click string `json:"click,omitempty"`
	Fault string `json:"fault,omitempty"`
	Times int    `json:"times,omitempty"`
	Words string `json:"words,omitempty"`
	Say   string `json:"say"` // announces it; a key
}

// verbs are the vocabulary of scenarios. Each returns a sentence about what was seen in
// its lane.
var verbs = map[string]func(*lane, *doing) (Sentence, error){
	"click":  (*lane).doClick,
	"resend": (*lane).doResend,
}

// A doing is a step that is being done in one lane.
type doing struct {
	Step
	ctx   context.Context
	n     int // of the step
	click *click
}

func (n *lane) do(ctx context.Context, i int, s Step) (Sentence, error) {
	verb := verbs[s.Do]
	if verb == nil {
		return Sentence{}, fmt.Errorf("no verb %q", s.Do)
	}
	d := &doing{Step: s, ctx: ctx, n: i}
	if s.Click != "" {
		var err error
		if d.click, err = n.clicked(s); err != nil {
			return Sentence{}, err
		}
	}
	return verb(n, d)
}

// clicked returns the click that s is about; the verb click makes it.
func (n *lane) clicked(s Step) (*click, error) {
	if s.Do != "click" {
		return n.click(s.Click)
	}
	c := &click{name: s.Click, session: "lab-session-" + s.Click, id: chat.NewID(), words: s.Words}
	n.clicks = append(n.clicks, c)
	return c, nil
}

// mostOfReply is how many bytes of a lost reply may still pass: all of its head, and
// some of its body.
const mostOfReply = 400

// lose arms the proxy as s says: "lost" cuts the reply at some byte, "reset" does it
// rudely.
func (n *lane) lose(d *doing) error {
	switch d.Fault {
	case "":
	case "lost":
		rng := n.random(d.n)
		n.proxy.arm(fault{cut: rng.IntN(mostOfReply), reset: rng.IntN(2) == 0})
	default:
		return fmt.Errorf("no fault %q", d.Fault)
	}
	return nil
}

// doClick: the user presses Send.
func (n *lane) doClick(d *doing) (Sentence, error) {
	if err := n.lose(d); err != nil {
		return Sentence{}, err
	}
	return n.sendOnce(d)
}

// doResend: the client sends a click again.
func (n *lane) doResend(d *doing) (Sentence, error) {
	if err := n.lose(d); err != nil {
		return Sentence{}, err
	}
	return n.sendOnce(d)
}

func (n *lane) sendOnce(d *doing) (Sentence, error) {
	d.click.sent++
	r, err := n.send(d.click, "")
	if err != nil {
		return Sentence{}, err
	}
	return n.seen(d.click, r), nil
}

// seen says in words what the client saw.
func (n *lane) seen(c *click, r reply) Sentence {
	switch {
	case r.lost:
		return say("lab.say.lost")
	case r.replayed:
		return say("lab.say.replayed")
	case r.joined:
		return say("lab.say.joined")
	case r.status == 200 && n.name == Naive && c.sent > 1:
		return say("lab.say.naive_again")
	case r.status == 200:
		return say("lab.say.answered")
	}
	return say("lab.say.status", "status", strconv.Itoa(r.status))
}
