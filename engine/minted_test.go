package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/llm/llmtest"
)

// A process that has just started does not know that a young id was accepted by the one
// before it: it is taken for new until its acceptance says that it is not.

func TestAYoungIdOfALifeBeforeIsNoNewIntent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.PerUserPerMinute = 1 }, llmtest.Answer("answer"))
		id := r.say("hello")
		r.answered(id, "answer")
		next := r.die(llmtest.Answer("another"))
		for range 5 {
			if res := next.submit(next.message(id, "hello")); res.Decision != chat.DecisionReplayed {
				t.Fatalf("the repeat was %s, want replayed", res.Decision)
			}
		}
		if p := next.refused(next.message(id, "other words")); p.Code != "key_reused" {
			t.Errorf("other words: %s, want key_reused", p.Code)
		}
		next.calls(0)
		next.say("something else") // what the repeats took of the allowance was given back
		if p := next.refused(next.message(newID(), "hello")); p.Code != "rate_limited" {
			t.Errorf("got %s, want rate_limited", p.Code)
		}
		next.rest()
		next.calls(1)
	})
}

// What refuses a new intent refuses no repeat: its model is gone, its conversation's
// model is gone, the user has spent what a day allows, nothing may wait.
func TestWhatRefusesANewIntentRefusesNoYoungRepeat(t *testing.T) {
	t.Parallel()
	two := func(o *engine.Options) {
		m := o.Models[0]
		m.Name = "other"
		o.Models = append(o.Models, m)
	}
	for name, c := range map[string]struct {
		model   string
		next    func(*engine.Options)
		refused string // how a new intent is
	}{
		"model":     {"other", func(*engine.Options) {}, "model_unknown"},
		"spent":     {"", func(o *engine.Options) { o.SpendPerUserPerDay = 1 }, "spend_cap"},
		"no places": {"", func(o *engine.Options) { o.Queue = -1 }, "overloaded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, two, llmtest.Answer("answer"))
				a := r.message(newID(), "hello")
				a.Model = c.model
				r.submit(a)
				r.answered(a.Key.RequestID, "answer")
				next := r.dieInto(c.next, llmtest.Answer("another"))
				b := next.message(newID(), "hello")
				b.Model = c.model
				if p := next.refused(b); p.Code != c.refused {
					t.Fatalf("a new intent is refused with %s, want %s", p.Code, c.refused)
				}
				if res := next.submit(a); res.Decision != chat.DecisionReplayed {
					t.Errorf("the repeat was %s, want replayed", res.Decision)
				}
				next.calls(0)
			})
		})
	}
	t.Run("conversation's model", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, two, llmtest.Answer("answer"))
			id := r.say("hello")
			model := "other"
			if _, err := r.d.PatchConversation(r.ctx, db.LocalUser, r.session, db.ConversationPatch{Model: &model}); err != nil {
				t.Fatal(err)
			}
			r.answered(id, "answer")
			next := r.dieInto(func(o *engine.Options) { o.PerUserPerMinute = 2 }, llmtest.Answer("another"))
			if p := next.refused(next.message(newID(), "hello")); p.Code != "model_unknown" {
				t.Fatalf("a new intent is refused with %s, want model_unknown", p.Code)
			}
			if res := next.submit(next.message(id, "hello")); res.Decision != chat.DecisionReplayed {
				t.Errorf("the repeat was %s, want replayed", res.Decision)
			}
			next.session = newID()
			next.say("in another conversation") // the refusal counts once, the repeat not at all
			next.rest()
		})
	})
}

// Repeats that come one after another are looked up and cost no acceptance in vain, also
// when many others came between.
func TestRepeatsOfOneLifeAreLookedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("answer"))
		ids := make([]chat.Key, 3)
		for i := range ids {
			ids[i] = r.key(r.say(fmt.Sprint("hello ", i)))
		}
		for _, k := range ids {
			if r.e.Minted(k) {
				t.Errorf("%s is taken for new, and was accepted", k.RequestID)
			}
		}
		young := r.key(newID())
		if !r.e.Minted(young) {
			t.Error("a new id is not taken for new")
		}
		time.Sleep(11 * time.Second)
		if r.e.Minted(young) {
			t.Error("an id of eleven seconds is taken for new")
		}
		if r.e.Minted(r.key("order-4711-of-spring")) {
			t.Error("an id without a time is taken for new")
		}
		r.rest()
	})
}
