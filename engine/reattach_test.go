package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
	"semel/llm/llmtest"
)

// A keeper is a client whose provider keeps runs: it names each, and a second set
// of steps says what following one gives.
type keeper struct {
	*llmtest.Client
	runs *llmtest.Client

	mu        sync.Mutex
	followed  []string
	cancelled []string
}

var _ llm.Reattacher = (*keeper)(nil)

func newKeeper(follow ...llmtest.Step) *keeper {
	return &keeper{runs: llmtest.New(follow...)}
}

// model makes k the rig's model, whose steps play the calls.
func (k *keeper) model(o *engine.Options) {
	k.Client = o.Models[0].Client.(*llmtest.Client)
	o.Models[0].Client = k
}

func (k *keeper) Stream(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	c.Started(fmt.Sprintf("run-%d", c.Attempt))
	return k.Client.Stream(ctx, c, emit)
}

func (k *keeper) Reattach(ctx context.Context, c llm.Call, run string, emit func(llm.Piece)) (llm.Answer, error) {
	k.mu.Lock()
	k.followed = append(k.followed, run)
	k.mu.Unlock()
	return k.runs.Stream(ctx, c, emit)
}

func (k *keeper) Cancel(_ context.Context, run string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cancelled = append(k.cancelled, run)
	return nil
}

func (k *keeper) saw(t *testing.T, followed, cancelled []string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Equal(k.followed, followed) || !slices.Equal(k.cancelled, cancelled) {
		t.Errorf("followed %q, cancelled %q; want %q and %q", k.followed, k.cancelled, followed, cancelled)
	}
}

// S24: a crash during a call that its provider keeps costs no second one.
func TestTheNextLifeFollowsARunThatItsProviderKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, before string }{{"without text", ""}, {"with half an answer", "half an "}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, newKeeper(llmtest.Answer("no")).model, llmtest.Hang(tt.before))
				id := r.say("hello")
				behind := r.say("behind")
				r.pass(5 * time.Second)
				k := newKeeper(llmtest.Paced(time.Second, "ha", "lf an ans", "wer"))
				next := r.dieInto(k.model, llmtest.Answer("second"))
				next.pass(1500 * time.Millisecond)
				want := tt.before
				if want == "" {
					want = "ha"
				}
				if v := next.live(id).View(); string(v.Text) != want || v.Request.Attempt != 1 {
					t.Errorf("on screen meanwhile: attempt %d %q, want attempt 1 %q", v.Request.Attempt, v.Text, want)
				}
				next.answered(id, "half an answer")
				next.answered(behind, "second")
				k.saw(t, []string{"run-1"}, nil)
				next.calls(1) // of the question behind it
				rc := next.receipt(id)
				if len(rc.Attempts) != 1 || rc.Attempts[0].Outcome != chat.OutcomeOK || len(next.waste(id)) != 0 {
					t.Errorf("attempts: %+v, waste %v", rc.Attempts, next.waste(id))
				}
				next.idle()
			})
		})
	}
}

func TestAFollowedRunSurvivesFurtherDeaths(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newKeeper(llmtest.Answer("no")).model, llmtest.Hang("one "))
		id := r.say("hello")
		r.pass(5 * time.Second)
		r = r.dieInto(newKeeper(llmtest.Hang("one ", "two ")).model, llmtest.Answer("no"))
		r.pass(5 * time.Second)
		k := newKeeper(llmtest.Answer("one two three"))
		r = r.dieInto(k.model, llmtest.Answer("no"))
		r.answered(id, "one two three")
		k.saw(t, []string{"run-1"}, nil)
		r.calls(0)
	})
}

func TestARunThatIsLostIsTreatedAsThePolicySays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step llmtest.Step
	}{
		{"forgotten", llmtest.Fail(llmtest.Lost())},
		{"with other text than before", llmtest.Answer("something else")},
		{"with less text than before", llmtest.Answer("ha")},
		{"lost again", llmtest.Fail(llmtest.Lost(), "ha")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, newKeeper(llmtest.Answer("no")).model, llmtest.Hang("half"))
				id := r.say("hello")
				r.pass(5 * time.Second)
				k := newKeeper(tt.step)
				next := r.dieInto(func(o *engine.Options) { k.model(o); asks(o) }, llmtest.Answer("again"))
				if rec := next.failed(id, "line_lost", chat.OutcomeUnknown, chat.RetryExplicit); rec.Content != "half" {
					t.Errorf("partial text: %q", rec.Content)
				}
				if w := fmt.Sprint(next.waste(id)); w != "[1]" {
					t.Errorf("waste %s, want [1]", w)
				}
				next.calls(0)
				next.retry(id, 1, "")
				next.answered(id, "again")
			})
		})
	}
}

func TestAStopCancelsTheRunAtItsProvider(t *testing.T) {
	t.Parallel()
	t.Run("of its own call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := newKeeper(llmtest.Answer("no"))
			r := newRig(t, k.model, llmtest.Hang("text"))
			id := r.say("hello")
			r.pass(2 * time.Second)
			r.stop(id, 1)
			r.answered(id, "text")
			k.saw(t, nil, []string{"run-1"})
		})
	})
	t.Run("of a followed run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, newKeeper(llmtest.Answer("no")).model, llmtest.Hang("text"))
			id := r.say("hello")
			r.pass(2 * time.Second)
			k := newKeeper(llmtest.Hang("text and more"))
			next := r.dieInto(k.model, llmtest.Answer("no"))
			next.stop(id, 1)
			next.answered(id, "text and more")
			k.saw(t, []string{"run-1"}, []string{"run-1"})
			next.calls(0)
		})
	})
	t.Run("stored before a death", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, newKeeper(llmtest.Answer("no")).model, llmtest.Hang("text"))
			id := r.say("hello")
			r.pass(2 * time.Second)
			if err := r.d.RequestStop(r.ctx, r.request(id)); err != nil {
				t.Fatal(err)
			}
			k := newKeeper(llmtest.Answer("no"))
			next := r.dieInto(k.model, llmtest.Answer("no"))
			next.answered(id, "text")
			k.saw(t, nil, []string{"run-1"})
			next.calls(0)
		})
	})
}

func TestAShutdownLeavesTheRunToTheNextLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(llmtest.Answer("no"))
		r := newRig(t, k.model, llmtest.Hang("half"))
		id := r.say("hello")
		r.pass(2 * time.Second)
		ctx, cancel := context.WithCancel(r.ctx)
		cancel()
		r.e.Drain(ctx)
		k.saw(t, nil, nil)
		k2 := newKeeper(llmtest.Answer("half and half"))
		next := r.dieInto(k2.model, llmtest.Answer("no"))
		next.answered(id, "half and half")
		k2.saw(t, []string{"run-1"}, nil)
		dbtest.Check(t, next.d)
	})
}

// A provider that is only asked for a run says that it goes on long before it has
// text: that is not silence.
func TestASignOfLifeIsNoSilence(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		alive bool
	}{{"with signs of life", true}, {"without", false}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, asks, func(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
					for range 10 {
						select {
						case <-time.After(time.Minute):
						case <-ctx.Done():
							return llm.Answer{}, ctx.Err()
						}
						if tt.alive {
							emit(llm.Piece{})
						}
					}
					emit(llm.Piece{Text: "late"})
					return llm.Answer{Content: "late", Finish: chat.FinishStop}, nil
				})
				id := r.say("hello")
				if tt.alive {
					r.answered(id, "late")
				} else {
					r.failed(id, "first_token_timeout", chat.OutcomeUnknown, chat.RetryExplicit)
				}
			})
		})
	}
}
