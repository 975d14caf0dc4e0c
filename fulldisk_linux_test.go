package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"semel/chat"
	"semel/disk"
)

// smallDisk mounts a file system of so many bytes. Without the right to, there is none,
// and the test says so.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("NOT TESTED: a small file system cannot be mounted (%v). As root it can.", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves so much of the disk under dir, and returns what gives it back.
func fill(t *testing.T, dir string, leave int64) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := disk.At(dir)
	if err == nil && s.Free > leave {
		_, err = f.Write(make([]byte, s.Free-leave))
	}
	if errors.Is(err, syscall.ENOSPC) { // the server was quicker with the last of it
		err = nil
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// The disk fills while the program serves: what runs ends, what is there is read, what
// is new is refused in words, and all is well again when there is room.
func TestAFullDiskTakesNothingNewAndHealsByItself(t *testing.T) {
	dir := smallDisk(t, 24<<20) // low below 2.4 MiB, full below 1.2
	file := filepath.Join(dir, "semel.db")
	if err := os.WriteFile(filepath.Join(dir, "semel.toml"), []byte("[limits]\nper_user_per_minute = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(semelBinary(t), serveArgs(file)...)
	cmd.Env = []string{"SEMEL_DISK_BALLAST=64MiB"}
	l := start(t, cmd)
	if !l.ready(t) {
		t.Fatal(l.log)
	}
	call := func(method, path string, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, l.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if strings.Contains(path, "/attachments") {
			req.Header.Set("Content-Type", "text/plain")
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
		return res.StatusCode, string(b)
	}
	ask := func(id, content string) (int, string) {
		b, err := json.Marshal(map[string]string{"sessionId": "session-" + id, "requestId": id, "content": content})
		if err != nil {
			t.Fatal(err)
		}
		return call(http.MethodPost, "/api/chat", string(b))
	}
	holds := func(what string, yes func() bool) {
		t.Helper()
		if !eventually(yes) {
			t.Fatalf("%s does not come true:\n%s", what, l.log)
		}
	}
	ballast := func() bool { _, err := os.Stat(file + ".ballast"); return err == nil }
	holds("the ballast", ballast)
	old := chat.NewID()
	if status, body := ask(old, "[[echo Here it is.]]"); status != http.StatusOK {
		t.Fatalf("with room: %d %s", status, body)
	}

	empty := fill(t, dir, 2<<20)
	holds("low", func() bool { _, page := call(http.MethodGet, "/", ""); return strings.Contains(page, `class="alarm"`) })
	if status, _ := call(http.MethodPost, "/api/attachments?name=a.txt", "text"); status != http.StatusInsufficientStorage {
		t.Errorf("a file on a disk that is nearly full: %d", status)
	}
	if status, body := ask(chat.NewID(), "[[echo Low.]]"); status != http.StatusOK {
		t.Errorf("on a disk that is nearly full: %d %s", status, body)
	}
	empty()
	holds("no alarm", func() bool { _, page := call(http.MethodGet, "/", ""); return !strings.Contains(page, `class="alarm"`) })

	// One that runs while it fills to the last byte.
	slow := chat.NewID()
	began := make(chan string)
	go func() {
		_, body := ask(slow, "[[tokens 160]] [[rate 40]]")
		began <- body
	}()
	holds("a run", func() bool {
		status, body := call(http.MethodGet, "/api/chat/status/"+slow+"?sessionId=session-"+slow, "")
		return status < 300 && strings.Contains(body, `"generating"`) || strings.Contains(body, `"COMPLETED"`)
	})
	empty = fill(t, dir, 0)
	holds("full", func() bool {
		status, body := ask(chat.NewID(), "[[echo No.]]")
		return status == http.StatusInsufficientStorage && strings.Contains(body, `"disk_full"`) && strings.Contains(body, `"same-id"`)
	})
	if ballast() {
		t.Error("the ballast is not given up")
	}
	if body := <-began; !strings.Contains(body, `"COMPLETED"`) {
		t.Errorf("what ran while it filled: %s", body)
	}
	if status, body := ask(old, "[[echo Here it is.]]"); status != http.StatusOK || !strings.Contains(body, "Here it is.") || !strings.Contains(body, `"fromCache":true`) {
		t.Errorf("a repeat on a full disk: %d %s", status, body)
	}
	for path, want := range map[string]int{"/c/session-" + old: 200, "/api/conversations": 200, "/healthz": 200, "/readyz": 503} {
		if status, _ := call(http.MethodGet, path, ""); status != want {
			t.Errorf("%s on a full disk: %d, want %d", path, status, want)
		}
	}
	var stats struct{ Disk struct{ Trouble string } }
	if _, body := call(http.MethodGet, "/api/ops/stats", ""); json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&stats) != nil || !strings.Contains(stats.Disk.Trouble, "full") {
		t.Errorf("the stats say %s", body)
	}

	empty()
	late := chat.NewID()
	holds("a question again", func() bool { status, _ := ask(late, "[[echo Again.]]"); return status == http.StatusOK })
	holds("the ballast again", ballast)
	if status, _ := call(http.MethodGet, "/readyz", ""); status != http.StatusOK {
		t.Errorf("ready again: %d", status)
	}
	l.kill()
	verifyFile(t, file)
}
