package main

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"semel/chat"
	"semel/upkeep"
)

// breakPage overwrites the root page of an index that no page of ours reads, in the file
// itself.
func breakPage(t *testing.T, file, index string) {
	t.Helper()
	c, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	var root, size int64
	_, err = c.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
	err = errors.Join(err, c.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = ?", index).Scan(&root), c.QueryRow("PRAGMA page_size").Scan(&size), c.Close())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0xff}, int(size)), (root-1)*size)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// asked sends a request to a server and returns its status and its body.
func (l *life) asked(t *testing.T, method, path, accept, body string) (status int, said string, h http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(l.ctx, method, l.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := l.http.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", method, path, err, l.log)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b), res.Header
}

// A damaged file, in which a question waits: serving it is refused, in safe mode it is
// read, and nothing of it changes.
func TestADamagedFileIsReadInSafeModeAndNotChanged(t *testing.T) {
	file := writeConfig(t, "[[models]]\nname = \"demo\"\nprovider = \"demo\"\n")
	l := serveNow(t, file)
	const session = "session-safe"
	known, waits := chat.NewID(), chat.NewID()
	question := func(id, content string) string {
		return fmt.Sprintf(`{"sessionId": %q, "requestId": %q, "content": %q}`, session, id, content)
	}
	if status, said, _ := l.asked(t, http.MethodPost, "/api/chat", "application/json", question(known, "[[echo an answer to keep]]")); status != http.StatusOK {
		t.Fatal(status, said)
	}
	req, err := http.NewRequestWithContext(l.ctx, http.MethodPost, l.url+"/api/chat", strings.NewReader(question(waits, "[[wait 3600000]]")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Prefer", "wait=0")
	if res, err := l.http.Do(req); err != nil || res.Body.Close() != nil || res.StatusCode != http.StatusAccepted {
		t.Fatal(res, err)
	}
	l.kill()
	breakPage(t, file, "logins_expired")
	if err := upkeep.Suspect(file, errors.New("the disk said no")); err != nil {
		t.Fatal(err)
	}
	if l := launch(t, file); l.wait(t) != exitDamaged {
		t.Fatalf("a damaged file: exit code %d\n%s", l.cmd.ProcessState.ExitCode(), l.log)
	}
	state := func() (list []string) {
		t.Helper()
		names, err := filepath.Glob(file + "*")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			b, err := os.ReadFile(n)
			if err != nil {
				t.Fatal(err)
			}
			// What readers share is theirs, and of a log there is none: it was emptied.
			if !strings.HasSuffix(n, "-shm") && !strings.HasSuffix(n, ".lock") && (len(b) > 0 || !strings.HasSuffix(n, "-wal")) {
				list = append(list, fmt.Sprintf("%s %x", n, sha256.Sum256(b)))
			}
		}
		return list
	}
	before := state()
	l = serveNow(t, file, "--safe=it failed five times")
	for _, path := range []string{"/", "/c/" + session, "/settings", "/ops", "/ops/outbox", "/ops/requests/" + waits + "?sessionId=" + session, "/login"} {
		if status, said, _ := l.asked(t, http.MethodGet, path, "text/html", ""); status != http.StatusOK || !strings.Contains(said, "safe mode") || !strings.Contains(said, "it failed five times; ") || !strings.Contains(said, "the disk said no") {
			t.Errorf("%s: %d, want a page that says why it is only read: %.600s", path, status, said)
		}
	}
	for path, want := range map[string]string{
		"/c/" + session: "an answer to keep", "/api/conversations/" + session: "an answer to keep", "/api/conversations/export": "an answer to keep",
		"/api/chat/status/" + known + "?sessionId=" + session: "COMPLETED", "/api/chat/status/" + waits + "?sessionId=" + session: "PROCESSING",
		"/api/chat/receipt/" + known + "?sessionId=" + session: "first", "/api/ops/requests": known, "/api/ops/stats": "alerts", "/api/conversations?q=keep": session,
		"/metrics": "semel_build_info", "/healthz": "ok",
	} {
		if status, said, _ := l.asked(t, http.MethodGet, path, "*/*", ""); status != http.StatusOK || !strings.Contains(said, want) {
			t.Errorf("%s: %d, want %s: %.300s", path, status, want, said)
		}
	}
	for _, c := range [][3]string{
		{http.MethodPost, "/api/chat", question(chat.NewID(), "new")},
		{http.MethodPost, "/api/chat", question(known, "[[echo an answer to keep]]")},
		{http.MethodPost, "/api/chat/stop/" + waits, `{"sessionId": "session-safe"}`},
		{http.MethodPatch, "/api/conversations/" + session, `{"title": "other"}`},
		{http.MethodDelete, "/api/conversations/" + session, ""},
		{http.MethodPost, "/api/ops/verify", ""},
		{http.MethodPost, "/callbacks/msg_1", `{}`},
		{http.MethodGet, "/api/chat/stream/" + waits + "?sessionId=" + session, ""},
		{http.MethodGet, "/readyz", ""},
	} {
		if status, said, h := l.asked(t, c[0], c[1], "application/json", c[2]); status != http.StatusServiceUnavailable || !strings.Contains(said, `"safe_mode"`) || !strings.Contains(said, "the disk said no") || h.Get("Retry-After") == "" {
			t.Errorf("%s %s: %d %s", c[0], c[1], status, said)
		}
	}
	if status, said, _ := l.asked(t, http.MethodPost, "/c/"+session, "text/html", "{}"); status != http.StatusServiceUnavailable || !strings.Contains(said, "<html") {
		t.Errorf("a form: %d %.300s", status, said)
	}
	if _, stderr, code := runSemel(t, "restore", file, "--db", file, "--force"); code == 0 {
		t.Errorf("a restore under it: %s", stderr)
	}
	l.kill()
	if now := state(); !slices.Equal(before, now) {
		t.Errorf("it was changed:\n%v\n%v", before, now)
	}
	if l := launch(t, filepath.Join(t.TempDir(), "none.db"), "--safe"); l.wait(t) != exitFailed {
		t.Errorf("no file: %s", l.log)
	}
}

// In safe mode nobody else may serve a file, or put another in its place; and a sound one
// waits for what a person does.
func TestNobodyElseServesAFileInSafeMode(t *testing.T) {
	file := writeConfig(t, "")
	serveNow(t, file).kill()
	l := serveNow(t, file, "--safe")
	if status, said, _ := l.asked(t, http.MethodGet, "/", "text/html", ""); status != http.StatusOK || !strings.Contains(said, "it was started with --safe") {
		t.Errorf("%d %.600s", status, said)
	}
	if l := launch(t, file); l.wait(t) != exitFailed || !strings.Contains(l.log.String(), "another semel process is serving") {
		t.Errorf("a server beside it: %s", l.log)
	}
}
