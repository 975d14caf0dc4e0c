package llm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"semel/chat"
)

// anthropicVersion is the version of the API that this client speaks
// (https://platform.claude.com/docs/en/api/versioning).
const anthropicVersion = "2023-06-01"

// anthropicMaxTokens bounds an answer where the call does not: the API demands a
// number. It is the largest that every model takes; whoever gets an answer that
// ends there can have it continued.
const anthropicMaxTokens = 8192

// leftOut stands before an answer whose question did not fit the context.
const leftOut = "(The beginning of this conversation is left out.)"

// takesPrefill are parts of the names of models that go on with a last assistant
// turn. The list is closed: from Claude 4.6 on they refuse such a call
// (https://platform.claude.com/docs/en/about-claude/models/migration-guide), and
// of what others serve nobody knows. They are asked in a user turn unless the
// quirks say otherwise.
var takesPrefill = []string{
	"claude-2", "claude-3", "claude-sonnet-4-0", "claude-sonnet-4-2025", "claude-opus-4-0", "claude-opus-4-2025",
	"claude-opus-4-1", "claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5",
}

// Anthropic is a client of the Anthropic Messages API
// (https://platform.claude.com/docs/en/api/messages) and of those who serve it. It
// is safe for use by many goroutines at once.
//
// Params.Seed has no place in that API and is left out. The temperature ends at 1
// there; more is refused by the provider, not cut here.
type Anthropic struct {
	t *Transport
	e Endpoint
}

var (
	_ Client = (*Anthropic)(nil)
	_ Lister = (*Anthropic)(nil)
)

// NewAnthropic returns a client of the provider at e.
func NewAnthropic(t *Transport, e Endpoint) *Anthropic { return &Anthropic{t: t, e: e} }

// Models implements [Lister]. A page has up to 1000 of them
// (https://platform.claude.com/docs/en/api/models-list).
func (a *Anthropic) Models(ctx context.Context) ([]string, error) {
	return listModels(ctx, a.t, under(a.e, "/models?limit=1000"), a.header(), a.e.Key)
}

// Stream implements [Client]. The stop reason is the end mark: what the line does
// after it takes nothing from the answer.
func (a *Anthropic) Stream(ctx context.Context, c Call, emit func(Piece)) (Answer, error) {
	req, stripped := newAnthropicRequest(a.e, c)
	body, err := json.Marshal(req)
	if err != nil {
		return Answer{}, unsendable(err)
	}
	line, hangUp := context.WithCancel(ctx)
	defer hangUp()
	resp, err := a.t.post(line, under(a.e, "/messages"), a.header(), body, a.e.Key)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	d := anthropicDecoder{collector: collector{call: c, emit: emit}, key: a.e.Key, skip: stripped}
	if err := d.read(resp.Body, hangUp); err != nil {
		return Answer{}, classified(ctx, err)
	}
	return concluded(d.result())
}

func (a *Anthropic) header() http.Header {
	h := http.Header{}
	h.Set("Anthropic-Version", anthropicVersion)
	if a.e.Key != "" {
		h.Set("X-Api-Key", a.e.Key)
	}
	return h
}

// The request

