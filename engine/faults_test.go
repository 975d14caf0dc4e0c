package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
	"semel/llm/llmtest"
	"semel/outbox"
)

// The fault table. Each scenario is run once for every write transaction it makes,
// with exactly that one failing, in each of these ways:
//
//	not begun            BEGIN fails, the file is locked
//	not stored, full     COMMIT fails and nothing is stored
//	stored, told busy    COMMIT is done and reported as failed
//	not stored, I/O      COMMIT fails, the process must end; a new life goes on
//	stored, I/O          COMMIT is done, reported as failed, the process must end
//
// The clients behave as the contract tells them to: on a problem that says so they
// ask again under the same id. In the end there is exactly one answer to each
// question, and where the process lived on, not one model call too many.
var ways = []struct {
	name, statement string
	mode            dbtest.Mode
	err             error
	deadly          bool
}{
	{"not begun", "BEGIN IMMEDIATE", dbtest.NotStored, busy, false},
	{"not stored, full", "COMMIT", dbtest.NotStored, full, false},
	{"stored, told busy", "COMMIT", dbtest.Stored, busy, false},
	{"not stored, I/O", "COMMIT", dbtest.NotStored, ioError, true},
	{"stored, I/O", "COMMIT", dbtest.Stored, ioError, true},
}

type scenario struct {
	name        string
	change      func(*engine.Options)
	steps       []llmtest.Step
	play        func(r *patient)
	least, most int // model calls, where the process lives on
}

