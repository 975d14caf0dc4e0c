package engine_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
	"semel/llm/llmtest"
)

// Contract, section 4, row by row: what the model does, and what the request, its
// attempts and the ledger say then.
func TestWhatBecomesOfEachOutcome(t *testing.T) {
	t.Parallel()
	type end struct {
		code    string
		outcome chat.Outcome
		retry   chat.Retry
	}
	unknown := func(code string) *llm.Error { return &llm.Error{Outcome: chat.OutcomeUnknown, Code: code} }
	for _, tt := range []struct {
		name  string
		steps []llmtest.Step
		ask   bool // on_unknown: ask
		calls int
		want  end    // code "" is an answer
		text  string // the answer, or the partial text that is kept
		waste string // of which attempts
		tries string // how the attempts ended
	}{
		{name: "unreachable, then well", steps: []llmtest.Step{llmtest.Fail(llmtest.Unreachable()), llmtest.Answer("ok")},
			calls: 2, text: "ok", waste: "[]", tries: "none ok"},
		{name: "unreachable three times", steps: []llmtest.Step{llmtest.Fail(llmtest.Unreachable())},
			calls: 3, want: end{"provider_unreachable", "none", "auto"}, waste: "[]", tries: "none none none"},
		{name: "busy twice, then well", steps: []llmtest.Step{llmtest.Fail(llmtest.Refused(0)), llmtest.Fail(llmtest.Refused(0)), llmtest.Answer("ok")},
			calls: 3, text: "ok", waste: "[]", tries: "definite definite ok"},
		{name: "busy three times", steps: []llmtest.Step{llmtest.Fail(llmtest.Refused(0))},
			calls: 3, want: end{"provider_busy", "definite", "auto"}, waste: "[]", tries: "definite definite definite"},
		{name: "busy for over a minute", steps: []llmtest.Step{llmtest.Fail(llmtest.Refused(61 * time.Second)), llmtest.Answer("no")},
			calls: 1, want: end{"provider_busy", "definite", "auto"}, waste: "[]", tries: "definite"},
		{name: "denied", steps: []llmtest.Step{llmtest.Fail(llmtest.Denied()), llmtest.Answer("no")},
			calls: 1, want: end{"provider_refused", "definite", "explicit"}, waste: "[]", tries: "definite"},
		{name: "content refused", steps: []llmtest.Step{llmtest.Fail(&llm.Error{Outcome: chat.OutcomeDefinite, Code: "content_refused"}), llmtest.Answer("no")},
			calls: 1, want: end{"content_refused", "definite", "explicit"}, waste: "[]", tries: "definite"},
		{name: "an error frame after tokens", steps: []llmtest.Step{llmtest.Fail(llmtest.Denied(), "some ", "text"), llmtest.Answer("no")},
			calls: 1, want: end{"provider_refused", "definite", "explicit"}, text: "some text", waste: "[1]", tries: "definite"},
		{name: "busy after tokens", steps: []llmtest.Step{llmtest.Fail(llmtest.Refused(0), "some text"), llmtest.Answer("no")},
			calls: 1, want: end{"provider_busy", "definite", "explicit"}, text: "some text", waste: "[1]", tries: "definite"},
		{name: "line lost, rerun", steps: []llmtest.Step{llmtest.Fail(llmtest.Lost(), "some"), llmtest.Answer("ok")},
			calls: 2, text: "ok", waste: "[1]", tries: "unknown ok"},
		{name: "line lost, ask", ask: true, steps: []llmtest.Step{llmtest.Fail(llmtest.Lost(), "some"), llmtest.Answer("no")},
			calls: 1, want: end{"line_lost", "unknown", "explicit"}, text: "some", waste: "[1]", tries: "unknown"},
		{name: "line lost three times, rerun", steps: []llmtest.Step{llmtest.Fail(llmtest.Lost(), "some")},
			calls: 3, want: end{"line_lost", "unknown", "explicit"}, text: "some", waste: "[1 2 3]", tries: "unknown unknown unknown"},
		{name: "S27: the stream ends without its end", ask: true, steps: []llmtest.Step{llmtest.Fail(unknown("interrupted"), "half an ans"), llmtest.Answer("no")},
			calls: 1, want: end{"interrupted", "unknown", "explicit"}, text: "half an ans", waste: "[1]", tries: "unknown"},
		{name: "an error without a class", ask: true, steps: []llmtest.Step{llmtest.Fail(fmt.Errorf("boom")), llmtest.Answer("no")},
			calls: 1, want: end{"line_lost", "unknown", "explicit"}, waste: "[1]", tries: "unknown"},
		{name: "an outcome that is none", ask: true, steps: []llmtest.Step{llmtest.Fail(&llm.Error{Outcome: "perhaps", Code: "odd"}), llmtest.Answer("no")},
			calls: 1, want: end{"odd", "unknown", "explicit"}, waste: "[1]", tries: "unknown"},
		{name: "an error without a code", steps: []llmtest.Step{llmtest.Fail(&llm.Error{Outcome: chat.OutcomeDefinite}), llmtest.Answer("no")},
			calls: 1, want: end{"provider_error", "definite", "explicit"}, waste: "[]", tries: "definite"},
		{name: "the client panics, ask", ask: true, steps: []llmtest.Step{llmtest.Panic("boom"), llmtest.Answer("no")},
			calls: 1, want: end{"internal", "unknown", "explicit"}, waste: "[1]", tries: "unknown"},
		{name: "the client panics after text, rerun", steps: []llmtest.Step{llmtest.Then(llmtest.Panic("boom"), "some"), llmtest.Answer("ok")},
			calls: 2, text: "ok", waste: "[1]", tries: "unknown ok"},
		{name: "no first token, ask", ask: true, steps: []llmtest.Step{llmtest.Hang(), llmtest.Answer("no")},
			calls: 1, want: end{"first_token_timeout", "unknown", "explicit"}, waste: "[1]", tries: "unknown"},
		{name: "no first token, rerun", steps: []llmtest.Step{llmtest.Hang(), llmtest.Answer("ok")},
			calls: 2, text: "ok", waste: "[1]", tries: "unknown ok"},
		{name: "silence after text, ask", ask: true, steps: []llmtest.Step{llmtest.Hang("some"), llmtest.Answer("no")},
			calls: 1, want: end{"idle_timeout", "unknown", "explicit"}, text: "some", waste: "[1]", tries: "unknown"},
		{name: "a slow answer is no silence", ask: true, steps: []llmtest.Step{llmtest.Paced(119*time.Second, "a", "b", "c")},
			calls: 1, text: "abc", waste: "[]", tries: "ok"},
		{name: "a late first token is no silence", ask: true, steps: []llmtest.Step{llmtest.Paced(299*time.Second, "a")},
			calls: 1, text: "a", waste: "[]", tries: "ok"},
		{name: "an empty answer", steps: []llmtest.Step{llmtest.Answer()}, calls: 1, text: "", waste: "[]", tries: "ok"},
		{name: "an answer cut by a limit", steps: []llmtest.Step{llmtest.Finish(chat.FinishLength, "cut")}, calls: 1, text: "cut", waste: "[]", tries: "ok"},
		{name: "a filtered answer", steps: []llmtest.Step{llmtest.Finish(chat.FinishFiltered, "fil")}, calls: 1, text: "fil", waste: "[]", tries: "ok"},
		// Whatever a client thinks of: not asked again, and not for ever generating.
		{name: "an end that the database does not know", steps: []llmtest.Step{llmtest.Finish("exploded", "text"), llmtest.Answer("no")},
			calls: 1, want: end{"internal", "unknown", "explicit"}, text: "text", waste: "[1]", tries: "unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				change := rarely
				if tt.ask {
					change = func(o *engine.Options) { asks(o); rarely(o) }
				}
				r := newRig(t, change, tt.steps...)
				id := r.say("hello")
				if tt.want.code == "" {
					r.answered(id, tt.text)
				} else if rec := r.failed(id, tt.want.code, tt.want.outcome, tt.want.retry); rec.Content != tt.text {
					t.Errorf("partial text: got %q, want %q", rec.Content, tt.text)
				}
				r.pass(time.Hour) // nothing more happens by itself
				r.calls(tt.calls)
				if got := fmt.Sprint(r.waste(id)); got != tt.waste {
					t.Errorf("waste: got %s, want %s", got, tt.waste)
				}
				var tries []string
				for _, a := range r.receipt(id).Attempts {
					tries = append(tries, string(a.Outcome))
				}
				if got := strings.Join(tries, " "); got != tt.tries {
					t.Errorf("attempts: got %s, want %s", got, tt.tries)
				}
			})
		})
	}
}

