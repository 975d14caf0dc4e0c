package llm

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"semel/chat"
)

func responsesClient(t *Transport, e Endpoint) Client { return NewResponses(t, e, false) }

// backgroundClient does not wait between two looks at a run.
func backgroundClient(t *Transport, e Endpoint) Client { return Hurried(NewResponses(t, e, true)) }

// Hurried makes a client in background mode wait for nothing.
func Hurried(c Client) Client {
	c.(*BackgroundResponses).every = 0
	return c
}

// numbered gives each event the number of its place.
func numbered(events ...string) []string {
	for i, e := range events {
		events[i] = strings.TrimSuffix(e, "}") + `,"sequence_number":` + strconv.Itoa(i) + "}"
	}
	return events
}

const responseOutput = `[` +
	`{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Let me see. 茶"},{"type":"summary_text","text":"So."}]},` +
	`{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search"},"content":"odd"},` +
	`{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Tea 茶 is","annotations":[]},{"type":"output_text","text":"\na 😀 leaf.","annotations":[]}]},` +
	`{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_1","name":"sign","arguments":"{\"contract\": \"ACME\"}"},` +
	`{"id":"fc_2","type":"function_call","status":"completed","call_id":"call_2","name":"nothing","arguments":""}]`

const responseUsage = `{"input_tokens":132,"input_tokens_details":{"cached_tokens":100},"output_tokens":89,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":221}`

// response is a response object of that status.
func response(status, output, more string) string {
	if output == "" {
		output = "[]"
	}
	return `{"id":"resp_1","object":"response","status":"` + status + `","output":` + output + `,"model":"m","error":null,"incomplete_details":null,"usage":null` + more + `}`
}

var responseDone = response("completed", responseOutput, `,"usage":`+responseUsage)

var responseCreated = `{"type":"response.created","response":` + response("queued", "", "") + `}`

// responseRecorded has every kind of event, known and not.
var responseRecorded = numbered(
	responseCreated,
	`{"type":"response.queued","response":`+response("queued", "", "")+`}`,
	`{"type":"response.in_progress","response":`+response("in_progress", "", "")+`}`,
	`{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}`,
	`{"type":"response.reasoning_summary_part.added","item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}`,
	`{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"Let me see."}`,
	`{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":" \u8336"}`,
	`{"type":"response.reasoning_summary_text.done","item_id":"rs_1","output_index":0,"summary_index":0,"text":"Let me see. 茶"}`,
	`{"type":"response.reasoning_summary_part.added","item_id":"rs_1","output_index":0,"summary_index":1,"part":{"type":"summary_text","text":""}}`,
	`{"type":"response.reasoning_text.delta","item_id":"rs_1","output_index":0,"content_index":0,"delta":"So."}`,
	`{"type":"response.output_item.added","output_index":1,"item":{"id":"ws_1","type":"web_search_call","content":"odd"}}`,
	`{"type":"response.output_item.added","output_index":2,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}`,
	`{"type":"response.content_part.added","item_id":"msg_1","output_index":2,"content_index":0,"part":{"type":"output_text","text":""}}`,
	`{"type":"response.output_text.delta","item_id":"msg_1","output_index":2,"content_index":0,"delta":"Tea 茶","logprobs":[],"obfuscation":"x7"}`,
	`{"type":"response.output_text.delta","item_id":"msg_1","output_index":2,"content_index":0,"delta":" is"}`,
	`{"type":"response.output_text.delta","item_id":"msg_1","output_index":2,"content_index":1,"delta":"\na 😀 leaf."}`,
	`{"type":"response.output_text.done","item_id":"msg_1","output_index":2,"content_index":0,"text":"Tea 茶 is"}`,
	`{"type":"response.made_up_later","delta":{"text":1},"response":"x","item":7}`,
	`{"type":"response.output_item.added","output_index":3,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"sign","arguments":""}}`,
	`{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":3,"delta":"{\"contract\": \"A"}`,
	`{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":3,"delta":"CME\"}"}`,
	`{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":3,"arguments":"{\"contract\": \"ACME\"}"}`,
	`{"type":"response.output_item.done","output_index":3,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"sign","arguments":"{\"contract\": \"ACME\"}"}}`,
	`{"type":"response.output_item.done","output_index":4,"item":{"id":"fc_2","type":"function_call","call_id":"call_2","name":"nothing","arguments":""}}`,
	`{"type":"response.completed","response":`+responseDone+`}`,
)

