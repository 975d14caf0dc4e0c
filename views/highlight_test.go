package views

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

func TestCodeHasColoursOnceItsFenceIsClosed(t *testing.T) {
	const open = "```go\n// a\nfunc f() string { return \"<b>\" }\n"
	if got := Markdown(open); strings.Contains(got, "<span") || !strings.Contains(got, `data-lang="go"`) {
		t.Errorf("an open fence: %s", got)
	}
	want := `<div class="code" data-lang="go"><pre tabindex="0"><code><span class="h-note">// a</span>` + "\n" +
		`<span class="h-word">func</span> <span class="h-name">f</span>() <span class="h-type">string</span> { <span class="h-word">return</span> ` +
		`<span class="h-text">&#34;&lt;b&gt;&#34;</span> }` + "\n</code></pre></div>\n"
	if got := Markdown(open + "```\n"); got != want {
		t.Errorf("a closed fence\n got %s\nwant %s", got, want)
	}
	if got := Markdown("> ```go\n> func f()\n> ```\n"); !strings.Contains(got, `<span class="h-word">func</span>`) {
		t.Errorf("a fence in a quote: %s", got)
	}
}

func TestEveryLexerWorks(t *testing.T) {
	const code = "# a // b /* c */\nclass A { int x = 1; } def f(): return \"text\" -- d\nSELECT 1;\n[a]\nb: {\"c\": true}\n<a href=\"b\">c</a>\n"
	for name, l := range lexers() {
		out, ok := colour(l, code)
		if !ok {
			t.Errorf("%s gave up", name)
			continue
		}
		if got := textOf(parse1(t, out)); got != code {
			t.Errorf("%s changed the text to %q", name, got)
		}
	}
	for _, name := range strings.Fields("go bash sh shell python py javascript js jsx typescript ts tsx java c cpp c++ c# csharp rust rs ruby rb sql json yaml yml toml html css diff dockerfile kotlin swift lua php ini make xml powershell") {
		if lexers()[name] == nil {
			t.Errorf("no lexer is called %s", name)
		}
	}
}

func parse1(t *testing.T, s string) *html.Node {
	t.Helper()
	n, err := html.Parse(strings.NewReader("<pre>" + s + "</pre>"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What would take long, or is long, stays as it is.
func TestHighlightingHasAnEnd(t *testing.T) {
	if out, ok := highlight("go", strings.Repeat("x", highlightBytes+1)); ok {
		t.Errorf("%d bytes were highlighted", len(out))
	}
	for _, code := range []string{
		strings.Repeat("/*", 8000), strings.Repeat(`"\`, 8000), strings.Repeat("<a ", 5000), strings.Repeat("$(", 8000),
	} {
		for _, name := range []string{"go", "bash", "javascript", "python", "rust", "html", "sql"} {
			started := time.Now()
			colour(lexers()[name], code)
			if took := time.Since(started); took > time.Minute { // without the bound it is hours
				t.Errorf("%s took %v for %.10q…", name, took, code)
			}
		}
	}
}

// What took too long once is plain for whoever sees it next: a stream and the page
// after it must not differ.
func TestColoursAreTheSameForAll(t *testing.T) {
	const code = "func same() {}\n"
	coloured.put("go\n"+code, "")
	if out, ok := highlight("go", code); ok {
		t.Errorf("it is %q now", out)
	}
}

// A browser lays out a box as a whole: long code is many of them.
func TestLongCodeStandsInBoxes(t *testing.T) {
	text := strings.Repeat("a < b\n", 2*codeLines+1)
	got := Markdown("```\n" + text + "```\n")
	if n := strings.Count(got, `<span class="lines">`); n != 3 {
		t.Errorf("%d boxes, want 3", n)
	}
	if code := textOf(parse1(t, got)); strings.TrimSpace(code) != strings.TrimSpace(text) {
		t.Error("the code has changed")
	}
	if got := Markdown("```\n" + strings.Repeat("a\n", codeLines) + "```\n"); strings.Contains(got, "lines") {
		t.Error("short code is in boxes")
	}
}

func FuzzHighlight(f *testing.F) {
	for _, s := range texts {
		f.Add("go", s)
		f.Add("python", s)
		f.Add("bash", s)
	}
	f.Fuzz(func(t *testing.T, language, code string) {
		if out, ok := highlight(language, code); ok && !strings.ContainsAny(code, "\r\x00") {
			if got := html.UnescapeString(strings.NewReplacer("</span>", "").Replace(stripOpen(out))); got != code {
				t.Errorf("%q became %q", code, got)
			}
		}
	})
}

// stripOpen removes our own opening tags.
func stripOpen(s string) string {
	for _, c := range strings.Fields("note word type number text name del ins") {
		s = strings.ReplaceAll(s, `<span class="h-`+c+`">`, "")
	}
	return s
}

func BenchmarkHighlight(b *testing.B) {
	code := strings.Repeat("func f(a int) string { return \"text\" } // a note\n", 300)
	for b.Loop() {
		if _, ok := colour(lexers()["go"], code); !ok {
			b.Fatal("it gave up")
		}
	}
	b.SetBytes(int64(len(code)))
}
