package views

import (
	"net/url"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"semel/chat"
)

// A Side is the list of conversations at the side of a page.
type Side struct {
	Entries  []Entry
	Query    string // what is looked for; "" for nothing
	Archived bool   // it is the archive
	Next     string // where the next page begins; "" is no more
	Now      time.Time
}

// An Entry is one conversation of the list.
type Entry struct {
	chat.Conversation
	Hit *Hit // where the query was found
}

// A Hit is a place that matches a query.
type Hit struct {
	Seq     int64 // of the message; 0 is the title
	Snippet []Snip
}

// A Snip is a piece of a snippet.
type Snip struct {
	Text string
	Hit  bool // it matches
}

// href leads to the conversation; to the message where one was hit.
func (e Entry) href() string {
	if e.Hit == nil || e.Hit.Seq == 0 {
		return "/c/" + e.SessionID
	}
	n := strconv.FormatInt(e.Hit.Seq, 10)
	return "/c/" + e.SessionID + "?at=" + n + "#m-" + n
}

// title is what a conversation is called, also when it has none.
func (e Entry) title(l *Locale) string {
	if e.Title == "" {
		return l.T("page.untitled")
	}
	return e.Title
}

// anchor is what a link to a hit leads to.
func anchor(seq int64) templ.Attributes {
	if seq == 0 {
		return nil
	}
	return templ.Attributes{"id": "m-" + strconv.FormatInt(seq, 10)}
}

// updated is "" for what no conversation is yet.
func (e Entry) updated() string {
	if e.UpdatedAt.IsZero() {
		return ""
	}
	return strconv.FormatInt(e.UpdatedAt.UnixMilli(), 10)
}

// A group is entries of one time under one heading.
type group struct {
	Key     string
	Label   string // "" for none
	Entries []Entry
}

// groups puts the entries under headings: pinned ones, days, months. The days are
// those of UTC, which is all that a server knows; the page's script puts them right.
// What was looked for comes as it was found.
func (s Side) groups(l *Locale) (list []group) {
	for _, e := range s.Entries {
		key := "found"
		if s.Query == "" {
			key = dayOf(e, s.Now)
		}
		if len(list) == 0 || list[len(list)-1].Key != key {
			list = append(list, group{Key: key, Label: dayLabel(l, key)})
		}
		g := &list[len(list)-1]
		g.Entries = append(g.Entries, e)
	}
	return list
}

// dayOf names the group that an entry belongs to, as dayOf in static/days.js does.
func dayOf(e Entry, now time.Time) string {
	if e.Pinned {
		return "pinned"
	}
	now, at := now.UTC(), e.UpdatedAt.UTC()
	days := int(midnight(now).Sub(midnight(at)) / (24 * time.Hour))
	switch {
	case days <= 0:
		return "today"
	case days == 1:
		return "yesterday"
	case days <= 7:
		return "week"
	case days <= 30:
		return "month"
	}
	return at.Format("2006-01")
}

func midnight(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
}

func dayLabel(l *Locale, key string) string {
	switch key {
	case "found":
		return ""
	case "pinned":
		return l.T("js.day.pinned")
	case "today":
		return l.T("js.day.today")
	case "yesterday":
		return l.T("js.day.yesterday")
	case "week":
		return l.T("js.day.week")
	case "month":
		return l.T("js.day.month")
	}
	at, err := time.Parse("2006-01", key)
	if err != nil {
		panic(err) // our own
	}
	return at.Format(l.T("side.monthFormat"))
}

// none says why the list is empty.
func (s Side) none(l *Locale) string {
	switch {
	case s.Query != "":
		return l.T("js.side.nothing")
	case s.Archived:
		return l.T("js.side.archiveEmpty")
	}
	return l.T("js.side.none")
}

// address is the page at path with a list like this.
func (s Side) address(path, next string, archived bool) templ.SafeURL {
	q := url.Values{}
	if archived {
		q.Set("archived", "1")
	}
	if next != "" {
		q.Set("from", next)
	}
	if next != "" && s.Query != "" {
		q.Set("q", s.Query)
	}
	if len(q) == 0 {
		return templ.SafeURL(path)
	}
	return templ.SafeURL(path + "?" + q.Encode())
}
