package llm_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"semel/chat"
	"semel/llm"
	"semel/llm/llmtest"
)

// X24: a count of tokens that makes no sense costs no answer, and what it stands for is
// estimated as if it were not there: in each format, streamed or whole, of the input, of
// the output and of what was cached.
func TestX24ACountThatMakesNoSenseIsEstimated(t *testing.T) {
	t.Parallel()
	const input, output = "11171", "22273"
	transport := llm.NewTransport()
	defer transport.Close()
	call := llm.Call{RequestID: "request-1", Attempt: 1, Model: "m", Turns: []llm.Turn{{Role: "user", Content: "How many?"}}}
	want := llm.Estimate(call, "As many", "")
	for _, f := range []llmtest.Format{llmtest.Chat, llmtest.Responses, llmtest.Anthropic} {
		provider := llmtest.NewServer(t, f)
		var whole bool
		provider.PlayFunc(func(int64, []byte) llmtest.Script {
			return llmtest.Script{Text: []string{"As many"}, Usage: &chat.Usage{InputTokens: 11171 + 333, OutputTokens: 22273, CachedTokens: 333}, JSON: whole}
		})
		for _, n := range []struct {
			name, value string
			atMost      bool // it may also be that nobody knows how the call ended
		}{
			{"2^63-1", "9223372036854775807", false},
			{"2^63", "9223372036854775808", false},
			{"-1", "-1", false},
			{"-2^63", "-9223372036854775808", false},
			{"two thirds of all there is", "6148914691236517205", false}, // two of them overflow
			{"a huge float", "1e300", false},
			{"a float without end", "1e400", false},
			{"half a token", "1.5", false},
			{"a word", `"many"`, false},
			{"a list", "[1]", false},
			{"NaN", "NaN", true}, // which is no JSON
			{"Infinity", "-Infinity", true},
		} {
			for _, which := range []string{input, output} {
				for _, whole = range []bool{false, true} {
					changed := 0
					lies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						said := httptest.NewRecorder()
						provider.ServeHTTP(said, r)
						body := said.Body.Bytes()
						// Chat completions and Responses count the cached ones among the input.
						for _, number := range []string{map[string]string{input: "11504", output: output}[which], which} {
							changed += bytes.Count(body, []byte(":"+number))
							body = bytes.ReplaceAll(body, []byte(":"+number), []byte(":"+n.value))
						}
						w.Header().Set("Content-Type", said.Header().Get("Content-Type"))
						w.WriteHeader(said.Code)
						_, _ = w.Write(body)
					}))
					at := llm.Endpoint{URL: lies.URL + "/v1"}
					var client llm.Client
					switch f {
					case llmtest.Chat:
						client = llm.NewOpenAI(transport, at)
					case llmtest.Responses:
						client = llm.NewResponses(transport, at, false)
					case llmtest.Anthropic:
						client = llm.NewAnthropic(transport, at)
					}
					a, err := client.Stream(context.Background(), call, func(llm.Piece) {})
					lies.Close()
					what := strings.Join([]string{string(f), n.name, map[string]string{input: "in", output: "out"}[which], map[bool]string{true: "whole", false: "streamed"}[whole]}, ", ")
					if changed == 0 {
						t.Errorf("%s: no count was changed: no test", what)
					}
					var e *llm.Error
					switch {
					case n.atMost && errors.As(err, &e) && e.Outcome == chat.OutcomeUnknown:
					case err != nil:
						t.Errorf("%s: the answer is lost: %v", what, err)
					case a.Content != "As many" || a.Usage != want:
						t.Errorf("%s: got %q and %+v, want an estimate %+v", what, a.Content, a.Usage, want)
					}
				}
			}
		}
	}
}
