package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A screen is a terminal: what a program writes and reads, and what a person sees.
type screen struct {
	keys *os.File // the person's side
	line *os.File // the program's
	mu   sync.Mutex
	seen bytes.Buffer // under mu
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{keys: keys, line: line}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 1024)
		for {
			n, err := keys.Read(b)
			s.mu.Lock()
			s.seen.Write(b[:n])
			s.mu.Unlock()
			if err != nil { // nobody has the other side any more
				return
			}
		}
	}()
	t.Cleanup(func() {
		line.Close()
		<-read
		keys.Close()
	})
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

func (s *screen) shows(text string) bool { return strings.Contains(s.text(), text) }

func (s *screen) echoes(t *testing.T) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(s.line.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// run starts semel at the terminal. typed is what is typed at each question that hides it.
func (s *screen) run(t *testing.T, typed []string, args ...string) (code int) {
	t.Helper()
	cmd := exec.Command(semelBinary(t), args...)
	cmd.Env = cleanEnviron()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.line, s.line, s.line
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for i, text := range typed {
		question := []string{"Password of ada: ", "Once more: "}[i]
		if !eventually(func() bool { return s.shows(question) && !s.echoes(t) }) {
			_ = cmd.Process.Kill()
			t.Fatalf("%q does not come, or shows what is typed: %q", question, s.text())
		}
		if _, err := io.WriteString(s.keys, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	if !s.echoes(t) {
		t.Error("the terminal shows nothing that is typed from now on")
	}
	return cmd.ProcessState.ExitCode()
}

func TestAPasswordIsNotSeenWhileItIsTyped(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "semel.db")
	for _, step := range []struct {
		what  string
		typed []string
		args  string
		code  int
		shown string
	}{
		{"twice not the same", []string{"correct horse battery\n", "correct horse buttery\n"}, "user add ada", 2, "the two passwords differ"},
		{"Ctrl-C", []string{"correct hor\x03"}, "user add ada", 2, "Password of ada"},
		{"twice the same", []string{"correct horse battery\n", "correct horse battery\n"}, "user add ada", 0, "ada may sign in"},
		{"another", []string{"another horse battery\n", "another horse battery\n"}, "user passwd ada", 0, "ada has another password"},
	} {
		s := newScreen(t)
		code := s.run(t, step.typed, append(strings.Fields(step.args), "--db", db)...)
		if code != step.code || !eventually(func() bool { return s.shows(step.shown) }) {
			t.Errorf("%s: exit %d, %q; want %d and %q", step.what, code, s.text(), step.code, step.shown)
		}
		if s.shows("hor") {
			t.Errorf("%s: what was typed is seen: %q", step.what, s.text())
		}
	}
	if out, _, _ := runSemel(t, "user", "list", "--db", db); strings.Count(out, "active") != 1 {
		t.Errorf("the accounts are %s", out)
	}
}