var responseWant = Answer{
	Content: "Tea 茶 is\na 😀 leaf.", Reasoning: "Let me see. 茶\n\nSo.", Finish: chat.FinishTool, UpstreamID: "resp_1",
	ToolCalls: []ToolCall{{"call_1", "sign", `{"contract": "ACME"}`}, {"call_2", "nothing", "{}"}},
	Usage:     chat.Usage{InputTokens: 132, CachedTokens: 100, OutputTokens: 89},
}

func (h heardAnswer) want(t testing.TB, name string, want Answer) {
	t.Helper()
	if h.err != nil || !reflect.DeepEqual(h.Answer, want) {
		t.Errorf("%s: got %+v, %v\nwant %+v", name, h.Answer, h.err, want)
	}
}

func askResponses(t testing.TB, mediaType, text string, cut bool) heardAnswer {
	t.Helper()
	e, transport := serve(t, func(w http.ResponseWriter, r *http.Request) { reply(w, mediaType, text, cut) })
	h := hear(t, func(emit func(Piece)) (Answer, error) {
		c := user("What is tea?")
		c.Started = func(string) { t.Error("a run was named that cannot be followed") }
		return NewResponses(transport, e, false).Stream(t.Context(), c, emit)
	})
	if h.signs != 0 {
		t.Errorf("%d pieces without anything", h.signs)
	}
	return h
}

func TestOnlyBackgroundModeClaimsThatRunsCanBeFollowed(t *testing.T) {
	if _, ok := NewResponses(NewTransport(), Endpoint{}, false).(Reattacher); ok {
		t.Error("a client without background mode is a Reattacher")
	}
	if _, ok := NewResponses(NewTransport(), Endpoint{}, true).(Reattacher); !ok {
		t.Error("a client in background mode is no Reattacher")
	}
}

func TestResponsesReadsEveryKindOfEvent(t *testing.T) {
	askResponses(t, "text/event-stream; charset=utf-8", sse(responseRecorded...), false).want(t, "streamed", responseWant)
	newBackground(t, &runServer{}).ask(t).want(t, "in background", responseWant)
	r := newResponseRun("", user("x"), func(Piece) {})
	done, err := r.read(iotest.OneByteReader(strings.NewReader(sse(responseRecorded...))))
	if got, _ := r.concluded(err); !done || !reflect.DeepEqual(got, responseWant) {
		t.Errorf("byte by byte: got %+v, %v, %v", got, done, err)
	}
}

func TestResponsesNeedsItsFinalEvent(t *testing.T) {
	text := sse(responseRecorded...)
	end := strings.Index(text, "event: response.completed")
	for _, n := range []int{0, 1, 100, end / 2, end, len(text) - 2, len(text) - 1} {
		h := askResponses(t, "text/event-stream", text[:n], true)
		if !is(h.err, chat.OutcomeUnknown, false, "line_lost") || !strings.HasPrefix(responseWant.Content, h.text) {
			t.Errorf("cut at %d: got %+v, %v", n, h.Answer, h.err)
		}
	}
}

