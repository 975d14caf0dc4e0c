package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"semel/chat"
)

// askedOnce is a database in which one question is answered; its server is dead.
func askedOnce(t *testing.T) (db string) {
	t.Helper()
	db = writeConfig(t, killConfig)
	w := newWorld(t)
	l := serveNow(t, db)
	w.begin(l)
	in := w.newIntent(intent{session: chat.NewID(), content: "Hello. [[tokens 20]] [[rate 0]]"})
	if a := w.post(in, 60); a == nil || a.HTTP != http.StatusOK {
		t.Fatalf("not answered: %+v", a)
	}
	l.kill()
	return db
}

func TestS40ASecondServerOfTheSameFileIsRefused(t *testing.T) {
	db := filepath.Join(t.TempDir(), "semel.db")
	l := serveNow(t, db)
	_, stderr, code := runSemel(t, "serve", "--db", db, "--listen", "127.0.0.1:0")
	if code != 1 || !strings.Contains(stderr, "another semel process is serving this database") || !strings.Contains(stderr, db) {
		t.Errorf("exit code %d and %q; want 1 and a word that the file is served", code, stderr)
	}
	if res, err := l.http.Get(l.url + "/readyz"); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("the first server is no longer ready: %v %v", res, err)
	}
	// The lock is the process's: with it gone, the file is free.
	l.kill()
	serveNow(t, db)
}

func TestVerifyRunsBesideAServerAndOnADeadFile(t *testing.T) {
	db := filepath.Join(t.TempDir(), "semel.db")
	l := serveNow(t, db)
	verifyFile(t, db)
	l.kill()
	if _, err := os.Stat(db + "-wal"); err != nil {
		t.Errorf("a killed server leaves its log, or this is no test: %v", err)
	}
	verifyFile(t, db)
	// Moved to another place, the file brings its log and nothing else.
	verifyFile(t, copyDatabase(t, db, filepath.Join(t.TempDir(), "moved.db")))
}

