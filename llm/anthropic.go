package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
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

// These two turns are put in where an API demands one and the call has none. The
// first stands before an answer whose question did not fit the context.
const (
	leftOutTurn  = "(The beginning of this conversation is left out.)"
	continueTurn = "Continue your last message exactly where it ends. Do not repeat any of it and do not comment on it: the two parts will be read as one."
)

// takesPrefill are parts of the names of models that go on with a last assistant
// turn. The list is closed: from Claude 4.6 on they refuse such a call
// (https://platform.claude.com/docs/en/about-claude/models/migration-guide), and
// of what others serve nobody knows. They are asked in a user turn.
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

// Models implements [Lister]
// (https://platform.claude.com/docs/en/api/models-list: a page has up to 1000).
func (a *Anthropic) Models(ctx context.Context) ([]string, error) {
	return listModels(ctx, a.t, under(a.e, "/models?limit=1000"), a.header(), a.e.Key)
}

// Stream implements [Client]. The stop reason is the end mark: what the line does
// after it takes nothing from the answer.
func (a *Anthropic) Stream(ctx context.Context, c Call, emit func(Piece)) (Answer, error) {
	req, stripped := newAnthropicRequest(c)
	body, err := json.Marshal(req)
	if err != nil {
		return Answer{}, unsendable(err)
	}
	header := a.header()
	header.Set("Accept", "text/event-stream")
	resp, err := a.t.post(ctx, under(a.e, "/messages"), header, body, a.e.Key)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	d := anthropicDecoder{collector: collector{call: c, emit: emit}, key: a.e.Key, skip: stripped}
	if err := d.read(resp.Body); err != nil {
		if _, ok := errors.AsType[*Error](err); ok {
			return Answer{}, err
		}
		return Answer{}, lost(ctx, err)
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

// A roleContent is a turn as both APIs write it.
type roleContent struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// newAnthropicRequest also returns the white space that it took from the end of a
// turn to go on with, because the API refuses it there ("final assistant content
// cannot end with trailing whitespace").
func newAnthropicRequest(c Call) (r anthropicRequest, stripped string) {
	r = anthropicRequest{
		Model: c.Model, MaxTokens: anthropicMaxTokens, Stream: true,
		Temperature: c.Params.Temperature, TopP: c.Params.TopP,
	}
	if c.Params.MaxTokens != nil {
		r.MaxTokens = *c.Params.MaxTokens
	}
	for _, t := range c.Tools {
		r.Tools = append(r.Tools, anthropicTool{t.Name, t.Description, schemaOf(t)})
	}
	r.System, r.Messages = splitTurns(c.Turns)
	if n := len(r.Messages); n > 0 && r.Messages[0].Role == "assistant" {
		// The API takes that today, some who serve it do not.
		r.Messages = append([]roleContent{{"user", leftOutTurn}}, r.Messages...)
	}
	last := len(r.Messages) - 1
	if !c.Continue || last < 0 || r.Messages[last].Role != "assistant" {
		return r, ""
	}
	for _, part := range takesPrefill {
		if strings.Contains(c.Model, part) {
			text := r.Messages[last].Content
			r.Messages[last].Content = strings.TrimRightFunc(text, unicode.IsSpace)
			return r, text[len(r.Messages[last].Content):]
		}
	}
	r.Messages = append(r.Messages, roleContent{"user", continueTurn})
	return r, ""
}

// splitTurns parts the system turns from the others and makes one of those that
// follow each other in the same role. Answers in a row are one answer, continued;
// questions in a row were not answered. Blank turns, which APIs refuse, are left
// out.
func splitTurns(turns []Turn) (system string, messages []roleContent) {
	messages = []roleContent{}
	for _, t := range turns {
		last := len(messages) - 1
		switch {
		case strings.TrimSpace(t.Content) == "":
			// As part of an answer it still is what the next part was joined to.
			if t.Role == "assistant" && last >= 0 && messages[last].Role == "assistant" {
				messages[last].Content += t.Content
			}
		case t.Role == "system":
			if system != "" {
				system += "\n\n"
			}
			system += t.Content
		case last >= 0 && messages[last].Role == t.Role && t.Role == "assistant":
			messages[last].Content += t.Content
		case last >= 0 && messages[last].Role == t.Role:
			messages[last].Content += "\n\n" + t.Content
		default:
			messages = append(messages, roleContent{t.Role, t.Content})
		}
	}
	return system, messages
}

// schemaOf returns the schema of a tool's arguments; an object with anything in it
// where none is declared.
func schemaOf(t Tool) json.RawMessage {
	if strings.TrimSpace(t.Parameters) == "" {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return json.RawMessage(t.Parameters)
}

// unsendable is a call that has no form on the wire: a schema that is no JSON.
func unsendable(err error) *Error {
	return &Error{Outcome: chat.OutcomeDefinite, Code: "provider_refused", Detail: "The call cannot be written in the provider's format.", Err: err}
}

func under(e Endpoint, path string) string { return strings.TrimRight(e.URL, "/") + path }

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
}

// argued is a tool call whose arguments come in pieces.
type argued struct {
	at   int // in collector.tools
	args strings.Builder
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
	Usage      *anthropicUsage   `json:"usage"`
}

// read decodes body, a stream of events or one JSON message, to the end of the
// answer. An error that is no *Error means that the end was not seen.
func (d *anthropicDecoder) read(body io.Reader) error {
	r := bufio.NewReaderSize(body, 8<<10)
	if isObject(r) {
		text, err := readObject(r)
		if err != nil {
			return err
		}
		return d.whole(text)
	}
	events := newEventReader(r)
	for {
		e, err := events.next()
		if err == nil {
			var last bool
			if last, err = d.event(e); err == nil && !last {
				continue
			}
		}
		if d.ended {
			return nil
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
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
			Usage *anthropicUsage `json:"usage"`
		}
		if err := decode(data, &m); err != nil {
			return false, err
		}
		d.count(m.Usage)
		if m.Delta.StopReason != "" {
			d.stop(m.Delta.StopReason)
			d.counted = m.Usage != nil
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
		if err := d.grow(len(b.ID) + len(b.Name) + len(b.Input)); err != nil {
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

// count takes in numbers of tokens, each of which only grows. Those of the input
// may come at the start or at the end.
func (d *anthropicDecoder) count(u *anthropicUsage) {
	if u == nil {
		return
	}
	d.input, d.cached = max(d.input, u.Input), max(d.cached, u.Cached)
	d.stored, d.output = max(d.stored, u.Stored), max(d.output, u.Output)
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
	d.count(m.Usage)
	d.counted = m.Usage != nil
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
	d.usage = chat.Usage{InputTokens: d.input + d.cached + d.stored, CachedTokens: d.cached, OutputTokens: d.output}
	return d.answer()
}

// What both APIs have in common

// concluded returns an answer as its finish allows. One that was cut proposes no
// action: the last one may lack its end, and it would be run by nobody. Of one that
// was refused from the first word on nothing is left.
func concluded(a Answer) (Answer, error) {
	if a.Finish == chat.FinishFiltered && a.Content == "" {
		return Answer{}, &Error{Outcome: chat.OutcomeDefinite, Code: "content_refused", Detail: "The model refused to answer."}
	}
	if a.Finish == chat.FinishLength || a.Finish == chat.FinishFiltered {
		a.ToolCalls = nil
	}
	return a, nil
}

// errNoJSON: an event whose data is not what its type promises.
var errNoJSON = errors.New("an event cannot be read")

// typeOf returns the field type of a JSON object, "" when it has none. What else is
// in it is looked at only where the type is known.
func typeOf(data []byte) (string, error) {
	var v struct {
		Type string `json:"type"`
	}
	err := decode(data, &v)
	return v.Type, err
}

func decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", errNoJSON, err)
	}
	return nil
}

// isObject reports whether the first thing in a body is a brace, as it is in JSON
// and never in a stream of events. Media types do not tell: they are often wrong.
func isObject(r *bufio.Reader) bool {
	for {
		b, err := r.Peek(1)
		if err != nil {
			return false // whoever reads on meets the error again
		}
		if !bytes.ContainsAny(b, " \t\r\n") {
			return b[0] == '{'
		}
		r.Discard(1)
	}
}

// readObject reads a body that is no stream. An answer grows in JSON.
func readObject(r io.Reader) ([]byte, error) {
	const most = 4 * maxAnswerBytes
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && len(text) > most {
		err = errEventTooLong
	}
	return text, err
}

// notAnAnswer classifies what a provider sent with status 200 instead of an answer.
func notAnAnswer(data []byte, key string) *Error {
	if p := parseProviderError(data); p != (providerError{}) && (p.Message != "" || p.Code != "") {
		return frameError(p, false, key)
	}
	return &Error{Outcome: chat.OutcomeUnknown, Code: "provider_error", Detail: "The model's server sent something that is no answer."}
}

// listModels reads a list of models, which has the same form in both APIs.
func listModels(ctx context.Context, t *Transport, url string, header http.Header, key string) ([]string, error) {
	resp, err := t.ask(ctx, http.MethodGet, url, header, key)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := readObject(resp.Body)
	if err != nil {
		return nil, lost(ctx, err)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil || list.Data == nil {
		return nil, &Error{Outcome: chat.OutcomeUnknown, Code: "provider_error", Detail: "The model's server sent no list of models.", Err: err}
	}
	names := make([]string, 0, len(list.Data))
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, nil
}
