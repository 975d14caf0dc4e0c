package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
	"semel/llm/llmtest"
	"semel/outbox"
)

// A receiver is a sink as a good third party is one: it knows a webhook id again and
// does what is asked once. What it answers is scripted; the last answer repeats.
type receiver struct {
	mu       sync.Mutex
	got      []outbox.Message // under mu
	at       []time.Time      // under mu
	asked    []string         // under mu; ids it was asked about
	executed map[string]int   // under mu
	answers  []func(context.Context, outbox.Message) outbox.Result
	deaf     bool // it executes nothing
}

func (v *receiver) Deliver(ctx context.Context, m outbox.Message) outbox.Result {
	v.mu.Lock()
	n := len(v.got)
	v.got, v.at = append(v.got, m), append(v.at, time.Now())
	if v.executed == nil {
		v.executed = map[string]int{}
	}
	if _, known := v.executed[m.WebhookID]; !known && !v.deaf {
		v.executed[m.WebhookID]++
	}
	answer := says(outbox.Result{Outcome: chat.OutcomeOK, Status: 200})
	if len(v.answers) > 0 {
		answer = v.answers[min(n, len(v.answers)-1)]
	}
	v.mu.Unlock()
	return answer(ctx, m)
}

func (v *receiver) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.got)
}

// once fails the test unless everything that came was the same message, executed once.
func (v *receiver) once(t *testing.T, deliveries int) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.got) != deliveries {
		t.Errorf("%d deliveries came, want %d", len(v.got), deliveries)
	}
	for _, m := range v.got {
		if m.WebhookID != v.got[0].WebhookID || string(m.Payload) != string(v.got[0].Payload) {
			t.Errorf("another message came: %s %s, first %s %s", m.WebhookID, m.Payload, v.got[0].WebhookID, v.got[0].Payload)
		}
	}
	for id, n := range v.executed {
		if n != 1 {
			t.Errorf("%s was executed %d times", id, n)
		}
	}
}

func says(r outbox.Result) func(context.Context, outbox.Message) outbox.Result {
	return func(context.Context, outbox.Message) outbox.Result { return r }
}

var (
	well    = says(outbox.Result{Outcome: chat.OutcomeOK, Status: 200})
	broken  = says(outbox.Result{Outcome: chat.OutcomeUnknown, Status: 500, Code: outbox.CodeReceiverFailed, Detail: "It said 500."})
	refuses = says(outbox.Result{Outcome: chat.OutcomeDefinite, Status: 400, Code: outbox.CodeReceiverRefused})
	gone    = says(outbox.Result{Outcome: chat.OutcomeDefinite, Status: 410, Code: outbox.CodeReceiverGone, Gone: true})
	absent  = says(outbox.Result{Outcome: chat.OutcomeNone, Code: outbox.CodeUnreachable})
)

func hangs(ctx context.Context, _ outbox.Message) outbox.Result {
	<-ctx.Done()
	return outbox.Result{Outcome: chat.OutcomeUnknown, Code: outbox.CodeTimeout}
}

// asking is a step that asks for these actions, each with its position as n.
func asking(actions ...string) llmtest.Step {
	return func(_ context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
		emit(llm.Piece{Text: "I ask."})
		a := llm.Answer{Content: "I ask.", Finish: chat.FinishTool, Usage: chat.Usage{InputTokens: 3, OutputTokens: 2}}
		for i, name := range actions {
			a.ToolCalls = append(a.ToolCalls, llm.ToolCall{ID: fmt.Sprint("call-", i), Name: name, Arguments: fmt.Sprintf(`{"n":%d}`, i)})
		}
		return a, nil
	}
}

const relaySecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// effects gives an engine the actions of dbtest, all of them received by v.
func effects(v outbox.Sink, change ...func(map[string]engine.Destination)) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Actions = dbtest.Declared
		o.Destinations = map[string]engine.Destination{}
		for _, a := range dbtest.Declared.Actions() {
			d := engine.Destination{Sink: v, Target: outbox.Target{Kind: outbox.KindWebhook, URL: "http://127.0.0.1:9900/" + a.Name, Secrets: []string{relaySecret}}}
			o.Destinations[a.Name] = d
			o.Destinations[db.CompensationOf(a.Name)] = d
		}
		for _, c := range change {
			c(o.Destinations)
		}
	}
}

// settings changes the targets of every destination.
func settings(change func(*outbox.Target)) func(map[string]engine.Destination) {
	return func(all map[string]engine.Destination) {
		for name, d := range all {
			change(&d.Target)
			all[name] = d
		}
	}
}

// acts asks a question whose answer asks for something, and returns its id when the
// answer is final.
func (r *rig) acts() string {
	r.t.Helper()
	id := r.say("please do")
	r.rest()
	if rec := r.record(id); rec.Message == nil {
		r.t.Fatalf("request %s is %s, %+v", id, rec.State, rec.Error)
	}
	return id
}

func (r *rig) effect(id string, position int) chat.Effect {
	r.t.Helper()
	return r.record(id).Effects[position]
}

func (r *rig) approve(id string, position int) {
	r.t.Helper()
	e := r.effect(id, position)
	if _, err := r.e.Decide(r.ctx, db.Verdict{UserID: db.LocalUser, WebhookID: e.WebhookID, Approve: true, Digest: e.Digest, Actor: "user:1"}); err != nil {
		r.t.Fatal(err)
	}
	r.rest()
}

func (r *rig) callback(webhookID string, ok bool) db.CallbackDecision {
	r.t.Helper()
	decision, err := r.e.Callback(r.ctx, db.Callback{WebhookID: webhookID, MessageID: newID(), OK: ok})
	if err != nil {
		r.t.Fatal(err)
	}
	r.rest()
	return decision
}

func (r *rig) stands(id, want string) {
	r.t.Helper()
	rec := r.record(id)
	got := string(rec.State)
	for _, e := range rec.Effects {
		got += " " + string(e.State)
		if e.Code != "" && e.State != chat.EffectRejected {
			got += ":" + e.Code
		}
	}
	if got != want {
		r.t.Errorf("request and effects are %q, want %q", got, want)
	}
}

// The story of contract section 5, from the offer to the bill.
func TestAnActionIsOfferedApprovedDeliveredCalledBackAndBilledOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &receiver{answers: []func(context.Context, outbox.Message) outbox.Result{broken, well}}
		r := newRig(t, effects(v), asking("sign"))
		id := r.acts()
		if tools := r.model.Calls()[0].Tools; len(tools) != 5 || tools[1].Name != "sign" || tools[1].Description != "Do sign" || !strings.Contains(tools[1].Parameters, `"integer"`) {
			t.Errorf("the model was offered %+v", tools)
		}
		r.stands(id, "acknowledged undecided")
		if v.count() != 0 {
			t.Error("it was delivered before a person approved")
		}
		r.approve(id, 0)
		r.stands(id, "acknowledged pending:receiver_failed") // worked, and answered 500
		r.pass(time.Minute)
		r.stands(id, "acknowledged awaiting")
		v.once(t, 2)
		var payload struct {
			Type string
			Data struct {
				RequestID string
				Arguments json.RawMessage
			}
		}
		if err := json.Unmarshal(v.got[0].Payload, &payload); err != nil || payload.Type != "action.sign" || payload.Data.RequestID != id || string(payload.Data.Arguments) != `{"n":0}` {
			t.Errorf("the payload is %s (%v)", v.got[0].Payload, err)
		}
		e := r.effect(id, 0)
		if got := r.callback(e.WebhookID, true); got != db.CallbackFirst {
			t.Errorf("the callback is %s", got)
		}
		r.stands(id, "committed delivered")
		if got := r.callback(e.WebhookID, true); got != db.CallbackDuplicate {
			t.Errorf("the second callback is %s", got)
		}
		charges := 0
		for _, l := range r.receipt(id).Ledger {
			if l.Kind == "charge" {
				charges++
			}
		}
		if charges != 1 {
			t.Errorf("%d charges", charges)
		}
		r.calls(1)
		r.idle()
	})
}

