package views

import (
	"bytes"
	"regexp"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// What a model writes is hostile until proven otherwise. There are two walls.
// The grammar has no raw HTML at all: "<" is text, so nothing a model writes can
// become a tag of its own, and nothing it writes vanishes either. The finished
// HTML then passes an allow-list that knows only the elements this file writes.
// Sanitising comes last: whoever sanitises before rendering is undone by it.
var (
	markdown = goldmark.New(
		goldmark.WithParser(parser.NewParser(
			parser.WithBlockParsers(blockParsers()...),
			parser.WithInlineParsers(inlineParsers()...),
			parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...),
		)),
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough, extension.Linkify, extension.TaskList,
		),
		goldmark.WithRendererOptions(
			html.WithHardWraps(), // a line break that a model wrote is one it meant
			renderer.WithNodeRenderers(util.Prioritized(ownNodes{}, 1)),
		),
	)
	sanitizer = newSanitizer()
)

// Markdown returns text as HTML that is safe to put into a page: no script, no
// style, no image, no handler; links only to http, https and mailto.
func Markdown(text string) string {
	if out, ok := rendered.get(text); ok {
		return out
	}
	source := []byte(text)
	out := render(source, parse(source))
	rendered.put(text, out)
	return out
}

// A Block is one piece of an answer while it streams: "block number Index now
// looks like HTML". Blocks with a smaller index are final.
type Block struct {
	Index int    `json:"block"`
	HTML  string `json:"html"`
}

// A BlockStream renders a growing text block by block. A block that can no longer
// change is rendered once and its text is forgotten; only the last, open block is
// rendered again as it grows. So a viewer's selection in earlier text survives,
// and a long answer costs as much as its length.
//
// The blocks joined are [Markdown] of the whole text, except that a link
// reference is resolved only inside the block that defines it.
//
// A BlockStream belongs to one goroutine. The zero value is ready for use.
type BlockStream struct {
	open     []byte // the text of the open block, and of nothing before it
	index    int    // its number
	lines    int    // length of the complete lines in open when they were last parsed
	rendered int    // length of open when it was last rendered
	last     string // the HTML then
}

// While an open block is at most eagerBytes long it is rendered at each Write;
// a longer one only when it has grown by a 64th. So the HTML written for one huge
// block (a code fence of thousands of lines) is bounded by 64 times its length
// instead of its square.
const (
	eagerBytes = 4096
	growth     = 64
)

// Write appends text and returns the blocks that changed, in order.
func (b *BlockStream) Write(text string) []Block {
	b.open = append(b.open, text...)
	if len(b.open) > eagerBytes && len(b.open)-b.rendered < len(b.open)/growth {
		return nil
	}
	return b.update()
}

// Close returns the blocks that [BlockStream.Write] still held back.
func (b *BlockStream) Close() []Block { return b.update() }

func (b *BlockStream) update() []Block {
	if len(b.open) == b.rendered {
		return nil
	}
	changed := b.close()
	b.rendered = len(b.open)
	if now := render(b.open, parse(b.open)); now != b.last {
		b.last = now
		changed = append(changed, Block{b.index, now})
	}
	return changed
}

// close renders and forgets the blocks that later text cannot change. Only
// complete lines count: "- a\n*" is two lists until it becomes "- a\n*b*", which
// is one.
func (b *BlockStream) close() []Block {
	lines := bytes.LastIndexByte(b.open, '\n') + 1
	if lines == b.lines {
		return nil
	}
	b.lines = lines
	source := b.open[:lines]
	doc := parse(source)
	cut, until := lastBlock(doc, source)
	if cut == 0 {
		return nil
	}
	var closed []Block
	for n := doc.FirstChild(); n != until; n = n.NextSibling() {
		// The first of them is on screen already, and usually just so.
		if now := render(source, n); now != b.last || n.PreviousSibling() != nil {
			closed = append(closed, Block{b.index, now})
		}
		b.index++
	}
	b.open = append([]byte(nil), b.open[cut:]...)
	b.lines, b.rendered, b.last = lines-cut, 0, ""
	return closed
}

