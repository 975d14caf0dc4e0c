package search

import (
	"sort"
	"strings"
	"unicode/utf8"
)

// A Query is what a person looks for.
type Query struct {
	terms [][]char
}

// maxTerms is how many words of a query count.
const maxTerms = 16

// Parse reads a query. Any text is one.
func Parse(text string) Query {
	var q Query
	chars := fold(text)
	for from := 0; from < len(chars) && len(q.terms) < maxTerms; {
		to := from
		for to < len(chars) && chars[to].class != space {
			to++
		}
		if to > from {
			q.terms = append(q.terms, chars[from:to])
		}
		from = to + 1
	}
	return q
}

// Empty reports whether q looks for nothing. It matches nothing.
func (q Query) Empty() bool { return len(q.terms) == 0 }

// Expression returns q for an index of what [Tokens] made of a user's texts, in the
// language of FTS5. What it finds contains all texts that q matches, and others:
// the index does not know in which order the tokens stood.
func (q Query) Expression(user int64) string {
	var b strings.Builder
	quote(&b, owner(user))
	for _, term := range q.terms {
		end := term[len(term)-1].to
		whole := wholeWord(term)
		each(term, func(p piece) {
			last := p.chars[len(p.chars)-1].to == end
			switch {
			case p.class == letter && last && !whole && len(p.chars) <= longestWord:
				if len(p.chars) == 1 && len(term) > 1 {
					return // it may go on in any way: that says little, and to look it up is dear
				}
				b.WriteString(" AND ")
				quote(&b, p.word())
				b.WriteByte('*')
			case p.class == letter:
				b.WriteString(" AND ")
				quote(&b, p.word())
			case p.class == ideo && len(p.chars) > 1:
				for i := range len(p.chars) - 1 {
					b.WriteString(" AND ")
					quote(&b, p.token(i, 2))
				}
			default:
				for i := range p.chars {
					b.WriteString(" AND ")
					quote(&b, p.token(i, 1))
				}
			}
		})
	}
	return b.String()
}

// quote writes a string of FTS5. Tokens contain no quotes: those are moved.
func quote(b *strings.Builder, token string) {
	b.WriteByte('"')
	b.WriteString(token)
	b.WriteByte('"')
}

// wholeWord reports whether a term is a single letter: "C" and "R" are names of
// languages, what begins with them is half of the dictionary.
func wholeWord(term []char) bool { return len(term) == 1 && term[0].class == letter }

// A Part is a piece of a snippet.
type Part struct {
	Text string
	Hit  bool // it is what was looked for
}

// Snippet returns the part of a text around the first place that matches q, with
// all that matches in it marked, and whether the text matches at all.
func (q Query) Snippet(text string) (parts []Part, ok bool) {
	if q.Empty() {
		return nil, false
	}
	chars := fold(text)
	var hits []span
	for _, term := range q.terms {
		first := len(hits)
		for at := 0; ; {
			i := find(chars, term, at)
			if i < 0 {
				break
			}
			hits = append(hits, span{chars[i].from, chars[i+len(term)-1].to})
			at = i + len(term)
		}
		if len(hits) == first {
			return nil, false
		}
	}
	sort.Slice(hits, func(i, j int) bool {
		return hits[i].from < hits[j].from || hits[i].from == hits[j].from && hits[i].to > hits[j].to
	})
	return cut(text, hits), true
}

// A span is a part of a text.
type span struct{ from, to int }

// find returns where term stands in chars, from at on, -1 for nowhere.
func find(chars, term []char, at int) int {
	whole := wholeWord(term)
next:
	for i := at; i+len(term) <= len(chars); i++ {
		for j, c := range term {
			if chars[i+j].r != c.r {
				continue next
			}
		}
		after := i + len(term)
		if term[0].class == letter && i > 0 && chars[i-1].class == letter ||
			whole && after < len(chars) && chars[after].class == letter {
			continue // inside of another word
		}
		return i
	}
	return -1
}

const (
	snippetBefore = 24  // characters before the first hit
	snippetLength = 120 // in all
)

// cut makes the snippet around the first of hits, which are in order.
func cut(text string, hits []span) []Part {
	from := hits[0].from
	for range snippetBefore {
		_, n := utf8.DecodeLastRuneInString(text[:from])
		from -= n
	}
	to := from
	for range snippetLength {
		_, n := utf8.DecodeRuneInString(text[to:])
		to += n
	}
	to = max(to, hits[0].to)
	if from > 0 { // from the beginning of a word
		if i := strings.IndexAny(text[from:hits[0].from], " \n\t"); i >= 0 {
			from += i + 1
		}
	}
	var parts []Part
	add := func(s string, hit bool) {
		if s != "" {
			parts = append(parts, Part{s, hit})
		}
	}
	at := from
	for _, h := range hits {
		if h.from < at || h.to > to {
			continue // it overlaps the one before, or lies beyond
		}
		add(text[at:h.from], false)
		add(text[h.from:h.to], true)
		at = h.to
	}
	add(text[at:to], false)
	return tidy(parts, from > 0, to < len(text))
}

// tidy puts a snippet on one line.
func tidy(parts []Part, more, rest bool) []Part {
	blank := true // nothing but white space so far
	out := parts[:0]
	for _, p := range parts {
		var b strings.Builder
		for _, r := range p.Text {
			if classOf(r) == space {
				if !blank {
					b.WriteByte(' ')
				}
				blank = true
				continue
			}
			b.WriteRune(r)
			blank = false
		}
		if b.Len() > 0 {
			out = append(out, Part{b.String(), p.Hit})
		}
	}
	if more {
		out = append([]Part{{Text: "…"}}, out...)
	}
	if rest {
		out = append(out, Part{Text: "…"})
	}
	return out
}
