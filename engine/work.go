package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"semel/chat"
	"semel/db"
	"semel/llm"
)

// work takes a job through one attempt. It is the only place that calls a model.
func (e *Engine) work(j *job) {
	defer e.workers.Done()
	again := e.attempt(j)
	e.mu.Lock()
	defer e.mu.Unlock()
	var next *job
	if again {
		next = e.newJob(j.r, j.live)
		next.strikes = j.strikes
	}
	e.sched.done(j, next)
}

// attempt claims the job, calls the model and makes the outcome durable. It
// reports whether the job waits for another attempt.
func (e *Engine) attempt(j *job) (again bool) {
	ctx := context.Background() // never the arrival's: a closed tab cancels nothing
	if j.model == e.gone {
		return e.modelGone(ctx, j)
	}
	e.meter.Began()
	defer e.meter.Ended()
	var turns []int64
	var err error
	r := j.r
	if j.run == "" {
		if r, turns, err = e.claim(ctx, j); err != nil {
			return e.notClaimed(ctx, j, err)
		}
	}
	j.strikes = 0
	call, cancel := context.WithCancelCause(e.base)
	defer cancel(nil)
	j.r = r
	j.live.begin(r, cancel)
	e.publish(r)
	w := &worker{e: e, j: j, cancel: cancel}
	if j.run != "" {
		if turns, err = e.db.FrozenContext(ctx, r.ID); err == nil {
			err = w.resume(ctx)
		}
	}
	var prompt llm.Call
	if err == nil {
		prompt, err = e.prompt(ctx, r, j.model.Model, turns)
	}
	var a llm.Answer
	switch {
	case err != nil && j.run != "":
		err = &llm.Error{Outcome: chat.OutcomeUnknown, Code: "interrupted", Err: err}
	case err != nil:
		e.meter.NotCalled()
		err = &llm.Error{Outcome: chat.OutcomeNone, Code: "internal", Err: err}
	case call.Err() != nil && j.run == "":
		e.meter.NotCalled()
		err = &llm.Error{Outcome: chat.OutcomeNone, Code: "interrupted", Err: context.Cause(call)} // before it was dispatched
	default:
		a, err = w.call(call, prompt)
	}
	if e.o.Stall != nil {
		e.o.Stall(r)
	}
	return w.settle(ctx, prompt, a, err, context.Cause(call))
}

func (e *Engine) claim(ctx context.Context, j *job) (chat.Request, []int64, error) {
	c := db.Claim{Request: j.r, Owner: e.life, Lease: e.o.Lease, ContextLimit: j.model.Context}
	r, turns, err := e.db.Claim(ctx, c)
	if err == nil || !errors.Is(err, db.ErrOutcomeOpen) {
		return r, turns, err
	}
	// Nobody was called yet, so there is time to ask the file what it has, until it
	// says: a claim that is stored and that nobody knows of would hold its request.
	e.log.Error("outcome of a claim is open", "request_id", j.r.Key.RequestID, "error", err)
	for n := 0; ; n++ {
		now, lerr := e.db.Load(ctx, j.r.ID)
		if lerr == nil && (now.State != chat.StateGenerating || now.Owner != e.life || now.Attempt != j.r.Attempt+1) {
			return r, nil, err
		}
		if lerr == nil {
			if turns, lerr = e.db.FrozenContext(ctx, now.ID); lerr == nil {
				return now, turns, nil
			}
		}
		if !e.pause(n) {
			return r, nil, err
		}
	}
}

// pause waits before the next try of something that must succeed; false when the
// process is stopping.
func (e *Engine) pause(n int) bool {
	select {
	case <-time.After(backoff(min(n, 5), 100*time.Millisecond, 3*time.Second)):
		return true
	case <-e.base.Done():
		return false
	}
}

// notClaimed says what happens to a job whose claim failed.
func (e *Engine) notClaimed(ctx context.Context, j *job, err error) (again bool) {
	if errors.Is(err, db.ErrFenced) {
		// Stopped between its turn and its claim.
		if now, err := e.db.Load(ctx, j.r.ID); err == nil {
			if now.State == chat.StatePending {
				j.r = now
				return true
			}
			if !now.State.Live() {
				e.release(j.live, now)
				return false
			}
		}
		// Another job runs it, or the reaper finds it in nobody's care.
		e.log.Error("a claim was fenced by nobody we know", "request_id", j.r.Key.RequestID)
		return false
	}
	if !errors.Is(err, db.ErrNotYourTurn) {
		e.log.Error("claim", "request_id", j.r.Key.RequestID, "error", err)
		passes := errors.Is(err, db.ErrOutcomeOpen) || errors.Is(err, db.ErrClosed) || db.IsRetryable(err)
		if j.strikes++; !passes && j.strikes >= claimStrikes {
			// It will never be claimed: it ends here, or it would hold up its
			// conversation for ever.
			r, ferr := e.db.FailWaiting(ctx, j.r, "worker:"+e.life, chat.Failure{
				Code: "internal", Outcome: chat.OutcomeNone, Retry: chat.RetryExplicit, Detail: "It could not be started; the log says why.",
			})
			if ferr == nil {
				e.release(j.live, r)
				return false
			}
			e.log.Error("a request that cannot be claimed cannot be failed", "request_id", j.r.Key.RequestID, "error", ferr)
		}
	}
	j.r.RetryAt = time.Now().Add(time.Second)
	return true
}