// lastBlock returns where the last top-level block of doc begins in source, and
// that block. When nothing before it is closed it returns 0.
func lastBlock(doc ast.Node, source []byte) (int, ast.Node) {
	n := doc.LastChild()
	for n != nil && n.PreviousSibling() != nil {
		cut := bytes.LastIndexByte(source[:n.Pos()], '\n') + 1
		// goldmark gives a table that began as the end of a paragraph the place of
		// that paragraph, and a later "===" would still make one heading of both.
		if prev := n.PreviousSibling(); prev.Pos() < cut && closesAt(prev, source, cut) {
			return cut, n
		}
		n = n.PreviousSibling()
	}
	return 0, nil
}

// closesAt reports whether block n, followed by another one at cut, can no longer
// take up lines that come later.
func closesAt(n ast.Node, source []byte, cut int) bool {
	switch n.Kind() {
	case ast.KindHeading, ast.KindThematicBreak, ast.KindFencedCodeBlock:
		return true
	}
	before := bytes.TrimRight(source[:cut], " \t\r")
	before = bytes.TrimSuffix(before, []byte("\n"))
	before = bytes.TrimRight(before, " \t\r")
	return len(before) == 0 || before[len(before)-1] == '\n'
}

func parse(source []byte) ast.Node { return markdown.Parser().Parse(text.NewReader(source)) }

func render(source []byte, n ast.Node) string {
	var out bytes.Buffer
	if err := markdown.Renderer().Render(&out, source, n); err != nil {
		panic(err) // a bytes.Buffer does not fail, and neither do the renderers
	}
	return sanitizer.SanitizeReader(&out).String()
}

func newSanitizer() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "em", "del", "blockquote",
		"ul", "ol", "li", "pre", "code", "table", "thead", "tbody", "tr", "th", "td")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^(lines|h-(note|word|type|number|text|name|del|ins))$`)).OnElements("span")
	p.AllowAttrs("data-lang").Matching(languageName).OnElements("div")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).OnElements("th", "td")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^(scroll|code)$`)).OnElements("div")
	p.AllowAttrs("tabindex").Matching(regexp.MustCompile(`^0$`)).OnElements("div", "pre")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto")
	p.RequireParseableURLs(true)
	p.AllowRelativeURLs(false)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true)
	return p
}

// ownNodes renders what should look other than goldmark has it.
type ownNodes struct{}

func (ownNodes) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, renderHeading)
	r.Register(ast.KindImage, renderImage)
	r.Register(ast.KindFencedCodeBlock, renderCode)
	r.Register(ast.KindCodeBlock, renderCode)
	r.Register(extast.KindTable, renderTable)
	r.Register(extast.KindTaskCheckBox, renderTask)
}

// An answer's headings hang below those of the page: its first level is h3.
func renderHeading(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	level := string(rune('0' + min(n.(*ast.Heading).Level+2, 6)))
	if entering {
		_, _ = w.WriteString("<h" + level + ">")
	} else {
		_, _ = w.WriteString("</h" + level + ">\n")
	}
	return ast.WalkContinue, nil
}

// An image is a request to a server that the model chose, sent without a click:
// the classic way to carry a conversation out. It becomes a link.
func renderImage(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	for p := n.Parent(); p != nil; p = p.Parent() {
		if p.Kind() == ast.KindLink {
			return ast.WalkContinue, nil
		}
	}
	if entering {
		_, _ = w.WriteString(`<a href="`)
		_, _ = w.Write(util.EscapeHTML(util.URLEscape(n.(*ast.Image).Destination, true)))
		_, _ = w.WriteString(`">`)
	} else {
		_, _ = w.WriteString("</a>")
	}
	return ast.WalkContinue, nil
}

// Wide code scrolls by itself, so it must take the focus of a keyboard. The box
// around it has the name of its language, and room for what scripts put there.
func renderCode(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		_, _ = w.WriteString("</code></pre></div>\n")
		return ast.WalkContinue, nil
	}
	language := ""
	if fenced, ok := n.(*ast.FencedCodeBlock); ok {
		language = string(fenced.Language(source))
	}
	_, _ = w.WriteString(`<div class="code"`)
	if languageName.MatchString(language) {
		_, _ = w.WriteString(` data-lang="` + language + `"`)
	}
	_, _ = w.WriteString(`><pre tabindex="0"><code>`)
	if language != "" && fenceClosed(n, source) {
		if coloured, ok := highlight(language, string(n.Lines().Value(source))); ok {
			_, _ = w.WriteString(coloured)
			return ast.WalkContinue, nil
		}
	}
	writeCode(w, n.Lines(), source)
	return ast.WalkContinue, nil
}

