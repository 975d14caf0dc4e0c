package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// children are the processes that a process has started and that are not gone.
func children(t *testing.T, pid int) (list []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // a thread that has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.Fields(string(b))...)
	}
	return list
}

// Stop, and the end of the server, leave no process behind.
func TestNoProcessOutlivesARunOfTheLab(t *testing.T) {
	p := startLab(t)
	tb := newProfile(t).open(p.url + "/lab/network-retry?step=1").allow(lostRequests)
	tb.wait(`document.querySelector('#stage')`)
	pid := p.cmd.Process.Pid
	run := func() []string {
		t.Helper()
		tb.click("[data-do=step]", 1)
		tb.stage("paused", 1)
		list := children(t, pid)
		if len(list) != 2 {
			t.Fatalf("the program has started %v; that is not two applications", list)
		}
		return list
	}
	run()
	tb.click("[data-do=stop]", 1)
	tb.wait(`document.querySelector('#stage').dataset.state === 'stopped'`)
	if left := children(t, pid); len(left) != 0 {
		t.Errorf("after stop there is %v", left)
	}
	started := run()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	p.cmd = nil
	for _, id := range started {
		if _, err := os.Stat("/proc/" + id); !os.IsNotExist(err) {
			t.Errorf("after the end of the server process %s is still there", id)
		}
	}
}