var scenarios = []scenario{
	{
		name:  "an answer, its partial texts, and a repeat",
		steps: []llmtest.Step{llmtest.Paced(900*time.Millisecond, "a", "b", "c")},
		play: func(r *patient) {
			id := r.say("hello")
			r.wait(2500 * time.Millisecond)
			r.repeat(id, "hello")
			r.answered(id, "abc")
			r.repeat(id, "hello")
		},
		least: 1, most: 1,
	},
	{
		name:  "an answer that takes a heartbeat",
		steps: []llmtest.Step{llmtest.Paced(15*time.Second, "a", "b")},
		play: func(r *patient) {
			r.answered(r.say("hello"), "ab")
		},
		least: 1, most: 1,
	},
	{
		name:  "a refusal and the engine's retry",
		steps: []llmtest.Step{llmtest.Fail(llmtest.Refused(2 * time.Second)), llmtest.Answer("ok")},
		play: func(r *patient) {
			id := r.say("hello")
			r.wait(time.Second)
			r.repeat(id, "hello")
			r.answered(id, "ok")
		},
		least: 2, most: 2,
	},
	{
		name:  "a line that dies after text, and the rerun",
		steps: []llmtest.Step{llmtest.Fail(llmtest.Lost(), "half"), llmtest.Answer("ok")},
		play:  func(r *patient) { r.answered(r.say("hello"), "ok") },
		least: 2, most: 2,
	},
	{
		name:  "a failure and a person's retry",
		steps: []llmtest.Step{llmtest.Fail(llmtest.Denied(), "half"), llmtest.Answer("ok")},
		play: func(r *patient) {
			id := r.say("hello")
			if rec := r.final(id); rec.State == chat.StateFailed {
				r.retry(id, rec.Attempt)
			}
			r.answered(id, "ok")
		},
		least: 2, most: 2,
	},
	{
		name:  "a failure that a repeat restarts",
		steps: []llmtest.Step{llmtest.Fail(llmtest.Refused(2 * time.Minute)), llmtest.Answer("ok")},
		play: func(r *patient) {
			id := r.say("hello")
			r.final(id)
			r.repeat(id, "hello")
			r.answered(id, "ok")
		},
		least: 2, most: 2,
	},
	{
		name:  "a stop with text",
		steps: []llmtest.Step{llmtest.Hang("text")},
		play: func(r *patient) {
			id := r.say("hello")
			r.wait(1500 * time.Millisecond)
			r.stop(id)
			if rec := r.final(id); rec.State == chat.StateCommitted && rec.Content != "text" {
				r.t.Errorf("got %q", rec.Content)
			}
		},
		least: 0, most: 1,
	},
	{
		name:  "a stop without text, and one of a question that waits",
		steps: []llmtest.Step{llmtest.Hang()},
		play: func(r *patient) {
			running, waiting := r.say("one"), r.say("two")
			r.wait(time.Millisecond)
			r.stop(waiting)
			r.stop(running)
			for _, id := range []string{running, waiting} {
				if rec := r.final(id); rec.State != chat.StateFailed || rec.Error.Code != "stopped" {
					r.t.Errorf("got %s %+v, want stopped", rec.State, rec.Error)
				}
			}
		},
		least: 0, most: 1,
	},
	{
		name:  "a lost lease",
		steps: []llmtest.Step{llmtest.Answer("ok")},
		change: func(o *engine.Options) {
			o.Lease, o.Heartbeat = 30*time.Second, 10*time.Second
			o.Stall = func(r chat.Request) {
				if r.Attempt == 1 {
					time.Sleep(time.Minute)
				}
			}
		},
		play: func(r *patient) {
			id := r.say("hello")
			r.answered(id, "ok")
			r.wait(2 * time.Minute)
			r.answered(id, "ok")
		},
		least: 1, most: 2,
	},
	{
		name:  "a deletion",
		steps: []llmtest.Step{llmtest.Hang("text")},
		play: func(r *patient) {
			running, waiting := r.say("one"), r.say("two")
			r.wait(1500 * time.Millisecond)
			r.insist(func() error { return r.e.DeleteConversation(r.ctx, db.LocalUser, r.session) })
			r.wait(3 * time.Second)
			for _, id := range []string{running, waiting} {
				r.insist(func() error {
					_, err := r.e.Submit(r.ctx, r.message(id, map[string]string{running: "one", waiting: "two"}[id]))
					if p := new(chat.Problem); errors.As(err, &p) && p.Status == 410 {
						return nil
					}
					return fmt.Errorf("a question of a deleted conversation: %w", err)
				})
			}
		},
		least: 0, most: 1,
	},
	{
		name:   "an action, from its approval to its callback",
		steps:  []llmtest.Step{asking("sign")},
		change: effects(&receiver{answers: []func(context.Context, outbox.Message) outbox.Result{broken, well}}),
		play: func(r *patient) {
			id := r.say("please sign")
			rec := r.final(id)
			if rec.State != chat.StateAcknowledged {
				r.t.Fatalf("the answer is %s, %+v", rec.State, rec.Error)
			}
			e := rec.Effects[0]
			r.insist(func() error {
				_, err := r.e.Decide(r.ctx, db.Verdict{UserID: db.LocalUser, WebhookID: e.WebhookID, Approve: true, Digest: e.Digest, Actor: "user:1"})
				return err
			})
			for e.State != chat.EffectAwaiting {
				r.wait(time.Minute)
				if e = r.record(id).Effects[0]; e.State.Troubled() || e.State.Settled() {
					r.t.Fatalf("the effect is %s, %s", e.State, e.Code)
				}
			}
			r.insist(func() error {
				_, err := r.e.Callback(r.ctx, db.Callback{WebhookID: e.WebhookID, MessageID: "cb-1", OK: true})
				return err
			})
			r.answered(id, "I ask.")
		},
		least: 1, most: 1,
	},
	{
		name:   "an action that is refused and undone",
		steps:  []llmtest.Step{asking("sign")},
		change: effects(&receiver{}),
		play: func(r *patient) {
			id := r.say("please sign")
			e := r.final(id).Effects[0]
			r.insist(func() error {
				_, err := r.e.Decide(r.ctx, db.Verdict{UserID: db.LocalUser, WebhookID: e.WebhookID, Approve: true, Actor: "user:1"})
				return err
			})
			r.insist(func() error {
				_, err := r.e.Callback(r.ctx, db.Callback{WebhookID: e.WebhookID, MessageID: "cb-1", Reason: "no"})
				return err
			})
			for e.State != chat.EffectCompensated {
				r.wait(time.Minute)
				if e = r.record(id).Effects[0]; e.State.Troubled() {
					r.t.Fatalf("the effect is %s, %s", e.State, e.Code)
				}
			}
			r.answered(id, "I ask.")
		},
		least: 1, most: 1,
	},
}

