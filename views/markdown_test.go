package views

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

func TestMarkdownRenders(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"paragraphs and emphasis", "a *b* **c** ~~d~~\n\ne", "<p>a <em>b</em> <strong>c</strong> <del>d</del></p>\n<p>e</p>\n"},
		{"line breaks stay", "a\nb", "<p>a<br>\nb</p>\n"},
		{"headings hang below the page's", "# a\n#### b\n", "<h3>a</h3>\n<h6>b</h6>\n"},
		{"a list", "3. a\n4. b", "<ol start=\"3\">\n<li>a</li>\n<li>b</li>\n</ol>\n"},
		{"a task list", "- [x] a\n- [ ] b", "<ul>\n<li>☑ a</li>\n<li>☐ b</li>\n</ul>\n"},
		{"code", "```go\na < b\n```", "<div class=\"code\" data-lang=\"go\"><pre tabindex=\"0\"><code>a &lt; b\n</code></pre></div>\n"},
		{"a table", "|a|b|\n|-|-:|\n|1|2|", "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead>\n<tr>\n<th>a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td align=\"right\">2</td>\n</tr>\n</tbody>\n</table></div>\n"},
		{"a link", "[a](https://b.example/c?d=e&f)", "<p><a href=\"https://b.example/c?d=e&amp;f\" rel=\"nofollow noreferrer noopener\" target=\"_blank\">a</a></p>\n"},
		{"a bare link", "https://b.example", "<p><a href=\"https://b.example\" rel=\"nofollow noreferrer noopener\" target=\"_blank\">https://b.example</a></p>\n"},
		{"an image is a link", "![a](https://b.example/c.png)", "<p><a href=\"https://b.example/c.png\" rel=\"nofollow noreferrer noopener\" target=\"_blank\">a</a></p>\n"},
		{"an image in a link is its text", "[![a](https://b.example/c.png)](https://d.example)", "<p><a href=\"https://d.example\" rel=\"nofollow noreferrer noopener\" target=\"_blank\">a</a></p>\n"},
		{"currency is text", "月成本 **$148+ → $19**（省 87%，年省 ~$1,550）；再降到 $15.4/月", "<p>月成本 <strong>$148+ → $19</strong>（省 87%，年省 ~$1,550）；再降到 $15.4/月</p>\n"},
		{"HTML is text", "<b>a</b> <img src=x onerror=alert(1)>", "<p>&lt;b&gt;a&lt;/b&gt; &lt;img src=x onerror=alert(1)&gt;</p>\n"},
		{"a block of HTML is text", "<script>\nalert(1)\n</script>", "<p>&lt;script&gt;<br>\nalert(1)<br>\n&lt;/script&gt;</p>\n"},
		{"a script link is text", "[a](javascript:alert(1)) [b](data:text/html,c) [d](/e)", "<p>a b d</p>\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Markdown(test.in); got != test.want {
				t.Errorf("Markdown(%q)\n got %q\nwant %q", test.in, got, test.want)
			}
		})
	}
}

// FuzzMarkdown asks a real HTML parser what a browser would see.
func FuzzMarkdown(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	for _, s := range texts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := Markdown(s)
		nodes, err := html.ParseFragment(strings.NewReader(out), &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div})
		if err != nil {
			t.Fatalf("parse %q: %v", out, err)
		}
		for _, n := range nodes {
			for n := range everyNode(n) {
				if why := forbidden(n); why != "" {
					t.Errorf("%s in the HTML of %q: %q", why, s, out)
				}
			}
		}
	})
}

func everyNode(root *html.Node) func(func(*html.Node) bool) {
	return func(yield func(*html.Node) bool) {
		if !yield(root) {
			return
		}
		for n := range root.Descendants() {
			if !yield(n) {
				return
			}
		}
	}
}

