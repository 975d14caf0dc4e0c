package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"semel/chat"
)

const (
	// usageWait is how long a line that stays open after the end of an answer is
	// read on for its count of tokens.
	usageWait = 2 * time.Second

	askToContinue = "Continue your last answer exactly where it stopped. Repeat nothing of it, and add no remark."
)

// OpenAI calls a provider that speaks OpenAI's chat completions, as most do. It is
// safe for use by many goroutines at once.
//
// Its shapes are those of https://platform.openai.com/docs/api-reference/chat. It
// takes what others do with them: reasoning in a field of its own or between tags,
// counts in several places, tool calls in fragments or whole, ends without a mark.
// The finish reason is the end of an answer: whatever comes after it, or does not,
// takes nothing from the answer.
type OpenAI struct {
	t *Transport
	e Endpoint
}

var (
	_ Client = (*OpenAI)(nil)
	_ Lister = (*OpenAI)(nil)
)

// NewOpenAI returns a client of the provider at e.
func NewOpenAI(t *Transport, e Endpoint) *OpenAI { return &OpenAI{t: t, e: e} }

// Stream implements [Client].
func (o *OpenAI) Stream(ctx context.Context, c Call, emit func(Piece)) (Answer, error) {
	body, err := json.Marshal(o.request(c))
	if err != nil {
		return Answer{}, unsendable(err)
	}
	line, hangUp := context.WithCancel(ctx)
	defer hangUp()
	resp, err := o.t.post(line, under(o.e, "/chat/completions"), o.header(), body, o.e.Key)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	r := completion{collector: collector{call: c, emit: emit}, secret: o.e.Key}
	err = r.read(ctx, resp.Body, hangUp)
	if late := r.release(); err == nil {
		err = late
	}
	if err != nil {
		return Answer{}, err
	}
	return concluded(r.whole())
}

// Models implements [Lister].
func (o *OpenAI) Models(ctx context.Context) ([]string, error) {
	return listModels(ctx, o.t, under(o.e, "/models"), o.header(), o.e.Key)
}

func (o *OpenAI) header() http.Header {
	h := http.Header{}
	if o.e.Key != "" {
		h.Set("Authorization", "Bearer "+o.e.Key)
	}
	return h
}

// The request

type chatRequest struct {
	Model               string         `json:"model"`
	Messages            []chatMessage  `json:"messages"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`
	Temperature         *float64       `json:"temperature,omitempty"`
	TopP                *float64       `json:"top_p,omitempty"`
	Seed                *int64         `json:"seed,omitempty"`
	MaxTokens           *int64         `json:"max_tokens,omitempty"`
	MaxCompletionTokens *int64         `json:"max_completion_tokens,omitempty"`
	Tools               []chatTool     `json:"tools,omitempty"`
	// vLLM's; the second must be false where the first is true.
	ContinueFinal    bool  `json:"continue_final_message,omitempty"`
	GenerationPrompt *bool `json:"add_generation_prompt,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatMessage struct {
	roleContent
	Partial bool `json:"partial,omitempty"`
}

// The parts of a message with images
// (https://platform.openai.com/docs/guides/images-vision).
func chatText(s string) any { return map[string]any{"type": "text", "text": s} }

func chatImage(f *File) any {
	return map[string]any{"type": "image_url", "image_url": map[string]any{"url": dataURL(f)}}
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

func (o *OpenAI) request(c Call) chatRequest {
	r := chatRequest{
		Model: c.Model, Messages: []chatMessage{},
		Temperature: c.Params.Temperature, TopP: c.Params.TopP, Seed: c.Params.Seed,
	}
	if !o.e.Quirks.NoStream {
		r.Stream, r.StreamOptions = true, &streamOptions{IncludeUsage: true}
	}
	if o.e.Quirks.MaxCompletionTokens {
		r.MaxCompletionTokens = c.Params.MaxTokens
	} else {
		r.MaxTokens = c.Params.MaxTokens
	}
	system, messages := splitTurns(c.Turns)
	if system != "" {
		r.Messages = append(r.Messages, chatMessage{roleContent: roleContent{"system", system}})
	}
	for _, m := range messages {
		r.Messages = append(r.Messages, chatMessage{roleContent: onTheWire(m, chatText, chatImage)})
	}
	for _, t := range c.Tools {
		r.Tools = append(r.Tools, chatTool{Type: "function",
			Function: chatFunction{Name: t.Name, Description: t.Description, Parameters: schemaOf(t)}})
	}
	if n := len(r.Messages); c.Continue && n > 0 && r.Messages[n-1].Role == "assistant" {
		switch o.e.Quirks.Continue {
		case ContinuePrefill: // it is last
		case ContinuePartial:
			r.Messages[n-1].Partial = true
		case ContinueFinal:
			r.ContinueFinal, r.GenerationPrompt = true, new(bool)
		default:
			r.Messages = append(r.Messages, chatMessage{roleContent: roleContent{"user", askToContinue}})
		}
	}
	return r
}

// The answer

// A chatFrame is a chunk of a stream, or a whole answer.
type chatFrame struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Choices []chatChoice    `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
	// Of errors that are not inside one.
	Message json.RawMessage `json:"message"`
	Code    json.RawMessage `json:"code"`
	Detail  json.RawMessage `json:"detail"`
}

