package handlers

import (
	"bytes"
	"testing"
)

func TestReplaysKeepTheMostRecentlyUsedWithinTheirBound(t *testing.T) {
	t.Parallel()
	record := bytes.Repeat([]byte{'x'}, replayMost)
	var c replays
	c.put(0, record)
	for id := int64(1); id < 4*replayBytes/replayMost; id++ {
		c.put(id, record)
		if c.get(0) == nil {
			t.Fatalf("a record that is used all the time is gone after %d others", id)
		}
	}
	if c.get(1) != nil {
		t.Error("a record that nobody uses is still there")
	}
	kept := 0
	for _, m := range []map[int64][]byte{c.young, c.old} {
		for _, b := range m {
			kept += len(b)
		}
	}
	if kept > replayBytes {
		t.Errorf("%d bytes are kept, more than %d", kept, replayBytes)
	}
	if c.put(-1, append(record, 'x')); c.get(-1) != nil {
		t.Error("a record that is too large is kept")
	}
}
