//go:build linux

package handlers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/handlers"
	"semel/ops"
)

// Benchmarks over HTTP put every server into a process of its own, which is this
// test program again: what /proc says of that process is the server's alone. They
// are for Linux, whose /proc it is.
//
//	go test ./handlers -run '^$' -bench Replay -benchtime 1x -timeout 1h

var serverProfile = flag.String("serverprofile", "", "folder for CPU profiles of the servers that benchmarks start")

// A benchServer says what a server process serves. It is handed down as JSON.
type benchServer struct {
	Role     string // a key of benchRoles
	File     string // of the database
	Size     int    // "empty": bytes of its answer
	Talk     talk   // "hub", and the model "clock" of "semel"
	Provider string // address, for the model "provider" of "semel"
	Profile  string // file for a CPU profile, "" for none
}

// benchRoles make a server's handler and what ends it.
var benchRoles = map[string]func(testing.TB, benchServer) (http.Handler, func()){
	"semel":    semelForBench,
	"empty":    emptyForBench,
	"hub":      hubForBench,
	"provider": providerForBench,
}

const benchServerEnv = "SEMEL_BENCH_SERVER"

func TestMain(m *testing.M) {
	flag.Parse()
	if what := os.Getenv(benchServerEnv); what != "" {
		serveBench(what)
		return
	}
	os.Exit(m.Run())
}

// serveBench is a server process: it says its address and serves until its
// standard input ends, which it does also when the benchmark is killed.
func serveBench(what string) {
	tb := processTB{}
	var s benchServer
	if err := json.Unmarshal([]byte(what), &s); err != nil {
		tb.Fatal(err)
	}
	raiseFileLimit(tb)
	debug.SetGCPercent(400) // for all contenders: as semel serve does
	if s.Profile != "" {
		f, err := os.Create(s.Profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	h, end := benchRoles[s.Role](tb, s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 60 * time.Second, MaxHeaderBytes: handlers.HeaderBytes}
	go srv.Serve(l)
	fmt.Println(l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	pprof.StopCPUProfile()
	_ = srv.Close() // streams may still be open
	end()
}

// A processTB is what the helpers of tests need where there is no test.
type processTB struct{ testing.TB }

func (processTB) Helper() {}

func (processTB) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// semelForBench is the program's handler over a new file.
func semelForBench(tb testing.TB, s benchServer) (http.Handler, func()) {
	d, err := db.Open(db.Options{Path: s.File, Schema: dbtest.Schema(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	meter := ops.NewMeter()
	monitor, err := ops.New(context.Background(), ops.Options{DB: d, Meter: meter})
	if err != nil {
		tb.Fatal(err)
	}
	monitor.Start()
	e, err := engine.New(engine.Options{DB: d, Meter: meter, Models: []engine.Model{
		{Name: "instant", Client: instant{}, Price: dbtest.DemoPrice, Concurrency: 64},
		{Name: "clock", Client: s.Talk, Price: dbtest.DemoPrice, Concurrency: 1000},
		{Name: "provider", Client: providerClient(s), Price: dbtest.DemoPrice, Concurrency: 1000},
	}})
	if err == nil {
		err = e.Start(context.Background())
	}
	if err != nil {
		tb.Fatal(err)
	}
	h := handlers.New(handlers.Options{Engine: e, DB: d, Ops: monitor})
	return h, func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		e.Drain(ended)
		monitor.Stop()
		if err := d.Close(); err != nil {
			tb.Fatal(err)
		}
	}
}

// A process is a server process as the benchmark sees it.
type process struct {
	pid     int
	address string
	stop    func()
}

// startBench starts a server process, which ends with the benchmark at the latest.
func startBench(b *testing.B, s benchServer) *process {
	b.Helper()
	if s.Role == "semel" {
		s.File = filepath.Join(b.TempDir(), "bench.db")
	}
	if *serverProfile != "" {
		s.Profile = filepath.Join(*serverProfile, fmt.Sprintf("%s-%d.prof", s.Role, time.Now().UnixNano()))
	}
	what, err := json.Marshal(s)
	if err != nil {
		b.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), benchServerEnv+"="+string(what))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p := &process{pid: cmd.Process.Pid}
	p.stop = func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
			b.Error(err)
		}
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.stop()
		b.Fatalf("the server %q did not start: %v", s.Role, err)
	}
	p.address = strings.TrimSpace(address)
	return p
}

// cpu is what the process has used of the CPU, in the kernel's ticks of 10 ms.
func (p *process) cpu(tb testing.TB) time.Duration {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name may hold anything
	fields := strings.Fields(rest)
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// resident is the resident memory of the process in KiB.
func (p *process) resident(tb testing.TB) float64 {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kb); err == nil {
			return kb
		}
	}
	tb.Fatal("no VmRSS in /proc")
	return 0
}

// raiseFileLimit lets the process have as many connections as it may.
func raiseFileLimit(tb testing.TB) {
	tb.Helper()
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	if err == nil && l.Cur < l.Max {
		l.Cur = l.Max
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
