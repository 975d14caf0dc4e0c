package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// EffectState is where an effect stands: an action that a model asked for, its
// compensation, or a charge that a billing system is told of (contract, section 5).
type EffectState string

const (
	EffectUndecided    EffectState = "undecided"    // a person is to decide; nothing is in the outbox yet
	EffectRejected     EffectState = "rejected"     // by a person, the declaration or the rules; nothing ever is
	EffectPending      EffectState = "pending"      // waits for its turn, or for the next try
	EffectDelivering   EffectState = "delivering"   // is being sent
	EffectAwaiting     EffectState = "awaiting"     // delivered; its receiver is to call back
	EffectDead         EffectState = "dead"         // given up: a person decides
	EffectTimedOut     EffectState = "timed_out"    // nobody called back in time: a person decides
	EffectRefused      EffectState = "refused"      // called back with no, and nothing compensates: a person decides
	EffectCompensating EffectState = "compensating" // its compensation is on its way
	EffectDelivered    EffectState = "delivered"    // settled: executed, as far as its receiver says
	EffectAbandoned    EffectState = "abandoned"    // settled: a person gave it up
	EffectCompensated  EffectState = "compensated"  // settled: undone
)

// EffectEdges are all changes of state of a row of the outbox. The database holds the
// same list and refuses any other.
var EffectEdges = map[EffectState][]EffectState{
	EffectPending:      {EffectDelivering, EffectDead, EffectDelivered, EffectRefused, EffectCompensating, EffectAbandoned},
	EffectDelivering:   {EffectPending, EffectAwaiting, EffectDelivered, EffectDead, EffectRefused, EffectCompensating},
	EffectAwaiting:     {EffectDelivered, EffectRefused, EffectTimedOut, EffectCompensating, EffectAbandoned},
	EffectDead:         {EffectPending, EffectDelivered, EffectRefused, EffectCompensating, EffectAbandoned},
	EffectTimedOut:     {EffectPending, EffectDelivered, EffectRefused, EffectCompensating, EffectAbandoned},
	EffectRefused:      {EffectAbandoned},
	EffectCompensating: {EffectCompensated, EffectAbandoned},
}

// CanBecome reports whether the edge from s to next exists.
func (s EffectState) CanBecome(next EffectState) bool {
	for _, to := range EffectEdges[s] {
		if to == next {
			return true
		}
	}
	return false
}

// Settled reports whether nothing follows s: a request is committed when all its
// effects are.
func (s EffectState) Settled() bool {
	switch s {
	case EffectRejected, EffectDelivered, EffectAbandoned, EffectCompensated:
		return true
	}
	return false
}

// Troubled reports whether an effect in s waits for a person.
func (s EffectState) Troubled() bool {
	return s == EffectDead || s == EffectTimedOut || s == EffectRefused
}

// An Effect is an action that an answer asked for, as the API shows it.
type Effect struct {
	ID         string          `json:"id"`
	Action     string          `json:"action"`
	Arguments  json.RawMessage `json:"arguments"` // a JSON object as the model gave it; null when it gave none
	State      EffectState     `json:"state"`
	DecisionID string          `json:"decisionId"`
	Verdict    string          `json:"verdict"` // auto, never, invalid, ask, or what was said then: approve, reject
	Digest     string          `json:"digest"`  // hexadecimal, of the action and its arguments: what a verdict is bound to
	WebhookID  string          `json:"webhookId"`
	Attempts   int64           `json:"attempts"`   // deliveries so far
	LastStatus int             `json:"lastStatus"` // HTTP or SMTP status of the last; 0 without one
	Callback   *Callback       `json:"callback"`   // the verdict of its receiver
	Code       string          `json:"code"`       // why not: of a rejection, or of the last trouble
	Reason     string          `json:"reason"`     // of a rejection, in words
	DecidedBy  string          `json:"decidedBy"`  // who said what Verdict is, "" where nobody had to
	DecidedAt  Stamp           `json:"decidedAt"`
	To         string          `json:"to"` // where it goes, for people
	// Compensation is what undoes it, once that has begun.
	Compensation *Compensation `json:"compensation"`
	// Title is the declaration's description by language.
	Title map[string]string `json:"-"`
	// Compensates: a compensation is declared.
	Compensates bool `json:"-"`
}

