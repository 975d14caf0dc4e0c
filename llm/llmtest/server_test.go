package llmtest_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"semel/llm/llmtest"
)

var formats = []llmtest.Format{llmtest.Chat, llmtest.Responses, llmtest.Anthropic}

// A reply is what a plain HTTP client got.
type reply struct {
	*http.Response
	body string
	err  error // of reading the body
}

// newClient returns a client that follows no redirect, decompresses nothing and
// has a connection of its own for each request.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// prompt returns a request as a client of the format sends it.
func prompt(ctx context.Context, t testing.TB, s *llmtest.Server, f llmtest.Format, stream bool) *http.Request {
	t.Helper()
	path, body := "/chat/completions", map[string]any{"model": "m", "stream": stream, "messages": []any{map[string]any{"role": "user", "content": "Hi"}}}
	switch f {
	case llmtest.Chat:
		if stream {
			body["stream_options"] = map[string]any{"include_usage": true}
		}
	case llmtest.Responses:
		path = "/responses"
		delete(body, "messages")
		body["input"] = []any{map[string]any{"role": "user", "content": "Hi"}}
	case llmtest.Anthropic:
		path = "/messages"
		body["max_tokens"] = 100
	}
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, "POST", s.URL+path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if f == llmtest.Anthropic {
		r.Header.Set("Anthropic-Version", "2023-06-01")
	}
	return r
}

// send sends a request and reads the whole answer.
func send(t testing.TB, r *http.Request) reply {
	t.Helper()
	resp, err := newClient().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{Response: resp, body: string(b), err: err}
}

// ask plays script for one prompt.
func ask(t testing.TB, f llmtest.Format, script llmtest.Script, stream bool) reply {
	t.Helper()
	s := llmtest.NewServer(t, f)
	s.Play(script)
	return send(t, prompt(t.Context(), t, s, f, stream))
}

// events returns the data of the events in a body.
func events(body string) []string {
	var list []string
	for block := range strings.SplitSeq(body, "\n\n") {
		for l := range strings.SplitSeq(block, "\n") {
			if data, ok := strings.CutPrefix(l, "data: "); ok {
				list = append(list, data)
			}
		}
	}
	return list
}

// each runs a test for every format.
func each(t *testing.T, test func(t *testing.T, f llmtest.Format)) {
	t.Helper()
	for _, f := range formats {
		t.Run(string(f), func(t *testing.T) { test(t, f) })
	}
}

func TestTwoCallsGetTwoAnswers(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s := llmtest.NewServer(t, f)
		for _, stream := range []bool{true, false} {
			one := send(t, prompt(t.Context(), t, s, f, stream))
			two := send(t, prompt(t.Context(), t, s, f, stream))
			if one.err != nil || two.err != nil || one.StatusCode != 200 || one.body == two.body {
				t.Errorf("stream %v: got %q (%v) and %q (%v), want two different answers", stream, one.body, one.err, two.body, two.err)
			}
		}
		if s.Calls() != 4 || s.Executed() != 4 || s.Aborted() != 0 {
			t.Errorf("got %d calls, %d executed, %d aborted; want 4, 4, 0", s.Calls(), s.Executed(), s.Aborted())
		}
	})
}

func TestScriptsArePlayedInOrderAndTheLastOneAgain(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s := llmtest.NewServer(t, f)
		s.Play(llmtest.Script{Text: []string{"first"}}, llmtest.Script{Text: []string{"second"}})
		for i, want := range []string{"first", "second", "second"} {
			if got := send(t, prompt(t.Context(), t, s, f, false)); !strings.Contains(got.body, want) {
				t.Errorf("call %d: got %s, want %q in it", i+1, got.body, want)
			}
		}
		s.PlayFunc(func(n int64, body []byte) llmtest.Script {
			if n != 4 || !bytes.Contains(body, []byte("Hi")) {
				t.Errorf("got call %d with %s, want call 4 with its body", n, body)
			}
			return llmtest.Script{Text: []string{"third"}}
		})
		if got := send(t, prompt(t.Context(), t, s, f, false)); !strings.Contains(got.body, "third") {
			t.Errorf("got %s, want third in it", got.body)
		}
	})
}

func TestRequestsAreRemembered(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s := llmtest.NewServer(t, f)
		r := prompt(t.Context(), t, s, f, true)
		r.Header.Set("Authorization", "Bearer k")
		send(t, r)
		get, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/models?limit=9", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := send(t, get); got.StatusCode != 200 || !strings.Contains(got.body, `"model-a"`) {
			t.Errorf("models: got %d %s", got.StatusCode, got.body)
		}
		got := s.Requests()
		if len(got) != 2 || s.Calls() != 1 {
			t.Fatalf("got %d requests and %d calls, want 2 and 1", len(got), s.Calls())
		}
		if got[0].Method != "POST" || got[0].Path != r.URL.Path || got[0].Header.Get("Authorization") != "Bearer k" || !bytes.Contains(got[0].Body, []byte(`"Hi"`)) {
			t.Errorf("got %+v", got[0])
		}
		if got[1].Method != "GET" || got[1].Path != "/v1/models?limit=9" {
			t.Errorf("got %+v", got[1])
		}
	})
}

