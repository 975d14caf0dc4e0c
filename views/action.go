package views

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"semel/chat"
)

// title is what an action does, in the reader's language.
func (l *Locale) actionTitle(name string, descriptions map[string]string) string {
	if t := (chat.Action{Description: descriptions}).Describe(l.Tag); t != "" {
		return t
	}
	return name
}

// A standing is how an effect stands: a picture, a word, and how much it matters.
type standing struct{ icon, word, tone string }

// standing of an effect. tone is ask, busy, done, quiet or bad.
func (l *Locale) standing(e chat.Effect) standing {
	switch e.State {
	case chat.EffectUndecided:
		return standing{"unknown", l.T("effect.undecided"), "ask"}
	case chat.EffectRejected:
		if e.Verdict == "never" || e.Verdict == "invalid" {
			return standing{"close", l.T("effect.impossible"), "quiet"}
		}
		return standing{"close", l.T("effect.rejected"), "quiet"}
	case chat.EffectPending:
		if e.Attempts > 0 {
			return standing{"sending", l.T("effect.again"), "busy"}
		}
		return standing{"sending", l.T("effect.pending"), "busy"}
	case chat.EffectDelivering:
		return standing{"answering", l.T("effect.delivering"), "busy"}
	case chat.EffectAwaiting:
		return standing{"received", l.T("effect.awaiting"), "busy"}
	case chat.EffectDead:
		return standing{"failed", l.T("effect.dead"), "bad"}
	case chat.EffectTimedOut:
		return standing{"unknown", l.T("effect.timedOut"), "bad"}
	case chat.EffectRefused:
		return standing{"failed", l.T("effect.refused"), "bad"}
	case chat.EffectCompensating:
		if e.Asks() {
			return standing{"failed", l.T("effect.undoDead"), "bad"}
		}
		return standing{"again", l.T("effect.compensating"), "busy"}
	case chat.EffectAbandoned:
		return standing{"close", l.T("effect.abandoned"), "quiet"}
	case chat.EffectCompensated:
		return standing{"again", l.T("effect.compensated"), "quiet"}
	}
	return standing{"answered", l.T("effect.delivered"), "done"}
}

// facts are what is to be said of how an effect came to stand so, a sentence each.
func (l *Locale) facts(e chat.Effect, account string) (list []string) {
	if e.Verdict == "never" || e.Verdict == "invalid" {
		list = append(list, l.notRun(e.Code, e.Reason))
	}
	if e.DecidedBy != "" {
		list = append(list, l.decided(e.Verdict, e.DecidedBy, e.Reason, e.DecidedAt.Time, account))
	}
	if e.Attempts > 0 {
		s := l.N("effect.attempts", e.Attempts)
		if e.LastStatus != 0 {
			s += " " + l.T("effect.status", "status", strconv.Itoa(e.LastStatus))
		}
		list = append(list, s)
	}
	if !e.State.Settled() {
		if why := l.effectCode(e.Code); why != "" {
			list = append(list, why)
		}
	}
	if e.Callback != nil {
		list = append(list, l.called(e.Callback.OK, e.Callback.Reason))
	}
	if c := e.Compensation; c != nil && c.Attempts > 0 {
		s := l.N("effect.undoAttempts", c.Attempts)
		if c.LastStatus != 0 {
			s += " " + l.T("effect.status", "status", strconv.Itoa(c.LastStatus))
		}
		if c.State == chat.EffectDead {
			s += " " + l.effectCode(c.Code)
		}
		list = append(list, s)
	}
	return list
}

// notRun says why an action is never run. What is wrong with arguments is said in
// English only.
func (l *Locale) notRun(code, reason string) string {
	switch code {
	case chat.CodeNotAllowed:
		return l.T("effect.notAllowed")
	case chat.CodeUnknownAction:
		return l.T("effect.unknownAction")
	}
	return l.T("effect.notRun", "why", visibleText(reason))
}

func (l *Locale) called(ok bool, reason string) string {
	switch {
	case ok && reason == "":
		return l.T("effect.saidYes")
	case ok:
		return l.T("effect.saidYesWhy", "why", visibleText(reason))
	case reason == "":
		return l.T("effect.saidNo")
	}
	return l.T("effect.saidNoWhy", "why", visibleText(reason))
}

// decided says who decided what, when and why. account is the reader's.
func (l *Locale) decided(verdict, by, reason string, at time.Time, account string) string {
	switch reason {
	case "superseded":
		return l.T("effect.superseded")
	case "deleted":
		return l.T("effect.deleted")
	}
	who := l.T("effect.you")
	if by != "user:"+account {
		who = by
	}
	when := at.UTC().Format("2006-01-02 15:04 UTC")
	s := l.T("effect.rejectedBy", "who", who, "when", when)
	if verdict == "approve" {
		s = l.T("effect.approvedBy", "who", who, "when", when)
	}
	if reason != "" {
		s += " " + l.T("effect.because", "why", visibleText(reason))
	}
	return s
}

