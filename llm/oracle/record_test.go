package oracle

import (
	"bytes"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"semel/chat"
	"semel/llm"
	"semel/llm/llmtest"
)

var record = flag.Bool("record", false, "write the transcripts that are recorded from llmtest.Server")

// A recording is how a transcript came to be.
type recording struct {
	format llmtest.Format
	stream bool
	script llmtest.Script
}

// recordings are by name of the transcript: each script in each format that has its
// knob, streamed and not where that makes a difference.
func recordings() map[string]recording {
	text := []string{"Once", " is", " enough", ".\n\n", "一次", "就够。", " 🌱", " naïve"}
	reasoning := []string{"The user ", "asks twice", "；答一次。"}
	tools := []llm.ToolCall{
		{ID: "call_1", Name: "get_weather", Arguments: `{"city": "São Paulo", "days": 3, "note": "a \"quoted\" \\ line\nbreak", "big": 12345678901234567890}`},
		{ID: "call_2", Name: "sign", Arguments: `{"who":"王小明","deep":{"list":[1,2.50,null,true,{}]}}`},
		{ID: "call_3", Name: "sign", Arguments: `{}`},
	}
	usage := &chat.Usage{InputTokens: 120, OutputTokens: 34}
	cached := &chat.Usage{InputTokens: 2048, CachedTokens: 1920, OutputTokens: 7}
	const both, chatOnly, anthropicOnly, streamOnly = "", "chat", "anthropic", "sse"
	list := []struct {
		name, only string // of one format, or of streams
		script     llmtest.Script
	}{
		{"text", both, llmtest.Script{Text: text, Usage: usage}},
		{"reasoning", both, llmtest.Script{Text: text, Reasoning: reasoning, Usage: usage}},
		{"reasoning-in-text", both, llmtest.Script{Text: text, Reasoning: reasoning, ThinkInline: true, Usage: usage}},
		{"reasoning-field", chatOnly, llmtest.Script{Text: text, Reasoning: reasoning, ReasoningField: "reasoning", Usage: usage}},
		{"tool", both, llmtest.Script{Tools: tools[:1], Usage: usage}},
		{"tools", both, llmtest.Script{Text: text[:3], Reasoning: reasoning, Tools: tools, Usage: usage}},
		{"length", both, llmtest.Script{Text: text, Finish: chat.FinishLength, Usage: usage}},
		{"length-in-tool", both, llmtest.Script{Text: text, Tools: []llm.ToolCall{{ID: "call_1", Name: "sign", Arguments: `{"who":"Wa`}}, Finish: chat.FinishLength, Usage: usage}},
		{"filtered", both, llmtest.Script{Text: text, Finish: chat.FinishFiltered, Usage: usage}},
		{"filtered-at-once", both, llmtest.Script{Text: []string{}, Finish: chat.FinishFiltered, Usage: usage}},
		{"empty", both, llmtest.Script{Text: []string{}, Usage: usage}},
		{"cached", both, llmtest.Script{Text: text, Usage: cached}},
		{"cache-writes", anthropicOnly, llmtest.Script{Text: text, Usage: cached, CacheWrites: 100}},
		{"no-usage", both, llmtest.Script{Text: text, NoUsage: true}},
		{"no-finish", both, llmtest.Script{Text: text, NoFinish: true, Usage: usage}},
		{"no-done", streamOnly, llmtest.Script{Text: text, NoDone: true, Usage: usage}},
		{"double-end", streamOnly, llmtest.Script{Text: text, DoubleEnd: true, Usage: usage}},
		{"keep-alive", streamOnly, llmtest.Script{Text: text, KeepAlive: true, Usage: usage}},
		{"error", streamOnly, llmtest.Script{Text: text, ErrorFrame: &llmtest.Failure{Status: 503}, ErrorAfter: 3, Usage: usage}},
		{"usage-in-finish", chatOnly, llmtest.Script{Text: text, UsageInFinish: true, Usage: usage}},
		{"ollama", chatOnly, llmtest.Script{Text: text, AsOllama: true, Usage: usage}},
		{"ollama-tools", chatOnly, llmtest.Script{Tools: tools, Finish: chat.FinishStop, AsOllama: true, Usage: usage}},
	}
	all := map[string]recording{}
	for _, r := range list {
		for _, f := range []llmtest.Format{llmtest.Chat, llmtest.Responses, llmtest.Anthropic} {
			if r.only != both && r.only != streamOnly && r.only != string(f) {
				continue
			}
			all[string(f)+"/recorded/"+r.name+".sse"] = recording{f, true, r.script}
			if r.only != streamOnly {
				all[string(f)+"/recorded/"+r.name+".json"] = recording{f, false, r.script}
			}
		}
	}
	return all
}

// play returns the body of a response to a call as providers document it.
func (r recording) play(t *testing.T) []byte {
	t.Helper()
	path := map[llmtest.Format]string{llmtest.Chat: "/chat/completions", llmtest.Responses: "/responses", llmtest.Anthropic: "/messages"}[r.format]
	body := map[llmtest.Format]string{
		llmtest.Chat:      `{"model":"model-a","messages":[{"role":"user","content":"Hello"}]`,
		llmtest.Responses: `{"model":"model-a","input":"Hello"`,
		llmtest.Anthropic: `{"model":"model-a","max_tokens":1024,"messages":[{"role":"user","content":"Hello"}]`,
	}[r.format]
	if r.stream {
		body += `,"stream":true`
		if r.format == llmtest.Chat {
			body += `,"stream_options":{"include_usage":true}`
		}
	}
	server, err := llmtest.Start(r.format)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.Play(r.script)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body+"}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
	}
	return text
}

func TestRecordedTranscriptsAreWhatTheServerPlays(t *testing.T) {
	for name, r := range recordings() {
		file := filepath.Join(transcriptsDir, filepath.FromSlash(name))
		played := r.play(t)
		if *record {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, played, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		kept, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(kept, played) {
			t.Errorf("%s is not what llmtest.Server plays (%v): go test -run Recorded -record", name, err)
		}
	}
}