func TestWhatBecameOfARun(t *testing.T) {
	failed := func(code string) string {
		return strings.Replace(response("failed", "", ""), `"error":null`, `"error":{"code":"`+code+`","message":"It broke."}`, 1)
	}
	incomplete := func(reason string) string {
		return strings.Replace(response("incomplete", responseOutput, `,"usage":`+responseUsage), `"incomplete_details":null`, `"incomplete_details":{"reason":"`+reason+`"}`, 1)
	}
	cut := responseWant
	cut.ToolCalls, cut.Finish = nil, chat.FinishLength
	filtered := cut
	filtered.Finish = chat.FinishFiltered
	refusal := Answer{Content: "I cannot.", Finish: chat.FinishFiltered, UpstreamID: "resp_1", Usage: responseWant.Usage}
	for _, tt := range []struct {
		name, final string
		want        Answer
		outcome     chat.Outcome
		transient   bool
		code        string
	}{
		{name: "completed", final: responseDone, want: responseWant},
		{name: "cut by length", final: incomplete("max_output_tokens"), want: cut},
		{name: "cut for a reason of later", final: incomplete("made_up_later"), want: cut},
		{name: "filtered", final: incomplete("content_filter"), want: filtered},
		{name: "refused in words", final: response("completed", `[{"type":"message","content":[{"type":"refusal","refusal":"I cannot."}]}]`, `,"usage":`+responseUsage), want: refusal},
		{name: "filtered at once", final: strings.Replace(response("incomplete", "", ""), `"incomplete_details":null`, `"incomplete_details":{"reason":"content_filter"}`, 1),
			outcome: chat.OutcomeDefinite, code: "content_refused"},
		{name: "failed", final: failed("server_error"), outcome: chat.OutcomeUnknown, code: "provider_error"},
		{name: "too busy", final: failed("rate_limit_exceeded"), outcome: chat.OutcomeDefinite, transient: true, code: "provider_busy"},
		{name: "a bad prompt", final: failed("invalid_prompt"), outcome: chat.OutcomeDefinite, code: "provider_refused"},
		{name: "cancelled", final: response("cancelled", "", ""), outcome: chat.OutcomeDefinite, code: "run_cancelled"},
	} {
		var v struct{ Status string }
		json.Unmarshal([]byte(tt.final), &v)
		looked := newBackground(t, &runServer{
			stream: func(w http.ResponseWriter, n, after int) { refuseWith(w, http.StatusBadRequest) },
			look:   func(w http.ResponseWriter, n int) { reply(w, "application/json", tt.final, false) },
		})
		end := strings.Replace(`{"type":"response.`+v.Status+`","sequence_number":1,"response":`+tt.final+`}`, "queued", "", 1)
		for how, h := range map[string]heardAnswer{
			"looked at":   looked.reattach(t),
			"streamed":    askResponses(t, "text/event-stream", sse(responseRecorded[0], end), false),
			"told as one": askResponses(t, "application/json", tt.final, false),
			"streamed later": newBackground(t, &runServer{stream: func(w http.ResponseWriter, n, after int) {
				reply(w, "text/event-stream", sse(responseRecorded[0], end), false)
			}}).reattach(t),
		} {
			want := tt.want
			if strings.HasPrefix(how, "streamed") {
				want.Reasoning = "" // it comes in events, if at all
			}
			if tt.code == "" {
				h.want(t, tt.name+", "+how, want)
			} else if !is(h.err, tt.outcome, tt.transient, tt.code) {
				t.Errorf("%s, %s: got %+v, %v", tt.name, how, h.Answer, h.err)
			}
		}
	}
}

func TestAFailureAfterTextIsDefinite(t *testing.T) {
	failed := strings.Replace(response("failed", "", ""), `"error":null`, `"error":{"code":"rate_limit_exceeded","message":"Slow down."}`, 1)
	begun := sse(responseRecorded[:14]...)
	for name, last := range map[string]string{
		"the run failed":         `{"type":"response.failed","sequence_number":14,"response":` + failed + `}`,
		"an error event":         `{"type":"error","sequence_number":14,"code":"rate_limit_exceeded","message":"Slow down.","param":null}`,
		"an error inside of one": `{"type":"error","sequence_number":14,"error":{"type":"server_error","code":"rate_limit_exceeded","message":"Slow down."}}`,
	} {
		if h := askResponses(t, "text/event-stream", begun+sse(last), false); !is(h.err, chat.OutcomeDefinite, false, "provider_error") || h.text != "Tea 茶" {
			t.Errorf("%s after text: got %q, %v", name, h.text, h.err)
		}
		if h := askResponses(t, "text/event-stream", sse(responseRecorded[0], last), false); !is(h.err, chat.OutcomeDefinite, true, "provider_busy") {
			t.Errorf("%s before text: got %v", name, h.err)
		}
	}
}

func TestARefusalIsHeardAsItComes(t *testing.T) {
	h := askResponses(t, "text/event-stream", sse(numbered(responseCreated, `{"type":"response.refusal.delta","delta":"I can"}`, `{"type":"response.refusal.delta","delta":"not."}`,
		`{"type":"response.completed","response":`+response("completed", "", `,"usage":`+responseUsage)+`}`)...), false)
	h.want(t, "a refusal", Answer{Content: "I cannot.", Finish: chat.FinishFiltered, UpstreamID: "resp_1", Usage: responseWant.Usage})
}

func TestTheFinalStateNeedNotRepeatTheText(t *testing.T) {
	end := `{"type":"response.completed","sequence_number":24,"response":` + response("completed", "", "") + `}`
	events := append(slices.Clone(responseRecorded[:24]), end)
	want := responseWant
	want.Usage = Estimate(user("What is tea?"), want.Content, want.Reasoning)
	for _, c := range want.ToolCalls {
		want.Usage.OutputTokens += chat.EstimateTokens(c.Name) + chat.EstimateTokens(c.Arguments)
	}
	askResponses(t, "text/event-stream", sse(events...), false).want(t, "streamed", want)
	newBackground(t, &runServer{
		post: func(w http.ResponseWriter) { reply(w, "text/event-stream", sse(events[:15]...), true) },
		stream: func(w http.ResponseWriter, n, after int) {
			reply(w, "text/event-stream", sse(events[after+1:]...), false)
		},
	}).ask(t).want(t, "resumed", want)
	// Arguments that came in pieces only.
	askResponses(t, "text/event-stream", sse(append(slices.Clone(responseRecorded[:21]), responseRecorded[23], end)...), false).want(t, "in pieces", want)
}

