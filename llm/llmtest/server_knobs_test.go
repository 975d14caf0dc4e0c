package llmtest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"semel/llm/llmtest"
)

// leave sends a prompt, waits until it hangs, and goes away.
func leave(t *testing.T, s *llmtest.Server, f llmtest.Format) {
	t.Helper()
	leaveRequest(t, s, prompt(t.Context(), t, s, f, true))
}

func leaveRequest(t *testing.T, s *llmtest.Server, r *http.Request) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r = r.WithContext(ctx)
	done := make(chan error, 1)
	go func() {
		resp, err := newClient().Do(r)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		done <- err
	}()
	<-s.Stalled()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want a cancelled request", err)
	}
	s.Settle()
}

func TestAClientThatLeavesAbortsItsCall(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s := llmtest.NewServer(t, f)
		for i, at := range []llmtest.Point{llmtest.BeforeHeaders, llmtest.AfterHeaders, llmtest.AfterPieces} {
			s.Play(llmtest.Script{Hang: at})
			leave(t, s, f)
			if s.Aborted() != int64(i+1) || s.Executed() != 0 {
				t.Errorf("got %d aborted, %d executed, want %d, 0", s.Aborted(), s.Executed(), i+1)
			}
		}
	})
}

func TestALateAnswerIsExecutedForNobody(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s := llmtest.NewServer(t, f)
		s.Play(llmtest.Script{Late: true})
		leave(t, s, f)
		if s.Calls() != 1 || s.Aborted() != 1 || s.Executed() != 1 {
			t.Errorf("got %d calls, %d aborted, %d executed, want 1 of each", s.Calls(), s.Aborted(), s.Executed())
		}
	})
}

func TestCloseEndsWhateverHangs(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		for _, script := range []llmtest.Script{{Late: true}, {Hang: llmtest.BeforeHeaders}, {Hang: llmtest.AfterPieces, HangAfter: 1}, {TokenDelay: time.Hour}} {
			s, err := llmtest.Start(f)
			if err != nil {
				t.Fatal(err)
			}
			s.Play(script)
			r := prompt(t.Context(), t, s, f, true)
			done := make(chan error, 1)
			go func() {
				resp, err := newClient().Do(r)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				done <- err
			}()
			if script.TokenDelay == 0 {
				<-s.Stalled()
			}
			s.Close()
			s.Close() // and again
			if err := <-done; err == nil {
				t.Errorf("%+v: got no error", script)
			}
			if s.Aborted() != 0 {
				t.Errorf("%+v: got %d aborted, want 0: the server ended it", script, s.Aborted())
			}
		}
	})
}

func TestAnAnswerTakesItsTime(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		const header, token, rate, n = 30 * time.Millisecond, 40 * time.Millisecond, 100.0, 4
		for _, stream := range []bool{true, false} {
			s := llmtest.NewServer(t, f)
			s.Play(llmtest.Script{Text: llmtest.Tokens(n), HeaderDelay: header, TokenDelay: token, Rate: rate})
			start := time.Now()
			resp, err := newClient().Do(prompt(t.Context(), t, s, f, stream))
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Since(start)
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			took := time.Since(start)
			least := header + token + time.Duration((n-1)/rate*float64(time.Second))
			if err != nil || begun < header || took < least || took > 100*least {
				t.Errorf("stream %v: headers after %v, end after %v, %v; want %v and %v", stream, begun, took, err, header, least)
			}
		}
	})
}

func TestAFailureIsWordedAsTheProviderDoes(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		for _, status := range []int{400, 401, 403, 404, 413, 429, 500, 503, 529} {
			got := ask(t, f, llmtest.Script{Refuse: &llmtest.Failure{Status: status, RetryAfter: "7", Message: "Told so."}}, true)
			var doc struct {
				Type  string
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal([]byte(got.body), &doc); err != nil {
				t.Fatal(err)
			}
			if got.StatusCode != status || got.Header.Get("Retry-After") != "7" || doc.Error.Message != "Told so." || doc.Error.Type == "" {
				t.Errorf("got %d, Retry-After %q, %s", got.StatusCode, got.Header.Get("Retry-After"), got.body)
			}
			if (doc.Type == "error") != (f == llmtest.Anthropic) {
				t.Errorf("got %s, which is another provider's form", got.body)
			}
		}
		raw := "upstream connect error"
		if got := ask(t, f, llmtest.Script{Refuse: &llmtest.Failure{Status: 502, Body: &raw}}, true); got.StatusCode != 502 || got.body != raw {
			t.Errorf("got %d %q", got.StatusCode, got.body)
		}
	})
}

