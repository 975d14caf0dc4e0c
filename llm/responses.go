package llm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"semel/chat"
)

// Responses is a client of the OpenAI Responses API
// (https://developers.openai.com/api/reference/resources/responses) and of those
// who serve it. It is safe for use by many goroutines at once.
//
// Params.Seed has no place in that API and is left out. An answer to go on with is
// asked for in a user turn, because there is no other way.
type Responses struct {
	t *Transport
	e Endpoint
}

var (
	_ Client = (*Responses)(nil)
	_ Lister = (*Responses)(nil)
)

// NewResponses returns a client of the provider at e: a *BackgroundResponses for
// background mode, else a *Responses.
func NewResponses(t *Transport, e Endpoint, background bool) Client {
	if background {
		return &BackgroundResponses{Responses{t, e}, time.Second}
	}
	return &Responses{t, e}
}

// Models implements [Lister].
func (p *Responses) Models(ctx context.Context) ([]string, error) {
	return listModels(ctx, p.t, under(p.e, "/models"), p.header(), p.e.Key)
}

// Stream implements [Client].
func (p *Responses) Stream(ctx context.Context, c Call, emit func(Piece)) (Answer, error) {
	r := newResponseRun(p.e.Key, c, emit)
	done, err := p.dispatch(ctx, r, false)
	if !done {
		err = r.unfinished(ctx, err)
	}
	return r.concluded(err)
}

func (p *Responses) header() http.Header {
	h := http.Header{}
	if p.e.Key != "" {
		h.Set("Authorization", "Bearer "+p.e.Key)
	}
	return h
}

// dispatch posts the prompt and reads the first line to its end.
func (p *Responses) dispatch(ctx context.Context, r *responseRun, background bool) (done bool, err error) {
	body, err := json.Marshal(newResponsesRequest(p.e, r.call, background))
	if err != nil {
		return true, unsendable(err)
	}
	resp, err := p.t.post(ctx, under(p.e, "/responses"), p.header(), body, p.e.Key)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	if done, err = r.read(resp.Body); !done && err == errNotStreamed && !background {
		err = noAnswer(err)
	}
	return done, err
}

// The request

type responsesRequest struct {
	Model           string          `json:"model"`
	Instructions    string          `json:"instructions,omitempty"`
	Input           []roleContent   `json:"input"`
	Stream          bool            `json:"stream"`
	Store           bool            `json:"store"`
	Background      bool            `json:"background,omitempty"`
	MaxOutputTokens *int64          `json:"max_output_tokens,omitempty"`
	Temperature     *float64        `json:"temperature,omitempty"`
	TopP            *float64        `json:"top_p,omitempty"`
	Tools           []responsesTool `json:"tools,omitempty"`
}

// The parts of a message with images
// (https://platform.openai.com/docs/guides/images-vision?api-mode=responses).
func responsesText(s string) any { return map[string]any{"type": "input_text", "text": s} }

func responsesImage(f *File) any {
	return map[string]any{"type": "input_image", "image_url": dataURL(f)}
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	// Without it the schema would have to be of a restricted kind.
	Strict bool `json:"strict"`
}

func newResponsesRequest(e Endpoint, c Call, background bool) responsesRequest {
	r := responsesRequest{
		Model: c.Model, Stream: !e.Quirks.NoStream, Store: background, Background: background,
		MaxOutputTokens: c.Params.MaxTokens, Temperature: c.Params.Temperature, TopP: c.Params.TopP,
	}
	for _, t := range c.Tools {
		r.Tools = append(r.Tools, responsesTool{"function", t.Name, t.Description, schemaOf(t), false})
	}
	system, messages := splitTurns(c.Turns)
	r.Instructions, r.Input = system, []roleContent{}
	for _, m := range messages {
		r.Input = append(r.Input, onTheWire(m, responsesText, responsesImage))
	}
	if last := len(r.Input) - 1; c.Continue && last >= 0 && r.Input[last].Role == "assistant" {
		r.Input = append(r.Input, roleContent{"user", askToContinue})
	}
	return r
}

// The answer

// A responseRun is a run as far as it was heard
// (https://developers.openai.com/api/reference/resources/responses/streaming-events).
type responseRun struct {
	collector
	key     string
	started func(string) // told the name of the run, once
	heard   int64        // number of the last event, -1 before the first
	resumed bool         // this is not the line of the prompt
	refused bool         // the model refuses in words
	calls   map[int64]*argued
	frame   *Error // a failure that an event told
}

func newResponseRun(key string, c Call, emit func(Piece)) *responseRun {
	return &responseRun{collector: collector{call: c, emit: emit}, key: key, heard: -1}
}