func forbidden(n *html.Node) string {
	switch n.Type {
	case html.TextNode:
		return ""
	case html.ElementNode:
	default:
		return "a node that is neither text nor element"
	}
	if !slices.Contains(strings.Fields("p br hr h3 h4 h5 h6 strong em del blockquote ul ol li pre code table thead tbody tr th td div a span"), n.Data) || n.Namespace != "" {
		return "element " + n.Data
	}
	for _, a := range n.Attr {
		switch a.Key {
		case "rel", "target", "start", "align", "tabindex", "data-lang":
		case "class":
			if a.Val != "scroll" && a.Val != "code" && a.Val != "lines" && !strings.HasPrefix(a.Val, "h-") {
				return "class " + a.Val
			}
		case "href":
			// Browsers drop these characters before they look for the scheme.
			u, err := url.Parse(strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(strings.TrimFunc(a.Val, func(r rune) bool { return r <= ' ' })))
			if err != nil {
				return "unreadable link " + a.Val
			}
			if !slices.Contains([]string{"http", "https", "mailto"}, u.Scheme) {
				return "link " + a.Val
			}
		default:
			return "attribute " + a.Key
		}
	}
	return ""
}

// FuzzBlockStream cuts a text anywhere and expects the blocks to be what the
// whole text renders to. Link references are left out: a stream cannot know what
// a later line will define.
func FuzzBlockStream(f *testing.F) {
	for _, s := range texts {
		f.Add(s, uint64(1))
		f.Add(s, uint64(0x9E3779B97F4A7C15))
	}
	for _, s := range hostile {
		f.Add(s, uint64(7))
	}
	f.Fuzz(func(t *testing.T, s string, cuts uint64) {
		if strings.Contains(s, "]:") {
			t.Skip("a link reference")
		}
		checkStream(t, s, pieces(s, cuts))
	})
}

func TestBlockStreamByteByByte(t *testing.T) {
	for _, s := range texts {
		checkStream(t, s, strings.Split(s, ""))
		checkStream(t, s, []string{s})
		checkStream(t, s, strings.SplitAfter(s, "\n"))
	}
}

func checkStream(t *testing.T, s string, pieces []string) {
	t.Helper()
	var b BlockStream
	var shown []string
	final := 0
	show := func(changed []Block) {
		for _, c := range changed {
			if c.Index < final {
				t.Fatalf("block %d of %q changed after a later one began", c.Index, s)
			}
			if c.Index > len(shown) {
				t.Fatalf("block %d of %q came when only %d were shown", c.Index, s, len(shown))
			}
			final = c.Index
			shown = append(shown[:c.Index], c.HTML)
		}
	}
	for _, p := range pieces {
		show(b.Write(p))
	}
	show(b.Close())
	if got, want := strings.Join(shown, ""), Markdown(s); got != want {
		t.Fatalf("blocks of %q in pieces %q\n got %q\nwant %q", s, pieces, got, want)
	}
}

// pieces cuts s after each byte whose number has its bit set in a sequence that
// seed begins.
func pieces(s string, seed uint64) []string {
	var list []string
	from := 0
	for i := range len(s) {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		if seed&3 == 0 {
			list = append(list, s[from:i])
			from = i
		}
	}
	return append(list, s[from:])
}

func TestALongAnswerCostsItsLength(t *testing.T) {
	for _, test := range []struct{ name, text string }{
		{"many paragraphs", strings.Repeat("Some words in a paragraph of an answer.\n\n", 3000)},
		{"one code fence", "```go\n" + strings.Repeat("\tfmt.Println(\"a line of code\")\n", 3000) + "```\n"},
		{"one list", strings.Repeat("- an item of a list that goes on\n", 600)},
		{"one line", strings.Repeat("words without an end ", 2000)},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b BlockStream
			sent, blocks := 0, map[int]string{}
			for i := 0; i < len(test.text); i += 40 {
				for _, c := range b.Write(test.text[i:min(i+40, len(test.text))]) {
					sent += len(c.HTML)
					blocks[c.Index] = c.HTML
				}
			}
			if limit := 2 * growth * len(test.text); sent > limit {
				t.Errorf("wrote %d bytes of HTML for %d bytes of text, want at most %d", sent, len(test.text), limit)
			}
		})
	}
}

