package llm

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
)

// A told is what came of one call to a provider.
type told struct {
	answer          Answer
	text, reasoning string // of the pieces
	pieces          int
	err             error
}

func tell(ctx context.Context, client Client, c Call) (r told) {
	r.answer, r.err = client.Stream(ctx, c, func(p Piece) {
		r.text, r.reasoning = r.text+p.Text, r.reasoning+p.Reasoning
		r.pieces++
	})
	return r
}

// chatQuestion is a call with a little of everything that is often there.
func chatQuestion() Call {
	return Call{RequestID: "r-0000001", Attempt: 1, Model: "m", Turns: []Turn{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Why?"}}}
}

// answering returns a client of a server that answers everything with body.
func answering(t *testing.T, contentType, body string) *OpenAI {
	t.Helper()
	return served(t, Quirks{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		io.WriteString(w, body)
	})
}

func served(t *testing.T, q Quirks, h http.HandlerFunc) *OpenAI {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return NewOpenAI(newTestTransport(t), Endpoint{URL: s.URL + "/v1/", Key: testKey, Quirks: q})
}

// frames is a stream of these events.
func frames(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		if !strings.HasPrefix(d, "event:") {
			d = "data: " + d
		}
		b.WriteString(d + "\n\n")
	}
	return b.String()
}

// Parts of streams.
const (
	first    = `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}],"usage":null}`
	hello    = `{"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}`
	lo       = `{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}`
	stop     = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usage    = `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}`
	done     = "[DONE]"
	rateBody = `{"error":{"message":"Slow down.","type":"requests","code":"rate_limit_exceeded"}}`
)

func delta(fields string) string { return `{"choices":[{"index":0,"delta":{` + fields + `}}]}` }

func finish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

var counted = chat.Usage{InputTokens: 10, OutputTokens: 2}

func TestAChatCompletionIsReadAsItIsSent(t *testing.T) {
	estimated := Estimate(chatQuestion(), "Hello", "")
	for _, tt := range []struct {
		name string
		body string
		want Answer
	}{
		{"OpenAI", frames(first, hello, lo, stop, usage, done),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: counted, UpstreamID: "chatcmpl-1"}},
		{"Ollama: the role in each delta, an empty last one, no usage",
			frames(delta(`"role":"assistant","content":"Hel"`), delta(`"role":"assistant","content":"lo"`), `{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}`, done),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: estimated}},
		{"null everywhere", frames(`{"choices":[{"delta":{"role":null,"content":"Hello","reasoning_content":null,"reasoning":null,"refusal":null,"tool_calls":null},"finish_reason":null,"usage":null,"error":null}],"error":null,"usage":null}`, stop, done),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: estimated}},
		{"an empty finish reason is none", frames(`{"choices":[{"delta":{"content":"Hel"},"finish_reason":""}]}`, lo, stop),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: estimated}},
		{"no [DONE]", frames(hello, lo, stop), Answer{Content: "Hello", Finish: chat.FinishStop, Usage: estimated}},
		{"no usage", frames(hello, lo, stop, done), Answer{Content: "Hello", Finish: chat.FinishStop, Usage: estimated}},
		{"the end in the last delta", frames(hello, `{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2}}`),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: counted}},
		{"everything twice at the end", frames(hello, lo, stop, stop, usage, usage, done, done), Answer{Content: "Hello", Finish: chat.FinishStop, Usage: counted}},
		{"another end behind the first", frames(hello, lo, finish("length"), stop, usage), Answer{Content: "Hello", Finish: chat.FinishLength, Usage: counted}},
		{"more behind [DONE]", frames(hello, lo, stop, done, hello, usage), Answer{Content: "Hello", Finish: chat.FinishStop, Usage: estimated}},
		{"an error behind the end", frames(hello, lo, stop, rateBody), Answer{Content: "Hello", Finish: chat.FinishStop, Usage: estimated}},
		{"no JSON behind the end", frames(hello, lo, stop, "{oops", done), Answer{Content: "Hello", Finish: chat.FinishStop, Usage: estimated}},
		{"an error for a finish reason behind the end", frames(hello, lo, stop, finish("error"), usage), Answer{Content: "Hello", Finish: chat.FinishStop, Usage: counted}},
		{"events of other kinds", ": OPENROUTER PROCESSING\n\n" + frames(`{"choices":[]}`, "{}", "null", "event: ping\ndata: {}", hello, lo, stop, usage),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: counted}},
		{"white space first", "\n\r\n \n" + frames(hello, lo, stop, usage), Answer{Content: "Hello", Finish: chat.FinishStop, Usage: counted}},
		{"a byte order mark", "\xef\xbb\xbf" + frames(hello, lo, stop, usage), Answer{Content: "Hello", Finish: chat.FinishStop, Usage: counted}},
		{"nothing but an end", frames(stop, usage), Answer{Finish: chat.FinishStop, Usage: counted}},

		{"reasoning_content", frames(delta(`"reasoning_content":"Hm"`), delta(`"reasoning_content":"."`), hello, lo, stop, usage),
			Answer{Content: "Hello", Reasoning: "Hm.", Finish: chat.FinishStop, Usage: counted}},
		{"reasoning", frames(delta(`"content":"","reasoning":"Hm."`), hello, lo, stop, usage),
			Answer{Content: "Hello", Reasoning: "Hm.", Finish: chat.FinishStop, Usage: counted}},
		{"both are one", frames(delta(`"reasoning":"Hm.","reasoning_content":"Hm."`), hello, lo, stop, usage),
			Answer{Content: "Hello", Reasoning: "Hm.", Finish: chat.FinishStop, Usage: counted}},
		{"thoughts between tags", frames(delta(`"content":"<thi"`), delta(`"content":"nk>Hm.</th"`), delta(`"content":"ink>Hel"`), lo, stop, usage),
			Answer{Content: "Hello", Reasoning: "Hm.", Finish: chat.FinishStop, Usage: counted}},
		{"thoughts without an end", frames(delta(`"content":"<think>Hm.</th"`), finish("length"), usage),
			Answer{Reasoning: "Hm.</th", Finish: chat.FinishLength, Usage: counted}},
		{"tags after reasoning are text", frames(delta(`"reasoning":"Hm."`), delta(`"content":"<think>a</think>"`), stop, usage),
			Answer{Content: "<think>a</think>", Reasoning: "Hm.", Finish: chat.FinishStop, Usage: counted}},
		{"what looked like a tag is not lost", frames(delta(`"content":"<thi"`), delta(`"reasoning":"Hm."`), stop, usage),
			Answer{Content: "<thi", Reasoning: "Hm.", Finish: chat.FinishStop, Usage: counted}},
		{"thoughts on both ways", frames(delta(`"content":"<think>a</th"`), delta(`"reasoning":"b"`), stop, usage),
			Answer{Reasoning: "a</thb", Finish: chat.FinishStop, Usage: counted}},

		{"a refusal", frames(delta(`"refusal":"I am "`), delta(`"refusal":"sorry."`), stop, usage),
			Answer{Content: "I am sorry.", Finish: chat.FinishFiltered, Usage: counted}},

		{"usage in a choice (Moonshot)", frames(hello, `{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop","usage":{"prompt_tokens":10,"completion_tokens":2,"cached_tokens":4}}]}`),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: chat.Usage{InputTokens: 10, CachedTokens: 4, OutputTokens: 2}}},
		{"cached tokens (OpenAI)", frames(hello, lo, stop, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: chat.Usage{InputTokens: 10, CachedTokens: 4, OutputTokens: 2}}},
		{"cached tokens (DeepSeek)", frames(hello, lo, stop, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}}`),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: chat.Usage{InputTokens: 10, CachedTokens: 4, OutputTokens: 2}}},
		{"more cached than sent", frames(hello, lo, stop, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"cached_tokens":40}}`),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: chat.Usage{InputTokens: 10, CachedTokens: 10, OutputTokens: 2}}},
		{"a count that grows", frames(`{"choices":[{"delta":{"content":"Hel"}}],"usage":{"prompt_tokens":10,"completion_tokens":1}}`, lo, stop, usage),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: counted}},
		{"a count only before the end", frames(hello, `{"choices":[{"delta":{"content":"lo"}}],"usage":{"prompt_tokens":10,"completion_tokens":2}}`, stop, done),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: counted}},
		{"a count that is none", frames(hello, lo, stop, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, `{"choices":[],"usage":{"prompt_tokens":"ten"}}`, `{"choices":[],"usage":{"prompt_tokens":-3,"completion_tokens":5}}`, done),
			Answer{Content: "Hello", Finish: chat.FinishStop, Usage: estimated}},
	} {
		r := tell(t.Context(), answering(t, "text/event-stream", tt.body), chatQuestion())
		if r.err != nil || !reflect.DeepEqual(r.answer, tt.want) {
			t.Errorf("%s: got %+v, %v (%v)\nwant %+v", tt.name, r.answer, r.err, errors.Unwrap(r.err), tt.want)
		}
		if r.text != r.answer.Content || r.reasoning != r.answer.Reasoning {
			t.Errorf("%s: the pieces are %q and %q, the answer is %q and %q", tt.name, r.text, r.reasoning, r.answer.Content, r.answer.Reasoning)
		}
	}
}

