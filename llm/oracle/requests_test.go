package oracle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"semel/llm"
	"semel/llm/llmtest"
)

// A known maps the paths in bodies of requests of which our client says more than
// the library, each with all below it, to the reason. Nothing else may differ.
type known map[string]string

var (
	// notStreamed is known of bodies that ask for no stream.
	notStreamed = known{"stream": "false is said, not left out: some servers stream unless they are told not to"}
	// notTaken is known of what the types of the library make of a Responses body.
	notTaken = known{"input": "messages without a type, as the library itself sends them, are lost when it reads them"}
)

// calls are what both are told to ask for.
var calls = map[string]llm.Call{
	"plain": {Model: "model-a", Turns: []llm.Turn{{Role: "user", Content: "Hello, 世界 <&>"}}},
	"conversation": {Model: "vendor/model-a:b", Turns: []llm.Turn{
		{Role: "system", Content: "Be brief."}, {Role: "user", Content: "One?"}, {Role: "assistant", Content: "One.\n"}, {Role: "user", Content: "Two?"},
	}},
	"parameters": {Model: "model-a", Turns: []llm.Turn{{Role: "user", Content: "Hello"}},
		Params: llm.Params{Temperature: new(0.25), TopP: new(0.9), MaxTokens: new(int64(77)), Seed: new(int64(42))}},
	"zeroes": {Model: "model-a", Turns: []llm.Turn{{Role: "user", Content: "Hello"}},
		Params: llm.Params{Temperature: new(0.0), Seed: new(int64(0))}},
	"tools": {Model: "model-a", Turns: []llm.Turn{{Role: "user", Content: "Sign it"}}, Tools: []llm.Tool{
		{Name: "sign", Description: "Signs a contract.", Parameters: `{"type":"object","properties":{"who":{"type":"string","enum":["a","b"]},"pages":{"type":"integer"}},"required":["who"],"additionalProperties":false}`},
		{Name: "ping"},
	}},
}

// Each body is that of the library for the same call, and the library's own types
// take it in and give it back as it was.
func TestOurClientsAskAsTheProvidersLibrariesDo(t *testing.T) {
	formats := []struct {
		format  llmtest.Format
		quirks  llm.Quirks
		ask     func(ctx context.Context, base string, stream bool, c llm.Call)
		params  func() any
		headers []string
	}{
		{llmtest.Chat, llm.Quirks{}, askChat(false), func() any { return new(openai.ChatCompletionNewParams) }, []string{"Authorization"}},
		{llmtest.Chat, llm.Quirks{MaxCompletionTokens: true}, askChat(true), func() any { return new(openai.ChatCompletionNewParams) }, []string{"Authorization"}},
		{llmtest.Responses, llm.Quirks{}, askResponses, func() any { return new(responses.ResponseNewParams) }, []string{"Authorization"}},
		{llmtest.Anthropic, llm.Quirks{}, askAnthropic, func() any { return new(anthropic.MessageNewParams) }, []string{"X-Api-Key", "Anthropic-Version"}},
	}
	url, last := catch(t)
	for _, f := range formats {
		for name, c := range calls {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%v/%s/stream=%t", f.format, f.quirks.MaxCompletionTokens, name, stream), func(t *testing.T) {
					q := f.quirks
					q.NoStream = !stream
					transport := llm.NewTransport()
					defer transport.Close()
					client(f.format, transport, url, q).Stream(t.Context(), c, func(llm.Piece) {}) // what is answered is no answer
					we := last()
					f.ask(t.Context(), url, stream, c)
					sdk := last()

					if we.method != sdk.method || we.path != sdk.path {
						t.Errorf("we ask %s %s, the library %s %s", we.method, we.path, sdk.method, sdk.path)
					}
					for _, h := range append(f.headers, "Content-Type") {
						if got, want := we.header.Values(h), sdk.header.Values(h); len(got) != 1 || !slices.Equal(got, want) {
							t.Errorf("%s: we send %q, the library %q", h, got, want)
						}
					}
					if got := we.header.Values("Idempotency-Key"); got != nil {
						t.Errorf("an idempotency key is sent: %q", got)
					}
					var more known
					if !stream {
						more = notStreamed
					}
					sameBody(t, f.format, we.body, sdk.body, more)

					// The types of the library lose what they do not know.
					params := f.params()
					if err := json.Unmarshal(we.body, params); err != nil {
						t.Fatalf("the library does not take %s: %v", we.body, err)
					}
					back, err := json.Marshal(params)
					if err != nil {
						t.Fatal(err)
					}
					if stream { // which method is called says it, not the parameters
						back = slices.Concat([]byte(`{"stream":true,`), back[1:])
					}
					if f.format == llmtest.Responses {
						more = maps.Clone(notTaken)
						if !stream {
							maps.Copy(more, notStreamed)
						}
					}
					sameBody(t, f.format, we.body, back, more)
				})
			}
		}
	}
}

