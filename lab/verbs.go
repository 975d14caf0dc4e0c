package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"semel/chat"
	"semel/db"
	"semel/sink"
)

// verbs are the vocabulary of scenarios. Each does something in one lane and returns a
// sentence about what was seen there.
var verbs = map[string]func(*lane, *doing) (Sentence, error){
	"click":     (*lane).doClick,     // the user presses Send; or the client sends the same click again
	"together":  (*lane).doTogether,  // one click is sent Times times at once
	"begin":     (*lane).doBegin,     // a click is sent and left under way, where Fault says
	"other":     (*lane).doOther,     // Words are sent under the id of Click
	"tabs":      (*lane).doTabs,      // Times tabs press "ask again" for Click at once
	"deliver":   (*lane).doDeliver,   // a queue's consumer takes the message Click, new or left in the queue
	"redeliver": (*lane).doRedeliver, // the queue delivers whatever was not acknowledged
	"kill":      (*lane).doKill,      // kill -9
	"start":     (*lane).doStart,     // the application is started again
	"settle":    (*lane).doSettle,    // everything comes to rest; whoever looks now sees this
	"giveup":    (*lane).doGiveUp,    // Click is taken away from whoever is silent about it
	"wake":      (*lane).doWake,      // the model that was silent goes on
	"delete":    (*lane).doDelete,    // the user deletes the conversation of Click
	"months":    (*lane).doMonths,    // the application is down while the time of retention passes
}

// A doing is a step that is being done in one lane.
type doing struct {
	Step
	ctx   context.Context
	rng   *rand.Rand // the same in both lanes
	click *click
}

// patience is how long the lab waits for what must come soon.
const patience = time.Minute

// until waits for ch.
func until(ctx context.Context, ch <-chan struct{}, what string) error {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return fmt.Errorf("waited %s for %s", patience, what)
	}
}

// newClick makes the click of s: from here on its body never changes.
func (n *lane) newClick(s Step) (*click, error) {
	c := &click{name: s.Click, session: "lab-session-" + s.Click, words: s.Words}
	if s.In != "" {
		in, err := n.click(s.In)
		if err != nil {
			return nil, err
		}
		c.session = in.session
	}
	at := time.Now()
	switch s.Fault {
	case "ahead", "ahead lost":
		at = at.Add(time.Hour)
	case "behind", "behind lost":
		at = at.Add(-time.Hour)
	}
	c.id = newID(at)
	n.clicks = append(n.clicks, c)
	return c, nil
}

// newID is a ULID of that time: one that a browser minted whose clock says so.
func newID(at time.Time) string {
	return ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String()
}

// mostOfReply is how many bytes of a lost reply may still pass: all of its head, and
// some of its body.
const mostOfReply = 400

// arm lets go wrong what d.Fault says of the next question or effect.
func (n *lane) arm(d *doing) error {
	switch d.Fault {
	case "", "ahead", "behind":
	case "lost", "ahead lost", "behind lost": // the reply is cut at some byte, or before the first
		n.proxy.arm(fault{cut: d.rng.IntN(mostOfReply), reset: d.rng.IntN(2) == 0})
	case "model": // the provider refuses
		n.provider.failNext(http.StatusBadRequest)
	case "works 500": // the third party works, and then answers 500, for the first deliveries of each id
		return n.behave(sink.AnswerFail, sink.CallbackOK, 1+d.rng.IntN(2))
	case "callback twice":
		return n.behave(sink.AnswerOK, sink.CallbackTwice, 0)
	case "callback early":
		return n.behave(sink.AnswerOK, sink.CallbackEarly, 0)
	case "callback contradicts":
		return n.behave(sink.AnswerOK, sink.CallbackContradict, 0)
	case "not signed": // and the answer to the first withdrawal is 500, after it was done
		n.gate.breakNext("/void")
		return n.behave(sink.AnswerOK, sink.CallbackNotOK, 0)
	default:
		return fmt.Errorf("no fault %q", d.Fault)
	}
	return nil
}

