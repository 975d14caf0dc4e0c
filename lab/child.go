package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
)

// A child is one application, from its start to its end.
type child struct {
	cmd     *exec.Cmd
	address string
	ended   chan struct{} // closed when the process is gone
}

var servingLine = regexp.MustCompile(`msg=serving url=http://(\S+)`)

// startChild runs the program with args in dir until it says that it serves. It is
// killed when ctx ends.
func startChild(ctx context.Context, binary, dir string, output io.Writer, args ...string) (*child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, binary, args...), ended: make(chan struct{})}
	c.cmd.Dir, c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = dir, childEnviron(), w, w
	diesWithUs(c.cmd)
	started, serving := make(chan error, 1), make(chan string, 1)
	var last tail
	go func() {
		defer close(c.ended)
		defer r.Close()
		// Where a child dies with the thread that started it, that is this one.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		w.Close() // the child has its own
		if started <- err; err != nil {
			return
		}
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if m := servingLine.FindStringSubmatch(lines.Text()); m != nil {
				serving <- m[1]
			}
			last.add(lines.Text())
			if output != nil {
				fmt.Fprintln(output, lines.Text())
			}
		}
		_ = c.cmd.Wait() // whoever waits wants to know that it is gone, not how
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	select {
	case c.address = <-serving:
		return c, nil
	case <-c.ended:
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%s %s ended before it served: %s", binary, args[0], last.String())
	}
}

// kill is kill -9. When it returns, the process is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	<-c.ended
}

// childEnviron is the environment without what would configure the program.
func childEnviron() (env []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SEMEL_") {
			env = append(env, e)
		}
	}
	return append(env, "SEMEL_DISK_BALLAST=0") // it lives for a moment
}

// A tail keeps the last lines of what a child says.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	t.lines = t.lines[max(0, len(t.lines)-5):]
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "; ")
}
