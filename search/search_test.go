package search

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// marked is a snippet as text, with hits in brackets.
func marked(parts []Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Hit {
			b.WriteString("[" + p.Text + "]")
		} else {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// indexed reports whether an index that holds what Tokens makes of a text finds it
// by the expression of q, as FTS5 does.
func indexed(q Query, user int64, text string) bool {
	have := strings.Split(Tokens(user, text), " ")
	for want := range strings.SplitSeq(q.Expression(user), " AND ") {
		token, prefix := strings.CutSuffix(want, "*")
		token = strings.Trim(token, `"`)
		if !slices.ContainsFunc(have, func(h string) bool { return h == token || prefix && strings.HasPrefix(h, token) }) {
			return false
		}
	}
	return true
}

func TestWhatMatches(t *testing.T) {
	for _, c := range []struct{ query, text, want string }{
		{"秃发", "我秃发怎么办", "我[秃发]怎么办"},
		{"水", "多喝水，热水", "多喝[水]，热[水]"},
		{"⭐", "收藏 ⭐ 谢谢", "收藏 [⭐] 谢谢"},
		{"⭐", "收藏⭐️", "收藏[⭐]️"},
		{"GPT 回答", "GPT 回答", "[GPT] [回答]"},
		{"GPT 回答", "这个回答是 gpt-5 写的", "这个[回答]是 [gpt]-5 写的"},
		{"gpt", "ＧＰＴ 很好", "[ＧＰＴ] 很好"},
		{"水发", "多喝水。发", ""},
		{"工智", "人工智能", "人[工智]能"},
		{"人工智能", "人工智能", "[人工智能]"},
		{"人工智能", "人工、工智、智能", ""},
		{"wor", "Hello World", "Hello [Wor]ld"},
		{"orld", "Hello World", ""},
		{"hello", "HELLO, hello", "[HELLO], [hello]"},
		{"world hello", "Hello World", "[Hello] [World]"},
		{"hello mars", "Hello World", ""},
		{"c", "C is old, cobol older", "[C] is old, cobol older"},
		{"c++", "C++ and C", "[C++] and C"},
		{"c++", "c + +", ""},
		{"foo_bar", "call foo_bar()", "call [foo_bar]()"},
		{"foo_bar", "foo and _bar", ""},
		{"100%", "100% sure", "[100%] sure"},
		{"%", "100% sure_ly", "100[%] sure_ly"},
		{"_", "100% sure_ly", "100% sure[_]ly"},
		{`\o/`, `well \o/ done`, `well [\o/] done`},
		{`"`, `say "x"`, `say ["]x["]`},
		{`a" OR "b`, "a b", ""},
		{"NOT x", "x", ""},
		{"x*", "xyz", ""},
		{"café", "un cafe\u0301 noir", "un [cafe\u0301] noir"},
		{"cafe\u0301", "CAFÉ", "[CAFÉ]"},
		{"привет", "ПРИВЕТ, мир", "[ПРИВЕТ], мир"},
		{"สวัส", "คำว่าสวัสดี", "คำว่า[สวัส]ดี"},
		{"한국", "대한국민", "대[한국]민"},
		{"👩‍👩‍👧", "family 👩‍👩‍👧 photo", "family [👩‍👩‍👧] photo"},
		{"👍", "👍🏽", "[👍]🏽"},
		{"🇩🇪", "in 🇩🇪 here", "in [🇩🇪] here"},
		{"😀", "a 😀", "a [😀]"},
		{"  \t\n", "anything", ""},
		{"", "", ""},
		{"kg", "5 ㎏", "5 [㎏]"},
		{"line two", "line\n\n   two", "[line] [two]"},
		{"abcdefghijklmnopqrstuvwxyz0123", "abcdefghijklmnopqrstuvwxyz0123456789", "[abcdefghijklmnopqrstuvwxyz0123]456789"},
		{"x-r", "the x-ray", "the [x-r]ay"},
	} {
		q := Parse(c.query)
		parts, ok := q.Snippet(c.text)
		if got := marked(parts); ok != (c.want != "") || got != c.want {
			t.Errorf("%q in %q: got %q, want %q", c.query, c.text, got, c.want)
		}
		if ok && !indexed(q, 1, c.text) {
			t.Errorf("%q in %q is not found by %s among %s", c.query, c.text, q.Expression(1), Tokens(1, c.text))
		}
	}
}

func TestTheIndexKeepsUsersApart(t *testing.T) {
	for _, text := range []string{"water", "water " + owner(2), "water" + string(ownerSign) + " 2"} {
		tokens := strings.Split(Tokens(1, text), " ")
		if !slices.Contains(tokens, owner(1)) || slices.Contains(tokens, owner(2)) {
			t.Errorf("%q of user 1 is indexed as %q", text, tokens)
		}
	}
	if e := Parse("water").Expression(2); !strings.HasPrefix(e, `"`+owner(2)+`" AND `) {
		t.Errorf("user 2 looks for %s", e)
	}
}

func TestASnippetShowsTheHitOfALongText(t *testing.T) {
	long := strings.Repeat("lorem ipsum ", 200)
	for _, c := range []struct{ query, text string }{
		{"needle", long + "a needle in\nhay " + long},
		{"针", strings.Repeat("海里", 300) + "一根针" + strings.Repeat("海里", 300)},
		{"needle", long + strings.Repeat("x", 500) + " needle"},
		{"lorem", long},
	} {
		parts, ok := Parse(c.query).Snippet(c.text)
		got := marked(parts)
		if !ok || !strings.Contains(got, "["+c.query+"]") || utf8.RuneCountInString(got) > snippetLength+60 || strings.ContainsAny(got, "\n\t") {
			t.Errorf("%q: %q", c.query, got)
		}
		if !strings.HasPrefix(c.text, "lorem ipsum lorem [") && strings.Index(c.text, c.query) > 100 && !strings.HasPrefix(got, "…") || !strings.HasSuffix(got, "…") && !strings.HasSuffix(c.text, c.query) {
			t.Errorf("it does not say that there is more: %q", got)
		}
	}
}

func TestAQueryOfManyWordsIsCut(t *testing.T) {
	if n := len(Parse(strings.Repeat("a ", 1000)).terms); n != maxTerms {
		t.Errorf("%d words count", n)
	}
}

// Whatever matches is found by the index, and a snippet is of the text.
func FuzzSearch(f *testing.F) {
	for _, seed := range [][2]string{{"秃发", "我秃发怎么办"}, {"GPT 回答", "gpt的回答"}, {"a\u0301", "xa\u0301"}, {"\xff", "a\xffb"}, {"e", "e\u0301"}, {"\u1100", "\u1100\u1161"}, {"ﬁ", "office ﬁ"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, query, text string) {
		if len(query) > 256 || len(text) > 2000 {
			return
		}
		q := Parse(query)
		e := q.Expression(7)
		if strings.Count(e, `"`)%2 != 0 || strings.ContainsRune(e, 0) {
			t.Fatalf("the expression of %q is %q", query, e)
		}
		parts, ok := q.Snippet(text)
		if !ok {
			return
		}
		if !indexed(q, 7, text) {
			t.Fatalf("%q matches %q and is not found by %s among %s", query, text, e, Tokens(7, text))
		}
		hits := 0
		for _, p := range parts {
			if p.Text == "" {
				t.Fatalf("an empty part: %+v", parts)
			}
			if p.Hit {
				hits++
			}
		}
		if hits == 0 {
			t.Fatalf("%q in %q: no hit is marked in %+v", query, text, parts)
		}
		// A text contains itself, as far as a query can be as long.
		if self := Parse(text); len(self.terms) > 0 && len(self.terms) < maxTerms {
			if _, ok := self.Snippet(text); !ok {
				t.Fatalf("%q is not in itself", text)
			}
		}
	})
}

func BenchmarkTokens(b *testing.B) {
	for name, text := range map[string]string{
		"english": strings.Repeat("The quick brown fox jumps over the lazy dog, again and again. ", 66),
		"chinese": strings.Repeat("敏捷的棕色狐狸一次又一次地跳过那只懒惰的狗，直到天黑。", 50),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Tokens(1, text)
			}
		})
	}
}