func TestAnErrorFrameEndsTheStreamWhereItIsToBe(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		text := []string{"alpha", "beta", "gamma"}
		for after := range 5 {
			script := llmtest.Script{Text: text, ErrorFrame: &llmtest.Failure{Status: 529, Message: "Too busy."}, ErrorAfter: after}
			s := llmtest.NewServer(t, f)
			s.Play(script)
			got := send(t, prompt(t.Context(), t, s, f, true))
			list := events(got.body)
			if got.err != nil || !strings.Contains(list[len(list)-1], "Too busy.") || s.Executed() != 0 {
				t.Errorf("after %d: got %v, %s", after, got.err, got.body)
			}
			deltas := 0
			for _, e := range list {
				for _, p := range text {
					if strings.Contains(e, `":"`+p+`"`) && !strings.Contains(e, ".done") {
						deltas++
					}
				}
			}
			if deltas != min(after, len(text)) {
				t.Errorf("after %d: got %d pieces in %s", after, deltas, got.body)
			}
			whole := ask(t, f, script, false)
			if whole.StatusCode != 200 || !strings.Contains(whole.body, "Too busy.") || strings.Contains(whole.body, "alpha") {
				t.Errorf("not streaming: got %d %s", whole.StatusCode, whole.body)
			}
		}
	})
}

func TestARedirectKeepsMethodAndBody(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		other := llmtest.NewServer(t, f)
		s := llmtest.NewServer(t, f)
		r := prompt(t.Context(), t, s, f, true)
		s.Play(llmtest.Script{Redirect: other.URL + strings.TrimPrefix(r.URL.Path, "/v1")})
		got := send(t, r)
		if got.StatusCode != http.StatusTemporaryRedirect || !strings.HasPrefix(got.Header.Get("Location"), other.URL) {
			t.Errorf("got %d to %q", got.StatusCode, got.Header.Get("Location"))
		}
		resp, err := http.DefaultClient.Do(prompt(t.Context(), t, s, f, true)) // which follows it
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		if s.Calls() != 2 || other.Calls() != 1 {
			t.Errorf("got %d and %d calls, want 2 and 1", s.Calls(), other.Calls())
		}
	})
}

func TestAPortalAndAWholeAnswerComeInsteadOfAStream(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		got := ask(t, f, llmtest.Script{HTML: true}, true)
		if got.StatusCode != 200 || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") || !strings.Contains(got.body, "<title>") {
			t.Errorf("got %d %q", got.StatusCode, got.body)
		}
		got = ask(t, f, llmtest.Script{JSON: true, Text: []string{"all ", "at once"}}, true)
		if got.Header.Get("Content-Type") != "application/json" || !strings.Contains(got.body, `"all at once"`) || !json.Valid([]byte(got.body)) {
			t.Errorf("got %s", got.body)
		}
	})
}

// writes returns the writes of which the body of a stream consists. Each is flushed,
// so that each is a chunk of the transfer coding.
func writes(t *testing.T, f llmtest.Format, script llmtest.Script) (list []string) {
	t.Helper()
	s := llmtest.NewServer(t, f)
	s.Play(script)
	r := prompt(t.Context(), t, s, f, true)
	conn, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	in := textproto.NewReader(bufio.NewReader(conn))
	for l := "-"; l != ""; { // status and headers
		if l, err = in.ReadLine(); err != nil {
			t.Fatal(err)
		}
	}
	for {
		l, err := in.ReadLine()
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(l, 16, 20)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return list
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in.R, chunk); err != nil {
			t.Fatal(err)
		}
		list = append(list, string(chunk[:n]))
	}
}

