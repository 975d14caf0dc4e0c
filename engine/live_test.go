package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/engine"
	"semel/llm"
	"semel/llm/llmtest"
)

// A watcher reads a live request as a stream does, and keeps what each attempt
// showed.
func watch(t *testing.T, l *engine.Live, lazy time.Duration) map[int64]string {
	seen := map[int64]string{}
	for {
		v := l.View()
		if v.Over {
			return seen
		}
		n := v.Request.Attempt
		if v.Request.State == chat.StateGenerating {
			if text := string(v.Text); !strings.HasPrefix(text, seen[n]) {
				t.Errorf("attempt %d showed %q, then %q", n, seen[n], text)
				return seen
			}
			seen[n] = string(v.Text)
		}
		time.Sleep(lazy)
		<-v.Changed
	}
}

// Whatever pieces an answer comes in, all viewers together with the end from the
// database see exactly what is stored, and each saw a prefix of it at any moment.
func TestDeltasOfAnAttemptAddUpToTheStoredAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, nil, llmtest.Answer("unused"))
		for range 12 {
			text := strings.Repeat("天地玄黄 abc\x00é", 1+rng.IntN(30))
			var pieces []string
			for rest := text; rest != ""; { // cuts fall inside characters too
				n := 1 + rng.IntN(len(rest))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			fails := rng.IntN(2) == 0
			step := llmtest.Paced(time.Duration(rng.IntN(700))*time.Millisecond, pieces...)
			if fails {
				r.model.Play(llmtest.Fail(llmtest.Lost(), pieces[:len(pieces)/2]...), step)
			} else {
				r.model.Play(step)
			}
			r.session = newID()
			id := r.say("hello")
			l := r.live(id)
			var wg sync.WaitGroup
			var mu sync.Mutex
			var all []map[int64]string
			for i := range 20 {
				wg.Go(func() {
					seen := watch(t, l, time.Duration(i)*50*time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					all = append(all, seen)
				})
			}
			rec := r.answered(id, text)
			wg.Wait()
			for _, seen := range all {
				if got := seen[rec.Attempt]; !strings.HasPrefix(rec.Message.Content, got) {
					t.Fatalf("a viewer saw %q of %q", got, rec.Message.Content)
				}
			}
		}
	})
}

func TestManyViewersShareOneAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Paced(10*time.Millisecond, strings.Split(strings.Repeat("word ", 50), "")...))
		id := r.say("hello")
		l := r.live(id)
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if seen := watch(t, l, 0); len(seen[1]) < 100 {
					t.Errorf("a viewer saw only %q", seen[1])
				}
			})
		}
		wg.Wait()
		r.answered(id, strings.Repeat("word ", 50))
	})
}

func TestANewAttemptBeginsWithoutTheOldText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Fail(llmtest.Lost(), "old text"), llmtest.Paced(2*time.Second, "new"))
		id := r.say("hello")
		seen := watch(t, r.live(id), 0)
		if seen[2] != "" && seen[2] != "new" {
			t.Errorf("attempt 2 showed %q", seen[2])
		}
		r.answered(id, "new")
	})
}

func TestReasoningIsKeptApartFromTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, asks, func(ctx context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
			for i := range 5 {
				emit(llm.Piece{Reasoning: fmt.Sprint("r", i)})
				time.Sleep(700 * time.Millisecond)
			}
			emit(llm.Piece{Text: "answer"})
			<-ctx.Done()
			return llm.Answer{}, ctx.Err()
		})
		id := r.say("hello")
		r.pass(5 * time.Second)
		if v := r.live(id).View(); string(v.Text) != "answer" || string(v.Reasoning) != "r0r1r2r3r4" {
			t.Errorf("viewers see %q and %q", v.Text, v.Reasoning)
		}
		r.stop(id, 1)
		if m := r.answered(id, "answer").Message; m.Reasoning != "r0r1r2r3r4" || m.Finish != chat.FinishStopped {
			t.Errorf("message: %+v", m)
		}
	})
}

// Only reasoning came: there is nothing to show as an answer.
func TestAStopDuringReasoningIsAFailureThatKeepsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, func(ctx context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
			emit(llm.Piece{Reasoning: "hm"})
			<-ctx.Done()
			return llm.Answer{}, ctx.Err()
		})
		id := r.say("hello")
		r.pass(3 * time.Second)
		r.stop(id, 1)
		r.failed(id, "stopped", chat.OutcomeUnknown, chat.RetryExplicit)
		if p, err := r.d.PartialText(r.ctx, r.request(id).ID, 1); err != nil || p.Reasoning != "hm" {
			t.Errorf("partial: %+v %v", p, err)
		}
	})
}
