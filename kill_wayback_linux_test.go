package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// A step is a call by which a command changes what is on the disk: the moment before its
// first one on that file is a point at which the command can die.
type diskStep struct {
	call string
	file string // its name in the folder of the database; "" is whatever file it is
	hit  int    // with any file: the how manieth call of a thread
}

func (s diskStep) String() string {
	if s.file == "" {
		return fmt.Sprint(s.call, " ", s.hit)
	}
	return s.call + " of " + s.file
}

// changing are the calls that change a file, a name, or what is durable.
const changing = "write,pwrite64,copy_file_range,fsync,fdatasync,ftruncate,fchmodat,unlink,unlinkat,rename,renameat,renameat2"

// dies returns the command with arguments args that dies there, by SIGKILL as it enters
// the call. (With --seccomp-bpf strace sends no signal.)
func (s diskStep) dies(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatalf("this test needs strace: bash .ci/need strace (%v)", err)
	}
	with := []string{"-D", "-f", "-q", "-o", "/dev/null", "-e", "signal=none", "-e", "trace=" + s.call,
		"-e", "inject=" + s.call + ":signal=KILL:when=" + strconv.Itoa(max(s.hit, 1))}
	if s.file != "" {
		with = append(with, "-P", filepath.Join(dir, s.file))
	}
	cmd := exec.Command(strace, append(append(with, "--", semelBinary(t)), args...)...)
	cmd.Env = cleanEnviron()
	return cmd
}

// ends runs cmd and returns its exit code, -1 when it was killed.
func ends(t testing.TB, cmd *exec.Cmd) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), b.String()
}

