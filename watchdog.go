package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"semel/db"
)

// notify tells the service manager how the process is doing, where one listens
// (sd_notify(3): one datagram to the socket in NOTIFY_SOCKET).
func notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"}) // "@" is an abstract one
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte(state))
	return err
}

// watchdogEvery is how often the service manager wants to hear of us; 0 is never.
func watchdogEvery() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || us <= 0 {
		return 0
	}
	return time.Duration(us) * time.Microsecond / 3
}

// canaryPatience is how long the write that proves life may take.
const canaryPatience = 10 * time.Second

// watch tells the service manager that the process lives, each time that a write went
// through and the engine has looked after its work: a process that only breathes is
// started again. It returns when ctx ends.
func watch(ctx context.Context, every time.Duration, ping func(context.Context) error, beats func() error, log *slog.Logger) {
	for every > 0 {
		canary, cancel := context.WithTimeout(ctx, canaryPatience)
		err := ping(canary)
		cancel()
		if db.IsRetryable(err) {
			err = nil // the disk is full: the writer lives, and says so
		}
		if err == nil {
			err = beats()
		}
		if err == nil {
			err = notify("WATCHDOG=1")
		}
		if err != nil && ctx.Err() == nil {
			log.Error("no sign of life for the service manager", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}
