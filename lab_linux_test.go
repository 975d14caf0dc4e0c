package main

import (
	"syscall"
	"testing"
)

// A server that is killed in the middle of a lab leaves no servers of the lab behind.
func TestTheChildrenOfALabDieWithIt(t *testing.T) {
	cmd, log, _ := beginLab(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if !eventually(func() bool { return syscall.Kill(-cmd.Process.Pid, 0) == syscall.ESRCH }) {
		t.Errorf("somebody of its group is left:\n%s", log)
	}
}
