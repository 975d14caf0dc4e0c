package views

import (
	"embed"
	"html"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/chroma/v2"
)

// Code is coloured here and not in browsers, so that a page needs no script for
// it and a browser no time. Only what is worth it: a lexer works with regular
// expressions on text that a model wrote, so it may look at so much, for so long,
// and only once the fence around the code is closed.
const (
	highlightBytes = 16 << 10
	highlightTime  = time.Second // honest code takes a twentieth of it, on a machine with time
)

// lexerFiles are the languages that people ask models about, from chroma (its
// licence is beside them). All of chroma's would cost 2.5 MB more and 50 ms at each
// start.
//
//go:embed lexers/*.xml
var lexerFiles embed.FS

// lexers has a lexer for each name a fence may carry.
var lexers = sync.OnceValue(func() map[string]chroma.Lexer {
	registry := chroma.NewLexerRegistry() // some look others up in it
	list, err := lexerFiles.ReadDir("lexers")
	if err != nil {
		panic(err)
	}
	names := map[string]chroma.Lexer{}
	add := func(l chroma.Lexer) {
		registry.Register(l)
		c := l.Config()
		for _, name := range append(c.Aliases, strings.ToLower(c.Name)) {
			names[name] = l
		}
	}
	for _, f := range list {
		add(chroma.MustNewXMLLexer(lexerFiles, "lexers/"+f.Name()))
	}
	add(chroma.MustNewLexer(&chroma.Config{Name: "Go", Aliases: []string{"go", "golang"}}, goRules))
	for name, as := range map[string]string{"jsx": "javascript", "jsonc": "json", "shell": "bash", "console": "bash", "dockerfile": "docker", "svg": "xml", "yml": "yaml"} {
		if names[name] == nil {
			names[name] = names[as]
		}
	}
	return names
})

// coloured remembers what came of code, also that it took too long: all who see it
// soon see the same, and what is slow is slow once.
var coloured keep

// highlight returns code as HTML in which words have the colours of their kind,
// and false where it stays as it is.
func highlight(language, code string) (string, bool) {
	if len(code) > highlightBytes {
		return "", false
	}
	lexer := lexers()[strings.ToLower(language)]
	if lexer == nil {
		return "", false
	}
	key := language + "\n" + code
	out, known := coloured.get(key)
	if !known {
		out, _ = colour(lexer, code)
		coloured.put(key, out)
	}
	return out, out != ""
}

func colour(lexer chroma.Lexer, code string) (out string, ok bool) {
	defer func() {
		if recover() != nil { // lexers panic on their own mistakes
			out, ok = "", false
		}
	}()
	next, err := lexer.Tokenise(&chroma.TokeniseOptions{State: "root"}, code)
	if err != nil {
		return "", false
	}
	var b strings.Builder
	read, class := 0, ""
	until := time.Now().Add(highlightTime)
	for t := next(); t != chroma.EOF; t = next() {
		if time.Now().After(until) || !strings.HasPrefix(code[read:], t.Value) {
			return "", false // nothing may be lost or added, and nothing may take for ever
		}
		read += len(t.Value)
		if c := classOf(t.Type); c != class {
			if class != "" {
				b.WriteString("</span>")
			}
			if class = c; c != "" {
				b.WriteString(`<span class="` + c + `">`)
			}
		}
		b.WriteString(html.EscapeString(t.Value))
	}
	if class != "" {
		b.WriteString("</span>")
	}
	return b.String(), read == len(code)
}

// classOf is the class of a kind of word in app.css, "" for plain text.
func classOf(t chroma.TokenType) string {
	switch {
	case t == chroma.GenericDeleted:
		return "h-del"
	case t == chroma.GenericInserted:
		return "h-ins"
	case t == chroma.GenericHeading || t == chroma.GenericSubheading:
		return "h-word"
	case t == chroma.CommentPreproc, t == chroma.CommentPreprocFile:
		return "h-word"
	case t.InCategory(chroma.Comment):
		return "h-note"
	case t == chroma.KeywordType, t == chroma.NameClass, t == chroma.NameTag, t == chroma.NameBuiltinPseudo:
		return "h-type"
	case t == chroma.KeywordConstant, t.InSubCategory(chroma.LiteralNumber):
		return "h-number"
	case t.InCategory(chroma.Keyword), t == chroma.OperatorWord:
		return "h-word"
	case t.InSubCategory(chroma.LiteralString), t == chroma.LiteralDate:
		return "h-text"
	case t == chroma.NameFunction, t == chroma.NameFunctionMagic, t == chroma.NameBuiltin, t == chroma.NameAttribute, t == chroma.NameDecorator:
		return "h-name"
	}
	return ""
}

// goRules are Go: chroma writes it in code, and importing that brings all others.
func goRules() chroma.Rules {
	rule := func(pattern string, t chroma.TokenType) chroma.Rule { return chroma.Rule{Pattern: pattern, Type: t} }
	return chroma.Rules{"root": {
		rule(`\s+`, chroma.TextWhitespace),
		rule(`//[^\n]*`, chroma.CommentSingle),
		rule(`/\*(?:[^*]|\*(?!/))*\*/`, chroma.CommentMultiline),
		rule(`(?:true|false|iota|nil)\b`, chroma.KeywordConstant),
		rule(`(?:break|case|chan|const|continue|default|defer|else|fallthrough|for|func|go|goto|if|import|interface|map|package|range|return|select|struct|switch|type|var)\b`, chroma.Keyword),
		rule(`(?:any|bool|byte|comparable|complex64|complex128|error|float32|float64|u?int(?:8|16|32|64|ptr)?|rune|string)\b`, chroma.KeywordType),
		rule("`[^`]*`", chroma.LiteralString),
		rule(`"(?:\\.|[^"\\\n])*"`, chroma.LiteralString),
		rule(`'(?:\\[^\n]{1,9}?|[^'\\\n])'`, chroma.LiteralStringChar),
		rule(`\.?\d(?:[eEpP][+-]|[\w.])*`, chroma.LiteralNumber),
		rule(`[^\W\d]\w*(?=\()`, chroma.NameFunction),
		rule(`[^\W\d]\w*`, chroma.NameOther),
		rule(`[^\w\s]`, chroma.Punctuation),
	}}
}
