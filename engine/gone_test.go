package engine_test

import (
	"testing"
	"testing/synctest"

	"semel/chat"
	"semel/db"
	"semel/llm/llmtest"
)

func TestARepeatToADeletedConversationIsOnTheReceiptOnceItIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, llmtest.Answer("yes"))
		id := r.say("hello")
		r.answered(id, "yes")
		if err := r.e.DeleteConversation(r.ctx, db.LocalUser, r.session); err != nil {
			t.Fatal(err)
		}
		if p := r.refused(r.message(id, "hello")); p.Status != 410 {
			t.Fatalf("got %+v, want 410", p)
		}
		if _, err := r.d.RestoreConversation(r.ctx, db.LocalUser, r.session); err != nil {
			t.Fatal(err)
		}
		list := r.receipt(id).Arrivals
		if len(list) != 2 || list[1].Decision != chat.DecisionExpired || list[1].Status != 410 {
			t.Errorf("arrivals: got %+v, want the second expired, 410", list)
		}
	})
}