// What an answer that was cut or stopped asks for does not happen (contract, section 4).
func TestAStoppedAnswerCausesNoAction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &receiver{}
		cut := asking("note")
		r := newRig(t, effects(v), func(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
			a, err := cut(ctx, c, emit)
			a.Finish = chat.FinishLength
			return a, err
		})
		r.stands(r.acts(), "committed")
		r.pass(time.Hour)
		if v.count() != 0 {
			t.Errorf("%d deliveries", v.count())
		}
	})
}

// What follows a delivery that did not go well, by what its receiver remembers.
func TestAFailedDeliveryIsTriedAgainOnlyWhileThatIsSafe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		target     func(*outbox.Target)
		answer     func(context.Context, outbox.Message) outbox.Result
		deliveries int
		want       string
	}{
		{"keyed, until it is enough", func(g *outbox.Target) { g.MaxAttempts = 5 }, broken, 5, "dead:max_attempts"},
		{"keyed, while the receiver knows the id", func(g *outbox.Target) { g.MaxAttempts, g.KeyTTL = 1000, time.Nanosecond }, broken, 1, "dead:key_expired"},
		{"none, after an outcome that nobody knows", func(g *outbox.Target) { g.KeyMode = outbox.KeyModeNone }, broken, 1, "dead:outcome_unknown"},
		{"none, after a refusal", func(g *outbox.Target) { g.KeyMode, g.MaxAttempts = outbox.KeyModeNone, 3 }, refuses, 3, "dead:max_attempts"},
		{"none, where nothing left", func(g *outbox.Target) { g.KeyMode, g.MaxAttempts = outbox.KeyModeNone, 3 }, absent, 3, "dead:max_attempts"},
		{"an e-mail, after an outcome that nobody knows", func(g *outbox.Target) { g.Kind = outbox.KindEmail }, broken, 1, "dead:outcome_unknown"},
		{"gone", func(*outbox.Target) {}, gone, 1, "dead:destination_disabled"},
		{"a panic", func(g *outbox.Target) { g.MaxAttempts = 2 }, func(context.Context, outbox.Message) outbox.Result { panic("oh") }, 2, "dead:max_attempts"},
		{"silence", func(g *outbox.Target) { g.MaxAttempts = 2 }, hangs, 2, "dead:max_attempts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := &receiver{answers: []func(context.Context, outbox.Message) outbox.Result{c.answer}}
				r := newRig(t, effects(v, settings(c.target)), asking("note"))
				id := r.acts()
				r.pass(24 * time.Hour)
				r.stands(id, "acknowledged "+c.want)
				v.once(t, c.deliveries)
				// A person may always say: under the same id.
				v.mu.Lock()
				v.answers = []func(context.Context, outbox.Message) outbox.Result{well}
				v.mu.Unlock()
				if _, err := r.e.Resolve(r.ctx, db.Resolution{WebhookID: r.effect(id, 0).WebhookID, Do: db.Redrive, Actor: "user:1", Reason: "try"}); err != nil {
					t.Fatal(err)
				}
				r.pass(time.Minute)
				r.stands(id, "committed delivered")
				v.once(t, c.deliveries+1)
				r.idle()
			})
		})
	}
}

func TestABackoffGrowsIsBoundedAndHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := says(outbox.Result{Outcome: chat.OutcomeDefinite, Status: 429, Code: outbox.CodeReceiverBusy, RetryAfter: 10 * time.Minute})
		far := says(outbox.Result{Outcome: chat.OutcomeDefinite, Status: 503, Code: outbox.CodeReceiverBusy, RetryAfter: 20 * time.Hour})
		v := &receiver{answers: []func(context.Context, outbox.Message) outbox.Result{busy, far, broken}}
		r := newRig(t, effects(v, settings(func(g *outbox.Target) { g.MaxAttempts, g.KeyTTL = 40, 1000*time.Hour })), asking("note"))
		r.acts()
		r.pass(100 * time.Hour)
		if v.count() != 40 {
			t.Fatalf("%d deliveries, want 40", v.count())
		}
		if wait := v.at[1].Sub(v.at[0]); wait < 10*time.Minute || wait > 11*time.Minute {
			t.Errorf("after Retry-After of ten minutes it waited %s", wait)
		}
		if wait := v.at[2].Sub(v.at[1]); wait < time.Hour || wait > 61*time.Minute {
			t.Errorf("after Retry-After of twenty hours it waited %s, want the longest wait there is", wait)
		}
		var longest time.Duration
		for n := 3; n < 40; n++ {
			wait := v.at[n].Sub(v.at[n-1])
			longest = max(longest, wait)
			if most := min(time.Hour, 5*time.Second<<min(n-1, 20)) + time.Second; wait > most {
				t.Errorf("before delivery %d it waited %s, more than %s", n+1, wait, most)
			}
		}
		if longest < 10*time.Minute {
			t.Errorf("it never waited longer than %s", longest)
		}
	})
}

// A Querier is asked before what may have been executed is sent again.
type knowing struct {
	receiver
	known []outbox.Result // answers to Executed; the last repeats
}

func (k *knowing) Executed(_ context.Context, id string) (bool, outbox.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	res := k.known[min(len(k.asked), len(k.known)-1)]
	k.asked = append(k.asked, id)
	return k.executed[id] > 0, res
}

func TestAReceiverThatCanBeAskedIsAskedFirst(t *testing.T) {
	t.Parallel()
	answered := outbox.Result{Outcome: chat.OutcomeOK, Status: 200}
	silent := outbox.Result{Outcome: chat.OutcomeUnknown, Code: outbox.CodeTimeout}
	for _, c := range []struct {
		name       string
		deaf       bool
		known      []outbox.Result
		deliveries int
		asked      int
	}{
		{"it was executed", false, []outbox.Result{answered}, 1, 1},
		{"it was not", true, []outbox.Result{answered}, 2, 1},
		{"it does not say at first", false, []outbox.Result{silent, silent, answered}, 1, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := &knowing{known: c.known}
				v.deaf, v.answers = c.deaf, []func(context.Context, outbox.Message) outbox.Result{broken, well}
				r := newRig(t, effects(v, settings(func(g *outbox.Target) { g.KeyMode = outbox.KeyModeQuery })), asking("note"))
				id := r.acts()
				r.pass(time.Hour)
				r.stands(id, "committed delivered")
				v.once(t, c.deliveries)
				if len(v.asked) != c.asked {
					t.Errorf("it was asked %d times, want %d", len(v.asked), c.asked)
				}
			})
		})
	}
}

func TestASlowDestinationTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow, quick := &receiver{answers: []func(context.Context, outbox.Message) outbox.Result{hangs}}, &receiver{}
		r := newRig(t, effects(slow, func(all map[string]engine.Destination) {
			d := all["hasty"]
			d.Sink = quick
			all["hasty"] = d
		}), asking("note"))
		for range 300 { // more than is read at once
			r.session = newID()
			r.say("please do")
		}
		r.rest()
		if n := slow.count(); n != 8 {
			t.Errorf("%d deliveries to the slow one are under way, want 8", n)
		}
		r.model.Play(asking("hasty"))
		r.session = newID()
		r.acts()
		if quick.count() != 1 {
			t.Errorf("the quick one got %d", quick.count())
		}
	})
}