type anthropicRequest struct {
	Model       string          `json:"model"`
	MaxTokens   int64           `json:"max_tokens"`
	System      string          `json:"system,omitempty"`
	Messages    []roleContent   `json:"messages"`
	Temperature *float64        `json:"temperature,omitempty"`
	TopP        *float64        `json:"top_p,omitempty"`
	Tools       []anthropicTool `json:"tools,omitempty"`
	Stream      bool            `json:"stream"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// newAnthropicRequest also returns the white space that it took from the end of a
// turn to go on with, because the API refuses it there ("final assistant content
// cannot end with trailing whitespace").
func newAnthropicRequest(e Endpoint, c Call) (r anthropicRequest, stripped string) {
	r = anthropicRequest{
		Model: c.Model, MaxTokens: anthropicMaxTokens, Stream: !e.Quirks.NoStream,
		Temperature: c.Params.Temperature, TopP: c.Params.TopP,
	}
	if c.Params.MaxTokens != nil {
		r.MaxTokens = *c.Params.MaxTokens
	}
	for _, t := range c.Tools {
		r.Tools = append(r.Tools, anthropicTool{t.Name, t.Description, schemaOf(t)})
	}
	system, messages := splitTurns(c.Turns)
	if len(messages) > 0 && messages[0].role == "assistant" {
		// The API takes that today, some who serve it do not.
		messages = slices.Insert(messages, 0, saying("user", leftOut))
	}
	if last := len(messages) - 1; c.Continue && last >= 0 && messages[last].role == "assistant" {
		if prefills(c.Model) || e.Quirks.Continue == ContinuePrefill {
			text, _ := messages[last].text() // an answer is one text
			kept := strings.TrimRightFunc(text, unicode.IsSpace)
			messages[last], stripped = saying("assistant", kept), text[len(kept):]
		} else {
			messages = append(messages, saying("user", askToContinue))
		}
	}
	r.System, r.Messages = system, []roleContent{}
	for _, m := range messages {
		r.Messages = append(r.Messages, onTheWire(m, anthropicText, anthropicImage))
	}
	return r, stripped
}

// The parts of a message with images
// (https://docs.anthropic.com/en/docs/build-with-claude/vision).
func anthropicText(s string) any { return map[string]any{"type": "text", "text": s} }

func anthropicImage(f *File) any {
	return map[string]any{"type": "image", "source": map[string]any{"type": "base64", "media_type": f.MediaType, "data": base64Of(f)}}
}

func prefills(model string) bool {
	return slices.ContainsFunc(takesPrefill, func(part string) bool { return strings.Contains(model, part) })
}

// The answer

// An anthropicDecoder reads an answer of the Messages API
// (https://platform.claude.com/docs/en/build-with-claude/streaming).
type anthropicDecoder struct {
	collector
	key    string
	skip   string // white space that may come a second time
	calls  map[int]*argued
	ended  bool // the stop reason came
	input  int64
	cached int64
	stored int64 // tokens written to the cache
	output int64

	uncountable bool // a count makes no sense
}

type anthropicUsage struct {
	Input  int64 `json:"input_tokens"`
	Cached int64 `json:"cache_read_input_tokens"`
	Stored int64 `json:"cache_creation_input_tokens"`
	Output int64 `json:"output_tokens"`
}

type anthropicMessage struct {
	Type       string            `json:"type"`
	ID         string            `json:"id"`
	Content    []json.RawMessage `json:"content"`
	StopReason string            `json:"stop_reason"`
	Usage      json.RawMessage   `json:"usage"`
}

// read decodes body, a stream of events or one JSON message, to the end of the
// answer. An error that is no *Error means that the end was not seen.
// hangUp cuts the line: one that stays open behind it is not waited for.
func (d *anthropicDecoder) read(body io.Reader, hangUp func()) error {
	r := bufio.NewReaderSize(body, 8<<10)
	switch firstByte(r) {
	case '{':
		text, err := readObject(r)
		if err != nil {
			return err
		}
		return d.whole(text)
	case '<':
		return noAnswer(errors.New("a page, not an answer"))
	}
	waiting := false
	events := newEventReader(r)
	for {
		e, err := events.next()
		if err == nil {
			var last bool
			if last, err = d.event(e); err == nil && !last {
				if d.ended && !waiting {
					waiting = true
					defer time.AfterFunc(usageWait, hangUp).Stop()
				}
				continue
			}
		}
		if d.ended {
			return nil
		}
		return err
	}
}

// event takes in one event. It reports whether it was the last.
func (d *anthropicDecoder) event(e event) (last bool, err error) {
	data := []byte(e.Data)
	kind, err := typeOf(data)
	if err != nil {
		return false, err
	}
	if kind == "" {
		kind = e.Type
	}
	if d.ended && kind != "message_delta" && kind != "message_stop" {
		return false, nil
	}
	switch kind {
	case "message_start":
		var m struct {
			Message anthropicMessage `json:"message"`
		}
		if err := decode(data, &m); err != nil {
			return false, err
		}
		d.upstream = m.Message.ID
		d.count(m.Message.Usage)
	case "content_block_start":
		var b struct {
			Index int             `json:"index"`
			Block json.RawMessage `json:"content_block"`
		}
		if err := decode(data, &b); err != nil {
			return false, err
		}
		return false, d.block(b.Index, b.Block)
	case "content_block_delta":
		return false, d.delta(data)
	case "message_delta":
		var m struct {
			Delta struct {
				StopReason string `json:"stop_reason"`
			} `json:"delta"`
			Usage json.RawMessage `json:"usage"`
		}
		if err := decode(data, &m); err != nil {
			return false, err
		}
		d.counted = d.count(m.Usage) || d.counted
		if m.Delta.StopReason != "" {
			d.stop(m.Delta.StopReason)
		}
	case "message_stop":
		if !d.ended {
			d.stop("end_turn")
		}
		return true, nil
	case "error":
		return false, frameError(parseProviderError(data), d.begun(), d.key)
	}
	return false, nil
}

// block begins a block of the answer. Blocks of the provider's own tools, and
// reasoning that it keeps to itself, are no part of it.
func (d *anthropicDecoder) block(index int, data []byte) error {
	kind, err := typeOf(data)
	if err != nil {
		return err
	}
	var b struct {
		Text     string          `json:"text"`
		Thinking string          `json:"thinking"`
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
	}
	switch kind {
	case "text", "thinking", "tool_use":
		if err := decode(data, &b); err != nil {
			return err
		}
	}
	switch kind {
	case "text":
		return d.say(b.Text)
	case "thinking":
		return d.add(Piece{Reasoning: b.Thinking})
	case "tool_use":
		if string(b.Input) == "null" {
			b.Input = nil
		}
		if err := d.grow(toolCallBytes + len(b.ID) + len(b.Name) + len(b.Input)); err != nil {
			return err
		}
		if d.calls == nil {
			d.calls = map[int]*argued{}
		}
		d.calls[index] = &argued{at: len(d.tools)}
		d.tools = append(d.tools, ToolCall{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
	}
	return nil
}

func (d *anthropicDecoder) delta(data []byte) error {
	var e struct {
		Index int             `json:"index"`
		Delta json.RawMessage `json:"delta"`
	}
	if err := decode(data, &e); err != nil {
		return err
	}
	kind, err := typeOf(e.Delta)
	if err != nil {
		return err
	}
	var b struct {
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
		Partial  string `json:"partial_json"`
	}
	switch kind {
	case "text_delta", "thinking_delta", "input_json_delta":
		if err := decode(e.Delta, &b); err != nil {
			return err
		}
	}
	switch kind {
	case "text_delta":
		return d.say(b.Text)
	case "thinking_delta":
		return d.add(Piece{Reasoning: b.Thinking})
	case "input_json_delta":
		call := d.calls[e.Index]
		if call == nil {
			return nil // of a tool of the provider's own
		}
		call.args.WriteString(b.Partial)
		return d.grow(len(b.Partial))
	}
	return nil
}

// say adds text of the answer. White space that was taken from the end of the turn
// to go on with is likely to come again; it is in that turn already.
func (d *anthropicDecoder) say(text string) error {
	for d.skip != "" && text != "" {
		want, n := utf8.DecodeRuneInString(d.skip)
		if got, _ := utf8.DecodeRuneInString(text); got != want {
			d.skip = ""
			break
		}
		d.skip, text = d.skip[n:], text[n:]
	}
	return d.add(Piece{Text: text})
}

// count takes in numbers of tokens, each of which only grows, and reports whether there
// were any. Those of the input may come at the start or at the end. Where one makes no
// sense, none counts.
func (d *anthropicDecoder) count(raw json.RawMessage) bool {
	if !says(raw) {
		return false
	}
	var u anthropicUsage
	if json.Unmarshal(raw, &u) != nil || !countable(u.Input, u.Cached, u.Stored, u.Output) {
		d.uncountable = true
		return false
	}
	d.input, d.cached = max(d.input, u.Input), max(d.cached, u.Cached)
	d.stored, d.output = max(d.stored, u.Stored), max(d.output, u.Output)
	return true
}

// stop takes in the reason why the answer ended
// (https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons).
func (d *anthropicDecoder) stop(reason string) {
	d.ended = true
	switch reason {
	case "max_tokens", "model_context_window_exceeded", "pause_turn":
		d.finish = chat.FinishLength // there would be more
	case "refusal":
		d.finish = chat.FinishFiltered
	default: // end_turn, stop_sequence, tool_use
		d.finish = chat.FinishStop
	}
}

// whole takes in an answer that came as one message, from a server that does not
// stream.
func (d *anthropicDecoder) whole(data []byte) error {
	var m anthropicMessage
	if kind, err := typeOf(data); err != nil || kind != "message" || decode(data, &m) != nil || m.StopReason == "" {
		return notAnAnswer(data, d.key)
	}
	d.upstream = m.ID
	d.counted = d.count(m.Usage)
	for i, b := range m.Content {
		if err := d.block(i, b); err != nil {
			return err
		}
	}
	d.stop(m.StopReason)
	return nil
}

func (d *anthropicDecoder) result() Answer {
	for _, c := range d.calls {
		if c.args.Len() > 0 {
			d.tools[c.at].Arguments = c.args.String()
		} else if d.tools[c.at].Arguments == "" {
			d.tools[c.at].Arguments = "{}"
		}
	}
	d.counted = d.counted && !d.uncountable
	d.usage = chat.Usage{InputTokens: d.input + d.cached + d.stored, CachedTokens: d.cached, OutputTokens: d.output}
	return d.answer()
}