// stepsOf runs a command to its end and returns each step that it took in the folder of
// its database, once, in order. What has the time in its name is left out.
func stepsOf(t testing.TB, dir string, args ...string) (list []diskStep) {
	t.Helper()
	record := filepath.Join(t.TempDir(), "record")
	cmd := exec.Command(semelBinary(t), args...)
	cmd.Env = cleanEnviron()
	if code, out := ends(t, traced(t, cmd, "-y", "-s", "400", "-o", record, "-e", "signal=none", "-e", "trace="+changing)); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	b, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^\d+ +(\w+)\((.*)`)
	inside := regexp.MustCompile(`["<]` + regexp.QuoteMeta(dir+string(filepath.Separator)) + `([^">]+)[">]`)
	for _, l := range strings.Split(string(b), "\n") {
		call := line.FindStringSubmatch(l)
		if call == nil {
			continue
		}
		file := inside.FindStringSubmatch(call[2])
		if file == nil || strings.Contains(file[1], ".before-") {
			continue
		}
		if s := (diskStep{call: call[1], file: file[1]}); !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// wayBack is a database as a kill leaves it, and earlier copies of it.
type wayBack struct {
	files    map[string][]byte // by the ending of the name: the database, and its log
	backup   string
	sealed   string
	identity string
	earlier  string // an answered request of the copies
	later    string // one that the file alone has
}

func newWayBack(t *testing.T) *wayBack {
	t.Helper()
	dir := t.TempDir()
	w := &wayBack{files: map[string][]byte{}, backup: filepath.Join(dir, "backup.db"), sealed: filepath.Join(dir, "backup.db.age"), identity: filepath.Join(dir, "identity.txt")}
	path := filepath.Join(dir, "semel.db")
	d := dbtest.OpenAt(t, path, nil)
	for i := range 4 {
		w.earlier = dbtest.Answered(t, d, fmt.Sprint("session-earlier-", i), "Long ago?", strings.Repeat("So long ago. ", 2000)).Key.RequestID
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.identity, []byte(id.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{w.backup}, {w.sealed, "--encrypt-to", id.Recipient().String()}} {
		if out, stderr, code := runSemel(t, append([]string{"backup", "--db", path}, args...)...); code != 0 {
			t.Fatal(out, stderr)
		}
	}
	w.later = dbtest.Answered(t, d, "session-later", "And since?", strings.Repeat("Only here. ", 20_000)).Key.RequestID
	for _, s := range []string{"", "-wal"} { // the last answer is in the log
		b, err := os.ReadFile(path + s)
		if err != nil || len(b) == 0 {
			t.Fatal(len(b), err)
		}
		w.files[s] = b
	}
	return w
}

// put writes the database into a folder of its own, by the name the kernel has for it.
func (w *wayBack) put(t testing.TB) (path string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "semel.db")
	for s, b := range w.files {
		if err := os.WriteFile(path+s, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// isWhole reports whether the database is at path with its log, untouched.
func (w *wayBack) isWhole(path string) bool {
	for s, b := range w.files {
		if got, err := os.ReadFile(path + s); err != nil || !bytes.Equal(got, b) {
			return false
		}
	}
	return true
}

// kept returns where the database is that was there, untouched.
func (w *wayBack) kept(t testing.TB, path string) string {
	t.Helper()
	found := ""
	old, err := filepath.Glob(path + ".before-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range old {
		if w.isWhole(name) {
			found = name
		}
	}
	return found
}

// has looks into the database for both answers.
func (w *wayBack) has(t testing.TB, path string) (earlier, later bool) {
	t.Helper()
	rowsOf(t, openSQL(t, path), `SELECT r.request_id FROM requests r JOIN snapshots s ON s.request_id = r.id`, func(scan func(...any)) {
		var id string
		scan(&id)
		earlier, later = earlier || id == w.earlier, later || id == w.later
	})
	return earlier, later
}

// each calls do for each of the points, two at a time.
func eachPoint(list []diskStep, do func(diskStep)) {
	var all sync.WaitGroup
	slots := make(chan bool, 2)
	for _, s := range list {
		slots <- true
		all.Go(func() {
			defer func() { <-slots }()
			do(s)
		})
	}
	all.Wait()
}

// semel restore dies before each of its steps, and its second try dies at the same one.
// Then the old file is whole, or the place is served by nobody and the same command
// completes: nothing is lost, and the file that was there is kept with its log. Each
// point is met with one kind of backup, with both by -points.
func TestARestoreThatDiesAtAnyStepLeavesNoHalf(t *testing.T) {
	w := newWayBack(t)
	began, deaths := time.Now(), 0
	var mu sync.Mutex
	for n, how := range [][]string{{w.backup}, {w.sealed, "--identity", w.identity}} {
		command := func(path string) []string {
			return append([]string{"restore", "--force", "--db", path}, how...)
		}
		model := w.put(t)
		points := stepsOf(t, filepath.Dir(model), command(model)...)
		for _, must := range []diskStep{
			{call: "pwrite64", file: "semel.db.restoring"}, {call: "pwrite64", file: "semel.db.restoring-wal"}, {call: "write", file: "semel.db.restore-unfinished"},
			{call: "renameat", file: "semel.db-wal"}, {call: "renameat", file: "semel.db"}, {call: "renameat", file: "semel.db.restoring"}, {call: "unlinkat", file: "semel.db.restore-unfinished"},
		} {
			if !slices.Contains(points, must) {
				t.Fatalf("the steps of a restore have no %s: %v", must, points)
			}
		}
		var list []diskStep
		for i, p := range points {
			if *pointsFlag || i%2 == n || strings.HasPrefix(p.call, "rename") {
				list = append(list, p)
			}
		}
		eachPoint(list, func(p diskStep) {
			path := w.put(t)
			for death := range 2 {
				if code, out := ends(t, p.dies(t, filepath.Dir(path), command(path)...)); code != -1 {
					t.Errorf("%s, death %d: it ended by itself with %d: %s", p, death, code, out)
				}
				w.judgeHalf(t, fmt.Sprint(p, ", death ", death), path)
			}
			out, stderr, code := runSemel(t, command(path)...)
			if code != 0 {
				t.Errorf("%s: the same command again: exit %d, %s%s", p, code, out, stderr)
				return
			}
			w.judgeRestored(t, p, path)
			mu.Lock()
			defer mu.Unlock()
			deaths += 2
		})
	}
	t.Logf("%d deaths in %.0f s", deaths, time.Since(began).Seconds())
}

// What a killed restore left has no part in the next one, which may be of another backup.
func TestARestoreTakesNothingFromOneThatDied(t *testing.T) {
	w := newWayBack(t)
	newer := filepath.Join(t.TempDir(), "newer.db")
	if out, stderr, code := runSemel(t, "backup", newer, "--db", w.put(t)); code != 0 {
		t.Fatal(out, stderr)
	}
	// SQLite has written into the copy what its journal would take back.
	for _, p := range []diskStep{{call: "fdatasync", file: "semel.db.restoring"}, {call: "unlink", file: "semel.db.restoring-journal"}, {call: "fdatasync", file: "semel.db.restoring-wal"}} {
		path := w.put(t)
		if code, out := ends(t, p.dies(t, filepath.Dir(path), "restore", w.backup, "--force", "--db", path)); code != -1 {
			t.Errorf("%s: it ended by itself with %d: %s", p, code, out)
		}
		if out, stderr, code := runSemel(t, "restore", newer, "--force", "--db", path); code != 0 {
			t.Errorf("%s: exit %d, %s%s", p, code, out, stderr)
			continue
		}
		verifyFile(t, path)
		if earlier, later := w.has(t, path); !earlier || !later {
			t.Errorf("%s: it has the answer of before %t and that of after %t, want both", p, earlier, later)
		}
		// And a start alone clears what was left of one that nobody repeats.
		path = w.put(t)
		if code, out := ends(t, p.dies(t, filepath.Dir(path), "restore", w.backup, "--force", "--db", path)); code != -1 {
			t.Errorf("%s: it ended by itself with %d: %s", p, code, out)
		}
		l := serveNow(t, path)
		if left, err := filepath.Glob(path + ".restoring*"); err != nil || len(left) > 0 {
			t.Errorf("%s: a start leaves %v, %v", p, left, err)
		}
		l.kill()
		verifyFile(t, path)
	}
}

// judgeHalf looks at what a killed restore left.
func (w *wayBack) judgeHalf(t *testing.T, when, path string) {
	t.Helper()
	if _, err := os.Lstat(path + ".restore-unfinished"); err == nil {
		// Whoever opens it is told, also those that do not serve.
		for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"verify"}, {"user", "list"}} {
			out, stderr, code := runSemel(t, append(args, "--db", path)...)
			if _, err := os.Lstat(path); code == 0 || err == nil && !strings.Contains(stderr, db.ErrRestoring.Error()) {
				t.Errorf("%s: semel %s of a half restored file: exit %d, %.99s%s", when, args[0], code, out, stderr)
			}
		}
		return
	}
	if w.isWhole(path) {
		return
	}
	if kept := w.kept(t, path); kept == "" {
		t.Errorf("%s: the database that was there is neither in its place nor kept", when)
	}
	if earlier, later := w.has(t, path); !earlier || later {
		t.Errorf("%s: what is there has the answer of before %t and that of after %t", when, earlier, later)
	}
}

// judgeRestored looks at what is there at last.
func (w *wayBack) judgeRestored(t *testing.T, p diskStep, path string) {
	t.Helper()
	verifyFile(t, path)
	if earlier, later := w.has(t, path); !earlier || later {
		t.Errorf("%s: restored, it has the answer of before %t and that of after %t", p, earlier, later)
	}
	if w.kept(t, path) == "" {
		t.Errorf("%s: the database that was there is not kept whole", p)
	}
	names, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		switch s := strings.TrimPrefix(name, path); {
		case s == "" || s == "-wal" || s == "-shm" || s == ".lock" || strings.HasPrefix(s, ".before-"):
		default:
			t.Errorf("%s: %s is left", p, filepath.Base(name))
		}
	}
}

// semel backup dies as it begins each kind of call, the first and the second time. The
// database is as it was, FILE is there whole or not at all, nothing that can be read is
// where an encrypted one goes, and the same command makes it.
func TestABackupThatDiesAtAnyStepLeavesNothingWithItsName(t *testing.T) {
	w := newWayBack(t)
	id, err := os.ReadFile(w.identity)
	if err != nil {
		t.Fatal(err)
	}
	identity, err := age.ParseX25519Identity(string(id))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var mu sync.Mutex
	deaths, named := 0, 0
	for _, sealed := range []bool{false, true} {
		command := func(path, file string) []string {
			args := []string{"backup", file, "--db", path}
			if sealed {
				args = append(args, "--encrypt-to", identity.Recipient().String())
			}
			return args
		}
		goes := func(path string) string {
			if sealed {
				return filepath.Join(filepath.Dir(path), "backups", "b.db.age")
			}
			return filepath.Join(filepath.Dir(path), "backups", "b.db")
		}
		model := w.put(t)
		if err := os.Mkdir(filepath.Dir(goes(model)), 0o700); err != nil {
			t.Fatal(err)
		}
		calls := map[string]bool{}
		for _, s := range stepsOf(t, filepath.Dir(model), command(model, goes(model))...) {
			calls[s.call] = true
		}
		if !calls["pwrite64"] || !calls["fsync"] || !calls["renameat"] {
			t.Fatalf("the calls of a backup are %v", calls)
		}
		var points []diskStep
		for _, call := range slices.Sorted(maps.Keys(calls)) {
			points = append(points, diskStep{call: call, hit: 1}, diskStep{call: call, hit: 2})
		}
		eachPoint(points, func(p diskStep) {
			path := w.put(t)
			file := goes(path)
			if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
				t.Error(err)
				return
			}
			code, out := ends(t, p.dies(t, filepath.Dir(path), command(path, file)...))
			switch {
			case code == -1:
				mu.Lock()
				deaths++
				mu.Unlock()
			case code != 0 || p.hit == 1:
				t.Errorf("%s: it ended by itself with %d: %s", p, code, out)
			}
			if !w.isWhole(path) {
				t.Errorf("%s: the database was changed", p)
			}
			if sealed {
				if name := readable(t, filepath.Dir(file)); name != "" {
					t.Errorf("%s: %s can be read", p, name)
				}
			}
			if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
				if out, stderr, code := runSemel(t, command(path, file)...); code != 0 {
					t.Errorf("%s: the same command again: exit %d, %s%s", p, code, out, stderr)
				}
				if left, _ := filepath.Glob(path + ".copying*"); sealed && len(left) > 1 { // its lock
					t.Errorf("%s: another backup leaves %v", p, left)
				}
			} else {
				mu.Lock()
				named++
				mu.Unlock()
			}
			back := filepath.Join(t.TempDir(), "back.db")
			args := []string{"restore", file, "--db", back}
			if sealed {
				args = append(args, "--identity", w.identity)
			}
			if out, stderr, code := runSemel(t, args...); code != 0 {
				t.Errorf("%s: the backup is no good: %s%s", p, out, stderr)
				return
			}
			verifyFile(t, back)
			if earlier, later := w.has(t, back); !earlier || !later {
				t.Errorf("%s: the backup lacks what was answered", p)
			}
		})
	}
	t.Logf("%d deaths in %.0f s, of which %d after it had its name", deaths, time.Since(began).Seconds(), named)
}

// readable returns a file in dir that begins as a database does, or has a word of it.
func readable(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(b, []byte("SQLite format")) || bytes.Contains(b, []byte("So long ago.")) {
			return e.Name()
		}
	}
	return ""
}

