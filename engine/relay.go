package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"semel/chat"
	"semel/db"
	"semel/outbox"
)

// A Destination is where effects go, and how often they are tried.
type Destination struct {
	Sink outbox.Sink
	// Target says where that is and holds the secrets its callbacks are signed with.
	Target outbox.Target
}

// defaults fills in what config.md says of a destination that says nothing.
func (d Destination) defaults() Destination {
	d.Target.Timeout = orDefault(d.Target.Timeout, 15*time.Second)
	d.Target.MaxAttempts = orDefault(d.Target.MaxAttempts, 8)
	d.Target.Backoff = orDefault(d.Target.Backoff, 5*time.Second)
	d.Target.KeyTTL = orDefault(d.Target.KeyTTL, 24*time.Hour)
	if d.Target.KeyMode == "" {
		d.Target.KeyMode = outbox.KeyModeKeyed
		if d.Target.Kind == outbox.KindEmail {
			d.Target.KeyMode = outbox.KeyModeNone
		}
	}
	return d
}

const (
	relayBatch     = 256         // read from the outbox at once
	perDestination = 8           // deliveries to one destination at a time: it cannot take what others need
	longestBackoff = time.Hour   // between two deliveries, whatever a receiver asks for
	relayAtLeast   = time.Minute // how often the outbox is looked at with nothing due
	deliveryMargin = time.Minute // a lease outlives the timeout of its delivery by this
	longestPause   = 5           // of [Engine.pause], after a write that failed
)

// A relay delivers what is in the outbox (contract, section 5). The rows are the
// truth: a hint may be lost, and then the next look finds what is due.
type relay struct {
	e    *Engine
	wake chan struct{} // capacity 1

	mu       sync.Mutex
	inflight map[int64]bool // under mu; rows of the outbox that a goroutine has in care
	busy     map[string]int // under mu; deliveries under way by destination
}

func newRelay(e *Engine) *relay {
	return &relay{e: e, wake: make(chan struct{}, 1), inflight: map[int64]bool{}, busy: map[string]int{}}
}

// want makes the relay look at the outbox.
func (y *relay) want() {
	select {
	case y.wake <- struct{}{}:
	default:
	}
}