func TestAFinishReasonSaysHowAnAnswerEnded(t *testing.T) {
	for reason, want := range map[string]chat.Finish{
		"stop": chat.FinishStop, "length": chat.FinishLength, "content_filter": chat.FinishFiltered, "sensitive": chat.FinishFiltered,
		"max_tokens": chat.FinishLength, "model_context_window_exceeded": chat.FinishLength,
		"tool_calls": chat.FinishStop, "function_call": chat.FinishStop, // it asked for nothing
		"eos": chat.FinishStop, "a word of tomorrow": chat.FinishStop,
	} {
		r := tell(t.Context(), answering(t, "text/event-stream", frames(hello, finish(reason), usage)), chatQuestion())
		if r.err != nil || r.answer.Finish != want {
			t.Errorf("%s: got %s, %v, want %s", reason, r.answer.Finish, r.err, want)
		}
	}
	for _, reason := range []string{"error", "network_error", "insufficient_system_resource", "abort"} {
		r := tell(t.Context(), answering(t, "text/event-stream", frames(first, finish(reason), usage)), chatQuestion())
		wantOutcome(t, r.err, chat.OutcomeUnknown)
		r = tell(t.Context(), answering(t, "text/event-stream", frames(hello, finish(reason), usage)), chatQuestion())
		wantOutcome(t, r.err, chat.OutcomeDefinite)
	}
	r := tell(t.Context(), answering(t, "text/event-stream", frames(first, finish("content_filter"), usage)), chatQuestion())
	if e := wantOutcome(t, r.err, chat.OutcomeDefinite); e.Code != "content_refused" {
		t.Errorf("filtered from the first word on: got %s", e.Code)
	}
}

