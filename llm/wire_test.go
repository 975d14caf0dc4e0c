package llm_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/llm"
	"semel/llm/llmtest"
)

// A spoken is a client with the provider that it talks to.
type spoken struct {
	name   string
	server *llmtest.Server
	client llm.Client
}

// speakers returns clients of Anthropic and of OpenAI Responses, the latter with
// background mode and without. Each has its own server.
func speakers(t *testing.T) []spoken {
	t.Helper()
	transport := llm.NewTransport()
	t.Cleanup(transport.Close)
	at := func(f llmtest.Format, client func(e llm.Endpoint) llm.Client) (*llmtest.Server, llm.Client) {
		s := llmtest.NewServer(t, f)
		return s, client(llm.Endpoint{URL: s.URL, Key: "sk-secret"})
	}
	a, ac := at(llmtest.Anthropic, func(e llm.Endpoint) llm.Client { return llm.NewAnthropic(transport, e) })
	r, rc := at(llmtest.Responses, func(e llm.Endpoint) llm.Client { return llm.NewResponses(transport, e, false) })
	b, bc := at(llmtest.Responses, func(e llm.Endpoint) llm.Client { return llm.Hurried(llm.NewResponses(transport, e, true)) })
	return []spoken{{"anthropic", a, ac}, {"responses", r, rc}, {"background", b, bc}}
}

func question() llm.Call {
	return llm.Call{RequestID: "r-0000001", Attempt: 1, Model: "model-a", Turns: []llm.Turn{{Role: "user", Content: "What is tea?"}}}
}

// A talk is what came of one call.
type talk struct {
	llm.Answer
	text, thoughts string
	err            error
}

func talkTo(ctx context.Context, client llm.Client, c llm.Call) (r talk) {
	r.Answer, r.err = client.Stream(ctx, c, func(p llm.Piece) { r.text, r.thoughts = r.text+p.Text, r.thoughts+p.Reasoning })
	return r
}

// classed is what an error is classified as.
func classed(err error) string {
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		return fmt.Sprintf("not classified: %v", err)
	}
	s := string(e.Outcome)
	if e.Transient {
		s += ", transient"
	}
	return s
}

func fullScript() llmtest.Script {
	return llmtest.Script{
		Text: []string{"Tea", " 茶", " is a", " 😀 leaf.\n"}, Reasoning: []string{"Let me", " see."},
		Tools: []llm.ToolCall{{ID: "call_1", Name: "sign", Arguments: `{"contract": "ACME 茶", "n": [1, 2]}`}},
		Usage: &chat.Usage{InputTokens: 120, CachedTokens: 100, OutputTokens: 30},
	}
}

func TestAnAnswerIsTheSameHoweverItIsWritten(t *testing.T) {
	for _, sp := range speakers(t) {
		for name, change := range map[string]func(*llmtest.Script){
			"as usual":          func(*llmtest.Script) {},
			"byte by byte":      func(s *llmtest.Script) { s.OneByte = true },
			"between runes":     func(s *llmtest.Script) { s.SplitRunes = true },
			"compressed":        func(s *llmtest.Script) { s.Gzip = true },
			"with comments":     func(s *llmtest.Script) { s.KeepAlive = true },
			"with two ends":     func(s *llmtest.Script) { s.DoubleEnd = true },
			"as one document":   func(s *llmtest.Script) { s.JSON = true },
			"written to caches": func(s *llmtest.Script) { s.CacheWrites = 5 },
		} {
			s := fullScript()
			change(&s)
			sp.server.Play(s)
			r := talkTo(t.Context(), sp.client, question())
			want := llm.Answer{Content: "Tea 茶 is a 😀 leaf.\n", Reasoning: "Let me see.", Finish: chat.FinishTool, ToolCalls: s.Tools, Usage: *s.Usage, UpstreamID: r.UpstreamID}
			if s.JSON && sp.name == "anthropic" { // there it is no string of JSON
				want.ToolCalls = []llm.ToolCall{{ID: "call_1", Name: "sign", Arguments: `{"contract":"ACME 茶","n":[1,2]}`}}
			}
			if r.err != nil || !reflect.DeepEqual(r.Answer, want) || r.text != want.Content || r.thoughts != want.Reasoning || r.UpstreamID == "" {
				t.Errorf("%s, %s: got %+v, %v\nwant %+v", sp.name, name, r.Answer, r.err, want)
			}
		}
	}
}

func TestEachFinishIsUnderstood(t *testing.T) {
	for _, sp := range speakers(t) {
		for _, f := range []chat.Finish{chat.FinishStop, chat.FinishLength, chat.FinishFiltered} {
			sp.server.Play(llmtest.Script{Finish: f})
			if r := talkTo(t.Context(), sp.client, question()); r.err != nil || r.Finish != f {
				t.Errorf("%s: got %s, %v; want %s", sp.name, r.Finish, r.err, f)
			}
		}
		sp.server.Play(llmtest.Script{NoUsage: true})
		if r := talkTo(t.Context(), sp.client, question()); r.err != nil || !r.Usage.Estimated || r.Usage.OutputTokens == 0 {
			t.Errorf("%s, without a count: got %+v, %v", sp.name, r.Usage, r.err)
		}
	}
}

