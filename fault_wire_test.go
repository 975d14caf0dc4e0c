package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"semel/chat"
)

var stormFlag = flag.Int("storm", 40, "how many questions arrive 64 times each, all at once")

// What a client was told of an answer is cut after each byte; from the last event that
// came whole it goes on, and has the same answer.
func TestAnAnswerTornAtEachByteIsTheSameAnswer(t *testing.T) {
	file := writeConfig(t, killConfig)
	w := newWorld(t)
	defer close(w.over)
	l := serveNow(t, file)
	w.begin(l)
	in := w.newIntent(intent{session: chat.NewID(), content: "Write. [[tokens 40]] [[rate 0]]"})
	first := w.post(in, 60)
	if first == nil || first.HTTP != http.StatusOK {
		t.Fatalf("asked: %+v", first)
	}
	ask := func() *http.Response {
		res, err := w.send(l, http.MethodPost, "/api/chat", in.body(), "Accept", "text/event-stream")
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	res := ask()
	whole, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Contains(whole, []byte("event: end")) {
		t.Fatalf("%v, and the stream is\n%s", err, whole)
	}
	resumed := 0
	for n := range len(whole) {
		res := ask()
		r := &reader{w: w, in: in}
		body := res.Body
		res.Body = io.NopCloser(io.LimitReader(body, int64(n)))
		a := r.read(res, w.now(in))
		if err := body.Close(); err != nil { // the connection goes with what was not read
			t.Fatal(err)
		}
		if a == nil {
			r.cut = true
			if r.last != "" {
				resumed++
			}
			a = r.follow()
		}
		if a.digest() != first.digest() || string(r.text) != first.Content {
			t.Fatalf("cut after %d bytes, the answer is\n%s\n%q\nand was\n%s", n, a.Message, r.text, first.Message)
		}
	}
	if resumed < len(whole)/4 {
		t.Errorf("of %d cuts only %d were resumed: this proves little", len(whole), resumed)
	}
	t.Logf("cut at each of %d bytes, %d times resumed from an event", len(whole), resumed)
	l.kill()
	verifyFile(t, file)
}

// Many questions arrive 64 times each, all at once, in every way: each is accepted once,
// the model is called once, and all copies have the same answer. For longer: -storm 500.
func TestAStormOfRepeatsIsOneAnswerEach(t *testing.T) {
	const copies = 64
	rng := randomly(t)
	file := writeConfig(t, killConfig)
	w := newWorld(t)
	l := serveNow(t, file)
	w.begin(l)
	var list []*intent
	for range *stormFlag {
		list = append(list, w.newIntent(intent{session: chat.NewID(), content: "Be quick. [[tokens 8]] [[rate 0]]"}))
	}
	order := rng.Perm(len(list) * copies)
	work := make(chan int, len(order))
	for _, n := range order {
		work <- n
	}
	close(work)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for n := range work {
				in := list[n%len(list)]
				if n%3 == 0 {
					(&reader{w: w, in: in}).follow()
				} else if a := w.post(in, 60); a == nil || a.HTTP != http.StatusOK {
					t.Errorf("a copy is answered with %+v", a)
				}
			}
		})
	}
	all.Wait()
	close(w.over)
	l.kill()
	w.end()
	verifyFile(t, file)
	d := openSQL(t, file)
	kept := fates(t, d)
	for _, in := range list {
		f := kept[in.session+" "+in.id]
		if f == nil || f.state != chat.StateCommitted || f.wrong(in) != "" || f.attempts != 1 {
			t.Errorf("%+v\n%s", f, w.journal(in))
			continue
		}
		heard := map[string]int{}
		for _, n := range w.notes[in] {
			if n.message != "" {
				heard[n.message]++
			}
		}
		if len(heard) != 1 {
			t.Errorf("%d answers were heard to one question\n%s", len(heard), w.journal(in))
		}
	}
	if len(kept) != len(list) {
		t.Errorf("%d questions are stored, and %d were asked", len(kept), len(list))
	}
	w.judgeCalls(d)
	t.Logf("%d calls about %d questions", len(order), len(list))
}

// The same id with other words, in another conversation or in a storm of its own never
// mixes: other words are refused and cost nothing, another conversation is another intent.
func TestAStormOfConflictsChargesNothing(t *testing.T) {
	file := writeConfig(t, killConfig)
	w := newWorld(t)
	l := serveNow(t, file)
	w.begin(l)
	in := w.newIntent(intent{session: chat.NewID(), content: "These words. [[tokens 8]] [[rate 0]]"})
	if a := w.post(in, 60); a == nil || a.HTTP != http.StatusOK {
		t.Fatalf("asked: %+v", a)
	}
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() {
			other := *in
			other.content = fmt.Sprint("Other words, ", n, strings.Repeat("!", n))
			for range 8 {
				a := w.call(in, "other words", http.MethodPost, "/api/chat", other.body())
				if a == nil || a.HTTP != http.StatusUnprocessableEntity || a.Code != "key_reused" {
					t.Errorf("other words are answered with %+v", a)
				}
			}
		})
	}
	all.Wait()
	close(w.over)
	l.kill()
	w.end()
	verifyFile(t, file)
	var requests, charges int
	rowsOf(t, openSQL(t, file), `SELECT (SELECT count(*) FROM requests), (SELECT count(*) FROM ledger)`, func(scan func(...any)) { scan(&requests, &charges) })
	if requests != 1 || charges != 1 {
		t.Errorf("%d requests and %d rows of the ledger, want one of each", requests, charges)
	}
}