type chatChoice struct {
	Delta   chatDelta       `json:"delta"`
	Message *chatDelta      `json:"message"` // of a whole answer
	Finish  string          `json:"finish_reason"`
	Usage   json.RawMessage `json:"usage"` // Moonshot
	Error   json.RawMessage `json:"error"` // OpenRouter
}

type chatDelta struct {
	Content          chatContent    `json:"content"`
	ReasoningContent string         `json:"reasoning_content"`
	Reasoning        string         `json:"reasoning"` // the same by another name; some send both
	Refusal          string         `json:"refusal"`
	ToolCalls        []chatToolCall `json:"tool_calls"`
}

// chatContent is text, or a list of parts as Mistral's reasoning models send it
// (docs.mistral.ai/capabilities/reasoning).
type chatContent struct{ text, thoughts string }

func (c *chatContent) UnmarshalJSON(data []byte) error {
	if data[0] != '[' {
		return json.Unmarshal(data, &c.text)
	}
	var parts []struct {
		Type     string      `json:"type"`
		Text     string      `json:"text"`
		Thinking chatContent `json:"thinking"`
	}
	err := json.Unmarshal(data, &parts)
	for _, p := range parts {
		c.text += p.Text
		c.thoughts += p.Thinking.text
	}
	return err
}

// A completion is one answer as it is read.
type completion struct {
	collector
	secret  string
	think   thinker
	calls   toolCalls
	refused bool
	ended   bool // the finish reason came
	fresh   bool // a count came with it, or later
}

// read reads an answer until its end. hangUp cuts the line.
func (r *completion) read(ctx context.Context, body io.Reader, hangUp func()) error {
	b := bufio.NewReaderSize(body, 8<<10)
	switch first := firstByte(b); first {
	case '{', '[':
		return r.document(ctx, b)
	case '<':
		return noAnswer(errors.New("a page, not an answer"))
	}
	events := newEventReader(b)
	for waiting := false; ; {
		e, err := events.next()
		switch {
		case r.ended && err != nil:
			return nil
		case errors.Is(err, io.EOF):
			return lost(ctx, errNoFinish)
		case err != nil:
			return lost(ctx, err)
		}
		switch data := strings.TrimSpace(e.Data); data {
		case "":
			continue
		case "[DONE]":
			if r.ended {
				return nil
			}
			return lost(ctx, errNoFinish)
		default:
			err = r.chunk(e.Type, data)
		}
		switch {
		case !r.ended && err != nil:
			return err
		case r.ended && (err != nil || r.fresh):
			return nil
		case r.ended && !waiting:
			waiting = true
			defer time.AfterFunc(usageWait, hangUp).Stop()
		}
	}
}

var errNoFinish = errors.New("the stream ended without a finish reason")

// firstByte returns the first byte that is no white space, 0 when there is none.
// DeepSeek sends empty lines while it is busy.
func firstByte(b *bufio.Reader) byte {
	for {
		p, err := b.Peek(1)
		switch {
		case err != nil:
			return 0
		case !bytes.ContainsAny(p, " \t\r\n"):
			return p[0]
		}
		b.Discard(1)
	}
}

// document reads an answer that is one JSON document. Its end is the end of the
// answer, with a finish reason or without.
func (r *completion) document(ctx context.Context, body io.Reader) error {
	data, err := readObject(body)
	if err != nil {
		return classified(ctx, err)
	}
	var f chatFrame
	if err := json.Unmarshal(data, &f); err != nil {
		return noAnswer(err)
	}
	if p, failed := f.failure(data); failed {
		return frameError(p, false, r.secret)
	}
	if len(f.Choices) == 0 || f.Choices[0].Message == nil {
		return noAnswer(errors.New("a document without an answer"))
	}
	f.Choices[0].Delta = *f.Choices[0].Message
	if f.Choices[0].Finish == "" {
		f.Choices[0].Finish = "stop"
	}
	return r.take(f)
}

// chunk takes one event of a stream.
func (r *completion) chunk(eventType, data string) error {
	var f chatFrame
	err := json.Unmarshal([]byte(data), &f)
	p, failed := f.failure([]byte(data))
	if eventType == "error" {
		p, failed = parseProviderError([]byte(data)), true
		if !json.Valid([]byte(data)) {
			p.Message = data
		}
	}
	switch {
	case failed:
		return r.failed(p)
	case err != nil:
		return noAnswer(err)
	}
	return r.take(f)
}