// A person's "no" to what has no destination any more is the only way on; nothing is
// lost until then.
func TestADestinationThatIsNotConfiguredAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.Actions = dbtest.Declared }, asking("note"))
		id := r.acts()
		r.stands(id, "acknowledged dead:destination_gone")
	})
}

// What is not what was written to leave does not leave: to nobody else either, and not
// when a person sends it again. Others go on.
func TestWhatIsDamagedInTheOutboxIsNotSent(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"payload":     `payload = replace(payload, '"n":0', '"n":4')`,
		"destination": `destination = 'sign'`,
		"id":          `webhook_id = replace(webhook_id, 'msg_', 'mrg_')`,
		"digest":      `sha256 = NULL`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := &receiver{answers: []func(context.Context, outbox.Message) outbox.Result{absent, absent, well}}
				r := newRig(t, effects(v), asking("note"), asking("note"))
				id := r.acts()
				key := r.key(id)
				r.session = newID()
				whole := r.acts()
				if v.count() != 2 {
					t.Fatalf("%d deliveries came, want the two that were not taken", v.count())
				}
				execSQL(t, r.file, `DROP TRIGGER outbox_identity; UPDATE outbox SET `+damage+` WHERE id = 1`)
				for range 2 { // the second time a person has sent it again
					time.Sleep(time.Hour)
					synctest.Wait() // the invariants do not hold
					rec, err := r.d.Record(r.ctx, key)
					if err != nil {
						t.Fatal(err)
					}
					if e := rec.Effects[0]; e.State != chat.EffectDead || e.Code != "damaged" {
						t.Errorf("the effect is %s with %q, want it dead because it is damaged", e.State, e.Code)
					}
					list, err := r.d.Outbox(r.ctx, db.OutboxFilter{State: chat.EffectDead, Limit: 1})
					if err != nil || len(list) != 1 {
						t.Fatalf("%d effects are dead (%v), want one", len(list), err)
					}
					if _, err := r.e.Resolve(r.ctx, db.Resolution{WebhookID: list[0].WebhookID, Do: db.Redrive, Actor: "user:1"}); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				r.stands(whole, "committed delivered")
				if v.count() != 3 {
					t.Errorf("%d deliveries came, want two that were not taken and that of the other effect", v.count())
				}
			})
		})
	}
}

// Who answers 410 is called no more, whatever else is asked for, until a person says so.
func TestADestinationThatWantsNoMoreIsCalledNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &receiver{answers: []func(context.Context, outbox.Message) outbox.Result{gone, well}}
		r := newRig(t, effects(v), asking("note"))
		first, second := r.acts(), r.acts()
		for _, id := range []string{first, second} {
			r.stands(id, "acknowledged dead:destination_disabled")
		}
		if v.count() != 1 {
			t.Errorf("it was called %d times, want once", v.count())
		}
		if _, err := r.e.Resolve(r.ctx, db.Resolution{WebhookID: r.effect(first, 0).WebhookID, Do: db.Redrive, Actor: "user:1", Reason: "it is back"}); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		r.stands(first, "committed delivered")
		r.stands(r.acts(), "committed delivered")
	})
}

// Whoever dies in the middle of a delivery leaves it to the next life, which sends the
// same again where the receiver knows it, and asks a person where not.
func TestADeathInTheMiddleOfADelivery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mode, want string }{
		{outbox.KeyModeKeyed, "committed delivered"},
		{outbox.KeyModeNone, "acknowledged dead:outcome_unknown"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := &receiver{answers: []func(context.Context, outbox.Message) outbox.Result{hangs, well}}
				r := newRig(t, effects(v, settings(func(g *outbox.Target) { g.KeyMode = c.mode })), asking("note"))
				id := r.acts()
				r.stands(id, "acknowledged delivering")
				next := r.die(llmtest.Answer("no"))
				next.pass(time.Second)
				next.stands(id, c.want)
				if c.mode == outbox.KeyModeKeyed {
					v.once(t, 2)
				} else {
					v.once(t, 1)
				}
			})
		})
	}
}

