package db

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"semel/chat"
)

// longestTitle is how many characters an automatic title has at the most.
const longestTitle = 60

// Title returns the title of a conversation that begins with text: the words of its
// first line that has any, without the marks of Markdown and without what a model
// thought, cut between words where it is long. It is "" when there are no words.
func Title(text string) string {
	if strings.Contains(text, "<") {
		text = thought.ReplaceAllString(text, "")
	}
	plain := ""
	fenced := false
	for line := range strings.Lines(text) {
		if start := strings.TrimLeftFunc(line, unicode.IsSpace); strings.HasPrefix(start, "```") || strings.HasPrefix(start, "~~~") {
			fenced = !fenced
			continue
		}
		if fenced {
			line = strings.Join(strings.Fields(line), " ")
		} else {
			line = withoutMarks(line)
		}
		if line != "" {
			plain = line
			break
		}
	}
	return shorten(plain, longestTitle)
}

var (
	thought = regexp.MustCompile(`(?is)<(think|thinking)>.*?(</(think|thinking)>|$)`)
	rule    = regexp.MustCompile(`^\s*([-*_=]\s*){3,}$`)
	opening = regexp.MustCompile(`^\s*(#{1,6}\s+|>\s*|[-*+]\s+(\[[ xX]\]\s+)?|\d{1,3}[.)]\s+)+`)
	link    = regexp.MustCompile(`!?\[([^\[\]]+)\]\([^()\s]*\)`)
	strong  = regexp.MustCompile(`\*{2,3}(\S|\S.*?\S)\*{2,3}|~~(\S|\S.*?\S)~~`)
	literal = regexp.MustCompile("`+([^`]+)`+")
)

// withoutMarks returns the words of a line of Markdown. Every question passes here, and
// most have no marks: an expression is tried only where what it needs is there.
func withoutMarks(line string) string {
	line = strings.Join(strings.Fields(line), " ")
	if line == "" {
		return ""
	}
	if strings.IndexByte("-*_=#>+0123456789", line[0]) >= 0 {
		if rule.MatchString(line) {
			return ""
		}
		line = opening.ReplaceAllString(line+" ", "")
	}
	if strings.Contains(line, "](") {
		line = link.ReplaceAllString(line, "$1")
	}
	if strings.Contains(line, "`") {
		line = literal.ReplaceAllString(line, "$1")
	}
	if strings.Contains(line, "**") || strings.Contains(line, "~~") {
		line = strong.ReplaceAllString(line, "$1$2")
	}
	return strings.Join(strings.Fields(line), " ")
}

// shorten cuts a line after n characters at the most: between words where there are
// some, never inside of what is seen as one character.
func shorten(line string, n int) string {
	if utf8.RuneCountInString(line) <= n {
		return line
	}
	cut, words, count := 0, 0, 0
	var before rune
	for i, r := range line {
		if count > n {
			break
		}
		if i > 0 && !joined(before, r, line[:i]) {
			cut = i
			if r == ' ' {
				words = i
			}
		}
		before = r
		count++
	}
	if words > cut/2 {
		cut = words
	}
	if cut == 0 { // it is all one character
		cut = len(string([]rune(line)[:n]))
	}
	return strings.TrimRight(line[:cut], " ") + "…"
}

// joined reports whether r is seen as one character with what stands before it:
// marks, joined emoji, the halves of flags, syllables of Hangul.
func joined(before, r rune, head string) bool {
	switch {
	case unicode.IsMark(r), unicode.Is(unicode.Variation_Selector, r), r == 0x200D, before == 0x200D:
		return true
	case 0x1F3FB <= r && r <= 0x1F3FF: // skin
		return true
	case flagHalf(r) && flagHalf(before):
		n := 0
		for head != "" {
			last, size := utf8.DecodeLastRuneInString(head)
			if !flagHalf(last) {
				break
			}
			n, head = n+1, head[:len(head)-size]
		}
		return n%2 == 1
	case 0x1160 <= r && r <= 0x11FF: // vowels and endings
		return true
	case 0xE0020 <= r && r <= 0xE007F: // tags of a flag
		return true
	}
	return false
}

func flagHalf(r rune) bool { return 0x1F1E6 <= r && r <= 0x1F1FF }

// TitleOf is the title of a conversation that begins with this question: its first
// words, or the name of the first file that it carries.
func TitleOf(question string, carried []chat.Attachment) string {
	if t := Title(question); t != "" || len(carried) == 0 {
		return t
	}
	return Title(carried[0].Name)
}
