package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"semel/chat"
	"semel/db"
)

// futureSkew is how far ahead of us the time inside an id may lie.
const futureSkew = 10 * time.Minute

// An Ask is an intent as a client sent it, parsed.
type Ask struct {
	Key      chat.Key
	Kind     chat.Kind
	Content  string
	ParentID string // as sent
	Model    string // as sent; "" takes the conversation's
	Params   string // canonical JSON; "" when none was sent
	Source   chat.Source
	Trace    string // what the log knows this arrival by
	// Attachments are ids of what this user has uploaded.
	Attachments []string
	// Confirmed says that a person wants it run although a restore may have lost its
	// answer.
	Confirmed bool

	carried []chat.Attachment // what they name; what is unknown has no ID
}

func (a Ask) fingerprint() chat.Fingerprint {
	f := chat.Fields{Kind: a.Kind, Content: a.Content, ParentID: a.ParentID, Model: a.Model, Params: a.Params}
	for _, c := range a.carried {
		f.Attachments = append(f.Attachments, c.SHA256)
	}
	return f.Fingerprint()
}

// A Result says what became of an arrival. The request is as it is stored now; of
// one that has its answer, at least what [db.DB.LookUp] says.
type Result struct {
	Request  chat.Request
	Decision chat.Decision // first, joined, replayed or restarted
	waiting  time.Time     // as Waiting recorded it; zero when it did not
}

// Submit takes one arrival of an intent (contract, section 3). The first one is
// accepted durably before Submit returns; a repeat joins it, or is told its
// answer or failure; nothing is ever asked twice. A refusal is a *chat.Problem
// and, unless it says otherwise, stored nothing.
//
// The caller reports what it answered with Answered.
func (e *Engine) Submit(ctx context.Context, a Ask) (res Result, err error) {
	defer func() {
		if err == nil {
			e.noteArrival(res.Request, res.Decision, a.Source, a.Trace)
		}
	}()
	// Before the look for the id, because the fingerprint is of the bytes; what is
	// unknown matters only where the id is new.
	if len(a.Attachments) > 0 {
		if a.carried, err = e.db.Attachments(ctx, a.Key.UserID, a.Attachments); err != nil {
			return Result{}, err
		}
	}
	// An id that was made just now is most likely new. Its acceptance finds out whether it
	// is, so the look that costs a fifth of an acceptance is left out, until anything is
	// in its way: a repeat is never refused for what would refuse a new intent.
	look := !e.minted(a.Key)
	for collisions := 0; collisions < 3; {
		if look {
			r, err := e.db.LookUp(ctx, a.Key)
			switch {
			case err == nil:
				return e.repeat(ctx, r, a)
			case errors.Is(err, db.ErrGone):
				p := conversationGone(a.Key.RequestID)
				if r.ID != 0 { // accepted before its conversation was deleted
					e.noteArrival(r, chat.DecisionExpired, a.Source, a.Trace)
					e.Answered(Result{Request: r, Decision: chat.DecisionExpired}, a.Source, p.Status)
				}
				return Result{}, p
			case !errors.Is(err, db.ErrNotFound):
				return Result{}, err
			}
		}
		looked := look
		look = true
		p := e.admit(a)
		if p == nil {
			var err error
			if p, err = e.overspent(ctx, a.Key.UserID, a.Key.RequestID); err != nil {
				return Result{}, err
			}
		}
		if p != nil && looked {
			return Result{}, p
		}
		if p != nil {
			continue
		}
		other, p := e.reserve(a.Key)
		if p != nil {
			// No room for a new intent; but is it one? Its acceptance may have ended
			// since we looked.
			if r, err := e.db.LookUp(ctx, a.Key); err == nil {
				return e.repeat(ctx, r, a)
			}
			return Result{}, p
		}
		if other != nil {
			select {
			case <-other: // look again: what it stored, or whether it is our turn
				continue
			case <-ctx.Done():
				return Result{}, ctx.Err()
			}
		}
		r, err := e.accept(ctx, a)
		var refused *chat.Problem
		switch {
		case err == nil:
			return Result{Request: r, Decision: chat.DecisionFirst}, nil
		case errors.Is(err, db.ErrExists):
			e.giveBack(a.Key.UserID)
			collisions++
		case !looked && errors.As(err, &refused) && refused.Status < 500:
			e.giveBack(a.Key.UserID) // refused as a new intent; but is it one?
		default:
			return Result{}, err
		}
	}
	return Result{}, fmt.Errorf("request %s collides and is not found", a.Key.RequestID)
}

