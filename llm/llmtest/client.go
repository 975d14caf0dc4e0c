// Package llmtest has model clients that do as they are told.
package llmtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"semel/chat"
	"semel/llm"
)

// A Step is what one call does.
type Step func(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error)

// A Client plays its steps in order, one a call; the last one is played again and
// again. It remembers every call. It is safe for use by many goroutines at once.
type Client struct {
	mu    sync.Mutex
	steps []Step
	calls []llm.Call
}

var _ llm.Client = (*Client)(nil)

// New returns a client that plays these steps.
func New(steps ...Step) *Client {
	if len(steps) == 0 {
		panic("llmtest: a client without steps")
	}
	return &Client{steps: steps}
}

// Play forgets the calls so far and plays these steps from now on.
func (c *Client) Play(steps ...Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps, c.calls = steps, nil
}

// Stream implements [llm.Client].
func (c *Client) Stream(ctx context.Context, call llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	c.mu.Lock()
	step := c.steps[min(len(c.calls), len(c.steps)-1)]
	c.calls = append(c.calls, call)
	c.mu.Unlock()
	return step(ctx, call, emit)
}

// Calls returns the calls so far, in order.
func (c *Client) Calls() []llm.Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]llm.Call(nil), c.calls...)
}

// Count returns how many calls there were.
func (c *Client) Count() int { return len(c.Calls()) }

// Answer answers with these pieces at once and is done.
func Answer(pieces ...string) Step { return Paced(0, pieces...) }

// Paced answers with these pieces, each after a pause, and is done.
func Paced(pause time.Duration, pieces ...string) Step {
	return func(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
		text, err := play(ctx, pause, pieces, emit)
		if err != nil {
			return llm.Answer{}, err
		}
		return answer(c, text, chat.FinishStop), nil
	}
}

// Finish answers with text at once, ended for the given reason.
func Finish(f chat.Finish, text string) Step {
	return func(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
		emit(llm.Piece{Text: text})
		return answer(c, text, f), nil
	}
}

// Fail fails with err after these pieces.
func Fail(err error, pieces ...string) Step {
	return func(ctx context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
		if _, perr := play(ctx, 0, pieces, emit); perr != nil {
			return llm.Answer{}, perr
		}
		return llm.Answer{}, err
	}
}

// Hang gives these pieces, then nothing until it is cancelled.
func Hang(pieces ...string) Step {
	return func(ctx context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
		if _, err := play(ctx, 0, pieces, emit); err != nil {
			return llm.Answer{}, err
		}
		<-ctx.Done()
		return llm.Answer{}, fmt.Errorf("cancelled: %w", ctx.Err())
	}
}

// Until plays step once gate is closed, cancelled or not: it is deaf until then.
func Until(gate <-chan struct{}, step Step) Step {
	return func(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
		<-gate
		return step(context.WithoutCancel(ctx), c, emit)
	}
}

// Then gives these pieces and goes on with step; its answer begins with them.
func Then(step Step, pieces ...string) Step {
	return func(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
		text, err := play(ctx, 0, pieces, emit)
		if err != nil {
			return llm.Answer{}, err
		}
		a, err := step(ctx, c, emit)
		a.Content = text + a.Content
		return a, err
	}
}

// Panic panics with v.
func Panic(v any) Step {
	return func(context.Context, llm.Call, func(llm.Piece)) (llm.Answer, error) { panic(v) }
}

// Refused is a provider that has no capacity now.
func Refused(after time.Duration) *llm.Error {
	return &llm.Error{Outcome: chat.OutcomeDefinite, Transient: true, Status: 429, RetryAfter: after, Code: "provider_busy", Detail: "Busy."}
}

// Unreachable is a provider that never got the prompt.
func Unreachable() *llm.Error {
	return &llm.Error{Outcome: chat.OutcomeNone, Code: "provider_unreachable", Detail: "No connection."}
}

// Lost is a line that died after the prompt was written.
func Lost() *llm.Error {
	return &llm.Error{Outcome: chat.OutcomeUnknown, Code: "line_lost", Detail: "The line was lost."}
}

// Denied is a provider that will never run this call.
func Denied() *llm.Error {
	return &llm.Error{Outcome: chat.OutcomeDefinite, Status: 400, Code: "provider_refused", Detail: "Denied."}
}

func play(ctx context.Context, pause time.Duration, pieces []string, emit func(llm.Piece)) (text string, err error) {
	for _, p := range pieces {
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return text, fmt.Errorf("cancelled: %w", ctx.Err())
		}
		emit(llm.Piece{Text: p})
		text += p
	}
	return text, nil
}

func answer(c llm.Call, text string, f chat.Finish) llm.Answer {
	a := llm.Answer{Content: text, Finish: f, UpstreamID: fmt.Sprintf("test-%s-%d", c.RequestID, c.Attempt)}
	for _, t := range c.Turns {
		a.Usage.InputTokens += chat.EstimateTokens(t.Content)
		for _, f := range t.Files {
			a.Usage.InputTokens += f.Tokens
		}
	}
	a.Usage.OutputTokens = chat.EstimateTokens(text)
	return a
}
