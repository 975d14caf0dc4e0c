package search

import (
	"strconv"
	"strings"
)

// longestWord is how many characters of a word the index holds: more of it does not
// make it rarer.
const longestWord = 24

// A char of ASCII that is a sign stands in the index for itself, moved to where
// SQLite's tokenizer takes it for a letter.
const moved = 0xE000

// ownerSign begins the token that says whose a text is.
const ownerSign = '\uE100'

func owner(user int64) string { return string(ownerSign) + strconv.FormatInt(user, 10) }

// Tokens returns what the index holds of a text of a user: each token once, with
// spaces between. Words are tokens; of the other scripts each character is one,
// and each two that stand beside each other; each sign is one.
func Tokens(user int64, text string) string {
	var b strings.Builder
	seen := map[string]bool{}
	add := func(token string) {
		if !seen[token] {
			seen[token] = true
			b.WriteByte(' ')
			b.WriteString(token)
		}
	}
	b.WriteString(owner(user))
	each(fold(text), func(p piece) {
		switch p.class {
		case letter:
			add(p.word())
		default:
			for i := range p.chars {
				add(p.token(i, 1))
				if p.class == ideo && i > 0 {
					add(p.token(i-1, 2))
				}
			}
		}
	})
	return b.String()
}

// A piece is a run of characters of one class.
type piece struct {
	class class
	chars []char
}

// each calls do with the pieces of a text, without its spaces.
func each(chars []char, do func(piece)) {
	for from := 0; from < len(chars); {
		to := from + 1
		for to < len(chars) && chars[to].class == chars[from].class {
			to++
		}
		if k := chars[from].class; k != space {
			do(piece{k, chars[from:to]})
		}
		from = to
	}
}

// word is the token of a piece of letters.
func (p piece) word() string { return p.token(0, min(len(p.chars), longestWord)) }

// token is n characters of p from the one at i on.
func (p piece) token(i, n int) string {
	var b strings.Builder
	for _, c := range p.chars[i : i+n] {
		if c.class == sign && c.r < 0x80 {
			b.WriteRune(c.r + moved)
		} else {
			b.WriteRune(c.r)
		}
	}
	return b.String()
}