func TestEachFailureIsClassified(t *testing.T) {
	busy, broken := &llmtest.Failure{Status: 429}, &llmtest.Failure{Status: 500}
	for _, tt := range []struct {
		name   string
		script llmtest.Script
		want   string
	}{
		{"429", llmtest.Script{Refuse: busy}, "definite, transient"},
		{"503", llmtest.Script{Refuse: &llmtest.Failure{Status: 503}}, "definite, transient"},
		{"400", llmtest.Script{Refuse: &llmtest.Failure{Status: 400}}, "definite"},
		{"401", llmtest.Script{Refuse: &llmtest.Failure{Status: 401}}, "definite"},
		{"408", llmtest.Script{Refuse: &llmtest.Failure{Status: 408}}, "unknown"},
		{"500", llmtest.Script{Refuse: broken}, "unknown"},
		{"504", llmtest.Script{Refuse: &llmtest.Failure{Status: 504}}, "unknown"},
		{"a page", llmtest.Script{HTML: true}, "unknown"},
		{"a redirect", llmtest.Script{Redirect: "/elsewhere"}, "unknown"},
		{"cut before the headers", llmtest.Script{Cut: llmtest.CutReset, CutAt: -1}, "unknown"},
		{"cut before the first byte", llmtest.Script{Cut: llmtest.CutClose}, "unknown"},
		{"busy before tokens", llmtest.Script{ErrorFrame: busy}, "definite, transient"},
		{"broken before tokens", llmtest.Script{ErrorFrame: broken}, "unknown"},
		{"busy after tokens", llmtest.Script{ErrorFrame: busy, ErrorAfter: 2}, "definite"},
		{"broken after tokens", llmtest.Script{ErrorFrame: broken, ErrorAfter: 2}, "definite"},
		{"broken after tokens, by an event", llmtest.Script{ErrorFrame: broken, ErrorAfter: 2, ErrorEvent: true}, "definite"},
		{"busy in a document", llmtest.Script{ErrorFrame: busy, JSON: true}, "definite, transient"},
	} {
		for _, sp := range speakers(t) {
			sp.server.Play(tt.script)
			if r := talkTo(t.Context(), sp.client, question()); classed(r.err) != tt.want || !reflect.DeepEqual(r.Answer, llm.Answer{}) {
				t.Errorf("%s, %s: got %v, want %s", sp.name, tt.name, r.err, tt.want)
			}
			if n := sp.server.Calls(); n != 1 {
				t.Errorf("%s, %s: the provider got %d prompts", sp.name, tt.name, n)
			}
		}
	}
}

func TestAnAnswerHasABoundInEachFormat(t *testing.T) {
	part := strings.Repeat("x", 1<<20)
	for _, sp := range speakers(t) {
		for name, s := range map[string]llmtest.Script{
			"text":      {Text: slices.Repeat([]string{part}, 17)},
			"reasoning": {Reasoning: slices.Repeat([]string{part}, 17)},
			"one event": {Text: []string{strings.Repeat(part, 17)}},
			"document":  {Text: []string{strings.Repeat(part, 17)}, JSON: true},
		} {
			sp.server.Play(s)
			before := len(sp.server.Requests())
			r := talkTo(t.Context(), sp.client, question())
			if n := len(sp.server.Requests()) - before; n != 1 && len(s.Text)+len(s.Reasoning) > 1 {
				t.Errorf("%s, %s: took %d requests", sp.name, name, n)
			}
			e, _ := errors.AsType[*llm.Error](r.err)
			if e == nil || len(r.text)+len(r.thoughts) > 16<<20 {
				t.Errorf("%s, %s: got %d bytes, %v", sp.name, name, len(r.text), r.err)
			} else if want := "answer_too_long"; e.Code != want && name != "one event" {
				t.Errorf("%s, %s: got %v, want %s", sp.name, name, e, want)
			}
		}
	}
}

func TestASilentProviderIsLeftWithTheContext(t *testing.T) {
	for _, sp := range speakers(t) {
		for _, point := range []llmtest.Point{llmtest.BeforeHeaders, llmtest.AfterHeaders, llmtest.AfterPieces} {
			sp.server.Play(llmtest.Script{Hang: point, HangAfter: 2})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				select {
				case <-sp.server.Stalled():
				case <-t.Context().Done():
				}
				cancel()
			}()
			if r := talkTo(ctx, sp.client, question()); !errors.Is(r.err, context.Canceled) || classed(r.err) != "unknown" {
				t.Errorf("%s, silent at point %d: got %v", sp.name, point, r.err)
			}
		}
	}
}

