package db_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// fillEffects makes an effect of every kind and in every state, and checks the
// invariants after each step.
func fillEffects(t testing.TB, d *db.DB) {
	t.Helper()
	check := func() { t.Helper(); dbtest.Check(t, d) }
	do := func(what, id string) {
		t.Helper()
		if _, err := d.Resolve(bg, db.Resolution{WebhookID: id, Do: what, Actor: "user:1", Reason: "it must be"}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		check()
	}
	deliver := func(id string, end db.DeliveryEnd) { t.Helper(); dbtest.Deliver(t, d, id, end); check() }
	call := func(id string, ok bool, want db.CallbackDecision) {
		t.Helper()
		if got := dbtest.CallBack(t, d, id, ok); got != want {
			t.Errorf("a callback is %s, want %s", got, want)
		}
		check()
	}
	ask := func(actions ...string) []chat.Effect {
		t.Helper()
		_, list := dbtest.Effects(t, d, effects, actions...)
		check()
		return list
	}
	approved := func() string {
		t.Helper()
		e := ask("sign")[0]
		dbtest.Approve(t, d, e)
		check()
		return e.WebhookID
	}

	all := ask("note", "sign", "post", "never", "unheard-of")
	deliver(all[0].WebhookID, dbtest.Sent)
	dbtest.Approve(t, d, all[1])
	check()
	if _, err := d.Decide(bg, db.Verdict{UserID: db.LocalUser, WebhookID: all[2].WebhookID, Actor: "user:1", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	check()
	id := all[1].WebhookID
	deliver(id, db.DeliveryEnd{Outcome: chat.OutcomeUnknown, Status: 500, Code: "receiver_failed", Actor: "relay:life", Retry: time.Now()})
	deliver(id, dbtest.Sent)
	call(id, true, db.CallbackFirst)
	call(id, true, db.CallbackDuplicate)
	call(id, false, db.CallbackContradiction)

	id = approved() // compensated, its callback quicker than the end of its delivery
	o := dbtest.Send(t, d, id)
	call(id, false, db.CallbackFirst)
	if _, err := d.EndDelivery(bg, o, dbtest.Sent); err != nil {
		t.Fatal(err)
	}
	check()
	undo := dbtest.CompensationOf(t, d, id).WebhookID
	deliver(undo, dbtest.GaveUp)
	do(db.Redrive, undo)
	deliver(undo, dbtest.Sent)
	call(id, true, db.CallbackContradiction)

	id = approved() // its compensation given up
	deliver(id, dbtest.GaveUp)
	do(db.Compensate, id)
	deliver(dbtest.CompensationOf(t, d, id).WebhookID, dbtest.GaveUp)
	do(db.Abandon, dbtest.CompensationOf(t, d, id).WebhookID)
	call(id, true, db.CallbackLate)

	id = approved() // being undone
	deliver(id, dbtest.Sent)
	do(db.Compensate, id)

	deliver(approved(), dbtest.Sent)     // awaiting
	deliver(approved(), dbtest.GaveUp)   // dead
	dbtest.Send(t, d, approved())        // delivering
	do(db.Abandon, approved())           // abandoned
	approved()                           // pending
	ask("sign")                          // undecided
	hasty := ask("hasty")[0].WebhookID   // timed out
	refused := ask("hasty")[0].WebhookID // refused
	deliver(hasty, dbtest.Sent)
	if _, _, err := d.TimeOut(bg); err != nil {
		t.Fatal(err)
	}
	check()
	deliver(refused, dbtest.Sent)
	call(refused, false, db.CallbackFirst)
	deliver(ask("note")[0].WebhookID, dbtest.Gone) // and its destination disabled

	charged := func() string {
		t.Helper()
		r, _ := dbtest.Claim(t, d, dbtest.Accept(t, d, effects, "what does it cost?"))
		a := dbtest.Answer("Three.")
		a.ChargeTo, a.Currency = "books", "USD"
		r, err := d.Finish(bg, r, a)
		if err != nil {
			t.Fatal(err)
		}
		check()
		list, err := d.Outbox(bg, db.OutboxFilter{Limit: 1})
		if err != nil || list[0].RequestID != r.ID || list[0].Kind != db.KindCharge {
			t.Fatalf("the newest of the outbox is %+v (%v)", list, err)
		}
		return list[0].WebhookID
	}
	deliver(charged(), dbtest.Sent)
	charged()

	paid, _ := dbtest.Effects(t, d, effects)
	for _, c := range []db.Correction{{Kind: "adjustment", Micros: 5}, {Kind: "refund", Micros: -3}} {
		c.RequestID, c.Actor, c.Reason = paid.ID, "user:1", "it was estimated"
		if err := d.Correct(bg, c); err != nil {
			t.Fatal(err)
		}
		check()
	}

	_, list := dbtest.Effects(t, d, given, "post", "sign")
	dbtest.Approve(t, d, list[0])
	check()
	if _, err := d.DeleteConversation(bg, db.LocalUser, given); err != nil {
		t.Fatal(err)
	}
	check()
}

func TestTheHealthyFileHasAnEffectInEveryState(t *testing.T) {
	d := dbtest.OpenAt(t, copyHealthy(t), nil)
	for what, want := range map[string]string{
		`SELECT count(DISTINCT state) FROM outbox`:       "pending, delivering, awaiting, dead, timed_out, refused, compensating, delivered, abandoned, compensated",
		`SELECT count(DISTINCT kind) FROM outbox`:        "effect, compensation, charge",
		`SELECT count(DISTINCT verdict) FROM decisions`:  "auto, ask, never, invalid",
		`SELECT count(DISTINCT verdict) FROM verdicts`:   "approve, reject",
		`SELECT count(DISTINCT decision) FROM callbacks`: "first, duplicate, contradiction, late",
		`SELECT count(DISTINCT reason) FROM deliveries`:  "first, retry, redrive",
		`SELECT count(DISTINCT kind) FROM ledger`:        "charge, adjustment, waste, refund",
	} {
		got, err := db.Int(bg, d, what)
		if err != nil || int(got) != len(strings.Split(want, ", ")) {
			t.Errorf("%s is %d, %v, want all of %s", what, got, err, want)
		}
	}
}

func states(t *testing.T, d *db.DB, r chat.Request) string {
	t.Helper()
	now, err := d.Load(bg, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{string(now.State)}
	for _, e := range dbtest.EffectsOf(t, d, r) {
		list = append(list, string(e.State))
	}
	return strings.Join(list, " ")
}

func wantStates(t *testing.T, d *db.DB, r chat.Request, want string) {
	t.Helper()
	if got := states(t, d, r); got != want {
		t.Errorf("request and effects are %q, want %q", got, want)
	}
	dbtest.Check(t, d)
}

func TestARequestIsCommittedWhenAllItsEffectsAreSettled(t *testing.T) {
	d := dbtest.Open(t)
	r, _ := dbtest.Effects(t, d, "session-1", "never", "unheard-of")
	wantStates(t, d, r, "committed rejected rejected")
	r, list := dbtest.Effects(t, d, "session-1", "note", "sign", "post")
	wantStates(t, d, r, "acknowledged pending undecided undecided")
	dbtest.Deliver(t, d, list[0].WebhookID, dbtest.Sent)
	wantStates(t, d, r, "acknowledged delivered undecided undecided")
	dbtest.Approve(t, d, list[1])
	if _, err := d.Decide(bg, db.Verdict{UserID: db.LocalUser, WebhookID: list[2].WebhookID, Actor: "user:1", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	wantStates(t, d, r, "acknowledged delivered pending rejected")
	dbtest.Deliver(t, d, list[1].WebhookID, dbtest.Sent)
	wantStates(t, d, r, "acknowledged delivered awaiting rejected")
	dbtest.CallBack(t, d, list[1].WebhookID, true)
	wantStates(t, d, r, "committed delivered delivered rejected")
}

// The answer is final at acknowledged: what follows in the conversation does not wait
// for effects, and a later prompt says what was asked for.
func TestAnOpenEffectHoldsUpNoLaterQuestion(t *testing.T) {
	d := dbtest.Open(t)
	_, list := dbtest.Effects(t, d, "session-1", "sign")
	next, turns := dbtest.Claim(t, d, dbtest.Accept(t, d, "session-1", "and now?"))
	msgs, err := d.Turns(bg, next.ConversationID, turns)
	if err != nil || len(msgs) != 3 {
		t.Fatalf("the prompt has %d turns (%v)", len(msgs), err)
	}
	want := "I ask for something.\n\n[asked for the action sign with {\"n\": 0}]"
	if msgs[1].Content != want {
		t.Errorf("the answer is sent as %q, want %q", msgs[1].Content, want)
	}
	dbtest.Approve(t, d, list[0])
	dbtest.Check(t, d)
}

func TestAVerdictIsOneAndBoundToWhatWasShown(t *testing.T) {
	d := dbtest.Open(t)
	r, list := dbtest.Effects(t, d, "session-1", "sign", "note")
	sign, note := list[0], list[1]
	verdict := func(id string, approve bool, digest string, user int64) error {
		t.Helper()
		_, err := d.Decide(bg, db.Verdict{UserID: user, WebhookID: id, Approve: approve, Digest: digest, Actor: "user:1"})
		dbtest.Check(t, d)
		return err
	}
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"of an id that there is not", verdict("msg_nobody", true, "", db.LocalUser), db.ErrNotFound},
		{"by somebody else", verdict(sign.WebhookID, true, sign.Digest, 2), db.ErrNotFound},
		{"on other arguments", verdict(sign.WebhookID, true, note.Digest, db.LocalUser), db.ErrDigest},
		{"on what runs by itself", verdict(note.WebhookID, false, note.Digest, db.LocalUser), db.ErrAlreadyDecided},
		{"the first", verdict(sign.WebhookID, true, sign.Digest, db.LocalUser), nil},
		{"again", verdict(sign.WebhookID, true, sign.Digest, db.LocalUser), nil},
		{"the opposite", verdict(sign.WebhookID, false, sign.Digest, db.LocalUser), db.ErrAlreadyDecided},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("a verdict %s: %v, want %v", c.what, c.err, c.want)
		}
	}
	wantStates(t, d, r, "acknowledged pending pending")
	if n, err := db.Int(bg, d, `SELECT count(*) FROM outbox`); err != nil || n != 2 {
		t.Errorf("%d rows are in the outbox (%v), want 2", n, err)
	}
	if _, err := d.DeleteConversation(bg, db.LocalUser, "session-1"); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[int64]error{db.LocalUser: db.ErrGone, 2: db.ErrNotFound} {
		if err := verdict(sign.WebhookID, true, sign.Digest, user); !errors.Is(err, want) {
			t.Errorf("by user %d, after its deletion: %v, want %v", user, err, want)
		}
	}
}

// Contract, section 5: regenerate or edit of a turn, and the end of its conversation,
// reject what nobody has decided about; what was approved runs on.
func TestWhatNobodyNeedsToDecideAnyMoreIsRejected(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		then         func(t *testing.T, d *db.DB, r chat.Request)
	}{
		{"regenerate", "superseded", func(t *testing.T, d *db.DB, r chat.Request) {
			dbtest.Submit(t, d, dbtest.Ask(r.Key.SessionID, chat.KindRegenerate, "", r.Seq+1))
		}},
		{"regenerate of the question", "superseded", func(t *testing.T, d *db.DB, r chat.Request) {
			dbtest.Submit(t, d, dbtest.Ask(r.Key.SessionID, chat.KindRegenerate, "", r.Seq))
		}},
		{"edit", "superseded", func(t *testing.T, d *db.DB, r chat.Request) {
			dbtest.Submit(t, d, dbtest.Ask(r.Key.SessionID, chat.KindEdit, "other words", r.Seq))
		}},
		{"delete", "deleted", func(t *testing.T, d *db.DB, r chat.Request) {
			if _, err := d.DeleteConversation(bg, db.LocalUser, r.Key.SessionID); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := dbtest.Open(t)
			before, other := dbtest.Effects(t, d, "session-1", "sign")
			r, list := dbtest.Effects(t, d, "session-1", "sign", "post", "post")
			dbtest.Approve(t, d, list[0])
			c.then(t, d, r)
			wantStates(t, d, r, "acknowledged pending rejected rejected")
			if got := dbtest.EffectsOf(t, d, r)[1]; got.Verdict != "reject" || got.Reason != c.reason || got.DecidedBy != "user:1" {
				t.Errorf("it was rejected as %q by %q, want %q", got.Reason, got.DecidedBy, c.reason)
			}
			want := chat.EffectUndecided
			if c.reason == "deleted" {
				want = chat.EffectRejected
			}
			if got := dbtest.EffectsOf(t, d, before)[0].State; got != want {
				t.Errorf("that of another turn is %s, want %s (%v)", got, want, other)
			}
			dbtest.Deliver(t, d, list[0].WebhookID, dbtest.Sent)
			dbtest.CallBack(t, d, list[0].WebhookID, true)
			wantStates(t, d, r, "committed delivered rejected rejected")
		})
	}
}

func TestActionsOfOneAnswerAreDeliveredInOrderAndNothingElseWaits(t *testing.T) {
	d := dbtest.Open(t)
	due := func() (ids []string) {
		t.Helper()
		list, _, err := d.Due(bg, time.Now().Add(time.Second), nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			ids = append(ids, o.WebhookID)
		}
		return ids
	}
	_, list := dbtest.Effects(t, d, "session-1", "note", "sign", "note", "never", "note")
	_, others := dbtest.Effects(t, d, "session-2", "note")
	want := func(what string, ids ...string) {
		t.Helper()
		if got := due(); !slices.Equal(got, ids) {
			t.Errorf("%s: %v are due, want %v", what, got, ids)
		}
	}
	want("at first", list[0].WebhookID, others[0].WebhookID)
	dbtest.Deliver(t, d, list[0].WebhookID, dbtest.GaveUp)
	want("while the first is dead", others[0].WebhookID)
	if _, err := d.Resolve(bg, db.Resolution{WebhookID: list[0].WebhookID, Do: db.Abandon, Actor: "user:1"}); err != nil {
		t.Fatal(err)
	}
	want("while nobody has decided about the second", others[0].WebhookID)
	dbtest.Approve(t, d, list[1])
	want("once it is approved", others[0].WebhookID, list[1].WebhookID)
	o := dbtest.Send(t, d, list[1].WebhookID)
	want("while it is delivered", others[0].WebhookID)
	if _, err := d.EndDelivery(bg, o, dbtest.Sent); err != nil {
		t.Fatal(err)
	}
	want("while it awaits its callback", list[2].WebhookID, others[0].WebhookID)
	if busy, _, err := d.Due(bg, time.Now().Add(time.Second), []string{"note"}, 100); err != nil || len(busy) != 0 {
		t.Errorf("%d are due to a busy destination (%v)", len(busy), err)
	}
	dbtest.Check(t, d)
}

func TestAPersonResolvesWhatStaysOpenAndNothingElse(t *testing.T) {
	d := dbtest.Open(t)
	resolve := func(id, do string) error {
		t.Helper()
		_, err := d.Resolve(bg, db.Resolution{WebhookID: id, Do: do, Actor: "user:1", Reason: "because"})
		dbtest.Check(t, d)
		return err
	}
	fresh := func() (chat.Request, string) {
		t.Helper()
		r, list := dbtest.Effects(t, d, "session-1", "sign")
		dbtest.Approve(t, d, list[0])
		return r, list[0].WebhookID
	}
	refused := func(what, id string, dos ...string) {
		t.Helper()
		for _, do := range dos {
			if err := resolve(id, do); !errors.Is(err, db.ErrNotNow) {
				t.Errorf("%s %s: %v, want ErrNotNow", do, what, err)
			}
		}
	}
	if err := resolve("msg_nobody", db.Abandon); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("of an id that there is not: %v", err)
	}
	r, id := fresh()
	refused("before its first delivery", id, db.Redrive, db.Compensate)
	o := dbtest.Send(t, d, id)
	refused("during a delivery", id, db.Redrive, db.Compensate, db.Abandon)
	if _, err := d.EndDelivery(bg, o, dbtest.GaveUp); err != nil {
		t.Fatal(err)
	}
	wantStates(t, d, r, "acknowledged dead")
	for range 2 { // again is no error and no second time
		if err := resolve(id, db.Redrive); err != nil {
			t.Fatal(err)
		}
	}
	wantStates(t, d, r, "acknowledged pending")
	dbtest.Deliver(t, d, id, dbtest.Sent)
	refused("while it is awaited", id, db.Redrive)
	for range 2 {
		if err := resolve(id, db.Compensate); err != nil {
			t.Fatal(err)
		}
	}
	refused("what is being undone", id, db.Abandon, db.Redrive)
	undo := dbtest.CompensationOf(t, d, id)
	refused("what undoes", undo.WebhookID, db.Compensate)
	dbtest.Deliver(t, d, undo.WebhookID, dbtest.Sent)
	wantStates(t, d, r, "committed compensated")
	refused("what is undone", id, db.Abandon, db.Redrive)
	r, id = fresh()
	for range 2 {
		if err := resolve(id, db.Abandon); err != nil {
			t.Fatal(err)
		}
	}
	wantStates(t, d, r, "committed abandoned")
	if n, err := db.Int(bg, d, `SELECT count(*) FROM audit`); err != nil || n != 3 {
		t.Errorf("the audit has %d rows (%v), want 3", n, err)
	}
}

func TestAReceiverThatWantsNoMoreGetsNoMoreUntilAPersonSays(t *testing.T) {
	d := dbtest.Open(t)
	_, list := dbtest.Effects(t, d, "session-1", "note")
	o := dbtest.Deliver(t, d, list[0].WebhookID, dbtest.Gone)
	if o.State != chat.EffectDead || o.Code != "destination_disabled" {
		t.Errorf("it is %s, %s", o.State, o.Code)
	}
	if disabled, err := d.DestinationDisabled(bg, "note"); err != nil || !disabled {
		t.Errorf("the destination is disabled: %t (%v)", disabled, err)
	}
	if _, err := d.Resolve(bg, db.Resolution{WebhookID: o.WebhookID, Do: db.Redrive, Actor: "user:1"}); err != nil {
		t.Fatal(err)
	}
	if disabled, err := d.DestinationDisabled(bg, "note"); err != nil || disabled {
		t.Errorf("the destination is disabled: %t (%v)", disabled, err)
	}
}

// Contract, section 5, on callbacks: whatever state they find.
func TestACallbackSettlesWhateverItFinds(t *testing.T) {
	for _, c := range []struct {
		name string
		at   func(t *testing.T, d *db.DB, id string)
		ok   string // request and effect after a yes
		no   string // after a no
	}{
		{"before its first delivery", func(*testing.T, *db.DB, string) {}, "committed delivered", "acknowledged compensating"},
		{"during a delivery", func(t *testing.T, d *db.DB, id string) { dbtest.Send(t, d, id) }, "committed delivered", "acknowledged compensating"},
		{"while it is awaited", func(t *testing.T, d *db.DB, id string) { dbtest.Deliver(t, d, id, dbtest.Sent) }, "committed delivered", "acknowledged compensating"},
		{"when it was given up", func(t *testing.T, d *db.DB, id string) { dbtest.Deliver(t, d, id, dbtest.GaveUp) }, "committed delivered", "acknowledged compensating"},
		{"after it was abandoned", func(t *testing.T, d *db.DB, id string) {
			if _, err := d.Resolve(bg, db.Resolution{WebhookID: id, Do: db.Abandon, Actor: "user:1"}); err != nil {
				t.Fatal(err)
			}
		}, "committed abandoned", "committed abandoned"},
	} {
		for _, yes := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				d := dbtest.Open(t)
				r, list := dbtest.Effects(t, d, "session-1", "sign")
				dbtest.Approve(t, d, list[0])
				c.at(t, d, list[0].WebhookID)
				cb := db.Callback{WebhookID: list[0].WebhookID, MessageID: "cb-1", OK: yes}
				for n := range 3 { // the same message again changes nothing
					decision, _, err := d.Callback(bg, cb)
					if err != nil {
						t.Fatal(err)
					}
					if first := decision == db.CallbackFirst; first != (n == 0 && c.name != "after it was abandoned") {
						t.Errorf("time %d is %s", n+1, decision)
					}
				}
				want := c.no
				if yes {
					want = c.ok
				}
				wantStates(t, d, r, want)
				if n, err := db.Int(bg, d, `SELECT sum(times) FROM callbacks`); err != nil || n != 3 {
					t.Errorf("%d callbacks are recorded (%v), want 3", n, err)
				}
			})
		}
	}
	d := dbtest.Open(t)
	_, list := dbtest.Effects(t, d, "session-1", "note")
	for want, cb := range map[error]db.Callback{
		db.ErrNotFound:     {WebhookID: "msg_nobody", MessageID: "1", OK: true},
		db.ErrOtherRequest: {WebhookID: list[0].WebhookID, MessageID: "1", OK: true, RequestID: chat.NewID()},
	} {
		if _, _, err := d.Callback(bg, cb); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", cb, err, want)
		}
	}
	dbtest.Check(t, d)
}