func TestALineIsCutWhereAndHowItIsToBe(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		for _, stream := range []bool{true, false} {
			whole := ask(t, f, llmtest.Script{}, stream).body
			for _, at := range []int{0, 1, 50, len(whole) - 1, len(whole)} {
				got := ask(t, f, llmtest.Script{Cut: llmtest.CutClean, CutAt: at}, stream)
				if len(got.body) != at || got.err != nil {
					t.Errorf("clean at %d: got %d bytes, %v", at, len(got.body), got.err)
				}
				got = ask(t, f, llmtest.Script{Cut: llmtest.CutClose, CutAt: at}, stream)
				if len(got.body) != at || !errors.Is(got.err, io.ErrUnexpectedEOF) {
					t.Errorf("close at %d: got %d bytes, %v", at, len(got.body), got.err)
				}
				got = ask(t, f, llmtest.Script{Cut: llmtest.CutReset, CutAt: at}, stream)
				if !errors.Is(got.err, syscall.ECONNRESET) {
					t.Errorf("reset at %d: got %d bytes, %v", at, len(got.body), got.err)
				}
			}
		}
	})
}

func TestALineCanBeCutBeforeTheHeaders(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s := llmtest.NewServer(t, f)
		s.Play(llmtest.Script{Cut: llmtest.CutClose, CutAt: -1}, llmtest.Script{Cut: llmtest.CutReset, CutAt: -1})
		for _, want := range []error{io.EOF, syscall.ECONNRESET} {
			resp, err := newClient().Do(prompt(t.Context(), t, s, f, true))
			if !errors.Is(err, want) {
				t.Errorf("got %v, %v, want %v", resp, err, want)
			}
		}
		if s.Calls() != 2 || s.Executed() != 0 || s.Aborted() != 0 {
			t.Errorf("got %d calls, %d executed, %d aborted; want 2, 0, 0", s.Calls(), s.Executed(), s.Aborted())
		}
	})
}

func TestWhatHangsGoesOnWhenItIsReleased(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		for _, script := range []llmtest.Script{
			{Hang: llmtest.BeforeHeaders}, {Hang: llmtest.AfterHeaders},
			{Hang: llmtest.AfterPieces}, {Hang: llmtest.AfterPieces, HangAfter: 2}, {Hang: llmtest.AfterPieces, HangAfter: 99},
		} {
			for _, stream := range []bool{true, false} {
				s := llmtest.NewServer(t, f)
				s.Play(script)
				var wg sync.WaitGroup
				wg.Go(func() {
					<-s.Stalled()
					s.Release()
				})
				got := send(t, prompt(t.Context(), t, s, f, stream))
				wg.Wait()
				if got.err != nil || s.Executed() != 1 {
					t.Errorf("%+v: got %v, %d executed", script, got.err, s.Executed())
				}
			}
		}
	})
}

func TestASilentCallHasGivenWhatItWasToGive(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s := llmtest.NewServer(t, f)
		s.Play(llmtest.Script{Text: []string{"one", "two", "three"}, Hang: llmtest.AfterPieces, HangAfter: 2})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := newClient().Do(prompt(ctx, t, s, f, true))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, r := "", bufio.NewReader(resp.Body)
		for !strings.Contains(got, "two") {
			l, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			got += l
		}
		<-s.Stalled()
		cancel()
		rest, err := io.ReadAll(r)
		if err == nil || strings.Contains(string(rest), "three") {
			t.Errorf("got %q, %v; want nothing more than an error", rest, err)
		}
		s.Close()
		if s.Executed() != 0 {
			t.Errorf("got %d executed, want 0", s.Executed())
		}
	})
}

func TestGzipComesUnasked(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		for _, stream := range []bool{true, false} {
			got := ask(t, f, llmtest.Script{Gzip: true, Text: []string{"pieces"}}, stream)
			z, err := gzip.NewReader(strings.NewReader(got.body))
			if err != nil || got.Header.Get("Content-Encoding") != "gzip" {
				t.Fatalf("got %q, %v, want a compressed body", got.body, err)
			}
			b, err := io.ReadAll(z)
			if err != nil || !strings.Contains(string(b), "pieces") {
				t.Errorf("got %q, %v", b, err)
			}
		}
	})
}
