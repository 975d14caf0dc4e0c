package views

import (
	"fmt"
	"strings"
	"testing"
)

func TestWhatIsKeptHasAnEnd(t *testing.T) {
	var k keep
	long := strings.Repeat("x", 10_000)
	for i := range 3 * keepBytes / len(long) {
		k.put(fmt.Sprint(i), long)
		if _, ok := k.get("0"); !ok { // asked for all the time: it stays
			t.Fatalf("0 is forgotten after %d others", i)
		}
	}
	size := 0
	for _, m := range []map[string]string{k.young, k.old} {
		for from, made := range m {
			size += len(from) + len(made)
		}
	}
	if size > 2*keepBytes {
		t.Errorf("%d bytes are kept, want at most %d", size, 2*keepBytes)
	}
	if _, ok := k.get("1"); ok {
		t.Error("what nobody asks for is kept")
	}
	k.put("huge", strings.Repeat("x", keepBytes))
	if _, ok := k.get("huge"); ok {
		t.Error("one text may fill it")
	}
}