func problem(status int, code string, retry chat.Retry, requestID, format string, args ...any) *chat.Problem {
	p := chat.NewProblem(status, code, fmt.Sprintf(format, args...), retry)
	p.RequestID = requestID
	return &p
}

func attachmentUnknown(requestID string) *chat.Problem {
	return problem(422, "attachment_unknown", chat.RetryNewID, requestID,
		"An attachment is not here: it was never uploaded, or not sent for so long that it was removed. Upload it again and send this under a new id.")
}

func keyExpired(requestID string) *chat.Problem {
	return problem(412, "key_expired", chat.RetryNewID, requestID,
		"This ULID is older than what this server remembers, so it was not run. If it was never answered, send it under a new id.")
}

// diskFull refuses what would be begun on a full disk. What runs goes on.
func diskFull(requestID string) *chat.Problem {
	p := problem(507, "disk_full", chat.RetrySameID, requestID,
		"The disk of the server is full. Nothing was stored; ask again with the same id when there is room.")
	p.RetryAfter = 30 * time.Second
	return p
}

func restoredGap(requestID string) *chat.Problem {
	return problem(409, "restored_gap", chat.RetryExplicit, requestID,
		`This server was restored from a backup, and what it was asked in between is lost: this may have been answered. To run it all the same, send it again with "confirm": "restored".`)
}

func conversationGone(requestID string) *chat.Problem {
	return problem(410, "conversation_gone", chat.RetryNever, requestID,
		"The conversation was deleted. Ask in another one, under a new request id.")
}

// repeat answers an arrival of a known id: first the fingerprint, then the state.
func (e *Engine) repeat(ctx context.Context, r chat.Request, a Ask) (Result, error) {
	if fp := a.fingerprint(); !fp.Equal(r.Fingerprint) {
		p := problem(422, "key_reused", chat.RetryNewID, r.Key.RequestID,
			"This request id was accepted with another %s. Send this under a new id.", strings.Join(fp.Differ(r.Fingerprint), ", "))
		p.Fields, p.Attempt = fp.Differ(r.Fingerprint), &r.Attempt
		e.noteArrival(r, chat.DecisionConflict, a.Source, a.Trace)
		e.Answered(Result{Request: r, Decision: chat.DecisionConflict}, a.Source, p.Status)
		return Result{}, p
	}
	switch {
	case r.State.Answered():
		return Result{Request: r, Decision: chat.DecisionReplayed}, nil
	case r.State.Live():
		e.adopt(r)
		return Result{Request: r, Decision: chat.DecisionJoined}, nil
	case r.Failure.Retry != chat.RetryAuto:
		return Result{Request: r, Decision: chat.DecisionReplayed}, nil
	}
	return e.restart(ctx, r, db.Restart{Reason: db.ReasonRestarted, Actor: actor(r)})
}

func actor(r chat.Request) string { return fmt.Sprintf("user:%d", r.Key.UserID) }

// adopt tracks a stored request that waits and that nobody has in care: the write
// that made it wait was reported as open and is stored all the same.
func (e *Engine) adopt(r chat.Request) {
	if r.State == chat.StatePending && !e.Draining() {
		e.track(r)
	}
}

// admit returns why a new intent is not accepted, nil when it may be.
func (e *Engine) admit(a Ask) *chat.Problem {
	now := time.Now()
	at, timed := chat.IDTime(a.Key.RequestID)
	if timed && e.clock.trusted(now) == nil && at.After(now.Add(futureSkew)) {
		return problem(400, "key_from_future", chat.RetryNewID, a.Key.RequestID,
			"The time inside this ULID is %s ahead of the server's. Set the clock by the Date header and send a new id.", at.Sub(now).Round(time.Second))
	}
	if timed && !at.After(e.db.PurgeHorizon()) { // acceptance looks again, when its turn comes
		return keyExpired(a.Key.RequestID)
	}
	if !a.Confirmed && e.db.Lost(a.Key.RequestID, now) {
		return restoredGap(a.Key.RequestID)
	}
	if e.o.Full != nil && e.o.Full() {
		return diskFull(a.Key.RequestID)
	}
	if a.Model != "" && e.model(a.Model) == nil {
		return problem(422, "model_unknown", chat.RetryNewID, a.Key.RequestID, "There is no model %q here. GET /api/models lists them.", a.Model)
	}
	bytes := int64(0)
	for _, c := range a.carried {
		if bytes += c.Bytes; c.ID == "" {
			return attachmentUnknown(a.Key.RequestID)
		}
	}
	if bytes > e.o.AttachedBytes {
		return problem(413, "attachments_too_large", chat.RetryNewID, a.Key.RequestID,
			"The attachments have %d bytes together; limits.attached_bytes allows %d for a question.", bytes, e.o.AttachedBytes)
	}
	return nil
}

