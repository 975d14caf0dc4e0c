package llmtest_test

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"semel/chat"
	"semel/llm"
	"semel/llm/llmtest"
)

// A chunk is what a test looks at of a chat completion.
type chunk struct {
	ID, Object string
	Choices    []struct {
		Delta   chatDelta
		Message chatDelta
		Finish  *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

type chatDelta struct {
	Role      string
	Content   *string
	Thought   string `json:"reasoning_content"`
	Reasoning string
	Tools     []struct {
		Index    *int
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// chunks returns the chunks of a stream, and whether [DONE] came last.
func chunks(t *testing.T, body string) (list []chunk, done int) {
	t.Helper()
	for _, e := range events(body) {
		if e == "[DONE]" {
			done++
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(e), &c); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list, done
}

// A told is what a client would make of an answer.
type told struct {
	text, reasoning, arguments, finish string
	finishes, usages                   int
}

func tell(list []chunk) (got told) {
	for _, c := range list {
		if c.Usage != nil {
			got.usages++
		}
		for _, choice := range c.Choices {
			d := choice.Delta
			if d.Content != nil {
				got.text += *d.Content
			}
			got.reasoning += d.Thought + d.Reasoning
			for _, tool := range d.Tools {
				got.arguments += tool.Function.Arguments
			}
			if choice.Finish != nil {
				got.finish = *choice.Finish
				got.finishes++
			}
		}
	}
	return got
}

var everything = llmtest.Script{
	Reasoning: []string{"Let me ", "think."},
	Text:      []string{"Once ", "<&> \u2028 一次", "."},
	Tools:     []llm.ToolCall{{Name: "sign", Arguments: `{"who":"张三","n":[1,2]}`}, {ID: "x", Name: "send", Arguments: "{}"}},
	Usage:     &chat.Usage{InputTokens: 100, CachedTokens: 60, OutputTokens: 7},
}

func TestAChatStreamSaysEverything(t *testing.T) {
	list, done := chunks(t, ask(t, llmtest.Chat, everything, true).body)
	if got, want := tell(list), (told{text: "Once <&> \u2028 一次.", reasoning: "Let me think.", arguments: `{"who":"张三","n":[1,2]}{}`, finish: "tool_calls", finishes: 1, usages: 1}); got != want || done != 1 {
		t.Errorf("got %+v, done %d, want %+v", got, done, want)
	}
	last := list[len(list)-1]
	if len(last.Choices) != 0 || last.Usage.Prompt != 100 || last.Usage.Completion != 7 || last.Usage.Details.Cached != 60 {
		t.Errorf("got %+v, want the usage without a choice", last)
	}
	var ids, names []string
	roles := 0
	for _, c := range list {
		if c.ID != list[0].ID || c.Object != "chat.completion.chunk" {
			t.Errorf("got %+v", c)
		}
		for _, choice := range c.Choices {
			if choice.Delta.Role != "" {
				roles++
			}
			for _, tool := range choice.Delta.Tools {
				if tool.ID != "" {
					ids, names = append(ids, tool.ID), append(names, tool.Function.Name)
				}
				if *tool.Index != len(ids)-1 {
					t.Errorf("got index %d for tool %d", *tool.Index, len(ids)-1)
				}
			}
		}
	}
	if roles != 1 || !slices.Equal(ids, []string{"call_1_0", "x"}) || !slices.Equal(names, []string{"sign", "send"}) {
		t.Errorf("got %d roles, ids %v, names %v", roles, ids, names)
	}
}

func TestAChatAnswerSaysEverything(t *testing.T) {
	var got chunk
	body := ask(t, llmtest.Chat, everything, false).body
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	m := got.Choices[0].Message
	if *m.Content != "Once <&> \u2028 一次." || m.Thought != "Let me think." || len(m.Tools) != 2 || m.Tools[0].Function.Arguments != everything.Tools[0].Arguments ||
		*got.Choices[0].Finish != "tool_calls" || got.Usage.Details.Cached != 60 || got.Object != "chat.completion" {
		t.Errorf("got %s", body)
	}
}

func TestChatFinishes(t *testing.T) {
	for finish, want := range map[chat.Finish]string{"": "stop", chat.FinishStop: "stop", chat.FinishLength: "length", chat.FinishFiltered: "content_filter", chat.FinishTool: "tool_calls"} {
		list, _ := chunks(t, ask(t, llmtest.Chat, llmtest.Script{Finish: finish}, true).body)
		if got := tell(list).finish; got != want {
			t.Errorf("%q: got %q, want %q", finish, got, want)
		}
	}
}

func TestEndsOfAChatStream(t *testing.T) {
	text := []string{"a"}
	for name, tt := range map[string]struct {
		script                 llmtest.Script
		finishes, usages, done int
	}{
		"plain":                 {llmtest.Script{}, 1, 1, 1},
		"twice":                 {llmtest.Script{DoubleEnd: true}, 2, 2, 2},
		"no [DONE]":             {llmtest.Script{NoDone: true}, 1, 1, 0},
		"no usage":              {llmtest.Script{NoUsage: true}, 1, 0, 1},
		"no finish":             {llmtest.Script{NoFinish: true}, 0, 1, 1},
		"nothing":               {llmtest.Script{NoFinish: true, NoUsage: true, NoDone: true}, 0, 0, 0},
		"usage in finish":       {llmtest.Script{UsageInFinish: true}, 1, 1, 1},
		"usage, no finish":      {llmtest.Script{UsageInFinish: true, NoFinish: true}, 0, 1, 1},
		"ollama":                {llmtest.Script{AsOllama: true}, 1, 1, 1},
		"ollama without finish": {llmtest.Script{AsOllama: true, NoFinish: true}, 0, 1, 1},
	} {
		tt.script.Text = text
		list, done := chunks(t, ask(t, llmtest.Chat, tt.script, true).body)
		if got := tell(list); got.text != "a" || got.finishes != tt.finishes || got.usages != tt.usages || done != tt.done {
			t.Errorf("%s: got %+v, done %d, want %+v", name, got, done, tt)
		}
	}
}

func TestUsageComesWhenItIsAskedFor(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Chat)
	r := prompt(t.Context(), t, s, llmtest.Chat, true)
	body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}`
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	if got := send(t, r).body; strings.Contains(got, "usage") {
		t.Errorf("got %s, want no usage", got)
	}
	if got := send(t, prompt(t.Context(), t, s, llmtest.Chat, true)).body; !strings.Contains(got, `"usage":null`) {
		t.Errorf("got %s, want usage null before there is one", got)
	}
}

func TestOllamaRepeatsTheRoleAndEndsWithAnEmptyDelta(t *testing.T) {
	script := everything
	script.AsOllama, script.ReasoningField = true, "reasoning"
	list, _ := chunks(t, ask(t, llmtest.Chat, script, true).body)
	tools := 0
	for _, c := range list {
		for _, choice := range c.Choices {
			if choice.Delta.Role != "assistant" || choice.Delta.Content == nil {
				t.Errorf("got %+v, want a role and content", choice)
			}
			tools += len(choice.Delta.Tools)
		}
	}
	end := list[len(list)-2] // before the usage
	if got := tell(list); got.reasoning != "Let me think." || tools != 2 || *end.Choices[0].Delta.Content != "" || end.Choices[0].Finish == nil {
		t.Errorf("got %+v, %d tools, end %+v", got, tools, end)
	}
}

func TestThoughtsCanBeInline(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		got := ask(t, f, llmtest.Script{Reasoning: []string{"a", "b"}, Text: []string{"c"}, ThinkInline: true}, false).body
		if !strings.Contains(got, `"<think>ab</think>\n\nc"`) || strings.Count(got, "ab") != 1 {
			t.Errorf("got %s", got)
		}
	})
}
