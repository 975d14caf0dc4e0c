package llm

import (
	"strings"
	"testing"
)

var thoughts = []struct{ in, text, reasoning string }{
	{"", "", ""},
	{"Hello", "Hello", ""},
	{"<think>Hm.</think>Hello", "Hello", "Hm."},
	{"<think></think>Hello", "Hello", ""},
	{"<think>\nHm.\n</think>\n\nHello", "\n\nHello", "\nHm.\n"},
	{" \r\n\t<think>Hm.</think>Hello", " \r\n\tHello", "Hm."},
	{"<think>cut off", "", "cut off"},
	{"<think>cut off</thi", "", "cut off</thi"},
	{"<thi", "<thi", ""},
	{" \n", " \n", ""},
	{"<thinking>Hm.</thinking>", "<thinking>Hm.</thinking>", ""},
	{"<THINK>Hm.</THINK>", "<THINK>Hm.</THINK>", ""},
	{"a <think>Hm.</think> b", "a <think>Hm.</think> b", ""},
	{"</think>Hello", "</think>Hello", ""},
	{"<think>a</think>b<think>c</think>d", "b<think>c</think>d", "a"},
	{"<think><think>a</think></think>", "</think>", "<think>a"},
	{"<think>a</</think>b", "b", "a</"},
	{"<think>a</think</think>b", "b", "a</think"},
	{"<think>a < b </thinker> c</think>d", "d", "a < b </thinker> c"},
	{"<<think>a</think>", "<<think>a</think>", ""},
	{"<think>想</think>答", "答", "想"},
	{strings.Repeat(" ", maxThinkSpace) + "<think>a</think>b", strings.Repeat(" ", maxThinkSpace) + "b", "a"},
	{strings.Repeat(" ", maxThinkSpace+1) + "<think>a</think>b", strings.Repeat(" ", maxThinkSpace+1) + "<think>a</think>b", ""},
}

// think feeds the parts and returns what came out in all.
func think(parts ...string) (text, reasoning string) {
	var t thinker
	for _, s := range parts {
		p := t.feed(s)
		text, reasoning = text+p.Text, reasoning+p.Reasoning
	}
	p := t.end()
	return text + p.Text, reasoning + p.Reasoning
}

func TestThoughtsAreToldFromTextWhereverTheyAreSplit(t *testing.T) {
	for _, tt := range thoughts {
		check := func(parts ...string) {
			t.Helper()
			if text, reasoning := think(parts...); text != tt.text || reasoning != tt.reasoning {
				t.Fatalf("%q: got text %q, reasoning %q, want %q, %q", parts, text, reasoning, tt.text, tt.reasoning)
			}
		}
		check(tt.in)
		check(strings.Split(tt.in, "")...)
		for i := range len(tt.in) {
			check(tt.in[:i], tt.in[i:])
			for j := i; j < len(tt.in); j++ {
				check(tt.in[:i], tt.in[i:j], tt.in[j:])
			}
		}
	}
}

func TestThoughtsAreHandedOutAsTheyCome(t *testing.T) {
	var th thinker
	for _, step := range []struct {
		feed string
		want Piece
	}{
		{"<think>", Piece{}},
		{"one", Piece{Reasoning: "one"}},
		{" two</", Piece{Reasoning: " two"}},
		{"b>", Piece{Reasoning: "</b>"}},
		{"</think>three", Piece{Text: "three"}},
		{" </think>", Piece{Text: " </think>"}},
	} {
		if got := th.feed(step.feed); got != step.want {
			t.Errorf("after %q: got %+v, want %+v", step.feed, got, step.want)
		}
	}
	if got := th.end(); got != (Piece{}) {
		t.Errorf("at the end: got %+v", got)
	}
}

func TestWhiteSpaceBeforeAThoughtIsNotHeldForEver(t *testing.T) {
	var th thinker
	got := 0
	for range 1000 {
		got += len(th.feed(" ").Text)
		if len(th.held) > maxThinkSpace {
			t.Fatalf("%d bytes are held back", len(th.held))
		}
	}
	if got != 1000 {
		t.Errorf("got %d bytes of 1000", got)
	}
}

// FuzzThinker: however an answer is split, the same comes out, and with the two
// tags it is what went in.
func FuzzThinker(f *testing.F) {
	for _, tt := range thoughts {
		f.Add(tt.in, uint8(1), uint8(7))
	}
	f.Fuzz(func(t *testing.T, in string, first, step uint8) {
		var parts []string
		for rest, n := in, int(first); ; n = int(step)%9 + 1 {
			n = min(n, len(rest))
			parts = append(parts, rest[:n])
			if rest = rest[n:]; rest == "" {
				break
			}
		}
		text, reasoning := think(parts...)
		wholeText, wholeReasoning := think(in)
		if text != wholeText || reasoning != wholeReasoning {
			t.Fatalf("%q: got %q, %q, in one part %q, %q", parts, text, reasoning, wholeText, wholeReasoning)
		}
		space := in[:len(in)-len(strings.TrimLeft(in, " \t\r\n"))]
		opened := len(space) <= maxThinkSpace && strings.HasPrefix(in[len(space):], thinkOpen)
		switch {
		case !opened && (text != in || reasoning != ""):
			t.Fatalf("%q has no thoughts: got %q, %q", in, text, reasoning)
		case opened && !strings.HasPrefix(text, space):
			t.Fatalf("%q: got text %q, want the white space first", in, text)
		case opened:
			open := space + thinkOpen + reasoning
			if closed := open + thinkClose + text[len(space):]; in != closed && (in != open || text != space) {
				t.Fatalf("%q cannot be put together from %q, %q", in, text, reasoning)
			}
		}
	})
}
