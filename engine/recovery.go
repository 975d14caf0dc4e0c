package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"semel/chat"
	"semel/db"
)

// recoverLost decides about everything another life left: at start, whatever it owned
// is dead at once. In a file that was restored, what was unfinished may have been
// finished since, in what is lost: nothing of it begins by itself.
func (e *Engine) recoverLost(ctx context.Context, restored bool) error {
	list, err := e.db.Unfinished(ctx)
	if err != nil {
		return err
	}
	taken, followed := 0, 0
	for _, r := range list {
		if restored {
			taken++
			if err := e.failRestored(ctx, r); err != nil {
				return fmt.Errorf("request %s: %w", r.Key.RequestID, err)
			}
			continue
		}
		if r.State == chat.StateGenerating {
			switch again, err := e.reattach(ctx, r); {
			case err != nil:
				return fmt.Errorf("request %s: %w", r.Key.RequestID, err)
			case again:
				followed++
				continue
			}
			taken++
			if r, err = e.takeOver(ctx, r, "recovery:"+e.life, chat.OutcomeUnknown); err != nil {
				return fmt.Errorf("request %s: %w", r.Key.RequestID, err)
			}
		}
		if r.State == chat.StatePending {
			e.track(r)
		}
	}
	if len(list) > 0 {
		e.log.Info("recovered", "waiting", len(list)-taken-followed, "interrupted", taken, "re-attached", followed, "restored", restored)
	}
	if restored {
		return e.db.SettleRestores(ctx) // if we die before, the next life finds what we left
	}
	return nil
}

// failRestored ends a request that a backup had unfinished.
func (e *Engine) failRestored(ctx context.Context, r chat.Request) error {
	actor := "recovery:" + e.life
	f := chat.Failure{
		Code: "restored", Outcome: chat.OutcomeUnknown, Retry: chat.RetryExplicit,
		Detail: "It was unfinished in the backup that this server was restored from, and may have been answered since. What came after the backup, nobody can know.",
	}
	switch {
	case r.State == chat.StatePending:
		_, err := e.db.FailWaiting(ctx, r, actor, f)
		return err
	case r.StopRequested && r.StopAttempt >= r.Attempt: // which calls no model either
		_, err := e.takeOver(ctx, r, actor, chat.OutcomeUnknown)
		return err
	}
	p, err := e.db.PartialText(ctx, r.ID, r.Attempt)
	if err != nil {
		return err
	}
	usage, err := e.estimateLost(ctx, r, p)
	if err != nil {
		return err
	}
	_, err = e.db.Fail(ctx, r, db.End{Outcome: chat.OutcomeUnknown, Code: f.Code, Usage: usage, Waste: true, Actor: actor}, f)
	return err
}

