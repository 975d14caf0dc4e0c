package llm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"semel/chat"
)

// heardAnswer is what came of a call to a provider.
type heardAnswer struct {
	Answer
	text, thoughts string // of all pieces
	signs          int    // of life: pieces without anything
	err            error
}

// hear runs a call and checks what must hold for all of them.
func hear(t testing.TB, call func(emit func(Piece)) (Answer, error)) heardAnswer {
	t.Helper()
	var h heardAnswer
	h.Answer, h.err = call(func(p Piece) {
		if p == (Piece{}) {
			h.signs++
		}
		if !utf8.ValidString(p.Text) || !utf8.ValidString(p.Reasoning) {
			t.Errorf("got the piece %+q", p)
		}
		h.text += p.Text
		h.thoughts += p.Reasoning
	})
	if h.err != nil {
		if !reflect.DeepEqual(h.Answer, Answer{}) {
			t.Errorf("a failed call returned %+v as well", h.Answer)
		}
		if _, ok := errors.AsType[*Error](h.err); !ok {
			t.Errorf("%v is not classified", h.err)
		}
		return h
	}
	if h.Content != h.text || h.Answer.Reasoning != h.thoughts {
		t.Errorf("the pieces say %q and %q, the answer %q and %q", h.text, h.thoughts, h.Content, h.Answer.Reasoning)
	}
	return h
}

// is reports whether err is classified as the other arguments say.
func is(err error, outcome chat.Outcome, transient bool, code string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Outcome == outcome && e.Transient == transient && e.Code == code
}

// serve answers all requests by h until the test ends.
func serve(t testing.TB, h http.HandlerFunc) (Endpoint, *Transport) {
	s := httptest.NewServer(h)
	transport := NewTransport()
	t.Cleanup(func() {
		transport.Close()
		s.Close()
	})
	return Endpoint{URL: s.URL + "/v1", Key: "sk-secret"}, transport
}

// reply writes text and lets the line die when cut says so, else ends it as it ought.
func reply(w http.ResponseWriter, mediaType, text string, cut bool) {
	w.Header().Set("Content-Type", mediaType)
	io.WriteString(w, text)
	if cut {
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// askAnthropic makes one call that is answered with text.
func askAnthropic(t testing.TB, c Call, mediaType, text string, cut bool) heardAnswer {
	t.Helper()
	e, transport := serve(t, func(w http.ResponseWriter, r *http.Request) { reply(w, mediaType, text, cut) })
	return hear(t, func(emit func(Piece)) (Answer, error) {
		return NewAnthropic(transport, e).Stream(t.Context(), c, emit)
	})
}

// sse writes events as they are written on the line.
func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		var v struct {
			Type string `json:"type"`
		}
		json.Unmarshal([]byte(e), &v)
		b.WriteString("event: " + v.Type + "\ndata: " + e + "\n\n")
	}
	return b.String()
}

const (
	anthropicStart = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":7,"cache_read_input_tokens":100,"output_tokens":1}}}`
	anthropicStop  = `{"type":"message_stop"}`
)

// anthropicRecorded has every kind of event, known and not.
var anthropicRecorded = []string{
	anthropicStart,
	`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
	`{"type":"ping"}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me"}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" see. 茶"}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQBCgIYAhIM"}}`,
	`{"type":"content_block_stop","index":0}`,
	`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"EmwKAhgB"}}`,
	`{"type":"content_block_stop","index":1}`,
	`{"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}`,
	`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"tea\"}"}}`,
	`{"type":"content_block_stop","index":2}`,
	`{"type":"content_block_start","index":3,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","text":["x"]}]}}`,
	`{"type":"content_block_stop","index":3}`,
	`{"type":"content_block_start","index":4,"content_block":{"type":"text","text":""}}`,
	`{"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":"Tea \u8336"}}`,
	`{"type":"content_block_delta","index":4,"delta":{"type":"citations_delta","citation":{"type":"page","text":5}}}`,
	`{"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":" is\na 😀 leaf."}}`,
	`{"type":"content_block_stop","index":4}`,
	`{"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"toolu_1","name":"sign","input":{}}}`,
	`{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":""}}`,
	`{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{\"contract\": \"A"}}`,
	`{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"CME\", \"n\":1}"}}`,
	`{"type":"content_block_stop","index":5}`,
	`{"type":"content_block_start","index":6,"content_block":{"type":"tool_use","id":"toolu_2","name":"nothing","input":{}}}`,
	`{"type":"content_block_stop","index":6}`,
	`{"type":"made_up_later","delta":"a string here","content_block":[1]}`,
	`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}`,
	anthropicStop,
}

