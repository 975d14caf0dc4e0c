package handlers

import (
	"strings"

	"semel/chat"
	"semel/db"
)

// A decidedJSON is what was decided of one action that the answer asked for.
type decidedJSON struct {
	ID      string       `json:"id"`
	Action  string       `json:"action"`
	Digest  string       `json:"digest"` // of the action and its arguments
	Verdict chat.Verdict `json:"verdict"`
	Code    string       `json:"code"`
	Reason  string       `json:"reason"`
	At      chat.Stamp   `json:"at"`
	Said    *saidJSON    `json:"said"` // of one that asks: what a person said
}

type saidJSON struct {
	Verdict string     `json:"verdict"` // approve or reject
	Actor   string     `json:"actor"`
	Reason  string     `json:"reason"`
	At      chat.Stamp `json:"at"`
}

// An effectJSON is an effect with its evidence.
type effectJSON struct {
	chat.Effect
	Deliveries   []deliveryJSON `json:"deliveries"`
	Callbacks    []calledJSON   `json:"callbacks"`
	Compensation *sentJSON      `json:"compensation"`
}

// A sentJSON is a row of the outbox with its deliveries.
type sentJSON struct {
	outgoingJSON
	Deliveries []deliveryJSON `json:"deliveries"`
}

type deliveryJSON struct {
	N         int64        `json:"n"`
	Reason    string       `json:"reason"` // first, retry or redrive
	Target    string       `json:"target"`
	StartedAt chat.Stamp   `json:"startedAt"`
	EndedAt   chat.Stamp   `json:"endedAt"`
	Outcome   chat.Outcome `json:"outcome,omitempty"`
	Status    int          `json:"status,omitempty"`
	Code      string       `json:"code,omitempty"`
	Detail    string       `json:"detail,omitempty"`
}

type calledJSON struct {
	At        chat.Stamp          `json:"at"`
	MessageID string              `json:"messageId"`
	OK        bool                `json:"ok"`
	Reason    string              `json:"reason"`
	Decision  db.CallbackDecision `json:"decision"`
	Times     int64               `json:"times"`
}

// addEffects adds to a receipt what followed from the answer.
func addEffects(out *receiptJSON, rc db.Receipt) {
	for _, d := range rc.Decisions {
		j := decidedJSON{ID: d.WebhookID, Action: d.Action, Digest: d.Digest, Verdict: d.Verdict, Code: d.Code, Reason: d.Reason, At: chat.Stamp{Time: d.At}}
		if d.Said != "" {
			j.Said = &saidJSON{d.Said, d.Actor, d.SaidReason, chat.Stamp{Time: d.SaidAt}}
		}
		out.Decisions = append(out.Decisions, j)
	}
	sent := map[string]db.Sent{}
	for _, o := range rc.Sent {
		sent[o.WebhookID] = o
		if o.Kind == db.KindCharge {
			out.Billing = sentOf(o, rc.Request.Key)
		}
	}
	for _, e := range rc.Record.Effects {
		j := effectJSON{Effect: e, Deliveries: deliveriesOf(sent[e.WebhookID]), Callbacks: []calledJSON{}}
		for _, c := range sent[e.WebhookID].Callbacks {
			j.Callbacks = append(j.Callbacks, calledJSON{chat.Stamp{Time: c.At}, c.MessageID, c.OK, c.Reason, c.Decision, c.Times})
		}
		if e.Compensation != nil {
			j.Compensation = sentOf(sent[e.Compensation.WebhookID], rc.Request.Key)
		}
		out.Effects = append(out.Effects, j)
	}
}

func sentOf(o db.Sent, k chat.Key) *sentJSON {
	return &sentJSON{outgoingOf(o.Outgoing, k), deliveriesOf(o)}
}

func deliveriesOf(o db.Sent) []deliveryJSON {
	list := []deliveryJSON{}
	for _, t := range o.Deliveries {
		list = append(list, deliveryJSON{t.N, t.Reason, t.Target, chat.Stamp{Time: t.StartedAt}, chat.Stamp{Time: t.EndedAt}, t.Outcome, t.Status, t.Code, t.Detail})
	}
	return list
}

// askedFor says in plain words what became of the actions that an answer asked for, ""
// where it asked for none.
func askedFor(effects []chat.Effect) string {
	if len(effects) == 0 {
		return ""
	}
	n := chat.CountEffects(effects)
	var parts []string
	for _, p := range []struct {
		n         int
		one, many string
	}{
		{n.Done, "one was executed", "%d were executed"},
		{n.Undone, "one was undone", "%d were undone"},
		{n.Rejected, "one was rejected", "%d were rejected"},
		{n.Abandoned, "one was given up", "%d were given up"},
		{n.UnderWay, "one is under way", "%d are under way"},
		{n.Waiting, "one waits for a person", "%d wait for a person"},
	} {
		if p.n > 0 {
			parts = append(parts, plural(p.n, p.one, p.many))
		}
	}
	return plural(len(effects), "it asked for one action: ", "it asked for %d actions: ") + strings.Join(parts, ", ")
}
