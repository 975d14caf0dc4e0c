package oracle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"semel/chat"
	"semel/llm"
	"semel/llm/llmtest"
)

// A heard is what somebody makes of a response.
type heard struct {
	text, reasoning string
	tools           []llm.ToolCall
	finish          chat.Finish // "" when it is not said
	usage           chat.Usage  // of the provider; nothing when it gave none
	upstream        string
	failed          bool // then nothing else counts
	err             error
}

// fields are what is compared, in order. Of a failure there is but the first.
var fields = []string{"failed", "text", "reasoning", "tools", "finish", "usage", "upstream"}

// field returns a field in words that are equal when the field is.
func (h heard) field(name string) string {
	switch name {
	case "failed":
		return fmt.Sprint(h.failed)
	case "text":
		return h.text
	case "reasoning":
		return h.reasoning
	case "tools":
		var b strings.Builder
		for _, t := range h.tools {
			fmt.Fprintf(&b, "%s %s(%s)\n", t.ID, t.Name, canonical(t.Arguments))
		}
		return strings.TrimSuffix(b.String(), "\n")
	case "finish":
		return string(h.finish)
	case "usage":
		u := h.usage
		return tokens(u.InputTokens, u.CachedTokens, u.OutputTokens)
	case "upstream":
		return h.upstream
	}
	panic("no field " + name)
}

// canonical returns JSON without what makes no difference in it, and anything else
// as it is.
func canonical(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return text
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return text
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// client returns our client of a format at a base address without a version.
func client(f llmtest.Format, t *llm.Transport, base string, q llm.Quirks, background bool) llm.Client {
	e := llm.Endpoint{URL: base + "/v1", Key: testKey, Quirks: q}
	switch f {
	case llmtest.Chat:
		return llm.NewOpenAI(t, e)
	case llmtest.Responses:
		return llm.NewResponses(t, e, background)
	}
	return llm.NewAnthropic(t, e)
}

const testKey = "sk-test-of-the-oracle"

// ours is what our client hears.
func ours(ctx context.Context, s transcript, base string) (heard, error) {
	t := llm.NewTransport()
	defer t.Close()
	var text, reasoning strings.Builder
	a, err := client(s.format, t, base, llm.Quirks{NoStream: !s.stream()}, false).Stream(ctx,
		llm.Call{Model: "model-a", Turns: []llm.Turn{{Role: "user", Content: "Hello"}}},
		func(p llm.Piece) { text.WriteString(p.Text); reasoning.WriteString(p.Reasoning) })
	if err != nil {
		return heard{failed: true, err: err}, nil
	}
	if text.String() != a.Content || reasoning.String() != a.Reasoning {
		return heard{}, fmt.Errorf("the pieces are %q and %q, the answer is %q and %q", &text, &reasoning, a.Content, a.Reasoning)
	}
	h := heard{text: a.Content, reasoning: a.Reasoning, tools: a.ToolCalls, finish: a.Finish, upstream: a.UpstreamID}
	if !a.Usage.Estimated {
		h.usage = a.Usage
	}
	return h, nil
}

// theirs is what the provider's library hears, used as its documentation shows.
func theirs(ctx context.Context, s transcript, base string) heard {
	read := map[llmtest.Format]func(context.Context, string, bool) (heard, error){
		llmtest.Chat: readChat, llmtest.Responses: readResponses, llmtest.Anthropic: readAnthropic,
	}[s.format]
	h, err := read(ctx, base, s.stream())
	if err != nil {
		return heard{failed: true, err: err}
	}
	return h
}

// errTold: the response says itself that it failed.
var errTold = errors.New("the response says that it failed")
