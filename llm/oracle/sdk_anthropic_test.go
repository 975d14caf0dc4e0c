package oracle

import (
	"context"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"semel/chat"
	"semel/llm"
)

// anthropicOptions point the library at a base address without a version, which it
// adds itself.
func anthropicOptions(base string) []option.RequestOption {
	return []option.RequestOption{option.WithBaseURL(base), option.WithAPIKey(testKey), option.WithMaxRetries(0)}
}

// readAnthropic reads a message.
func readAnthropic(ctx context.Context, base string, stream bool) (heard, error) {
	service := anthropic.NewMessageService(anthropicOptions(base)...)
	params := anthropic.MessageNewParams{
		Model: "model-a", MaxTokens: 1024,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hello"))},
	}
	if !stream {
		m, err := service.New(ctx, params)
		if err != nil {
			return heard{}, err
		}
		return anthropicHeard(*m), nil
	}
	events := service.NewStreaming(ctx, params)
	defer events.Close()
	var m anthropic.Message
	for events.Next() {
		if err := m.Accumulate(events.Current()); err != nil {
			return heard{}, err
		}
	}
	if err := events.Err(); err != nil {
		return heard{}, err
	}
	return anthropicHeard(m), nil
}

func anthropicHeard(m anthropic.Message) heard {
	u := m.Usage
	h := heard{upstream: m.ID, usage: chat.Usage{
		InputTokens:  u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens,
		CachedTokens: u.CacheReadInputTokens, OutputTokens: u.OutputTokens,
	}}
	for _, b := range m.Content {
		switch v := b.AsAny().(type) {
		case anthropic.TextBlock:
			h.text += v.Text
		case anthropic.ThinkingBlock:
			h.reasoning += v.Thinking
		case anthropic.ToolUseBlock:
			h.tools = append(h.tools, llm.ToolCall{ID: v.ID, Name: v.Name, Arguments: string(v.Input)})
		}
	}
	h.finish = map[anthropic.StopReason]chat.Finish{
		anthropic.StopReasonEndTurn:                    chat.FinishStop,
		anthropic.StopReasonStopSequence:               chat.FinishStop,
		anthropic.StopReasonToolUse:                    chat.FinishTool,
		anthropic.StopReasonMaxTokens:                  chat.FinishLength,
		anthropic.StopReasonModelContextWindowExceeded: chat.FinishLength,
		anthropic.StopReasonPauseTurn:                  chat.FinishLength, // there would be more
		anthropic.StopReasonRefusal:                    chat.FinishFiltered,
	}[m.StopReason]
	return h
}