// accept stores a new intent, whose place is reserved, and lets it wait for its
// turn.
func (e *Engine) accept(ctx context.Context, a Ask) (chat.Request, error) {
	defer e.unreserve(a.Key)
	parent, ok := int64(0), true
	if a.Kind != chat.KindMessage {
		parent, ok = chat.ParseMessageID(a.Key.SessionID, a.ParentID)
	}
	var r chat.Request
	err := db.ErrParent
	if ok {
		// Not the arrival's context: from its turn on the write is not taken back,
		// and whoever hung up asks again with the same id.
		r, err = e.db.Accept(context.WithoutCancel(ctx), db.Submission{
			Key: a.Key, Kind: a.Kind, Fingerprint: a.fingerprint(), Content: a.Content, ParentSeq: parent,
			Title: db.TitleOf(a.Content, a.carried), Model: a.Model, Default: e.Models()[0].Name, Params: a.Params, Price: e.price, Source: a.Source,
			Attachments: a.carried, Images: e.takesImages,
		})
		r.Key = a.Key
	}
	if err == nil {
		e.clock.saw(r.CreatedAt)
		e.track(r)
		e.publish(r)
		return r, nil
	}
	if errors.Is(err, db.ErrExists) {
		return r, err
	}
	return r, e.storageProblem(a.Key.RequestID, err)
}

// storageProblem says what a failed write means to the client.
func (e *Engine) storageProblem(requestID string, err error) error {
	var unknownModel db.ErrModel
	var blind db.ErrImages
	switch {
	case errors.Is(err, db.ErrGone):
		return conversationGone(requestID)
	case errors.Is(err, db.ErrExpired):
		return keyExpired(requestID)
	case errors.Is(err, db.ErrDisabled):
		return problem(401, "signed_out", chat.RetrySameID, requestID, "The account was disabled.")
	case errors.Is(err, db.ErrParent):
		return problem(422, "parent_not_found", chat.RetryNewID, requestID,
			"parentId names no message of this conversation that this can follow.")
	case errors.As(err, &unknownModel):
		return problem(422, "model_unknown", chat.RetryNewID, requestID,
			"The conversation's model %q is no longer configured. Name another one.", unknownModel.Name)
	case errors.Is(err, db.ErrAttachment):
		return attachmentUnknown(requestID)
	case errors.As(err, &blind):
		return problem(422, "images_not_taken", chat.RetryNewID, requestID,
			"The model %q takes no images. Remove them, or name another model.", blind.Model)
	case errors.Is(err, db.ErrOutcomeOpen):
		e.log.Error("outcome of a commit is open", "request_id", requestID, "error", err)
		return later(problem(503, "outcome_open", chat.RetrySameID, requestID,
			"The database did not say whether this was stored. Ask again with the same id: it is run once."))
	case db.IsRetryable(err) || errors.Is(err, db.ErrClosed):
		e.log.Error("not stored", "request_id", requestID, "error", err)
		return later(problem(503, "storage_failed", chat.RetrySameID, requestID,
			"The database cannot be written now. Ask again with the same id."))
	}
	return err
}

func later(p *chat.Problem) *chat.Problem {
	p.RetryAfter = 2 * time.Second
	return p
}

func (e *Engine) price(name string) (chat.Price, bool) {
	m := e.model(name)
	if m == nil {
		return chat.Price{}, false
	}
	return m.Price, true
}

func (e *Engine) takesImages(name string) bool {
	m := e.model(name)
	return m != nil && !m.NoImages
}

// reserve makes sure that a new intent has a place to wait, and that only one
// arrival of it is being accepted: a repeat is never refused for lack of room, nor
// counted against its user, not even one that comes while the first is being
// stored. It returns what closes when that one is decided, a problem, or neither:
// then the caller accepts, which gives the place back.
func (e *Engine) reserve(k chat.Key) (other <-chan struct{}, _ *chat.Problem) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if first := e.accepting[k]; first != nil {
		return first, nil
	}
	if p := e.full(k.RequestID); p != nil {
		return nil, p
	}
	if !e.allowed(k.UserID) {
		p := problem(429, "rate_limited", chat.RetrySameID, k.RequestID,
			"limits.per_user_per_minute: more than %d new questions in a minute. Nothing was stored; ask again with the same id.", e.o.PerUserPerMinute)
		p.RetryAfter = time.Duration(float64(time.Minute) / float64(e.o.PerUserPerMinute)).Round(time.Second)
		p.RetryAfter = max(p.RetryAfter, time.Second)
		return nil, p
	}
	e.accepting[k] = make(chan struct{})
	e.recent.add(k)
	return nil, nil
}

