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
	"sync"
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
		format llmtest.Format
		option bool // max_completion_tokens, background mode
		ask    func(ctx context.Context, base string, stream bool, c llm.Call)
		params func() any
	}{
		{llmtest.Chat, false, askChat(false), func() any { return new(openai.ChatCompletionNewParams) }},
		{llmtest.Chat, true, askChat(true), func() any { return new(openai.ChatCompletionNewParams) }},
		{llmtest.Responses, false, askResponses(false), func() any { return new(responses.ResponseNewParams) }},
		{llmtest.Responses, true, askResponses(true), func() any { return new(responses.ResponseNewParams) }},
		{llmtest.Anthropic, false, askAnthropic, func() any { return new(anthropic.MessageNewParams) }},
	}
	url, asked := catch(t)
	for _, f := range formats {
		for name, c := range calls {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%t/%s/stream=%t", f.format, f.option, name, stream), func(t *testing.T) {
					q := llm.Quirks{NoStream: !stream, MaxCompletionTokens: f.option}
					transport := llm.NewTransport()
					defer transport.Close()
					client(f.format, transport, url, q, f.option).Stream(t.Context(), c, func(llm.Piece) {}) // what is answered is no answer
					we := asked(1)[0]
					f.ask(t.Context(), url, stream, c)
					sdk := asked(1)[0]
					sameHead(t, f.format, we, sdk)
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

// What is asked about runs that a provider keeps, and about its models.
func TestOurClientsAskOnAsTheProvidersLibrariesDo(t *testing.T) {
	url, asked := catch(t)
	transport := llm.NewTransport()
	defer transport.Close()
	const id = "resp_a-1"
	service := responses.NewResponseService(openaiOptions(url)...)
	openaiModels := openai.NewModelService(openaiOptions(url)...)
	anthropicModels := anthropic.NewModelService(anthropicOptions(url)...)
	run := client(llmtest.Responses, transport, url, llm.Quirks{}, true).(llm.Reattacher)

	// Nothing that is asked for is found.
	run.Reattach(t.Context(), llm.Call{Model: "model-a"}, id, func(llm.Piece) {})
	run.Cancel(t.Context(), id)
	for _, f := range []llmtest.Format{llmtest.Chat, llmtest.Responses, llmtest.Anthropic} {
		client(f, transport, url, llm.Quirks{}, false).(llm.Lister).Models(t.Context())
	}
	we := asked(6)
	service.GetStreaming(t.Context(), id, responses.ResponseGetParams{}).Close()
	service.Get(t.Context(), id, responses.ResponseGetParams{})
	service.Cancel(t.Context(), id)
	openaiModels.List(t.Context())
	openaiModels.List(t.Context())
	anthropicModels.List(t.Context(), anthropic.ModelListParams{Limit: anthropic.Int(1000)})
	sdk := asked(6)
	// The library says in a body, which a GET has not, what is to be said in the query
	// (https://developers.openai.com/api/reference/resources/responses/methods/retrieve).
	const streamed = "?stream=true"
	if strings.Contains(sdk[0].path, streamed) {
		t.Errorf("the library asks %s: it is no difference any more", sdk[0].path)
	}
	sdk[0].path += streamed
	for i, f := range []llmtest.Format{llmtest.Responses, llmtest.Responses, llmtest.Responses, llmtest.Chat, llmtest.Responses, llmtest.Anthropic} {
		sameHead(t, f, we[i], sdk[i])
		if len(we[i].body) != 0 {
			t.Errorf("%s has a body: %s", we[i].path, we[i].body)
		}
	}
}

// sameHead compares requests but for their bodies.
func sameHead(t *testing.T, f llmtest.Format, we, sdk request) {
	t.Helper()
	if we.method != sdk.method || we.path != sdk.path {
		t.Errorf("we ask %s %s, the library %s %s", we.method, we.path, sdk.method, sdk.path)
	}
	headers := []string{"Authorization"}
	if f == llmtest.Anthropic {
		headers = []string{"X-Api-Key", "Anthropic-Version"}
	}
	if len(we.body) > 0 {
		headers = append(headers, "Content-Type")
	}
	for _, h := range headers {
		if got, want := we.header.Values(h), sdk.header.Values(h); len(got) != 1 || !slices.Equal(got, want) {
			t.Errorf("%s: %s: we send %q, the library %q", we.path, h, got, want)
		}
	}
	if got := we.header.Values("Idempotency-Key"); got != nil {
		t.Errorf("%s: an idempotency key is sent: %q", we.path, got)
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
	method, path string // with its query
	header       http.Header
	body         []byte
}

// catch serves answers that are none. asked returns what was asked for since it was
// called last, which must be n requests.
func catch(t *testing.T) (url string, asked func(n int) []request) {
	t.Helper()
	var mu sync.Mutex
	var got []request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, request{r.Method, r.URL.RequestURI(), r.Header.Clone(), body})
		http.Error(w, "caught", http.StatusTeapot)
	}))
	t.Cleanup(server.Close)
	return server.URL, func(n int) []request {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(got) != n {
			t.Fatalf("%d requests, want %d: %+v", len(got), n, got)
		}
		list := got
		got = nil
		return list
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

// askResponses asks for a response, in background mode or not.
func askResponses(background bool) func(context.Context, string, bool, llm.Call) {
	return func(ctx context.Context, base string, stream bool, c llm.Call) {
		service := responses.NewResponseService(openaiOptions(base)...)
		p := responses.ResponseNewParams{Model: c.Model, Store: openai.Bool(background)}
		if background {
			p.Background = openai.Bool(true)
		}
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
