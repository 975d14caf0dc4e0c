package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"semel/chat"
)

// anthropicWire is the format of Anthropic's Messages. Its shapes are those of
// https://platform.claude.com/docs/en/build-with-claude/streaming, of
// https://platform.claude.com/docs/en/api/errors and of the types in
// github.com/anthropics/anthropic-sdk-python (src/anthropic/types/raw_*_event.py,
// usage.py, message_delta_usage.py, stop_reason.py).
type anthropicWire struct{}

type anthropicMessage struct {
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	Role         string           `json:"role"`
	Model        string           `json:"model"`
	Content      []map[string]any `json:"content"`
	StopReason   *string          `json:"stop_reason"`
	StopSequence *string          `json:"stop_sequence"`
	Usage        map[string]any   `json:"usage,omitempty"`
}

func (anthropicWire) path() string { return "/messages" }

func (anthropicWire) read(c *call, header http.Header, body []byte) error {
	var in struct {
		Model     string            `json:"model"`
		MaxTokens int64             `json:"max_tokens"`
		Messages  []json.RawMessage `json:"messages"`
		Stream    bool              `json:"stream"`
	}
	if header.Get("Anthropic-Version") == "" {
		return errors.New("anthropic-version: header is required")
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("the request body is not valid JSON: %w", err)
	}
	switch {
	case in.Model == "":
		return errors.New("model: Field required")
	case in.MaxTokens < 1:
		return errors.New("max_tokens: Field required")
	case len(in.Messages) == 0:
		return errors.New("messages: at least one message is required")
	}
	if _, err := Seen(Anthropic, body); err != nil {
		return err
	}
	c.id = fmt.Sprintf("msg_%d", c.number)
	c.model, c.stream = in.Model, in.Stream
	return nil
}

func (anthropicWire) frames(c *call) []frame {
	var frames []frame
	add := func(k kind, event string, doc map[string]any) {
		doc["type"] = event
		frames = append(frames, frame{event: event, data: encode(doc), kind: k})
	}
	index := 0
	// block adds a block of the answer: its empty form, its deltas, its end.
	block := func(empty map[string]any, deltaType, field string, pieces []string, last map[string]any) {
		add(around, "content_block_start", map[string]any{"index": index, "content_block": empty})
		if index == 0 {
			add(around, "ping", map[string]any{})
		}
		for _, p := range pieces {
			add(piece, "content_block_delta", map[string]any{"index": index, "delta": map[string]any{"type": deltaType, field: p}})
		}
		if last != nil {
			add(around, "content_block_delta", map[string]any{"index": index, "delta": last})
		}
		add(around, "content_block_stop", map[string]any{"index": index})
		index++
	}

	start := anthropicMessage{ID: c.id, Type: "message", Role: "assistant", Model: c.model, Content: []map[string]any{}}
	if !c.NoUsage {
		start.Usage = c.anthropicUsage(min(1, c.Usage.OutputTokens)) // what is not said yet is not counted
	}
	add(around, "message_start", map[string]any{"message": start})
	if len(c.Reasoning) > 0 {
		block(map[string]any{"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking", c.Reasoning,
			map[string]any{"type": "signature_delta", "signature": anthropicSignature})
	}
	if len(c.Text) > 0 {
		block(map[string]any{"type": "text", "text": ""}, "text_delta", "text", c.Text, nil)
	}
	for _, t := range c.Tools {
		block(map[string]any{"type": "tool_use", "id": t.ID, "name": t.Name, "input": map[string]any{}}, "input_json_delta", "partial_json", fragments(t.Arguments), nil)
	}

	n := len(frames)
	delta := map[string]any{"delta": map[string]any{"stop_reason": c.anthropicStop(), "stop_sequence": nil}}
	if !c.NoUsage {
		delta["usage"] = map[string]any{"output_tokens": c.Usage.OutputTokens}
	}
	add(ending, "message_delta", delta)
	if !c.NoDone {
		add(ending, "message_stop", map[string]any{})
	}
	if c.DoubleEnd {
		frames = append(frames, frames[n:]...)
	}
	return frames
}

// anthropicSignature stands for the proof that comes with a thinking block.
const anthropicSignature = "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"

func (anthropicWire) whole(c *call) any {
	m := anthropicMessage{ID: c.id, Type: "message", Role: "assistant", Model: c.model, Content: []map[string]any{}, StopReason: c.anthropicStop()}
	if len(c.Reasoning) > 0 {
		m.Content = append(m.Content, map[string]any{"type": "thinking", "thinking": join(c.Reasoning), "signature": anthropicSignature})
	}
	if len(c.Text) > 0 {
		m.Content = append(m.Content, map[string]any{"type": "text", "text": join(c.Text)})
	}
	for _, t := range c.Tools {
		var input any = t.Arguments // where the model gave no JSON
		if json.Valid([]byte(t.Arguments)) {
			input = json.RawMessage(t.Arguments)
		}
		m.Content = append(m.Content, map[string]any{"type": "tool_use", "id": t.ID, "name": t.Name, "input": input})
	}
	if !c.NoUsage {
		m.Usage = c.anthropicUsage(c.Usage.OutputTokens)
	}
	return m
}

// anthropicUsage words a count. Here the three counts of input add up: what was
// read from the cache or written to it is not among input_tokens.
func (c *call) anthropicUsage(output int64) map[string]any {
	return map[string]any{
		"input_tokens":                c.Usage.InputTokens - c.Usage.CachedTokens - c.CacheWrites,
		"cache_creation_input_tokens": c.CacheWrites,
		"cache_read_input_tokens":     c.Usage.CachedTokens,
		"output_tokens":               output,
	}
}

func (c *call) anthropicStop() *string {
	if c.NoFinish {
		return nil
	}
	reason := map[chat.Finish]string{chat.FinishLength: "max_tokens", chat.FinishFiltered: "refusal", chat.FinishTool: "tool_use"}[c.Finish]
	if reason == "" {
		reason = "end_turn"
	}
	return &reason
}

func (anthropicWire) failure(f Failure) any {
	if f.Type == "" {
		f.Type = map[int]string{
			401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
			429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
		}[f.status()]
	}
	if f.Type == "" && f.status() < 500 {
		f.Type = "invalid_request_error"
	}
	if f.Type == "" {
		f.Type = "api_error"
	}
	return map[string]any{"type": "error", "error": map[string]any{"type": f.Type, "message": f.message()}, "request_id": "req_semel"}
}

func (w anthropicWire) errorFrame(_ *call, f Failure, _ int) frame {
	return frame{event: "error", data: encode(w.failure(f)), kind: ending}
}

func (anthropicWire) models(names []string) any {
	list := []map[string]any{}
	for _, n := range names {
		list = append(list, map[string]any{"type": "model", "id": n, "display_name": n, "created_at": "2025-01-01T00:00:00Z"})
	}
	return map[string]any{"data": list, "has_more": false, "first_id": names[0], "last_id": names[len(names)-1]}
}
