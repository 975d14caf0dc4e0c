package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var evilFlag = flag.Bool("evil", false, "build every program that is wrong in one place, not only two of them")

// An evilBuild is this program with something wrong in it, and the test that must fail.
type evilBuild struct {
	name, file, pkg, test string
	smoke                 bool
	swaps                 [][2]string // a text of the file, and what takes its place
}

// evilBuilds reads testdata/evil.txt.
func evilBuilds(t *testing.T) (list []evilBuild) {
	t.Helper()
	text, err := os.ReadFile("testdata/evil.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, builds, _ := strings.Cut(string(text), "\n\n") // after what the file is
	for _, block := range strings.Split("\n"+builds, "\n== ")[1:] {
		var b evilBuild
		var to *string // the text that goes on
		for i, line := range strings.Split(strings.TrimRight(block, "\n"), "\n") {
			key, value, _ := strings.Cut(line, " ")
			switch {
			case i == 0:
				b.name = line
			case line == "--":
				b.swaps = append(b.swaps, [2]string{})
				to = &b.swaps[len(b.swaps)-1][0]
			case line == "++" && to != nil:
				to = &b.swaps[len(b.swaps)-1][1]
			case to != nil:
				if *to != "" {
					*to += "\n"
				}
				*to += line
			case key == "smoke":
				b.smoke = true
			case key == "in":
				b.file = value
			case key == "test":
				b.pkg, b.test, _ = strings.Cut(value, " ")
			default:
				t.Fatalf("testdata/evil.txt, %q: a line that says nothing: %q", b.name, line)
			}
		}
		list = append(list, b)
	}
	return list
}

// swapped returns the file of b with everything replaced. The source may have moved on
// since b was written: that is an error, not a mistake that nobody made.
func (b evilBuild) swapped() (string, error) {
	source, err := os.ReadFile(b.file)
	if err != nil {
		return "", err
	}
	s := string(source)
	if len(b.swaps) == 0 {
		return "", fmt.Errorf("nothing is replaced")
	}
	for _, w := range b.swaps {
		if n := strings.Count(s, w[0]); n != 1 {
			return "", fmt.Errorf("%s has %d times, want once, the text\n%s", b.file, n, w[0])
		}
		s = strings.Replace(s, w[0], w[1], 1)
	}
	return s, nil
}

// Programs that are wrong in one place, as somebody could make them: each is caught by
// the test that is there for it. -evil for all of them; two are always built.
func TestEvilBuildsAreCaught(t *testing.T) {
	tests := testTexts(t)
	list := evilBuilds(t)
	if len(list) < 20 {
		t.Fatalf("%d evil builds: this proves little", len(list))
	}
	for _, b := range list {
		wrong, err := b.swapped()
		if err != nil {
			t.Errorf("%s: %v", b.name, err)
			continue
		}
		if tests[b.test] == "" {
			t.Errorf("%s: there is no %s", b.name, b.test)
			continue
		}
		if !b.smoke && !*evilFlag {
			continue
		}
		t.Run(b.name, func(t *testing.T) { b.caught(t, wrong) })
	}
}

// caught builds and runs the test of b. The replaced file is given to the compiler in
// place of the one that is there, which nobody touches.
func (b evilBuild) caught(t *testing.T, wrong string) {
	dir := t.TempDir()
	replaced, overlay := filepath.Join(dir, "wrong.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(replaced, []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	at, err := filepath.Abs(b.file)
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{at: replaced}})
	if err == nil {
		err = os.WriteFile(overlay, list, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-timeout=5m", "-run=^"+b.test+"$", b.pkg)
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false -overlay="+overlay) // by the environment, for what the test builds
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("%s does not notice it:\n%s", b.test, last(out))
	case !strings.Contains(string(out), "--- FAIL: "+b.test+" ") || strings.Contains(string(out), "\npanic: "):
		t.Errorf("it is not %s that fails:\n%s", b.test, last(out))
	default:
		t.Logf("%s: %s", b.test, message(string(out)))
	}
}

// last is the end of what a command said.
func last(out []byte) string { return string(out[max(0, len(out)-2000):]) }

// message is the first thing that a test found wrong.
func message(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "_test.go:") && !strings.Contains(line, "to try the same again") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
