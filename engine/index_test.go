package engine_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"semel/db/dbtest"
	"semel/engine"
	"semel/llm/llmtest"
)

func quickly(o *engine.Options) { o.IndexAfter = 500 * time.Millisecond }

func (r *rig) indexed() int {
	r.t.Helper()
	c, err := sql.Open("sqlite", r.file)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	var n int
	if err := c.QueryRow(`SELECT count(*) FROM search`).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func TestTheSearchIndexCatchesUpWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quickly, llmtest.Answer("one"), llmtest.Answer("two"))
		r.answered(r.say("hello"), "one")
		r.pass(time.Second)
		if n := r.indexed(); n != 2 {
			t.Errorf("the index has %d messages, want 2", n)
		}
		r.answered(r.say("and"), "two")
		r.pass(time.Second)
		if n := r.indexed(); n != 4 {
			t.Errorf("the index has %d messages, want 4", n)
		}
	})
}

func TestTheSearchIndexTakesWhatAnotherLifeLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quickly, llmtest.Answer("one"))
		r.answered(r.say("hello"), "one")
		if n := r.indexed(); n != 0 {
			t.Fatalf("the index has %d messages at once: no test", n)
		}
		r = r.die(llmtest.Answer("no"))
		r.pass(time.Second)
		if n := r.indexed(); n != 2 {
			t.Errorf("the index has %d messages, want 2", n)
		}
	})
}

func TestAnIndexThatCannotBeWrittenIsFilledWithTheNextMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := &dbtest.Faults{}
		r := openRig(t, filepath.Join(t.TempDir(), "test.db"), faults, quickly, llmtest.New(llmtest.Answer("one"), llmtest.Answer("two")))
		faults.Arm("INSERT INTO search", 0, dbtest.NotStored, dbtest.ErrInjected)
		r.answered(r.say("hello"), "one")
		r.pass(900 * time.Millisecond) // the answer came after the question, and is a second reason to try
		if n := r.indexed(); n != 0 || !faults.Hit() {
			t.Fatalf("the index has %d messages: no test", n)
		}
		r.answered(r.say("and"), "two")
		r.pass(time.Second)
		if n := r.indexed(); n != 4 {
			t.Errorf("the index has %d messages, want 4", n)
		}
	})
}
