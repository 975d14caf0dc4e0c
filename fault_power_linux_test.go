package main

import (
	"flag"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"semel/chat"
)

var powercutsFlag = flag.Int("powercuts", 600, "how many files that a power cut could leave are looked at")

// traced returns cmd under strace, as whose child of its own it runs (-D): its process
// id and its exit code are those of the program.
func traced(t testing.TB, cmd *exec.Cmd, args ...string) *exec.Cmd {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatalf("this test needs strace: bash .ci/need strace (%v)", err)
	}
	args = append([]string{"-D", "-f", "-q", "--seccomp-bpf"}, args...)
	under := exec.Command(strace, append(append(args, "--"), cmd.Args...)...)
	under.Env = cmd.Env
	return under
}

// underRecord has everything written down that reaches a file or a socket. The record is
// complete when the life is over.
func underRecord(t testing.TB, cmd *exec.Cmd, record string) *exec.Cmd {
	return traced(t, cmd, "-y", "-xx", "-s", "1000000", "-o", record, "-e", "signal=none", "-e",
		"trace=open,openat,close,pwrite64,write,writev,pwritev,fsync,fdatasync,sync_file_range,ftruncate,fallocate,unlink,unlinkat,rename,renameat,renameat2,accept4")
}

// recordAnswers has a new database serve clients, in two lives, and returns what reached
// its disk and its clients. command is how to serve.
func recordAnswers(t testing.TB, file string, command func() *exec.Cmd) (dir string, records []string) {
	t.Helper()
	var err error
	dir, err = filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	for life := range 2 {
		record := filepath.Join(t.TempDir(), "record")
		l := start(t, underRecord(t, command(), record))
		if !l.ready(t) {
			t.Fatalf("the server under strace ended by itself:\n%s", l.log)
		}
		w.begin(l)
		var clients sync.WaitGroup
		for n := range 4 {
			clients.Go(func() {
				session := chat.NewID()
				for range 5 {
					in := w.newIntent(intent{session: session, content: "Write. [[tokens 60]] [[rate 0]]"})
					if n%2 == 0 {
						w.post(in, 0)
					}
					if a := w.post(in, 60); a == nil || a.HTTP != http.StatusOK {
						t.Errorf("asked under strace: %+v", a)
					}
				}
			})
		}
		clients.Wait()
		if life == 0 {
			// A shutdown checkpoints and empties the log; the next life begins it anew.
			if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := l.wait(t); code != 0 {
				t.Fatalf("the server ended with %d:\n%s", code, l.log)
			}
		} else {
			l.kill()
		}
		w.end()
		records = append(records, record)
	}
	return dir, records
}

// A cutReport is what the program of the tests found.
type cutReport struct {
	States, Steps, Answers, Questions int
	Wrong, Lost                       []string
}

// cutPower has the program of the tests look at n files that a power cut could have left.
func cutPower(t *testing.T, n int, dir string, records []string) (r cutReport) {
	t.Helper()
	rng := randomly(t)
	runChaos(t, &r, append([]string{"-dir", dir, "-states", strconv.Itoa(n), "-seed", strconv.FormatUint(rng.Uint64(), 10)}, records...)...)
	return r
}

// The power goes, at any moment: what was not synced is lost, or there, or there in part.
// The file opens, everything holds, and what a client was told is there. For longer:
// -powercuts 15000.
func TestAPowerCutLosesNothingThatAClientWasTold(t *testing.T) {
	file := writeConfig(t, killConfig)
	dir, records := recordAnswers(t, file, func() *exec.Cmd { return exec.Command(semelBinary(t), serveArgs(file)...) })
	r := cutPower(t, *powercutsFlag, dir, records)
	t.Logf("%d power cuts in a record of %d steps with %d words of answers and %d of questions", r.States, r.Steps, r.Answers, r.Questions)
	for _, w := range append(r.Wrong, r.Lost...) {
		t.Error(w)
	}
	if r.States < *powercutsFlag/2 || r.Answers < 40 || r.Questions < 10 {
		t.Errorf("%d states, %d answers, %d questions: this proves little", r.States, r.Answers, r.Questions)
	}
}

// The control: with synchronous=NORMAL the same cuts lose what clients were told, and
// this test sees it.
func TestAPowerCutWithoutASyncPerCommitIsSeenToLoseAnswers(t *testing.T) {
	file := writeConfig(t, killConfig)
	dir, records := recordAnswers(t, file, func() *exec.Cmd { return likeServer(t, serverNormal, file) })
	r := cutPower(t, 100, dir, records)
	t.Logf("%d power cuts: %d words lost", r.States, len(r.Lost))
	if len(r.Lost) < 20 {
		t.Errorf("without a sync per commit only %d words to clients were lost in %d power cuts: the other test would see nothing", len(r.Lost), r.States)
	}
	for _, w := range r.Wrong {
		t.Error(w) // SQLite's promise for NORMAL: the newest may be lost, nothing is torn
	}
}
