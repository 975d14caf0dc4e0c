//go:build linux

package handlers_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/chat"
	"semel/llm"
	"semel/llm/llmtest"
)

// providerDelay is how long the provider takes for its first token.
const providerDelay = 20 * time.Millisecond

// spoken is the answer: a quarter of a second at 40 tokens/s. The first token is
// marked.
var spoken = append([]string{"@first "}, slices.Repeat([]string{"word "}, 9)...)

// providerForBench is a provider that speaks OpenAI's format.
func providerForBench(tb testing.TB, _ benchServer) (http.Handler, func()) {
	s, err := llmtest.Start(llmtest.Chat)
	if err != nil {
		tb.Fatal(err)
	}
	s.Play(llmtest.Script{Text: spoken, TokenDelay: providerDelay, Rate: 40})
	return s, s.Close
}

// providerClient is how Semel reaches it.
func providerClient(s benchServer) llm.Client {
	return llm.NewOpenAI(llm.NewTransport(), llm.Endpoint{URL: "http://" + s.Provider + "/v1"})
}

// BenchmarkFirstToken compares how long a first token takes through Semel, which
// stores the question and the dispatch before it asks, with how long it takes from
// the same provider without it. Callers ask again when they have the whole answer.
func BenchmarkFirstToken(b *testing.B) {
	const rounds, slice = 7, 3 * time.Second
	provider := startBench(b, benchServer{Role: "provider"})
	defer provider.stop()
	semel := startBench(b, benchServer{Role: "semel", Provider: provider.address})
	defer semel.stop()
	through := func() []byte {
		return rawAsk(chat.NewID(), chat.NewID(), "provider", "What is the best way to see that all is well?", "Accept: text/event-stream\r\n")
	}
	prompt := `{"model":"provider","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"What is the best way to see that all is well?"}]}`
	direct := fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(prompt), prompt)
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			for b.Loop() {
				var s, d, ratio, more, late []float64
				for range rounds {
					f := firstTokens(b, semel, callers, slice, through)
					g := firstTokens(b, provider, callers, slice, func() []byte { return direct })
					s, d = append(s, f.p50), append(d, g.p50)
					ratio, more, late = append(ratio, f.p50/g.p50), append(more, f.p50-g.p50), append(late, f.p99)
				}
				b.ReportMetric(median(s), "semel-ms")
				b.ReportMetric(median(d), "direct-ms")
				b.ReportMetric(median(ratio), "ratio")
				b.ReportMetric(median(more), "more-ms")
				b.ReportMetric(median(late), "semel-p99-ms")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// A tokenFigure is how long first tokens took in one round, in milliseconds.
type tokenFigure struct{ p50, p99 float64 }

// firstTokens has that many callers ask the server, each on one connection, and
// measures from the write of a request to its first token.
func firstTokens(b *testing.B, p *process, callers int, d time.Duration, request func() []byte) tokenFigure {
	b.Helper()
	started := time.Now()
	took := make([][]float64, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			c, err := net.Dial("tcp", p.address)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			in := bufio.NewReader(c)
			// Out of step, as callers are.
			time.Sleep(time.Duration(i) * 300 * time.Millisecond / time.Duration(callers))
			for time.Since(started) < d {
				asked := time.Now()
				first, err := firstToken(c, in, request())
				if err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], float64(first.Sub(asked).Microseconds())/1000)
			}
		})
	}
	wg.Wait()
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	if len(all) == 0 {
		b.Fatal("nobody was answered")
	}
	return tokenFigure{p50: all[len(all)/2], p99: all[len(all)*99/100]}
}

// firstToken asks, reads the whole answer and says when its first token came.
func firstToken(c net.Conn, in *bufio.Reader, request []byte) (time.Time, error) {
	if _, err := c.Write(request); err != nil {
		return time.Time{}, err
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return time.Time{}, err
	}
	var first time.Time
	var all bytes.Buffer
	buf := make([]byte, 4096)
	for {
		n, err := res.Body.Read(buf)
		if first.IsZero() && bytes.IndexByte(buf[:n], '@') >= 0 {
			first = time.Now()
		}
		all.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return first, err
		}
	}
	if first.IsZero() || strings.Count(all.String(), "word ") < len(spoken)-1 {
		return first, fmt.Errorf("status %d, not the whole answer: %s", res.StatusCode, all.String())
	}
	return first, nil
}