// full returns why nothing more may wait, nil when it may. e.mu is held.
func (e *Engine) full(requestID string) *chat.Problem {
	switch {
	case e.draining:
		return later(problem(503, "shutting_down", chat.RetrySameID, requestID, "The server is stopping. Ask again with the same id."))
	case e.sched.waiting+len(e.accepting) >= e.o.Queue:
		return later(problem(503, "overloaded", chat.RetrySameID, requestID,
			"limits.queue: %d questions are waiting already. Nothing was stored; ask again with the same id.", e.o.Queue))
	}
	return nil
}

// unreserve gives the place back, and tells whoever waits for it.
func (e *Engine) unreserve(k chat.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.accepting[k])
	delete(e.accepting, k)
}

// allowed takes one new intent from a user's allowance. e.mu is held.
func (e *Engine) allowed(user int64) bool {
	if e.o.PerUserPerMinute <= 0 {
		return true
	}
	l := e.limiters[user]
	if l == nil {
		l = &limiter{Limiter: rate.NewLimiter(rate.Limit(float64(e.o.PerUserPerMinute)/60), e.o.PerUserPerMinute)}
		e.limiters[user] = l
	}
	l.used = time.Now()
	return l.AllowN(l.used, 1)
}

// giveBack undoes allowed for an intent that was none.
func (e *Engine) giveBack(user int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.limiters[user]; l != nil {
		l.AllowN(l.used, -1) // a limiter has no other way to take a token back
	}
}

// restart moves a failed request back to pending. Of two callers that saw the
// same attempt one starts it and the other joins.
func (e *Engine) restart(ctx context.Context, r chat.Request, s db.Restart) (Result, error) {
	e.mu.Lock()
	p := e.full(r.Key.RequestID)
	e.mu.Unlock()
	if p == nil && e.o.Full != nil && e.o.Full() {
		p = diskFull(r.Key.RequestID)
	}
	if p != nil {
		return Result{}, p
	}
	n, err := e.db.Restart(context.WithoutCancel(ctx), r, s)
	switch {
	case err == nil:
		e.trackRestarted(n)
		e.publish(n)
		return Result{Request: n, Decision: chat.DecisionRestarted}, nil
	case errors.Is(err, db.ErrFenced):
		n, err := e.db.Find(ctx, r.Key)
		if err != nil {
			return Result{}, e.storageProblem(r.Key.RequestID, err)
		}
		e.adopt(n)
		return Result{Request: n, Decision: joinedOrReplayed(n)}, nil
	}
	return Result{}, e.storageProblem(r.Key.RequestID, err)
}

func joinedOrReplayed(r chat.Request) chat.Decision {
	if r.State.Live() {
		return chat.DecisionJoined
	}
	return chat.DecisionReplayed
}

// An Again is a person's wish to ask a failed request once more.
type Again struct {
	Key     chat.Key
	Attempt int64  // the one the person saw: a stale one joins what is there
	Model   string // "" keeps the model
	// Confirmed says that the person knows that a restore may have lost an answer.
	Confirmed bool
	Deed      *db.Deed // of a person of operations, written down; nil where its owner asks
}

// Retry starts a failed request again for a person. Errors: [db.ErrNotFound],
// [db.ErrGone], [db.ErrKeyReused], and problems.
func (e *Engine) Retry(ctx context.Context, a Again) (res Result, err error) {
	defer func() {
		if err == nil {
			e.noteArrival(res.Request, res.Decision, "", "")
		}
	}()
	k, model, deed := a.Key, a.Model, a.Deed
	r, err := e.db.Find(ctx, k)
	if err != nil {
		return Result{}, err
	}
	if r.State != chat.StateFailed || r.Attempt != a.Attempt {
		e.adopt(r)
		return Result{Request: r, Decision: joinedOrReplayed(r)}, nil
	}
	if !a.Confirmed {
		// This may be a copy of a retry that the file has forgotten, with its answer.
		switch lost, err := e.db.RetryLost(ctx, r); {
		case err != nil:
			return Result{}, err
		case lost:
			return Result{}, restoredGap(k.RequestID)
		}
	}
	s := db.Restart{Reason: db.ReasonExplicit, Actor: actor(r), Model: model, Deed: deed}
	if deed != nil {
		s.Actor = deed.Actor
	}
	name := model
	if name == "" {
		name = r.Model
	}
	m := e.model(name)
	if m == nil {
		return Result{}, problem(422, "model_unknown", chat.RetryExplicit, k.RequestID,
			"There is no model %q here. Name another one.", name)
	}
	s.Price = m.Price
	return e.restart(ctx, r, s)
}