func BenchmarkBlockStream(b *testing.B) {
	text := strings.Repeat("## A heading\n\nSome *words* in a paragraph of an answer, with `code`.\n\n- a\n- b\n- c\n\n```go\nfunc main() {}\n```\n\n", 40)
	for b.Loop() {
		var s BlockStream
		for i := 0; i < len(text); i += 16 {
			s.Write(text[i:min(i+16, len(text))])
		}
	}
	b.SetBytes(int64(len(text)))
}

var texts = []string{
	"",
	"hello",
	"# Title\n\nA paragraph with *emphasis*, `code` and https://example.com.\n\n- one\n- two\n\n  still two\n- three\n\nAfter.\n",
	"Here:\n- a\n- b\n1. c\n2. d\n\n> quote\nlazy\n\n> another\n\n---\n***\ntext\n===\nmore\n---\n",
	"| a | b |\n|---|--:|\n| 1 | 2 |\n| 3 | 4 |\n\nbetween\n| a |\n|---|\n| x |\n===\n",
	"```go\nfunc main() {\n\n}\n```\nright after\n\n~~~\nopen fence\n\n# no heading\n",
	"    indented\n\n    code\n\nend\n\n\n\n- a\n*b*\n- c\n*\n* * *\n",
	"para\n# heading\npara\n```\nx\n```\n- l\n# h\n\n1) a\n2) b\n\n  - n\n\n    deep\n\n\tcode?\n",
	"中文段落，**加粗**。\n第二行\n\n1. 第一\n2. 第二\n\n| 甲 | 乙 |\n|:-:|---|\n| 1 | 2 |\n\n```\n代码\n```\n",
	"a\r\nb\r\n\r\n- c\r\n- d\r\n\r\ne\r\n",
	"- [x] done\n- [ ] open\n\n![img](https://example.com/a.png)\n\n<details>\n<summary>x</summary>\n\ntext\n\n</details>\n",
}

var hostile = []string{
	`<img src=x onerror=alert(1)>`, `<svg/onload=alert(1)>`, `[x](javascript:alert(1))`, `[x](JaVaScRiPt:alert(1))`,
	"[x](java\tscript:alert(1))", `[x](&#106;avascript:alert(1))`, `[x](data:text/html;base64,PHNjcmlwdD4=)`,
	`<javascript:alert(1)>`, `![x](javascript:alert(1))`, `![x](data:image/svg+xml,<svg onload=alert(1)>)`,
	`<iframe srcdoc="<script>alert(1)</script>">`, "```\"onmouseover=alert(1)\n```", "```js\" style=\"x\n```",
	`[a](https://b "onclick=alert(1)")`, `<a href="https://x" style="position:fixed">x</a>`, "<!--\n-->", `<!-- a --><script>`,
	`[x](vbscript:msgbox(1))`, `[x](//evil.example)`, `[x](https://a.example" onmouseover="alert(1))`, `&lt;script&gt;alert(1)&lt;/script&gt;`,
	"| <script> |\n|---|\n| <img onerror=x> |", `<math><mtext><table><mglyph><style><!--</style><img title="--><img src=1 onerror=alert(1)>">`,
	"[![a](javascript:b)](javascript:c)", "\x00<script>", "[x]( javascript:alert(1))",
}

// Beyond these numbers goldmark works in the square of its input.
func TestNestingAndLinksHaveAnEnd(t *testing.T) {
	for _, test := range []struct {
		name, in, element string
		most              int
	}{
		{"quotes", strings.Repeat("> ", 5000) + "a", "<blockquote>", 2*maxDepth + 2},
		{"lists", strings.Repeat("- ", 5000) + "a", "<ul>", 2*maxDepth + 2},
		{"links", strings.Repeat("[a](https://b.example) ", 2*maxLinks), "<a ", maxLinks},
		{"images", strings.Repeat("![a](https://b.example) ", 2*maxLinks), "<a ", maxLinks},
	} {
		t.Run(test.name, func(t *testing.T) {
			if n := strings.Count(Markdown(test.in), test.element); n > test.most || n < test.most/3 {
				t.Errorf("%d times %s, want at most %d", n, test.element, test.most)
			}
		})
	}
}
