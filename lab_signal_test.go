//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// beginLab starts a long lab in a group of its own, which is gone when nobody is left in
// it, and waits until its children run.
func beginLab(t *testing.T) (cmd *exec.Cmd, log *processLog, temp string) {
	t.Helper()
	cmd, _, temp = labProgram(t, t.Context(), "kill-each-phase", "--runs", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log = &processLog{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // where the test has failed
	if !eventually(func() bool {
		files, err := filepath.Glob(filepath.Join(temp, "semel-lab-*", "*", "semel.db"))
		return err == nil && len(files) > 0
	}) {
		t.Fatalf("it does not begin:\n%s", log)
	}
	return cmd, log, temp
}

// Ctrl-C ends everything: the children, and what they had written.
func TestCtrlCEndsTheLabAndItsChildren(t *testing.T) {
	cmd, log, temp := beginLab(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitUsage {
		t.Errorf("it ended with %v, want exit code 2:\n%s", err, log)
	}
	if !strings.Contains(log.String(), "context canceled") {
		t.Errorf("it says\n%s", log)
	}
	if err := syscall.Kill(-cmd.Process.Pid, 0); err != syscall.ESRCH {
		out, _ := exec.Command("ps", "-eo", "pid,pgid,args").Output()
		t.Errorf("somebody of its group is left (%v):\n%s", err, out)
	}
	if left := folder(t, temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
