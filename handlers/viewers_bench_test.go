//go:build linux

package handlers_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"semel/chat"
	"semel/llm"
)

// A talk is how models speak in a benchmark: so many streams, each speaking for a
// while at so many tokens a second and then silent for the rest of a period. The
// streams take turns. Every token says when it was spoken, so that whoever reads it
// knows how long it was on its way.
type talk struct {
	Streams int
	Rate    int           // tokens a second, of a stream that speaks
	Speak   time.Duration // of each
	Every   time.Duration // period
}

// tokenAt is a token: '@', 16 digits and a space.
func tokenAt(t time.Time) string { return "@" + strconv.FormatInt(t.UnixMicro(), 10) + " " }

// say speaks as stream i of the talk until ctx ends.
func (t talk) say(ctx context.Context, i int, emit func(string)) {
	gap := time.Second / time.Duration(t.Rate)
	phase := time.Duration(i) * t.Every / time.Duration(t.Streams)
	// Streams are out of step with one another within a gap, too.
	next := time.Now().Truncate(t.Every).Add(time.Duration(i) * gap / time.Duration(t.Streams))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		for now := time.Now(); !next.After(now); next = next.Add(gap) { // what was missed, too
			if at := next.Add(phase); at.Sub(at.Truncate(t.Every)) < t.Speak {
				emit(tokenAt(now))
			}
		}
		timer.Reset(time.Until(next))
	}
}

// Stream makes a talk a model: the last turn is the number of the stream.
func (t talk) Stream(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	i, err := strconv.Atoi(c.Turns[len(c.Turns)-1].Content)
	if err != nil {
		return llm.Answer{}, err
	}
	t.say(ctx, i, func(text string) { emit(llm.Piece{Text: text}) })
	return llm.Answer{}, ctx.Err()
}