// claimStrikes is how often a claim may fail for a reason that does not pass.
const claimStrikes = 5

func (e *Engine) modelGone(ctx context.Context, j *job) (again bool) {
	r, err := e.db.FailWaiting(ctx, j.r, "worker:"+e.life, chat.Failure{
		Code: "model_gone", Outcome: chat.OutcomeNone, Retry: chat.RetryExplicit,
		Detail: fmt.Sprintf("The model %q is no longer configured. Ask again with another one.", j.r.Model),
	})
	if err != nil {
		return e.notClaimed(ctx, j, err)
	}
	e.release(j.live, r)
	return false
}

// prompt builds the call from the frozen context.
func (e *Engine) prompt(ctx context.Context, r chat.Request, m Model, seqs []int64) (llm.Call, error) {
	c := llm.Call{RequestID: r.Key.RequestID, Attempt: r.Attempt, Model: m.Upstream, Tools: e.tools}
	if err := json.Unmarshal([]byte(r.Params), &c.Params); err != nil {
		return c, fmt.Errorf("params of request %d: %w", r.ID, err)
	}
	if r.SystemPrompt != "" {
		c.Turns = append(c.Turns, llm.Turn{Role: "system", Content: r.SystemPrompt})
	}
	msgs, err := e.db.Turns(ctx, r.ConversationID, seqs)
	if err != nil {
		return c, err
	}
	for _, msg := range msgs {
		t := llm.Turn{Role: msg.Role, Content: msg.Content}
		for _, a := range msg.Attachments {
			f := llm.File{Name: a.Name, MediaType: a.MediaType, Tokens: a.Tokens}
			// An image of an earlier turn, or of a question that was asked of another model
			// first, goes to one that reads text only as its name.
			if !a.Image() || !m.NoImages {
				if f.Data, err = e.db.Content(ctx, a.SHA256); err != nil {
					return c, fmt.Errorf("attachment %s of message %d: %w", a.ID, msg.Seq, err)
				}
			}
			t.Files = append(t.Files, f)
		}
		c.Turns = append(c.Turns, t)
	}
	if len(msgs) == 0 {
		return c, fmt.Errorf("request %d has nothing to send", r.ID)
	}
	// Continue, or another try at a continuation: either way the last word is an
	// answer to go on with.
	c.Continue = c.Turns[len(c.Turns)-1].Role == "assistant"
	return c, nil
}

// A worker looks after one call: its heartbeat, its partial text, its timeouts.
type worker struct {
	e      *Engine
	j      *job
	cancel context.CancelCauseFunc
	stored int  // bytes of text in partials
	thunk  int  // bytes of reasoning in partials
	pieces bool // there is something in partials, or may be
	unsure bool // a write of partials was reported as open: the file knows how much it has

	known db.Partial             // what an earlier worker of this attempt had stored
	run   atomic.Pointer[string] // the provider's name of the run, once it told
}

type outcome struct {
	answer llm.Answer
	err    error
}

// abandonAfter is how long a cancelled client may take to return; what it says
// later is not heard.
const abandonAfter = time.Second

