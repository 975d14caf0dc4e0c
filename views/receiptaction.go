package views

import (
	"strconv"
	"strings"

	"semel/chat"
)

// followed are the events of what an answer asked for.
func (r Receipt) followed(l *Locale) (list []event) {
	for _, d := range r.Decisions {
		what := visibleText(l.actionTitle(d.Action, d.Descriptions))
		text := ""
		switch d.Verdict {
		case chat.VerdictAuto:
			text = l.T("receipt.decidedAuto", "what", what)
		case chat.VerdictAsk:
			text = l.T("receipt.decidedAsk", "what", what)
		default:
			text = l.notRun(d.Code, d.Reason)
		}
		list = append(list, event{d.At, rankDecided, "decision", l.T("receipt.decision"), text})
		if d.Said != "" {
			list = append(list, event{d.SaidAt, rankDecided, "decision", l.T("receipt.verdict"), l.decided(d.Said, d.Actor, d.SaidReason, d.SaidAt, r.Account)})
		}
	}
	for _, d := range r.Deliveries {
		n := strconv.FormatInt(d.N, 10)
		head := l.T("receipt.delivery", "n", n)
		switch d.Kind {
		case "compensation":
			head = l.T("receipt.undoing", "n", n)
		case "charge":
			head = l.T("receipt.telling", "n", n)
		}
		list = append(list, event{d.At, rankDelivered, "delivery", head,
			l.T("receipt.sentOut", "what", visibleText(l.actionTitle(d.Action, d.Descriptions)), "to", visibleText(d.Target))})
		if !d.EndedAt.IsZero() {
			list = append(list, event{d.EndedAt, rankDelivered, "delivery", head, l.deliveryText(d)})
		}
	}
	for _, c := range r.Callbacks {
		list = append(list, event{c.At, rankCalled, "callback", l.T("receipt.callback"), l.callbackText(c)})
	}
	return list
}

func (l *Locale) deliveryText(d Delivery) string {
	text := l.T("receipt.deliveredUnknown")
	switch d.Outcome {
	case chat.OutcomeOK:
		text = l.T("receipt.deliveredOK")
	case chat.OutcomeNone:
		text = l.T("receipt.deliveredNone")
	case chat.OutcomeDefinite:
		text = l.T("receipt.deliveredNo")
	}
	if d.Status != 0 {
		text += " " + l.T("receipt.status", "status", strconv.Itoa(d.Status))
	}
	return text
}

func (l *Locale) callbackText(c Callback) string {
	text := l.called(c.OK, c.Reason)
	switch c.Decision {
	case "contradiction":
		text += " " + l.T("receipt.callbackContradicts")
	case "late":
		text += " " + l.T("receipt.callbackLate")
	case "duplicate":
		text += " " + l.T("receipt.callbackSame")
	}
	if c.Times > 1 {
		text += " " + l.T("receipt.callbackAgain", "n", strconv.FormatInt(c.Times, 10))
	}
	return text
}

// asked says what became of what an answer asked for, "" where it asked for nothing.
func (l *Locale) asked(effects []chat.Effect) string {
	if len(effects) == 0 {
		return ""
	}
	n := chat.CountEffects(effects)
	var parts []string
	add := func(count int, text string) {
		if count > 0 {
			parts = append(parts, text)
		}
	}
	add(n.Done, l.N("receipt.asked.done", int64(n.Done)))
	add(n.Undone, l.N("receipt.asked.undone", int64(n.Undone)))
	add(n.Rejected, l.N("receipt.asked.rejected", int64(n.Rejected)))
	add(n.Abandoned, l.N("receipt.asked.abandoned", int64(n.Abandoned)))
	add(n.UnderWay, l.N("receipt.asked.underWay", int64(n.UnderWay)))
	add(n.Waiting, l.N("receipt.asked.waiting", int64(n.Waiting)))
	return fill(l.N("receipt.asked", int64(len(effects))), []string{"what", strings.Join(parts, l.T("receipt.comma"))})
}