func TestResponsesAnswersThatAreNoStream(t *testing.T) {
	for text, code := range map[string]string{
		"":                                 "line_lost",
		"<html>Sign in</html>":             "provider_error",
		"{}":                               "provider_error",
		responseDone[:len(responseDone)-1]: "provider_error",
		response("in_progress", "", ""):    "provider_error",
		response("", "", ""):               "provider_error",
		"data: [DONE]\n\n":                 "line_lost",
	} {
		if h := askResponses(t, "application/json", text, false); !is(h.err, chat.OutcomeUnknown, false, code) {
			t.Errorf("%.40q: got %+v, %v", text, h.Answer, h.err)
		}
	}
	newBackground(t, &runServer{
		post: func(w http.ResponseWriter) { reply(w, "application/json", response("queued", "", ""), false) },
	}).ask(t).want(t, "queued, then streamed", responseWant)
}

func TestResponsesRequest(t *testing.T) {
	number := func(f float64) *float64 { return &f }
	seed, most := int64(7), int64(100)
	answer := sse(responseRecorded...)
	plain := `{"model":"demo","input":[{"role":"user","content":"Hi"}],"stream":true,"store":false}`
	for _, tt := range []struct {
		name   string
		client func(*Transport, Endpoint) Client
		call   Call
		want   string
	}{
		{"plain", responsesClient, user("Hi"), plain},
		{"in background", backgroundClient, user("Hi"), strings.Replace(plain, `"store":false`, `"store":true,"background":true`, 1)},
		{"all there is", responsesClient, Call{Model: "m", Turns: []Turn{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "A"}, {Role: "assistant", Content: "B"}, {Role: "system", Content: "Be kind."}, {Role: "user", Content: "C"}},
			Params: Params{Temperature: number(0), TopP: number(0.5), MaxTokens: &most, Seed: &seed},
			Tools:  []Tool{{"sign", "Signs.", `{"type":"object"}`}}},
			`{"model":"m","instructions":"Be brief.\n\nBe kind.","input":[{"role":"user","content":"A"},{"role":"assistant","content":"B"},{"role":"user","content":"C"}],"stream":true,"store":false,` +
				`"max_output_tokens":100,"temperature":0,"top_p":0.5,"tools":[{"type":"function","name":"sign","description":"Signs.","parameters":{"properties":{},"type":"object"},"strict":false}]}`},
		{"go on", responsesClient, Call{Model: "m", Continue: true, Turns: []Turn{{Role: "user", Content: "A"}, {Role: "assistant", Content: "B "}}},
			`{"model":"m","input":[{"role":"user","content":"A"},{"role":"assistant","content":"B "},{"role":"user","content":"` + askToContinue + `"}],"stream":true,"store":false}`},
		{"not streamed", func(tr *Transport, e Endpoint) Client {
			e.Quirks.NoStream = true
			return responsesClient(tr, e)
		}, user("Hi"), strings.Replace(plain, `"stream":true`, `"stream":false`, 1)},
	} {
		body, header, h := sent(t, tt.client, tt.call, answer)
		if h.err != nil || body != "POST /v1/responses "+tt.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", tt.name, h.err, body, tt.want)
		}
		if header.Get("Authorization") != "Bearer sk-secret" || len(header["Idempotency-Key"]) > 0 {
			t.Errorf("%s: got the header %v", tt.name, header)
		}
	}
}

func TestResponsesModels(t *testing.T) {
	e, transport := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/v1/models" || r.Header.Get("Authorization") == "" {
			t.Errorf("got %s %v", r.URL, r.Header)
		}
		reply(w, "application/json", `{"object":"list","data":[{"id":"b"},{"id":""},{"id":"a"}]}`, false)
	})
	for _, background := range []bool{false, true} {
		names, err := NewResponses(transport, e, background).(Lister).Models(t.Context())
		if err != nil || !slices.Equal(names, []string{"b", "a"}) {
			t.Errorf("got %v, %v", names, err)
		}
	}
}