// call dispatches the prompt and waits for its end. A client that does not return
// after it was cancelled is left alone.
func (w *worker) call(ctx context.Context, c llm.Call) (llm.Answer, error) {
	e, l := w.e, w.j.live
	attempt := c.Attempt
	defer l.seal(attempt)
	r := w.j.r // it moves on when the call is left alone
	ended := make(chan outcome, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				ended <- outcome{err: &llm.Error{Outcome: chat.OutcomeUnknown, Code: "internal", Err: fmt.Errorf("panic in the model client: %v", v)}}
			}
		}()
		a, err := w.dispatch(ctx, r, c)
		ended <- outcome{a, err}
	}()
	beat := time.NewTicker(e.o.Heartbeat)
	defer beat.Stop()
	flush := time.NewTicker(e.o.PartialEvery)
	defer flush.Stop()
	cancelled := ctx.Done()
	var abandon <-chan time.Time
	for {
		select {
		case o := <-ended:
			return o.answer, o.err
		case <-cancelled:
			cancelled = nil
			abandon = time.After(abandonAfter)
		case <-abandon:
			return llm.Answer{}, fmt.Errorf("the client did not return after it was cancelled: %w", context.Cause(ctx))
		case <-beat.C:
			if abandon == nil {
				w.heartbeat()
			}
		case <-flush.C:
			if abandon == nil {
				w.flush()
				w.judgeSilence()
			}
		}
	}
}

// heartbeat extends the lease. A lost one ends the call; a database that cannot
// be written now is not a lost lease.
func (w *worker) heartbeat() {
	switch err := w.e.db.Heartbeat(context.Background(), w.j.r, w.e.o.Lease); {
	case err == nil:
		w.j.live.beat()
	case errors.Is(err, db.ErrFenced):
		w.cancel(errFenced)
	default:
		w.j.live.beat()
		w.e.log.Warn("heartbeat", "request_id", w.j.r.Key.RequestID, "error", err)
	}
}

// flush stores the text that came since the last time.
func (w *worker) flush() {
	if !w.sure() {
		return
	}
	p := w.tail()
	if p.Text == "" && p.Reasoning == "" {
		return
	}
	err := w.e.db.AppendPartial(context.Background(), w.j.r, p)
	switch {
	case err == nil:
		w.stored += len(p.Text)
		w.thunk += len(p.Reasoning)
		w.pieces = true
	case errors.Is(err, db.ErrFenced):
		w.cancel(errFenced)
	default:
		w.unsure = errors.Is(err, db.ErrOutcomeOpen)
		w.pieces = w.pieces || w.unsure
		w.e.log.Warn("partial text", "request_id", w.j.r.Key.RequestID, "error", err)
	}
}

// sure finds out how much text is stored, when a write of it was reported as
// open: a piece must not be stored twice. It reports whether that is known.
func (w *worker) sure() bool {
	if !w.unsure {
		return true
	}
	p, err := w.e.db.PartialText(context.Background(), w.j.r.ID, w.j.r.Attempt)
	if err != nil {
		w.e.log.Warn("read partial text", "request_id", w.j.r.Key.RequestID, "error", err)
		return false
	}
	w.stored, w.thunk, w.unsure = len(p.Text), len(p.Reasoning), false
	return true
}

// tail is the text that is not stored yet.
func (w *worker) tail() db.Partial {
	l := w.j.live
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.request.Attempt != w.j.r.Attempt {
		return db.Partial{} // taken over; the buffers are another attempt's
	}
	return db.Partial{Text: string(l.text[w.stored:]), Reasoning: string(l.reasoning[w.thunk:]), FirstTokenAt: l.firstAt}
}

// judgeSilence ends a call whose provider has been silent for too long.
func (w *worker) judgeSilence() {
	l := w.j.live
	l.mu.Lock()
	silent, began := time.Since(l.lastAt), !l.firstAt.IsZero()
	l.mu.Unlock()
	switch {
	case !began && silent >= w.j.model.FirstTokenTimeout:
		w.cancel(errFirstToken)
	case began && silent >= w.j.model.IdleTimeout:
		w.cancel(errIdle)
	}
}

// settle makes the outcome of a call durable and tells whoever waits. It reports
// whether the job waits for another attempt.
func (w *worker) settle(ctx context.Context, c llm.Call, a llm.Answer, err, cause error) (again bool) {
	switch {
	case err == nil:
		return w.answer(ctx, db.Answer{
			Content: a.Content, Reasoning: a.Reasoning, ToolCalls: toolCalls(a.ToolCalls), Finish: a.Finish,
			UpstreamID: a.UpstreamID, Usage: sane(a.Usage), Outcome: chat.OutcomeOK, Reason: "answered",
			Decisions: w.e.decide(a),
		})
	case errors.Is(cause, errFenced):
		return w.fenced(ctx, false)
	case errors.Is(cause, errStopped):
		return w.stopped(ctx, c, outcomeOf(err))
	case errors.Is(cause, errShutdown):
		w.flush() // the next life decides, with the text so far
		w.e.log.Info("left to recovery", "request_id", w.j.r.Key.RequestID, "attempt", w.j.r.Attempt)
		return false
	case errors.Is(cause, errFirstToken):
		err = &llm.Error{Outcome: chat.OutcomeUnknown, Code: "first_token_timeout",
			Detail: fmt.Sprintf("Nothing came within first_token_timeout (%s).", w.j.model.FirstTokenTimeout), Err: err}
	case errors.Is(cause, errIdle):
		err = &llm.Error{Outcome: chat.OutcomeUnknown, Code: "idle_timeout",
			Detail: fmt.Sprintf("Nothing more came within idle_timeout (%s).", w.j.model.IdleTimeout), Err: err}
	}
	le := classified(err)
	w.e.log.Warn("attempt failed", "request_id", w.j.r.Key.RequestID, "attempt", w.j.r.Attempt,
		"outcome", le.Outcome, "code", le.Code, "status", le.Status, "error", le.Err)
	return w.failed(ctx, c, le)
}

