// Package search says what it means that a text contains what a person looks for,
// in any script, and what an index has to hold so that it is found quickly. It does
// no I/O.
//
// A query is words, all of which a text must contain. A word of letters matches
// where a word of the text begins; Chinese, Japanese and Korean characters, signs and
// emoji match anywhere, one of them is enough. Nothing in a query is an operator.
package search

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A class says how a character takes part in matching.
type class uint8

const (
	space   class = iota // ends a word of a query
	letter               // part of a word
	ideo                 // of a script that puts no spaces between words
	sign                 // everything else that can be seen
	nothing              // cannot be seen: texts that differ in it are the same
)

// A char is one character of a text, folded.
type char struct {
	r     rune
	class class
	from  int // where it begins in the text
	to    int // where it ends
}

// fold returns the characters of a text as they are compared: full width and other
// forms of compatibility made plain, capitals small, what cannot be seen left out.
func fold(text string) []char {
	chars := make([]char, 0, len(text))
	for at := 0; at < len(text); {
		end := at
		for end < len(text) && text[end] < utf8.RuneSelf {
			c := text[end]
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			chars = append(chars, char{rune(c), classOf(rune(c)), end, end + 1})
			end++
		}
		if end == len(text) {
			break
		}
		if r, n := utf8.DecodeRuneInString(text[end:]); 0x4E00 <= r && r <= 0x9FFF { // most of Chinese stays as it is
			chars = append(chars, char{r, ideo, end, end + n})
			at = end + n
			continue
		}
		if at < end {
			// What follows may combine with the last character before it.
			at = end - 1
			chars = chars[:len(chars)-1]
		}
		end = at + max(1, norm.NFKC.NextBoundaryInString(text[at:], true))
		for _, r := range norm.NFKC.String(text[at:end]) {
			r = unicode.ToLower(r)
			if k := classOf(r); k != nothing {
				chars = append(chars, char{r, k, at, end})
			}
		}
		at = end
	}
	return chars
}

func classOf(r rune) class {
	if r < utf8.RuneSelf {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return letter
		case r <= ' ' || r == 0x7f:
			return space
		}
		return sign
	}
	switch {
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar):
		return ideo
	case unicode.IsLetter(r), unicode.IsNumber(r):
		return letter
	case unicode.Is(unicode.Variation_Selector, r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r), unicode.Is(unicode.Cs, r):
		return nothing // private use, too: the index has its own use for it
	case unicode.IsMark(r):
		return letter
	case unicode.IsSpace(r), unicode.IsControl(r):
		return space
	}
	return sign
}
