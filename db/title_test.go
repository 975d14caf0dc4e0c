package db_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"semel/db"
)

func TestTitlesAreTheFirstWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		" \n\t\n":                "",
		"Hello":                  "Hello",
		"  Two   words \nmore":   "Two words",
		"\n\n## A heading\n\nx":  "A heading",
		"> - [ ] **Buy** milk":   "Buy milk",
		"3. third":               "third",
		"---\nafter the rule":    "after the rule",
		"```go\nfunc main() {\n": "func main() {",
		"see [the docs](https://example.org) and `code`": "see the docs and code",
		"![picture](x.png)":                                  "picture",
		"[[echo 0]]":                                         "[[echo 0]]",
		"2 * 3 * 4 and __init__ and a_b_c":                   "2 * 3 * 4 and __init__ and a_b_c",
		"<img src=x onerror=alert(1)>":                       "<img src=x onerror=alert(1)>",
		"<think>hm, what does he want</think>\nRivers":       "Rivers",
		"<THINKING>a\nb</THINKING>  Rivers":                  "Rivers",
		"<think>nothing else":                                "",
		"#hashtag stays":                                     "#hashtag stays",
		"~~old~~ new":                                        "old new",
		strings.Repeat("word ", 30):                          strings.TrimSpace(strings.Repeat("word ", 12)) + "…",
		strings.Repeat("x", 61):                              strings.Repeat("x", 60) + "…",
		strings.Repeat("水", 60):                              strings.Repeat("水", 60),
		strings.Repeat("水", 61):                              strings.Repeat("水", 60) + "…",
		strings.Repeat("x", 59) + "👩‍👩‍👧 family":             strings.Repeat("x", 59) + "…",
		strings.Repeat("x", 59) + "🇩🇪🇫🇷🇮🇹":                   strings.Repeat("x", 59) + "…",
		strings.Repeat("x", 58) + "🇩🇪🇫🇷🇮🇹":                   strings.Repeat("x", 58) + "🇩🇪" + "…",
		strings.Repeat("x", 59) + "e\u0301e\u0301":           strings.Repeat("x", 59) + "…",
		strings.Repeat("x", 59) + "👍🏽👍🏽":                     strings.Repeat("x", 59) + "…",
		strings.Repeat("x", 58) + "\u1112\u1161\u11ab\u1112": strings.Repeat("x", 58) + "…",
		"e" + strings.Repeat("\u0301", 100):                  "e" + strings.Repeat("\u0301", 59) + "…",
	} {
		if got := db.Title(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzTitle(f *testing.F) {
	f.Add("# <think>x</think> **a** [b](c) `d`")
	f.Fuzz(func(t *testing.T, text string) {
		title := db.Title(text)
		if n := utf8.RuneCountInString(title); n > 61 || strings.ContainsAny(title, "\r\n") || title != strings.TrimSpace(title) {
			t.Errorf("%q: %q", text, title)
		}
		if utf8.ValidString(text) && !utf8.ValidString(title) {
			t.Errorf("%q: %q splits a character", text, title)
		}
	})
}
