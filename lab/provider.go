package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"semel/chat"
	"semel/llm"
)

// A provider is the built-in model behind the HTTP API that most providers speak, so
// that it stays when an application is killed, and counts and bills like one: it knows
// nothing of intents. Each lane has its own, with the same seed.
type provider struct {
	srv  *httptest.Server
	demo *llm.Demo
	seed int64

	mu     sync.Mutex // guards what follows
	calls  int
	tokens int64
	fail   int   // the status of the next call, 0 for an answer
	hold   *hold // of the next call, nil for none
	holds  []*hold
}

// A hold keeps a call in the middle of its answer.
type hold struct {
	*kept
	after int           // words
	over  chan struct{} // closed when the call has ended
}

func newProvider(seed uint64) *provider {
	p := &provider{demo: llm.NewDemo(), seed: int64(seed >> 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", p.complete)
	p.srv = httptest.NewServer(mux)
	return p
}

func (p *provider) url() string { return p.srv.URL + "/v1" }

// release lets go every call that is held.
func (p *provider) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		h.release()
	}
}

func (p *provider) close() {
	p.srv.CloseClientConnections()
	p.srv.Close()
}

// holdNext lets the next call stop after so many words.
func (p *provider) holdNext(after int) *hold {
	h := &hold{kept: newKept(), after: after, over: make(chan struct{})}
	p.mu.Lock()
	p.hold, p.holds = h, append(p.holds, h)
	p.mu.Unlock()
	return h
}

func (p *provider) failNext(status int) {
	p.mu.Lock()
	p.fail = status
	p.mu.Unlock()
}

func (p *provider) counted() (calls int, tokens int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls, p.tokens
}

func (p *provider) complete(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages []struct{ Role, Content string }
		Tools    []struct {
			Function struct {
				Name, Description string
				Parameters        json.RawMessage
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.calls++
	h, fail := p.hold, p.fail
	p.hold, p.fail = nil, 0
	p.mu.Unlock()
	if h != nil {
		defer close(h.over)
	}
	if fail != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(fail)
		fmt.Fprint(w, `{"error":{"message":"The lab told this provider to fail.","type":"server_error"}}`)
		return
	}
	c := llm.Call{Attempt: 1, Params: llm.Params{Seed: &p.seed}}
	for _, m := range body.Messages {
		c.Turns = append(c.Turns, llm.Turn{Role: m.Role, Content: m.Content})
	}
	for _, t := range body.Tools {
		c.Tools = append(c.Tools, llm.Tool{Name: t.Function.Name, Description: t.Function.Description, Parameters: string(t.Function.Parameters)})
	}
	if n := len(c.Turns); n > 0 {
		c.Turns[n-1].Content += " [[rate 0]]" // it is quick
	}
	// Not the request's context: what a provider has begun it finishes, and bills.
	a, err := p.demo.Stream(context.WithoutCancel(r.Context()), c, func(llm.Piece) {})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	p.mu.Lock()
	p.tokens += a.Usage.InputTokens + a.Usage.OutputTokens
	p.mu.Unlock()
	p.stream(w, r, a, h)
}

// stream sends a in words, as chat completions are streamed.
func (p *provider) stream(w http.ResponseWriter, r *http.Request, a llm.Answer, h *hold) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	frame := func(choices []any, usage any) {
		b, err := json.Marshal(map[string]any{"id": a.UpstreamID, "object": "chat.completion.chunk", "choices": choices, "usage": usage})
		if err != nil {
			panic(err) // strings and numbers
		}
		fmt.Fprintf(w, "data: %s\n\n", b)
	}
	choice := func(delta map[string]any, finish any) []any {
		return []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}
	}
	words := strings.SplitAfter(a.Content, " ")
	if h != nil {
		after := min(h.after, len(words))
		frame(choice(map[string]any{"role": "assistant", "content": strings.Join(words[:after], "")}, nil), nil)
		_ = flush.Flush() // whoever has gone does not read it
		words = words[after:]
		h.arrive()
		<-h.let
	}
	frame(choice(map[string]any{"content": strings.Join(words, "")}, nil), nil)
	var calls []any
	for i, t := range a.ToolCalls {
		calls = append(calls, map[string]any{"index": i, "id": t.ID, "type": "function",
			"function": map[string]any{"name": t.Name, "arguments": t.Arguments}})
	}
	finish := "stop"
	if a.Finish == chat.FinishTool {
		finish = "tool_calls"
		frame(choice(map[string]any{"tool_calls": calls}, nil), nil)
	}
	frame(choice(map[string]any{}, finish), nil)
	frame([]any{}, map[string]any{"prompt_tokens": a.Usage.InputTokens, "completion_tokens": a.Usage.OutputTokens,
		"total_tokens": a.Usage.InputTokens + a.Usage.OutputTokens})
	fmt.Fprint(w, "data: [DONE]\n\n")
}
