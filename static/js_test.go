package static

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// The modules' own tests, by Node's test runner: nothing to install but Node 20.
func TestModules(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("the tests of the browser modules need Node.js 20 or newer: no node in PATH (Debian: apt-get install nodejs)")
	}
	files, err := filepath.Glob("*.test.mjs")
	if err != nil || len(files) == 0 {
		t.Fatalf("test files %v, error %v", files, err)
	}
	out, err := exec.Command(node, append([]string{"--test"}, files...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("node --test: %v\n%s", err, out)
	}
}