// codeLines is how many lines of long code stand in one box: browsers lay out such a
// box as a whole, at each line that comes and when it is opened.
const codeLines = 100

func writeCode(w util.BufWriter, lines *text.Segments, source []byte) {
	long := lines.Len() > codeLines
	for i := range lines.Len() {
		if long && i%codeLines == 0 {
			if i > 0 {
				_, _ = w.WriteString("</span>")
			}
			_, _ = w.WriteString(`<span class="lines">`)
		}
		line := lines.At(i)
		line.ForceNewline = false // a last line that is still growing has none
		html.DefaultWriter.RawWrite(w, line.Value(source))
	}
	if long {
		_, _ = w.WriteString("</span>")
	}
}

// languageName is what a fence may call its language.
var languageName = regexp.MustCompile(`^[\w+#.-]{1,32}$`)

// fenceClosed reports whether the line after the code is a fence: until then it
// grows, and its colours would change with every word.
func fenceClosed(n ast.Node, source []byte) bool {
	lines := n.Lines()
	if lines.Len() == 0 {
		return false
	}
	next, _, _ := bytes.Cut(source[lines.At(lines.Len()-1).Stop:], []byte("\n"))
	next = bytes.TrimLeft(next, " \t>")
	return bytes.HasPrefix(next, []byte("```")) || bytes.HasPrefix(next, []byte("~~~"))
}

func renderTable(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString("<div class=\"scroll\" tabindex=\"0\"><table>\n")
	} else {
		_, _ = w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}

// A check box that nobody can tick is a control without a name to a screen
// reader; a character says the same.
func renderTask(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		if n.(*extast.TaskCheckBox).IsChecked {
			_, _ = w.WriteString("☑ ")
		} else {
			_, _ = w.WriteString("☐ ")
		}
	}
	return ast.WalkContinue, nil
}

// What goldmark does in the square of its input, a model could be made to write:
// lists in lists in lists, and links that never end. Both stop at a number that
// no honest text reaches; what is beyond is text.
const (
	maxDepth = 64   // lists and quotes inside each other
	maxLinks = 1000 // in one text
)

func blockParsers() (list []util.PrioritizedValue) {
	for _, v := range parser.DefaultBlockParsers() {
		switch v.Value {
		case parser.NewHTMLBlockParser():
			continue
		case parser.NewListParser(), parser.NewBlockquoteParser():
			v.Value = shallow{v.Value.(parser.BlockParser)}
		}
		list = append(list, v)
	}
	return list
}

func inlineParsers() (list []util.PrioritizedValue) {
	for _, v := range parser.DefaultInlineParsers() {
		switch v.Value {
		case parser.NewRawHTMLParser():
			continue
		case parser.NewLinkParser():
			v.Value = counted{v.Value.(linkParser)}
		}
		list = append(list, v)
	}
	return list
}

// shallow opens no block that lies too deep.
type shallow struct{ parser.BlockParser }

func (p shallow) Open(parent ast.Node, r text.Reader, pc parser.Context) (ast.Node, parser.State) {
	depth := 0
	for n := parent; n != nil; n = n.Parent() {
		depth++
	}
	if depth > 2*maxDepth { // a list and its item are two
		return nil, parser.NoChildren
	}
	return p.BlockParser.Open(parent, r, pc)
}

type linkParser interface {
	parser.InlineParser
	parser.CloseBlocker
}

// counted closes no more links than there may be.
type counted struct{ linkParser }

var linkCount = parser.NewContextKey()

func (p counted) Parse(parent ast.Node, r text.Reader, pc parser.Context) ast.Node {
	if r.Peek() == ']' {
		n, _ := pc.Get(linkCount).(int)
		if n == maxLinks {
			return nil
		}
		pc.Set(linkCount, n+1)
	}
	return p.linkParser.Parse(parent, r, pc)
}
