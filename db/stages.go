package db

import (
	"context"
	"log/slog"
	"time"

	"semel/chat"
)

// A stage is a line of the log about something that is durable: each change of state of
// a request or an effect, what was decided, what a person or a receiver said. They are
// made where the row is written and logged when its commit is through, in the order of
// the commits, so that the log tells the same story as the file. What a commit that was
// reported as open stored is not among them.
type stage struct {
	msg  string
	args []any
}

func (tx *Tx) tellTransition(k chat.Key, step int64, from, to chat.State, attempt int64, actor, reason string) {
	tx.stages = append(tx.stages, stage{"stage", []any{
		"request_id", k.RequestID, "session_id", k.SessionID, "step", step, "from", from, "state", to, "attempt", attempt,
		"actor", actor, "reason", reason, "at", tx.at(),
	}})
}

func (tx *Tx) tellEffect(o Outgoing, from, to chat.EffectState) {
	tx.tell("effect", o.RequestID, "webhook_id", o.WebhookID, "kind", o.Kind, "destination", o.Destination, "step", o.Steps,
		"from", from, "state", to, "attempt", o.Attempt, "code", o.Code)
}

// tell makes a line about a request that is known by its internal id.
func (tx *Tx) tell(msg string, request int64, args ...any) {
	r, err := tx.request(request)
	if err != nil {
		return // the row that is told of is written all the same
	}
	tx.stages = append(tx.stages, stage{msg, append([]any{"request_id", r.Key.RequestID, "session_id", r.Key.SessionID, "at", tx.at()}, args...)})
}

func (tx *Tx) at() string { return chat.Stamp{Time: tx.now.Truncate(time.Millisecond)}.String() }

func (d *DB) logStages(list []stage) {
	for _, s := range list {
		d.log.Log(context.Background(), slog.LevelDebug, s.msg, s.args...)
	}
}