func TestToolCallsArePutTogether(t *testing.T) {
	part := func(fields string) string { return delta(`"tool_calls":[` + fields + `]`) }
	for _, tt := range []struct {
		name  string
		parts []string
		want  []ToolCall
	}{
		{"OpenAI: id and name once, arguments in fragments", []string{
			part(`{"index":0,"id":"a","type":"function","function":{"name":"sign","arguments":""}}`),
			part(`{"index":0,"function":{"arguments":"{\"x\""}}`), part(`{"index":0,"function":{"arguments":":1}"}}`),
		}, []ToolCall{{"a", "sign", `{"x":1}`}}},
		{"two, one after the other", []string{
			part(`{"index":0,"id":"a","function":{"name":"sign","arguments":"{"}}`), part(`{"index":0,"function":{"arguments":"}"}}`),
			part(`{"index":1,"id":"b","function":{"name":"sign","arguments":"{\"y\":"}}`), part(`{"index":1,"function":{"arguments":"2}"}}`),
		}, []ToolCall{{"a", "sign", `{}`}, {"b", "sign", `{"y":2}`}}},
		{"two, in turns", []string{
			part(`{"index":0,"id":"a","function":{"name":"sign","arguments":"{"}},{"index":1,"id":"b","function":{"name":"send","arguments":"{\"y\""}}`),
			part(`{"index":1,"function":{"arguments":":2}"}},{"index":0,"function":{"arguments":"}"}}`),
		}, []ToolCall{{"a", "sign", `{}`}, {"b", "send", `{"y":2}`}}},
		{"id and name in each part", []string{
			part(`{"index":0,"id":"a","function":{"name":"sign","arguments":"{\"x\""}}`), part(`{"index":0,"id":"a","function":{"name":"sign","arguments":":1}"}}`),
		}, []ToolCall{{"a", "sign", `{"x":1}`}}},
		{"the name in each part, no id", []string{
			part(`{"index":0,"function":{"name":"sign","arguments":"{\"x\""}}`), part(`{"index":0,"function":{"name":"sign","arguments":":{}}"}}`), part(`{"index":0,"function":{"name":"sign","arguments":""}}`),
		}, []ToolCall{{"", "sign", `{"x":{}}`}}},
		{"another id in each part, the name once (vLLM)", []string{
			part(`{"index":0,"id":"a","function":{"name":"sign"}}`), part(`{"index":0,"id":"b","function":{"arguments":"{\"x\""}}`), part(`{"index":0,"id":"c","function":{"arguments":":1}"}}`),
		}, []ToolCall{{"a", "sign", `{"x":1}`}}},
		{"whole, without an index", []string{
			part(`{"id":"a","function":{"name":"sign","arguments":"{}"}},{"id":"b","function":{"name":"sign","arguments":"{\"y\":2}"}}`),
		}, []ToolCall{{"a", "sign", `{}`}, {"b", "sign", `{"y":2}`}}},
		{"whole, without index and id", []string{
			part(`{"function":{"name":"sign","arguments":"{}"}},{"function":{"name":"send","arguments":"{}"}}`), part(`{"function":{"name":"send","arguments":"{\"y\":2}"}}`),
		}, []ToolCall{{"", "sign", `{}`}, {"", "send", `{}`}, {"", "send", `{"y":2}`}}},
		{"whole, all with index 0", []string{
			part(`{"index":0,"id":"a","function":{"name":"sign","arguments":"{}"}}`), part(`{"index":0,"id":"b","function":{"name":"sign","arguments":"{}"}}`), part(`{"index":0,"id":"","function":{"name":"send","arguments":"{}"}}`),
		}, []ToolCall{{"a", "sign", `{}`}, {"b", "sign", `{}`}, {"", "send", `{}`}}},
		{"fragments, all with index 0", []string{
			part(`{"index":0,"id":"a","function":{"name":"sign","arguments":"{}"}}`), part(`{"index":0,"id":"b","function":{"name":"send","arguments":"{\"y\""}}`), part(`{"index":0,"function":{"arguments":":2}"}}`),
		}, []ToolCall{{"a", "sign", `{}`}, {"b", "send", `{"y":2}`}}},
		{"fragments without an index", []string{
			part(`{"id":"a","function":{"name":"sign","arguments":"{\"x\""}}`), part(`{"function":{"arguments":":1}"}}`),
			part(`{"id":"b","function":{"name":"sign","arguments":"{"}}`), part(`{"id":"b","function":{"arguments":"}"}}`),
		}, []ToolCall{{"a", "sign", `{"x":1}`}, {"b", "sign", `{}`}}},
		{"an index far away", []string{part(`{"index":2000000000,"id":"a","function":{"name":"sign","arguments":"{}"}}`), part(`{"index":-7,"id":"b","function":{"name":"sign","arguments":"{}"}}`)},
			[]ToolCall{{"a", "sign", `{}`}, {"b", "sign", `{}`}}},
		{"arguments that are JSON", []string{part(`{"index":0,"id":"a","function":{"name":"sign","arguments":{"x": 1}}}`)}, []ToolCall{{"a", "sign", `{"x":1}`}}},
		{"arguments that are no JSON", []string{part(`{"index":0,"id":"a","function":{"name":"sign","arguments":"{oops"}}`)}, []ToolCall{{"a", "sign", `{oops`}}},
		{"no arguments", []string{part(`{"index":0,"id":"a","function":{"name":"sign","arguments":null}}`)}, []ToolCall{{"a", "sign", ""}}},
	} {
		for _, reason := range []string{"tool_calls", "stop", "function_call"} {
			body := frames(append(append([]string{first}, tt.parts...), finish(reason), usage)...)
			r := tell(t.Context(), answering(t, "text/event-stream", body), chatQuestion())
			if r.err != nil || !reflect.DeepEqual(r.answer.ToolCalls, tt.want) || r.answer.Finish != chat.FinishTool {
				t.Errorf("%s, %s: got %+v, %s, %v, want %+v", tt.name, reason, r.answer.ToolCalls, r.answer.Finish, r.err, tt.want)
			}
		}
	}
	cut := frames(delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"sign","arguments":"{\"x"}}]`), finish("length"), usage)
	if r := tell(t.Context(), answering(t, "text/event-stream", cut), chatQuestion()); r.err != nil || r.answer.ToolCalls != nil || r.answer.Finish != chat.FinishLength {
		t.Errorf("cut by the limit: got %+v, %v; half an action is none", r.answer, r.err)
	}
}

// S27: an answer that was cut off is none.
func TestAStreamWithoutAnEndIsAFailure(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		outcome    chat.Outcome
		code       string
		text       string
	}{
		{"nothing", "", chat.OutcomeUnknown, "line_lost", ""},
		{"no text", frames(first), chat.OutcomeUnknown, "line_lost", ""},
		{"no finish reason", frames(hello, lo), chat.OutcomeUnknown, "line_lost", "Hello"},
		{"[DONE] is no finish reason", frames(hello, lo, done), chat.OutcomeUnknown, "line_lost", "Hello"},
		{"usage is no finish reason", frames(hello, lo, usage), chat.OutcomeUnknown, "line_lost", "Hello"},
		{"what looked like a tag is kept", frames(delta(`"content":"<thi"`)), chat.OutcomeUnknown, "line_lost", "<thi"},
		{"no JSON", frames(hello, "{oops", stop), chat.OutcomeUnknown, "provider_error", "Hel"},
		{"half a frame", frames(hello) + `data: {"choices":[{"del`, chat.OutcomeUnknown, "provider_error", "Hel"},
		{"JSON of another shape", frames(hello, `{"choices":"none"}`, stop), chat.OutcomeUnknown, "provider_error", "Hel"},
		{"arguments of another shape", frames(hello, delta(`"tool_calls":[{"function":{"name":"x","arguments":7}}]`), stop), chat.OutcomeUnknown, "provider_error", "Hel"},

		{"an error first", frames(rateBody), chat.OutcomeDefinite, "provider_busy", ""},
		{"an error after the role", frames(first, rateBody), chat.OutcomeDefinite, "provider_busy", ""},
		{"an error after text", frames(hello, lo, rateBody, done), chat.OutcomeDefinite, "provider_error", "Hello"},
		{"an error after half a tag", frames(delta(`"content":"<thi"`), rateBody), chat.OutcomeDefinite, "provider_error", "<thi"},
		{"an error after a tool call", frames(delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"sign","arguments":""}}]`), rateBody), chat.OutcomeDefinite, "provider_error", ""},
		{"an error event", frames("event: error\ndata: " + rateBody), chat.OutcomeDefinite, "provider_busy", ""},
		{"an error event without an error inside", frames("event: error\ndata: {\"message\":\"Overloaded\",\"type\":\"overloaded_error\"}"), chat.OutcomeDefinite, "provider_busy", ""},
		{"an error event in words", frames(hello, "event: error\ndata: it broke"), chat.OutcomeDefinite, "provider_error", "Hel"},
		{"OpenRouter", frames(hello, `{"id":"x","error":{"code":"server_error","message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`), chat.OutcomeDefinite, "provider_error", "Hel"},
		{"OpenRouter, in the choice", frames(first, `{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":503,"message":"No provider"}}]}`), chat.OutcomeDefinite, "provider_busy", ""},
		{"vLLM", frames(`{"object":"error","message":"maximum context length","type":"BadRequestError","code":400}`), chat.OutcomeDefinite, "context_too_long", ""},
		{"DashScope", frames(`{"code":"DataInspectionFailed","message":"Input data may contain inappropriate content.","request_id":"x"}`), chat.OutcomeDefinite, "content_refused", ""},
		{"a failure without words", frames(first, `{"error":{"code":503}}`), chat.OutcomeDefinite, "provider_busy", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tell(t.Context(), answering(t, "text/event-stream", tt.body), chatQuestion())
			if e := wantOutcome(t, r.err, tt.outcome); e.Code != tt.code {
				t.Errorf("got code %s, want %s", e.Code, tt.code)
			}
			if r.text+r.reasoning != tt.text {
				t.Errorf("got %q before it, want %q", r.text+r.reasoning, tt.text)
			}
			if !reflect.DeepEqual(r.answer, Answer{}) {
				t.Errorf("got an answer with the error: %+v", r.answer)
			}
		})
	}
}

func TestAWholeAnswerIsTakenForAStream(t *testing.T) {
	const whole = `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"<think>Hm.</think>Hello","refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2}}`
	want := Answer{Content: "Hello", Reasoning: "Hm.", Finish: chat.FinishStop, Usage: counted, UpstreamID: "chatcmpl-1"}
	for _, contentType := range []string{"application/json", "text/event-stream", "text/plain"} {
		r := tell(t.Context(), answering(t, contentType, "\n\n"+whole), chatQuestion())
		if r.err != nil || !reflect.DeepEqual(r.answer, want) || r.text != "Hello" || r.reasoning != "Hm." {
			t.Errorf("%s: got %+v, %v", contentType, r, r.err)
		}
	}
	r := tell(t.Context(), answering(t, "application/json", `{"choices":[{"message":{"content":null,"reasoning_content":"Hm.","tool_calls":[{"id":"a","type":"function","function":{"name":"sign","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`), chatQuestion())
	if r.err != nil || len(r.answer.ToolCalls) != 1 || r.answer.Finish != chat.FinishTool || r.answer.Reasoning != "Hm." || !r.answer.Usage.Estimated {
		t.Errorf("an action: got %+v, %v", r.answer, r.err)
	}
	r = tell(t.Context(), answering(t, "application/json", `{"choices":[{"message":{"content":"Hello"}}]}`), chatQuestion())
	if r.err != nil || r.answer.Finish != chat.FinishStop {
		t.Errorf("without a finish reason: got %+v, %v; its end is the end", r.answer, r.err)
	}
	for _, tt := range []struct {
		body    string
		outcome chat.Outcome
		code    string
	}{
		{rateBody, chat.OutcomeDefinite, "provider_busy"},
		{`{"error":"out of memory"}`, chat.OutcomeUnknown, "provider_error"},
		{`{"code":400,"message":"bad"}`, chat.OutcomeDefinite, "provider_refused"},
		{`{"status":"ok"}`, chat.OutcomeUnknown, "provider_error"},
		{`{"choices":[]}`, chat.OutcomeUnknown, "provider_error"},
		{`{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}`, chat.OutcomeUnknown, "provider_error"},
		{`{"choices":[{"message":{"content":"Hel`, chat.OutcomeUnknown, "provider_error"},
		{`[]`, chat.OutcomeUnknown, "provider_error"},
		{"<!DOCTYPE html><title>Sign in</title>", chat.OutcomeUnknown, "provider_error"},
		{"It works!", chat.OutcomeUnknown, "line_lost"},
	} {
		r := tell(t.Context(), answering(t, "application/json", tt.body), chatQuestion())
		if e := wantOutcome(t, r.err, tt.outcome); e.Code != tt.code {
			t.Errorf("%s: got code %s, want %s", tt.body, e.Code, tt.code)
		}
	}
}

func TestACallIsWrittenAsTheProviderWantsIt(t *testing.T) {
	temperature, topP, limit, seed := 0.5, 0.9, int64(100), int64(7)
	full := chatQuestion()
	full.Params = Params{Temperature: &temperature, TopP: &topP, MaxTokens: &limit, Seed: &seed}
	full.Tools = []Tool{{Name: "sign", Description: "Signs.", Parameters: `{"type":"object"}`}}
	more := chatQuestion()
	more.Continue, more.Turns = true, append(more.Turns, Turn{Role: "assistant", Content: "Because"})
	nothing := chatQuestion()
	nothing.Continue = true
	const (
		head   = `{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Why?"}`
		stream = `,"stream":true,"stream_options":{"include_usage":true}`
	)
	for _, tt := range []struct {
		name string
		q    Quirks
		c    Call
		want string
	}{
		{"plain", Quirks{}, chatQuestion(), head + `]` + stream + `}`},
		{"no stream", Quirks{NoStream: true}, chatQuestion(), head + `],"stream":false}`},
		{"everything", Quirks{}, full, head + `]` + stream + `,"temperature":0.5,"top_p":0.9,"seed":7,"max_tokens":100,"tools":[{"type":"function","function":{"name":"sign","description":"Signs.","parameters":{"properties":{},"type":"object"}}}]}`},
		{"the other limit", Quirks{MaxCompletionTokens: true}, Call{Model: "m", Params: Params{MaxTokens: &limit}}, `{"model":"m","messages":[]` + stream + `,"max_completion_tokens":100}`},
		{"continue, asked", Quirks{}, more, head + `,{"role":"assistant","content":"Because"},{"role":"user","content":"` + askToContinue + `"}]` + stream + `}`},
		{"continue, prefill", Quirks{Continue: ContinuePrefill}, more, head + `,{"role":"assistant","content":"Because"}]` + stream + `}`},
		{"continue, partial", Quirks{Continue: ContinuePartial}, more, head + `,{"role":"assistant","content":"Because","partial":true}]` + stream + `}`},
		{"continue, vLLM", Quirks{Continue: ContinueFinal}, more, head + `,{"role":"assistant","content":"Because"}]` + stream + `,"continue_final_message":true,"add_generation_prompt":false}`},
		{"continue what is not there", Quirks{Continue: ContinueFinal}, nothing, head + `]` + stream + `}`},
	} {
		var got string
		var header http.Header
		o := served(t, tt.q, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			got, header = r.Method+" "+r.URL.Path+" "+string(b), r.Header
			io.WriteString(w, frames(hello, lo, stop, usage))
		})
		if r := tell(t.Context(), o, tt.c); r.err != nil {
			t.Errorf("%s: %v", tt.name, r.err)
		}
		if want := "POST /v1/chat/completions " + tt.want; got != want {
			t.Errorf("%s: got %s\nwant %s", tt.name, got, want)
		}
		if header.Get("Authorization") != "Bearer "+testKey {
			t.Errorf("%s: got %q", tt.name, header.Get("Authorization"))
		}
	}
	o := served(t, Quirks{}, func(w http.ResponseWriter, r *http.Request) {
		if _, there := r.Header["Authorization"]; there {
			t.Error("without a key an authorization was sent")
		}
		io.WriteString(w, frames(stop, usage))
	})
	o.e.Key = ""
	if r := tell(t.Context(), o, chatQuestion()); r.err != nil {
		t.Error(r.err)
	}
}