func TestACallbackThatNobodySentIsGivenUpInTime(t *testing.T) {
	d := dbtest.Open(t)
	r, list := dbtest.Effects(t, d, "session-1", "hasty")
	dbtest.Deliver(t, d, list[0].WebhookID, dbtest.Sent)
	_, next, err := d.Due(bg, time.Now(), nil, 10)
	if err != nil || next.IsZero() {
		t.Errorf("the next look is at %v (%v)", next, err)
	}
	_, patient := dbtest.Effects(t, d, "session-2", "sign") // its receiver has an hour
	dbtest.Approve(t, d, patient[0])
	dbtest.Deliver(t, d, patient[0].WebhookID, dbtest.Sent)
	late, more, err := d.TimeOut(bg)
	if err != nil || more || len(late) != 1 {
		t.Fatalf("%d timed out (%v)", len(late), err)
	}
	wantStates(t, d, r, "acknowledged timed_out")
	dbtest.CallBack(t, d, list[0].WebhookID, true)
	wantStates(t, d, r, "committed delivered")
}

// A correction is a row of its own; nothing becomes less than nothing.
func TestCorrectionsOfTheLedger(t *testing.T) {
	d := dbtest.Open(t)
	r := dbtest.Answered(t, d, "session-1", "what?", "that")
	failed := dbtest.Fail(t, d, first(dbtest.Claim(t, d, dbtest.Accept(t, d, "session-1", "lost"))), "")
	paid, err := db.Int(bg, d, `SELECT micros FROM ledger WHERE kind = 'charge'`)
	if err != nil || paid == 0 {
		t.Fatalf("it cost %d (%v)", paid, err)
	}
	for _, c := range []struct {
		what string
		db.Correction
		want error
	}{
		{"of a request that there is not", db.Correction{RequestID: 999, Kind: "refund", Micros: -1}, db.ErrNotFound},
		{"of what was not charged", db.Correction{RequestID: failed.ID, Kind: "refund", Micros: -1}, db.ErrNotNow},
		{"of more than was paid", db.Correction{RequestID: r.ID, Kind: "refund", Micros: -paid - 1}, db.ErrNotNow},
		{"the wrong way", db.Correction{RequestID: r.ID, Kind: "refund", Micros: 1}, db.ErrNotNow},
		{"down", db.Correction{RequestID: r.ID, Kind: "adjustment", Micros: -1}, nil},
		{"of the rest", db.Correction{RequestID: r.ID, Kind: "refund", Micros: 1 - paid}, nil},
		{"of nothing more", db.Correction{RequestID: r.ID, Kind: "refund", Micros: -1}, db.ErrNotNow},
	} {
		c.Actor, c.Reason = "user:1", "because"
		if err := d.Correct(bg, c.Correction); !errors.Is(err, c.want) {
			t.Errorf("%s %s: %v, want %v", c.Kind, c.what, err, c.want)
		}
		dbtest.Check(t, d)
	}
	again := db.Correction{RequestID: r.ID, Kind: "adjustment", Micros: 7, Actor: "user:1", Reason: "because", Key: "key-0001"}
	for range 2 {
		if err := d.Correct(bg, again); err != nil {
			t.Errorf("under its key: %v", err)
		}
	}
	for _, other := range []db.Correction{
		{RequestID: r.ID, Kind: "adjustment", Micros: 8, Reason: "because"}, {RequestID: r.ID, Kind: "adjustment", Micros: 7, Reason: "why"},
		{RequestID: r.ID, Kind: "refund", Micros: -7, Reason: "because"},
	} {
		other.Actor, other.Key = "user:1", again.Key
		if err := d.Correct(bg, other); !errors.Is(err, db.ErrKeyReused) {
			t.Errorf("another correction under that key: %v", err)
		}
	}
	rc, err := d.Receipt(bg, r.Key)
	if err != nil || len(rc.Ledger) != 4 {
		t.Errorf("the receipt has %d ledger rows (%v), want 4", len(rc.Ledger), err)
	}
}