// takeOver ends the attempt of a worker that is gone, as contract section 4 says
// of a crash or a lost lease. A stored stop of that attempt is honoured first: it
// never leads to another call. It returns the request as it is then.
func (e *Engine) takeOver(ctx context.Context, r chat.Request, actor string, o chat.Outcome) (chat.Request, error) {
	p, err := e.db.PartialText(ctx, r.ID, r.Attempt)
	if err != nil {
		return r, err
	}
	usage, err := e.estimateLost(ctx, r, p)
	if err != nil {
		return r, err
	}
	end := db.End{Outcome: o, Code: "interrupted", Usage: usage, Waste: true, Actor: actor}
	if r.StopRequested && r.StopAttempt >= r.Attempt {
		end.Outcome, end.Code = chat.OutcomeStopped, "stopped"
		if run, err := e.db.RunName(ctx, r); err == nil && run != "" {
			e.workers.Go(func() { e.cancelRun(e.model(r.Model), r, run) })
		}
		if p.Text == "" {
			return e.fail(ctx, r, end, stoppedFailure(chat.OutcomeUnknown))
		}
		return e.finish(ctx, r, db.Answer{
			Content: p.Text, Reasoning: p.Reasoning, ToolCalls: "[]", Finish: chat.FinishStopped, Usage: usage,
			Outcome: chat.OutcomeStopped, Actor: actor, Reason: "stopped", HasPartials: true,
			ChargeTo: e.o.ChargeTo, Currency: e.o.Currency,
		})
	}
	var n chat.Request
	if m := e.model(r.Model); m == nil || !m.Rerun || r.Crashes >= m.MaxCrashReruns {
		n, err = e.fail(ctx, r, end, chat.Failure{
			Code: "interrupted", Outcome: chat.OutcomeUnknown, Retry: chat.RetryExplicit,
			Detail: "Whoever looked after the answer was lost while the model was answering. Whether that call was billed, nobody can know.",
		})
	} else {
		var at time.Time
		if r.Crashes >= crashesAtOnce {
			at = time.Now().Add(backoff(int(r.Crashes-crashesAtOnce), backoffBase, backoffMost))
		}
		n, err = e.requeue(ctx, r, end, at, "rerun", r.Refused, r.Crashes+1)
	}
	if errors.Is(err, db.ErrStopRequested) { // since r was read, or a worker's copy, which knows of no stop
		r.StopRequested, r.StopAttempt = true, r.Attempt
		return e.takeOver(ctx, r, actor, o)
	}
	return n, err
}

// estimateLost guesses what an attempt cost that nobody saw the end of.
func (e *Engine) estimateLost(ctx context.Context, r chat.Request, p db.Partial) (chat.Usage, error) {
	u := chat.Usage{Estimated: true, OutputTokens: chat.EstimateTokens(p.Text) + chat.EstimateTokens(p.Reasoning)}
	seqs, err := e.db.FrozenContext(ctx, r.ID)
	if err != nil {
		return u, err
	}
	msgs, err := e.db.Turns(ctx, r.ConversationID, seqs)
	for _, m := range msgs {
		u.InputTokens += chat.EstimateTokens(m.Content)
		for _, a := range m.Attachments {
			u.InputTokens += a.Tokens
		}
	}
	u.InputTokens += chat.EstimateTokens(r.SystemPrompt)
	return u, err
}

// reap takes over from workers of this life that have given no sign for longer
// than their lease, by the monotonic clock, and looks for stored requests that
// nobody has in care.
func (e *Engine) reap() {
	ctx := context.Background()
	e.mu.Lock()
	var lost []*job
	for _, c := range e.sched.conversations {
		if c.running != nil {
			if silent, r := c.running.live.silence(); r.State == chat.StateGenerating && silent > e.o.Lease {
				lost = append(lost, c.running)
			}
		}
	}
	e.mu.Unlock()
	for _, j := range lost {
		_, r := j.live.silence()
		e.log.Error("a worker lost its lease", "request_id", r.Key.RequestID, "attempt", r.Attempt)
		if err := e.seize(ctx, j, r); err != nil {
			e.log.Error("take over", "request_id", r.Key.RequestID, "error", err)
		}
	}
	if err := e.sweep(ctx); err != nil {
		e.log.Error("sweep", "error", err)
		return
	}
	if err := e.StopDisabled(ctx); err != nil { // who was disabled beside the server, or a moment after a question
		e.log.Error("stop the runs of disabled users", "error", err)
	}
	e.cameRound()
}

// cameRound notes that the reaper has looked after everything.
func (e *Engine) cameRound() {
	now := time.Now()
	e.reaped.Store(&now)
}

// seize takes a running job from its worker and decides about it.
func (e *Engine) seize(ctx context.Context, j *job, r chat.Request) error {
	now, err := e.takeOver(ctx, r, "reaper:"+e.life, chat.OutcomeFenced)
	if errors.Is(err, db.ErrFenced) {
		return nil // it was alive after all
	}
	if err != nil {
		return err
	}
	j.live.stop(r.Attempt, errFenced)
	var next *job
	if now.State == chat.StatePending {
		// Before it can run again: what begin says must not be overwritten.
		j.live.update(now, false)
		e.publish(now)
		next = e.newJob(now, j.live)
	}
	e.mu.Lock()
	e.sched.done(j, next)
	e.mu.Unlock()
	if next == nil {
		e.release(j.live, now)
	}
	return nil
}