var anthropicWant = Answer{
	Content: "Tea 茶 is\na 😀 leaf.", Reasoning: "Let me see. 茶", Finish: chat.FinishTool, UpstreamID: "msg_1",
	ToolCalls: []ToolCall{{"toolu_1", "sign", `{"contract": "ACME", "n":1}`}, {"toolu_2", "nothing", "{}"}},
	Usage:     chat.Usage{InputTokens: 132, CachedTokens: 100, OutputTokens: 89},
}

func TestAnthropicReadsEveryKindOfEvent(t *testing.T) {
	h := askAnthropic(t, user("What is tea?"), "text/event-stream; charset=utf-8", sse(anthropicRecorded...), false)
	if h.err != nil || !reflect.DeepEqual(h.Answer, anthropicWant) {
		t.Errorf("got %+v, %v\nwant %+v", h.Answer, h.err, anthropicWant)
	}
}

func TestAnthropicLosesNothingWhereverTheLineDies(t *testing.T) {
	text := sse(anthropicRecorded...)
	end := strings.Index(text, `{"type":"message_delta"`)
	end += strings.Index(text[end:], "\n\n")
	var at atomic.Int64
	e, transport := serve(t, func(w http.ResponseWriter, r *http.Request) {
		reply(w, "text/event-stream", text[:at.Load()], true)
	})
	client := NewAnthropic(transport, e)
	for n := range len(text) {
		at.Store(int64(n))
		h := hear(t, func(emit func(Piece)) (Answer, error) { return client.Stream(t.Context(), user("Hi"), emit) })
		if !strings.HasPrefix(anthropicWant.Content, h.text) || !strings.HasPrefix(anthropicWant.Reasoning, h.thoughts) {
			t.Fatalf("cut at %d: handed out %q and %q", n, h.text, h.thoughts)
		}
		if n < end+2 {
			if !is(h.err, chat.OutcomeUnknown, false, "line_lost") {
				t.Fatalf("cut at %d: got %v, want unknown", n, h.err)
			}
		} else if h.err != nil || !reflect.DeepEqual(h.Answer, anthropicWant) {
			t.Fatalf("cut at %d, behind the stop reason: got %+v, %v", n, h.Answer, h.err)
		}
	}
	if got := transport.Calls(); got != int64(len(text)) {
		t.Errorf("%d prompts were sent for %d calls", got, len(text))
	}
}