func TestWhatAUserSpentSinceAMoment(t *testing.T) {
	synctest.Test(t, whatAUserSpent) // rows are in milliseconds: time must pass between them
}

func whatAUserSpent(t *testing.T) {
	d := dbtest.Open(t)
	if id, err := d.LedgerBefore(bg, time.Now()); err != nil || id != 0 {
		t.Errorf("before anything was spent: %d, %v", id, err)
	}
	for range 7 {
		dbtest.Answered(t, d, "session-1", "what?", "that")
		time.Sleep(2 * time.Millisecond)
	}
	for n := range int64(7) {
		id, err := db.Int(bg, d, `SELECT at FROM ledger WHERE id = ?`, n+1)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.LedgerBefore(bg, time.UnixMilli(id)); err != nil || got != n {
			t.Errorf("before row %d: %d, %v", n+1, got, err)
		}
		if got, err := d.LedgerBefore(bg, time.UnixMilli(id+1)); err != nil || got != n+1 {
			t.Errorf("after row %d: %d, %v", n+1, got, err)
		}
	}
	each, err := db.Int(bg, d, `SELECT micros FROM ledger WHERE id = 1`)
	if err != nil {
		t.Fatal(err)
	}
	if micros, last, err := d.Spent(bg, db.LocalUser, 4); err != nil || micros != 3*each || last != 7 {
		t.Errorf("since row 4: %d up to %d, %v, want %d up to 7", micros, last, err, 3*each)
	}
	time.Sleep(24 * time.Hour)
	r := dbtest.Answered(t, d, "session-1", "what?", "that")
	dbtest.Fail(t, d, first(dbtest.Claim(t, d, dbtest.Accept(t, d, "session-1", "lost"))), "")
	if err := d.Correct(bg, db.Correction{RequestID: r.ID, Kind: "refund", Micros: -2, Actor: "user:1", Reason: "sorry", Key: chat.NewID()}); err != nil {
		t.Fatal(err)
	}
	wasted, err := db.Int(bg, d, `SELECT micros FROM ledger WHERE kind = 'waste'`)
	if err != nil {
		t.Fatal(err)
	}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	yesterday := today.Add(-24 * time.Hour)
	for _, c := range []struct {
		from, to time.Time
		want     []db.Spending
	}{
		{yesterday, today.Add(24 * time.Hour), []db.Spending{
			{Day: yesterday, UserID: db.LocalUser, Answers: 7, Charges: 7 * each},
			{Day: today, UserID: db.LocalUser, Answers: 1, Charges: each, Waste: wasted, Refunds: -2},
		}},
		{yesterday, today, []db.Spending{{Day: yesterday, UserID: db.LocalUser, Answers: 7, Charges: 7 * each}}},
		{today.Add(24 * time.Hour), today.Add(48 * time.Hour), nil},
	} {
		got, err := d.Spending(bg, c.from, c.to)
		for i := range got {
			got[i].Day = got[i].Day.UTC()
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("from %s to %s: %+v, %v, want %+v", c.from, c.to, got, err, c.want)
		}
	}
	if micros, last, err := d.Spent(bg, 2, 7); err != nil || micros != 0 || last != 10 {
		t.Errorf("of somebody else: %d up to %d, %v", micros, last, err)
	}
}