// classified returns err as an *llm.Error with an outcome there is: whatever a
// client leaves open, nobody knows.
func classified(err error) *llm.Error {
	var le *llm.Error
	if !errors.As(err, &le) {
		return &llm.Error{Outcome: chat.OutcomeUnknown, Code: "line_lost", Err: err}
	}
	switch le.Outcome {
	case chat.OutcomeNone, chat.OutcomeDefinite, chat.OutcomeUnknown:
		return le
	}
	c := *le
	c.Outcome = chat.OutcomeUnknown
	return &c
}

func outcomeOf(err error) chat.Outcome { return classified(err).Outcome }

// answer stores the one answer. A database that is full or locked keeps the
// answer in memory until it can be written: the model is not called again.
func (w *worker) answer(ctx context.Context, a db.Answer) (again bool) {
	a.Actor, a.HasPartials, a.FirstTokenAt = "worker:"+w.e.life, w.pieces, w.tail().FirstTokenAt
	a.Declared, a.ChargeTo, a.Currency = w.e.o.Actions, w.e.o.ChargeTo, w.e.o.Currency
	if w.j.run == "" && a.Reasoning != "" { // a run that was taken over began in another life
		a.Thought = w.j.live.thought()
	}
	_, err := w.persist(ctx, func() (chat.Request, error) { return w.e.finish(ctx, w.j.r, a) })
	if err == nil {
		if len(a.Decisions) > 0 || a.ChargeTo != "" {
			w.e.relay.want()
		}
		return false
	}
	// The database will never take this answer. A person decides; asking the model
	// again would cost again and end the same way.
	w.e.log.Error("an answer cannot be stored", "request_id", w.j.r.Key.RequestID, "error", err)
	end := w.end(chat.OutcomeUnknown, "internal", a.Usage, true)
	_, err = w.persist(ctx, func() (chat.Request, error) {
		return w.e.fail(ctx, w.j.r, end, chat.Failure{
			Code: "internal", Outcome: chat.OutcomeUnknown, Retry: chat.RetryExplicit, Detail: "The answer could not be stored.",
		})
	})
	w.unstored(err)
	return false
}

// unstored logs that an end cannot be stored: the reaper finds the request in
// nobody's care.
func (w *worker) unstored(err error) {
	if err != nil {
		w.e.log.Error("an end cannot be stored", "request_id", w.j.r.Key.RequestID, "attempt", w.j.r.Attempt, "error", err)
	}
}

// stopped ends a call that a person stopped: what came is the answer. o is what is
// known of the call.
func (w *worker) stopped(ctx context.Context, c llm.Call, o chat.Outcome) (again bool) {
	if run := w.runName(); run != "" {
		w.e.workers.Go(func() { w.e.cancelRun(w.j.model, w.j.r, run) })
	}
	text, reasoning := w.text()
	u := llm.Estimate(c, text, reasoning)
	if text != "" {
		return w.answer(ctx, db.Answer{
			Content: text, Reasoning: reasoning, ToolCalls: "[]", Finish: chat.FinishStopped, Usage: u,
			Outcome: chat.OutcomeStopped, Reason: "stopped",
		})
	}
	end := w.end(chat.OutcomeStopped, "stopped", u, o == chat.OutcomeUnknown)
	_, err := w.persist(ctx, func() (chat.Request, error) { return w.e.fail(ctx, w.j.r, end, stoppedFailure(o)) })
	w.unstored(err)
	return false
}

func (w *worker) text() (text, reasoning string) {
	v := w.j.live.View()
	if v.Request.Attempt != w.j.r.Attempt {
		return "", ""
	}
	return string(v.Text), string(v.Reasoning)
}

