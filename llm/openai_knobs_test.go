package llm_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"semel/chat"
	"semel/llm"
	"semel/llm/llmtest"
)

// chatClient returns a client of a provider that plays scripts.
func chatClient(t *testing.T, scripts ...llmtest.Script) (*llmtest.Server, *llm.OpenAI) {
	t.Helper()
	s := llmtest.NewServer(t, llmtest.Chat)
	if scripts != nil {
		s.Play(scripts...)
	}
	tr := llm.NewTransport()
	t.Cleanup(tr.Close)
	return s, llm.NewOpenAI(tr, llm.Endpoint{URL: s.URL, Key: "sk-knobs"})
}

var knobCall = llm.Call{RequestID: "r-0000001", Attempt: 1, Model: "m", Turns: []llm.Turn{{Role: "user", Content: "Why?"}}}

// play makes one call and returns what came of it, with the text of its pieces.
func play(ctx context.Context, o *llm.OpenAI) (a llm.Answer, text string, err error) {
	a, err = o.Stream(ctx, knobCall, func(p llm.Piece) { text += p.Text })
	return a, text, err
}

func TestAProviderIsUnderstoodHoweverItSpeaks(t *testing.T) {
	words := []string{"茶 ", "is ", "a ", "😀 leaf."}
	usage := &chat.Usage{InputTokens: 20, CachedTokens: 8, OutputTokens: 7}
	tools := []llm.ToolCall{{ID: "a", Name: "sign", Arguments: `{"title":"Vertrag über 茶"}`}, {ID: "b", Name: "send", Arguments: `{}`}}
	for name, s := range map[string]llmtest.Script{
		"as it is":                       {},
		"as Ollama":                      {AsOllama: true},
		"usage beside the finish reason": {UsageInFinish: true},
		"no [DONE]":                      {NoDone: true},
		"no usage":                       {NoUsage: true},
		"everything twice":               {DoubleEnd: true},
		"byte by byte":                   {OneByte: true},
		"half characters":                {SplitRunes: true},
		"compressed":                     {Gzip: true},
		"compressed byte by byte":        {Gzip: true, OneByte: true},
		"keep-alives":                    {KeepAlive: true},
		"a whole answer":                 {JSON: true},
		"a whole answer, compressed":     {JSON: true, Gzip: true},
		"reasoning by the other name":    {ReasoningField: "reasoning"},
		"thoughts in the text":           {ThinkInline: true},
		"thoughts in the text by byte":   {ThinkInline: true, OneByte: true},
		"cut behind its end":             {Cut: llmtest.CutClose, CutAt: 1 << 20},
		"cut by the limit":               {Finish: chat.FinishLength},
		"filtered":                       {Finish: chat.FinishFiltered},
	} {
		for _, acts := range []bool{false, true} {
			s := s
			s.Text, s.Reasoning, s.Usage = words, []string{"Hm", "."}, usage
			finish := s.Finish
			var calls []llm.ToolCall
			if acts {
				s.Tools = tools
				if finish == "" {
					finish, calls = chat.FinishTool, tools
				}
			}
			if finish == "" {
				finish = chat.FinishStop
			}
			server, o := chatClient(t, s)
			a, text, err := play(t.Context(), o)
			if err != nil {
				t.Errorf("%s, actions %v: %v", name, acts, err)
				continue
			}
			if got := strings.TrimLeft(a.Content, "\n"); got != "茶 is a 😀 leaf." || a.Content != text || a.Reasoning != "Hm." || a.Finish != finish || !reflect.DeepEqual(a.ToolCalls, calls) {
				t.Errorf("%s, actions %v: got %+v", name, acts, a)
			}
			if a.Usage.Estimated != s.NoUsage || !s.NoUsage && a.Usage != *usage {
				t.Errorf("%s, actions %v: got %+v, want %+v", name, acts, a.Usage, *usage)
			}
			if n := server.Calls(); n != 1 {
				t.Errorf("%s: %d prompts arrived", name, n)
			}
		}
	}
}