const (
	aDecided     = `request_id = (SELECT min(request_id) FROM decisions) AND position`
	anEffect     = `id = (SELECT min(id) FROM outbox WHERE kind = 'effect' AND state = 'delivered' AND awaits = 1)`
	anAutomatic  = `id = (SELECT min(id) FROM outbox WHERE kind = 'effect' AND state = 'delivered' AND awaits = 0)`
	compensated  = `id = (SELECT min(id) FROM outbox WHERE state = 'compensated')`
	compensation = `id = (SELECT min(id) FROM outbox WHERE kind = 'compensation' AND state = 'delivered')`
	inState0     = `id = (SELECT min(id) FROM outbox WHERE state = `
)

func init() {
	damages = append(damages, []damage{
		{id: "I26", do: []string{`UPDATE ledger SET micros = -100000 WHERE kind = 'refund'`}},
		{id: "I26", do: []string{`DELETE FROM audit WHERE action = 'refund'`}},
		{id: "I26", do: []string{`UPDATE ledger SET request_id = ` + aFailed + ` WHERE kind = 'adjustment'`}},
		{id: "I29", do: []string{`DELETE FROM decisions WHERE ` + aDecided + ` = 4`}},
		{id: "I29", do: []string{`UPDATE decisions SET position = 7 WHERE ` + aDecided + ` = 4`}},
		{id: "I29", do: []string{`UPDATE decisions SET tx = tx + 1 WHERE ` + aDecided + ` = 4`}},
		{id: "I29", do: []string{`UPDATE snapshots SET declarations_id = NULL WHERE declarations_id IS NOT NULL`}},
		{id: "I29", do: []string{`UPDATE decisions SET request_id = ` + aFailed + ` WHERE ` + aDecided + ` = 4`}},
		{id: "I30", do: []string{`DELETE FROM outbox WHERE ` + anEffect}},
		{id: "I30", do: []string{`DELETE FROM outbox WHERE ` + anAutomatic}},
		{id: "I30", do: []string{`UPDATE verdicts SET verdict = 'reject' WHERE verdict = 'approve'`}},
		{id: "I30", do: []string{`UPDATE outbox SET tx = tx - 1 WHERE ` + anEffect}},
		{id: "I30", do: []string{`UPDATE outbox SET webhook_id = 'msg_another' WHERE ` + anEffect}},
		{id: "I30", do: []string{`UPDATE outbox SET destination = 'post' WHERE ` + anEffect}},
		{id: "I30", do: []string{`UPDATE outbox SET position = 9 WHERE ` + compensation}},
		{id: "I31", do: []string{`UPDATE decisions SET arguments = '{"n": 7}' WHERE ` + aDecided + ` = 1`}},
		{id: "I31", do: []string{`UPDATE decisions SET action = 'post' WHERE ` + aDecided + ` = 1`}},
		{id: "I32", do: []string{`UPDATE outbox SET payload = json_set(payload, '$.data.arguments.n', 7) WHERE ` + anEffect}},
		{id: "I32", do: []string{`UPDATE outbox SET payload = json_set(payload, '$.data.requestId', 'another') WHERE kind = 'charge'`}},
		{id: "I33", do: []string{`DELETE FROM deliveries WHERE n = 1 AND outbox_id = (SELECT id FROM outbox WHERE ` + anEffect + `)`}},
		{id: "I33", do: []string{`UPDATE outbox SET attempt = attempt + 1 WHERE ` + anEffect}},
		{id: "I33", do: []string{`UPDATE deliveries SET outcome = NULL, ended_at = NULL WHERE n = 1 AND outbox_id = (SELECT id FROM outbox WHERE ` + anEffect + `)`}},
		{id: "I33", do: []string{`UPDATE deliveries SET outcome = 'ok', ended_at = 1 WHERE outbox_id = (SELECT id FROM outbox WHERE state = 'delivering')`}},
		{id: "I35", do: []string{`DELETE FROM callbacks WHERE decision = 'first' AND outbox_id = (SELECT id FROM outbox WHERE ` + anEffect + `)`}},
		{id: "I35", do: []string{`UPDATE deliveries SET outcome = 'unknown' WHERE outbox_id = (SELECT id FROM outbox WHERE ` + anAutomatic + `)`}},
		{id: "I35", do: []string{`UPDATE deliveries SET outcome = 'unknown' WHERE outbox_id = (SELECT id FROM outbox WHERE ` + inState0 + `'awaiting'))`}},
		{id: "I35", do: []string{`UPDATE callbacks SET ok = 1 WHERE outbox_id = (SELECT id FROM outbox WHERE ` + inState0 + `'refused'))`}},
		{id: "I36", do: []string{`UPDATE outbox SET state = 'delivered', settled_at = 1 WHERE ` + inState0 + `'awaiting')`}},
		{id: "I36", do: []string{`UPDATE outbox SET state = 'dead', settled_at = NULL WHERE ` + anEffect}},
		{id: "I36", do: []string{`DELETE FROM verdicts WHERE verdict = 'reject'`}},
		{id: "I36", do: []string{`UPDATE outbox SET request_id = ` + aFailed + ` WHERE kind = 'charge' AND state = 'delivered'`}},
		{id: "I37", do: []string{`DELETE FROM outbox WHERE ` + compensation}},
		{id: "I37", do: []string{`UPDATE outbox SET state = 'dead', settled_at = NULL WHERE ` + compensation}},
		{id: "I37", do: []string{`UPDATE outbox SET compensates = 0 WHERE ` + compensated}},
		{id: "I37", do: []string{`UPDATE outbox SET state = 'awaiting' WHERE state = 'compensating'`}},
		{id: "I37", do: []string{`UPDATE outbox SET position = 9 WHERE ` + compensation}},
		{id: "I39", do: []string{`UPDATE decisions SET verdict = 'auto' WHERE ` + aDecided + ` = 1`}},
		{id: "I39", do: []string{`UPDATE verdicts SET digest = zeroblob(32) WHERE ` + aDecided + ` = 1`}},
		{id: "I39", do: []string{`UPDATE verdicts SET tx = 1 WHERE ` + aDecided + ` = 1`}},
		{id: "I40", do: []string{`UPDATE callbacks SET ok = 1 - ok WHERE decision = 'duplicate'`}},
		{id: "I40", do: []string{`UPDATE callbacks SET ok = 1 - ok WHERE decision = 'contradiction'`}},
		{id: "I40", do: []string{`DELETE FROM callbacks WHERE decision = 'first'`}},
		{id: "I40", do: []string{`UPDATE callbacks SET n = n + 10 WHERE decision = 'duplicate'`}},
		{id: "I40", do: []string{`UPDATE outbox SET kind = 'charge' WHERE ` + anEffect}},
		{id: "I47", do: []string{`DELETE FROM audit WHERE action = 'redrive'`}},
		{id: "I49", do: []string{`UPDATE outbox SET tx = (SELECT tx + 1 FROM instance) WHERE ` + anEffect}},
		{id: "I53", do: []string{`UPDATE outbox SET owner = NULL WHERE state = 'delivering'`}},
		{id: "I53", do: []string{`UPDATE outbox SET next_at = NULL WHERE state = 'pending'`}},
		{id: "I53", do: []string{`UPDATE outbox SET due_at = NULL WHERE state = 'awaiting'`}},
	}...)
}