// effectCode says what the last trouble was, "" where there is nothing to be said.
func (l *Locale) effectCode(code string) string {
	switch code {
	case "max_attempts":
		return l.T("effect.code.maxAttempts")
	case "destination_gone":
		return l.T("effect.code.destinationGone")
	case "destination_disabled", "receiver_gone":
		return l.T("effect.code.disabled")
	case "outcome_unknown":
		return l.T("effect.code.unknown")
	case "key_expired":
		return l.T("effect.code.expired")
	case "damaged":
		return l.T("effect.code.damaged")
	case "callback_timeout":
		return l.T("effect.code.timeout")
	case "unreachable", "tls_missing":
		return l.T("effect.code.unreachable")
	case "timeout", "interrupted", "line_lost", "bad_answer":
		return l.T("effect.code.lost")
	case "receiver_failed":
		return l.T("effect.code.failed")
	case "receiver_busy":
		return l.T("effect.code.busy")
	case "receiver_refused", "redirect_refused", "address_refused", "bad_message":
		return l.T("effect.code.refused")
	}
	return ""
}

// A way is something that a person can do about an effect that does not settle by
// itself.
type way struct {
	id string // of the row that it is done to
	do string // redrive, compensate or abandon
}

// ways are what a person can do about e.
func ways(e chat.Effect) (list []way) {
	if !e.Asks() || e.State == chat.EffectUndecided {
		return nil
	}
	if e.State == chat.EffectCompensating { // what undoes it is in trouble
		return []way{{e.Compensation.WebhookID, "redrive"}, {e.Compensation.WebhookID, "abandon"}}
	}
	if e.State != chat.EffectRefused { // who said no is not asked again
		list = append(list, way{e.WebhookID, "redrive"})
	}
	if e.Compensates && e.Attempts > 0 {
		list = append(list, way{e.WebhookID, "compensate"})
	}
	return append(list, way{e.WebhookID, "abandon"})
}

func (w way) text(l *Locale) string {
	switch w.do {
	case "redrive":
		return l.T("effect.redrive")
	case "compensate":
		return l.T("effect.compensate")
	}
	return l.T("effect.abandon")
}

// help says what a person can do about an effect in trouble.
func (l *Locale) help(e chat.Effect) string {
	switch {
	case e.State == chat.EffectCompensating:
		return l.T("effect.help.undo")
	case e.State == chat.EffectRefused:
		return l.T("effect.help.refused")
	case e.State == chat.EffectTimedOut:
		return l.T("effect.help.timedOut")
	}
	return l.T("effect.help.dead")
}

// An argument is one member of the arguments of an action, as plain text.
type argument struct{ Name, Value string }

// foldAfter is how many characters or lines of a value are shown before it is asked for.
const (
	foldAfter      = 300
	foldAfterLines = 8
)

func (a argument) long() bool {
	return utf8.RuneCountInString(a.Value) > foldAfter || strings.Count(a.Value, "\n") >= foldAfterLines
}

// start is the beginning of a value that is folded.
func (a argument) start() string {
	s := a.Value
	if r := []rune(s); len(r) > foldAfter/2 {
		s = string(r[:foldAfter/2])
	}
	if lines := strings.SplitN(s, "\n", 4); len(lines) > 3 {
		s = strings.Join(lines[:3], "\n")
	}
	return s + " …"
}

// arguments are the members of a JSON object in its order: texts as they are, the rest
// as indented JSON.
func arguments(object json.RawMessage) (list []argument) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return list // it was checked when it was stored
		}
		var text string
		if json.Unmarshal(value, &text) != nil || value[0] != '"' {
			text = laidOut(value)
		}
		list = append(list, argument{fmt.Sprint(name), text})
	}
	return list
}

// laidOut is JSON for people: on one line where it is short.
func laidOut(value json.RawMessage) string {
	const short = 60
	var line, lines bytes.Buffer
	if json.Compact(&line, value) == nil && line.Len() <= short {
		return line.String()
	}
	if json.Indent(&lines, value, "", "  ") != nil {
		return string(value)
	}
	return lines.String()
}

// A stretch is a part of a text: as it is, or the name of a sign that would not be seen.
type stretch struct {
	text   string
	hidden bool
}

// stretches cuts a text at signs that change how it looks without being seen, or are not
// seen at all: what a person approves must be what they read.
func stretches(s string) (list []stretch) {
	from := 0
	for i, r := range s {
		if !unseen(r) {
			continue
		}
		if i > from {
			list = append(list, stretch{s[from:i], false})
		}
		list = append(list, stretch{fmt.Sprintf("U+%04X", r), true})
		from = i + utf8.RuneLen(r)
	}
	if from < len(s) {
		list = append(list, stretch{s[from:], false})
	}
	return list
}

// visibleText is s in one piece, with such signs by their names.
func visibleText(s string) string {
	var b strings.Builder
	for _, p := range stretches(s) {
		if p.hidden {
			b.WriteString("‹" + p.text + "›")
			continue
		}
		b.WriteString(p.text)
	}
	return b.String()
}

func unseen(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Bidi_Control):
		return true
	case r == 0x034F, r == 0x115F, r == 0x1160, r == 0x2800, r == 0x3164, r == 0xFFA0, r >= 0xE0100 && r <= 0xE01EF:
		return true
	case r == utf8.RuneError:
		return false // its length is not that of what stood there
	}
	return unicode.Is(unicode.Zs, r) && r != ' ' && r != 0x3000
}
