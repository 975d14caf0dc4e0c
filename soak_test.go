package main

import (
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"semel/chat"
	"semel/llm/llmtest"
)

var soakFlag = flag.Duration("soak", 5*time.Second, "how long providers misbehave while the server is killed")

// soakModels are the models of a soak: each wire format, with a person who decides
// about unknown outcomes and without one, and runs that their provider keeps.
var soakModels = []struct {
	name, provider string
	at             int // which of the providers
	ask            bool
	more           string
}{
	{"chat-ask", "openai", 0, true, ""},
	{"chat-rerun", "openai", 0, false, ""},
	{"responses-ask", "openai-responses", 1, true, ""},
	{"kept-ask", "openai-responses", 1, true, "background = true"},
	{"kept-rerun", "openai-responses", 1, false, "background = true"},
	{"anthropic-ask", "anthropic", 2, true, ""},
	{"anthropic-rerun", "anthropic", 2, false, ""},
}

// What the judge knows of the models.
const (
	soakAttempts = 3
	soakCrashes  = 4
)

func soakConfig(list []*provider) string {
	config := "[limits]\nper_user_per_minute = 0\nrunning_per_user = 0\n\n[server]\ndrain = \"1s\"\n"
	for _, m := range soakModels {
		unknown := "rerun"
		if m.ask {
			unknown = "ask"
		}
		config += fmt.Sprintf(`
[[models]]
name = %q
provider = %q
url = "http://%s/v1"
upstream_model = "model-a"
on_unknown = %q
price = { input = 1000000, output = 3000000 }
max_attempts = %d
max_crash_reruns = %d
first_token_timeout = "700ms"
idle_timeout = "700ms"
%s
`, m.name, m.provider, list[m.at].addr, unknown, soakAttempts, soakCrashes, m.more)
	}
	return config
}

// Providers refuse, lie, fall silent and hang up, and the server is killed. However
// that goes together: each attempt on record is one prompt at most, and no prompt is
// without one.
func TestEachPromptIsAnAttemptOnRecordWhateverProvidersDo(t *testing.T) {
	rng := randomly(t)
	var tame atomic.Bool
	var list []*provider
	for _, f := range []llmtest.Format{llmtest.Chat, llmtest.Responses, llmtest.Anthropic} {
		list = append(list, newProvider(t, f, rng.Uint64(), &tame))
	}
	db := writeConfig(t, soakConfig(list))
	w := newWorld(t)
	s := &soak{
		killer:    &killer{world: w, rng: rng, db: db, copy: filepath.Join(t.TempDir(), "copy.db"), stopped: map[string]int64{}},
		providers: list, pressed: map[press]bool{}, announced: map[press]int{},
	}
	enough, calm := make(chan struct{}), make(chan struct{})
	var clients, chaos sync.WaitGroup
	defer clients.Wait()
	defer close(w.over)

	l := serveNow(t, db)
	s.lives = append(s.lives, l)
	w.begin(l)
	for range 16 {
		c := &soakClient{client: client{world: w, rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))}, soak: s}
		clients.Go(func() { c.live(enough) })
	}
	unruly := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
	chaos.Go(func() { comeAndGo(unruly, list, calm) })

	began := time.Now()
	// Until all has come together that is to; a busy machine needs longer.
	for n := 1; (time.Since(began) < *soakFlag || n <= 4 || s.sum.missing() != "" && n <= 100) && !t.Failed(); n++ {
		time.Sleep(upTo(rng, 1200*time.Millisecond)) // the moment of the kill
		if n%4 == 3 && runtime.GOOS != "windows" {
			s.endInOrder(l)
		} else {
			s.kill(l)
		}
		s.remember(l)
		s.judgeFile()
		l = serveNow(t, db)
		s.lives = append(s.lives, l)
		w.begin(l)
		verifyFile(t, db)
	}
	tame.Store(true)
	close(calm)
	chaos.Wait()
	close(enough)
	clients.Wait()
	w.settle()
	if t.Failed() {
		return
	}
	final := w.collect()
	l.kill()
	w.end()
	s.remember(l)
	verifyFile(t, db)
	d := openSQL(t, copyDatabase(t, db, s.copy))
	s.judgeAnswers(d, final)
	sum := s.judgeCalls(d)
	t.Logf("%d lives, %d of them killed, %d questions, %s prompts in %.0f s", len(s.lives), s.kills, len(w.intents), counts(list), time.Since(began).Seconds())
	t.Log(sum)
	if what := sum.missing(); what != "" {
		t.Errorf("there was no %s, so this proves less than it says", what)
	}
}