type responseObject struct {
	ID         string            `json:"id"`
	Status     string            `json:"status"`
	Output     []json.RawMessage `json:"output"`
	Error      json.RawMessage   `json:"error"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Usage json.RawMessage `json:"usage"`
}

type responseItem struct {
	Type      string         `json:"type"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Arguments string         `json:"arguments"`
	Content   []responsePart `json:"content"`
	Summary   []responsePart `json:"summary"`
}

type responsePart struct {
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// errNotStreamed: instead of a stream the state of an unfinished run came.
var errNotStreamed = errors.New("the answer is not streamed")

// errFrame: the stream ended with a failure; see responseRun.frame.
var errFrame = errors.New("the stream ended with a failure")

// read decodes one line of a run. done means that its end is known, by err or
// without; else err says how the line ended.
func (r *responseRun) read(body io.Reader) (done bool, err error) {
	b := bufio.NewReaderSize(body, 8<<10)
	switch firstByte(b) {
	case '{':
		text, err := readObject(b)
		if err != nil {
			return isFinal(err), err
		}
		return r.whole(text)
	case '<':
		return false, noAnswer(errors.New("a page, not an answer"))
	}
	events := newEventReader(b)
	for {
		e, err := events.next()
		if err == nil {
			done, err = r.event(e)
		}
		if done || err != nil {
			return done || isFinal(err), err
		}
	}
}

// whole takes in a response that came as one object, from a server that does not
// stream.
func (r *responseRun) whole(text []byte) (done bool, err error) {
	var o responseObject
	if decode(text, &o) != nil || o.ID == "" {
		return false, notAnAnswer(text, r.key)
	}
	switch o.Status {
	case "queued", "in_progress":
		r.name(o.ID)
		return false, errNotStreamed
	case "completed", "incomplete", "failed", "cancelled":
		return r.end(o, o.Status, true)
	}
	return false, notAnAnswer(text, r.key)
}

// event takes in one event. done means that it was the last.
func (r *responseRun) event(e event) (done bool, err error) {
	var head struct {
		Type   string `json:"type"`
		Number *int64 `json:"sequence_number"`
	}
	data := []byte(e.Data)
	if err := decode(data, &head); err != nil {
		return false, err
	}
	if head.Type == "" {
		head.Type = e.Type
	}
	if r.resumed {
		// Only what follows directly on what was heard may be taken as more of it.
		switch {
		case head.Number == nil:
			return false, errNoStream
		case *head.Number <= r.heard:
			return false, nil
		case *head.Number != r.heard+1 && !(r.heard < 0 && head.Type == "response.created"):
			return false, errNoStream
		}
	}
	if done, err = r.take(head.Type, data); err == nil && head.Number != nil {
		r.heard = max(r.heard, *head.Number)
	}
	return done, err
}

func (r *responseRun) take(kind string, data []byte) (done bool, err error) {
	var v struct {
		Response responseObject `json:"response"`
		Delta    string         `json:"delta"`
		Index    int64          `json:"output_index"`
	}
	switch kind {
	case "response.output_text.delta", "response.refusal.delta",
		"response.reasoning_summary_text.delta", "response.reasoning_text.delta",
		"response.function_call_arguments.delta",
		"response.created", "response.queued", "response.in_progress",
		"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done":
		if err := decode(data, &v); err != nil {
			return false, err
		}
	}
	switch kind {
	case "response.created", "response.queued", "response.in_progress":
		r.name(v.Response.ID)
	case "response.output_text.delta":
		return false, r.add(Piece{Text: v.Delta})
	case "response.refusal.delta":
		r.refused = true
		return false, r.add(Piece{Text: v.Delta})
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return false, r.add(Piece{Reasoning: v.Delta})
	case "response.reasoning_summary_part.added":
		if r.reasoning.Len() > 0 {
			return false, r.add(Piece{Reasoning: partBreak})
		}
	case "response.output_item.added", "response.output_item.done":
		return false, r.item(data)
	case "response.function_call_arguments.delta":
		if c := r.calls[v.Index]; c != nil {
			c.args.WriteString(v.Delta)
			return false, r.grow(len(v.Delta))
		}
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done":
		status := v.Response.Status
		if status == "" || kind != "response.done" {
			status = strings.TrimPrefix(kind, "response.")
		}
		return r.end(v.Response, status, false)
	case "error":
		r.frame = frameError(parseProviderError(data), r.begun(), r.key)
		return false, errFrame
	}
	return false, nil
}

// name takes in the provider's name of the run.
func (r *responseRun) name(id string) {
	if id == "" || r.upstream != "" {
		return
	}
	r.upstream = id
	if r.started != nil {
		r.started(id)
	}
}

// item begins or completes a function call. Other items are told by their parts.
func (r *responseRun) item(data []byte) error {
	var v struct {
		Index int64           `json:"output_index"`
		Item  json.RawMessage `json:"item"`
	}
	if err := decode(data, &v); err != nil {
		return err
	}
	kind, err := typeOf(v.Item)
	if err != nil || kind != "function_call" {
		return err
	}
	var item responseItem
	if err := decode(v.Item, &item); err != nil {
		return err
	}
	c := r.calls[v.Index]
	if c == nil {
		if r.calls == nil {
			r.calls = map[int64]*argued{}
		}
		c = &argued{at: len(r.tools)}
		r.calls[v.Index] = c
		r.tools = append(r.tools, ToolCall{})
	}
	r.tools[c.at] = ToolCall{ID: item.CallID, Name: item.Name, Arguments: item.Arguments}
	return r.grow(toolCallBytes + len(item.CallID) + len(item.Name) + len(item.Arguments))
}

// partBreak stands between parts of the reasoning, each a paragraph of its own.
const partBreak = "\n\n"

// end takes in the final state of a run. It is the truth for usage and function
// calls, and for all of the answer where looked says that nothing streamed it. It is
// done unless that state cannot be read.
func (r *responseRun) end(o responseObject, status string, looked bool) (done bool, err error) {
	r.name(o.ID)
	text, reasoning, tools, err := r.output(o)
	if err != nil {
		return false, err
	}
	if rest, ok := strings.CutPrefix(reasoning, r.reasoning.String()); ok && looked {
		if err := r.add(Piece{Reasoning: rest}); err != nil {
			return true, err
		}
	}
	rest, follows := strings.CutPrefix(text, r.text.String())
	if follows {
		if err := r.add(Piece{Text: rest}); err != nil {
			return true, err
		}
	}
	switch status {
	case "failed":
		return true, frameError(parseProviderError([]byte(`{"error":`+string(o.Error)+`}`)), r.begun(), r.key)
	case "cancelled":
		return true, &Error{Outcome: chat.OutcomeDefinite, Code: "run_cancelled", Detail: "The answer was cancelled at the model's server."}
	}
	// A stream may leave out at its end what it has told before.
	if !follows && (looked || r.resumed && text != "") {
		return true, &Error{Outcome: chat.OutcomeUnknown, Code: "run_differs", Detail: "The model's server keeps another answer than it has sent."}
	}
	if len(tools) > 0 {
		r.tools, r.calls = tools, nil
	}
	var u struct {
		Input   int64 `json:"input_tokens"`
		Details struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		Output int64 `json:"output_tokens"`
	}
	if says(o.Usage) && json.Unmarshal(o.Usage, &u) == nil && countable(u.Input, u.Output) {
		r.counted = true
		r.usage = chat.Usage{InputTokens: u.Input, CachedTokens: min(max(u.Details.Cached, 0), u.Input), OutputTokens: u.Output}
	}
	switch {
	case status == "incomplete" && o.Incomplete.Reason == "content_filter", r.refused:
		r.finish = chat.FinishFiltered
	case status == "incomplete":
		r.finish = chat.FinishLength
	default:
		r.finish = chat.FinishStop
	}
	return true, nil
}

// output reads the parts of an answer from its final state.
func (r *responseRun) output(o responseObject) (text, reasoning string, tools []ToolCall, err error) {
	var words strings.Builder
	var thoughts []string
	for _, raw := range o.Output {
		kind, err := typeOf(raw)
		if err != nil {
			return "", "", nil, err
		}
		if kind != "message" && kind != "reasoning" && kind != "function_call" {
			continue
		}
		var item responseItem
		if err := decode(raw, &item); err != nil {
			return "", "", nil, err
		}
		switch kind {
		case "message":
			for _, p := range item.Content {
				words.WriteString(p.Text + p.Refusal)
				r.refused = r.refused || p.Refusal != ""
			}
		case "reasoning":
			for _, p := range append(item.Summary, item.Content...) {
				thoughts = append(thoughts, p.Text)
			}
		case "function_call":
			tools = append(tools, ToolCall{ID: item.CallID, Name: item.Name, Arguments: item.Arguments})
		}
	}
	return words.String(), strings.Join(thoughts, partBreak), tools, nil
}

// unfinished says what became of a run whose end was not seen and will not be.
func (r *responseRun) unfinished(ctx context.Context, err error) error {
	if r.frame != nil && ctx.Err() == nil {
		return r.frame
	}
	return classified(ctx, err)
}

// isFinal reports whether err is about the answer and not about its line.
func isFinal(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

// concluded returns the answer, or err.
func (r *responseRun) concluded(err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}

	for _, c := range r.calls {
		if r.tools[c.at].Arguments == "" {
			r.tools[c.at].Arguments = c.args.String()
		}
	}
	for i := range r.tools {
		if r.tools[i].Arguments == "" {
			r.tools[i].Arguments = "{}"
		}
	}
	return concluded(r.answer())
}
