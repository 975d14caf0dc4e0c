package llm

import "strings"

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"

	// maxThinkSpace bounds the white space in which an opening tag is waited for.
	maxThinkSpace = 64
)

// A thinker tells the thoughts at the start of an answer from its text, for models
// whose server leaves them between <think> and </think> in the text
// (https://docs.bigmodel.cn says so of GLM-Z1; others do as their template does).
// Tags count only there: the first one before everything but white space, the other
// one behind it. All else is text, and no byte but those of the two tags is lost,
// moved or given twice. The zero value is ready.
type thinker struct {
	state thinkState
	held  string // what may become a tag
}

type thinkState int

const (
	thinkUndecided thinkState = iota // nothing but white space and the start of a tag
	thinkInside
	thinkDone
)

// feed takes the next part of an answer and returns what is decided of it.
func (t *thinker) feed(s string) (p Piece) {
	s, t.held = t.held+s, ""
	if t.state == thinkUndecided {
		rest := strings.TrimLeft(s, " \t\r\n")
		space := s[:len(s)-len(rest)]
		switch {
		case len(space) > maxThinkSpace:
			t.state = thinkDone
		case strings.HasPrefix(rest, thinkOpen):
			t.state = thinkInside
			p.Text, s = space, rest[len(thinkOpen):]
		case strings.HasPrefix(thinkOpen, rest):
			t.held = s
			return p
		default:
			t.state = thinkDone
		}
	}
	if t.state == thinkInside {
		thought, text, closed := strings.Cut(s, thinkClose)
		if !closed {
			n := endsLike(s, thinkClose)
			p.Reasoning, t.held = s[:len(s)-n], s[len(s)-n:]
			return p
		}
		t.state = thinkDone
		p.Reasoning, s = thought, text
	}
	p.Text += s
	return p
}

// end returns what was held back: nothing more comes, so it is no tag. What is fed
// later is text.
func (t *thinker) end() (p Piece) {
	if t.state == thinkInside {
		p.Reasoning = t.held
	} else {
		p.Text = t.held
	}
	t.state, t.held = thinkDone, ""
	return p
}

// endsLike returns the length of the longest end of s that tag, which s does not
// contain, begins with.
func endsLike(s, tag string) int {
	for n := min(len(s), len(tag)-1); n > 0; n-- {
		if strings.HasSuffix(s, tag[:n]) {
			return n
		}
	}
	return 0
}
