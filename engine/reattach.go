package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"semel/chat"
	"semel/db"
	"semel/llm"
)

// Some providers keep a run although nobody listens. Their client reports its name
// before the first piece; whoever finds the attempt without a worker follows that
// run instead of calling again: same attempt, new owner (contract, section 4).

// reattach takes over the attempt of a worker that is gone where its provider
// still has the run, and follows it. It reports whether it did.
func (e *Engine) reattach(ctx context.Context, r chat.Request) (bool, error) {
	m := e.model(r.Model)
	if m == nil {
		return false, nil
	}
	if _, can := m.Client.(llm.Reattacher); !can {
		return false, nil
	}
	run, err := e.db.RunName(ctx, r)
	if err != nil || run == "" {
		return false, err
	}
	now, err := e.db.Adopt(ctx, r, e.life, e.o.Lease)
	if errors.Is(err, db.ErrStopRequested) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	e.log.Info("re-attached", "request_id", r.Key.RequestID, "attempt", r.Attempt, "upstream_id", run)
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lives[r.ID]
	if l == nil {
		l = newLive(now)
		e.lives[r.ID] = l
	}
	j := e.newJob(now, l)
	j.model, j.run = m, run // it runs there, whatever the models are by now
	e.sched.resume(j)
	return true, nil
}

// cancelRun tells the provider that nobody wants the answer of a run any more. It
// goes on without the answer: the stop is stored, and the worst is a bill.
func (e *Engine) cancelRun(m *model, r chat.Request, run string) {
	if m == nil || run == "" {
		return
	}
	c, can := m.Client.(llm.Reattacher)
	if !can {
		return
	}
	ctx, cancel := context.WithTimeout(e.base, cancelWait)
	defer cancel()
	if err := c.Cancel(ctx, run); err != nil {
		e.log.Warn("cancel a run", "request_id", r.Key.RequestID, "upstream_id", run, "error", err)
	}
}

// cancelWait is how long a provider may take to cancel a run.
const cancelWait = 5 * time.Second

// dispatch calls the model, or follows the run that an earlier worker started. It
// hands on what the viewers of this attempt have not seen.
func (w *worker) dispatch(ctx context.Context, r chat.Request, c llm.Call) (llm.Answer, error) {
	attempt := c.Attempt
	if w.j.run == "" {
		w.e.meter.Called()
		// Before the first byte: the log has each call that may have been made.
		w.e.log.Info("dispatched", "request_id", r.Key.RequestID, "session_id", r.Key.SessionID, "attempt", attempt, "model", r.Model)
	}
	heard := false
	emit := func(p llm.Piece) {
		if !heard && (p.Text != "" || p.Reasoning != "") {
			heard = true
			w.e.log.Debug("first token", "request_id", r.Key.RequestID, "session_id", r.Key.SessionID, "attempt", attempt)
		}
		w.j.live.add(attempt, p.Text, p.Reasoning)
	}
	client, keepsRuns := w.j.model.Client.(llm.Reattacher)
	switch {
	case !keepsRuns:
		return w.j.model.Client.Stream(ctx, c, emit)
	case w.j.run == "":
		c.Started = func(upstreamID string) { w.named(r, upstreamID) }
		return client.Stream(ctx, c, emit)
	}
	known := w.known // of an earlier worker: a run gives the same text again
	same := true
	a, err := client.Reattach(ctx, c, w.j.run, func(p llm.Piece) {
		text, ok := rest(&known.Text, p.Text)
		reasoning, ok2 := rest(&known.Reasoning, p.Reasoning)
		if same = same && ok && ok2; !same {
			w.cancel(errDiverged)
			return
		}
		emit(llm.Piece{Text: text, Reasoning: reasoning})
	})
	if !same || err == nil && known.Text+known.Reasoning != "" {
		return llm.Answer{}, &llm.Error{Outcome: chat.OutcomeUnknown, Code: "line_lost",
			Detail: "The provider no longer gives the text that it gave before.", Err: err}
	}
	return a, err
}

// rest returns what of a piece lies beyond the known text, which it shortens by
// the part that the piece repeats. It reports whether they agree.
func rest(known *string, piece string) (string, bool) {
	n := min(len(*known), len(piece))
	if !strings.HasPrefix(*known, piece[:n]) {
		return "", false
	}
	*known = (*known)[n:]
	return piece[n:], true
}

// named makes the provider's name of a run durable.
func (w *worker) named(r chat.Request, upstreamID string) {
	w.run.Store(&upstreamID)
	switch err := w.e.db.NameRun(context.Background(), r, upstreamID); {
	case err == nil:
	case errors.Is(err, db.ErrFenced):
		w.cancel(errFenced)
	default:
		// Only a crash would miss it: the call goes on.
		w.e.log.Error("name of a run", "request_id", r.Key.RequestID, "upstream_id", upstreamID, "error", err)
	}
}

// runName is the provider's name of the run, "" where it has told none.
func (w *worker) runName() string {
	if p := w.run.Load(); p != nil {
		return *p
	}
	return w.j.run
}

// resume shows what an earlier worker stored of the answer.
func (w *worker) resume(ctx context.Context) error {
	p, err := w.e.db.PartialText(ctx, w.j.r.ID, w.j.r.Attempt)
	if err != nil {
		return err
	}
	w.known, w.stored, w.thunk, w.pieces = p, len(p.Text), len(p.Reasoning), p.Text != "" || p.Reasoning != ""
	w.j.live.add(w.j.r.Attempt, p.Text, p.Reasoning)
	return nil
}