// B10: silence ends, and not before its time.
func TestTimeoutsAreKeptToTheSecond(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step llmtest.Step
		want time.Duration
	}{
		{"first token", llmtest.Hang(), 300 * time.Second},
		{"idle", llmtest.Hang("text"), 120 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, asks, tt.step)
				began := time.Now()
				r.end(r.say("hello"))
				if took := time.Since(began); took < tt.want || took > tt.want+2*time.Second {
					t.Errorf("the attempt ended after %s, want %s", took, tt.want)
				}
			})
		})
	}
}

func TestTheEngineWaitsAsLongAsItIsAskedTo(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{10 * time.Second, 60 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil, llmtest.Fail(llmtest.Refused(after)), llmtest.Answer("ok"))
			id := r.say("hello")
			began := time.Now()
			r.answered(id, "ok")
			if took := time.Since(began); took < after || took > after+time.Second {
				t.Errorf("the retry came after %s, want %s", took, after)
			}
		})
	}
}

// Full jitter: anywhere between nothing and twice as much each time.
func TestBackoffStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *engine.Options) { o.Models[0].MaxAttempts = 12 }, llmtest.Fail(llmtest.Unreachable()))
		for range 4 {
			r.session = newID()
			id := r.say("hello")
			r.end(id)
			attempts := r.receipt(id).Attempts
			if len(attempts) != 12 {
				t.Fatalf("%d attempts, want 12", len(attempts))
			}
			for i := 1; i < len(attempts); i++ {
				most := min(time.Second<<(i-1), time.Minute)
				if wait := attempts[i].StartedAt.Sub(attempts[i-1].EndedAt); wait < 0 || wait > most+2*time.Millisecond {
					t.Errorf("wait %d was %s, want at most %s", i, wait, most)
				}
			}
		}
	})
}