// A soak is a world in which everything fails, and what is known of it from outside.
type soak struct {
	*killer
	providers []*provider
	lives     []*life

	announced  map[press]int // how often processes that are gone said that they dispatch
	reattached int           // runs they followed
	sum        soakSum       // when the file was last judged

	mu      sync.Mutex
	pressed map[press]bool
}

// A press is of the button that asks again, heard or not, by somebody who saw the
// attempt.
type press struct {
	id      string
	attempt int64
}

// endInOrder ends a life by SIGTERM. Its last words are how many prompts it sent.
func (s *soak) endInOrder(l *life) {
	t := s.t
	t.Helper()
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.world.end()
	if code := l.wait(t); code != 0 {
		t.Fatalf("SIGTERM: exit code %d\n%s", code, l.log)
	}
	last := stoppedLine.FindStringSubmatch(l.log.String())
	if last == nil {
		t.Fatalf("SIGTERM: no last words\n%s", l.log)
	}
	sent, err := strconv.Atoi(last[1])
	if n := len(dispatches(l)); err != nil || sent != n {
		t.Errorf("a process says that it dispatched %d calls, and that it sent %s prompts", n, last[1])
	}
}

var (
	stoppedLine    = regexp.MustCompile(`msg=stopped prompts_sent=(\d+)`)
	dispatchedLine = regexp.MustCompile(`msg=dispatched request_id=(\S+) session_id=\S+ attempt=(\d+)`)
	reattachedLine = regexp.MustCompile(`msg=re-attached request_id=`)
)

// dispatches returns the calls that a process says it was about to make.
func dispatches(l *life) (list []press) {
	for _, m := range dispatchedLine.FindAllStringSubmatch(l.log.String(), -1) {
		attempt, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			panic(err) // digits
		}
		list = append(list, press{m[1], attempt})
	}
	return list
}

// remember takes down what a process that is gone said it did.
func (s *soak) remember(l *life) {
	for _, p := range dispatches(l) {
		s.announced[p]++
	}
	s.reattached += len(reattachedLine.FindAllString(l.log.String(), -1))
}

// judgeFile judges the calls so far, when no process has the file.
func (s *soak) judgeFile() {
	s.t.Helper()
	d, err := sql.Open("sqlite", copyDatabase(s.t, s.db, s.copy))
	if err != nil {
		s.t.Fatal(err)
	}
	s.sum = s.judgeCalls(d)
	if err := d.Close(); err != nil {
		s.t.Error(err)
	}
}

// A soakClient asks, several times at once, stops, and decides about failures.
type soakClient struct {
	client
	soak *soak
}

func (c *soakClient) live(enough <-chan struct{}) {
	for !c.isOver() {
		select {
		case <-enough:
			return
		default:
			c.askOne()
		}
	}
}

func (c *soakClient) askOne() {
	if c.own == "" || c.rng.IntN(3) == 0 {
		c.own = chat.NewID()
	}
	in := c.newIntent(intent{session: c.own, model: soakModels[c.rng.IntN(len(soakModels))].name})
	in.content = "Question " + in.id + ": what happens now?"
	if c.rng.IntN(6) == 0 { // several at once, by any way
		var all sync.WaitGroup
		for range 2 + c.rng.IntN(3) {
			way := c.rng.IntN(3)
			all.Go(func() { c.once(in, way) })
		}
		all.Wait()
	}
	stop := c.rng.IntN(12) == 0
	for again := 0; !c.isOver(); {
		way := c.rng.IntN(3)
		if stop {
			way = 1
			c.stopSoon(in, c.rng.IntN(8))
		}
		a := c.once(in, way)
		switch {
		case a == nil || a.State.Live():
			// Nobody answered, or it takes longer: again with the same id.
		case !a.accepted():
			c.t.Errorf("the first answer is no acceptance: HTTP %d %s\n%s", a.HTTP, a.Code, c.journal(in))
			return
		case a.State.Answered():
			c.afterwards(in)
			return
		default:
			if again++; again > 2 || c.rng.IntN(3) == 0 {
				return
			}
			c.soak.mu.Lock()
			c.soak.pressed[press{in.id, a.Attempt}] = true
			c.soak.mu.Unlock()
			c.again(in, a)
		}
	}
}