func TestARunIsFollowedOverLinesThatBreak(t *testing.T) {
	sp := speakers(t)[2]
	for _, how := range []llmtest.Cut{llmtest.CutClean, llmtest.CutClose, llmtest.CutReset} {
		for name, change := range map[string]func(*llmtest.Script){
			"once":                    func(*llmtest.Script) {},
			"again and again":         func(s *llmtest.Script) { s.CutAgain = 3 },
			"and only looked at":      func(s *llmtest.Script) { s.NoResume = true },
			"at a busy provider":      func(s *llmtest.Script) { s.AskFails = 3 },
			"where the end is silent": func(s *llmtest.Script) { s.NoDone = true },
		} {
			s := fullScript()
			s.Cut, s.CutAt = how, 1800 // behind the name
			change(&s)
			sp.server.Play(s)
			before, names := sp.server.Calls(), []string{}
			c := question()
			c.Started = func(id string) { names = append(names, id) }
			r := talkTo(t.Context(), sp.client, c)
			if r.err != nil || r.Content != "Tea 茶 is a 😀 leaf.\n" || r.text != r.Content || r.Usage != *s.Usage || !reflect.DeepEqual(r.ToolCalls, s.Tools) {
				t.Errorf("cut %d, %s: got %+v, %v", how, name, r.Answer, r.err)
			}
			if last := sp.server.Requests(); last[len(last)-1].Method != http.MethodGet {
				t.Errorf("cut %d, %s: the line was not cut", how, name)
			}
			if sp.server.Calls() != before+1 || len(names) != 1 || names[0] != r.UpstreamID {
				t.Errorf("cut %d, %s: %d prompts, names %q", how, name, sp.server.Calls()-before, names)
			}
		}
	}
	sp.server.Play(llmtest.Script{Cut: llmtest.CutClose, CutAt: 1800, Forgets: true})
	if r := talkTo(t.Context(), sp.client, question()); classed(r.err) != "unknown" {
		t.Errorf("forgotten: got %v", r.err)
	}
}

func TestARunOutlivesWhoAskedForIt(t *testing.T) {
	sp := speakers(t)[2]
	client := sp.client.(llm.Reattacher)
	for name, noResume := range map[string]bool{"by stream": false, "by looking": true} {
		s := fullScript()
		s.Hang, s.HangAfter, s.NoResume = llmtest.AfterPieces, 4, noResume
		sp.server.Play(s)
		before := sp.server.Calls()
		ctx, cancel := context.WithCancel(t.Context())
		var id string
		c := question()
		c.Started = func(name string) { id = name }
		_, err := sp.client.Stream(ctx, c, func(p llm.Piece) {
			if p.Text != "" {
				cancel()
			}
		})
		cancel()
		if !errors.Is(err, context.Canceled) || id == "" {
			t.Fatalf("%s: got %v, named %q", name, err, id)
		}
		<-sp.server.Stalled()
		sp.server.Release()
		var text string
		a, err := client.Reattach(t.Context(), question(), id, func(p llm.Piece) { text += p.Text })
		if err != nil || a.Content != "Tea 茶 is a 😀 leaf.\n" || text != a.Content || a.UpstreamID != id {
			t.Errorf("%s: got %+v, %v", name, a, err)
		}
		if sp.server.Calls() != before+1 {
			t.Errorf("%s: %d prompts", name, sp.server.Calls()-before)
		}
	}

	s := fullScript()
	s.Hang, s.HangAfter = llmtest.AfterPieces, 4
	sp.server.Play(s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := question()
	var id string
	c.Started = func(name string) { id = name }
	r := talk{}
	r.Answer, r.err = sp.client.Stream(ctx, c, func(p llm.Piece) {
		if r.text += p.Text; r.text == "Tea 茶" {
			if err := client.Cancel(ctx, id); err != nil {
				t.Errorf("cancel: %v", err)
			}
		}
	})
	if classed(r.err) != "definite" || r.text != "Tea 茶" {
		t.Errorf("cancelled: got %q, %v", r.text, r.err)
	}
}

func TestEachProviderListsItsModels(t *testing.T) {
	for _, sp := range speakers(t) {
		names, err := sp.client.(llm.Lister).Models(t.Context())
		if err != nil || !slices.Equal(names, []string{"model-a", "model-b"}) {
			t.Errorf("%s: got %v, %v", sp.name, names, err)
		}
		for _, r := range sp.server.Requests() {
			if r.Method != http.MethodGet || !strings.Contains(fmt.Sprint(r.Header), "sk-secret") {
				t.Errorf("%s: asked %s %s with %v", sp.name, r.Method, r.Path, r.Header)
			}
		}
	}
}
