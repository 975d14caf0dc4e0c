package db

import (
	"strings"
	"testing"

	"semel/chat"
)

func TestTextsForgetWhatNobodyAsksForAndKeepTheRest(t *testing.T) {
	var m texts
	large := strings.Repeat("x", 1<<20)
	for seq := range int64(40) {
		m.put(1, chat.Message{Seq: seq + 1, Content: large})
		m.get(1, []int64{1}) // the first is asked for all the time
	}
	if turns, missing := m.get(1, []int64{1, 40}); len(missing) != 0 || turns[0].Content != large {
		t.Errorf("missing %v, want what was asked for and the newest", missing)
	}
	if _, missing := m.get(1, []int64{2}); len(missing) != 1 {
		t.Error("forty megabytes are remembered, want two generations of eight")
	}
	if _, missing := m.get(2, []int64{1}); len(missing) != 1 {
		t.Error("a message of one conversation is given out in another")
	}
}
