package views

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"semel/chat"
)

// A Mark is the delivery mark under a question.
type Mark string

const (
	MarkSending   Mark = "sending"   // on its way to the server
	MarkKept      Mark = "kept"      // in the browser only
	MarkAsked     Mark = "asked"     // in the browser only, until a person says whether to send it
	MarkReceived  Mark = "received"  // accepted and durable
	MarkAnswering Mark = "answering" // a model is at it
	MarkAnswered  Mark = "answered"  // the answer is final
	MarkFailed    Mark = "failed"    // it failed, and it is known how
	MarkUnknown   Mark = "unknown"   // it failed, and nobody can know whether it was billed
)

// Marks are all delivery marks.
var Marks = []Mark{MarkSending, MarkKept, MarkAsked, MarkReceived, MarkAnswering, MarkAnswered, MarkFailed, MarkUnknown}

func (m Mark) text(l *Locale) string {
	switch m {
	case MarkSending:
		return l.T("mark.sending")
	case MarkKept:
		return l.T("mark.kept")
	case MarkAsked:
		return l.T("mark.asked")
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
	RequestID   string
	Seq         int64
	Question    string
	Attachments []chat.Attachment
	Versions    Versions
	State       chat.State
	Attempt     int64
	Problem     *chat.Problem // of a failed one
	Dropped     int64         // earlier messages that did not fit into its context
	Answers     []Answer      // more than one when an answer was continued, or another one failed
}

// Versions says which of the messages in one place this is. The zero value is the
// only one.
type Versions struct {
	N, Of         int
	Before, After int64 // numbers of those beside it, 0 where there is none
}

// versionsOf finds seq among others; all are in order.
func versionsOf(seq int64, all []int64) Versions {
	i := slices.Index(all, seq)
	if i < 0 || len(all) < 2 {
		return Versions{}
	}
	v := Versions{N: i + 1, Of: len(all)}
	if i > 0 {
		v.Before = all[i-1]
	}
	if i < len(all)-1 {
		v.After = all[i+1]
	}
	return v
}

// Mark returns the delivery mark that the turn has.
func (t Turn) Mark() Mark { return markOf(t.State, t.Problem) }

func markOf(s chat.State, p *chat.Problem) Mark {
	switch {
	case s.Answered():
		return MarkAnswered
	case s == chat.StateGenerating:
		return MarkAnswering
	case s != chat.StateFailed:
		return MarkReceived
	case p != nil && p.Outcome == chat.OutcomeUnknown:
		return MarkUnknown
	}
	return MarkFailed
}

func retryable(s chat.State, p *chat.Problem) bool {
	return s == chat.StateFailed && (p == nil || p.Retry != chat.RetryNever)
}

// first is the number of the first message of a turn.
func (t Turn) first() int64 {
	if t.Seq == 0 && len(t.Answers) > 0 {
		return t.Answers[0].Seq
	}
	return t.Seq
}

// An Answer is the text under a question: the final one, or as much of it as there
// is.
type Answer struct {
	RequestID string
	Seq       int64 // 0 while it is not final
	Parent    int64
	Content   string
	Reasoning string
	Thought   time.Duration
	Model     string
	Finish    chat.Finish
	Versions  Versions
	Live      bool          // more is coming
	Broken    bool          // no more is coming, and it is not whole
	Problem   *chat.Problem // why
	Continued bool          // the next answer goes on from here

	// Of one that is final.
	Usage              chat.Usage
	Micros             int64
	Attempts, Absorbed int64
	Imported           bool          // it came with a file
	Effects            []chat.Effect // what it asked for

	// Of another answer, or more of one, while it is not final: it is a request of its
	// own, and the question above has its answer.
	Kind    chat.Kind
	State   chat.State
	Attempt int64
}

// A Branch is what [Turns] makes turns from.
type Branch struct {
	Messages   []chat.Message
	Unanswered []chat.Record
	Coming     string  // the request whose answer the branch leads to, without a place in Messages yet
	Beside     []int64 // the answers beside that one
}

// Turns pairs the messages of a branch with the requests that have no answer.
func Turns(b Branch) []Turn {
	open := make(map[string]chat.Record, len(b.Unanswered))
	for _, r := range b.Unanswered {
		open[r.RequestID] = r
	}
	var turns []Turn
	newest := map[int64]int64{} // the newest answer under a message
	for _, m := range b.Messages {
		if m.Role != "user" {
			if len(turns) == 0 { // an answer without a question: imported so
				turns = append(turns, Turn{State: chat.StateCommitted})
			}
			turns[len(turns)-1].add(answerOf(m))
			newest[m.ParentSeq] = slices.Max(append(m.Siblings, m.Seq))
			continue
		}
		t := Turn{RequestID: m.RequestID, Seq: m.Seq, Question: m.Content, Attachments: m.Attachments, State: chat.StateCommitted, Dropped: m.ContextDropped,
			Versions: versionsOf(m.Seq, m.Siblings)}
		if r, ok := open[m.RequestID]; ok {
			t.State, t.Attempt, t.Problem, t.Dropped = r.State, r.Attempt, r.Error, r.ContextDropped
			if r.Content != "" || r.Reasoning != "" || r.State == chat.StateGenerating {
				a := partialOf(r)
				a.Kind, a.Parent = "", m.Seq
				t.Answers = []Answer{a}
			}
		}
		turns = append(turns, t)
	}
	for _, r := range b.Unanswered {
		if r.Kind != chat.KindRegenerate && r.Kind != chat.KindContinue {
			continue
		}
		a := partialOf(r)
		switch {
		case r.RequestID == b.Coming:
			a.Versions = versionsOf(r.Seq, append(slices.Clone(b.Beside), r.Seq))
		case r.State.Live(), newest[r.ParentSeq] > r.Seq:
			continue // it is beside what is shown, or was asked again with success
		}
		if t := turnWith(turns, r.ParentSeq); t != nil {
			t.add(a)
		}
	}
	return turns
}

func answerOf(m chat.Message) Answer {
	all := slices.Concat(m.Siblings, m.Coming)
	slices.Sort(all)
	return Answer{
		RequestID: m.RequestID, Seq: m.Seq, Parent: m.ParentSeq, Content: m.Content, Reasoning: m.Reasoning, Thought: m.Thought,
		Model: m.Model, Finish: m.Finish, Versions: versionsOf(m.Seq, all),
		Usage: m.Usage, Micros: m.Micros, Attempts: m.Attempts, Absorbed: m.Absorbed, Imported: m.Imported, Effects: m.Effects,
	}
}

func partialOf(r chat.Record) Answer {
	return Answer{
		RequestID: r.RequestID, Parent: r.ParentSeq, Content: r.Content, Reasoning: r.Reasoning, Model: r.Model,
		Live: r.State.Live(), Broken: r.State == chat.StateFailed, Problem: r.Error,
		Kind: r.Kind, State: r.State, Attempt: r.Attempt,
	}
}

// turnWith returns the turn that has the message with this number.
func turnWith(turns []Turn, seq int64) *Turn {
	for i := range turns {
		if turns[i].Seq == seq || slices.ContainsFunc(turns[i].Answers, func(a Answer) bool { return a.Seq == seq && seq != 0 }) {
			return &turns[i]
		}
	}
	return nil
}

// add puts an answer behind those that it goes on from or stands beside.
func (t *Turn) add(a Answer) {
	at := len(t.Answers)
	for i := range t.Answers {
		other := &t.Answers[i]
		switch {
		case other.Seq != 0 && other.Seq == a.Parent:
			other.Continued = other.Continued || !a.Broken
			at = i + 1
		case other.Parent == a.Parent:
			at = i + 1
		}
	}
	t.Answers = slices.Insert(t.Answers, at, a)
}

// partial returns how an answer that is not whole is labelled, "" for a whole one.
func (a Answer) partial() string {
	switch {
	case a.Broken && a.Content == "" && a.Reasoning == "":
		return ""
	case a.Finish == chat.FinishStopped, a.Broken && a.Problem != nil && a.Problem.Code == "stopped":
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
	case a.Finish != "" && a.Finish != chat.FinishStopped && a.Content == "" && len(a.Effects) == 0:
		return l.T("chat.empty")
	}
	return ""
}

// continuable reports whether more of an answer may be asked for: it was cut, and
// nothing goes on from it.
func (a Answer) continuable() bool {
	return a.Seq != 0 && !a.Continued && (a.Finish == chat.FinishLength || a.Finish == chat.FinishStopped)
}

// thinking is the heading of the reasoning.
func (a Answer) thinking(l *Locale) string {
	switch {
	case a.Live && a.Content == "":
		return l.T("chat.thinking")
	case a.Thought > 0:
		return l.T("chat.thought", "time", l.seconds(a.Thought))
	}
	return l.T("chat.reasoning")
}

// chip says in one line what an answer took.
func (a Answer) chip(l *Locale, currency string) string {
	if a.Seq == 0 {
		return a.Model
	}
	cost := l.T("chip.free")
	if a.Micros > 0 {
		cost = l.Money(currency, a.Micros)
	}
	parts := []string{a.Model, l.N("chip.tokens", a.Usage.InputTokens+a.Usage.OutputTokens), cost, l.T("chip.once")}
	if a.Imported {
		parts = []string{a.Model, parts[1], l.T("chip.imported")}
	}
	if n := len(a.Effects); n > 0 {
		parts = append(parts, l.N("chip.actions", int64(n)))
	}
	if n := chat.CountEffects(a.Effects).Waiting; n > 0 {
		parts = append(parts, l.N("chip.asks", int64(n)))
	}
	if a.Attempts > 1 {
		parts = append(parts, l.N("chip.attempts", a.Attempts))
	}
	if a.Absorbed > 0 {
		parts = append(parts, l.N("chip.absorbed", a.Absorbed))
	}
	return strings.Join(parts, " · ")
}

// seq is "" for a message that has no number yet.
func seq(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Page returns the turns to show of a long branch, and before which message those
// are that it leaves out, 0 when it leaves out none. It shows the last most turns:
// of all, or of those before the message with number before; with at it begins no
// later than shortly before that message.
func Page(turns []Turn, at, before int64, most int) (shown []Turn, earlier int64) {
	end := len(turns)
	if before != 0 {
		if i := slices.IndexFunc(turns, func(t Turn) bool { return t.first() >= before }); i >= 0 {
			end = i
		}
	}
	begin := max(0, end-most)
	if i := slices.IndexFunc(turns[:end], func(t Turn) bool {
		return t.Seq == at || slices.ContainsFunc(t.Answers, func(a Answer) bool { return a.Seq == at })
	}); i >= 0 && at != 0 {
		begin = min(begin, max(0, i-2))
	}
	shown = turns[begin:end]
	if begin > 0 && len(shown) > 0 {
		earlier = shown[0].first()
	}
	return shown, earlier
}
