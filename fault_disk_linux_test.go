package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"semel/chat"
)

var diskFaultsFlag = flag.Int("diskfaults", 1, "how often each fault of the disk is tried, each time at another moment")

// A diskFault is an error that the kernel gives the program, from some call on or once.
type diskFault struct {
	call, errno string
	sticky      bool
	// fatal says that the process may not go on: the kernel may have dropped what it was
	// to write. Of other faults it hears, and goes on.
	fatal bool
}

var diskFaults = []diskFault{
	{"fdatasync", "EIO", false, true},
	{"fdatasync", "EIO", true, true},
	{"fdatasync", "ENOSPC", false, true},
	{"fdatasync", "EINTR", false, true},
	{"pwrite64", "EIO", false, true},
	{"pwrite64", "EIO", true, true},
	{"pwrite64", "ENOSPC", false, false},
	{"pwrite64", "ENOSPC", true, false},
	{"pwrite64", "EINTR", false, false},
	{"pread64", "EIO", false, true},
	{"ftruncate", "EIO", true, true},
	{"open", "EIO", true, false},
	{"open", "EMFILE", false, false},
}

func (f diskFault) inject(nth int) string {
	from := fmt.Sprint(nth)
	if f.sticky {
		from += "+"
	}
	return fmt.Sprintf("inject=%s:error=%s:when=%s", f.call, f.errno, from)
}

// The disk fails under the real program. It ends at once, with exit code 70, or says no;
// what it said yes to is there after the next start. For longer: -diskfaults 20.
func TestAFailingDiskTakesNothingThatAClientWasTold(t *testing.T) {
	rng := randomly(t)
	hits, ends, refusals, yes := 0, map[int]int{}, 0, 0
	rounds := 0
	little := func() bool { return hits < rounds*len(diskFaults)/2 || ends[exitIO] < 2 || refusals == 0 }
	for ; rounds < *diskFaultsFlag || little() && rounds < *diskFaultsFlag+5; rounds++ {
		for _, fault := range diskFaults {
			file := writeConfig(t, killConfig)
			w := newWorld(t)
			l := serveNow(t, file)
			w.begin(l)
			asked := w.askThrough(4, 60)
			l.kill()
			w.end()

			record := filepath.Join(t.TempDir(), "record")
			// Each thread counts for itself: some moment, and after the start as a rule.
			cmd := exec.Command(semelBinary(t), serveArgs(file)...)
			l = start(t, traced(t, cmd, "-o", record, "-P", file, "-P", file+"-wal", "-e", "signal=none", "-e", "trace="+fault.call, "-e", fault.inject(1+rng.IntN(12))))
			if l.ready(t) {
				w.begin(l)
				asked = append(asked, w.askThrough(12, 2)...)
			}
			hit := wasInjected(t, record)
			if hit {
				hits++
			}
			if hit && fault.fatal {
				if code := l.wait(t); code != exitIO && (l.url != "" || code != exitFailed) {
					t.Errorf("%+v: the process ended with %d:\n%s", fault, code, l.log)
				}
			}
			if l.gone() {
				ends[l.cmd.ProcessState.ExitCode()]++
			}
			l.kill()
			w.end()
			verifyFile(t, file)

			l = serveNow(t, file)
			w.begin(l)
			w.settle()
			for _, in := range asked {
				final := w.status(in)
				if wrong := changed(w.notes[in], final); wrong != "" {
					t.Errorf("%+v: %s\n%s", fault, wrong, w.journal(in))
				}
				for _, n := range w.notes[in] {
					switch {
					case n.accepted:
						yes++
					case n.http >= 500:
						refusals++
					}
				}
			}
			l.kill()
			verifyFile(t, file)
			if t.Failed() {
				t.Fatalf("%+v", fault)
			}
		}
	}
	t.Logf("%d faults, %d of them met; processes ended with %v; %d times yes, %d times no", len(diskFaults)*rounds, hits, ends, yes, refusals)
	if little() {
		t.Error("this proves little")
	}
}

// askThrough asks n questions, three at a time, and waits seconds for each answer.
func (w *world) askThrough(n, seconds int) (asked []*intent) {
	var all sync.WaitGroup
	for range 3 {
		session := chat.NewID()
		var mine []*intent
		for range n / 3 {
			mine = append(mine, w.newIntent(intent{session: session, content: "Write. [[tokens 20]] [[rate 0]]"}))
		}
		asked = append(asked, mine...)
		all.Go(func() {
			for _, in := range mine {
				w.post(in, seconds)
			}
		})
	}
	all.Wait()
	return asked
}

func wasInjected(t testing.TB, record string) bool {
	t.Helper()
	b, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte("(INJECTED)"))
}