func (n *lane) doClick(d *doing) (Sentence, error) {
	if err := n.arm(d); err != nil {
		return Sentence{}, err
	}
	if d.Fault != "callback early" {
		// A callback takes longer than the answer to a delivery, and to whoever asked.
		n.proxy.keepCallbacks()
		defer n.proxy.releaseCallbacks()
	}
	r, err := n.send(d.click, "")
	if err != nil || r.code != "key_from_future" {
		return n.seen(d.click, r), err
	}
	// As the pages do: the server's time, and a new id for what was never accepted.
	d.click.id = newID(r.date)
	if r, err = n.send(d.click, ""); err != nil {
		return Sentence{}, err
	}
	if r.lost {
		return say("lab.say.clock_lost"), nil
	}
	return say("lab.say.clock"), nil
}

// seen says in words what the client saw.
func (n *lane) seen(c *click, r reply) Sentence {
	switch {
	case r.lost:
		return say("lab.say.lost")
	case r.replayed && r.status >= 400:
		return say("lab.say.replayed_failure")
	case r.replayed:
		return say("lab.say.replayed")
	case r.joined:
		return say("lab.say.joined")
	case r.code == "key_expired":
		return say("lab.say.expired")
	case r.code == "key_reused":
		return say("lab.say.reused")
	case r.status == http.StatusBadGateway:
		return say("lab.say.failed")
	case r.status == http.StatusOK && n.name == Naive && c.sent.Load() > 1:
		return say("lab.say.naive_again")
	case r.status == http.StatusOK:
		return say("lab.say.answered")
	}
	return say("lab.say.status", "status", strconv.Itoa(r.status))
}

// crowd sends many requests at once and counts what their senders saw.
func crowd(times int, send func(i int) (reply, error)) (accepted, repeats int, err error) {
	var all sync.WaitGroup
	replies, errs := make([]reply, times), make([]error, times)
	slots := make(chan struct{}, 100)
	for i := range times {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			replies[i], errs[i] = send(i)
		})
	}
	all.Wait()
	for _, r := range replies {
		switch {
		case r.joined || r.replayed:
			repeats++
		case r.status < 300 && !r.lost:
			accepted++
		}
	}
	return accepted, repeats, errors.Join(errs...)
}

func (n *lane) doTogether(d *doing) (Sentence, error) {
	accepted, repeats, err := crowd(d.Times, func(int) (reply, error) { return n.send(d.click, "") })
	if err != nil {
		return Sentence{}, err
	}
	return n.crowded(d.Times, accepted, repeats), nil
}

func (n *lane) crowded(times, accepted, repeats int) Sentence {
	key := "lab.say.crowd"
	if n.name == Naive {
		key = "lab.say.naive_crowd"
	}
	return say(key, "times", strconv.Itoa(times), "accepted", strconv.Itoa(accepted), "repeats", strconv.Itoa(repeats))
}

func (n *lane) doOther(d *doing) (Sentence, error) {
	r, err := n.send(d.click, d.Words)
	if err != nil {
		return Sentence{}, err
	}
	if r.status == http.StatusOK && n.name == Naive {
		return say("lab.say.naive_other"), nil
	}
	return n.seen(d.click, r), nil
}

// doTabs: where the application has a way to ask again for the same intent, the tabs
// use it; where it has none, they send the question.
func (n *lane) doTabs(d *doing) (Sentence, error) {
	send := func(int) (reply, error) { return n.send(d.click, "") }
	if n.name == Semel {
		send = func(int) (reply, error) {
			r, _, err := n.ask(http.MethodPost, "/api/chat/retry/"+url.PathEscape(d.click.id), map[string]any{"sessionId": d.click.session, "attempt": 1})
			return r, err
		}
	}
	if _, _, err := crowd(d.Times, send); err != nil {
		return Sentence{}, err
	}
	if err := n.settle(d.ctx); err != nil {
		return Sentence{}, err
	}
	if n.name == Naive {
		return say("lab.say.naive_tabs"), nil
	}
	return say("lab.say.tabs"), nil
}