func (r *completion) take(f chatFrame) error {
	if r.upstream == "" {
		r.upstream = f.ID
	}
	if len(f.Choices) == 0 {
		r.count(f.Usage)
		return nil
	}
	choice := f.Choices[0] // no more was asked for
	if err := r.delta(choice.Delta); err != nil {
		return err
	}
	if choice.Finish != "" && !r.ended {
		finish, failed := finishOf(choice.Finish)
		if failed {
			return r.failed(providerError{Type: choice.Finish})
		}
		r.ended, r.finish = true, finish
	}
	r.count(choice.Usage)
	r.count(f.Usage)
	return nil
}

func (r *completion) delta(d chatDelta) error {
	p := Piece{Reasoning: d.ReasoningContent}
	if p.Reasoning == "" {
		p.Reasoning = d.Reasoning
	}
	p.Reasoning += d.Content.thoughts
	if p.Reasoning != "" || d.Refusal != "" { // tags are not looked for any more
		q := r.think.end()
		p.Text, p.Reasoning = q.Text, q.Reasoning+p.Reasoning
	}
	if d.Content.text != "" {
		q := r.think.feed(d.Content.text)
		p.Text, p.Reasoning = p.Text+q.Text, p.Reasoning+q.Reasoning
	}
	if d.Refusal != "" {
		r.refused = true
		p.Text += d.Refusal
	}
	if err := r.add(p); err != nil {
		return err
	}
	for _, c := range d.ToolCalls {
		n, err := r.calls.add(c)
		if err != nil {
			return err
		}
		if err := r.grow(n); err != nil {
			return err
		}
	}
	return nil
}

// release hands out what was held back.
func (r *completion) release() error { return r.add(r.think.end()) }

// failed is a failure that the provider told of instead of an end.
func (r *completion) failed(p providerError) error {
	if err := r.release(); err != nil {
		return err
	}
	return frameError(p, r.begun(), r.secret)
}

// whole returns the answer.
func (r *completion) whole() Answer {
	r.tools = r.calls.list()
	if r.refused {
		r.finish = chat.FinishFiltered
	}
	return r.answer()
}

// finishOf returns what a finish reason means; failed says that it is no end of an
// answer but of a run that broke. A word nobody knows is an end like any other.
func finishOf(reason string) (f chat.Finish, failed bool) {
	switch reason {
	case "length", "max_tokens", "model_length", "model_context_window_exceeded":
		return chat.FinishLength, false
	case "content_filter", "sensitive": // GLM
		return chat.FinishFiltered, false
	case "tool_calls", "function_call", "tool_use":
		return chat.FinishTool, false
	case "error", // OpenRouter
		"network_error",                // GLM
		"insufficient_system_resource", // DeepSeek
		"abort":                        // vLLM
		return "", true
	}
	return chat.FinishStop, false
}

// failure returns what a frame says of a failure, if it tells of one.
func (f chatFrame) failure(data []byte) (p providerError, failed bool) {
	switch {
	case says(f.Error):
		return parseProviderError(data), true
	case len(f.Choices) > 0 && says(f.Choices[0].Error):
		return parseProviderError(slices.Concat([]byte(`{"error":`), f.Choices[0].Error, []byte(`}`))), true
	case f.Object == "error", f.Choices == nil && !says(f.Usage) && (says(f.Message) || says(f.Code) || says(f.Detail)):
		return parseProviderError(data), true
	}
	return providerError{}, false
}

// says reports whether a value is there and says anything.
func says(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`, "{}":
		return false
	}
	return true
}

// count takes a count of tokens. The last one holds, because some providers count
// as they go; one that cannot be read costs no answer.
func (r *completion) count(raw json.RawMessage) {
	if !says(raw) {
		return
	}
	var u struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		CacheHit int64 `json:"prompt_cache_hit_tokens"` // DeepSeek
		Cached   int64 `json:"cached_tokens"`           // Moonshot
	}
	if json.Unmarshal(raw, &u) != nil || !countable(u.Prompt, u.Completion) || u.Prompt+u.Completion == 0 {
		return
	}
	cached := max(u.Details.Cached, u.CacheHit, u.Cached, 0)
	r.usage = chat.Usage{InputTokens: u.Prompt, CachedTokens: min(cached, u.Prompt), OutputTokens: u.Completion}
	r.counted, r.fresh = true, r.ended
}

// noAnswer is a response that was accepted and is not understood: whether a model
// ran nobody knows.
func noAnswer(err error) *Error {
	return &Error{Outcome: chat.OutcomeUnknown, Code: "provider_error",
		Detail: "The model's server sent something that is no answer.", Err: err}
}
