package engine_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/llm/llmtest"
)

// The clock is another one at each start: a day ahead, a day back, years ahead, a second
// here and there. What waits goes on within its bounds, what is answered stays answered,
// and no id is forgotten or runs again.
func TestAClockThatJumpsAtEachStartLosesNothing(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	file := filepath.Join(t.TempDir(), "life.db")
	type asked struct{ session, id, answer string }
	var done, left []asked
	past2038 := time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC).Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, at := range []time.Duration{2 * day, 3 * day, day, day + time.Second, day - time.Second, past2038, 2 * day, past2038 + day, 0} {
		synctest.Test(t, func(t *testing.T) { // it begins in the year 2000
			time.Sleep(at)
			r := openRig(t, file, nil, nil, llmtest.New(llmtest.Answer("one"), llmtest.Answer("two"), llmtest.Answer("three"), llmtest.Hang("half"), llmtest.Fail(llmtest.Refused(50*time.Second))))
			for _, a := range left {
				r.session = a.session
				before := time.Now()
				rec := r.end(a.id)
				if rec.State != chat.StateCommitted {
					t.Fatalf("at %s a question of another life is %s: %+v", at, rec.State, rec.Error)
				}
				if took := time.Since(before); took > 2*time.Minute {
					t.Errorf("at %s a question of another life waited %s", at, took)
				}
				a.answer = rec.Content
				done = append(done, a)
			}
			r.calls(len(left))
			ask := func() asked {
				r.session = chat.NewID()
				return asked{session: r.session, id: r.say("hello")}
			}
			if len(left) == 0 { // the first life
				for range 2 {
					a := ask()
					a.answer = r.end(a.id).Content
					done = append(done, a)
				}
			}
			a := ask()
			a.answer = r.answered(a.id, "three").Content
			done = append(done, a)
			for _, a := range done {
				r.session = a.session
				if res := r.submit(r.message(a.id, "hello")); res.Decision != chat.DecisionReplayed || r.record(a.id).Content != a.answer {
					t.Errorf("at %s a repeat is %s, and the answer %q", at, res.Decision, r.record(a.id).Content)
				}
			}
			r.calls(3)
			left = []asked{ask()}
			r.rest()
			left = append(left, ask())
			r.pass(1500 * time.Millisecond)
			for suffix, to := range map[string]string{"": file + ".next", "-wal": file + ".next-wal"} {
				b, err := os.ReadFile(r.copyFile() + suffix)
				if err == nil {
					err = os.WriteFile(to, b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		})
		for _, suffix := range []string{"", "-wal"} { // as kill -9 left it
			if err := os.Rename(file+".next"+suffix, file+suffix); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(done) != 3+8*3 {
		t.Errorf("%d questions are answered", len(done))
	}
}