// Left under way

func (n *lane) doBegin(d *doing) (Sentence, error) {
	var reached <-chan struct{}
	var seen Sentence
	switch d.Fault {
	case "mid-answer": // the model has said some of its words
		n.held = n.provider.holdNext(1 + d.rng.IntN(40))
		reached, seen = n.held.reached, say("lab.say.mid_answer")
	case "silent": // the model has said a word, and then says nothing
		n.held = n.provider.holdNext(1)
		reached, seen = n.held.reached, say("lab.say.silent")
	case "before work": // the delivery has arrived at the third party, which has not begun
		reached, seen = n.gate.keepNext("/sign", false), say("lab.say.before_work")
	case "after work": // it has worked, and its answer is on the way
		n.proxy.keepCallbacks()
		reached, seen = n.gate.keepNext("/sign", true), say("lab.say.after_work")
	case "before callback": // it has answered, and its callback is on the way
		reached, seen = n.proxy.keepCallbacks(), say("lab.say.before_callback")
	default:
		return Sentence{}, fmt.Errorf("no fault %q to begin with", d.Fault)
	}
	n.flying.Go(func() { _, _ = n.send(d.click, "") }) // whoever is killed answers nothing
	if err := until(d.ctx, reached, d.Fault); err != nil {
		return Sentence{}, err
	}
	if d.Fault == "before callback" {
		n.flying.Wait() // the answer is on its way before the callback is, and arrives
	}
	return seen, nil
}

func (n *lane) doKill(*doing) (Sentence, error) {
	n.kill()
	n.provider.release()
	n.gate.release()
	n.flying.Wait()
	return say("lab.say.killed"), nil
}

func (n *lane) doStart(d *doing) (Sentence, error) {
	if err := n.start(); err != nil {
		return Sentence{}, err
	}
	n.proxy.releaseCallbacks()
	return say("lab.say.started"), nil
}

func (n *lane) doSettle(d *doing) (Sentence, error) {
	if err := n.settle(d.ctx); err != nil {
		return Sentence{}, err
	}
	b, err := n.board(d.ctx)
	if err != nil {
		return Sentence{}, err
	}
	key := "lab.say.settled"
	switch {
	case b.Lost > 0:
		key = "lab.say.settled_lost"
	case b.Executions > 0:
		key = "lab.say.settled_effects"
	}
	return say(key, "answers", strconv.Itoa(b.Answers), "charges", strconv.Itoa(b.Charges), "calls", strconv.Itoa(b.Calls),
		"executions", strconv.Itoa(b.Executions), "results", strconv.Itoa(b.Results), "lost", strconv.Itoa(b.Lost)), nil
}

