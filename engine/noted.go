package engine

import (
	"context"
	"log/slog"
	"time"

	"semel/chat"
	"semel/db"
)

// What ends an attempt is stored through these three: each notes and logs it, once it is
// durable. One whose commit was reported as open and was stored all the same is in the
// file and not in these numbers.

func (e *Engine) finish(ctx context.Context, r chat.Request, a db.Answer) (chat.Request, error) {
	n, err := e.db.Finish(ctx, r, a)
	if err != nil {
		return n, err
	}
	var first time.Duration
	if !a.FirstTokenAt.IsZero() && r.Owner == e.life {
		if l := e.Live(r.ID); l != nil {
			first = l.firstToken()
		}
	}
	e.meter.Answered(r.Price.Cost(a.Usage), first, n.AcknowledgedAt.Sub(n.CreatedAt))
	e.noteAttempt(r, n, a.Outcome, "", first)
	return n, nil
}

func (e *Engine) fail(ctx context.Context, r chat.Request, end db.End, f chat.Failure) (chat.Request, error) {
	n, err := e.db.Fail(ctx, r, end, f)
	if err == nil {
		e.noteAttempt(r, n, end.Outcome, end.Code, 0)
	}
	return n, err
}

func (e *Engine) requeue(ctx context.Context, r chat.Request, end db.End, at time.Time, reason string, refused, crashes int64) (chat.Request, error) {
	n, err := e.db.Requeue(ctx, r, end, at, reason, refused, crashes)
	if err == nil {
		e.noteAttempt(r, n, end.Outcome, end.Code, 0)
	}
	return n, err
}

// noteAttempt notes and logs the end of the attempt that r describes; n is the request
// as it is then.
func (e *Engine) noteAttempt(r, n chat.Request, o chat.Outcome, code string, first time.Duration) {
	e.meter.Attempted(o)
	if e.log.Enabled(context.Background(), slog.LevelDebug) {
		e.log.Debug("attempt", "request_id", r.Key.RequestID, "session_id", r.Key.SessionID, "attempt", r.Attempt, "model", r.Model,
			"outcome", o, "code", code, "state", n.State, "first_token_ms", first.Milliseconds(), "duration_ms", n.UpdatedAt.Sub(r.UpdatedAt).Milliseconds())
	}
}

// noteArrival notes and logs an arrival of an accepted id.
func (e *Engine) noteArrival(r chat.Request, d chat.Decision, source chat.Source, trace string) {
	e.meter.Arrived(d)
	if e.log.Enabled(context.Background(), slog.LevelDebug) {
		e.log.Debug("arrival", "trace_id", trace, "request_id", r.Key.RequestID, "session_id", r.Key.SessionID, "user_id", r.Key.UserID,
			"decision", d, "source", source, "state", r.State, "attempt", r.Attempt)
	}
}

// noteEnd logs that a request no longer waits: a line each.
func (e *Engine) noteEnd(r chat.Request) {
	if !e.log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	end := r.AcknowledgedAt
	if end.IsZero() {
		end = r.CompletedAt
	}
	e.log.Info("request", "request_id", r.Key.RequestID, "session_id", r.Key.SessionID, "user_id", r.Key.UserID, "state", r.State, "code", r.Failure.Code,
		"attempts", r.Attempt, "model", r.Model, "duration_ms", end.Sub(r.CreatedAt).Milliseconds())
}
