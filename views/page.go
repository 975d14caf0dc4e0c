// Package views turns finished values into pages. It decides nothing but how
// things look.
package views

import (
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
	Locale        *Locale
	Assets        Assets
	Account       string // whose page it is; the browser sends what it kept only under the same
	ServerTime    int64  // milliseconds, for the clock of the page's scripts
	Path          string // where a change of language leads back to
	Conversations []chat.Conversation
}

// A ChatPage is one conversation, or a new one.
type ChatPage struct {
	Frame
	SessionID string
	Fresh     bool   // nothing of it is accepted yet
	Title     string // "" when it has none
	Turns     []Turn
	RequestID string // minted for this page, for a form that is sent without scripts
	Draft     string // a refused text, given back
	Error     *chat.Problem
}

// Unfinished reports whether an answer is still to come.
func (p ChatPage) Unfinished() bool {
	for _, t := range p.Turns {
		if t.State.Live() {
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

// A Mark is the delivery mark under a question.
type Mark string

const (
	MarkSending   Mark = "sending"   // on its way to the server
	MarkKept      Mark = "kept"      // in the browser only
	MarkReceived  Mark = "received"  // accepted and durable
	MarkAnswering Mark = "answering" // a model is at it
	MarkAnswered  Mark = "answered"  // the answer is final
	MarkFailed    Mark = "failed"    // it failed, and it is known how
	MarkUnknown   Mark = "unknown"   // it failed, and nobody can know whether it was billed
)

// Marks are all delivery marks.
var Marks = []Mark{MarkSending, MarkKept, MarkReceived, MarkAnswering, MarkAnswered, MarkFailed, MarkUnknown}

func (m Mark) text(l *Locale) string {
	switch m {
	case MarkSending:
		return l.T("mark.sending")
	case MarkKept:
		return l.T("mark.kept")
	case MarkReceived:
		return l.T("mark.received")
	case MarkAnswering:
		return l.T("mark.answering")
	case MarkAnswered:
		return l.T("mark.answered")
	case MarkFailed:
		return l.T("mark.failed")
	}
	return l.T("mark.unknown")
}

// A Turn is a question and what came of it.
type Turn struct {
	RequestID string
	Seq       int64
	Question  string
	State     chat.State
	Attempt   int64
	Problem   *chat.Problem // of a failed one
	Dropped   int64         // earlier messages that did not fit into its context
	Answers   []Answer      // more than one when an answer was continued
}

// Mark returns the delivery mark that the turn has.
func (t Turn) Mark() Mark {
	switch {
	case t.State.Answered():
		return MarkAnswered
	case t.State == chat.StateGenerating:
		return MarkAnswering
	case t.State != chat.StateFailed:
		return MarkReceived
	case t.Problem != nil && t.Problem.Outcome == chat.OutcomeUnknown:
		return MarkUnknown
	}
	return MarkFailed
}

func (t Turn) retryable() bool {
	return t.State == chat.StateFailed && (t.Problem == nil || t.Problem.Retry != chat.RetryNever)
}

// An Answer is the text under a question: the final one, or as much of it as there
// is.
type Answer struct {
	RequestID string
	Seq       int64 // 0 while it is not final
	Content   string
	Reasoning string
	Model     string
	Finish    chat.Finish
	Live      bool // more is coming
	Broken    bool // no more is coming, and it is not whole
}

// Turns pairs the messages of a branch with the requests that have no answer.
func Turns(messages []chat.Message, unanswered []chat.Record) []Turn {
	open := make(map[string]chat.Record, len(unanswered))
	for _, r := range unanswered {
		open[r.RequestID] = r
	}
	var turns []Turn
	for _, m := range messages {
		if m.Role != "user" {
			if len(turns) == 0 { // an answer without a question: imported so
				turns = append(turns, Turn{State: chat.StateCommitted})
			}
			last := &turns[len(turns)-1]
			last.Answers = append(last.Answers, Answer{
				RequestID: m.RequestID, Seq: m.Seq, Content: m.Content, Reasoning: m.Reasoning, Model: m.Model, Finish: m.Finish,
			})
			continue
		}
		t := Turn{RequestID: m.RequestID, Seq: m.Seq, Question: m.Content, State: chat.StateCommitted, Dropped: m.ContextDropped}
		if r, ok := open[m.RequestID]; ok {
			t.State, t.Attempt, t.Problem, t.Dropped = r.State, r.Attempt, r.Error, r.ContextDropped
			if r.Content != "" || r.State == chat.StateGenerating {
				t.Answers = []Answer{{RequestID: r.RequestID, Content: r.Content, Model: r.Model,
					Live: r.State.Live(), Broken: r.State == chat.StateFailed}}
			}
		}
		turns = append(turns, t)
	}
	return turns
}

// partial returns how an answer that is not whole is labelled, "" for a whole one.
func (t Turn) partial(a Answer) string {
	switch {
	case a.Finish == chat.FinishStopped, a.Broken && t.Problem != nil && t.Problem.Code == "stopped":
		return "stopped"
	case a.Broken:
		return "interrupted"
	}
	return ""
}

// note returns what is to be said under an answer, "" for nothing.
func (a Answer) note(l *Locale) string {
	switch {
	case a.Finish == chat.FinishLength:
		return l.T("chat.length")
	case a.Finish == chat.FinishFiltered:
		return l.T("chat.filtered")
	case a.Finish != "" && a.Finish != chat.FinishStopped && a.Content == "":
		return l.T("chat.empty")
	}
	return ""
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
		return refresh()
	}
	return nil
}

func (p ChatPage) bodyAttributes() templ.Attributes {
	a := templ.Attributes{"data-session": p.SessionID}
	if p.Fresh {
		a["data-fresh"] = true
	}
	if len(p.Turns) == 0 {
		a["class"] = "empty"
	}
	return a
}

// seq is "" for a message that has no number yet.
func seq(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