// A delivery whose row is decided by a callback meanwhile writes down how it went, and
// nothing else.
func TestACallbackIsQuickerThanTheEndOfItsDelivery(t *testing.T) {
	t.Parallel()
	for _, ok := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			v := &receiver{}
			r := newRig(t, func(o *engine.Options) {
				effects(v)(o)
				o.StallDelivery = func(o db.Outgoing) {
					if o.Kind == db.KindEffect {
						time.Sleep(time.Minute)
					}
				}
			}, asking("sign"))
			id := r.acts()
			r.approve(id, 0)
			r.stands(id, "acknowledged delivering")
			if got := r.callback(r.effect(id, 0).WebhookID, ok); got != db.CallbackFirst {
				t.Errorf("the callback is %s", got)
			}
			want := "committed delivered"
			if !ok {
				want = "committed compensated"
			}
			r.stands(id, want)
			r.pass(time.Hour)
			r.stands(id, want)
			want = "action.sign"
			if !ok {
				want += " action.sign.compensate"
			}
			var types []string
			for _, m := range v.got {
				var p struct{ Type string }
				if err := json.Unmarshal(m.Payload, &p); err != nil {
					t.Fatal(err)
				}
				types = append(types, p.Type)
			}
			if got := strings.Join(types, " "); got != want {
				t.Errorf("delivered: %s, want %s", got, want)
			}
		})
	}
}

func TestACallbackThatNobodySends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, effects(&receiver{}), asking("sign"))
		id := r.acts()
		r.approve(id, 0)
		r.pass(59 * time.Minute)
		r.stands(id, "acknowledged awaiting")
		r.pass(2 * time.Minute)
		r.stands(id, "acknowledged timed_out:callback_timeout")
	})
}

// Only who has a secret of the effect's own destination may call back.
func TestACallbackIsVerifiedWithTheSecretsOfItsDestination(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, effects(&receiver{}, func(all map[string]engine.Destination) {
			d := all["post"]
			d.Target.Secrets = []string{"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"}
			all["post"] = d
		}), asking("sign", "post"))
		id := r.acts()
		r.approve(id, 0)
		r.approve(id, 1)
		body := []byte(`{"type":"action.result","data":{"ok":true}}`)
		sign, post := r.effect(id, 0).WebhookID, r.effect(id, 1).WebhookID
		for _, c := range []struct {
			what, webhookID, secret string
			age                     time.Duration
			ok                      bool
		}{
			{"right", sign, relaySecret, 0, true},
			{"of another destination", post, relaySecret, 0, false},
			{"with its own", post, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", 0, true},
			{"too old", sign, relaySecret, 6 * time.Minute, false},
		} {
			h, err := outbox.Sign([]string{c.secret}, "cb-1", time.Now().Add(-c.age), body)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.e.VerifyCallback(r.ctx, c.webhookID, h, body)
			if (err == nil) != c.ok {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	})
}

// What undoes an effect is nobody's to call back.
func TestOnlyEffectsAreCalledBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, effects(&receiver{}), asking("sign"))
		id := r.acts()
		r.approve(id, 0)
		r.callback(r.effect(id, 0).WebhookID, false)
		undo := dbtest.CompensationOf(t, r.d, r.effect(id, 0).WebhookID)
		body := []byte(`{"type":"action.result","data":{"ok":true}}`)
		h, err := outbox.Sign([]string{relaySecret}, "cb-2", time.Now(), body)
		if err != nil {
			t.Fatal(err)
		}
		for _, unknown := range []string{undo.WebhookID, "msg_nobody"} {
			if _, err := r.e.VerifyCallback(r.ctx, unknown, h, body); !errors.Is(err, db.ErrNotFound) {
				t.Errorf("%s: %v, want not found", unknown, err)
			}
		}
	})
}

