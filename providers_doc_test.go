package main

import (
	"os"
	"strings"
	"testing"

	"semel/llm"
)

func TestEachPresetIsInTheDocumentWithItsAddress(t *testing.T) {
	text, err := os.ReadFile("docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` | "); ok && strings.HasPrefix(line, "| `") {
			rows[name] = rest
		}
	}
	limits := map[bool]string{true: "max_completion_tokens", false: "max_tokens"}
	ways := map[llm.Continuation]string{
		llm.ContinueAsk: "in words", llm.ContinuePartial: "partial", llm.ContinueFinal: "continue_final_message", llm.ContinuePrefill: "prefill",
	}
	for _, p := range llm.Presets {
		row := rows[p.Name]
		delete(rows, p.Name)
		if !strings.Contains(row, "| "+p.URL+" |") {
			t.Errorf("preset %s is at %s, and docs/providers.md says %q", p.Name, p.URL, row)
		}
		if p.Provider != "openai" {
			continue // what its format has instead is in words
		}
		if !strings.Contains(row, "`"+limits[p.Quirks.MaxCompletionTokens]+"`") || !strings.Contains(row, ways[p.Quirks.Continue]) {
			t.Errorf("preset %s has %+v, and docs/providers.md says %q", p.Name, p.Quirks, row)
		}
	}
	for name := range rows {
		t.Errorf("docs/providers.md has a preset %s, and there is none", name)
	}
}