func TestAWriteIsAnEventAByteOrHalfACharacter(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		text := []string{"hé", "一次😀"}
		plain := writes(t, f, llmtest.Script{Text: text})
		for _, w := range plain {
			if !strings.HasSuffix(w, "\n\n") || len(events(w)) != 1 {
				t.Errorf("got %q, want an event", w)
			}
		}
		for _, w := range writes(t, f, llmtest.Script{Text: text, OneByte: true}) {
			if len(w) != 1 {
				t.Errorf("got %q, want a byte", w)
			}
		}
		split := writes(t, f, llmtest.Script{Text: text, SplitRunes: true})
		if strings.Join(split, "") != strings.Join(plain, "") {
			t.Errorf("got %q, want %q", split, plain)
		}
		for _, w := range split {
			for i, r := range w {
				if n := utf8.RuneLen(r); r != utf8.RuneError && n > 1 {
					t.Errorf("got %q in one write at %d of %q", r, i, w)
				}
			}
		}
	})
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s, err := llmtest.Start(f)
		if err != nil {
			t.Fatal(err)
		}
		s.Play(llmtest.Script{}, llmtest.Script{Cut: llmtest.CutReset}, llmtest.Script{Hang: llmtest.AfterPieces})
		client := &http.Client{Transport: &http.Transport{}} // keeps its connections
		defer client.CloseIdleConnections()
		for range 2 {
			if resp, err := client.Do(prompt(t.Context(), t, s, f, true)); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		for range 30 {
			resp, err := client.Do(prompt(t.Context(), t, s, f, true))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			<-s.Stalled()
		}
		if f == llmtest.Responses {
			r := prompt(t.Context(), t, s, f, true)
			b := `{"model":"m","input":"Hi","background":true}`
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(b)), int64(len(b))
			send(t, r)
			<-s.Stalled()
		}
		s.Close()
		end := time.Now().Add(10 * time.Second)
		for first := true; ; first = false {
			buf := make([]byte, 4<<20)
			stacks := string(buf[:runtime.Stack(buf, true)])
			if first && (strings.Contains(stacks, "ServeHTTP") || strings.Contains(stacks, ".startRun.")) {
				t.Fatalf("Close did not wait:\n%s", stacks)
			}
			// What net/http runs for a connection may be at its last instruction.
			if !strings.Contains(stacks, "llmtest.(*Server)") && !strings.Contains(stacks, "http.(*conn)") && !strings.Contains(stacks, "http.(*connReader)") {
				return
			}
			if time.Now().After(end) {
				t.Fatal(stacks)
			}
			runtime.Gosched()
		}
	})
}

func TestAKeepAliveIsAComment(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		got := ask(t, f, llmtest.Script{KeepAlive: true}, true)
		if !strings.HasPrefix(got.body, ": ") || strings.Count(got.body, "\n: ")+1 != len(events(got.body)) {
			t.Errorf("got %q", got.body)
		}
	})
}

func TestOtherAddressesAreNotFound(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s := llmtest.NewServer(t, f)
		for _, path := range []string{"/embeddings", "/responses/resp_1", "/chat/completions"} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := send(t, r); got.StatusCode != 404 || !strings.Contains(got.body, `"error"`) {
				t.Errorf("%s: got %d %s", path, got.StatusCode, got.body)
			}
		}
		if s.Calls() != 0 || len(s.Requests()) != 3 {
			t.Errorf("got %d calls, %d requests, want 0, 3", s.Calls(), len(s.Requests()))
		}
	})
}

func TestAMalformedPromptIsRefused(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s := llmtest.NewServer(t, f)
		for _, body := range []string{"", "{", "{}", `{"model":"m"}`, `{"messages":[{}],"input":"x","max_tokens":1}`} {
			r := prompt(t.Context(), t, s, f, false)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			if got := send(t, r); got.StatusCode != 400 {
				t.Errorf("%q: got %d %s", body, got.StatusCode, got.body)
			}
		}
		if s.Executed() != 0 {
			t.Errorf("got %d executed, want 0", s.Executed())
		}
	})
}

func TestManyClientsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, f llmtest.Format) {
		s := llmtest.NewServer(t, f)
		s.PlayFunc(func(n int64, _ []byte) llmtest.Script {
			if n%2 == 0 {
				return llmtest.Script{Cut: llmtest.CutClose, CutAt: int(n)}
			}
			return llmtest.Script{}
		})
		const n = 40
		errs := make(chan error, n)
		for range n {
			r := prompt(t.Context(), t, s, f, true)
			go func() {
				resp, err := newClient().Do(r)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				errs <- err
			}()
		}
		cut := 0
		for range n {
			switch err := <-errs; {
			case errors.Is(err, io.ErrUnexpectedEOF):
				cut++
			case err != nil:
				t.Error(err)
			}
		}
		s.Settle()
		if cut != n/2 || s.Calls() != n || s.Executed() != n/2 {
			t.Errorf("got %s", fmt.Sprint(cut, s.Calls(), s.Executed()))
		}
	})
}
