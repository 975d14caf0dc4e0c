package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"semel/lab"
)

// labProgram is the real lab in a folder of its own, whose temporary files go to temp.
func labProgram(t *testing.T, ctx context.Context, args ...string) (cmd *exec.Cmd, home, temp string) {
	t.Helper()
	home, temp = t.TempDir(), t.TempDir()
	cmd = exec.CommandContext(ctx, semelBinary(t), append([]string{"lab"}, args...)...)
	cmd.Dir = home
	cmd.Env = append(cleanEnviron(), "TMPDIR="+temp, "TMP="+temp, "TEMP="+temp)
	return cmd, home, temp
}

func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files
}

// What is in the folder, and what the environment says, is for the real server: the lab
// neither reads nor changes it.
func TestTheLabTouchesNothing(t *testing.T) {
	cmd, home, temp := labProgram(t, t.Context(), "network-retry", "--runs", "2", "--seed", "7", "--json")
	for name, text := range map[string]string{"semel.db": "not a database", "semel.toml": "not = [a configuration", "semel.db.key": "k"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Env = append(cmd.Env, "SEMEL_DB="+filepath.Join(home, "semel.db"), "SEMEL_LISTEN=203.0.113.1:1", "SEMEL_LIMITS_QUEUE=x")
	before := folder(t, home)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderrOf(err))
	}
	if after := folder(t, home); !maps.Equal(before, after) {
		t.Errorf("the folder was %v and is %v", before, after)
	}
	if left := folder(t, temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	var r lab.Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(r.Results) != 2 || r.Results[1].Seed != 8 || r.Results[1].Semel.Answers != 1 || r.Results[1].Naive.Answers != 2 || r.Go == "" || r.SQLite == "" || r.Semel == "" {
		t.Errorf("the report is %s", out)
	}
	said := r.Digest
	if err := r.Seal(); err != nil || r.Digest != said {
		t.Errorf("its digest is %s, and it says %s (%v)", r.Digest, said, err)
	}
}

func stderrOf(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}

// A run in which something does not hold ends the program with 1 and says how to have
// it again; here the scenario wants what cannot be.
func TestABrokenLabExitsWithOne(t *testing.T) {
	l, err := lab.New(lab.Options{Binary: semelBinary(t), Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	s := lab.Scenarios[0]
	was := s.Want["answers"]
	s.Want["answers"] = 3
	defer func() { s.Want["answers"] = was }()
	var out strings.Builder
	err = runLab(t.Context(), l, []lab.Scenario{s}, labOptions{runs: 1, seed: 5}, &out)
	var f *failure
	if !errors.As(err, &f) || f.code != exitFailed {
		t.Errorf("got %v, want exit code 1", err)
	}
	for _, want := range []string{"answers: 1, want 3", "BROKEN in 1", "semel lab network-retry --seed 5"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = runLab(ctx, l, []lab.Scenario{s}, labOptions{runs: 1, seed: 5}, io.Discard)
	if !errors.As(err, &f) || f.code != exitUsage {
		t.Errorf("a lab that could not run: %v, want exit code 2", err)
	}
}
