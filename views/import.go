package views

import (
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"semel/chat"
)

// An ImportPage is where files are taken in, with what became of the last ones.
type ImportPage struct {
	Frame
	Script  string        // the address of its script
	Problem *chat.Problem // nothing could be read
	Done    bool          // there were files

	Imported, Skipped, Failed int
	Items                     []ImportedItem
}

// An ImportedItem is one conversation of a file, or what is wrong with the file.
type ImportedItem struct {
	SessionID, Title string
	Status           string // imported, skipped or failed
	Reason           string // in English: the words of the API
	Moved            bool   // it has another id than in the file
}

func (p ImportPage) head() templ.Component { return module(p.Script) }

// summary counts what happened, of what happened.
func (p ImportPage) summary() string {
	var parts []string
	for _, c := range []struct {
		n    int
		text string
	}{
		{p.Imported, p.Locale.N("import.imported", int64(p.Imported))},
		{p.Skipped, p.Locale.N("import.skipped", int64(p.Skipped))},
		{p.Failed, p.Locale.N("import.failed", int64(p.Failed))},
	} {
		if c.n > 0 {
			parts = append(parts, c.text)
		}
	}
	if len(parts) == 0 {
		return p.Locale.T("import.none")
	}
	return strings.Join(parts, " · ")
}

// here reports whether there is a conversation to be looked at.
func (i ImportedItem) here() bool { return i.Status != "failed" }

func (i ImportedItem) href() templ.SafeURL {
	return templ.SafeURL("/c/" + url.PathEscape(i.SessionID))
}

func (i ImportedItem) name(l *Locale) string {
	switch {
	case i.Title != "":
		return i.Title
	case i.SessionID != "":
		return i.SessionID
	}
	return l.T("page.untitled")
}

func (i ImportedItem) status(l *Locale) string {
	switch i.Status {
	case "imported":
		return l.T("import.isImported")
	case "skipped":
		return l.T("import.isSkipped")
	}
	return l.T("import.isFailed")
}

// exportOf is a conversation as a file.
func exportOf(session, format string) templ.SafeURL {
	return templ.SafeURL("/api/conversations/" + session + "/export?format=" + format)
}