func TestAnInsaneUsageCountNeverBecomesACredit(t *testing.T) {
	t.Parallel()
	for _, u := range []chat.Usage{
		{InputTokens: -5, OutputTokens: -1, CachedTokens: -7},
		{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, CachedTokens: math.MaxInt64},
		{InputTokens: 10, CachedTokens: 20},
		{InputTokens: math.MinInt64, CachedTokens: math.MaxInt64},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil, func(_ context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
				emit(llm.Piece{Text: "ok"})
				return llm.Answer{Content: "ok", Finish: chat.FinishStop, Usage: u}, nil
			})
			rec := r.answered(r.say("hello"), "ok")
			if g := *rec.Usage; g.InputTokens < 0 || g.OutputTokens < 0 || g.CachedTokens < 0 || g.CachedTokens > g.InputTokens || rec.Cost.Micros < 0 {
				t.Errorf("usage %+v cost %+v", g, rec.Cost)
			}
		})
	}
}

func TestTheChargeIsTheFrozenPriceOfTheUsage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := chat.Usage{InputTokens: 1000, CachedTokens: 400, OutputTokens: 77}
		r := newRig(t, nil, func(context.Context, llm.Call, func(llm.Piece)) (llm.Answer, error) {
			return llm.Answer{Content: "ok", Finish: chat.FinishStop, Usage: u}, nil
		})
		rec := r.answered(r.say("hello"), "ok")
		if want := dbtest.DemoPrice.Cost(u); rec.Cost.Micros != want || *rec.Usage != u {
			t.Errorf("cost %d usage %+v, want %d %+v", rec.Cost.Micros, rec.Usage, want, u)
		}
	})
}

// The partial text of an attempt that is not used is not the next one's.
func TestARetryStartsFromNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Then(llmtest.Hang(), "first try"), llmtest.Paced(20*time.Second, "second", " try"))
		id := r.say("hello")
		r.pass(125 * time.Second) // idle; the second attempt has begun, with nothing yet
		l := r.live(id)
		if v := l.View(); v.Request.Attempt != 2 || len(v.Text) != 0 {
			t.Fatalf("attempt %d with %q", v.Request.Attempt, v.Text)
		}
		if rec := r.record(id); rec.Content != "" || rec.Attempt != 2 {
			t.Errorf("record: attempt %d %q", rec.Attempt, rec.Content)
		}
		r.answered(id, "second try")
		if rc := r.receipt(id); rc.Attempts[1].Reason != "rerun" {
			t.Errorf("attempts: %+v", rc.Attempts)
		}
	})
}

func TestPartialTextReachesTheDatabaseEverySecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Paced(300*time.Millisecond, strings.Split(strings.Repeat("x", 40), "")...))
		id := r.say("hello")
		for range 10 {
			r.pass(time.Second)
			stored := len(r.record(id).Content)
			if l := r.e.Live(r.request(id).ID); l != nil && len(l.View().Text)-stored > 4 {
				t.Errorf("%d bytes are not stored", len(l.View().Text)-stored)
			}
		}
		r.answered(id, strings.Repeat("x", 40))
	})
}