// A charge that somebody is told of commits the request, and nothing before.
func TestARequestIsCommittedWhenItsChargeIsDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &receiver{answers: []func(context.Context, outbox.Message) outbox.Result{broken, well}}
		r := newRig(t, func(o *engine.Options) {
			effects(v)(o)
			o.Destinations["books"] = o.Destinations["note"]
			o.ChargeTo, o.Currency = "books", "EUR"
		}, llmtest.Answer("Three."))
		id := r.say("what?")
		r.rest()
		if rec := r.record(id); rec.State != chat.StateAcknowledged || rec.Message == nil {
			t.Errorf("it is %s", rec.State)
		}
		r.pass(time.Minute)
		r.answered(id, "Three.")
		v.once(t, 2)
		var p struct {
			Type string
			Data struct {
				RequestID string
				Cost      chat.Money
			}
		}
		cost := r.record(id).Cost.Micros
		if err := json.Unmarshal(v.got[0].Payload, &p); err != nil || p.Type != "charge" || p.Data.RequestID != id || p.Data.Cost != (chat.Money{Currency: "EUR", Micros: cost}) || cost == 0 {
			t.Errorf("the payload is %s (%v)", v.got[0].Payload, err)
		}
	})
}

func TestWhoHasSpentEnoughTodayAsksTomorrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.SpendPerUserPerDay = 1 }, llmtest.Answer("that"))
		first := r.say("what?")
		r.answered(first, "that")
		r.submit(r.message(first, "what?")) // a repeat is never refused
		id := newID()
		p := r.refused(r.message(id, "and now?"))
		if p.Status != 429 || p.Code != "spend_cap" || p.Retry != chat.RetrySameID || p.RetryAfter <= 0 || p.RetryAfter > 24*time.Hour {
			t.Errorf("refused with %+v, retry after %s", p, p.RetryAfter)
		}
		other := r.message(newID(), "mine")
		other.Key.UserID = 2
		r.submit(other)
		r.pass(p.RetryAfter)
		r.submit(r.message(id, "and now?"))
		r.answered(id, "that")
	})
}

// The relay and the pages are told of each change.
func TestEffectsAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, effects(&receiver{}), asking("sign"))
		id := r.acts()
		w := r.e.Events().Watch(db.LocalUser)
		defer w.Close()
		for _, step := range []func(){
			func() { r.approve(id, 0) },
			func() { r.callback(r.effect(id, 0).WebhookID, true) },
		} {
			step()
			if !slices.ContainsFunc(w.Take(), func(ev engine.Event) bool { return ev.RequestID == id }) {
				t.Error("nobody was told")
			}
		}
	})
}

// Where a receiver remembers nothing, a write that fails around a delivery must not make
// its outcome unknown: what is known is kept until it is stored.
func TestAFailedWriteAroundADeliveryLosesNothingThatIsKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		skip int // commits before the one that fails
		mode dbtest.Mode
	}{
		{"its start is stored and reported as failed", 0, dbtest.Stored},
		{"its start is not stored", 0, dbtest.NotStored},
		{"its end is stored and reported as failed", 1, dbtest.Stored},
		{"its end is not stored", 1, dbtest.NotStored},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				faults, v := &dbtest.Faults{}, &receiver{}
				r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, effects(v, settings(func(g *outbox.Target) { g.KeyMode = outbox.KeyModeNone })), llmtest.New(asking("post")))
				id := r.acts()
				e := r.effect(id, 0)
				faults.Arm("COMMIT", 1+c.skip, c.mode, full) // after that of the verdict
				if _, err := r.e.Decide(r.ctx, db.Verdict{UserID: db.LocalUser, WebhookID: e.WebhookID, Approve: true, Actor: "user:1"}); err != nil {
					t.Fatal(err)
				}
				r.pass(time.Minute)
				if !faults.Hit() {
					t.Fatal("the fault did not happen")
				}
				r.stands(id, "committed delivered")
				v.once(t, 1)
				r.idle()
			})
		})
	}
}
