package db_test

import (
	"slices"
	"time"

	"semel/chat"
	"semel/db"
)

// The rules of effects (contract, section 5) as a program over plain structs: no
// transaction, no SQL, no edge table. TestEffectsDoWhatTheirModelSays holds the database
// to it.

type model struct {
	asked    []*askedFor
	rows     []*effect // all that leaves, or might: in the order in which it came about
	deleted  map[string]time.Time
	disabled map[string]bool
	audits   int64 // what people did about effects that stay open
}

// askedFor is one answer with what it asks for.
type askedFor struct {
	session string
	turn    int64 // the message that it answers
	answer  int64
	actions []*effect
	charge  *effect
}

type effect struct {
	of          *askedFor
	kind, to    string
	position    int
	asks        bool   // a person is to decide
	said        string // approve, reject, or nothing yet
	awaits      bool   // its receiver is to call back, within patience
	patience    time.Duration
	compensates bool // a compensation is declared

	state          chat.EffectState
	changes        int64 // of state, so far: whoever believes in another number is late
	attempt, tries int64 // deliveries ever, and since it was written or redriven
	next, due      time.Time
	open, unknown  bool  // the last delivery has not ended; one ended so that it may have been executed
	verdict        *bool // of its receiver: the first
	heard          map[string]db.CallbackDecision
	undoneBy       *effect
	undoes         *effect
}

func (m *model) add(e *effect, state chat.EffectState, now time.Time) *effect {
	e.heard = map[string]db.CallbackDecision{}
	if e.state = state; state == chat.EffectPending {
		e.next = now
	}
	m.rows = append(m.rows, e)
	return e
}

func (e *effect) become(state chat.EffectState) {
	e.state, e.next, e.due = state, time.Time{}, time.Time{}
	e.changes++
	switch {
	case e.undoes == nil:
	case state == chat.EffectDelivered:
		e.undoes.become(chat.EffectCompensated)
	case state == chat.EffectAbandoned:
		e.undoes.become(chat.EffectAbandoned)
	}
}

// committed: every effect is settled.
func (a *askedFor) committed() bool {
	return !slices.ContainsFunc(a.actions, func(e *effect) bool { return !e.state.Settled() }) && (a.charge == nil || a.charge.state.Settled())
}

func (m *model) answer(a *askedFor, actions []string, charge bool, now time.Time) {
	for i, name := range actions {
		e := &effect{of: a, kind: db.KindEffect, to: name, position: i}
		state := chat.EffectPending
		switch name {
		case "sign":
			state, e.asks, e.awaits, e.patience, e.compensates = chat.EffectUndecided, true, true, time.Hour, true
		case "post":
			state, e.asks = chat.EffectUndecided, true
		case "hasty":
			e.awaits = true
		case "never", "unheard-of":
			state = chat.EffectRejected
		}
		a.actions = append(a.actions, m.add(e, state, now))
	}
	if charge {
		a.charge = m.add(&effect{of: a, kind: db.KindCharge, to: "books"}, chat.EffectPending, now)
	}
	m.asked = append(m.asked, a)
}

// decide: the same verdict again is fine, the other is not, and both are bound to what
// was shown, and to its owner.
func (m *model) decide(e *effect, approve, owner, shown bool, now time.Time) error {
	want := map[bool]string{true: "approve", false: "reject"}[approve]
	switch {
	case !owner || e.kind != db.KindEffect:
		return db.ErrNotFound
	case !m.deleted[e.of.session].IsZero():
		return db.ErrGone
	case !shown:
		return db.ErrDigest
	case e.said == want:
		return nil
	case e.said != "" || !e.asks:
		return db.ErrAlreadyDecided
	}
	e.said = want
	if e.state = chat.EffectRejected; approve {
		e.state, e.next = chat.EffectPending, now
	}
	return nil
}

// reject what nobody needs to decide any more: of a turn, or of a whole conversation.
func (m *model) reject(session string, turn int64) {
	for _, e := range m.rows {
		if e.state == chat.EffectUndecided && e.of.session == session && (turn == 0 || e.of.turn == turn) {
			e.said, e.state = "reject", chat.EffectRejected
		}
	}
}

// inTurn: order holds within one answer; nothing blocks others.
func (e *effect) inTurn() bool {
	if e.kind != db.KindEffect {
		return true
	}
	return !slices.ContainsFunc(e.of.actions[:e.position], func(b *effect) bool {
		return b.state == chat.EffectUndecided || b.state == chat.EffectPending || b.state == chat.EffectDelivering || b.state == chat.EffectDead
	})
}