func (w *worker) end(o chat.Outcome, code string, u chat.Usage, waste bool) db.End {
	for n := 0; !w.sure() && w.e.pause(n); n++ {
	}
	t := w.tail()
	return db.End{Outcome: o, Code: code, Usage: u, Waste: waste, FirstTokenAt: t.FirstTokenAt, Tail: t, Actor: "worker:" + w.e.life}
}

// failed decides by contract section 4 what a classified error means.
func (w *worker) failed(ctx context.Context, c llm.Call, le *llm.Error) (again bool) {
	text, reasoning := w.text()
	v := verdict(w.j.r, w.j.model.Model, le, text != "" || reasoning != "")
	end := w.end(le.Outcome, le.Code, llm.Estimate(c, text, reasoning), v.waste)
	again, err := w.persist(ctx, func() (chat.Request, error) {
		if !v.retry {
			return w.e.fail(ctx, w.j.r, end, v.failure)
		}
		return w.e.requeue(ctx, w.j.r, end, time.Now().Add(v.wait), v.reason, v.refused, w.j.r.Crashes)
	})
	if errors.Is(err, db.ErrStopRequested) {
		return w.stopped(ctx, c, le.Outcome)
	}
	w.unstored(err)
	return again
}

// persist repeats a write until it is stored or somebody else has decided, and
// tells whoever waits how the request stands. It reports whether the request is
// pending; an error says that the write will never be stored as it is.
func (w *worker) persist(ctx context.Context, write func() (chat.Request, error)) (pending bool, err error) {
	for n := 0; ; n++ {
		r, err := write()
		if err == nil {
			w.e.trouble.Store(nil)
			return w.tell(r), nil
		}
		if errors.Is(err, db.ErrFenced) {
			w.e.trouble.Store(nil) // it can be written
			return w.fenced(ctx, n > 0), nil
		}
		if !errors.Is(err, db.ErrOutcomeOpen) && !db.IsRetryable(err) {
			return false, err
		}
		trouble := "the database cannot be written: " + err.Error()
		w.e.trouble.Store(&trouble)
		w.e.log.Error("an outcome is not stored yet", "request_id", w.j.r.Key.RequestID, "try", n+1, "error", err)
		w.j.live.beat() // the answer is here: nobody may take it over
		if !w.e.pause(n) {
			return false, nil
		}
	}
}

// fenced ends a worker whose request is not as it believed. Somebody else has
// decided, and nothing is written; or it was its own write, whose commit was
// reported as open. It reports whether the request is pending by that.
func (w *worker) fenced(ctx context.Context, mayBeOurs bool) (pending bool) {
	w.e.log.Warn("fenced", "request_id", w.j.r.Key.RequestID, "attempt", w.j.r.Attempt)
	for n := 0; ; n++ {
		now, err := w.e.db.Load(ctx, w.j.r.ID)
		switch {
		case err == nil && !now.State.Live():
			w.e.release(w.j.live, now)
			return false
		case err == nil && mayBeOurs && now.State == chat.StatePending && now.Attempt == w.j.r.Attempt:
			return w.tell(now)
		case err == nil || errors.Is(err, db.ErrNotFound):
			return false // whoever has it tells
		}
		if !w.e.pause(n) {
			return false
		}
	}
}

// tell updates viewers; a request that waits again keeps its Live.
func (w *worker) tell(r chat.Request) (pending bool) {
	if r.State.Live() {
		w.j.r = r
		w.j.live.update(r, false)
		w.e.publish(r)
		return true
	}
	w.e.release(w.j.live, r)
	return false
}

// sane keeps a provider's count within what money can be computed from.
func sane(u chat.Usage) chat.Usage {
	const most = 1 << 40
	u.InputTokens = min(max(u.InputTokens, 0), most)
	u.OutputTokens = min(max(u.OutputTokens, 0), most)
	u.CachedTokens = min(max(u.CachedTokens, 0), u.InputTokens)
	return u
}

// decide says what follows from the actions that an answer asks for.
func (e *Engine) decide(a llm.Answer) []chat.ActionDecision {
	calls := make([]chat.ToolCall, len(a.ToolCalls))
	for i, t := range a.ToolCalls {
		calls[i] = chat.ToolCall(t)
	}
	return e.o.Actions.Decide(calls, a.Finish)
}

// toolsOf is how actions are offered to models.
func toolsOf(d *chat.Declarations) (tools []llm.Tool) {
	for _, a := range d.Actions() {
		tools = append(tools, llm.Tool{Name: a.Name, Description: a.Describe("en"), Parameters: string(a.Parameters)})
	}
	return tools
}

func toolCalls(list []llm.ToolCall) string {
	if len(list) == 0 {
		return "[]"
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic(err) // three strings
	}
	return string(b)
}
