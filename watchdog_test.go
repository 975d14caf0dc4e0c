package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"semel/db/dbtest"
)

// manager listens as a service manager does.
func manager(t *testing.T) (name string, heard func() string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no such service manager on Windows")
	}
	dir, err := os.MkdirTemp("", "sd") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	name = filepath.Join(dir, "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return name, func() string {
		t.Helper()
		b := make([]byte, 100)
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func TestTheServiceManagerHearsWhenItIsReadyThatItLivesAndThatItStops(t *testing.T) {
	name, heard := manager(t)
	cmd := exec.Command(semelBinary(t), serveArgs(filepath.Join(t.TempDir(), "semel.db"))...)
	cmd.Env = []string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=60000"}
	l := start(t, cmd)
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if got := heard(); got != want {
			t.Fatalf("heard %q, want %q:\n%s", got, want, l.log)
		}
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for got := "WATCHDOG=1"; got != "STOPPING=1"; {
		if got = heard(); got != "WATCHDOG=1" && got != "STOPPING=1" {
			t.Fatalf("heard %q", got)
		}
	}
	if code := l.wait(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A process that breathes and cannot write, or whose engine stands still, is as good as
// dead; one on a full disk is not.
func TestTheWatchdogIsFedOnlyByAWriteAndAnEngineThatWorks(t *testing.T) {
	name, heard := manager(t)
	t.Setenv("NOTIFY_SOCKET", name)
	var log strings.Builder
	well := func() error { return nil }
	feed := func(ping, beats error, then string) {
		t.Helper()
		log.Reset()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		watch(ctx, time.Hour, func(context.Context) error { cancel(); return ping }, func() error { return beats }, slog.New(slog.NewTextHandler(&log, nil)))
		_ = notify("that was all")
		if got := heard(); got != then {
			t.Errorf("ping %v, beats %v: heard %q, want %q", ping, beats, got, then)
		}
		if then != "that was all" {
			heard()
		}
	}
	feed(nil, nil, "WATCHDOG=1")
	feed(errors.New("the writer hangs"), nil, "that was all")
	feed(nil, errors.New("the engine stands still"), "that was all")
	feed(dbtest.Error(sqlite3.SQLITE_FULL), nil, "WATCHDOG=1")
	watch(t.Context(), 0, func(context.Context) error { t.Error("nobody asked"); return nil }, well, slog.New(slog.DiscardHandler))
}

func TestTheUnitsAreHardened(t *testing.T) {
	const unit, safe = "docs/deploy/semel.service", "docs/deploy/semel-safe.service"
	hardening := func(text string) string {
		at := strings.Index(text, "\nDynamicUser=yes\n")
		return strings.TrimSpace(strings.Split(text[max(at, 0):], "[Install]")[0])
	}
	texts := map[string]string{}
	for name, lines := range map[string][]string{
		unit: {"Type=notify", "WatchdogSec=30", "Restart=on-failure", "RestartPreventExitStatus=65", "StartLimitIntervalSec=60", "StartLimitBurst=5", "OnFailure=semel-safe.service"},
		safe: {"Type=notify", "Conflicts=semel.service"}, // or the two would be in each other's way
	} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(b)
		for _, line := range append(lines, "DynamicUser=yes", "User=semel", "UMask=0077", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=",
			"MemoryDenyWriteExecute=yes", "LimitCORE=0", "SystemCallFilter=@system-service", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX") {
			if !strings.Contains(texts[name], "\n"+line+"\n") {
				t.Errorf("%s lacks %s", name, line)
			}
		}
	}
	if hardening(texts[unit]) != hardening(texts[safe]) {
		t.Errorf("the two are not hardened alike:\n%s\n\n%s", hardening(texts[unit]), hardening(texts[safe]))
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("NOT TESTED by systemd itself: there is no systemd-analyze here")
		return
	}
	for name := range texts {
		out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", name).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
