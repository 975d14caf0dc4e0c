package browsertest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/llm/llmtest"
)

// The real binary, killed with SIGKILL while it answers.

var removeBinary = func() {}

// binary is the program, built once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "semel-browsertest-")
	if err != nil {
		return "", err
	}
	removeBinary = func() { os.RemoveAll(dir) }
	path := filepath.Join(dir, "semel.exe") // a name that Windows runs, too
	out, err := exec.Command("go", "build", "-o", path, "semel").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build semel: %w\n%s", err, out)
	}
	return path, nil
})

// A process is the built program over a file of its own, and what it becomes
// after each start.
type process struct {
	server
	file string // of the database
	cmd  *exec.Cmd
	log  *lines
}

// startProcess starts the program with this policy for calls whose outcome nobody knows.
// Its model falls silent in the middle of the first answer, until whoever asked is gone,
// writes the second to its end, and says "beta" from then on.
func startProcess(t *testing.T, onUnknown string) *process {
	t.Helper()
	t.Parallel()
	p := newProcess(t)
	provider := llmtest.NewServer(t, llmtest.Chat)
	provider.PlayFunc(func(n int64, _ []byte) llmtest.Script {
		switch n {
		case 1:
			return llmtest.Script{Text: llmtest.Tokens(300), Hang: llmtest.AfterPieces, HangAfter: 120}
		case 2:
			return llmtest.Script{Text: llmtest.Tokens(300)}
		}
		return llmtest.Script{Text: []string{"beta"}}
	})
	p.configure(fmt.Sprintf("server.drain = \"200ms\"\n[[models]]\nname = \"model\"\nprovider = \"openai\"\nurl = %q\non_unknown = %q\n", provider.URL, onUnknown))
	p.start()
	return p
}

// newProcess is the program before its start, which needs its configuration.
func newProcess(t *testing.T) *process {
	t.Helper()
	if _, err := binary(); err != nil {
		t.Fatal(err)
	}
	p := &process{server: server{t: t, proxy: newProxy(t, "127.0.0.1:1")}, file: filepath.Join(t.TempDir(), "semel.db"), log: &lines{}}
	p.url = "http://" + p.proxy.addr
	t.Cleanup(func() {
		if p.cmd != nil {
			p.kill()
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", p.log)
		}
	})
	return p
}

// configure writes the semel.toml beside the database.
func (p *process) configure(text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(p.file), "semel.toml"), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// serving is the line with the address.
var serving = regexp.MustCompile(`msg=serving url=http://(\S+)`)

// start starts the program and returns when it serves.
func (p *process) start() {
	p.t.Helper()
	path, _ := binary()
	p.cmd = exec.Command(path, "serve", "--listen", "127.0.0.1:0", "--db", p.file)
	p.cmd.Env = append(os.Environ(), "SEMEL_DISK_BALLAST=0")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	addr := make(chan string, 1)
	go p.log.read(stderr, func(line string) {
		if m := serving.FindStringSubmatch(line); m != nil {
			addr <- m[1]
		}
	})
	select {
	case a := <-addr:
		p.proxy.backend.Store(a)
	case <-time.After(*patience):
		p.t.Fatalf("the server does not serve:\n%s", p.log)
	}
}

// kill is kill -9.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait() // it was killed, and says so
	p.cmd = nil
}

// end kills the program and checks what it leaves. It returns the database.
func (p *process) end() *db.DB {
	p.t.Helper()
	p.kill()
	d := dbtest.OpenAt(p.t, p.file, nil)
	checkFile(p.t, d, func(string, int) {})
	return d
}

func receiptOf(t *testing.T, d *db.DB, session, id string) db.Receipt {
	t.Helper()
	rc, err := d.Receipt(t.Context(), chat.Key{UserID: db.LocalUser, SessionID: session, RequestID: id})
	if err != nil {
		t.Fatal(err)
	}
	return rc
}

// lines keeps what a process says.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) read(r io.Reader, each func(string)) {
	for s := bufio.NewScanner(r); s.Scan(); {
		l.mu.Lock()
		l.all.WriteString(s.Text() + "\n")
		l.mu.Unlock()
		each(s.Text())
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// B7, B8, rerun: the server dies at 40 % of an answer. The page that stays open
// finds the next one by itself and shows the answer of the next attempt, once.
func TestKilledServerAnswersAfterItsRestart(t *testing.T) {
	p := startProcess(t, "rerun")
	tb := newProfile(t).open(p.url + "/").allow(lostRequests)
	id := tb.send("Tell me about crashes.")
	tb.grown(id, 300)
	p.kill()
	p.start()
	tb.marked(id, "answered")
	p.same(tb)
	tb.reads("? Tell me about crashes.", "! *")
	session := tb.session()
	rc := receiptOf(t, p.end(), session, id)
	if len(rc.Attempts) != 2 || rc.Attempts[0].Outcome != chat.OutcomeUnknown || rc.Attempts[0].Code != "interrupted" || rc.Attempts[1].Outcome != chat.OutcomeOK {
		t.Errorf("attempts: got %+v, want one interrupted and one that is the answer", rc.Attempts)
	}
	if n := len(p.proxy.posts("/api/chat", id)); n != 1 {
		t.Errorf("the question was sent %d times, want once", n)
	}
}

// B7, B8, ask: the text so far stays and says that it broke off; nothing spins;
// a person asks again, and the next turn knows the question.
func TestKilledServerKeepsThePartialAndAsks(t *testing.T) {
	p := startProcess(t, "ask")
	tb := newProfile(t).open(p.url + "/").allow(lostRequests)
	id := tb.send("Tell me about crashes.")
	session := tb.session()
	var rec struct{ Content, State string }
	until(t, "40 % of the answer are stored", func() bool {
		return p.get("/api/chat/status/"+id+"?sessionId="+session, &rec) == 200 && len(strings.Fields(rec.Content)) >= 80
	})
	p.kill()
	p.start()

	tb.marked(id, "unknown")
	tb.wait(`document.querySelector('[data-partial=interrupted]') && !document.querySelector('button[data-action=retry]').hidden`)
	p.same(tb)
	if shown := tb.text(id); len(strings.Fields(shown)) < 80 {
		t.Errorf("of the partial text %d words are left, want the 80 that were stored: %q", len(strings.Fields(shown)), shown)
	}
	tb.reload()
	p.same(tb)

	tb.click(`[data-request="`+id+`"] button[data-action=retry]`, 1)
	tb.marked(id, "answered")
	second := tb.send("And then?")
	tb.marked(second, "answered")
	p.same(tb)
	tb.reads("? Tell me about crashes.", "! *", "? And then?", "! beta")
	d := p.end()
	if rc := receiptOf(t, d, session, id); len(rc.Attempts) != 2 {
		t.Errorf("attempts: got %+v, want the one that was killed and the one that was asked for", rc.Attempts)
	}
	if got := contextOf(t, d, session, second); got != "user assistant user" {
		t.Errorf("the next turn saw %q, want the question, its answer and its own question", got)
	}
}

// contextOf returns the roles of what the model was shown for a request.
func contextOf(t *testing.T, d *db.DB, session, id string) string {
	t.Helper()
	rc := receiptOf(t, d, session, id)
	seqs, err := d.FrozenContext(t.Context(), rc.Request.ID)
	if err != nil {
		t.Fatal(err)
	}
	turns, err := d.Turns(t.Context(), rc.Request.ConversationID, seqs)
	if err != nil {
		t.Fatal(err)
	}
	var roles []string
	for _, m := range turns {
		roles = append(roles, m.Role)
	}
	return strings.Join(roles, " ")
}