func TestACallThatCannotBeWrittenIsNotSent(t *testing.T) {
	o := served(t, Quirks{}, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	c := chatQuestion()
	c.Tools = []Tool{{Name: "sign", Parameters: "{oops"}}
	wantOutcome(t, tell(t.Context(), o, c).err, chat.OutcomeDefinite)
	if o.t.Calls() != 0 {
		t.Error("it counts as a call")
	}
}

func TestAnAnswerHasABound(t *testing.T) {
	part := strings.Repeat("x", 1<<20)
	for name, piece := range map[string]string{
		"text":      delta(`"content":"` + part + `"`),
		"reasoning": delta(`"reasoning":"` + part + `"`),
		"arguments": delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"sign","arguments":"` + part + `"}}]`),
		"actions":   delta(`"tool_calls":[` + strings.TrimSuffix(manyCalls(maxToolCalls+1), ",") + `]`),
	} {
		t.Run(name, func(t *testing.T) {
			o := served(t, Quirks{}, func(w http.ResponseWriter, _ *http.Request) {
				for range 17 {
					if _, err := io.WriteString(w, frames(piece)); err != nil {
						return
					}
				}
				io.WriteString(w, frames(stop, usage))
			})
			r := tell(t.Context(), o, chatQuestion())
			if e := wantOutcome(t, r.err, chat.OutcomeDefinite); e.Code != "answer_too_long" {
				t.Errorf("got %+v", e)
			}
			if len(r.text)+len(r.reasoning) > maxAnswerBytes {
				t.Errorf("%d bytes were handed out", len(r.text)+len(r.reasoning))
			}
		})
	}
}

func manyCalls(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":"%d","function":{"name":"s","arguments":"{}"}},`, i)
	}
	return b.String()
}