func TestAProviderThatFailsIsClassified(t *testing.T) {
	words := llmtest.Tokens(5)
	for name, tt := range map[string]struct {
		script    llmtest.Script
		outcome   chat.Outcome
		transient bool
		code      string
		text      bool // some came
	}{
		"429":                      {llmtest.Script{Refuse: &llmtest.Failure{Status: 429}}, chat.OutcomeDefinite, true, "provider_busy", false},
		"529":                      {llmtest.Script{Refuse: &llmtest.Failure{Status: 529}}, chat.OutcomeDefinite, true, "provider_busy", false},
		"401":                      {llmtest.Script{Refuse: &llmtest.Failure{Status: 401}}, chat.OutcomeDefinite, false, "provider_refused", false},
		"408":                      {llmtest.Script{Refuse: &llmtest.Failure{Status: 408}}, chat.OutcomeUnknown, false, "provider_error", false},
		"500":                      {llmtest.Script{Refuse: &llmtest.Failure{Status: 500}}, chat.OutcomeUnknown, false, "provider_error", false},
		"a redirect":               {llmtest.Script{Redirect: "/elsewhere"}, chat.OutcomeUnknown, false, "provider_error", false},
		"a page":                   {llmtest.Script{HTML: true}, chat.OutcomeUnknown, false, "provider_error", false},
		"an error frame first":     {llmtest.Script{Text: words, ErrorFrame: &llmtest.Failure{Status: 429}}, chat.OutcomeDefinite, true, "provider_busy", false},
		"an error frame later":     {llmtest.Script{Text: words, ErrorFrame: &llmtest.Failure{Status: 429}, ErrorAfter: 2}, chat.OutcomeDefinite, false, "provider_error", true},
		"an error for an answer":   {llmtest.Script{JSON: true, ErrorFrame: &llmtest.Failure{Status: 400, Code: "context_length_exceeded"}}, chat.OutcomeDefinite, false, "context_too_long", false},
		"no finish reason":         {llmtest.Script{Text: words, NoFinish: true}, chat.OutcomeUnknown, false, "line_lost", true},
		"closed before an answer":  {llmtest.Script{Cut: llmtest.CutClose, CutAt: -1}, chat.OutcomeUnknown, false, "line_lost", false},
		"reset before an answer":   {llmtest.Script{Cut: llmtest.CutReset, CutAt: -1}, chat.OutcomeUnknown, false, "line_lost", false},
		"closed after its headers": {llmtest.Script{Cut: llmtest.CutClose}, chat.OutcomeUnknown, false, "line_lost", false},
		"filtered at once":         {llmtest.Script{Text: []string{}, Finish: chat.FinishFiltered}, chat.OutcomeDefinite, false, "content_refused", false},
	} {
		t.Run(name, func(t *testing.T) {
			server, o := chatClient(t, tt.script)
			_, text, err := play(t.Context(), o)
			var e *llm.Error
			if !errors.As(err, &e) || e.Outcome != tt.outcome || e.Transient != tt.transient || e.Code != tt.code {
				t.Errorf("got %v (%v)", err, errors.Unwrap(err))
			}
			if (text != "") != tt.text {
				t.Errorf("got text %q", text)
			}
			if n := server.Calls(); n != 1 {
				t.Errorf("%d prompts arrived", n)
			}
		})
	}
}

// Wherever a line dies, the answer is whole or the outcome unknown, and what was
// handed out is the begin of what was said.
func TestALineMayDieAtAnyByte(t *testing.T) {
	s, o := chatClient(t)
	script := llmtest.Script{Text: []string{"茶 ", "is a ", "leaf."}, Reasoning: []string{"Hm."}, Usage: &chat.Usage{InputTokens: 9, OutputTokens: 4}}
	const want = "茶 is a leaf."
	ends, answered, counted := 0, -1, -1
	for _, cut := range []llmtest.Cut{llmtest.CutClose, llmtest.CutClean} {
		for at := 0; ends == 0 || at <= ends; at++ {
			script.Cut, script.CutAt = cut, at
			s.Play(script)
			a, text, err := play(t.Context(), o)
			var e *llm.Error
			switch {
			case err == nil && a.Content == want && text == want:
				if answered < 0 {
					answered = at
				}
				if !a.Usage.Estimated && counted < 0 {
					counted = at
				}
			case errors.As(err, &e) && e.Outcome == chat.OutcomeUnknown && strings.HasPrefix(want, text) && (answered < 0 || at < answered || cut == llmtest.CutClean):
			default:
				t.Fatalf("cut %d at byte %d: got %q, %+v, %v", cut, at, text, a, err)
			}
			if ends == 0 && counted > 0 {
				ends = at + 40
			}
		}
	}
	if !(0 < answered && answered < counted) {
		t.Errorf("answered from byte %d on, counted from %d on", answered, counted)
	}
}

func TestAProviderThatFallsSilentIsLeft(t *testing.T) {
	for _, hang := range []llmtest.Script{{Hang: llmtest.BeforeHeaders}, {Hang: llmtest.AfterHeaders}, {Hang: llmtest.AfterPieces, HangAfter: 2}} {
		s, o := chatClient(t, hang)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-s.Stalled(); cancel() }()
		_, _, err := play(ctx, o)
		var e *llm.Error
		if !errors.As(err, &e) || e.Outcome != chat.OutcomeUnknown || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		s.Settle()
		if s.Aborted() != 1 {
			t.Errorf("the provider was not told: %d aborted", s.Aborted())
		}
	}
}

func TestModelsAreListed(t *testing.T) {
	_, o := chatClient(t)
	if names, err := o.Models(t.Context()); err != nil || len(names) == 0 {
		t.Errorf("got %v, %v", names, err)
	}
}