func TestAnthropicReadsAnswersByteByByte(t *testing.T) {
	for name, text := range map[string]string{
		"LF":   sse(anthropicRecorded...),
		"CRLF": strings.ReplaceAll(sse(anthropicRecorded...), "\n", "\r\n"),
	} {
		d := anthropicDecoder{collector: collector{emit: func(Piece) {}}}
		err := d.read(iotest.OneByteReader(strings.NewReader(text)), func() {})
		if got := d.result(); err != nil || !reflect.DeepEqual(got, anthropicWant) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestAnthropicStopReasons(t *testing.T) {
	for reason, want := range map[string]chat.Finish{
		"end_turn": chat.FinishStop, "stop_sequence": chat.FinishStop, "tool_use": chat.FinishStop, "made_up_later": chat.FinishStop,
		"max_tokens": chat.FinishLength, "model_context_window_exceeded": chat.FinishLength, "pause_turn": chat.FinishLength,
		"refusal": chat.FinishFiltered,
	} {
		events := []string{anthropicStart,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"No"}}`,
			`{"type":"message_delta","delta":{"stop_reason":"` + reason + `"},"usage":{"output_tokens":3}}`, anthropicStop}
		if h := askAnthropic(t, user("Hi"), "text/event-stream", sse(events...), false); h.err != nil || h.Finish != want || h.Content != "No" {
			t.Errorf("%s: got %+v, %v; want %s", reason, h.Answer, h.err, want)
		}
	}
	h := askAnthropic(t, user("Hi"), "text/event-stream", sse(anthropicStart, `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":3}}`, anthropicStop), false)
	if h.err != nil || h.Finish != chat.FinishStop {
		t.Errorf("an end without a reason: got %+v, %v", h.Answer, h.err)
	}
}

func TestAnthropicRefusalWithoutAWordIsAFailure(t *testing.T) {
	h := askAnthropic(t, user("Hi"), "text/event-stream", sse(anthropicStart,
		`{"type":"message_delta","delta":{"stop_reason":"refusal"},"usage":{"output_tokens":3}}`, anthropicStop), false)
	if !is(h.err, chat.OutcomeDefinite, false, "content_refused") {
		t.Errorf("got %+v, %v", h.Answer, h.err)
	}
}

func TestAnAnswerThatWasCutProposesNoAction(t *testing.T) {
	for _, reason := range []string{"max_tokens", "refusal"} {
		h := askAnthropic(t, user("Hi"), "text/event-stream", sse(anthropicStart,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"I sign"}}`,
			`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"sign","input":{}}}`,
			`{"type":"message_delta","delta":{"stop_reason":"`+reason+`"},"usage":{"output_tokens":3}}`, anthropicStop), false)
		if h.err != nil || h.Content != "I sign" || h.ToolCalls != nil {
			t.Errorf("%s: got %+v, %v", reason, h.Answer, h.err)
		}
	}
}

func TestAnthropicFailuresInsideAStream(t *testing.T) {
	delta := `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half"}}`
	thought := `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}`
	end := `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`
	overloaded := `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	broken := `{"type":"error","error":{"type":"api_error","message":"Internal server error sk-secret"}}`
	for _, tt := range []struct {
		name      string
		events    []string
		outcome   chat.Outcome
		transient bool
		code      string
	}{
		{"busy before tokens", []string{anthropicStart, overloaded}, chat.OutcomeDefinite, true, "provider_busy"},
		{"busy at once", []string{overloaded}, chat.OutcomeDefinite, true, "provider_busy"},
		{"busy after tokens", []string{anthropicStart, delta, overloaded}, chat.OutcomeDefinite, false, "provider_error"},
		{"busy after a thought", []string{anthropicStart, thought, overloaded}, chat.OutcomeDefinite, false, "provider_error"},
		{"broken before tokens", []string{anthropicStart, broken}, chat.OutcomeUnknown, false, "provider_error"},
		{"broken after tokens", []string{anthropicStart, delta, broken}, chat.OutcomeDefinite, false, "provider_error"},
		{"refused", []string{`{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`}, chat.OutcomeDefinite, false, "provider_refused"},
		{"ended without a reason", []string{anthropicStart, delta}, chat.OutcomeUnknown, false, "line_lost"},
		{"no JSON", []string{anthropicStart, delta, `{"type":"content_block_delta",`, end}, chat.OutcomeUnknown, false, "line_lost"},
		{"a known event of another shape", []string{anthropicStart, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}`, end}, chat.OutcomeUnknown, false, "line_lost"},
	} {
		h := askAnthropic(t, user("Hi"), "text/event-stream", sse(tt.events...), false)
		if !is(h.err, tt.outcome, tt.transient, tt.code) {
			t.Errorf("%s: got %v", tt.name, h.err)
		}
		if h.err != nil && strings.Contains(h.err.Error(), "sk-secret") {
			t.Errorf("%s: %v tells the key", tt.name, h.err)
		}
	}
	for _, late := range []string{overloaded, "{", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" more"}}`} {
		if h := askAnthropic(t, user("Hi"), "text/event-stream", sse(anthropicStart, delta, end, late), false); h.err != nil || h.Content != "Half" {
			t.Errorf("%s after the stop reason: got %+v, %v", late, h.Answer, h.err)
		}
	}
}

func TestAnthropicAnswersThatAreNoStream(t *testing.T) {
	whole := `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"x"},` +
		`{"type":"text","text":"Tea "},{"type":"text","text":"it is."},{"type":"tool_use","id":"toolu_1","name":"sign","input":{"n":1}},{"type":"tool_use","id":"toolu_2","name":"nothing","input":null}],` +
		`"stop_reason":"tool_use","usage":{"input_tokens":5,"cache_read_input_tokens":null,"output_tokens":9}}`
	want := Answer{Content: "Tea it is.", Reasoning: "Hm", Finish: chat.FinishTool, UpstreamID: "msg_1",
		ToolCalls: []ToolCall{{"toolu_1", "sign", `{"n":1}`}, {"toolu_2", "nothing", "{}"}}, Usage: chat.Usage{InputTokens: 5, OutputTokens: 9}}
	for _, mediaType := range []string{"application/json", "text/event-stream"} {
		if h := askAnthropic(t, user("Hi"), mediaType, whole, false); h.err != nil || !reflect.DeepEqual(h.Answer, want) {
			t.Errorf("as %s: got %+v, %v", mediaType, h.Answer, h.err)
		}
	}
	for text, code := range map[string]string{
		"":                     "line_lost",
		"<html>Sign in</html>": "provider_error",
		"{}":                   "provider_error",
		`{"type":"message"}`:   "provider_error",
		strings.Replace(whole, `"stop_reason":"tool_use"`, `"stop_reason":null`, 1): "provider_error",
		whole[:len(whole)-1]: "provider_error",
		"null":               "line_lost",
	} {
		if h := askAnthropic(t, user("Hi"), "application/json", text, false); !is(h.err, chat.OutcomeUnknown, false, code) {
			t.Errorf("%q: got %+v, %v; want unknown, %s", text, h.Answer, h.err, code)
		}
	}
	if h := askAnthropic(t, user("Hi"), "application/json", `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`, false); !is(h.err, chat.OutcomeDefinite, true, "provider_busy") {
		t.Errorf("a failure with status 200: got %v", h.err)
	}
}

func TestAnthropicCountsOnlyWhatTheEndSays(t *testing.T) {
	delta := `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half of it"}}`
	h := askAnthropic(t, user("Hi"), "text/event-stream", sse(anthropicStart, delta, `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, anthropicStop), false)
	if want := Estimate(user("Hi"), "Half of it", ""); h.Usage != want {
		t.Errorf("without a final count: got %+v, want %+v", h.Usage, want)
	}
	h = askAnthropic(t, user("Hi"), "text/event-stream", sse(anthropicStart, delta,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":30,"cache_read_input_tokens":null,"output_tokens":4}}`, anthropicStop), false)
	if want := (chat.Usage{InputTokens: 137, CachedTokens: 100, OutputTokens: 4}); h.Usage != want {
		t.Errorf("input counted again at the end: got %+v, want %+v", h.Usage, want)
	}
}