// The end of an answer is its finish reason. A line that stays open is read on for
// the count, for a while.
func TestALineThatStaysOpenAfterTheEndIsNotWaitedFor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frames string
		took   time.Duration
		usage  chat.Usage
	}{
		{"with a count", frames(hello, lo, stop, usage), 0, counted},
		{"with the count in the end", frames(hello, lo, `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2}}`), 0, counted},
		{"with [DONE]", frames(hello, lo, stop, done), 0, Estimate(chatQuestion(), "Hello", "")},
		{"with neither", frames(hello, lo, stop), usageWait, Estimate(chatQuestion(), "Hello", "")},
		{"with a count from before", frames(hello, `{"choices":[{"delta":{"content":"lo"}}],"usage":{"prompt_tokens":10,"completion_tokens":2}}`, stop), usageWait, counted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := NewTransport()
				hungUp := false
				pipeServer(tr, func(c net.Conn, r *bufio.Reader) {
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+tt.frames)
					r.ReadByte() // until the other side hangs up
					hungUp = true
				})
				start := time.Now()
				r := tell(t.Context(), NewOpenAI(tr, Endpoint{URL: "http://provider.test"}), chatQuestion())
				if r.err != nil || r.text != "Hello" || r.answer.Finish != chat.FinishStop || r.answer.Usage != tt.usage {
					t.Errorf("got %+v, %v", r.answer, r.err)
				}
				if took := time.Since(start); took < tt.took || took > tt.took+endWait {
					t.Errorf("it took %s, want %s", took, tt.took)
				}
				synctest.Wait()
				if !hungUp {
					t.Error("the line is still open")
				}
			})
		})
	}
}