// sameBody compares bodies of requests, where ours may say more of what is known.
func sameBody(t *testing.T, f llmtest.Format, ours, sdk []byte, more known) {
	t.Helper()
	we, they := paths(t, f, ours), paths(t, f, sdk)
	for _, p := range slices.Sorted(maps.Keys(we)) {
		want, ok := they[p]
		delete(they, p)
		top, _, _ := strings.Cut(p, ".")
		_, listed := more[top]
		switch {
		case listed && ok:
			t.Errorf("%s: the library says %s as well; it is no difference any more", p, want)
		case !listed && !ok:
			t.Errorf("%s: we send %s, the library nothing", p, we[p])
		case !listed && we[p] != want:
			t.Errorf("%s: we send %s, the library %s", p, we[p], want)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(they)) {
		if top, _, _ := strings.Cut(p, "."); more[top] == "" {
			t.Errorf("%s: we send nothing, the library %s", p, they[p])
		}
	}
}

// paths returns the leaves of a body by their paths.
func paths(t *testing.T, f llmtest.Format, body []byte) map[string]string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var doc any
	if err := d.Decode(&doc); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	leaves := map[string]string{}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		if s, ok := v.(string); ok && f == llmtest.Anthropic && (at == "system" || strings.HasSuffix(at, ".content")) {
			// Short for one block of text (https://platform.claude.com/docs/en/api/messages).
			v = []any{map[string]any{"type": "text", "text": s}}
		}
		switch v := v.(type) {
		case map[string]any:
			for k, w := range v {
				walk(strings.TrimPrefix(at+"."+k, "."), w)
			}
			if len(v) == 0 {
				leaves[at] = "{}"
			}
		case []any:
			for i, w := range v {
				walk(fmt.Sprintf("%s.%d", at, i), w)
			}
			if len(v) == 0 {
				leaves[at] = "[]"
			}
		default:
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			leaves[at] = string(b)
		}
	}
	walk("", doc)
	return leaves
}

// A request is what was sent.
type request struct {
	method, path string
	header       http.Header
	body         []byte
}

// catch serves answers that are none; last returns the request since it was called
// last.
func catch(t *testing.T) (url string, last func() request) {
	t.Helper()
	got := make(chan request, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- request{r.Method, r.URL.Path, r.Header.Clone(), body}
		http.Error(w, "caught", http.StatusTeapot)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() request {
		t.Helper()
		select {
		case r := <-got:
			if len(got) > 0 {
				t.Fatal("it was asked twice")
			}
			return r
		default:
			t.Fatal("nothing was asked")
			panic("not reached")
		}
	}
}

func schema(t llm.Tool) map[string]any {
	m := map[string]any{"type": "object", "properties": map[string]any{}}
	if t.Parameters != "" {
		m = nil
		if err := json.Unmarshal([]byte(t.Parameters), &m); err != nil {
			panic(err)
		}
	}
	return m
}

// askChat asks for a chat completion, with either name of the limit of tokens.
func askChat(maxCompletionTokens bool) func(context.Context, string, bool, llm.Call) {
	return func(ctx context.Context, base string, stream bool, c llm.Call) {
		service := openai.NewChatCompletionService(openaiOptions(base)...)
		p := openai.ChatCompletionNewParams{Model: c.Model}
		for _, turn := range c.Turns {
			p.Messages = append(p.Messages, map[string]func(string) openai.ChatCompletionMessageParamUnion{
				"system": openai.SystemMessage[string], "user": openai.UserMessage[string], "assistant": openai.AssistantMessage[string],
			}[turn.Role](turn.Content))
		}
		if v := c.Params.Temperature; v != nil {
			p.Temperature = openai.Float(*v)
		}
		if v := c.Params.TopP; v != nil {
			p.TopP = openai.Float(*v)
		}
		if v := c.Params.Seed; v != nil {
			p.Seed = openai.Int(*v)
		}
		if v := c.Params.MaxTokens; v != nil && maxCompletionTokens {
			p.MaxCompletionTokens = openai.Int(*v)
		} else if v != nil {
			p.MaxTokens = openai.Int(*v)
		}
		for _, tool := range c.Tools {
			f := shared.FunctionDefinitionParam{Name: tool.Name, Parameters: schema(tool)}
			if tool.Description != "" {
				f.Description = openai.String(tool.Description)
			}
			p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(f))
		}
		if !stream {
			service.New(ctx, p) // fails: what is answered is no answer
			return
		}
		p.StreamOptions.IncludeUsage = openai.Bool(true)
		service.NewStreaming(ctx, p).Close()
	}
}