// BenchmarkViewers compares many viewers of live answers with the usual hub, which
// has a channel for each viewer (benchhub_test.go). Both run in turn, each time in
// a new process; memory and CPU are the server's alone. It reports, for a second of
// a thousand viewers, the CPU seconds; for a token, from when the model spoke it to
// when a client had it, the lag; for a viewer, the memory it adds.
//
// The hub sends every token to every viewer by itself. So that it has air on two
// cores, streams speak only a fifth of the time where there are 5,000 viewers.
func BenchmarkViewers(b *testing.B) {
	const rounds, slice = 5, 6 * time.Second
	raiseFileLimit(b)
	for _, v := range []struct {
		viewers int
		talk    talk
	}{
		{1000, talk{Streams: 50, Rate: 40, Speak: time.Second, Every: time.Second}},
		{5000, talk{Streams: 50, Rate: 40, Speak: time.Second, Every: 5 * time.Second}},
	} {
		b.Run(fmt.Sprint(v.viewers), func(b *testing.B) {
			for b.Loop() {
				var list [2][]viewerFigure
				var ratio []float64
				for range rounds {
					for i, role := range []string{"semel", "hub"} {
						list[i] = append(list[i], measureViewers(b, benchServer{Role: role, Talk: v.talk}, v.viewers, slice))
					}
					ratio = append(ratio, list[0][len(list[0])-1].cpu/list[1][len(list[1])-1].cpu)
				}
				for i, role := range []string{"semel", "hub"} {
					report := func(unit string, of func(viewerFigure) float64) {
						var all []float64
						for _, f := range list[i] {
							all = append(all, of(f))
						}
						b.ReportMetric(median(all), role+"-"+unit)
					}
					report("cpu-s/1000-viewer-s", func(f viewerFigure) float64 { return f.cpu * 1000 })
					report("KiB/viewer", func(f viewerFigure) float64 { return f.kib })
					report("lag-p50-ms", func(f viewerFigure) float64 { return f.p50 })
					report("lag-p99-ms", func(f viewerFigure) float64 { return f.p99 })
					report("tokens/viewer-s", func(f viewerFigure) float64 { return f.tokens })
					report("cores", func(f viewerFigure) float64 { return f.cpu * float64(v.viewers) })
				}
				b.ReportMetric(median(ratio), "cpu-ratio")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// A viewerFigure is what one server did in one round.
type viewerFigure struct {
	cpu      float64 // CPU seconds a second of one viewer
	kib      float64 // resident memory that a viewer adds
	p50, p99 float64 // lag of a token, in milliseconds
	tokens   float64 // that reached a viewer in a second
}

func measureViewers(b *testing.B, s benchServer, viewers int, slice time.Duration) viewerFigure {
	b.Helper()
	p := startBench(b, s)
	defer p.stop()
	paths := make([]string, s.Talk.Streams)
	for i := range paths {
		paths[i] = fmt.Sprintf("/%d", i)
		if s.Role == "semel" {
			paths[i] = askToTalk(b, p, i)
		}
	}
	time.Sleep(time.Second) // all speak
	before := p.resident(b)
	var a audience
	defer a.leave()
	for i := range viewers {
		a.join(b, p, paths[i%len(paths)])
	}
	a.settled.Wait() // everybody has seen a token
	time.Sleep(time.Second)
	a.lags.Store(new(lags))
	started, cpu := time.Now(), p.cpu(b)
	time.Sleep(slice)
	took, used := time.Since(started), p.cpu(b)-cpu
	seen := a.lags.Swap(new(lags))
	memory := p.resident(b) - before
	if n := a.lost.Load(); n > 0 {
		b.Errorf("%s lost %d of %d viewers", s.Role, n, viewers)
	}
	n := float64(viewers)
	return viewerFigure{
		cpu: used.Seconds() / took.Seconds() / n, kib: memory / n,
		p50: seen.quantile(0.5), p99: seen.quantile(0.99), tokens: float64(seen.count()) / took.Seconds() / n,
	}
}

// askToTalk asks a question whose answer is stream i of the talk, and returns where
// it streams.
func askToTalk(b *testing.B, p *process, i int) string {
	b.Helper()
	session, id := chat.NewID(), chat.NewID()
	req, err := http.NewRequest("POST", "http://"+p.address+"/api/chat", strings.NewReader(mustJSON(ask(session, id, strconv.Itoa(i), "model", "clock"))))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Prefer", "wait=0")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		b.Fatalf("status %d", res.StatusCode)
	}
	return streamPath(session, id)
}

// An audience is many viewers in this process.
type audience struct {
	conns   []net.Conn
	readers sync.WaitGroup
	settled sync.WaitGroup // each viewer has seen a token
	leaving atomic.Bool
	lost    atomic.Int64 // viewers whose stream ended before they left
	lags    atomic.Pointer[lags]
}

// join opens one stream and reads it until the audience leaves.
func (a *audience) join(b *testing.B, p *process, path string) {
	b.Helper()
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		b.Fatal(err)
	}
	a.conns = append(a.conns, c)
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", path); err != nil {
		b.Fatal(err)
	}
	if a.lags.Load() == nil {
		a.lags.Store(new(lags))
	}
	a.settled.Add(1)
	a.readers.Go(func() {
		err := a.read(c)
		if !a.leaving.Load() {
			a.lost.Add(1)
			fmt.Println("a stream ended:", err)
		}
	})
}

// read takes tokens out of whatever comes, without parsing more of it.
func (a *audience) read(c net.Conn) error {
	settled := sync.OnceFunc(a.settled.Done)
	defer settled()
	var buf [2048]byte
	for kept := 0; ; {
		n, err := c.Read(buf[kept:])
		if err != nil {
			return err
		}
		now, l := time.Now().UnixMicro(), a.lags.Load()
		rest := buf[:kept+n]
		for {
			at := bytes.IndexByte(rest, '@')
			if at < 0 {
				rest = nil
				break
			}
			if rest = rest[at:]; len(rest) < 17 {
				break // cut: the rest comes with the next read
			}
			spoken, err := strconv.ParseInt(string(rest[1:17]), 10, 64)
			if err == nil {
				l.add(now - spoken)
			}
			rest = rest[17:]
			settled()
		}
		kept = copy(buf[:], rest)
	}
}

func (a *audience) leave() {
	a.leaving.Store(true)
	for _, c := range a.conns {
		_ = c.Close()
	}
	a.readers.Wait()
}

// lags counts how long tokens were on their way, in steps of a tenth of a
// millisecond; the last step is everything that took longer.
type lags [50_000]atomic.Int64

func (l *lags) add(micros int64) {
	l[min(max(micros/100, 0), int64(len(l)-1))].Add(1)
}

func (l *lags) count() (n int64) {
	for i := range l {
		n += l[i].Load()
	}
	return n
}

// quantile is in milliseconds.
func (l *lags) quantile(q float64) float64 {
	want := int64(q * float64(l.count()))
	for i := range l {
		if want -= l[i].Load(); want < 0 {
			return float64(i) / 10
		}
	}
	return float64(len(l)) / 10
}
