package db

import (
	"context"

	"semel/chat"
)

// A Proposal is an answer that asked for something, with all that its decisions follow
// from, and those that are stored.
type Proposal struct {
	ID        int64 // of the request, inside
	SessionID string
	RequestID string
	ToolCalls string // JSON, as the model gave them
	Finish    chat.Finish
	Declared  string // JSON of what models could ask for
	Decisions []chat.ActionDecision
}

// Proposals returns answers that asked for something, at most so many, in the order of
// their requests and after the one of that number.
func (d *DB) Proposals(ctx context.Context, after int64, most int) (list []Proposal, err error) {
	err = d.read(ctx, func(c *conn) error {
		list = nil
		err := c.query(sqlSelectProposals, []any{after, most}, func(r row) error {
			var a Proposal
			err := r.scan(&a.ID, &a.SessionID, &a.RequestID, &a.ToolCalls, &a.Finish, &a.Declared)
			list = append(list, a)
			return err
		})
		if err != nil || len(list) == 0 {
			return err
		}
		i := 0 // both are in the order of requests
		return c.query(sqlSelectProposalDecisions, []any{list[0].ID, list[len(list)-1].ID}, func(r row) error {
			var id int64
			var a chat.ActionDecision
			var digest []byte
			err := r.scan(&id, &a.Position, &a.Action, &a.Arguments, &digest, &a.Verdict, &a.Code, &a.Reason)
			copy(a.Digest[:], digest)
			for list[i].ID < id {
				i++
			}
			if list[i].ID == id { // else it has no answer, which verify finds
				list[i].Decisions = append(list[i].Decisions, a)
			}
			return err
		})
	})
	return list, err
}

const (
	sqlSelectProposals = `SELECT s.request_id, c.session_id, r.request_id, s.tool_calls, s.finish, coalesce(l.body, '')
		FROM snapshots s JOIN requests r ON r.id = s.request_id JOIN conversations c ON c.id = r.conversation_id
		LEFT JOIN declarations l ON l.id = s.declarations_id
		WHERE s.request_id > ? AND (s.declarations_id IS NOT NULL OR EXISTS (SELECT 1 FROM decisions d WHERE d.request_id = s.request_id))
		ORDER BY s.request_id LIMIT ?`

	sqlSelectProposalDecisions = `SELECT request_id, position, action, arguments, digest, verdict, code, reason
		FROM decisions WHERE request_id BETWEEN ? AND ? ORDER BY request_id, position`
)
