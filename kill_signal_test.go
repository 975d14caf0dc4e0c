//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"semel/chat"
	"semel/llm/llmtest"
)

func (l *life) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := l.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// readyz asks a server whether it wants traffic.
func (w *world) readyz() (status int, code string) {
	l := w.current()
	res, err := w.send(l, http.MethodGet, "/readyz", nil)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	var p chat.Problem
	_ = json.NewDecoder(res.Body).Decode(&p) // code is empty then
	return res.StatusCode, p.Code
}

func TestSIGTERMLetsShortAnswersEndAndLeavesLongOnesToTheNextProcess(t *testing.T) {
	const drain = 10 * time.Second
	held := llmtest.NewServer(t, llmtest.Chat) // its answers end when they are let go
	held.PlayFunc(func(int64, []byte) llmtest.Script {
		return llmtest.Script{Text: llmtest.Tokens(60), Hang: llmtest.AfterPieces, HangAfter: 30}
	})
	db := writeConfig(t, killConfig+fmt.Sprintf("\n[[models]]\nname = \"held\"\nprovider = \"openai\"\nurl = %q\n[server]\ndrain = %q\n", held.URL, drain))
	w := newWorld(t)
	l := serveNow(t, db)
	w.begin(l)
	if status, _ := w.readyz(); status != http.StatusOK {
		t.Fatalf("/readyz answers %d before the signal", status)
	}

	const slowly = "Write. [[tokens 50000]] [[rate 100]]"
	short := w.newIntent(intent{session: chat.NewID(), content: "Write.", model: "held"})
	long := w.newIntent(intent{session: chat.NewID(), content: slowly})
	asks := w.newIntent(intent{session: chat.NewID(), content: slowly, model: "ask"})
	queued := w.newIntent(intent{session: long.session, content: "And then? [[tokens 5]] [[rate 0]]"})
	late := w.newIntent(intent{session: chat.NewID(), content: "Too late. [[tokens 5]] [[rate 0]]"})

	var shortTold, queuedTold *told
	var clients sync.WaitGroup
	readers := []*reader{{w: w, in: long}, {w: w, in: asks}}
	for _, r := range readers {
		clients.Go(func() {
			began := w.now(r.in)
			res, err := w.send(l, http.MethodPost, "/api/chat", r.in.body(), "Accept", "text/event-stream")
			if err != nil {
				t.Errorf("stream: %v", err)
				return
			}
			defer res.Body.Close()
			if a := r.read(res, began); a != nil {
				t.Errorf("the stream of a long answer ends with %s, and it should only close", a.State)
			}
		})
	}
	if !eventually(func() bool {
		a, b := w.status(long), w.status(asks)
		return a != nil && b != nil && a.Content != "" && b.Content != ""
	}) {
		t.Fatal("no partial text is stored")
	}
	clients.Go(func() { queuedTold = w.post(queued, 60) })
	clients.Go(func() { shortTold = w.post(short, 60) })
	if !eventually(func() bool {
		a, b := w.status(short), w.status(queued)
		return a.State == chat.StateGenerating && b.State == chat.StatePending
	}) {
		t.Fatal("the short answer does not begin")
	}

	select {
	case <-held.Stalled():
	case <-time.After(patience):
		t.Fatalf("the short answer comes to nothing\n%s", w.journal(short))
	}

	signalled := time.Now()
	l.signal(t, syscall.SIGTERM)
	if !eventually(func() bool {
		status, code := w.readyz()
		return status == http.StatusServiceUnavailable && code == "not_ready"
	}) {
		t.Errorf("/readyz does not say that the server is stopping:\n%s", l.log)
	}
	if a := w.post(late, 0); a == nil || a.HTTP != http.StatusServiceUnavailable || a.Code != "shutting_down" || a.Retry != chat.RetrySameID || a.Header.Get("Retry-After") == "" {
		t.Errorf("a new question while the server stops is answered with %+v", a)
	}
	if a := w.post(short, 0); a == nil || a.HTTP != http.StatusAccepted || a.Header.Get("X-Idempotent-Joined") != "true" {
		t.Errorf("a repeat while the server stops is answered with %+v", a)
	}
	held.Release()
	if code := l.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0:\n%s", code, l.log)
	}
	if took := time.Since(signalled); took > drain+patience {
		t.Errorf("the end took %s, and it may take %s and a little", took, drain)
	}
	clients.Wait()
	w.end()

	if shortTold == nil || shortTold.HTTP != http.StatusOK || shortTold.State != chat.StateCommitted || shortTold.Attempt != 1 {
		t.Errorf("the short answer is %+v", shortTold)
	}
	if queuedTold == nil || queuedTold.HTTP != http.StatusAccepted || queuedTold.State != chat.StatePending {
		t.Errorf("who waits for a turn is told %+v", queuedTold)
	}
	verifyFile(t, db)
	copy := copyDatabase(t, db, filepath.Join(t.TempDir(), "copy.db"))
	if info, err := os.Stat(db + "-wal"); err == nil && info.Size() > 0 {
		t.Errorf("%d bytes are left in the log of a file that was closed", info.Size())
	}
	for _, r := range readers {
		stored := storedText(t, copy, r.in.id)
		if len(r.text) == 0 || !strings.HasPrefix(stored, string(r.text)) {
			t.Errorf("a client saw %d bytes of an answer, and %d are stored", len(r.text), len(stored))
		}
	}
	rowsOf(t, openSQL(t, copy), `SELECT r.request_id, a.decision, coalesce(a.status, 0) FROM arrivals a JOIN requests r ON r.id = a.request_id ORDER BY r.id, a.n`,
		func(scan func(...any)) {
			var id, decision string
			var status int
			scan(&id, &decision, &status)
			if status == 0 {
				t.Errorf("what arrival %q of %s was answered is not recorded: a repeat counts up to the last", decision, id)
			}
		})

	// The next process goes on where this one stopped.
	l = serveNow(t, db)
	w.begin(l)
	a := w.status(asks)
	if a.State != chat.StateFailed || a.Error.Outcome != chat.OutcomeUnknown || a.Error.Retry != chat.RetryExplicit ||
		a.Content != storedText(t, copy, asks.id) || a.Error.Partial != len(a.Content) {
		t.Errorf("a person is to be asked, and the record is %+v", a)
	}
	if !eventually(func() bool { a = w.status(long); return a.Attempt == 2 && a.State == chat.StateGenerating }) {
		t.Errorf("the long answer is not begun again: %+v", a)
	}
	if a := w.stop(long, 2); a.HTTP != http.StatusOK {
		t.Errorf("stop: %+v", a)
	}
	for _, in := range []*intent{late, queued, short} {
		if a := w.post(in, 60); a == nil || a.HTTP != http.StatusOK || a.Attempt != 1 {
			t.Errorf("asked again, %s is answered with %+v", in.content, a)
		} else if in == short && !bytes.Equal(a.Message, shortTold.Message) {
			t.Errorf("the answer was\n%s\nand is now\n%s", shortTold.Message, a.Message)
		}
	}
	verifyFile(t, db)
}