// settle waits until nobody is working on anything.
func (n *lane) settle(ctx context.Context) error {
	deadline := time.Now().Add(patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		quiet, err := n.quiet()
		if err != nil || quiet == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s, and %s", patience, quiet)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// quiet says what is still under way, "" when nothing is.
func (n *lane) quiet() (string, error) {
	if n.name == Semel { // the naive lane works inside its requests, which have ended
		receipts, err := n.receipts()
		if err != nil {
			return "", err
		}
		for _, r := range receipts {
			if r.State != chat.StateCommitted && r.State != chat.StateFailed {
				return "a request is " + string(r.State), nil
			}
		}
	}
	for _, e := range n.executed() {
		if e.Kind != "sign" || e.Executions == 0 || n.heard[e.WebhookID] {
			continue
		}
		if len(e.Callbacks) < n.verdicts || slices.ContainsFunc(e.Callbacks, func(c called) bool { return !c.Done }) {
			return "a callback is on its way", nil
		}
	}
	for _, e := range n.executed() {
		n.heard[e.WebhookID] = true // whatever the third party does next time
	}
	return "", nil
}

// behave changes what the third party does from now on.
func (n *lane) behave(answer, callback string, times int) error {
	n.verdicts = 1
	if callback == sink.CallbackTwice || callback == sink.CallbackContradict {
		n.verdicts = 2
	}
	return n.setBehaviour(map[string]any{"answer": answer, "callback": callback, "times": times})
}

// A worker that was taken for dead

// doGiveUp: in the right lane an operator releases the lease of whoever is silent; in
// the left one the client has waited long enough and asks again. Either way the question
// is worked on by somebody else while the first one still holds its line.
func (n *lane) doGiveUp(d *doing) (Sentence, error) {
	if n.name == Naive {
		r, err := n.send(d.click, "")
		return n.seen(d.click, r), err
	}
	r, b, err := n.ask(http.MethodPost, "/api/ops/requests/"+url.PathEscape(d.click.id)+"/release?sessionId="+url.QueryEscape(d.click.session),
		map[string]any{"attempt": 1, "reason": "the model is silent"})
	if err != nil {
		return Sentence{}, err
	}
	if r.status != http.StatusOK {
		return Sentence{}, fmt.Errorf("release: status %d: %s", r.status, b)
	}
	return say("lab.say.released"), n.settle(d.ctx)
}

func (n *lane) doWake(d *doing) (Sentence, error) {
	n.provider.release()
	if err := until(d.ctx, n.held.over, "the end of a call"); err != nil {
		return Sentence{}, err
	}
	n.flying.Wait()
	if n.name == Naive {
		return say("lab.say.naive_woke"), nil
	}
	return say("lab.say.woke"), n.settle(d.ctx)
}

// The queue

func (n *lane) doDeliver(d *doing) (Sentence, error) {
	if err := n.arm(d); err != nil {
		return Sentence{}, err
	}
	return n.deliver(d.click)
}

// deliver is a consumer: what it has heard an answer for it acknowledges.
func (n *lane) deliver(c *click) (Sentence, error) {
	r, err := n.send(c, "")
	if err != nil {
		return Sentence{}, err
	}
	if c.queued = r.lost || r.status >= 500; c.queued {
		return say("lab.say.unacknowledged"), nil
	}
	return n.seen(c, r), nil
}

func (n *lane) doRedeliver(d *doing) (said Sentence, err error) {
	left := slices.DeleteFunc(slices.Clone(n.clicks), func(c *click) bool { return !c.queued })
	d.rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	if len(left) == 0 {
		return said, errors.New("nothing is left in the queue")
	}
	for _, c := range left {
		if said, err = n.deliver(c); err != nil {
			return said, err
		}
	}
	return said, nil
}

// Retention

func (n *lane) doDelete(d *doing) (Sentence, error) {
	r, b, err := n.ask(http.MethodDelete, "/api/conversations/"+url.PathEscape(d.click.session), nil)
	if err != nil {
		return Sentence{}, err
	}
	if r.lost || r.status >= 300 {
		return Sentence{}, fmt.Errorf("delete: status %d: %s", r.status, b)
	}
	d.click.gone = true
	return say("lab.say.deleted"), nil
}

// doMonths stops the application and does to its file what retention does when so much
// time has passed: the same code, told a later time. Then it starts the application.
func (n *lane) doMonths(d *doing) (Sentence, error) {
	n.kill()
	if n.name == Semel {
		if err := n.age(d.ctx); err != nil {
			return Sentence{}, err
		}
	}
	if err := n.start(); err != nil {
		return Sentence{}, err
	}
	return say("lab.say.months"), nil
}

func (n *lane) age(ctx context.Context) (err error) {
	x, err := db.Open(db.Options{Path: n.file, Schema: n.lab.o.Schema, Fatal: func(error) {}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	later := time.Now().Add(time.Minute)
	for _, step := range []func(context.Context, time.Time) (bool, error){x.PruneEvidence, x.PurgeConversations, x.ForgetTombstones} {
		for more := true; more; {
			if more, err = step(ctx, later); err != nil {
				return err
			}
		}
	}
	return nil
}