func TestWhateverWriteFailsThereIsOneAnswerInTheEnd(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		for _, way := range ways {
			t.Run(s.name+"/"+way.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p := admit(t, s.change)
					for k := 0; ; k++ {
						p.well(s.steps)
						p.faults.Arm(way.statement, k, way.mode, way.err)
						s.play(p)
						if p.faults.Armed() {
							break // it makes no more writes than this
						}
						if p.died != way.deadly {
							t.Errorf("write %d: died: %v", k+1, p.died)
						}
						most := s.most
						if way.deadly {
							most++ // nobody can know what became of the call that was running
						}
						p.discharge(k+1, s.least, most)
						if t.Failed() {
							t.Fatalf("so much for write %d", k+1)
						}
					}
					p.died = false
					p.discharge(0, s.least, s.most)
				})
			})
		}
	}
}

// A patient is a rig one of whose writes fails, and its clients.
type patient struct {
	*rig
	change func(*engine.Options)
	faults *dbtest.Faults
	died   bool
	told   map[string]chat.RecordMessage // answers that clients were shown
}

// A mortal client is not called by an engine whose process has ended.
type mortal struct {
	llm.Client
	dead atomic.Bool
}

func (m *mortal) Stream(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	if m.dead.Load() {
		<-ctx.Done()
		return llm.Answer{}, ctx.Err()
	}
	return m.Client.Stream(ctx, c, emit)
}

func admit(t *testing.T, change func(*engine.Options)) *patient {
	p := &patient{change: change}
	p.begin(t, filepath.Join(t.TempDir(), "test.db"), llmtest.New(llmtest.Answer("no")))
	return p
}

// begin begins a life over the file.
func (p *patient) begin(t *testing.T, file string, model *llmtest.Client) {
	m := &mortal{Client: model}
	p.faults = &dbtest.Faults{}
	p.rig = openRig(t, file, p.faults, func(o *engine.Options) {
		if p.change != nil {
			p.change(o)
		}
		o.Models[0].Client = m
	}, model)
	p.onFatal = func() { m.dead.Store(true) }
}

// lives reports whether the process lives; when it has ended, the next begins.
func (p *patient) lives() bool {
	if p.fatal.Load() == nil {
		return true
	}
	p.died = true
	session, old := p.session, p.rig
	p.begin(p.t, p.copyFile(), p.model)
	p.session = session
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	old.e.Drain(ctx)
	return false
}

// well makes the patient well again, in another conversation with other answers
// to come.
func (p *patient) well(steps []llmtest.Step) {
	p.t.Helper()
	synctest.Wait()
	p.session, p.died, p.told = newID(), false, map[string]chat.RecordMessage{}
	p.model.Play(steps...)
}

// insist does what a client does: the same again while it is told to.
func (p *patient) insist(do func() error) {
	p.t.Helper()
	for range 100 {
		err := do()
		if !p.lives() {
			continue // the line broke; whatever was said was not heard
		}
		var problem *chat.Problem
		switch {
		case err == nil:
			return
		case errors.As(err, &problem) && problem.Retry == chat.RetrySameID:
			time.Sleep(max(problem.RetryAfter, time.Millisecond))
		default:
			p.t.Fatalf("a client got %v", err)
		}
	}
	p.t.Fatal("a client was told to ask again a hundred times")
}

func (p *patient) say(content string) string {
	id := newID()
	p.repeat(id, content)
	return id
}

func (p *patient) repeat(id, content string) {
	p.insist(func() error {
		res, err := p.e.Submit(p.ctx, p.message(id, content))
		if err == nil {
			p.e.Answered(res, chat.SourceAPI, 200)
		}
		return err
	})
}

func (p *patient) retry(id string, attempt int64) {
	p.insist(func() error { _, err := p.e.Retry(p.ctx, engine.Again{Key: p.key(id), Attempt: attempt}); return err })
}

func (p *patient) stop(id string) {
	p.insist(func() error { _, err := p.e.Stop(p.ctx, p.key(id), 0); return err })
}

// wait lets time pass, and lives.
func (p *patient) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	p.lives()
}

// final returns the record of a request that has ended, as a client is shown it.
func (p *patient) final(id string) chat.Record {
	p.t.Helper()
	for step := time.Second; step < time.Hour; step += step / 2 {
		p.wait(step)
		rec := p.record(id)
		if rec.State.Live() {
			continue
		}
		if rec.Message != nil {
			if was, known := p.told[id]; known && was != *rec.Message {
				p.t.Fatalf("an answer that was told changed: %+v, was %+v", rec.Message, was)
			}
			p.told[id] = *rec.Message
		}
		return rec
	}
	p.t.Fatalf("request %s does not end: %+v", id, p.request(id))
	return chat.Record{}
}

