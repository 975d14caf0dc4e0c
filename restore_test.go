package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"semel/chat"
	"semel/llm/llmtest"
)

// kept is what a client keeps of a question until it has heard: its id and its body.
type kept struct {
	id, session string
	answer      string // the message as it came; "" before
}

func (a *kept) body(confirm string) []byte {
	b, err := json.Marshal(map[string]string{"requestId": a.id, "sessionId": a.session, "content": "Question " + a.id, "confirm": confirm})
	if err != nil {
		panic(err) // strings
	}
	return b
}

// post sends a question; status 0 means that nobody was there.
func (a *kept) post(l *life, confirm string) (status int, said struct {
	Code    string          `json:"code"`
	Retry   string          `json:"retry"`
	Message json.RawMessage `json:"message"`
}) {
	req, err := http.NewRequestWithContext(l.ctx, http.MethodPost, l.url+"/api/chat", bytes.NewReader(a.body(confirm)))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := l.http.Do(req)
	if err != nil {
		return 0, said
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || json.Unmarshal(b, &said) != nil {
		return 0, said
	}
	return res.StatusCode, said
}

// The way back: a backup while clients ask, more questions, kill -9, a restore, and
// every client sends again what it had. The provider's own journal says that nothing
// was asked twice until a person said so, and nothing of the backup is lost.
func TestAfterARestoreNothingIsAskedTwiceWithoutAPerson(t *testing.T) {
	var tame atomic.Bool
	tame.Store(true)
	p := newProvider(t, llmtest.Chat, 0, &tame)
	file := writeConfig(t, fmt.Sprintf(`
[limits]
per_user_per_minute = 0
running_per_user = 0
[[models]]
name = "outside"
provider = "openai"
url = "http://%s/v1"
on_unknown = "rerun"
`, p.addr))
	l := serveNow(t, file)
	var mu sync.Mutex
	var all []*kept
	answered := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range all {
			if a.answer != "" {
				n++
			}
		}
		return n
	}
	var clients sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for n := 0; !l.gone(); n++ {
				a := &kept{id: chat.NewID(), session: fmt.Sprintf("session-%d-%03d", c, n/3)}
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
				if status, said := a.post(l, ""); status == http.StatusOK {
					mu.Lock()
					a.answer = string(said.Message)
					mu.Unlock()
				}
			}
		})
	}
	enough := func(n int) {
		t.Helper()
		if !eventually(func() bool { return answered() >= n }) {
			t.Fatalf("only %d answers:\n%s", answered(), l.log)
		}
	}
	enough(12)
	mu.Lock()
	safe := map[string]bool{} // answered before the backup began
	for _, a := range all {
		safe[a.id] = a.answer != ""
	}
	mu.Unlock()
	backup := filepath.Join(t.TempDir(), "backup.db")
	if out, stderr, code := runSemel(t, "backup", backup, "--db", file); code != 0 {
		t.Fatalf("backup: %s%s", out, stderr)
	}
	if out, stderr, code := runSemel(t, "restore", backup, "--db", file, "--force"); code != 1 || !strings.Contains(stderr, "another semel process is serving") {
		t.Errorf("a restore under a server: exit %d, %s%s", code, out, stderr)
	}
	enough(answered() + 24) // some of them were asked before the backup
	l.kill()
	clients.Wait()

	if _, stderr, code := runSemel(t, "restore", backup, "--db", file); code != 1 || !strings.Contains(stderr, "--force") {
		t.Errorf("a restore over a file: exit %d, %s", code, stderr)
	}
	out, stderr, code := runSemel(t, "restore", backup, "--db", file, "--force")
	if code != 0 || !strings.Contains(out, ".before-") {
		t.Fatalf("restore: %s%s", out, stderr)
	}
	if old, _ := filepath.Glob(file + ".before-*"); len(old) == 0 {
		t.Error("the file that was there is not kept")
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want mode 0600", fi, err)
	}
	before := p.arrivals()
	l = serveNow(t, file)
	var lost []*kept
	count := map[string]int{}
	for _, a := range all {
		status, said := a.post(l, "")
		what := fmt.Sprintf("%d %s", status, said.Code)
		count[what]++
		switch {
		case status == http.StatusOK:
			if a.answer != "" && a.answer != string(said.Message) {
				t.Errorf("%s was answered %s, and is now %s", a.id, a.answer, said.Message)
			}
		case safe[a.id]:
			t.Errorf("%s was answered before the backup, and is now %s", a.id, what)
		case status == http.StatusConflict && said.Code == "restored_gap" && said.Retry == "explicit":
			lost = append(lost, a)
		case said.Code != "restored":
			t.Errorf("%s: %s", a.id, what)
		}
	}
	t.Logf("%d questions: %v", len(all), count)
	if len(lost) < 12 || count["200 "] < 12 {
		t.Errorf("%d lost, %v: no test", len(lost), count)
	}
	for id, prompts := range p.arrivals() {
		if len(prompts) != len(before[id]) {
			t.Errorf("%s was asked again, and nobody wanted it", id)
		}
	}
	// A person wants one of them, and the click arrives as often as it likes.
	a := lost[0]
	var again sync.WaitGroup
	for range 8 {
		again.Go(func() {
			if status, said := a.post(l, "restored"); status != http.StatusOK && status != http.StatusAccepted { // it joined
				t.Errorf("confirmed: %d %s", status, said.Code)
			}
		})
	}
	again.Wait()
	if status, said := a.post(l, ""); status != http.StatusOK {
		t.Errorf("and then: %d %s", status, said.Code)
	}
	if got, was := len(p.arrivals()[a.id]), len(before[a.id]); got != was+1 {
		t.Errorf("the model was asked %d times, want once more than %d", got, was)
	}
	l.kill()
	verifyFile(t, file)
}