// dueAt returns what may be delivered now, and when there is something to do next.
func (m *model) dueAt(now time.Time, busy []string) (list []*effect, next time.Time) {
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for _, e := range m.rows {
		switch {
		case e.state == chat.EffectAwaiting:
			sooner(e.due)
		case e.state != chat.EffectPending || !e.inTurn():
		case e.next.After(now):
			sooner(e.next)
		case !slices.Contains(busy, e.to):
			list = append(list, e)
		}
	}
	return list, next
}

// start and giveUp are about a row as somebody saw it.
func (e *effect) start(seen int64) error {
	if e.state != chat.EffectPending || e.changes != seen {
		return db.ErrFenced
	}
	e.become(chat.EffectDelivering)
	e.attempt++
	e.tries++
	e.open = true
	return nil
}

func (e *effect) giveUp(seen int64) error {
	if e.state != chat.EffectPending || e.changes != seen {
		return db.ErrFenced
	}
	e.become(chat.EffectDead)
	return nil
}

// end: once a delivery, and a callback may have been quicker.
func (m *model) end(e *effect, attempt int64, end db.DeliveryEnd, now time.Time) error {
	if !e.open || e.attempt != attempt {
		return db.ErrFenced
	}
	e.open = false
	e.unknown = e.unknown || end.Outcome == chat.OutcomeUnknown
	if end.Disable {
		m.disabled[e.to] = true
	}
	switch {
	case e.state != chat.EffectDelivering:
	case end.Outcome == chat.OutcomeOK && e.awaits:
		e.become(chat.EffectAwaiting)
		e.due = now.Add(e.patience)
	case end.Outcome == chat.OutcomeOK:
		e.become(chat.EffectDelivered)
	case end.Retry.IsZero():
		e.become(chat.EffectDead)
	default:
		e.become(chat.EffectPending)
		e.next = end.Retry
	}
	return nil
}

func (m *model) timeOut(now time.Time) (n int) {
	for _, e := range m.rows {
		if e.state == chat.EffectAwaiting && !e.due.After(now) {
			e.become(chat.EffectTimedOut)
			n++
		}
	}
	return n
}

// callback: the first verdict wins.
func (m *model) callback(e *effect, message string, ok, right bool, now time.Time) (d db.CallbackDecision, err error) {
	switch {
	case e.kind != db.KindEffect || e.state == chat.EffectUndecided || e.state == chat.EffectRejected:
		return "", db.ErrNotFound
	case !right:
		return "", db.ErrOtherRequest
	case e.heard[message] == db.CallbackFirst:
		return db.CallbackDuplicate, nil
	case e.heard[message] != "":
		return e.heard[message], nil
	case e.verdict != nil && *e.verdict == ok:
		d = db.CallbackDuplicate
	case e.verdict != nil:
		d = db.CallbackContradiction
	case e.state.Settled() || e.state == chat.EffectCompensating:
		d = db.CallbackLate
	default:
		d = db.CallbackFirst
	}
	e.heard[message] = d
	if d != db.CallbackFirst {
		return d, nil
	}
	switch e.verdict = &ok; {
	case ok:
		e.become(chat.EffectDelivered)
	case e.compensates:
		m.undo(e, now)
	default:
		e.become(chat.EffectRefused)
	}
	return d, nil
}

// undo: once an effect.
func (m *model) undo(e *effect, now time.Time) {
	e.become(chat.EffectCompensating)
	e.undoneBy = m.add(&effect{of: e.of, kind: db.KindCompensation, to: db.CompensationOf(e.to), position: e.position, undoes: e}, chat.EffectPending, now)
}

// resolve: what stays open is a person's, but never during a delivery.
func (m *model) resolve(e *effect, do string, now time.Time) error {
	if e.state == chat.EffectUndecided || e.state == chat.EffectRejected {
		return db.ErrNotFound
	}
	open := e.state == chat.EffectDead || e.state == chat.EffectTimedOut
	waits := open || e.state == chat.EffectPending || e.state == chat.EffectAwaiting
	switch {
	case do == db.Redrive && e.state == chat.EffectPending && e.tries == 0 && e.attempt > 0,
		do == db.Abandon && e.state == chat.EffectAbandoned,
		do == db.Compensate && e.undoneBy != nil && e.state != chat.EffectAbandoned:
		return nil // done already
	case do == db.Redrive && open:
		e.become(chat.EffectPending)
		e.tries, e.next = 0, now
		delete(m.disabled, e.to)
	case do == db.Abandon && (waits || e.state == chat.EffectRefused):
		e.become(chat.EffectAbandoned)
	case do == db.Compensate && e.compensates && e.attempt > 0 && waits:
		m.undo(e, now)
	default:
		return db.ErrNotNow
	}
	m.audits++
	return nil
}
