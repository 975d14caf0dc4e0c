package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"semel/chat"
)

// chatWire is the format of OpenAI's chat completions. Its shapes are those of
// https://platform.openai.com/docs/api-reference/chat-streaming/streaming and of
// the types that github.com/openai/openai-python generates from the same
// description (src/openai/types/chat/chat_completion_chunk.py).
type chatWire struct{}

type chatCompletion struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	Created           int64           `json:"created"`
	Model             string          `json:"model"`
	SystemFingerprint string          `json:"system_fingerprint"`
	Choices           []chatChoice    `json:"choices"`
	Usage             json.RawMessage `json:"usage,omitempty"`
}

type chatChoice struct {
	Index   int     `json:"index"`
	Delta   any     `json:"delta,omitempty"` // left out when nil, not when empty
	Message any     `json:"message,omitempty"`
	Finish  *string `json:"finish_reason"`
}

type chatTool struct {
	Index    *int         `json:"index,omitempty"` // in deltas only
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

func (chatWire) path() string { return "/chat/completions" }

func (chatWire) read(c *call, _ http.Header, body []byte) error {
	var in struct {
		Model         string            `json:"model"`
		Messages      []json.RawMessage `json:"messages"`
		Stream        bool              `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("we could not parse the JSON body of your request: %w", err)
	}
	if in.Model == "" {
		return errors.New("you must provide a model parameter")
	}
	if len(in.Messages) == 0 {
		return errors.New("missing required parameter: 'messages'")
	}
	if _, err := Seen(Chat, body); err != nil {
		return err
	}
	c.id = fmt.Sprintf("chatcmpl-%d", c.number)
	c.model, c.stream, c.includeUsage = in.Model, in.Stream, in.StreamOptions.IncludeUsage
	return nil
}

func (chatWire) frames(c *call) []frame {
	doc := chatCompletion{ID: c.id, Object: "chat.completion.chunk", Created: c.created, Model: c.model, SystemFingerprint: "fp_semel"}
	if c.AsOllama {
		doc.SystemFingerprint = "fp_ollama"
	}
	if c.includeUsage && !c.AsOllama && !c.UsageInFinish {
		doc.Usage = json.RawMessage("null") // in every chunk but the one that has it
	}
	var frames []frame
	add := func(k kind, delta map[string]any, finish *string) {
		if c.AsOllama {
			delta["role"] = "assistant"
			if delta["content"] == nil {
				delta["content"] = ""
			}
		}
		doc.Choices = []chatChoice{{Delta: delta, Finish: finish}}
		frames = append(frames, frame{data: encode(doc), kind: k})
	}
	if !c.AsOllama {
		add(around, map[string]any{"role": "assistant", "content": ""}, nil)
	}
	for _, p := range c.Reasoning {
		add(piece, map[string]any{c.reasoningField(): p}, nil)
	}
	for _, p := range c.Text {
		add(piece, map[string]any{"content": p}, nil)
	}
	for i, t := range c.Tools {
		tool := chatTool{Index: &i, ID: t.ID, Type: "function", Function: chatFunction{Name: t.Name}}
		if c.AsOllama {
			tool.Function.Arguments = t.Arguments
			add(piece, map[string]any{"tool_calls": []chatTool{tool}}, nil)
			continue
		}
		add(around, map[string]any{"tool_calls": []chatTool{tool}}, nil)
		for _, p := range fragments(t.Arguments) {
			add(piece, map[string]any{"tool_calls": []chatTool{{Index: &i, Function: chatFunction{Arguments: p}}}}, nil)
		}
	}

	n := len(frames)
	if c.UsageInFinish && !c.NoUsage {
		doc.Usage = chatUsage(*c.Usage)
	}
	if !c.NoFinish || c.AsOllama || c.UsageInFinish {
		add(ending, map[string]any{}, c.chatFinish())
	}
	if c.includeUsage && !c.NoUsage && !c.UsageInFinish {
		doc.Choices, doc.Usage = []chatChoice{}, chatUsage(*c.Usage)
		frames = append(frames, frame{data: encode(doc), kind: ending})
	}
	if !c.NoDone {
		frames = append(frames, frame{data: []byte("[DONE]"), kind: ending})
	}
	if c.DoubleEnd {
		frames = append(frames, frames[n:]...)
	}
	return frames
}

func (chatWire) whole(c *call) any {
	message := map[string]any{"role": "assistant", "content": nil, "refusal": nil}
	if text := join(c.Text); text != "" || len(c.Tools) == 0 {
		message["content"] = text
	}
	if len(c.Reasoning) > 0 {
		message[c.reasoningField()] = join(c.Reasoning)
	}
	var tools []chatTool
	for _, t := range c.Tools {
		tools = append(tools, chatTool{ID: t.ID, Type: "function", Function: chatFunction{Name: t.Name, Arguments: t.Arguments}})
	}
	if tools != nil {
		message["tool_calls"] = tools
	}
	doc := chatCompletion{
		ID: c.id, Object: "chat.completion", Created: c.created, Model: c.model, SystemFingerprint: "fp_semel",
		Choices: []chatChoice{{Message: message, Finish: c.chatFinish()}},
	}
	if !c.NoUsage {
		doc.Usage = chatUsage(*c.Usage)
	}
	return doc
}

func (c *call) reasoningField() string {
	if c.ReasoningField != "" {
		return c.ReasoningField
	}
	return "reasoning_content"
}

func (c *call) chatFinish() *string {
	if c.NoFinish {
		return nil
	}
	reason := map[chat.Finish]string{
		chat.FinishLength: "length", chat.FinishFiltered: "content_filter", chat.FinishTool: "tool_calls",
	}[c.Finish]
	if reason == "" {
		reason = "stop"
	}
	return &reason
}

// chatUsage words a count. Cached tokens are among those of the prompt.
func chatUsage(u chat.Usage) json.RawMessage {
	return encode(map[string]any{
		"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens,
		"prompt_tokens_details":     map[string]any{"cached_tokens": u.CachedTokens},
		"completion_tokens_details": map[string]any{"reasoning_tokens": 0},
	})
}

func (chatWire) failure(f Failure) any { return openAIFailure(f) }

// errorFrame is what OpenAI and those who imitate it send: a chunk that is an
// error (openai-python, src/openai/_streaming.py looks for data["error"]).
func (chatWire) errorFrame(_ *call, f Failure, _ int) frame {
	return frame{data: encode(openAIFailure(f)), kind: ending}
}

func (chatWire) models(names []string) any { return openAIModels(names) }

// openAIFailure is the form of
// https://platform.openai.com/docs/guides/error-codes/api-errors.
func openAIFailure(f Failure) any {
	if f.Type == "" {
		f.Type = map[int]string{400: "invalid_request_error", 401: "invalid_request_error", 404: "invalid_request_error", 429: "requests"}[f.status()]
	}
	if f.Type == "" {
		f.Type = "server_error"
	}
	if f.Code == "" {
		f.Code = map[int]string{401: "invalid_api_key", 429: "rate_limit_exceeded"}[f.status()]
	}
	var code any
	if f.Code != "" {
		code = f.Code
	}
	return map[string]any{"error": map[string]any{"message": f.message(), "type": f.Type, "param": nil, "code": code}}
}

func openAIModels(names []string) any {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	list := []model{}
	for _, n := range names {
		list = append(list, model{ID: n, Object: "model", Created: 1_700_000_000, OwnedBy: "semel"})
	}
	return map[string]any{"object": "list", "data": list}
}