func TestAnthropicWaitsNotForALineThatStaysOpen(t *testing.T) {
	e, transport := serve(t, func(w http.ResponseWriter, r *http.Request) {
		reply(w, "text/event-stream", sse(anthropicStart, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}`), false)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	h := hear(t, func(emit func(Piece)) (Answer, error) {
		return NewAnthropic(transport, e).Stream(t.Context(), user("Hi"), emit)
	})
	if h.err != nil || h.Usage.OutputTokens != 4 {
		t.Errorf("got %+v, %v", h.Answer, h.err)
	}
}

func TestAnthropicEndsWithItsContext(t *testing.T) {
	e, transport := serve(t, func(w http.ResponseWriter, r *http.Request) {
		reply(w, "text/event-stream", sse(anthropicStart, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half"}}`), false)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := hear(t, func(emit func(Piece)) (Answer, error) {
		return NewAnthropic(transport, e).Stream(ctx, user("Hi"), func(p Piece) { emit(p); cancel() })
	})
	if !errors.Is(h.err, context.Canceled) || !is(h.err, chat.OutcomeUnknown, false, "line_lost") || h.text != "Half" {
		t.Errorf("got %q, %v", h.text, h.err)
	}
}

// sent returns the body of the request that c makes.
func sent(t testing.TB, client func(*Transport, Endpoint) Client, c Call, answer string) (string, http.Header, heardAnswer) {
	t.Helper()
	var body string
	var header http.Header
	e, transport := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body, header = r.Method+" "+r.URL.RequestURI()+" "+string(b), r.Header
		reply(w, "text/event-stream", answer, false)
	})
	h := hear(t, func(emit func(Piece)) (Answer, error) { return client(transport, e).Stream(t.Context(), c, emit) })
	return body, header, h
}

func anthropicClient(t *Transport, e Endpoint) Client { return NewAnthropic(t, e) }