func TestVerifySaysByItsExitCodeWhatItFound(t *testing.T) {
	whole := askedOnce(t)
	dir := t.TempDir()
	damaged := copyDatabase(t, whole, filepath.Join(dir, "damaged.db"))
	d := openSQL(t, damaged)
	for _, q := range []string{
		`DROP TRIGGER ledger_no_delete`,
		`DELETE FROM ledger`,
		`CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger is append-only'); END`,
	} {
		if _, err := d.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	newer := copyDatabase(t, whole, filepath.Join(dir, "newer.db"))
	if _, err := openSQL(t, newer).Exec(`PRAGMA user_version = 99`); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "foreign.db")
	if err := os.WriteFile(foreign, []byte(strings.Repeat("This is no database. ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, db string
		code     int
		says     string
	}{
		{"whole", whole, 0, ""},
		{"a charge is missing", damaged, 1, "invariants violated"},
		{"no such file", filepath.Join(dir, "missing.db"), 2, "no such file"},
		{"no database", foreign, 2, "not a database"},
		{"of a newer version", newer, 2, "newer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, code := runSemel(t, "verify", "--db", c.db)
			if code != c.code || !strings.Contains(stderr, c.says) {
				t.Errorf("exit code %d and %q; want %d and a word about %q", code, stderr, c.code, c.says)
			}
			if (c.code == 1) != strings.Contains(stdout, "FAIL  I23") {
				t.Errorf("it prints\n%s", stdout)
			}
			if _, err := os.Stat(filepath.Join(dir, "missing.db")); err == nil {
				t.Error("looking at a file made it")
			}
		})
	}
}

func TestServeLeavesAFileOfANewerVersionAlone(t *testing.T) {
	db := askedOnce(t)
	var version int
	if err := openSQL(t, db).QueryRow(`PRAGMA user_version`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	if _, err := openSQL(t, db).Exec(`PRAGMA user_version = 99`); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := runSemel(t, "serve", "--db", db, "--listen", "127.0.0.1:0")
	if code != 1 || !strings.Contains(stderr, "newer Semel") || !strings.Contains(stderr, "99") || strings.Contains(stderr, "msg=serving") {
		t.Errorf("exit code %d and %q; want 1 and a word that the file is newer", code, stderr)
	}
	if _, err := openSQL(t, db).Exec(fmt.Sprintf(`PRAGMA user_version = %d`, version)); err != nil {
		t.Fatal(err)
	}
	verifyFile(t, db)
}

// A11: for a model that may bill each call, nobody but a person calls again after a
// crash.
func TestAfterKillNineAPersonDecidesAboutABilledModel(t *testing.T) {
	db := writeConfig(t, killConfig)
	w := newWorld(t)
	l := serveNow(t, db)
	w.begin(l)
	in := w.newIntent(intent{session: chat.NewID(), content: "Write. [[tokens 400]] [[rate 100]]", model: "ask"})
	w.post(in, 0)
	if !eventually(func() bool { return w.status(in).Content != "" }) {
		t.Fatal("no partial text is stored")
	}
	l.kill()
	w.end()
	verifyFile(t, db)
	partial := storedText(t, copyDatabase(t, db, filepath.Join(t.TempDir(), "copy.db")), in.id)

	l = serveNow(t, db)
	w.begin(l)
	a := w.status(in)
	if a.State != chat.StateFailed || a.Attempt != 1 || a.Error == nil || a.Error.Code != "interrupted" ||
		a.Error.Outcome != chat.OutcomeUnknown || a.Error.Retry != chat.RetryExplicit {
		t.Fatalf("after the crash the record is %+v, %+v", a, a.Error)
	}
	if partial == "" || a.Content != partial || a.Error.Partial != len(partial) {
		t.Errorf("of the %d bytes stored the record shows %d and counts %d", len(partial), len(a.Content), a.Error.Partial)
	}
	for range 3 {
		a = w.post(in, 60)
		if a.HTTP != http.StatusBadGateway || a.State != chat.StateFailed || a.Code != "interrupted" || a.Attempt != 1 ||
			a.Retry != chat.RetryExplicit || a.Header.Get("X-Idempotent-Replayed") != "true" {
			t.Errorf("a plain repeat is answered with %+v", a)
		}
	}
	r := &reader{w: w, in: in}
	if a = r.follow(); a.State != chat.StateFailed || string(r.text) != partial {
		t.Errorf("a repeat that streams ends with %+v, after %d bytes", a, len(r.text))
	}
	if a = w.retry(in, 1, 60); a.HTTP != http.StatusOK || a.State != chat.StateCommitted || a.Attempt != 2 || a.Message == nil {
		t.Fatalf("a person's retry is answered with %+v", a)
	}
	answer := string(a.Message)
	for _, again := range []*told{w.retry(in, 1, 60), w.post(in, 60)} {
		if again.HTTP != http.StatusOK || again.Attempt != 2 || string(again.Message) != answer {
			t.Errorf("once more, it is answered with %+v", again)
		}
	}

	res, err := w.send(l, http.MethodGet, in.url("receipt"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var receipt struct {
		Attempts []struct {
			Reason  string       `json:"reason"`
			Outcome chat.Outcome `json:"outcome"`
		} `json:"attempts"`
		Ledger []struct {
			Kind    string `json:"kind"`
			Attempt int64  `json:"attempt"`
		} `json:"ledger"`
	}
	if err := json.NewDecoder(res.Body).Decode(&receipt); err != nil {
		t.Fatal(err)
	}
	if n := receipt.Attempts; len(n) != 2 || n[0].Outcome != chat.OutcomeUnknown || n[1].Reason != "explicit" || n[1].Outcome != chat.OutcomeOK {
		t.Errorf("the receipt has the attempts %+v", n)
	}
	if n := receipt.Ledger; len(n) != 2 || n[0].Kind != "waste" || n[0].Attempt != 1 || n[1].Kind != "charge" || n[1].Attempt != 2 {
		t.Errorf("the receipt has the ledger %+v", n)
	}
	verifyFile(t, db)
}
