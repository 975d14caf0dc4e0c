package oracle

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/respjson"
	"github.com/openai/openai-go/v3/responses"

	"semel/chat"
	"semel/llm"
)

// openaiOptions point the library at a base address without a version. Its services
// are made one by one, because openai.NewClient reads the environment.
func openaiOptions(base string) []option.RequestOption {
	return []option.RequestOption{option.WithBaseURL(base + "/v1"), option.WithAPIKey(testKey), option.WithMaxRetries(0)}
}

// readChat reads a chat completion.
func readChat(ctx context.Context, base string, stream bool) (heard, error) {
	service := openai.NewChatCompletionService(openaiOptions(base)...)
	params := openai.ChatCompletionNewParams{Model: "model-a", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")}}
	if !stream {
		c, err := service.New(ctx, params)
		switch {
		case err != nil:
			return heard{}, err
		case len(c.Choices) == 0:
			return heard{}, errors.New("no choice")
		}
		reasoning, err := extraReasoning(c.Choices[0].Message.JSON.ExtraFields)
		return chatHeard(*c, reasoning), err
	}
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	chunks := service.NewStreaming(ctx, params)
	defer chunks.Close()
	var all openai.ChatCompletionAccumulator
	var reasoning strings.Builder
	for chunks.Next() {
		c := chunks.Current()
		if !all.AddChunk(c) {
			return heard{}, errors.New("a chunk is not accepted: " + c.RawJSON())
		}
		if len(c.Choices) > 0 {
			text, err := extraReasoning(c.Choices[0].Delta.JSON.ExtraFields)
			if err != nil {
				return heard{}, err
			}
			reasoning.WriteString(text)
		}
	}
	if err := chunks.Err(); err != nil {
		return heard{}, err
	}
	return chatHeard(all.ChatCompletion, reasoning.String()), nil
}

// extraReasoning returns the reasoning, which the library keeps only as a field that
// it does not know.
func extraReasoning(extra map[string]respjson.Field) (text string, err error) {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if raw := extra[name].Raw(); raw != "" && raw != "null" {
			return text, json.Unmarshal([]byte(raw), &text)
		}
	}
	return "", nil
}

func chatHeard(c openai.ChatCompletion, reasoning string) heard {
	h := heard{reasoning: reasoning, upstream: c.ID, usage: chat.Usage{
		InputTokens: c.Usage.PromptTokens, CachedTokens: c.Usage.PromptTokensDetails.CachedTokens, OutputTokens: c.Usage.CompletionTokens,
	}}
	if len(c.Choices) == 0 {
		return h
	}
	m := c.Choices[0].Message
	h.text = m.Content + m.Refusal
	for _, t := range m.ToolCalls {
		h.tools = append(h.tools, llm.ToolCall{ID: t.ID, Name: t.Function.Name, Arguments: t.Function.Arguments})
	}
	h.finish = map[string]chat.Finish{
		"stop": chat.FinishStop, "length": chat.FinishLength, "content_filter": chat.FinishFiltered, "tool_calls": chat.FinishTool,
	}[c.Choices[0].FinishReason]
	if m.Refusal != "" {
		h.finish = chat.FinishFiltered
	}
	return h
}

// readResponses reads an OpenAI response. Of a stream the library gives events of
// one kind and has an accumulator for those of another, which are the same JSON.
func readResponses(ctx context.Context, base string, stream bool) (heard, error) {
	service := responses.NewResponseService(openaiOptions(base)...)
	params := responses.ResponseNewParams{Model: "model-a", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Hello")}}
	if !stream {
		r, err := service.New(ctx, params)
		if err != nil {
			return heard{}, err
		}
		return responseHeard(*r)
	}
	events := service.NewStreaming(ctx, params)
	defer events.Close()
	var all responses.ResponseAccumulator
	for all.Snapshot().TerminalEvent == "" && events.Next() {
		var e responses.ResponsesServerEventUnion
		if err := json.Unmarshal([]byte(events.Current().RawJSON()), &e); err != nil {
			return heard{}, err
		}
		if err := all.AddEvent(e); err != nil {
			return heard{}, err
		}
	}
	if err := events.Err(); err != nil {
		return heard{}, err
	}
	r, err := all.ReconstructedResponse()
	if err != nil {
		return heard{}, err
	}
	return responseHeard(*r)
}

func responseHeard(r responses.Response) (heard, error) {
	h := heard{text: r.OutputText(), upstream: r.ID, usage: chat.Usage{
		InputTokens: r.Usage.InputTokens, CachedTokens: r.Usage.InputTokensDetails.CachedTokens, OutputTokens: r.Usage.OutputTokens,
	}}
	var thoughts []string
	var refused bool
	for _, item := range r.Output {
		switch v := item.AsAny().(type) {
		case responses.ResponseOutputMessage:
			for _, part := range v.Content {
				h.text += part.Refusal
				refused = refused || part.Refusal != ""
			}
		case responses.ResponseReasoningItem:
			for _, p := range v.Summary {
				thoughts = append(thoughts, p.Text)
			}
			for _, p := range v.Content {
				thoughts = append(thoughts, p.Text)
			}
		case responses.ResponseFunctionToolCall:
			h.tools = append(h.tools, llm.ToolCall{ID: v.CallID, Name: v.Name, Arguments: v.Arguments})
		}
	}
	h.reasoning = strings.Join(thoughts, "\n\n")
	switch {
	case r.Status == responses.ResponseStatusFailed || r.Status == responses.ResponseStatusCancelled:
		return heard{}, errTold
	case refused || r.Status == responses.ResponseStatusIncomplete && r.IncompleteDetails.Reason == "content_filter":
		h.finish = chat.FinishFiltered
	case r.Status == responses.ResponseStatusIncomplete && r.IncompleteDetails.Reason == "max_output_tokens":
		h.finish = chat.FinishLength
	case r.Status == responses.ResponseStatusCompleted && len(h.tools) > 0:
		h.finish = chat.FinishTool
	case r.Status == responses.ResponseStatusCompleted:
		h.finish = chat.FinishStop
	}
	return h, nil
}
