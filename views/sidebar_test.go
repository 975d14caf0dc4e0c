package views

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/net/html"

	"semel/chat"
)

func TestEntriesStandUnderDaysOfUTC(t *testing.T) {
	now := time.Date(2026, 3, 31, 0, 30, 0, 0, time.FixedZone("", 3600)) // still the 30th
	s := Side{Now: now}
	for _, c := range []struct {
		at     string
		pinned bool
	}{
		{"2025-01-01T00:00:00Z", true}, {"2026-03-30T23:59:59Z", false}, {"2026-03-30T00:00:00Z", false}, {"2026-03-29T23:59:59Z", false}, {"2026-03-28T00:00:00Z", false},
		{"2026-03-23T00:00:00Z", false}, {"2026-03-22T23:59:59Z", false}, {"2026-02-28T00:00:00Z", false}, {"2026-02-27T23:59:59Z", false}, {"2025-12-31T00:00:00Z", false},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		s.Entries = append(s.Entries, Entry{Conversation: chat.Conversation{SessionID: c.at, UpdatedAt: at, Pinned: c.pinned}})
	}
	for lang, want := range map[string][]string{
		"en":    {"Pinned 1", "Today 2", "Yesterday 1", "Previous 7 days 2", "Previous 30 days 2", "February 2026 1", "December 2025 1"},
		"zh-CN": {"置顶 1", "今天 2", "昨天 1", "过去 7 天 2", "过去 30 天 2", "2026年2月 1", "2025年12月 1"},
	} {
		var got []string
		for _, g := range s.groups(FindLocale(lang)) {
			got = append(got, g.Label+" "+string(rune('0'+len(g.Entries))))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", lang, got, want)
		}
	}
	s.Query = "x"
	if g := s.groups(FindLocale("en")); len(g) != 1 || g[0].Label != "" || len(g[0].Entries) != len(s.Entries) {
		t.Errorf("what was found stands under %+v", g)
	}
}

func TestASnippetIsTextWhateverItLooksLike(t *testing.T) {
	for _, evil := range hostile {
		p := examplePage("en")
		p.Side.Query = evil
		p.Side.Entries[0].Hit = &Hit{Seq: 7, Snippet: []Snip{{Text: evil}, {Text: evil, Hit: true}}}
		p.Side.Entries[1].Hit = &Hit{Snippet: []Snip{{Text: evil, Hit: true}}}
		p.Side.Next = evil
		doc := renderPage(t, p)
		list := find(doc, "nav#conversations")
		for n := range list.Descendants() {
			if n.Type == html.ElementNode && !slices.Contains([]string{"p", "div", "section", "h2", "ol", "li", "a", "span", "mark", "button", "svg", "g", "circle", "path", "rect", "form", "input"}, n.Data) {
				t.Errorf("%q: an element %s", evil, n.Data)
			}
		}
		if find(doc, "a href=/c/S1234567?at=7#m-7") == nil {
			t.Errorf("%q: no link to the message", evil)
		}
	}
}
