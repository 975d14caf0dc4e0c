package llm

import (
	"context"
	"fmt"
	"strings"

	"semel/chat"
)

// maxAnswerBytes bounds an answer, reasoning and arguments of actions included:
// far above what a model gives, and below what would hurt the server.
const maxAnswerBytes = 16 << 20

// A collector puts an answer together from its pieces and hands each on.
type collector struct {
	call            Call
	emit            func(Piece)
	text, reasoning strings.Builder
	tools           []ToolCall
	size            int
	finish          chat.Finish
	usage           chat.Usage
	counted         bool // usage is the provider's
	upstream        string
}

// add appends a piece of the answer.
func (c *collector) add(p Piece) error {
	if p.Text == "" && p.Reasoning == "" {
		return nil
	}
	if err := c.grow(len(p.Text) + len(p.Reasoning)); err != nil {
		return err
	}
	c.text.WriteString(p.Text)
	c.reasoning.WriteString(p.Reasoning)
	c.emit(p)
	return nil
}

// grow counts n more bytes of an answer.
func (c *collector) grow(n int) error {
	if c.size += n; c.size > maxAnswerBytes {
		return tooLong()
	}
	return nil
}

func tooLong() *Error {
	return &Error{Outcome: chat.OutcomeDefinite, Code: "answer_too_long",
		Detail: fmt.Sprintf("The answer was cut: it exceeds %d MiB.", maxAnswerBytes>>20)}
}

// begun reports whether anything of the answer came.
func (c *collector) begun() bool { return c.size > 0 || len(c.tools) > 0 }

// answer returns what was collected. What a provider did not count is estimated.
func (c *collector) answer() Answer {
	a := Answer{
		Content: c.text.String(), Reasoning: c.reasoning.String(), Finish: c.finish,
		ToolCalls: c.tools, Usage: c.usage, UpstreamID: c.upstream,
	}
	switch {
	case len(a.ToolCalls) > 0 && a.Finish == chat.FinishStop:
		a.Finish = chat.FinishTool // some providers say "stop" for it
	case len(a.ToolCalls) == 0 && a.Finish == chat.FinishTool:
		a.Finish = chat.FinishStop // it asks for nothing
	}
	if !c.counted {
		a.Usage = Estimate(c.call, a.Content, a.Reasoning)
		for _, t := range a.ToolCalls {
			a.Usage.OutputTokens += chat.EstimateTokens(t.Name) + chat.EstimateTokens(t.Arguments)
		}
	}
	return a
}

// Estimate counts what a call cost, or may have cost, where a provider did not
// say: by [chat.EstimateTokens] over everything sent and received.
func Estimate(c Call, text, reasoning string) chat.Usage {
	u := chat.Usage{Estimated: true, OutputTokens: chat.EstimateTokens(text) + chat.EstimateTokens(reasoning)}
	for _, t := range c.Turns {
		u.InputTokens += t.tokens()
	}
	return u
}

// tokens estimates a turn with all that came with it.
func (t Turn) tokens() int64 {
	n := chat.EstimateTokens(t.Content)
	for _, f := range t.Files {
		n += f.Tokens
	}
	return n
}

// lost classifies the end of a stream that had no end mark. When ctx ended it was
// we who closed the line.
func lost(ctx context.Context, err error) *Error {
	if cause := ctx.Err(); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return lineLost(err)
}
