package engine

import (
	"context"
	"log/slog"
	"testing"

	"semel/chat"
)

// These are about who comes late, by microseconds: no test through the front door
// can be that late on purpose.

func TestALateWordOfAnOlderAttemptDoesNotOverwriteANewerOne(t *testing.T) {
	t.Parallel()
	l := newLive(chat.Request{Attempt: 2, State: chat.StateGenerating})
	l.update(chat.Request{Attempt: 1, State: chat.StatePending}, false)
	if v := l.View(); v.Request.Attempt != 2 || v.Request.State != chat.StateGenerating {
		t.Errorf("got attempt %d %s", v.Request.Attempt, v.Request.State)
	}
}

// idle is an engine that starts nothing and has no model.
func idle() *Engine {
	e := &Engine{log: slog.New(slog.DiscardHandler), lives: map[int64]*Live{}, hub: newHub(), gone: &model{pool: newPool()}}
	e.roster.Store(&roster{})
	e.sched = scheduler{e: e, conversations: map[int64]*conversation{}, running: map[int64]int{}, stopped: true}
	return e
}

func TestALateReleaseDoesNotEndARequestThatWasStartedAgain(t *testing.T) {
	t.Parallel()
	e := idle()
	failed := chat.Request{ID: 7, ConversationID: 1, Attempt: 1, State: chat.StateFailed}
	pending := chat.Request{ID: 7, ConversationID: 1, Attempt: 1, State: chat.StatePending}
	first := newLive(pending)
	e.lives[7] = first
	e.release(first, failed)
	e.track(pending) // a person asked again
	second := e.Live(7)
	e.release(first, failed) // and whoever stored the failure comes late
	if e.Live(7) != second || second.View().Over || !e.inCare(pending) {
		t.Error("the restarted request was ended")
	}
	second.request.Attempt = 2 // it runs
	e.release(second, failed)
	if e.Live(7) != second || second.View().Over {
		t.Error("the running attempt was ended")
	}
}

// Whoever stored the failure tells the viewers a moment later; a restart that
// comes in between leaves its request to them.
func TestARestartBetweenTheFailureAndItsReleaseIsNotLost(t *testing.T) {
	t.Parallel()
	e := idle()
	l := newLive(chat.Request{ID: 7, ConversationID: 1, Attempt: 1, State: chat.StateGenerating})
	e.lives[7] = l
	restarted := chat.Request{ID: 7, ConversationID: 1, Attempt: 1, State: chat.StatePending}
	e.trackRestarted(restarted)
	if e.sched.waiting != 0 {
		t.Fatal("it waits while the old attempt has its viewers")
	}
	e.release(l, chat.Request{ID: 7, ConversationID: 1, Attempt: 1, State: chat.StateFailed})
	if !l.View().Over || e.Live(7) == nil || e.Live(7) == l || !e.inCare(restarted) {
		t.Error("the restarted request is in nobody's care")
	}
}

func TestARequestWaitsOnceHoweverOftenItIsAdded(t *testing.T) {
	t.Parallel()
	e := idle()
	r := chat.Request{ID: 7, ConversationID: 1, State: chat.StatePending}
	e.track(r)
	e.track(r)
	e.mu.Lock()
	e.sched.add(e.newJob(r, e.lives[7])) // the worker and the reaper each hand it on
	e.mu.Unlock()
	if e.sched.waiting != 1 {
		t.Errorf("%d jobs wait, want 1", e.sched.waiting)
	}
}

// A run that is followed again generates already when its worker begins.
func TestAStopBetweenAnAdoptionAndItsWorkerIsNotLost(t *testing.T) {
	t.Parallel()
	r := chat.Request{ID: 7, Attempt: 1, State: chat.StateGenerating}
	l := newLive(r)
	l.stop(1, errStopped)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if l.begin(r, cancel); context.Cause(ctx) != errStopped {
		t.Errorf("the worker goes on: %v", context.Cause(ctx))
	}
}

// The reaper makes the job of a request before it holds the engine's lock.
func TestAJobThatWasMadeBeforeTheModelsChangedWaitsForTheNewOnes(t *testing.T) {
	t.Parallel()
	e := idle()
	r := chat.Request{ID: 7, ConversationID: 1, State: chat.StatePending, Model: "new"}
	j := e.newJob(r, newLive(r))
	if err := e.SetModels([]Model{{Name: "new"}}); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sched.add(j)
	if j.model == e.gone || j.model != e.model("new") {
		t.Errorf("it waits for %+v", j.model)
	}
}
