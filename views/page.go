// Package views turns finished values into pages. It decides nothing but how
// things look.
package views

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/a-h/templ"

	"semel/chat"
)

// Assets are the addresses of the files that a page loads.
type Assets struct {
	Style, Script, Icon string
}

// A Frame is what every page has around its own matter.
type Frame struct {
	Locale     *Locale
	Assets     Assets
	Account    string // whose page it is; the browser sends what it kept only under the same
	Epoch      int64  // of the file it was made from; on another one the page reloads
	ServerTime int64  // milliseconds, for the clock of the page's scripts
	Path       string // where what is done at the side leads to
	To         string // where a change of language leads back to
	Theme      string // "system", "light" or "dark"
	SendKey    string // "enter" or "mod_enter"
	Lab        bool   // there is one
	Side       Side
	Name       string // who is signed in; "" without accounts
	Operator   bool   // may see operations
	Admin      bool   // may look after people and models
	Alarm      string // what is wrong with the server, for everybody; "" is nothing
	Safe       string // why the database is only read, in the server's words
}

// A ChatPage is one conversation, or a new one.
type ChatPage struct {
	Frame
	SessionID    string
	Fresh        bool   // nothing of it is accepted yet
	Title        string // "" when it has none
	Turns        []Turn
	RequestID    string // minted for this page, for a form that is sent without scripts
	Draft        string // a refused text, given back, or one to be edited
	Error        *chat.Problem
	Currency     string
	MessageBytes int // the longest question
	Attachments  chat.AttachmentLimits
	Models       []string // that a failed request may be asked again with
	Again        string   // the retry that a person is asked about, as its button has it; "" for none

	Setup Setup

	// What the composer sends: an ordinary message, or one that hangs under ParentID
	// instead of the head.
	Kind     chat.Kind
	ParentID string
	Editing  bool              // ParentID is a question, and the text is to be another one in its place
	Carried  []chat.Attachment // by the question that is edited: a form without scripts sends them again
	End      string            // the last message of the branch that is shown
	Aside    bool              // the next ordinary message would not follow that branch
	Earlier  int64             // messages before the one with this number are not on the page; 0: none
}

// Unfinished reports whether an answer is still to come, or what it asked for is under
// way. Where a person is to write a reason the page stays as it is.
func (p ChatPage) Unfinished() bool {
	var underWay, asks bool
	for _, t := range p.Turns {
		for _, a := range t.Answers {
			n := chat.CountEffects(a.Effects)
			underWay, asks = underWay || n.UnderWay > 0, asks || n.Waiting > 0
		}
	}
	if underWay && !asks {
		return true
	}
	for _, t := range p.Turns {
		if t.State.Live() || slices.ContainsFunc(t.Answers, func(a Answer) bool { return a.Live }) {
			return true
		}
	}
	return false
}

// A NotePage says one thing: that something is gone, missing or broken.
type NotePage struct {
	Frame
	Title, Text string
	Restorable  string // the conversation that can be brought back, or ""
}

func (p ChatPage) title() string {
	switch {
	case p.Title != "":
		return p.Title
	case p.Fresh:
		return p.Locale.T("page.home")
	}
	return p.Locale.T("page.untitled")
}

func (p ChatPage) head() templ.Component {
	if p.Unfinished() {
		return refresh("/c/" + p.SessionID)
	}
	return nil
}

func (p ChatPage) bodyAttributes() templ.Attributes {
	a := templ.Attributes{"data-session": p.SessionID}
	if p.Fresh {
		a["data-fresh"] = true
	}
	if p.Aside {
		a["data-aside"] = true
	}
	if p.End != "" {
		a["data-end"] = p.End
	}
	if len(p.Turns) == 0 {
		a["class"] = "empty"
	}
	return a
}

// act is where the buttons of messages post to without scripts.
func (p ChatPage) act() templ.SafeURL { return templ.SafeURL("/c/" + p.SessionID + "/act") }

// path is this conversation with one thing asked of it.
func (p ChatPage) path(name string, n int64) templ.SafeURL {
	return templ.SafeURL("/c/" + p.SessionID + "?" + name + "=" + seq(n))
}

func (p ChatPage) receipt(id string) templ.SafeURL {
	return templ.SafeURL("/c/" + p.SessionID + "/r/" + url.PathEscape(id))
}

// retryValue names a failed request, the attempt that was seen to fail, and the
// model to ask instead. Ids have no white space; a model may.
func retryValue(id string, attempt int64, model string) string {
	if id == "" {
		return ""
	}
	return id + " " + strconv.FormatInt(attempt, 10) + " " + model
}

// alarm says what is wrong with the disk, or the database.
func (f Frame) alarm() string {
	if f.Alarm == "safe_mode" {
		return f.Locale.T("alarm.safe_mode", "why", f.Safe)
	}
	if f.Alarm == "disk_full" {
		return f.Locale.T("alarm.disk_full")
	}
	return f.Locale.T("alarm.disk_low")
}
