//go:build unix

package main

import (
	"flag"
	"strconv"
	"syscall"
	"testing"

	"semel/chat"
)

var flipsFlag = flag.Int("flips", 300, "how many bits of a database are flipped, one at a time")

// One bit flips, in any page or in the log. SQLite finds it, or an invariant does, or
// nothing that is served has changed: no question and no answer is ever served that is not
// the one that was stored. For longer: -flips 20000.
func TestAFlippedBitIsNeverServedAsAnAnswer(t *testing.T) {
	rng := randomly(t)
	file := writeConfig(t, killConfig)
	w := newWorld(t)
	l := serveNow(t, file)
	w.begin(l)
	w.askThrough(30, 60)
	l.signal(t, syscall.SIGTERM) // all of it goes from the log into the file
	if code := l.wait(t); code != 0 {
		t.Fatalf("the server ended with %d:\n%s", code, l.log)
	}
	w.end()
	l = serveNow(t, file) // what comes now is in the log alone
	w.begin(l)
	for range 3 {
		w.post(w.newIntent(intent{session: chat.NewID(), content: "[[echo An answer that is as long as a page, or so. ]] [[tokens 200]] [[rate 0]]"}), 60)
	}
	l.kill()
	var r struct {
		Flips, Refused, Found, Kept, Lost, Other, Same int
		Changed                                        []string
	}
	runChaos(t, &r, "-flips", strconv.Itoa(*flipsFlag), "-seed", strconv.FormatUint(rng.Uint64(), 10), file)
	t.Logf("%d bits: %d times the file was refused, %d times it was found, %d times an answer was kept back, "+
		"%d times the log was taken for unfinished, %d times a time or a count changed unseen, %d times nothing changed", r.Flips, r.Refused, r.Found, r.Kept, r.Lost, r.Other, r.Same)
	for _, c := range r.Changed {
		t.Error(c)
	}
	if r.Found+r.Refused < r.Flips/20 || r.Flips < *flipsFlag {
		t.Error("this proves little")
	}
}