func TestASecondSIGTERMEndsAtOnce(t *testing.T) {
	db := writeConfig(t, killConfig+"\n[server]\ndrain = \"5m\"\n")
	w := newWorld(t)
	l := serveNow(t, db)
	w.begin(l)
	in := w.newIntent(intent{session: chat.NewID(), content: "Write. [[tokens 90000]] [[rate 100]]"})
	w.post(in, 0)
	if !eventually(func() bool { return w.status(in).State == chat.StateGenerating }) {
		t.Fatal("nobody begins to answer")
	}
	l.signal(t, syscall.SIGTERM)
	if !eventually(func() bool { status, _ := w.readyz(); return status == http.StatusServiceUnavailable }) {
		t.Fatal("the first signal is not heard")
	}
	if l.gone() {
		t.Fatalf("the first signal does not let an answer end:\n%s", l.log)
	}
	second := time.Now()
	l.signal(t, syscall.SIGTERM)
	l.wait(t)
	if ws := l.cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %s, and the second signal should have ended it", l.cmd.ProcessState)
	}
	if took := time.Since(second); took > patience {
		t.Errorf("the end took %s", took)
	}
	w.end()
	verifyFile(t, db)
	l = serveNow(t, db)
	w.begin(l)
	if !eventually(func() bool { a := w.status(in); return a.Attempt == 2 && a.State == chat.StateGenerating }) {
		t.Errorf("the next process does not go on\n%s", w.journal(in))
	}
}
