package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

// patience is how long a test waits for what must come soon. It is never waited
// out on a good day, and CI machines have bad ones.
const patience = 3 * time.Minute

var build struct {
	once   sync.Once
	dir    string
	binary string
	err    error
}

func TestMain(m *testing.M) {
	beServer()
	code := m.Run()
	if build.dir != "" {
		if err := os.RemoveAll(build.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// semelBinary builds the program as a release is built, without the race
// detector, once for all tests.
func semelBinary(t testing.TB) string {
	t.Helper()
	build.once.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "semel-test-*"); build.err != nil {
			return
		}
		build.binary = filepath.Join(build.dir, "semel")
		if runtime.GOOS == "windows" {
			build.binary += ".exe"
		}
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o", build.binary, ".").CombinedOutput()
		if err != nil {
			build.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.binary
}

// runSemel runs one command of the real program to its end.
func runSemel(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, semelBinary(t), args...)
	cmd.Env = cleanEnviron()
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("semel %s: %v", strings.Join(args, " "), err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// cleanEnviron is our environment without what would configure the program.
func cleanEnviron() []string {
	env := []string{"SEMEL_DISK_BALLAST=0"} // many servers at once would hold much, for nothing
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SEMEL_") {
			env = append(env, e)
		}
	}
	return env
}

// A life is one semel serve from its start to its end.
type life struct {
	cmd   *exec.Cmd
	log   *processLog
	url   string // once ready has returned
	http  *http.Client
	ended chan struct{} // closed when the process is gone
	over  context.CancelFunc
	ctx   context.Context // ends with the process: nobody talks to whoever gets its port next
}

// launch starts semel serve on a free port and does not wait for it.
func launch(t testing.TB, db string, args ...string) *life {
	t.Helper()
	return start(t, exec.Command(semelBinary(t), serveArgs(db, args...)...))
}

func serveArgs(db string, more ...string) []string {
	return append([]string{"serve", "--db", db, "--listen", "127.0.0.1:0"}, more...)
}

// start begins the life of a server's command. What cmd.Env has is added to a clean
// environment.
func start(t testing.TB, cmd *exec.Cmd) *life {
	t.Helper()
	l := &life{cmd: cmd, log: &processLog{}, ended: make(chan struct{})}
	l.ctx, l.over = context.WithCancel(context.Background())
	l.cmd.Env = append(cleanEnviron(), cmd.Env...)
	l.cmd.Stdout, l.cmd.Stderr = l.log, l.log
	// A life has connections of its own, and dies with them.
	l.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = l.cmd.Wait() // ProcessState says how it ended
		l.over()
		l.http.CloseIdleConnections()
		close(l.ended)
	}()
	t.Cleanup(func() { l.kill() })
	return l
}

var servingLine = regexp.MustCompile(`msg=serving url=(\S+)`)

// ready waits until the server serves; false when it ended first.
func (l *life) ready(t testing.TB) bool {
	t.Helper()
	up := eventually(func() bool {
		if m := servingLine.FindStringSubmatch(l.log.String()); m != nil {
			l.url = m[1]
			return true
		}
		return l.gone()
	})
	if !up {
		t.Fatalf("the server neither serves nor ends:\n%s", l.log)
	}
	return l.url != ""
}

// serveNow starts semel serve and waits until it serves.
func serveNow(t testing.TB, db string, args ...string) *life {
	t.Helper()
	l := launch(t, db, args...)
	if !l.ready(t) {
		t.Fatalf("semel serve ended by itself (exit code %d):\n%s", l.wait(t), l.log)
	}
	return l
}

func (l *life) gone() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// kill is kill -9. When it returns, the process is gone.
func (l *life) kill() {
	_ = l.cmd.Process.Kill() // it may have ended by itself
	<-l.ended
}

// wait returns the exit code of a process that is about to end; -1 means that a
// signal ended it.
func (l *life) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-l.ended:
		return l.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("the process does not end:\n%s", l.log)
		return 0
	}
}

// A processLog keeps what a process writes.
type processLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *processLog) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *processLog) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

// eventually asks again and again until the answer is yes; false when patience is
// at its end.
func eventually(yes func() bool) bool {
	deadline := time.Now().Add(patience)
	for every := time.Millisecond; time.Now().Before(deadline); every = min(2*every, 20*time.Millisecond) {
		if yes() {
			return true
		}
		time.Sleep(every)
	}
	return false
}

// verifyFile runs semel verify, which must find nothing.
func verifyFile(t testing.TB, db string) {
	t.Helper()
	stdout, stderr, code := runSemel(t, "verify", "--db", db, "--json")
	var report struct {
		Violated int         `json:"violated"`
		Checks   []checkLine `json:"checks"`
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("verify: exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	for _, c := range report.Checks {
		if c.Violations > 0 {
			t.Errorf("%s (%s) is violated %d times: %v", c.ID, c.Name, c.Violations, c.Samples)
		}
	}
	if code != 0 || report.Violated != 0 || len(report.Checks) == 0 {
		t.Fatalf("verify: exit code %d, %d of %d invariants violated: %s", code, report.Violated, len(report.Checks), stderr)
	}
}

// copyDatabase copies the file of a dead process with its log, so that whoever
// looks leaves the recovery to the next process. It returns to.
func copyDatabase(t testing.TB, from, to string) string {
	t.Helper()
	for _, suffix := range []string{"-shm", "-wal"} {
		if err := os.Remove(to + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(from+suffix, to+suffix); err != nil && !(suffix != "" && errors.Is(err, os.ErrNotExist)) {
			t.Fatal(err)
		}
	}
	return to
}

func copyFile(from, to string) (err error) {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	_, err = io.Copy(w, r)
	return err
}

// openSQL opens a file with nothing of Semel in between.
func openSQL(t testing.TB, path string) *sql.DB {
	t.Helper()
	d, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// rowsOf runs a query whose columns are all strings or numbers and calls each
// with every row.
func rowsOf(t testing.TB, d *sql.DB, query string, each func(scan func(...any))) {
	t.Helper()
	rows, err := d.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		each(func(dest ...any) {
			if err := rows.Scan(dest...); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
		})
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// storedText is the partial text of a request's newest attempt.
func storedText(t testing.TB, path, id string) string {
	t.Helper()
	var text strings.Builder
	d := openSQL(t, path)
	rowsOf(t, d, fmt.Sprintf(`SELECT p.text FROM partials p JOIN requests r ON r.id = p.request_id AND r.attempt = p.attempt
		WHERE r.request_id = '%s' ORDER BY p.n`, id), func(scan func(...any)) {
		var s string
		scan(&s)
		text.WriteString(s)
	})
	return text.String()
}

// writeConfig puts a semel.toml beside a new database and returns the path of
// the database.
func writeConfig(t testing.TB, toml string) (db string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "semel.toml"), []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "semel.db")
}
