package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// runChaos runs the program of the tests, in a folder of its own, and reads its report.
func runChaos(t *testing.T, report any, args ...string) {
	t.Helper()
	work := t.TempDir()
	program := filepath.Join(work, "chaos")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./chaos").CombinedOutput(); err != nil {
		t.Fatalf("go build ./chaos: %v\n%s", err, out)
	}
	cmd := exec.Command(program, append([]string{"-work", work}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err := cmp.Or(err, json.Unmarshal(out, report)); err != nil {
		t.Fatalf("chaos: %v\n%s", err, stderr.Bytes())
	}
}
