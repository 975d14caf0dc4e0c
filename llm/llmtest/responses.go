package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"semel/chat"
)

// responsesWire is the format of OpenAI's Responses. Its shapes are those of
// https://platform.openai.com/docs/api-reference/responses-streaming, of
// https://developers.openai.com/api/docs/guides/background and of the types in
// github.com/openai/openai-python (src/openai/types/responses/response_*_event.py,
// response.py, response_usage.py, response_error.py).
type responsesWire struct{}

func (responsesWire) path() string { return "/responses" }

func (responsesWire) read(c *call, _ http.Header, body []byte) error {
	var in struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Stream     bool            `json:"stream"`
		Background bool            `json:"background"`
		Store      *bool           `json:"store"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("we could not parse the JSON body of your request: %w", err)
	}
	switch {
	case in.Model == "":
		return errors.New("missing required parameter: 'model'")
	case len(in.Input) == 0:
		return errors.New("missing required parameter: 'input'")
	case in.Background && in.Store != nil && !*in.Store:
		return errors.New("background mode requires store to be true")
	}
	if _, err := Seen(Responses, body); err != nil {
		return err
	}
	c.id = fmt.Sprintf("resp_%d", c.number)
	c.model, c.stream, c.background = in.Model, in.Stream, in.Background
	return nil
}

// responseEvents numbers what is added to it.
type responseEvents struct{ frames []frame }

func (e *responseEvents) add(k kind, event string, doc map[string]any) {
	doc["type"] = event
	doc["sequence_number"] = len(e.frames)
	e.frames = append(e.frames, frame{event: event, data: encode(doc), kind: k})
}

func (w responsesWire) frames(c *call) []frame {
	var e responseEvents
	status := "in_progress"
	if c.background {
		status = "queued"
	}
	e.add(around, "response.created", map[string]any{"response": c.response(status, nil)})
	if c.background {
		e.add(around, "response.queued", map[string]any{"response": c.response(status, nil)})
	}
	e.add(around, "response.in_progress", map[string]any{"response": c.response("in_progress", nil)})

	for i, item := range c.responseItems() {
		e.item(c, i, item)
	}

	status = c.responseStatus()
	if c.NoDone {
		e.frames = append(e.frames, frame{kind: ending}) // an end that is not said
		return e.frames
	}
	e.add(ending, "response."+status, map[string]any{"response": w.whole(c)})
	if c.DoubleEnd {
		e.add(ending, "response."+status, map[string]any{"response": w.whole(c)})
	}
	return e.frames
}

// item adds the events of one item of the output.
func (e *responseEvents) item(c *call, index int, item map[string]any) {
	at := func(doc map[string]any) map[string]any { // what places an event
		doc["item_id"], doc["output_index"] = item["id"], index
		return doc
	}
	begun := map[string]any{}
	for k, v := range item {
		begun[k] = v
	}
	if begun["status"] != nil {
		begun["status"] = "in_progress"
	}
	switch item["type"] {
	case "reasoning":
		begun["summary"] = []any{}
		e.add(around, "response.output_item.added", map[string]any{"output_index": index, "item": begun})
		part := func(text string) map[string]any { return map[string]any{"type": "summary_text", "text": text} }
		e.add(around, "response.reasoning_summary_part.added", at(map[string]any{"summary_index": 0, "part": part("")}))
		for _, p := range c.Reasoning {
			e.add(piece, "response.reasoning_summary_text.delta", at(map[string]any{"summary_index": 0, "delta": p}))
		}
		e.add(around, "response.reasoning_summary_text.done", at(map[string]any{"summary_index": 0, "text": join(c.Reasoning)}))
		e.add(around, "response.reasoning_summary_part.done", at(map[string]any{"summary_index": 0, "part": part(join(c.Reasoning))}))
	case "message":
		begun["content"] = []any{}
		e.add(around, "response.output_item.added", map[string]any{"output_index": index, "item": begun})
		e.add(around, "response.content_part.added", at(map[string]any{"content_index": 0, "part": outputText("")}))
		for _, p := range c.Text {
			e.add(piece, "response.output_text.delta", at(map[string]any{"content_index": 0, "delta": p, "logprobs": []any{}}))
		}
		e.add(around, "response.output_text.done", at(map[string]any{"content_index": 0, "text": join(c.Text), "logprobs": []any{}}))
		e.add(around, "response.content_part.done", at(map[string]any{"content_index": 0, "part": outputText(join(c.Text))}))
	case "function_call":
		arguments := item["arguments"].(string)
		begun["arguments"] = ""
		e.add(around, "response.output_item.added", map[string]any{"output_index": index, "item": begun})
		for _, p := range fragments(arguments) {
			e.add(piece, "response.function_call_arguments.delta", at(map[string]any{"delta": p}))
		}
		e.add(around, "response.function_call_arguments.done", at(map[string]any{"name": item["name"], "arguments": arguments}))
	}
	e.add(around, "response.output_item.done", map[string]any{"output_index": index, "item": item})
}

func outputText(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

// responseItems is the output when it is complete.
func (c *call) responseItems() []map[string]any {
	items := []map[string]any{}
	status := c.responseStatus()
	if len(c.Reasoning) > 0 {
		items = append(items, map[string]any{
			"id": fmt.Sprintf("rs_%d", c.number), "type": "reasoning",
			"summary": []any{map[string]any{"type": "summary_text", "text": join(c.Reasoning)}},
		})
	}
	if len(c.Text) > 0 {
		items = append(items, map[string]any{
			"id": fmt.Sprintf("msg_%d", c.number), "type": "message", "role": "assistant", "status": status,
			"content": []any{outputText(join(c.Text))},
		})
	}
	for i, t := range c.Tools {
		items = append(items, map[string]any{
			"id": fmt.Sprintf("fc_%d_%d", c.number, i), "type": "function_call", "status": status,
			"call_id": t.ID, "name": t.Name, "arguments": t.Arguments,
		})
	}
	return items
}

// responseStatus is the state in which the response ends, unless it fails.
func (c *call) responseStatus() string {
	if c.Finish == chat.FinishLength || c.Finish == chat.FinishFiltered {
		return "incomplete"
	}
	return "completed"
}

// response is the object of which every event at the start and the end has one.
func (c *call) response(status string, f *Failure) map[string]any {
	doc := map[string]any{
		"id": c.id, "object": "response", "created_at": c.created, "model": c.model, "status": status,
		"background": c.background, "error": nil, "incomplete_details": nil, "output": []any{}, "usage": nil,
		"parallel_tool_calls": true, "tool_choice": "auto", "tools": []any{}, "metadata": map[string]any{},
	}
	if f != nil {
		doc["error"] = map[string]any{"code": f.responseCode(), "message": f.message()}
	}
	return doc
}

func (f Failure) responseCode() string {
	switch {
	case f.Code != "":
		return f.Code
	case f.status() == http.StatusTooManyRequests:
		return "rate_limit_exceeded"
	case f.status() < 500:
		return "invalid_prompt"
	}
	return "server_error"
}

func (responsesWire) whole(c *call) any {
	doc := c.response(c.responseStatus(), nil)
	doc["output"] = c.responseItems()
	if c.NoFinish {
		delete(doc, "status")
	}
	switch c.Finish {
	case chat.FinishLength:
		doc["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	case chat.FinishFiltered:
		doc["incomplete_details"] = map[string]any{"reason": "content_filter"}
	}
	if u := c.Usage; !c.NoUsage {
		doc["usage"] = map[string]any{
			"input_tokens": u.InputTokens, "input_tokens_details": map[string]any{"cached_tokens": u.CachedTokens},
			"output_tokens": u.OutputTokens, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
			"total_tokens": u.InputTokens + u.OutputTokens,
		}
	}
	return doc
}

func (responsesWire) failure(f Failure) any { return openAIFailure(f) }

func (responsesWire) errorFrame(c *call, f Failure, n int) frame {
	if c.ErrorEvent {
		return frame{event: "error", kind: ending, data: encode(map[string]any{
			"type": "error", "sequence_number": n, "code": f.responseCode(), "message": f.message(), "param": nil,
		})}
	}
	return frame{event: "response.failed", kind: ending, data: encode(map[string]any{
		"type": "response.failed", "sequence_number": n, "response": c.response("failed", &f),
	})}
}

func (responsesWire) models(names []string) any { return openAIModels(names) }