func (p *patient) answered(id, want string) {
	p.t.Helper()
	if rec := p.final(id); rec.State != chat.StateCommitted || rec.Content != want {
		p.t.Fatalf("request %s: got %s %q (error %+v), want the answer %q", id, rec.State, rec.Content, rec.Error, want)
	}
}

// discharge fails the test unless all is well in the end.
func (p *patient) discharge(write, least, most int) {
	p.t.Helper()
	p.faults.Clear()
	p.pass(time.Minute)
	p.idle()
	if n := p.model.Count(); n < least || n > most {
		p.t.Errorf("write %d: %d model calls, want %d to %d", write, n, least, most)
	}
	for id, message := range p.told {
		if rec := p.record(id); *rec.Message != message {
			p.t.Errorf("write %d: an answer that was told changed: %+v, was %+v", write, rec.Message, message)
		}
	}
	if err := p.e.Ready(p.ctx); err != nil {
		p.t.Errorf("write %d: not ready in the end: %v", write, err)
	}
}

// A piece of partial text whose commit was reported as open is not stored twice.
func TestPartialTextIsNotStoredTwice(t *testing.T) {
	t.Parallel()
	for _, mode := range []dbtest.Mode{dbtest.Stored, dbtest.NotStored} {
		synctest.Test(t, func(t *testing.T) {
			faults := &dbtest.Faults{}
			r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, asks, llmtest.New(llmtest.Then(llmtest.Paced(1100*time.Millisecond, "b", "c", "d"), "a")))
			id := r.say("hello")
			r.rest()
			faults.Arm("COMMIT", 1, mode, full) // of the second piece
			for range 4 {
				r.pass(time.Second)
				if got := r.record(id).Content; !strings.HasPrefix("abcd", got) {
					t.Fatalf("stored: %q", got)
				}
			}
			if !faults.Hit() {
				t.Fatal("the fault did not happen")
			}
			r.answered(id, "abcd")
			rec := r.die(llmtest.Answer("no")).record(id)
			if rec.Content != "abcd" {
				t.Errorf("after a death: %q", rec.Content)
			}
		})
	}
}

// S30: a full disk keeps the answer in memory, however long, and never asks again.
func TestS30AnAnswerWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults, diskFull := &dbtest.Faults{}, true
		again := func() {
			if diskFull {
				faults.Arm("COMMIT", 0, dbtest.NotStored, full)
			}
		}
		log := onLog("an outcome is not stored yet", again)
		r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, func(o *engine.Options) { o.Log = log },
			llmtest.New(llmtest.Paced(500*time.Millisecond, "answer")))
		id := r.say("hello")
		r.rest()
		again()
		r.pass(20 * time.Minute) // far past the lease
		if s := r.request(id).State; s != chat.StateGenerating {
			t.Fatalf("state %s", s)
		}
		if got := string(r.live(id).View().Text); got != "answer" {
			t.Errorf("viewers see %q", got)
		}
		if err := r.e.Ready(r.ctx); err == nil {
			t.Error("ready while nothing can be stored")
		}
		diskFull = false
		faults.Clear()
		r.pass(5 * time.Second)
		r.answered(id, "answer")
		if err := r.e.Ready(r.ctx); err != nil {
			t.Errorf("ready: %v", err)
		}
		r.calls(1)
	})
}

// Many clients at once share commits; one that fails reaches all of its batch.
func TestAFailedCommitOfManyIsOpenForEachOfThem(t *testing.T) {
	t.Parallel()
	for _, mode := range []dbtest.Mode{dbtest.Stored, dbtest.NotStored} {
		synctest.Test(t, func(t *testing.T) {
			faults := &dbtest.Faults{}
			r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, nil, llmtest.New(llmtest.Paced(100*time.Millisecond, "answer")))
			var wg sync.WaitGroup
			for i := range 60 {
				wg.Go(func() {
					a := ask(newID(), newID(), "hello")
					if i == 20 {
						for k := range 4 {
							faults.Arm("COMMIT", k, mode, busy)
							time.Sleep(40 * time.Millisecond)
						}
					}
					for {
						res, err := r.e.Submit(r.ctx, a)
						var p *chat.Problem
						if errors.As(err, &p) && p.Retry == chat.RetrySameID {
							time.Sleep(p.RetryAfter)
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						if err := r.e.Wait(r.ctx, res.Request.ID); err != nil {
							t.Error(err)
						}
						return
					}
				})
			}
			wg.Wait()
			r.pass(time.Minute)
			r.calls(60)
			r.idle()
		})
	}
}

