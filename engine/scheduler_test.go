package engine_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/engine"
	"semel/llm"
	"semel/llm/llmtest"
)

// A gauge is a model client that knows how many calls run at once.
type gauge struct {
	mu       sync.Mutex
	pace     time.Duration
	running  map[string]int // by the first word of the question
	most     map[string]int
	all, top int
	order    []string // of the questions, as they were asked
}

func newGauge(pace time.Duration) *gauge {
	return &gauge{pace: pace, running: map[string]int{}, most: map[string]int{}}
}

func (g *gauge) Stream(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	question := c.Turns[len(c.Turns)-1].Content
	var who string
	fmt.Sscan(question, &who)
	g.mu.Lock()
	g.order = append(g.order, question)
	g.running[who]++
	g.all++
	g.most[who] = max(g.most[who], g.running[who])
	g.top = max(g.top, g.all)
	g.mu.Unlock()
	select {
	case <-time.After(g.pace):
	case <-ctx.Done():
		return llm.Answer{}, ctx.Err()
	}
	g.mu.Lock()
	g.running[who]--
	g.all--
	g.mu.Unlock()
	emit(llm.Piece{Text: "ok"})
	return llm.Answer{Content: "ok", Finish: chat.FinishStop}, nil
}

// now returns how many calls run.
func (g *gauge) now() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.running)
}

func TestSlotsAreSharedFairlyBetweenUsers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGauge(time.Second)
		r := newRig(t, func(o *engine.Options) { o.Models[0].Client, o.Models[0].Concurrency = g, 2 }, llmtest.Answer("unused"))
		for i := range 20 { // one user has twenty conversations waiting …
			a := ask(newID(), newID(), fmt.Sprintf("greedy %d", i))
			r.submit(a)
		}
		r.rest()
		for i := range 3 { // … before another asks three questions
			a := ask(newID(), newID(), fmt.Sprintf("modest %d", i))
			a.Key.UserID = 2
			r.submit(a)
		}
		r.pass(time.Minute)
		last := 0
		for i, q := range g.order {
			if q[:6] == "modest" {
				last = i
			}
		}
		// Two were running; then the slots are given in turn.
		if last > 8 {
			t.Errorf("the modest user's last question was number %d: %v", last+1, g.order)
		}
		if g.top != 2 || len(g.order) != 23 {
			t.Errorf("%d calls at once, %d in all", g.top, len(g.order))
		}
		r.idle()
	})
}

func TestOneUserRunsNoMoreThanTheCapAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGauge(time.Second)
		r := newRig(t, func(o *engine.Options) { o.Models[0].Client, o.RunningPerUser = g, 3; twoModels(o) }, llmtest.Answer("unused"))
		for i := range 16 {
			a := ask(newID(), newID(), fmt.Sprintf("greedy %d", i))
			a.Model = []string{"", "other"}[i%2]
			r.submit(a)
		}
		a := ask(newID(), newID(), "modest 0")
		a.Key.UserID = 2
		r.submit(a)
		r.pass(500 * time.Millisecond)
		if now := g.now(); now["modest"] != 1 || now["greedy"] != 3 {
			t.Errorf("running: %v", now)
		}
		r.pass(time.Minute)
		if g.most["greedy"] != 3 || len(g.order) != 17 {
			t.Errorf("most at once %v, %d in all", g.most, len(g.order))
		}
		r.idle()
	})
}

// A mix of everything at once ends, in order, and leaves nothing behind.
func TestNothingIsLeftBehindWhenAllIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		steps := []llmtest.Step{
			llmtest.Answer("ok"), llmtest.Fail(llmtest.Refused(time.Second)), llmtest.Paced(time.Second, "a", "b"), llmtest.Fail(llmtest.Lost(), "x"),
			llmtest.Fail(llmtest.Denied()), llmtest.Hang("y"), llmtest.Panic("boom"), llmtest.Fail(llmtest.Refused(time.Hour)),
		}
		var many []llmtest.Step
		for i := range 240 {
			many = append(many, steps[(i*7+i/8)%len(steps)])
		}
		many = append(many, llmtest.Answer("ok"))
		r := newRig(t, func(o *engine.Options) { o.Models[0].Concurrency, o.RunningPerUser = 5, 4 }, many...)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var keys []chat.Key
		for i := range 10 {
			session := newID()
			wg.Go(func() {
				for n := range 6 {
					a := ask(session, newID(), fmt.Sprint(n))
					a.Key.UserID = int64(1 + i%2)
					mu.Lock()
					keys = append(keys, a.Key)
					mu.Unlock()
					if _, err := r.e.Submit(r.ctx, a); err != nil {
						t.Error(err)
					}
					if n%3 == 1 {
						time.Sleep(time.Duration(i) * 100 * time.Millisecond)
						if _, err := r.e.Stop(r.ctx, a.Key, 0); err != nil {
							t.Error(err)
						}
					}
					if n%3 == 2 {
						if _, err := r.e.Retry(r.ctx, engine.Again{Key: a.Key, Attempt: 1}); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		r.pass(2 * time.Hour)
		for _, k := range keys {
			if req, err := r.d.Find(r.ctx, k); err != nil || req.State.Live() {
				t.Errorf("request %s: %s %v", k.RequestID, req.State, err)
			}
		}
		r.idle()
	})
}

func TestAStopOfAWaitingQuestionLetsTheNextOnePass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Refused(50*time.Second)), llmtest.Answer("ok"))
		first, second := r.say("one"), r.say("two")
		r.pass(time.Second)
		r.stop(first, 1)
		began := time.Now()
		r.answered(second, "ok")
		if took := time.Since(began); took > time.Second {
			t.Errorf("the next question waited %s", took)
		}
		r.idle()
	})
}

func TestAFullModelDoesNotHoldUpAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) {
			twoModels(o)
			o.Models[0].Concurrency = 1
			o.Models[1].Client = llmtest.New(llmtest.Answer("quick"))
		}, llmtest.Hang())
		r.say("hold the slot")
		r.session = newID()
		r.say("wait for it")
		r.session = newID()
		a := r.message(newID(), "another model")
		a.Model = "other"
		r.submit(a)
		r.answered(a.Key.RequestID, "quick")
		r.calls(1)
	})
}

func TestTurnsThatDoNotFitAreDroppedOldestFirstAndCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.Models[0].Context = 6 }, llmtest.Answer("aaaa"))
		var last string
		for range 5 {
			last = r.say("qqqqqqqq") // two tokens, and one for each answer
			r.end(last)
		}
		if got := sent(r, 4); got != "aaaa qqqqqqqq aaaa qqqqqqqq" {
			t.Errorf("sent %s", got)
		}
		if rec := r.record(last); rec.ContextDropped != 5 {
			t.Errorf("dropped %d, want 5", rec.ContextDropped)
		}
	})
}
