//go:build linux

package handlers_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/llm"
)

var answer4K = strings.Repeat("All is well here. ", 4096/18+1)[:4096]

// instant is a model without latency.
type instant struct{}

func (instant) Stream(_ context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	emit(llm.Piece{Text: answer4K})
	return llm.Answer{Content: answer4K, Finish: chat.FinishStop, Usage: chat.Usage{InputTokens: 20, OutputTokens: 1024}}, nil
}

// emptyForBench is what any program of this kind costs at least: a router, one
// middleware, and an answer that is there already.
func emptyForBench(_ testing.TB, s benchServer) (http.Handler, func()) {
	body := bytes.Repeat([]byte{'x'}, s.Size)
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			next.ServeHTTP(w, r)
		})
	})
	r.Post("/api/chat", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = w.Write(body)
	})
	return r, func() {}
}

// BenchmarkReplay compares how many repeats of answered questions (POST /api/chat,
// JSON, kept connections, an answer of 4 KB) a server replays with how often an
// empty handler sends as many bytes. Both run in turn, each in a process of its
// own; the clients' work is the same for both.
func BenchmarkReplay(b *testing.B) {
	const rounds, slice, ids = 7, time.Second, 256
	semel := startBench(b, benchServer{Role: "semel"})
	defer semel.stop()
	requests := make([][]byte, ids)
	for i := range requests {
		requests[i] = rawAsk(chat.NewID(), chat.NewID(), "instant", "What is the best way to see that all is well?")
		firstAnswer(b, semel, requests[i])
	}
	size := firstAnswer(b, semel, requests[0])
	empty := startBench(b, benchServer{Role: "empty", Size: size})
	defer empty.stop()
	for _, connections := range []int{1, 16, 128} {
		b.Run(fmt.Sprint(connections), func(b *testing.B) {
			for b.Loop() {
				ours, theirs := dialLoad(b, semel, connections, requests), dialLoad(b, empty, connections, requests)
				var s, e, ratio, cpuS, cpuE []float64
				for range rounds {
					f, g := ours.measure(b, slice), theirs.measure(b, slice)
					s, e, ratio = append(s, f.perSecond), append(e, g.perSecond), append(ratio, f.perSecond/g.perSecond)
					cpuS, cpuE = append(cpuS, f.cpuMicros), append(cpuE, g.cpuMicros)
				}
				ours.close()
				theirs.close()
				b.ReportMetric(median(s), "semel/s")
				b.ReportMetric(median(e), "empty/s")
				b.ReportMetric(median(ratio), "ratio")
				b.ReportMetric(median(cpuS), "semel-cpu-µs")
				b.ReportMetric(median(cpuE), "empty-cpu-µs")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// rawAsk is a question as it goes over the line.
func rawAsk(session, id, model, content string, header ...string) []byte {
	body := mustJSON(ask(session, id, content, "model", model))
	return fmt.Appendf(nil, "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		strings.Join(header, ""), len(body), body)
}

// firstAnswer sends a request and returns how long the body of its answer is.
func firstAnswer(b *testing.B, p *process, request []byte) int {
	b.Helper()
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(request); err != nil {
		b.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		b.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatalf("status %d, %v: %s", res.StatusCode, err, body)
	}
	return len(body)
}

// A load is many connections that ask one server without a pause.
type load struct {
	process  *process
	conns    []*rawConn
	requests [][]byte
}

// A rawConn is a lean client: it learns from the first answer how long each is
// and then reads so many bytes, of which it looks at the first and the last.
type rawConn struct {
	net.Conn
	answer []byte // room for one
	end    []byte // of each
	next   int    // request
}

var statusOK = []byte("HTTP/1.1 200")

func dialLoad(b *testing.B, p *process, connections int, requests [][]byte) *load {
	b.Helper()
	l := &load{process: p, requests: requests}
	for i := range connections {
		c, err := net.Dial("tcp", p.address)
		if err != nil {
			b.Fatal(err)
		}
		rc := &rawConn{Conn: c, next: i * len(requests) / connections}
		if err := rc.learn(requests[rc.next]); err != nil {
			b.Fatal(err)
		}
		l.conns = append(l.conns, rc)
	}
	return l
}

func (c *rawConn) learn(request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	var raw bytes.Buffer
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(c, &raw)), nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	c.answer = make([]byte, raw.Len())
	c.end = bytes.Clone(raw.Bytes()[raw.Len()-3:])
	return nil
}

func (c *rawConn) ask(request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, c.answer); err != nil {
		return err
	}
	if !bytes.HasPrefix(c.answer, statusOK) || !bytes.HasSuffix(c.answer, c.end) {
		return fmt.Errorf("an answer is not like the first: %.200q … %q", c.answer, c.answer[len(c.answer)-3:])
	}
	return nil
}

// A httpFigure is what one server did in one round.
type httpFigure struct{ perSecond, cpuMicros float64 }

func (l *load) measure(b *testing.B, d time.Duration) httpFigure {
	b.Helper()
	started, cpu := time.Now(), l.process.cpu(b)
	done := make([]int, len(l.conns))
	var wg sync.WaitGroup
	for i, c := range l.conns {
		wg.Go(func() {
			n := 0
			for ; time.Since(started) < d; n++ {
				if err := c.ask(l.requests[c.next]); err != nil {
					b.Error(err)
					return
				}
				c.next = (c.next + 1) % len(l.requests)
			}
			done[i] = n
		})
	}
	wg.Wait()
	took, total := time.Since(started), 0
	for _, n := range done {
		total += n
	}
	n := float64(max(total, 1))
	return httpFigure{perSecond: n / took.Seconds(), cpuMicros: float64((l.process.cpu(b) - cpu).Microseconds()) / n}
}

func (l *load) close() {
	for _, c := range l.conns {
		_ = c.Close()
	}
}
