package lab

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "modernc.org/sqlite"
)

// addresses collects those of all children from what they say.
type addresses struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (a *addresses) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.Write(b)
}

func (a *addresses) all() (list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range servingLine.FindAllStringSubmatch(a.text.String(), -1) {
		list = append(list, m[1])
	}
	return list
}

// nothingLeft fails where a child still listens, or a file of a run is left.
func nothingLeft(t *testing.T, dir string, a *addresses, children int) {
	t.Helper()
	list := a.all()
	if len(list) != children {
		t.Errorf("%d children served, want %d", len(list), children)
	}
	for _, address := range list {
		// Somebody else may have the port by now, who does not know this conversation.
		res, err := http.Get("http://" + address + "/api/conversations/lab-session-a")
		if err != nil {
			continue
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil && res.StatusCode == http.StatusOK && bytes.Contains(b, []byte("lab-session-a")) {
			t.Errorf("a child still serves at %s", address)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left behind: %s", e.Name())
	}
}

// temporaries is where temporary files go for the rest of a test, empty at first.
func temporaries(t *testing.T) string {
	t.Helper()
	program(t) // it is built elsewhere
	dir := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, dir)
	}
	return dir
}

func TestARunLeavesNothing(t *testing.T) {
	dir := temporaries(t)
	var a addresses
	if _, err := newLab(t, Options{Output: &a}).Run(t.Context(), Run{Scenario: "restart-mid-answer", Seed: 1}, func(Event) {}); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, dir, &a, 4)
}

// Whoever closes the page or presses Ctrl-C ends the run where it is: between two steps,
// and while the model and the client wait for each other.
func TestARunThatIsGivenUpLeavesNothing(t *testing.T) {
	dir := temporaries(t)
	for _, step := range []int{0, 1} {
		var a addresses
		ctx, cancel := context.WithCancel(t.Context())
		_, err := newLab(t, Options{Output: &a}).Run(ctx, Run{Scenario: "restart-mid-answer", Seed: 1}, func(e Event) {
			if e.Kind == KindOutcome && e.Step == step {
				cancel()
			}
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("given up after step %d: %v", step, err)
		}
		nothingLeft(t, dir, &a, 2)
	}
}

func TestAProgramThatDoesNotServeIsAnError(t *testing.T) {
	dir := temporaries(t)
	l, err := New(Options{Binary: program(t), Output: &addresses{}})
	if err != nil {
		t.Fatal(err)
	}
	l.o.Binary = filepath.Join(dir, "missing")
	if _, err := l.Run(t.Context(), Run{Scenario: "storm"}, func(Event) {}); err == nil {
		t.Error("a program that does not exist has run")
	}
	if _, err := startChild(t.Context(), program(t), dir, nil, "serve", "--config", "missing.toml"); err == nil || !strings.Contains(err.Error(), "ended before it served: ") {
		t.Errorf("got %v", err)
	}
	if _, err := l.Run(t.Context(), Run{Scenario: "nope"}, func(Event) {}); err == nil {
		t.Error("a scenario that does not exist has run")
	}
	nothingLeft(t, dir, &addresses{}, 0)
}

// In step mode nothing happens between two steps until somebody asks for the next.
func TestStepMode(t *testing.T) {
	next := make(chan struct{})
	var steps []int
	_, err := newLab(t, Options{}).Run(t.Context(), Run{Scenario: "same-words", Seed: 1, Next: next}, func(e Event) {
		switch e.Kind {
		case KindStep:
			steps = append(steps, e.Step)
		case KindOutcome:
			if e.Lane == Semel && e.Step < 2 {
				if len(steps) != e.Step+1 {
					t.Errorf("after step %d there were the steps %v", e.Step, steps)
				}
				go func() { next <- struct{}{} }()
			}
		}
	})
	if err != nil || len(steps) != 3 {
		t.Errorf("steps %v, %v", steps, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	_, err = newLab(t, Options{}).Run(ctx, Run{Scenario: "same-words", Seed: 1, Next: next}, func(e Event) {
		if e.Kind == KindOutcome && e.Lane == Semel {
			cancel()
		}
		if e.Step > 0 {
			t.Errorf("%s at step %d, which nobody has asked for", e.Kind, e.Step)
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("given up while it waits: %v", err)
	}
}

// A report of the same seeds has the same digest, and another where anything differs.
func TestAReportCanBeRepeated(t *testing.T) {
	l := newLab(t, Options{})
	report := func(seed uint64) Report {
		r := Report{Semel: "x", Seed: seed, Runs: 1}
		for _, name := range []string{"double-submit", "callbacks"} {
			one, err := l.Run(t.Context(), Run{Scenario: name, Seed: seed}, func(Event) {})
			if err != nil {
				t.Fatal(err)
			}
			r.Results = append(r.Results, one)
		}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b, other := report(1), report(1), report(2)
	if a.Digest != b.Digest || len(a.Digest) != 64 {
		t.Errorf("the same seed: %+v and %+v", a, b)
	}
	if a.Digest == other.Digest {
		t.Error("another seed, and the same digest")
	}
	b.Results[0].Naive.Tokens++
	if err := b.Seal(); err != nil || b.Digest != a.Digest {
		t.Errorf("chance is in the digest (%v)", err)
	}
	b.Results[1].Semel.Answers++
	if err := b.Seal(); err != nil || b.Digest == a.Digest {
		t.Errorf("another figure, and the same digest (%v)", err)
	}
}

// Whoever is kept on its way when a run ends goes, too: the page's process makes many runs.
func TestClosingALaneLetsGoWhatItKeeps(t *testing.T) {
	n, err := newLab(t, Options{}).open(t.Context(), Naive, filepath.Join(t.TempDir(), "lane"), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.do(t.Context(), 0, Step{Do: "begin", Click: "a", Words: "Why?", Fault: "mid-answer"}); err != nil {
		t.Error(err)
	}
	n.close()
	if err := until(t.Context(), n.held.over, "the call of the model"); err != nil {
		t.Error(err)
	}
}

// Whatever the figures say: a file in which an invariant does not hold is broken.
func TestABrokenInvariantIsFound(t *testing.T) {
	l := newLab(t, Options{})
	n, err := l.open(t.Context(), Semel, filepath.Join(t.TempDir(), "lane"), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	for i, s := range Scenarios[0].Steps {
		if _, err := n.do(t.Context(), i, s); err != nil {
			t.Fatal(err)
		}
	}
	n.kill()
	if list, err := violations(t.Context(), n.file); err != nil || len(list) > 0 {
		t.Fatalf("before: %v, %v", list, err)
	}
	d, err := sql.Open("sqlite", n.file)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, q := range []string{`DROP TRIGGER ` + trigger(t, d, "ledger"), `UPDATE ledger SET micros = micros + 1 WHERE kind = 'charge'`} {
		if _, err := d.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := violations(t.Context(), n.file); err != nil || len(list) == 0 {
		t.Errorf("after the damage: %v, %v", list, err)
	}
}

// trigger names the one that keeps a table from being updated.
func trigger(t *testing.T, d *sql.DB, table string) (name string) {
	t.Helper()
	if err := d.QueryRow(`SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? AND sql LIKE '%BEFORE UPDATE%'`, table).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}