func anthropicSays(text string) string {
	return sse(anthropicStart, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":`+string(must(json.Marshal(text)))+`}}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}`, anthropicStop)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestAnthropicRequest(t *testing.T) {
	number := func(f float64) *float64 { return &f }
	seed, most := int64(7), int64(100)
	for _, tt := range []struct {
		name string
		call Call
		want string
	}{
		{"plain", user("Hi"), `{"model":"demo","max_tokens":8192,"messages":[{"role":"user","content":"Hi"}],"stream":true}`},
		{"all there is", Call{Model: "claude-x", Turns: []Turn{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "A"}, {Role: "assistant", Content: "B"}, {Role: "system", Content: "Be kind."}, {Role: "user", Content: "C"}},
			Params: Params{Temperature: number(0), TopP: number(0.5), MaxTokens: &most, Seed: &seed},
			Tools:  []Tool{{"sign", "Signs.", `{"type":"object","properties":{"n":{"type":"integer"}}}`}, {Name: "nothing"}}},
			`{"model":"claude-x","max_tokens":100,"system":"Be brief.\n\nBe kind.","messages":[{"role":"user","content":"A"},{"role":"assistant","content":"B"},{"role":"user","content":"C"}],` +
				`"temperature":0,"top_p":0.5,"tools":[{"name":"sign","description":"Signs.","input_schema":{"type":"object","properties":{"n":{"type":"integer"}}}},` +
				`{"name":"nothing","input_schema":{"type":"object","properties":{}}}],"stream":true}`},
		{"turns in a row", Call{Model: "m", Turns: []Turn{{Role: "user", Content: "A"}, {Role: "user", Content: " "}, {Role: "user", Content: "B"}, {Role: "assistant", Content: "one "}, {Role: "assistant", Content: "\n"}, {Role: "assistant", Content: "two"}, {Role: "assistant", Content: ""}, {Role: "user", Content: "C"}}},
			`{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":"A\n\nB"},{"role":"assistant","content":"one \ntwo"},{"role":"user","content":"C"}],"stream":true}`},
		{"an answer first", Call{Model: "m", Turns: []Turn{{Role: "assistant", Content: "B"}, {Role: "user", Content: "C"}}},
			`{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":"` + leftOut + `"},{"role":"assistant","content":"B"},{"role":"user","content":"C"}],"stream":true}`},
		{"go on, by prefill", Call{Model: "claude-sonnet-4-5-20250929", Continue: true, Turns: []Turn{{Role: "user", Content: "A"}, {Role: "assistant", Content: "B \n\u3000"}}},
			`{"model":"claude-sonnet-4-5-20250929","max_tokens":8192,"messages":[{"role":"user","content":"A"},{"role":"assistant","content":"B"}],"stream":true}`},
		{"go on, when asked", Call{Model: "claude-opus-4-6", Continue: true, Turns: []Turn{{Role: "user", Content: "A"}, {Role: "assistant", Content: "B \n"}}},
			`{"model":"claude-opus-4-6","max_tokens":8192,"messages":[{"role":"user","content":"A"},{"role":"assistant","content":"B \n"},{"role":"user","content":"` + askToContinue + `"}],"stream":true}`},
		{"go on with nothing", Call{Model: "claude-3-haiku", Continue: true, Turns: []Turn{{Role: "user", Content: "A"}, {Role: "assistant", Content: " "}}},
			`{"model":"claude-3-haiku","max_tokens":8192,"messages":[{"role":"user","content":"A"}],"stream":true}`},
	} {
		body, header, h := sent(t, anthropicClient, tt.call, anthropicSays("x"))
		if h.err != nil || body != "POST /v1/messages "+tt.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", tt.name, h.err, body, tt.want)
		}
		if header.Get("x-api-key") != "sk-secret" || header.Get("anthropic-version") != "2023-06-01" || header.Get("Authorization") != "" {
			t.Errorf("%s: got the header %v", tt.name, header)
		}
	}
}

func TestAnthropicQuirks(t *testing.T) {
	c := Call{Model: "served-by-others", Continue: true, Turns: []Turn{{Role: "user", Content: "A"}, {Role: "assistant", Content: "B "}}}
	body, _, _ := sent(t, func(tr *Transport, e Endpoint) Client {
		e.Quirks = Quirks{NoStream: true, Continue: ContinuePrefill}
		return NewAnthropic(tr, e)
	}, c, anthropicSays("x"))
	if want := `"messages":[{"role":"user","content":"A"},{"role":"assistant","content":"B"}],"stream":false}`; !strings.HasSuffix(body, want) {
		t.Errorf("got %s", body)
	}
}