func (y *relay) loop() {
	defer y.e.loops.Done()
	for {
		timer := time.NewTimer(y.once())
		select {
		case <-y.e.stopping:
			timer.Stop()
			return
		case <-y.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// once starts what is due and returns how long nothing else will be.
func (y *relay) once() time.Duration {
	ctx := context.Background()
	if err := y.timeOut(ctx); err != nil {
		y.e.log.Error("callbacks overdue", "error", err)
	}
	if err := y.sweep(ctx); err != nil {
		y.e.log.Error("deliveries in nobody's care", "error", err)
	}
	for {
		list, next, err := y.e.db.Due(ctx, time.Now(), y.full(), relayBatch)
		if err != nil {
			y.e.log.Error("outbox", "error", err)
			return time.Second
		}
		started := 0
		for _, o := range list {
			if y.take(o) {
				started++
				y.e.workers.Go(func() { y.deliver(o) })
			}
		}
		if len(list) == relayBatch && started > 0 {
			continue // there may be more, to others
		}
		wait := relayAtLeast
		if !next.IsZero() {
			wait = min(wait, max(time.Until(next), time.Millisecond))
		}
		return wait
	}
}

// full returns the destinations that take no more now.
func (y *relay) full() (names []string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for name, n := range y.busy {
		if n >= perDestination {
			names = append(names, name)
		}
	}
	return names
}

// take takes a row into care, unless somebody has it, or its destination has enough.
func (y *relay) take(o db.Outgoing) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.inflight[o.ID] || y.busy[o.Destination] >= perDestination || y.e.Draining() {
		return false
	}
	y.inflight[o.ID] = true
	y.busy[o.Destination]++
	return true
}

func (y *relay) leave(o db.Outgoing) {
	y.mu.Lock()
	delete(y.inflight, o.ID)
	if y.busy[o.Destination]--; y.busy[o.Destination] == 0 {
		delete(y.busy, o.Destination)
	}
	y.mu.Unlock()
	y.want()
}

// deliver takes a row through one delivery.
func (y *relay) deliver(o db.Outgoing) {
	defer y.leave(o)
	ctx, log := context.Background(), y.e.log.With("webhook_id", o.WebhookID, "destination", o.Destination)
	if r, err := y.e.db.Load(ctx, o.RequestID); err == nil {
		log = log.With("request_id", r.Key.RequestID, "session_id", r.Key.SessionID)
	}
	dest, ok := y.e.o.Destinations[o.Destination]
	dest = dest.defaults()
	disabled, err := y.e.db.DestinationDisabled(ctx, o.Destination)
	if err != nil {
		y.hold(log, err)
		return
	}
	code := dest.forbids(o, time.Now())
	switch {
	case !o.Sound():
		code = "damaged"
	case !ok:
		code = "destination_gone"
	case disabled:
		code = "destination_disabled"
	}
	if code != "" {
		o, err = y.e.db.GiveUp(ctx, o, code)
		y.ended(log, o, err)
		return
	}
	o, err = y.start(ctx, o, db.Delivery{Owner: y.e.life, Lease: dest.Target.Timeout + deliveryMargin, Target: dest.Target.String()})
	if err != nil {
		y.hold(log, err)
		return
	}
	began := time.Now()
	res := y.send(dest, o)
	if y.e.o.StallDelivery != nil {
		y.e.o.StallDelivery(o)
	}
	y.e.meter.Delivered(res.Outcome, time.Since(o.CreatedAt))
	log.Info("delivery", "attempt", o.Attempt, "outcome", res.Outcome, "status", res.Status, "code", res.Code, "detail", res.Detail,
		"duration_ms", time.Since(began).Milliseconds())
	o, err = y.store(ctx, o, dest.after(o, res, time.Now(), "relay:"+y.e.life))
	y.ended(log, o, err)
}

// hold keeps a row that could not be begun out of the way for a moment: it is due still,
// and would be taken again at once.
func (y *relay) hold(log *slog.Logger, err error) {
	if errors.Is(err, db.ErrFenced) {
		return // somebody was quicker: it is due no more
	}
	log.Error("a delivery cannot be begun", "error", err)
	y.e.pause(longestPause)
}

// forbids returns why a row must not be delivered again without a person, "" when it
// may: its receiver no longer knows its id, or never did, and it may have been
// executed. What a person sends again is not judged.
func (d Destination) forbids(o db.Outgoing, now time.Time) (code string) {
	first := o.FirstAt
	if first.IsZero() || !o.DoubtedAt.IsZero() && o.DoubtedAt.Before(first) {
		first = o.DoubtedAt // by what a restore lost
	}
	switch t := d.Target; {
	case first.IsZero() || o.Tries == 0 && o.DoubtedAt.IsZero():
		return ""
	case t.KeyMode == outbox.KeyModeNone && o.Unknown:
		return "outcome_unknown"
	case t.KeyMode != outbox.KeyModeNone && now.After(first.Add(t.KeyTTL)):
		return "key_expired"
	}
	return ""
}

// after says what follows a delivery.
func (d Destination) after(o db.Outgoing, res outbox.Result, now time.Time, actor string) db.DeliveryEnd {
	end := db.DeliveryEnd{Outcome: res.Outcome, Status: res.Status, Code: res.Code, Detail: res.Detail, Actor: actor}
	if res.Outcome == chat.OutcomeOK {
		return end
	}
	wait := max(backoff(int(min(o.Tries-1, 32)), d.Target.Backoff, longestBackoff), min(res.RetryAfter, longestBackoff))
	o.Unknown = o.Unknown || res.Outcome == chat.OutcomeUnknown
	switch forbidden := d.forbids(o, now.Add(wait)); {
	case res.Gone:
		end.Disable, end.GiveUp = true, "destination_disabled"
	case o.Tries >= d.Target.MaxAttempts:
		end.GiveUp = "max_attempts"
	case forbidden != "":
		end.GiveUp = forbidden
	default:
		end.Retry = now.Add(wait)
	}
	return end
}

// start makes the delivery durable. When that is reported as open, the file is asked
// until it says: a row that nobody has in care would wait for the next look.
func (y *relay) start(ctx context.Context, o db.Outgoing, v db.Delivery) (db.Outgoing, error) {
	started, err := y.e.db.StartDelivery(ctx, o, v)
	for n := 0; errors.Is(err, db.ErrOutcomeOpen); n++ {
		now, lerr := y.e.db.Outgoing(ctx, o.WebhookID)
		if lerr == nil {
			if now.State == chat.EffectDelivering && now.Owner == y.e.life && now.Attempt == o.Attempt+1 {
				return now, nil
			}
			return o, err
		}
		if !y.e.pause(n) {
			return o, err
		}
	}
	return started, err
}

// send tries once. Whatever a sink does, a result comes back.
func (y *relay) send(dest Destination, o db.Outgoing) (res outbox.Result) {
	defer func() {
		if v := recover(); v != nil {
			res = outbox.Result{Outcome: chat.OutcomeUnknown, Code: "internal", Detail: fmt.Sprintf("panic in the destination: %v", v)}
		}
	}()
	ctx, cancel := context.WithTimeout(y.e.base, dest.Target.Timeout+deliveryMargin/2)
	defer cancel()
	if q, ok := dest.Sink.(outbox.Querier); ok && dest.Target.KeyMode == outbox.KeyModeQuery && y.doubtful(ctx, o) {
		switch executed, res := q.Executed(ctx, o.WebhookID); {
		case res.Outcome != chat.OutcomeOK:
			res.Outcome = chat.OutcomeNone // nothing was sent that could be executed
			return res
		case executed:
			return res
		}
	}
	return dest.Sink.Deliver(ctx, outbox.Message{WebhookID: o.WebhookID, At: time.Now(), Payload: []byte(o.Payload)})
}

// doubtful reports whether o may have been executed, by what is on record or by what a
// restore lost. Where that cannot be read, it may.
func (y *relay) doubtful(ctx context.Context, o db.Outgoing) bool {
	if o.Unknown {
		return true
	}
	maybe, err := y.e.db.MaybeSent(ctx, o)
	return maybe || err != nil
}

// store makes the end of a delivery durable, however long that takes: what was sent
// must not be forgotten.
func (y *relay) store(ctx context.Context, o db.Outgoing, end db.DeliveryEnd) (db.Outgoing, error) {
	for n := 0; ; n++ {
		ended, err := y.e.db.EndDelivery(ctx, o, end)
		if err == nil {
			return ended, nil
		}
		if errors.Is(err, db.ErrFenced) { // it is closed: by an earlier try of ours, whose commit was reported as open
			return y.e.db.Outgoing(ctx, o.WebhookID)
		}
		if !errors.Is(err, db.ErrOutcomeOpen) && !db.IsRetryable(err) || !y.e.pause(n) {
			return o, err
		}
	}
}

// ended tells pages and logs how a row stands.
func (y *relay) ended(log *slog.Logger, o db.Outgoing, err error) {
	switch {
	case errors.Is(err, db.ErrFenced):
		return // somebody was quicker, and tells
	case err != nil:
		log.Error("the end of a delivery is not stored", "error", err)
		y.e.pause(longestPause)
		return
	case o.State.Troubled():
		log.Error("an effect waits for a person", "state", o.State, "code", o.Code)
	}
	y.tell(o)
}

// tell says to pages that an effect changed, and the relay that others may be due.
func (y *relay) tell(o db.Outgoing) {
	r, err := y.e.db.Load(context.Background(), o.RequestID)
	if err != nil {
		y.e.log.Error("request of an effect", "webhook_id", o.WebhookID, "error", err)
		return
	}
	y.e.publish(r)
	y.want()
}

// timeOut gives up waiting for callbacks that are overdue.
func (y *relay) timeOut(ctx context.Context) error {
	for more := true; more; {
		var list []db.Outgoing
		var err error
		if list, more, err = y.e.db.TimeOut(ctx); err != nil {
			return err
		}
		for _, o := range list {
			y.e.log.Error("an effect waits for a person", "webhook_id", o.WebhookID, "destination", o.Destination, "state", o.State, "code", o.Code)
			y.tell(o)
		}
	}
	return nil
}

// sweep ends deliveries in nobody's care: of another life, which is dead, or of ours,
// where a write was reported as open. What became of them is unknown.
func (y *relay) sweep(ctx context.Context) error {
	list, err := y.e.db.Delivering(ctx)
	if err != nil {
		return err
	}
	for _, o := range list {
		if !y.takeOrphan(o) {
			continue // or its delivery has ended since the look: that one is closed, and nothing is written
		}
		dest := y.e.o.Destinations[o.Destination].defaults()
		res := outbox.Result{Outcome: chat.OutcomeUnknown, Code: outbox.CodeInterrupted, Detail: "Whoever delivered it was lost. It may have been executed."}
		end := dest.after(o, res, time.Now(), "recovery:"+y.e.life)
		if !end.Retry.IsZero() && o.Owner != y.e.life {
			end.Retry = time.Now() // the receiver did nothing wrong
		}
		ended, err := y.e.db.EndDelivery(ctx, o, end)
		y.ended(y.e.log, ended, err)
		y.leave(o)
	}
	return nil
}

// takeOrphan takes a row that is being delivered into care when nobody has it.
func (y *relay) takeOrphan(o db.Outgoing) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.inflight[o.ID] {
		return false
	}
	y.inflight[o.ID] = true
	y.busy[o.Destination]++
	return true
}

// Declared returns the actions that models may ask for.
func (e *Engine) Declared() *chat.Declarations { return e.o.Actions }

// Decide makes a person's verdict on an action durable and returns the request as it
// is then. Errors: those of [db.DB.Decide], and problems that say to ask again.
func (e *Engine) Decide(ctx context.Context, v db.Verdict) (chat.Request, error) {
	r, err := e.db.Decide(context.WithoutCancel(ctx), v)
	if err != nil {
		return r, e.storageProblem("", err)
	}
	e.publish(r)
	e.relay.want()
	return r, nil
}

// Resolve does what a person decided about an effect that stays open. Errors: those of
// [db.DB.Resolve], and problems that say to ask again.
func (e *Engine) Resolve(ctx context.Context, s db.Resolution) (db.Outgoing, error) {
	o, err := e.db.Resolve(context.WithoutCancel(ctx), s)
	if err != nil {
		return o, e.storageProblem("", err)
	}
	e.relay.tell(o)
	return o, nil
}

// ErrSignature: a callback is not signed with a secret of its effect's destination, or
// too long ago.
var ErrSignature = errors.New("the signature is not right")

// VerifyCallback checks that the destination of an effect signed a body, and returns
// the sender's own id of it. Errors: [db.ErrNotFound] when there is no such effect,
// ErrSignature, and a problem while a restore may have lost the effect.
func (e *Engine) VerifyCallback(ctx context.Context, webhookID string, h http.Header, body []byte) (messageID string, err error) {
	o, err := e.db.Outgoing(ctx, webhookID)
	if errors.Is(err, db.ErrNotFound) && e.db.Guarded(time.Now()) {
		p := problem(503, "restored_gap", chat.RetrySameID, "",
			"This server was restored from a backup and does not know this effect: it may be one of those that are lost. Call back again.")
		p.RetryAfter = 5 * time.Minute
		return "", p
	}
	if err != nil {
		return "", err
	}
	if o.Kind != db.KindEffect {
		return "", db.ErrNotFound
	}
	messageID, err = outbox.Verify(e.o.Destinations[o.Destination].Target.Secrets, h, body, time.Now())
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return messageID, nil
}

// Callback binds a verified callback to its effect. Errors: those of [db.DB.Callback],
// and problems that say to ask again.
func (e *Engine) Callback(ctx context.Context, cb db.Callback) (db.CallbackDecision, error) {
	decision, o, err := e.db.Callback(context.WithoutCancel(ctx), cb)
	if err != nil {
		return decision, e.storageProblem("", err)
	}
	log := e.log.With("webhook_id", cb.WebhookID, "message_id", cb.MessageID, "ok", cb.OK, "decision", decision)
	if r, err := e.db.Load(ctx, o.RequestID); err == nil {
		log = log.With("request_id", r.Key.RequestID, "session_id", r.Key.SessionID)
	}
	if decision == db.CallbackContradiction {
		log.Error("a callback contradicts an earlier one")
	} else {
		log.Info("callback")
	}
	if o.State.Troubled() {
		log.Error("an effect waits for a person", "state", o.State, "code", o.Code)
	}
	e.relay.tell(o)
	return decision, nil
}
