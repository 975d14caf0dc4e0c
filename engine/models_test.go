package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm/llmtest"
)

// a model of the rig's, by name.
func named(name string, steps ...llmtest.Step) engine.Model {
	return engine.Model{Name: name, Client: llmtest.New(steps...), Price: dbtest.DemoPrice, Rerun: true}
}

func (r *rig) setModels(list ...engine.Model) {
	r.t.Helper()
	if err := r.e.SetModels(list); err != nil {
		r.t.Fatal(err)
	}
	r.rest()
}

// sayTo asks a model in a conversation of its own.
func (r *rig) sayTo(model, content string) string {
	r.t.Helper()
	r.session = chat.NewID()
	a := r.message(newID(), content)
	a.Model = model
	r.submit(a)
	return a.Key.RequestID
}

func TestAModelThatIsAddedAnswersAtOnceAndMayBeTheDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("old"))
		if p := r.refused(func() engine.Ask { a := r.message(newID(), "x"); a.Model = "new"; return a }()); p.Code != "model_unknown" {
			t.Fatalf("got %s, want model_unknown", p.Code)
		}
		r.setModels(named("new", llmtest.Answer("new answer")), r.e.Models()[0])
		r.answered(r.sayTo("new", "hello"), "new answer")
		r.answered(r.sayTo("test", "hello"), "old")
		id := r.sayTo("", "hello")
		r.answered(id, "new answer")
		if got := r.record(id).Model; got != "new" {
			t.Errorf("the default is %q, want new", got)
		}
	})
}

func TestModelsThatCannotBeSetChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("yes"))
		for _, list := range [][]engine.Model{nil, {named("a", llmtest.Answer("1")), named("a", llmtest.Answer("2"))}} {
			if err := r.e.SetModels(list); err == nil {
				t.Errorf("%d models are set", len(list))
			}
		}
		r.answered(r.say("hello"), "yes")
	})
}

// Contract, section 4: what runs keeps its model; what waits fails as model_gone,
// also what waits for its turn in a conversation or to be tried again.
func TestOfAModelThatIsRemovedWhatRunsEndsAndWhatWaitsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		client := llmtest.New(llmtest.Fail(llmtest.Refused(50*time.Second)), llmtest.Until(gate, llmtest.Answer("still here")))
		r := newRig(t, func(o *engine.Options) {
			o.Models = append(o.Models, engine.Model{Name: "going", Client: client, Price: dbtest.DemoPrice, Concurrency: 1})
		}, llmtest.Answer("staying"))
		type asked struct{ session, id string }
		ask := func(content string) asked {
			id := r.sayTo("going", content)
			r.rest()
			return asked{r.session, id}
		}
		retries, runs, waits := ask("to be tried again"), ask("runs"), ask("waits for the slot")
		behind := asked{runs.session, newID()}
		r.session = behind.session
		a := r.message(behind.id, "behind the one that runs")
		a.Model = "going"
		r.submit(a)
		r.rest()
		if client.Count() != 2 {
			t.Fatalf("%d calls: no test", client.Count())
		}

		r.setModels(r.e.Models()[0])
		for _, q := range []asked{retries, waits} {
			r.session = q.session
			if rec := r.record(q.id); rec.State != chat.StateFailed {
				t.Errorf("%s is %s, want failed at once", q.id, rec.State)
			}
			r.failed(q.id, "model_gone", chat.OutcomeNone, chat.RetryExplicit)
		}
		r.session = runs.session
		if rec := r.record(runs.id); rec.State != chat.StateGenerating {
			t.Fatalf("what ran is %s", rec.State)
		}
		close(gate)
		r.answered(runs.id, "still here")
		r.failed(behind.id, "model_gone", chat.OutcomeNone, chat.RetryExplicit)
		if client.Count() != 2 {
			t.Errorf("%d calls, want 2", client.Count())
		}
		// It may come back, and be asked again.
		r.setModels(r.e.Models()[0], named("going", llmtest.Answer("back")))
		r.retry(behind.id, 0, "")
		r.answered(behind.id, "back")
		r.idle()
	})
}

// What waits is asked of the model as it is then, under the limit as it is then;
// what runs keeps what it has, and counts.
func TestAModelThatIsChangedTakesOverWhatWaitsAndCountsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		old := llmtest.New(llmtest.Until(gate, llmtest.Answer("old")))
		r := newRig(t, func(o *engine.Options) { o.Models[0].Client, o.Models[0].Concurrency = old, 1 }, llmtest.Answer("unused"))
		runs := r.sayTo("", "one")
		first := r.session
		waits := r.sayTo("", "two")
		second := r.session
		r.rest()
		changed := named("test", llmtest.Answer("new"))
		changed.Concurrency = 1
		r.setModels(changed)
		if rec := r.record(waits); rec.State != chat.StatePending {
			t.Fatalf("with the one slot in use, the second is %s", rec.State)
		}
		changed.Concurrency = 2
		r.setModels(changed)
		r.session = second
		r.answered(waits, "new")
		close(gate)
		r.session = first
		r.answered(runs, "old")
		if old.Count() != 1 {
			t.Errorf("the old model was called %d times", old.Count())
		}
		r.idle()
	})
}

// Models come and go while many ask: every question ends, and nothing is left.
func TestModelsMayChangeWhileManyAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.Models[0].Concurrency = 2 }, llmtest.Paced(time.Millisecond, "a", "b"))
		stays := r.e.Models()[0]
		var all sync.WaitGroup
		var mu sync.Mutex
		var keys []chat.Key
		for n := range 8 {
			all.Go(func() {
				for i := range 15 {
					a := ask(newID(), newID(), fmt.Sprintf("[%d %d]", n, i))
					a.Model = []string{"", "comes and goes"}[i%2]
					if _, err := r.e.Submit(r.ctx, a); err == nil {
						mu.Lock()
						keys = append(keys, a.Key)
						mu.Unlock()
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Go(func() {
			for i := range 60 {
				other := named("comes and goes", llmtest.Paced(2*time.Millisecond, "c", "d"))
				other.Concurrency = 1 + i%3
				list := []engine.Model{stays, other}
				if i%3 == 0 {
					list = list[:1]
				}
				if err := r.e.SetModels(list); err != nil {
					t.Error(err)
				}
				_ = len(r.e.Models())
				time.Sleep(time.Millisecond)
			}
		})
		all.Wait()
		r.pass(time.Minute)
		ended := map[string]int{}
		for _, k := range keys {
			rec, err := r.d.Record(r.ctx, k)
			if err != nil {
				t.Fatal(err)
			}
			what := string(rec.State)
			if rec.Error != nil {
				what += " " + rec.Error.Code
			}
			ended[what]++
		}
		if ended["committed"]+ended["failed model_gone"] != len(keys) || ended["failed model_gone"] == 0 || ended["committed"] < 60 {
			t.Errorf("they ended as %v", ended)
		}
		r.idle()
	})
}