// A Compensation is what undoes an effect; it leaves like an effect, under an id of its
// own.
type Compensation struct {
	WebhookID  string      `json:"webhookId"`
	State      EffectState `json:"state"`
	Attempts   int64       `json:"attempts"`
	LastStatus int         `json:"lastStatus"`
	Code       string      `json:"code"`
}

// A Callback is what the receiver of an effect said of it.
type Callback struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
	At     Stamp  `json:"at"`
}

// ActionPayload is what leaves for an action: the same bytes at every delivery.
func ActionPayload(k Key, action, arguments string, at time.Time) string {
	return payload("action."+action, at, struct {
		RequestID string          `json:"requestId"`
		SessionID string          `json:"sessionId"`
		Action    string          `json:"action"`
		Arguments json.RawMessage `json:"arguments"`
	}{k.RequestID, k.SessionID, action, object(arguments)})
}

// CompensationPayload is what leaves to undo the effect with this webhook id.
func CompensationPayload(k Key, action, arguments, undoes, reason string, at time.Time) string {
	return payload("action."+action+".compensate", at, struct {
		RequestID string          `json:"requestId"`
		SessionID string          `json:"sessionId"`
		Action    string          `json:"action"`
		Arguments json.RawMessage `json:"arguments"`
		WebhookID string          `json:"webhookId"` // of what is undone
		Reason    string          `json:"reason"`
	}{k.RequestID, k.SessionID, action, object(arguments), undoes, reason})
}

// ChargePayload is what leaves for a billing system.
func ChargePayload(k Key, model string, u Usage, cost Money, at time.Time) string {
	return payload("charge", at, struct {
		RequestID string `json:"requestId"`
		SessionID string `json:"sessionId"`
		UserID    int64  `json:"userId"`
		Model     string `json:"model"`
		Usage     Usage  `json:"usage"`
		Cost      Money  `json:"cost"`
	}{k.RequestID, k.SessionID, k.UserID, model, u, cost})
}

func object(arguments string) json.RawMessage {
	if arguments == "" {
		return json.RawMessage("{}")
	}
	return json.RawMessage(arguments)
}

func payload(kind string, at time.Time, data any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(struct {
		Type      string `json:"type"`
		Timestamp Stamp  `json:"timestamp"`
		Data      any    `json:"data"`
	}{kind, Stamp{at}, data})
	if err != nil {
		panic(fmt.Sprintf("chat: a payload that is no JSON: %v", err)) // arguments are checked before
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Said is an answer as a later prompt has it: its text, and in words what it asked
// for. It never changes, whatever became of that: a retry sends what was sent before.
func Said(content, toolCalls string) string {
	if toolCalls == "" || toolCalls == "[]" {
		return content
	}
	calls, err := ParseToolCalls([]byte(toolCalls))
	if err != nil {
		return content
	}
	var b strings.Builder
	b.WriteString(content)
	for _, c := range calls {
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "[asked for the action %s with %s]", c.Name, c.Arguments)
	}
	return b.String()
}

// EffectCounts says how many effects stand how.
type EffectCounts struct{ Waiting, UnderWay, Done, Undone, Rejected, Abandoned int }

// CountEffects counts what stands how. One whose compensation waits for a person does so
// itself.
func CountEffects(list []Effect) (n EffectCounts) {
	for _, e := range list {
		switch {
		case e.Asks():
			n.Waiting++
		case e.State == EffectDelivered:
			n.Done++
		case e.State == EffectCompensated:
			n.Undone++
		case e.State == EffectRejected:
			n.Rejected++
		case e.State == EffectAbandoned:
			n.Abandoned++
		default:
			n.UnderWay++
		}
	}
	return n
}

// Asks reports whether an effect waits for a person: to decide, or to help.
func (e Effect) Asks() bool {
	return e.State == EffectUndecided || e.State.Troubled() || e.State == EffectCompensating && e.Compensation != nil && e.Compensation.State.Troubled()
}