// Stop is a person's wish to end the answer to a request. attempt names the one
// the person saw, 0 whichever is there; a stop meant for an older attempt changes
// nothing, and from acknowledged on nothing does. The stop is durable before it
// acts. Stop returns the request as it is then; a running call is cancelled
// within a second.
func (e *Engine) Stop(ctx context.Context, k chat.Key, attempt int64) (chat.Request, error) {
	return e.StopByHand(ctx, k, attempt, nil)
}

// StopByHand is Stop for a person of operations, whose deed is written down where there
// is something to stop.
func (e *Engine) StopByHand(ctx context.Context, k chat.Key, attempt int64, deed *db.Deed) (chat.Request, error) {
	ctx = context.WithoutCancel(ctx)
	for {
		r, err := e.db.Find(ctx, k)
		if err != nil {
			return r, err
		}
		r, err = e.stop(ctx, r, attempt, deed)
		if errors.Is(err, db.ErrFenced) {
			continue // it moved on between the look and the write: look again
		}
		if err != nil {
			err = e.storageProblem(k.RequestID, err)
		}
		return r, err
	}
}

func (e *Engine) stop(ctx context.Context, r chat.Request, attempt int64, deed *db.Deed) (chat.Request, error) {
	if !r.State.Live() || (attempt != 0 && attempt != r.Attempt) {
		return r, nil
	}
	l := e.Live(r.ID) // before the write: after it, another may have restarted the request
	n, err := r, error(nil)
	switch f := stoppedFailure(chat.OutcomeNone); {
	case deed != nil:
		n, err = e.db.StopByHand(ctx, r, f, *deed)
	case r.State == chat.StatePending:
		n, err = e.db.FailWaiting(ctx, r, actor(r), f)
	default:
		err = e.db.RequestStop(ctx, r)
	}
	if errors.Is(err, db.ErrDone) { // and maybe cut off before it acted
		if n, err = e.db.Load(ctx, r.ID); err == nil && (!n.StopRequested || n.StopAttempt != r.Attempt) {
			return n, nil
		}
	}
	if err != nil {
		return r, err
	}
	if r.State == chat.StatePending {
		e.release(l, n)
		return n, nil
	}
	if l := e.Live(r.ID); l != nil {
		l.stop(r.Attempt, errStopped)
		wait, cancel := context.WithTimeout(ctx, stopWait)
		defer cancel()
		_ = e.Wait(wait, r.ID) // the record says how far it got
	}
	return e.db.Load(ctx, r.ID)
}

// stopWait is how long a stop waits for the end of the call it cancelled, so that
// its answer shows it.
const stopWait = 2 * time.Second

func stoppedFailure(o chat.Outcome) chat.Failure {
	return chat.Failure{Code: "stopped", Outcome: o, Retry: chat.RetryExplicit, Detail: "A person stopped it before there was text."}
}

// StopDisabled stops every run of a user who is disabled, as a person's stop would
// (contract, section 4).
func (e *Engine) StopDisabled(ctx context.Context) error {
	list, err := e.db.UnfinishedOfDisabled(ctx)
	if err != nil {
		return err
	}
	var stops sync.WaitGroup
	errs := make([]error, len(list))
	for i, r := range list {
		stops.Go(func() { // each waits for the end of its call
			if _, err := e.Stop(ctx, r.Key, 0); err != nil && !errors.Is(err, db.ErrGone) && !errors.Is(err, db.ErrNotFound) {
				errs[i] = err
			}
		})
	}
	stops.Wait()
	return errors.Join(errs...)
}

// DeleteConversation deletes a conversation and stops its runs. Doing it twice is
// no error and stops what is left.
func (e *Engine) DeleteConversation(ctx context.Context, user int64, session string) error {
	stopped, err := e.db.DeleteConversation(context.WithoutCancel(ctx), user, session)
	if err != nil {
		return e.storageProblem("", err)
	}
	e.hub.publish(user, Event{Type: "conversation", SessionID: session})
	for _, r := range stopped {
		switch l := e.Live(r.ID); {
		case l == nil:
		case r.State == chat.StateGenerating:
			l.stop(r.Attempt, errStopped)
		default:
			e.release(l, r)
		}
	}
	return nil
}

// Changed tells the feeds of a user that a conversation changed.
func (e *Engine) Changed(user int64, session string) {
	e.wantIndex() // it may have another title
	e.hub.publish(user, Event{Type: "conversation", SessionID: session})
}
