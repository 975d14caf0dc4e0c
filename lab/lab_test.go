package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
)

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

func newLab(t testing.TB) *Lab {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(Options{Binary: program(t), Schema: string(schema)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Every scenario, with the real program: what must hold on the right holds, and the
// naive lane shows the damage that the scenario is about, or it would prove nothing.
func TestScenarios(t *testing.T) {
	l := newLab(t)
	for _, s := range Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			for seed := range uint64(2) {
				var told []string
				r, err := l.Run(t.Context(), Run{Scenario: s.Name, Seed: seed + 1}, func(e Event) {
					told = append(told, fmt.Sprintf("%s %d %s %s %+v", e.Kind, e.Step, e.Lane, e.Say.Key, e.Board))
				})
				if err != nil {
					t.Fatalf("seed %d: %v\n%s", seed+1, err, told)
				}
				for _, b := range r.Broken {
					t.Errorf("seed %d: %s", seed+1, b)
				}
				for _, name := range s.Damage {
					if !slices.Contains(r.Damage, name) {
						t.Errorf("seed %d: the naive lane is right about %s: %+v", seed+1, name, r.Naive)
					}
				}
				if t.Failed() {
					for _, line := range told {
						t.Log(line)
					}
				}
			}
		})
	}
}