// S7: backups while clients ask: by the command, killed in the middle; by the command and
// by the server at once. Every one that has its name can be restored, and has every
// answer that a client had when it began.
func TestBackupsUnderLoadHaveWhatClientsWereTold(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	identity := filepath.Join(out, "identity.txt")
	if err := os.WriteFile(identity, []byte(id.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	file := writeConfig(t, killConfig+"\n[backup]\nevery = \"0s\"\nencrypt_to = [\""+id.Recipient().String()+"\"]\n")
	w := newWorld(t)
	l := serveNow(t, file)
	w.begin(l)
	var mu sync.Mutex
	var answered []string // under mu
	told := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(answered)
	}
	stop := make(chan bool)
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for session := chat.NewID(); ; {
				select {
				case <-stop:
					return
				default:
				}
				in := w.newIntent(intent{session: session, content: "Write. [[tokens 60]] [[rate 0]]"})
				if a := w.post(in, 60); a != nil && a.HTTP == http.StatusOK {
					mu.Lock()
					answered = append(answered, in.id)
					mu.Unlock()
				}
			}
		})
	}
	made := map[string][]string{} // what each has at the least
	for n := range 2 {
		if !eventually(func() bool { return len(told()) >= 8*(n+1) }) {
			t.Fatalf("only %d answers:\n%s", len(told()), l.log)
		}
		killed := filepath.Join(out, fmt.Sprintf("killed-%d.db", n))
		p := diskStep{call: "pwrite64", hit: 30}
		if code, said := ends(t, p.dies(t, out, "backup", killed, "--db", file)); code != -1 {
			t.Errorf("the backup to be killed ended by itself with %d: %s", code, said)
		}
		if _, err := os.Lstat(killed); err == nil {
			t.Error("it was killed as it wrote, and has its name")
		}
		safe := told()
		byHand := filepath.Join(out, fmt.Sprintf("by-hand-%d.db", n))
		var both sync.WaitGroup
		both.Go(func() {
			if said, stderr, code := runSemel(t, "backup", byHand, "--db", file); code != 0 {
				t.Errorf("by the command: exit %d, %s%s", code, said, stderr)
			}
		})
		res, err := w.send(l, http.MethodPost, "/api/ops/backup", nil)
		if err != nil {
			t.Fatal(err)
		}
		var b struct{ Path string }
		if err := errors.Join(json.NewDecoder(res.Body).Decode(&b), res.Body.Close()); err != nil || res.StatusCode != http.StatusOK || b.Path == "" {
			t.Fatalf("by the server: %s, %v", res.Status, err)
		}
		both.Wait()
		made[byHand], made[b.Path] = safe, safe
	}
	close(stop)
	clients.Wait()
	l.kill()
	w.end()
	verifyFile(t, file)
	if len(made) != 4 {
		t.Errorf("%d backups, want 4: %v", len(made), made)
	}
	for backup, safe := range made {
		back := filepath.Join(t.TempDir(), "back.db")
		args := []string{"restore", backup, "--db", back}
		if strings.HasSuffix(backup, ".age") {
			args = append(args, "--identity", identity)
		}
		if said, stderr, code := runSemel(t, args...); code != 0 {
			t.Errorf("%s cannot be restored: %s%s", backup, said, stderr)
			continue
		}
		verifyFile(t, back)
		there := map[string]bool{}
		rowsOf(t, openSQL(t, back), `SELECT r.request_id FROM requests r JOIN snapshots s ON s.request_id = r.id`, func(scan func(...any)) {
			var id string
			scan(&id)
			there[id] = true
		})
		for _, id := range safe {
			if !there[id] {
				t.Errorf("%s lacks the answer to %s, which a client had before it began", backup, id)
			}
		}
	}
}
