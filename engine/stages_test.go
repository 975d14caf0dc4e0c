package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
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
	"semel/ops"
	"semel/outbox"
)

// lines are what was logged as JSON.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer // under mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) about(t *testing.T, id string) (list []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if v["request_id"] == id {
			list = append(list, v)
		}
	}
	return list
}

// A life is put together from the log alone, and is what the file says: a provider that
// is busy, another try, an answer that asks for something, a person's yes, a delivery
// that fails and one that does not, and the receiver's word.
func TestALifeCanBePutTogetherFromTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, v := &lines{}, &receiver{answers: []func(context.Context, outbox.Message) outbox.Result{absent, well}}
		busy := func(_ context.Context, _ llm.Call, _ func(llm.Piece)) (llm.Answer, error) {
			return llm.Answer{}, &llm.Error{Outcome: chat.OutcomeDefinite, Transient: true, Status: 429, Code: "provider_busy"}
		}
		r := newRig(t, func(o *engine.Options) {
			effects(v)(o)
			o.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}, llmtest.Step(busy), asking("sign"))
		a := r.message(newID(), "a secret nobody logs")
		a.Trace = "trace-1"
		r.submit(a)
		id := a.Key.RequestID
		r.end(id)
		r.rest()
		r.submit(r.message(id, a.Content)) // again
		r.approve(id, 0)
		r.pass(time.Minute)
		r.callback(r.effect(id, 0).WebhookID, true)
		rc, err := r.d.Receipt(r.ctx, r.key(id))
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for i, s := range rc.Transitions {
			want = append(want, fmt.Sprint(i+1, " ", s.From, ">", s.To, " ", s.Attempt, " ", s.Actor, " ", s.Reason, " ", chat.Stamp{Time: s.At}))
		}
		var story, effect []string
		for _, l := range log.about(t, id) {
			switch l["msg"] {
			case "stage":
				got = append(got, fmt.Sprint(l["step"], " ", l["from"], ">", l["state"], " ", l["attempt"], " ", l["actor"], " ", l["reason"], " ", l["at"]))
				story = append(story, fmt.Sprint(l["state"]))
			case "effect":
				effect = append(effect, fmt.Sprint(l["state"]))
				story = append(story, fmt.Sprint("effect ", l["state"]))
			case "arrival":
				story = append(story, fmt.Sprint("arrival ", l["decision"]))
				if want := "trace-1"; l["decision"] == "first" && l["trace_id"] != want {
					t.Errorf("the arrival is not traced: %v", l)
				}
			case "attempt", "delivery":
				story = append(story, fmt.Sprint(l["msg"], " ", l["outcome"]))
			case "decision", "verdict":
				story = append(story, fmt.Sprint(l["msg"], " ", l["verdict"]))
			default:
				story = append(story, fmt.Sprint(l["msg"]))
			}
			if l["session_id"] != r.session && l["level"] != "WARN" {
				t.Errorf("a line without its conversation: %v", l)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the log says\n%s\nand the file\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		sent := rc.Sent[0]
		if len(sent.Deliveries) != 2 || effect[len(effect)-1] != string(sent.State) {
			t.Errorf("the log says of the effect %v, the file %s", effect, sent.State)
		}
		told := []string{
			"pending", "arrival first", "generating", "dispatched", "attempt failed", "pending", "attempt definite",
			"generating", "dispatched", "first token", "acknowledged", "decision ask", "attempt ok", "request", "arrival replayed",
			"verdict approve", "effect pending", "effect delivering", "delivery none", "effect pending", "effect delivering", "delivery ok", "effect awaiting",
			"called back", "effect delivered", "committed", "callback",
		}
		for i, s := range told { // of a commit and of what its caller says then, either may come first
			if !slices.Contains(story, s) {
				t.Errorf("step %d, %s, is not told:\n%s", i+1, s, strings.Join(story, "\n"))
			}
		}
		if len(story) != len(told) {
			t.Errorf("%d lines, want %d:\n%s", len(story), len(told), strings.Join(story, "\n"))
		}
		for _, secret := range []string{a.Content, "I ask.", relaySecret, `{"n":0}`} {
			if strings.Contains(log.buf.String(), secret) {
				t.Errorf("the log holds %q", secret)
			}
		}
	})
}

// An attempt that ends before its call has a row and no call, and no lamp is red for it.
func TestAnAttemptThatEndsBeforeItsCallIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults, model := &dbtest.Faults{}, llmtest.New(llmtest.Answer("seen"))

		r := openRig(t, t.TempDir()+"/test.db", faults, func(o *engine.Options) { o.Meter = ops.NewMeter() }, model)
		monitor, err := ops.New(r.ctx, ops.Options{DB: r.d, Meter: r.e.Meter(), Calls: func() int64 { return int64(model.Count()) }})
		if err != nil {
			t.Fatal(err)
		}
		f, err := r.d.Upload(r.ctx, db.LocalUser, must(chat.ReadFile("a.txt", []byte("alpha"))))
		if err != nil {
			t.Fatal(err)
		}
		a := r.message(newID(), "read this")
		a.Attachments = []string{f.ID}
		faults.Arm("SELECT content FROM contents", 0, dbtest.NotStored, dbtest.Error(1))
		r.submit(a)
		r.end(a.Key.RequestID)
		r.rest()
		if rec := r.record(a.Key.RequestID); rec.Attempt != 2 || model.Count() != 1 || faults.Armed() {
			t.Fatalf("%d attempts, %d calls: no test", rec.Attempt, model.Count())
		}
		if l, err := monitor.Lamps(r.ctx); err != nil || l.Calls != (ops.Lamp{State: ops.LampOK, Left: 1, Right: 1}) {
			t.Errorf("lamps: %+v, %v", l, err)
		}
	})
}

// Between its row and its call an attempt is said to be in flight, for as long as that is.
func TestAnAttemptBetweenItsRowAndItsCallIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave, answer := make(chan struct{}), make(chan struct{})
		var sent atomic.Int64
		r := newRig(t, nil, func(context.Context, llm.Call, func(llm.Piece)) (llm.Answer, error) {
			<-leave
			sent.Add(1)
			<-answer
			return llm.Answer{Content: "done", Finish: chat.FinishStop}, nil
		})
		monitor, err := ops.New(r.ctx, ops.Options{DB: r.d, Meter: r.e.Meter(), Calls: sent.Load})
		if err != nil {
			t.Fatal(err)
		}
		shows := func(want ops.Lamp) {
			t.Helper()
			synctest.Wait()
			if l, err := monitor.Lamps(r.ctx); err != nil || l.Calls != want {
				t.Errorf("lamp: %+v, %v, want %+v", l.Calls, err, want)
			}
		}
		id := r.say("hello")
		shows(ops.Lamp{State: ops.LampPending, Left: 0, Right: 1, InFlight: 1})
		close(leave)
		shows(ops.Lamp{State: ops.LampOK, Left: 1, Right: 1})
		close(answer)
		r.end(id)
		shows(ops.Lamp{State: ops.LampOK, Left: 1, Right: 1})
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