func TestALineThatDiesAfterTheEndTakesNothing(t *testing.T) {
	s := newPromptServer(t, func(s *promptServer, _ int, c net.Conn, r *bufio.Reader) {
		if s.read(r) {
			body := frames(hello, lo, stop)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: "+strconv.Itoa(len(body)+100)+"\r\n\r\n"+body)
		}
	})
	r := tell(t.Context(), NewOpenAI(newTestTransport(t), Endpoint{URL: s.url}), chatQuestion())
	if r.err != nil || r.answer.Content != "Hello" || !r.answer.Usage.Estimated {
		t.Errorf("got %+v, %v", r.answer, r.err)
	}
}

func TestAStreamThatIsCancelledReturnsTheErrorOfItsContext(t *testing.T) {
	gone := make(chan struct{})
	o := served(t, Quirks{}, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, frames(hello))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := o.Stream(ctx, chatQuestion(), func(Piece) { cancel() })
	wantOutcome(t, err, chat.OutcomeUnknown)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-gone
}

func TestAListOfModelsIsReadAndBounded(t *testing.T) {
	body := `{"object":"list","data":[{"id":"b"},{"id":""},{"id":"a","owned_by":"x"}]}`
	status := 200
	o := served(t, Quirks{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer "+testKey {
			t.Errorf("got %s %s %v", r.Method, r.URL, r.Header)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	if got, err := o.Models(t.Context()); err != nil || !reflect.DeepEqual(got, []string{"b", "a"}) {
		t.Errorf("got %v, %v", got, err)
	}
	body = `{"object":"list","data":[]}`
	if got, err := o.Models(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("none: got %v, %v", got, err)
	}
	for _, body = range []string{"", "{}", "<html>", `{"data":"x"}`, `{"data":[{"id":"` + strings.Repeat("x", 5*maxAnswerBytes) + `"}]}`} {
		if got, err := o.Models(t.Context()); err == nil {
			t.Errorf("%.20s: got %d models", body, len(got))
		}
	}
	status, body = 401, `{"error":{"message":"No: `+testKey+`"}}`
	_, err := o.Models(t.Context())
	wantOutcome(t, err, chat.OutcomeDefinite)
	if o.t.Calls() != 0 {
		t.Error("it counts as a prompt")
	}
}

// FuzzChatCompletion: whatever a server sends, there is an answer made of the
// pieces, or an error that says what is known.
func FuzzChatCompletion(f *testing.F) {
	f.Add([]byte(frames(first, hello, lo, stop, usage, done)))
	f.Add([]byte(frames(delta(`"content":"<think>a</think>b"`), delta(`"reasoning":"c","refusal":"d"`), stop, usage)))
	f.Add([]byte(frames(delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"sign","arguments":"{}"}}]`), finish("tool_calls"), usage)))
	f.Add([]byte(frames(hello, rateBody)))
	f.Add([]byte("event: error\ndata: x\n\n"))
	f.Add([]byte(`{"choices":[{"message":{"content":"Hello"}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var text, reasoning string
		r := completion{collector: collector{call: chatQuestion(), emit: func(p Piece) { text, reasoning = text+p.Text, reasoning+p.Reasoning }}}
		err := r.read(t.Context(), bytes.NewReader(body), func() {})
		if late := r.release(); err == nil {
			err = late
		}
		if err != nil {
			wantOutcomeKnown(t, err)
			return
		}
		a := r.whole()
		if a.Content != text || a.Reasoning != reasoning {
			t.Fatalf("the pieces are %q and %q, the answer is %q and %q", text, reasoning, a.Content, a.Reasoning)
		}
		if a.Usage.InputTokens < 0 || a.Usage.OutputTokens < 0 || a.Usage.CachedTokens < 0 || a.Usage.CachedTokens > a.Usage.InputTokens && !a.Usage.Estimated {
			t.Fatalf("got %+v", a.Usage)
		}
		switch a.Finish {
		case chat.FinishStop, chat.FinishLength, chat.FinishFiltered, chat.FinishTool:
		default:
			t.Fatalf("got finish %q", a.Finish)
		}
		if _, err := json.Marshal(a); err != nil {
			t.Fatal(err)
		}
	})
}

func wantOutcomeKnown(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Outcome != chat.OutcomeUnknown && e.Outcome != chat.OutcomeDefinite || e.Detail == "" {
		t.Fatalf("got %v", err)
	}
}

func TestContentMayBeAListOfParts(t *testing.T) {
	for name, bodies := range map[string][2]string{
		"streamed": {"text/event-stream", sse(
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm, "}]}]}}]}`,
			`{"choices":[{"index":0,"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"tea."}]},{"type":"text","text":"Te"}]}}]}`,
			`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`)},
		"whole": {"application/json", `{"choices":[{"message":{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm, tea."}]},
			{"type":"text","text":"Tea"},{"type":"image"}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`},
	} {
		e, transport := serve(t, func(w http.ResponseWriter, r *http.Request) { reply(w, bodies[0], bodies[1], false) })
		h := hear(t, func(emit func(Piece)) (Answer, error) {
			return NewOpenAI(transport, e).Stream(t.Context(), user("What is tea?"), emit)
		})
		if h.err != nil || h.Content != "Tea" || h.Answer.Reasoning != "Hm, tea." {
			t.Errorf("%s: got %+v, %v", name, h.Answer, h.err)
		}
	}
}

// OpenAI refuses an object without properties; everything else goes as it was
// declared, byte for byte.
func TestASchemaIsOfferedWithProperties(t *testing.T) {
	for declared, want := range map[string]string{
		"":                                `{"type":"object","properties":{}}`,
		`{"type":"object"}`:               `{"properties":{},"type":"object"}`,
		` { "type" : "object" } `:         `{"properties":{}, "type" : "object" }`,
		`{"type":"object","required":[]}`: `{"properties":{},"type":"object","required":[]}`,
		`{"properties" : {"a":{}}, "type":"object"}`: `{"properties" : {"a":{}}, "type":"object"}`,
		`{}`: `{}`,
		`{`:  `{`,
	} {
		if got := string(schemaOf(Tool{Parameters: declared})); got != want {
			t.Errorf("%q: got %s, want %s", declared, got, want)
		}
	}
}

// What is packed small and unpacks to much is bounded like what comes as it is.
func TestAnAnswerThatGrowsWhenItIsUnpackedHasABound(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, strings.Repeat("x", 1<<20))
	z.Close()
	for _, tt := range []struct {
		name, mediaType, before string
		status                  int
		outcome                 chat.Outcome
		code                    string
	}{
		{"an event", "text/event-stream", `data: {"choices":[{"delta":{"content":"`, 200, chat.OutcomeUnknown, "line_lost"},
		{"a document", "application/json", `{"choices":[{"message":{"content":"`, 200, chat.OutcomeDefinite, "answer_too_long"},
		{"a refusal", "application/json", `{"error":{"message":"`, 400, chat.OutcomeDefinite, "provider_refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := served(t, Quirks{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.mediaType)
				w.Header().Set("Content-Encoding", "gzip")
				w.WriteHeader(tt.status)
				z := gzip.NewWriter(w)
				io.WriteString(z, tt.before)
				z.Close()
				for range 80 { // MiB; members of gzip follow one another
					if _, err := w.Write(packed.Bytes()); err != nil {
						return
					}
				}
			})
			r := tell(t.Context(), o, chatQuestion())
			e := wantOutcome(t, r.err, tt.outcome)
			if e.Code != tt.code || len(e.Detail) > 2000 || len(r.text) > 0 {
				t.Errorf("got %d bytes, %s: %.200s", len(r.text), e.Code, e.Detail)
			}
			if tt.name == "an event" && !errors.Is(r.err, errEventTooLong) {
				t.Errorf("got %v", r.err)
			}
		})
	}
}
