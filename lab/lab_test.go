package lab

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/views"
)

var seeds = flag.Int("seeds", 2, "with how many seeds each scenario runs")

var build struct {
	once   sync.Once
	dir    string
	binary string
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if build.dir != "" {
		if err := os.RemoveAll(build.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// program builds the real program, once for all tests.
func program(t testing.TB) string {
	t.Helper()
	build.once.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "semel-test-*"); build.err != nil {
			return
		}
		build.binary = filepath.Join(build.dir, "semel")
		if runtime.GOOS == "windows" {
			build.binary += ".exe"
		}
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", build.binary, ".")
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.binary
}

func newLab(t testing.TB, o Options) *Lab {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	o.Binary, o.Schema = program(t), string(schema)
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A diary is what a run told, for whoever has to find out why it failed.
type diary struct {
	events []Event
}

func (d *diary) write(e Event) { d.events = append(d.events, e) }

func (d *diary) String() string {
	var b strings.Builder
	for _, e := range d.events {
		fmt.Fprintf(&b, "%s %d %s %s %v", e.Kind, e.Step, e.Lane, e.Say.Key, e.Say.Args)
		if e.Board != nil {
			fmt.Fprintf(&b, " %+v", *e.Board)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Every scenario, with the real program: what must hold on the right holds, and the
// naive lane shows the damage that the scenario is about, or it would prove nothing.
func TestScenarios(t *testing.T) {
	for i, s := range Scenarios {
		if other, _ := Find(s.Name); s.Number != i+1 || other.Title != s.Title {
			t.Errorf("scenario %d has the number %d and the name %s, by which another is found", i+1, s.Number, s.Name)
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, Options{})
			for seed := uint64(1); seed <= uint64(*seeds); seed++ {
				var d diary
				r, err := l.Run(t.Context(), Run{Scenario: s.Name, Seed: seed}, d.write)
				if err != nil {
					t.Fatalf("seed %d: %v\n%s", seed, err, &d)
				}
				if len(r.Broken) > 0 {
					t.Errorf("seed %d: %v\n%s", seed, r.Broken, &d)
				}
				for _, name := range s.Damage {
					if !slices.Contains(r.Damage, name) {
						t.Errorf("seed %d: the naive lane is right about %s\n%s", seed, name, &d)
					}
				}
				if want := 2 + 3*len(s.Steps); len(d.events) != want {
					t.Errorf("seed %d: %d events, want %d\n%s", seed, len(d.events), want, &d)
				}
				d.judgeWords(t, s)
			}
		})
	}
}

// Everything that is said has words in both languages, and a value for each place.
func (d *diary) judgeWords(t *testing.T, s Scenario) {
	t.Helper()
	sentences := []Sentence{say(s.Title), say(s.About)}
	for _, e := range d.events {
		if e.Say.Key != "" {
			sentences = append(sentences, e.Say)
		} else if e.Kind == KindStep || e.Kind == KindOutcome {
			t.Errorf("nothing is said at step %d (%s)", e.Step, e.Lane)
		}
	}
	for _, l := range views.Locales {
		for _, one := range sentences {
			if text := l.T(one.Key, one.Args...); strings.Contains(text, "{") {
				t.Errorf("%s, %s: %s", l.Tag, one.Key, text)
			}
		}
	}
}

// A lab that cannot fail proves nothing: here the client of the right lane breaks its
// promise and mints an id for every retry.
func TestALabWithABrokenRightLaneFails(t *testing.T) {
	for _, name := range []string{"network-retry", "double-submit", "queue-redelivery", "kill-each-phase"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, Options{rewrite: func(body []byte) []byte {
				var q map[string]any
				if err := json.Unmarshal(body, &q); err != nil {
					return body
				}
				q["requestId"] = newID(time.Now())
				b, err := json.Marshal(q)
				if err != nil {
					return body
				}
				return b
			}})
			var d diary
			r, err := l.Run(t.Context(), Run{Scenario: name, Seed: 1}, d.write)
			if err != nil {
				t.Fatalf("%v\n%s", err, &d)
			}
			if len(r.Broken) == 0 {
				t.Errorf("nothing is broken: %+v\n%s", r, &d)
			}
		})
	}
}