// The database's list of edges is the domain's.
func TestTheOutboxKnowsNoEdgesButThoseOfTheDomain(t *testing.T) {
	path := copyHealthy(t)
	states := []chat.EffectState{chat.EffectPending, chat.EffectDelivering, chat.EffectAwaiting, chat.EffectDead, chat.EffectTimedOut, chat.EffectRefused,
		chat.EffectCompensating, chat.EffectDelivered, chat.EffectAbandoned, chat.EffectCompensated}
	c := raw(t, path, "&_pragma=ignore_check_constraints(1)&_pragma=foreign_keys(0)")
	for _, from := range states {
		for _, to := range states {
			if from == to {
				continue
			}
			id := `id = (SELECT min(id) FROM outbox WHERE state = '` + string(from) + `')`
			mustExec(t, c, `BEGIN`)
			set := `state = '` + string(to) + `'`
			if to == chat.EffectDelivering {
				set += `, attempt = attempt + 1`
			}
			_, err := c.ExecContext(bg, `UPDATE outbox SET `+set+` WHERE `+id)
			if got := err == nil; got != from.CanBecome(to) {
				t.Errorf("the database lets %s become %s: %t (%v), want %t", from, to, got, err, from.CanBecome(to))
			}
			mustExec(t, c, `ROLLBACK`)
		}
	}
}