// An arrival is reported after its answer; a database that fails then must not
// lose it, not even when the process stops before it is well.
func TestAnArrivalThatCouldNotBeStoredIsStoredLater(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]func(r *rig){
		"by itself":    func(r *rig) { r.pass(2 * time.Second) },
		"at shutdown":  func(r *rig) { <-r.drain(time.Minute) },
		"for a reader": func(r *rig) { _ = r.e.FlushArrivals(r.ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faults := &dbtest.Faults{}
				r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, nil, llmtest.New(llmtest.Answer("ok")))
				id := r.say("hello")
				r.end(id)
				faults.Arm("COMMIT", 0, dbtest.NotStored, full)
				r.e.Answered(r.submit(r.message(id, "hello")), chat.SourceWeb, 200)
				r.pass(100 * time.Millisecond)
				if faults.Armed() {
					t.Fatal("nothing was written")
				}
				later(r)
				rc, err := r.d.Receipt(r.ctx, r.key(id))
				if err != nil || len(rc.Arrivals) != 2 {
					t.Errorf("%d arrivals %v, want 2", len(rc.Arrivals), err)
				}
			})
		})
	}
}

// The client of an acceptance that is stored and was reported as open may never
// come back: its question is answered all the same, and before the next one.
func TestAnAcceptanceNobodyKnowsOfKeepsItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := &dbtest.Faults{}
		r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, nil, llmtest.New(llmtest.Answer("a1"), llmtest.Answer("a2")))
		faults.Arm("COMMIT", 0, dbtest.Stored, busy)
		first := newID()
		if p := r.refused(r.message(first, "q1")); p.Status != 503 || p.Code != "outcome_open" || p.Retry != chat.RetrySameID {
			t.Fatalf("got %+v", p)
		}
		second := r.say("q2")
		r.pass(35 * time.Second)
		r.answered(first, "a1")
		r.answered(second, "a2")
		if got := sent(r, 1); got != "q1 a1 q2" {
			t.Errorf("q2 was sent with %s", got)
		}
		r.idle()
	})
}

// A stop that is stored and was reported as open leaves a job behind that believes
// in the request as it was; the attempt is the same, and the model is not.
func TestAStaleJobDoesNotRunWithTheModelOfBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := &dbtest.Faults{}
		r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, twoModels, llmtest.New(llmtest.Fail(llmtest.Refused(30*time.Second)), llmtest.Answer("ok")))
		id := r.say("hello")
		r.rest()
		faults.Arm("COMMIT", 0, dbtest.Stored, busy)
		var p *chat.Problem
		if _, err := r.e.Stop(r.ctx, r.key(id), 0); !errors.As(err, &p) || p.Code != "outcome_open" {
			t.Fatalf("stop: %v", err)
		}
		r.retry(id, 1, "other")
		r.pass(time.Minute)
		if rec := r.answered(id, "ok"); rec.Model != "other" || r.model.Calls()[1].Model != "other" {
			t.Errorf("record says %s, called was %s", rec.Model, r.model.Calls()[1].Model)
		}
		r.calls(2)
		r.idle()
	})
}

// A retry whose own record is reported as open comes when it is due, and not when
// somebody finds it.
func TestARetryWhoseRecordIsOpenComesWhenItIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults, gate := &dbtest.Faults{}, make(chan struct{})
		r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, nil,
			llmtest.New(llmtest.Until(gate, llmtest.Fail(llmtest.Refused(2*time.Second))), llmtest.Answer("ok")))
		id := r.say("hello")
		r.rest()
		faults.Arm("COMMIT", 0, dbtest.Stored, busy)
		close(gate)
		began := time.Now()
		r.answered(id, "ok")
		if took := time.Since(began); took > 3*time.Second || faults.Armed() {
			t.Errorf("the retry came after %s", took)
		}
	})
}