func TestAContinuedAnswerIsJoinedWithoutDoubledSpace(t *testing.T) {
	for _, tt := range []struct{ before, says, want string }{
		{"one", " two", " two"},
		{"one ", " two", "two"},
		{"one ", "two", "two"},
		{"one\n\n", "\n\ntwo", "two"},
		{"one\n", "\n    two", "    two"},
		{"one\n", " two", " two"},
		{"one \n", " two", "two"},
		{"one\u3000", "「two」", "「two」"},
		{"one\u3000 ", "\u3000 two", "two"},
		{"one ", " ", ""},
		{"one ", "two three", "two three"},
	} {
		c := Call{Model: "claude-haiku-4-5", Continue: true, Turns: []Turn{{Role: "user", Content: "A"}, {Role: "assistant", Content: tt.before}}}
		_, _, h := sent(t, anthropicClient, c, anthropicSays(tt.says))
		if h.err != nil || h.Content != tt.want {
			t.Errorf("%q and %q: got %q, %v; want %q", tt.before, tt.says, h.Content, h.err, tt.want)
		}
		var bytewise []string
		for _, r := range tt.says {
			bytewise = append(bytewise, string(r))
		}
		d := anthropicDecoder{collector: collector{emit: func(Piece) {}}}
		_, d.skip = newAnthropicRequest(Endpoint{}, c)
		for _, r := range bytewise {
			if err := d.say(r); err != nil {
				t.Fatal(err)
			}
		}
		if got := d.text.String(); got != tt.want {
			t.Errorf("%q and %q in pieces: got %q, want %q", tt.before, tt.says, got, tt.want)
		}
	}
}

func TestASchemaThatIsNoJSONIsNotSent(t *testing.T) {
	for _, client := range []func(*Transport, Endpoint) Client{anthropicClient, responsesClient, backgroundClient} {
		c := user("Hi")
		c.Tools = []Tool{{Name: "x", Parameters: "{"}}
		body, _, h := sent(t, client, c, "")
		if !is(h.err, chat.OutcomeDefinite, false, "internal") || body != "" {
			t.Errorf("got %v and %q was sent", h.err, body)
		}
	}
}

func TestAnthropicModels(t *testing.T) {
	answers := make(chan string, 8)
	e, transport := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/v1/models?limit=1000" || r.Header.Get("X-Api-Key") == "" {
			t.Errorf("got %s", r.URL)
		}
		reply(w, "application/json", <-answers, false)
	})
	e.URL += "/"
	answers <- `{"data":[{"type":"model","id":"claude-a"},{"type":"model","id":"claude-b"}],"has_more":false}`
	if names, err := NewAnthropic(transport, e).Models(t.Context()); err != nil || !reflect.DeepEqual(names, []string{"claude-a", "claude-b"}) {
		t.Errorf("got %v, %v", names, err)
	}
	for _, text := range []string{"<html>", "{}", ""} {
		answers <- text
		if names, err := NewAnthropic(transport, e).Models(t.Context()); names != nil || !is(err, chat.OutcomeUnknown, false, "provider_error") {
			t.Errorf("%q: got %v, %v", text, names, err)
		}
	}
	if transport.Calls() != 0 {
		t.Errorf("a list counted as %d calls", transport.Calls())
	}
}

func FuzzAnthropic(f *testing.F) {
	f.Add(sse(anthropicRecorded...), "")
	f.Add(anthropicSays("  x"), " \n")
	f.Add(`{"type":"message","id":"m","content":[{"type":"text","text":"x"},{"type":"tool_use","input":null}],"stop_reason":"end_turn"}`, "")
	f.Add(sse(anthropicStart, `{"type":"error","error":{"type":"overloaded_error"}}`), "")
	f.Add("data: {\"type\":\"content_block_start\",\"index\":-1,\"content_block\":{\"type\":\"tool_use\"}}\r\rdata: [DONE]\n\n", " ")
	f.Fuzz(func(t *testing.T, text, before string) {
		_, skip := newAnthropicRequest(Endpoint{}, Call{Model: "claude-3", Continue: true, Turns: []Turn{{Role: "user", Content: "A"}, {Role: "assistant", Content: "x" + before}}})
		hear(t, func(emit func(Piece)) (Answer, error) {
			d := anthropicDecoder{collector: collector{emit: emit}, skip: skip}
			if err := d.read(strings.NewReader(text), func() {}); err != nil {
				return Answer{}, classified(t.Context(), err)
			}
			return concluded(d.result())
		})
	})
}
