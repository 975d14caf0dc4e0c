package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkStart starts the program as it is released, stripped, and reports
// medians: from the start of the process to the first 200 of the chat page, with
// a new file and with one that is there, and the memory of the process then
// (Linux only). The server they stand beside is an empty one, measured the same
// way in the same run: what starting any Go server costs here.
func BenchmarkStart(b *testing.B) {
	const rounds = 9
	dir := b.TempDir()
	binary, empty := filepath.Join(dir, "semel"), filepath.Join(dir, "empty")
	buildStripped(b, binary, ".")
	source := filepath.Join(dir, "empty.go")
	if err := os.WriteFile(source, []byte(emptyServer), 0o600); err != nil {
		b.Fatal(err)
	}
	buildStripped(b, empty, source)
	for b.Loop() {
		var fresh, known, none, memory, emptyMemory []float64
		for i := range rounds {
			db := filepath.Join(dir, fmt.Sprintf("%d.db", i))
			measure := func(times, sizes *[]float64, program string, args ...string) {
				took, size := firstPage(b, program, args...)
				*times = append(*times, float64(took.Microseconds())/1000)
				*sizes = append(*sizes, size)
			}
			measure(&fresh, &memory, binary, "serve", "--db", db, "--listen")
			measure(&known, &memory, binary, "serve", "--db", db, "--listen")
			measure(&none, &emptyMemory, empty)
		}
		b.ReportMetric(middle(fresh), "ms-new-file")
		b.ReportMetric(middle(known), "ms-known-file")
		b.ReportMetric(middle(none), "ms-empty-server")
		b.ReportMetric(middle(memory), "MiB-idle")
		b.ReportMetric(middle(emptyMemory), "MiB-idle-empty-server")
		b.ReportMetric(fileMiB(b, binary), "MiB-stripped")
		b.ReportMetric(fileMiB(b, empty), "MiB-stripped-empty-server")
		b.ReportMetric(0, "ns/op")
	}
}

const emptyServer = `package main

import (
	"net/http"
	"os"
)

func main() { panic(http.ListenAndServe(os.Args[1], http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))) }
`

func buildStripped(b *testing.B, binary, what string) {
	b.Helper()
	out, err := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, what).CombinedOutput()
	if err != nil {
		b.Fatalf("go build %s: %v\n%s", what, err, out)
	}
}

func middle(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

func fileMiB(b *testing.B, path string) float64 {
	b.Helper()
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	return float64(info.Size()) / (1 << 20)
}

// firstPage starts a server, its address as the last argument, and returns how
// long its first page took from the start of the process, and the memory it holds
// then in MiB.
func firstPage(b *testing.B, program string, args ...string) (time.Duration, float64) {
	b.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program, append(args, address)...)
	cmd.Env = cleanEnviron()
	started := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for time.Since(started) < patience {
		res, err := client.Get("http://" + address + "/")
		if err != nil {
			time.Sleep(500 * time.Microsecond) // nobody listens yet; this is a benchmark, not a test
			continue
		}
		if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
			b.Fatalf("status %d, %v", res.StatusCode, err)
		}
		return time.Since(started), residentMiB(cmd.Process.Pid)
	}
	b.Fatalf("%s does not serve", program)
	return 0, 0
}

// residentMiB is the resident memory of a process, 0 where nobody says.
func residentMiB(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kb); err == nil {
			return kb / 1024
		}
	}
	return 0
}