func askResponses(ctx context.Context, base string, stream bool, c llm.Call) {
	service := responses.NewResponseService(openaiOptions(base)...)
	p := responses.ResponseNewParams{Model: c.Model, Store: openai.Bool(false)}
	for _, turn := range c.Turns {
		if turn.Role == "system" {
			p.Instructions = openai.String(turn.Content)
			continue
		}
		p.Input.OfInputItemList = append(p.Input.OfInputItemList,
			responses.ResponseInputItemParamOfMessage(turn.Content, responses.EasyInputMessageRole(turn.Role)))
	}
	if v := c.Params.Temperature; v != nil {
		p.Temperature = openai.Float(*v)
	}
	if v := c.Params.TopP; v != nil {
		p.TopP = openai.Float(*v)
	}
	if v := c.Params.MaxTokens; v != nil {
		p.MaxOutputTokens = openai.Int(*v)
	}
	for _, tool := range c.Tools {
		f := responses.ToolParamOfFunction(tool.Name, schema(tool), false)
		if tool.Description != "" {
			f.OfFunction.Description = openai.String(tool.Description)
		}
		p.Tools = append(p.Tools, f)
	}
	if stream {
		service.NewStreaming(ctx, p).Close()
	} else {
		service.New(ctx, p) // fails: what is answered is no answer
	}
}

func askAnthropic(ctx context.Context, base string, stream bool, c llm.Call) {
	service := anthropic.NewMessageService(anthropicOptions(base)...)
	p := anthropic.MessageNewParams{Model: anthropic.Model(c.Model), MaxTokens: 8192}
	for _, turn := range c.Turns {
		block := anthropic.NewTextBlock(turn.Content)
		switch turn.Role {
		case "system":
			p.System = append(p.System, *block.OfText)
		case "user":
			p.Messages = append(p.Messages, anthropic.NewUserMessage(block))
		case "assistant":
			p.Messages = append(p.Messages, anthropic.NewAssistantMessage(block))
		}
	}
	if v := c.Params.Temperature; v != nil {
		p.Temperature = anthropic.Float(*v)
	}
	if v := c.Params.TopP; v != nil {
		p.TopP = anthropic.Float(*v)
	}
	if v := c.Params.MaxTokens; v != nil {
		p.MaxTokens = *v
	}
	for _, tool := range c.Tools {
		var input anthropic.ToolInputSchemaParam
		b, err := json.Marshal(schema(tool))
		if err == nil {
			err = json.Unmarshal(b, &input)
		}
		if err != nil {
			panic(err)
		}
		v := anthropic.ToolParam{Name: tool.Name, InputSchema: input}
		if tool.Description != "" {
			v.Description = anthropic.String(tool.Description)
		}
		p.Tools = append(p.Tools, anthropic.ToolUnionParam{OfTool: &v})
	}
	if stream {
		service.NewStreaming(ctx, p).Close()
	} else {
		service.New(ctx, p) // fails: what is answered is no answer
	}
}
