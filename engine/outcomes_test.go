package engine_test

import (
	"testing"
	"testing/synctest"

	"semel/chat"
	"semel/llm/llmtest"
)

func TestAnAnswerBecomesFinalOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("one ", "answer"))
		id := r.say("hello")
		rec := r.answered(id, "one answer")
		r.calls(1)
		if rec.Message.Finish != chat.FinishStop || rec.Cost.Micros == 0 {
			t.Errorf("record: %+v", rec)
		}
	})
}
