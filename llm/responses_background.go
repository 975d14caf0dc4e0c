package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"semel/chat"
)

// BackgroundResponses is Responses in background mode
// (https://developers.openai.com/api/docs/guides/background): the provider keeps
// each run, so that one whose line is lost is followed on another line. Once it
// knows the name of a run it posts nothing more, and hands out each byte of the
// answer once, over however many lines it came.
type BackgroundResponses struct {
	Responses
	every time.Duration // between two looks at a run
}

var (
	_ Reattacher = (*BackgroundResponses)(nil)
	_ Lister     = (*BackgroundResponses)(nil)
)

// Stream implements [Client]. Until the provider has named the run it is like that
// of [Responses].
func (p *BackgroundResponses) Stream(ctx context.Context, c Call, emit func(Piece)) (Answer, error) {
	r := newResponseRun(p.e.Key, c, emit)
	r.started = c.Started
	done, err := p.dispatch(ctx, r, true)
	switch {
	case !done && r.upstream != "":
		err = p.follow(ctx, r)
	case !done:
		err = r.unfinished(ctx, err)
	}
	return r.concluded(err)
}

// Reattach implements [Reattacher]. Whatever fails, its outcome is unknown unless
// the provider says what came of the run.
func (p *BackgroundResponses) Reattach(ctx context.Context, c Call, upstreamID string, emit func(Piece)) (Answer, error) {
	r := newResponseRun(p.e.Key, c, emit)
	r.upstream = upstreamID
	return r.concluded(p.follow(ctx, r))
}

// Cancel implements [Reattacher]. To cancel twice is no error; the provider refuses
// it for a run that has ended otherwise.
func (p *BackgroundResponses) Cancel(ctx context.Context, upstreamID string) error {
	resp, err := p.t.ask(ctx, http.MethodPost, p.run(upstreamID)+"/cancel", p.header(), p.e.Key)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (p *BackgroundResponses) run(id string) string {
	return under(p.e, "/responses/"+url.PathEscape(id))
}

// mostFailures is how often in a row a run is asked for in vain, with ever longer
// pauses: half a minute in all.
const mostFailures = 6

// errNoStream: this run is to be had by asking only, or from where nobody knows.
var errNoStream = errors.New("the run is not streamed from where it was left")

// follow brings a run that has a name to its end, which it returns. It streams from
// where the last line was left and looks at the run where that brings nothing new.
func (p *BackgroundResponses) follow(ctx context.Context, r *responseRun) error {
	streamed, failures := true, 0
	for {
		if streamed {
			heard := r.heard
			done, err := p.resume(ctx, r)
			switch {
			case done:
				return err
			case ctx.Err() != nil:
				return lost(ctx, err)
			case err == errNoStream:
				streamed = false
			case r.heard > heard:
				failures = 0
				continue
			}
		}
		done, err := p.look(ctx, r)
		switch {
		case done:
			return err
		case ctx.Err() != nil:
			return lost(ctx, err)
		case err == nil:
			failures = 0
			r.emit(Piece{}) // it goes on
		default:
			if failures++; failures == mostFailures {
				return lineLost(err)
			}
		}
		if err := rest(ctx, p.pause(failures, err)); err != nil {
			return lost(ctx, err)
		}
	}
}

// pause returns how long to wait before a run is asked for again, after so many
// failures in a row of which err is the last.
func (p *BackgroundResponses) pause(failures int, err error) time.Duration {
	wait := p.every << max(0, failures-1)
	if e, ok := errors.AsType[*Error](err); ok {
		wait = max(wait, min(e.RetryAfter, time.Minute))
	}
	return wait
}

// resume streams a run from behind the last event that was heard. done means that
// its end is known, by err or without.
func (p *BackgroundResponses) resume(ctx context.Context, r *responseRun) (done bool, err error) {
	at := p.run(r.upstream) + "?stream=true"
	if r.heard >= 0 {
		at += "&starting_after=" + strconv.FormatInt(r.heard, 10)
	}
	resp, err := p.t.ask(ctx, http.MethodGet, at, p.header(), p.e.Key)
	if err != nil {
		if forGood(err) {
			err = errNoStream // also when there is no such run: the look at it tells
		}
		return false, err
	}
	defer resp.Body.Close()
	r.resumed = true
	if done, err = r.read(resp.Body); err == errNotStreamed {
		err = errNoStream
	}
	return done, err
}

// look asks for the state of a run, and takes its answer when it has ended. An
// error without done means that nothing was learnt.
func (p *BackgroundResponses) look(ctx context.Context, r *responseRun) (done bool, err error) {
	resp, err := p.t.ask(ctx, http.MethodGet, p.run(r.upstream), p.header(), p.e.Key)
	if err != nil {
		if !forGood(err) {
			return false, err
		}
		e, _ := errors.AsType[*Error](err)
		if e.Status == http.StatusNotFound && r.frame != nil {
			return true, r.frame // it failed before it was kept
		}
		// That it cannot be asked for does not mean that it did not run.
		gone := &Error{Outcome: chat.OutcomeUnknown, Status: e.Status, Code: "run_unavailable", Detail: e.Detail, Err: err}
		if e.Status == http.StatusNotFound {
			gone.Code, gone.Detail = "run_forgotten", "The model's server does not know this run any more."
		}
		return true, gone
	}
	defer resp.Body.Close()
	text, err := readObject(resp.Body)
	if err != nil {
		return isFinal(err), err
	}
	var o responseObject
	if err := decode(text, &o); err != nil {
		return false, err
	}
	switch o.Status {
	case "queued", "in_progress":
		return false, nil
	case "completed", "incomplete", "failed", "cancelled":
		return r.end(o, o.Status, true)
	}
	return false, fmt.Errorf("the run has status %q", o.Status)
}

// forGood reports whether the same request would be refused again.
func forGood(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status/100 == 4 && e.Outcome == chat.OutcomeDefinite && !e.Transient
}

func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
