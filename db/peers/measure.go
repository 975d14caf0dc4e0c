package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"semel/chat"
)

const turnsPerConversation = 8

// A piece does one piece of work; n counts those of this caller.
type piece func(ctx context.Context, s store, caller, n int) error

// drive has that many callers do work until more says no, and returns how long
// each piece took, the shortest first. The first error ends it.
func drive(ctx context.Context, s store, callers int, do piece, more func() bool) ([]time.Duration, error) {
	took := make([][]time.Duration, callers)
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := 0; more() && failed.Load() == nil; n++ {
				started := time.Now()
				if err := do(ctx, s, i, n); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				took[i] = append(took[i], time.Since(started))
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return all, nil
}

func during(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().Before(end) }
}

func times(n int) func() bool {
	var done atomic.Int64
	return func() bool { return done.Add(1) <= int64(n) }
}

// lives returns the piece that claims and completes a new key.
func lives(callers int) piece {
	sessions := make([]string, callers)
	return func(ctx context.Context, s store, caller, n int) error {
		if n%turnsPerConversation == 0 {
			sessions[caller] = chat.NewID()
		}
		return live(ctx, s, ask(sessions[caller]))
	}
}

// replays returns the piece that looks the answer to one of these up.
func replays(done []question) piece {
	return func(ctx context.Context, s store, caller, n int) error {
		q := done[(caller*7919+n*104729)%len(done)]
		text, err := s.replay(ctx, q.key, q.fingerprint)
		if err == nil && len(text) != len(theAnswer.content) {
			err = fmt.Errorf("replay: %d bytes, not %d", len(text), len(theAnswer.content))
		}
		return err
	}
}

// fill completes n questions and returns them.
func fill(ctx context.Context, s store, n int) ([]question, error) {
	const callers = 64
	var mu sync.Mutex
	var done []question
	sessions := make([]string, callers)
	_, err := drive(ctx, s, callers, func(ctx context.Context, s store, caller, n int) error {
		if n%turnsPerConversation == 0 {
			sessions[caller] = chat.NewID()
		}
		q := ask(sessions[caller])
		err := live(ctx, s, q)
		mu.Lock()
		defer mu.Unlock()
		done = append(done, q)
		return err
	}, times(n))
	return done, err
}

// A figure is what one contender did in one turn.
type figure struct {
	perSecond            float64
	clientCPU, serverCPU float64 // microseconds a piece
	p50, p99             time.Duration
}

// turn measures one contender. What others left to be written reaches the disk
// first, and the garbage they made is collected.
func turn(ctx context.Context, s store, callers int, do piece, d time.Duration) (figure, error) {
	runtime.GC()
	syscall.Sync()
	server, err := serverCPU(s.server())
	if err != nil {
		return figure{}, err
	}
	client, started := clientCPU(), time.Now()
	all, err := drive(ctx, s, callers, do, during(d))
	elapsed := time.Since(started)
	if err != nil {
		return figure{}, err
	}
	client = clientCPU() - client
	after, err := serverCPU(s.server())
	n := float64(max(len(all), 1))
	return figure{
		perSecond: n / elapsed.Seconds(),
		clientCPU: float64(client.Microseconds()) / n,
		serverCPU: float64((after - server).Microseconds()) / n,
		p50:       quantile(all, 0.5), p99: quantile(all, 0.99),
	}, err
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func median[T cmp.Ordered](list []T) T {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// clientCPU is what this process has used of the CPU.
func clientCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverCPU is what the process pid and its children, alive or gone, have used.
func serverCPU(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	own, err := stat(pid)
	if err != nil {
		return 0, err
	}
	ticks := own.used + own.usedByGone
	list, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range list {
		if child, err := strconv.Atoi(e.Name()); err == nil {
			if s, err := stat(child); err == nil && s.parent == pid { // others may end while we look
				ticks += s.used
			}
		}
	}
	return time.Duration(ticks) * (time.Second / 100), nil // USER_HZ is 100 on every Linux
}

func parent(pid int) (int, error) {
	s, err := stat(pid)
	return s.parent, err
}

type procStat struct {
	parent           int
	used, usedByGone int64 // ticks
}

func stat(pid int) (procStat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	return parseStat(string(b))
}

// parseStat reads a line of proc(5); the name, in brackets, may hold anything.
func parseStat(line string) (procStat, error) {
	f := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(f) < 15 {
		return procStat{}, fmt.Errorf("stat: %q", line)
	}
	var n [5]int64
	for i, field := range []int{1, 11, 12, 13, 14} { // ppid, utime, stime, cutime, cstime
		var err error
		if n[i], err = strconv.ParseInt(f[field], 10, 64); err != nil {
			return procStat{}, fmt.Errorf("stat: %w", err)
		}
	}
	return procStat{parent: int(n[0]), used: n[1] + n[2], usedByGone: n[3] + n[4]}, nil
}