// Release takes a request from whoever is answering it, as the reaper does after a
// lease: for a person who does not want to wait for that. attempt is the one the person
// saw. It returns the request as it is then; doing it again changes nothing. Errors:
// [db.ErrNotFound], [db.ErrGone]; [db.ErrNotNow] when that attempt is not being answered;
// problems that say to ask again.
func (e *Engine) Release(ctx context.Context, k chat.Key, attempt int64, deed db.Deed) (chat.Request, error) {
	ctx = context.WithoutCancel(ctx)
	r, err := e.db.Find(ctx, k)
	if err == nil {
		r, err = e.db.Release(ctx, r.ID, attempt, deed)
	}
	if err == nil && r.State == chat.StateGenerating && r.Attempt == attempt {
		e.log.Warn("released by hand", "request_id", k.RequestID, "attempt", attempt, "actor", deed.Actor)
		e.mu.Lock()
		var j *job
		if c := e.sched.conversations[r.ConversationID]; c != nil && c.running != nil && c.running.id == r.ID {
			j = c.running
		}
		e.mu.Unlock()
		if j != nil {
			err = e.seize(ctx, j, r)
		} else {
			err = e.sweep(ctx)
		}
	}
	if err == nil {
		r, err = e.db.Load(ctx, r.ID)
	}
	if err != nil {
		err = e.storageProblem(k.RequestID, err)
	}
	return r, err
}

// sweep tracks stored requests that wait and that nobody has in care, which only
// a write whose commit was reported as open can leave, and decides about
// generating ones without a worker.
func (e *Engine) sweep(ctx context.Context) error {
	list, err := e.db.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, r := range list {
		if e.inCare(r) || e.Draining() {
			continue
		}
		if r.State == chat.StateGenerating {
			// Between a claim and the look above it may have ended.
			now, err := e.db.Load(ctx, r.ID)
			if err != nil || now.State != chat.StateGenerating || now.Attempt != r.Attempt || e.inCare(r) {
				continue
			}
			if again, err := e.reattach(ctx, now); err == nil && again {
				continue
			}
			if r, err = e.takeOver(ctx, now, "reaper:"+e.life, chat.OutcomeUnknown); errors.Is(err, db.ErrFenced) {
				continue
			} else if err != nil {
				return err
			}
			if l := e.Live(r.ID); l != nil {
				l.update(r, false)
			}
			e.publish(r)
		}
		if r.State == chat.StatePending {
			e.adopt(r)
		} else {
			e.release(e.Live(r.ID), r)
		}
	}
	return nil
}

// retain removes what the contract lets go, in slices, while the clock can be
// believed.
func (e *Engine) retain() {
	ctx, now := context.Background(), time.Now()
	if err := e.clock.trusted(now); err != nil {
		e.log.Warn("retention waits", "reason", err)
		return
	}
	old := now.Add(-e.o.Evidence)
	for _, step := range []struct {
		what string
		do   func(context.Context, time.Time) (bool, error)
		at   time.Time
	}{
		{"prune evidence", e.db.PruneEvidence, old},
		{"purge conversations", e.db.PurgeConversations, now.Add(-db.UndoWindow)},
		{"forget tombstones", e.db.ForgetTombstones, old},
		{"purge uploads", e.db.PurgeUploads, now.Add(-e.o.Uploads)},
	} {
		for more := true; more && !e.Draining(); {
			var err error
			if more, err = step.do(ctx, step.at); err != nil {
				e.log.Error(step.what, "error", err)
				break
			}
		}
	}
}
