package handlers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"semel/chat"
	"semel/db"
	"semel/handlers"
	"semel/llm"
)

func TestWhatIsWrongWithABodyIsSaid(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	valid := func(more string) string {
		return fmt.Sprintf(`{"sessionId":%q,"requestId":%q,"content":"[[echo yes]]"%s}`, chat.NewID(), chat.NewID(), more)
	}
	d.chat(valid("")).wants(200)
	d.chat(valid(`,"kind":"message","params":null,"model":null,"parentId":null,"attachments":[]`)).wants(200)
	d.chat(" \r\n\t" + valid("") + "\n\n").wants(200)
	deep := strings.Repeat("[", 20000)
	for _, c := range []struct{ name, body, says string }{
		{"nothing", "", "empty"},
		{"white space", " \n", "empty"},
		{"no JSON", "hello", "byte 1"},
		{"half", `{"sessionId":`, "too early"},
		{"an array", "[]", "object"},
		{"null", "null", "object"},
		{"a number", "1", "object"},
		{"a BOM", "\xef\xbb\xbf" + valid(""), "byte 1"},
		{"UTF-16", "{\x00\"\x00", "byte 2"},
		{"invalid UTF-8", valid(",\"model\":\"\xff\""), "UTF-8"},
		{"an overlong NUL", valid(",\"model\":\"\xc0\x80\""), "UTF-8"},
		{"a raw surrogate", valid(",\"model\":\"\xed\xa0\x80\""), "UTF-8"},
		{"a raw control character", valid(",\"model\":\"\x01\""), "byte"},
		{"something after", valid("") + "{}", "after"},
		{"something after a line", valid("") + "\nnull", "after"},
		{"an unknown field", valid(`,"temperature":1`), `"temperature"`},
		{"a field in other letters", valid(`,"Kind":"message"`), `"Kind"`},
		{"a field in letters that fold", strings.Replace(valid(""), "sessionId", "ſessionId", 1), "ſessionId"},
		{"a field twice", valid(`,"requestId":"` + idA + `"`), `"requestId"`},
		{"a field twice, escaped", valid(`,"request\u0049d":"` + idA + `"`), `"requestId"`},
		{"content that is a number", `{"sessionId":"abcdefgh","requestId":"abcdefgh","content":1}`, "content"},
		{"content that is a list", `{"sessionId":"abcdefgh","requestId":"abcdefgh","content":["x"]}`, "content"},
		{"null content", `{"sessionId":"abcdefgh","requestId":"abcdefgh","content":null}`, "content"},
		{"blank content", `{"sessionId":"abcdefgh","requestId":"abcdefgh","content":" \n\u3000"}`, "content"},
		{"no content", `{"sessionId":"abcdefgh","requestId":"abcdefgh"}`, "content"},
		{"an unknown kind", valid(`,"kind":"title"`), "title"},
		{"a confirmation of nothing", valid(`,"confirm":"yes"`), "confirm"},
		{"a message with a parent", valid(`,"parentId":"abcdefgh.1"`), "parentId"},
		{"an edit without", valid(`,"kind":"edit"`), "parentId"},
		{"a regenerate with content", valid(`,"kind":"regenerate","parentId":"abcdefgh.1"`), "content"},
		{"params that are a list", valid(`,"params":[]`), "params"},
		{"params that are deep", valid(`,"params":` + deep), "JSON"},
		{"an unknown parameter", valid(`,"params":{"stop":"x"}`), `"stop"`},
		{"a parameter twice", valid(`,"params":{"seed":1,"seed":2}`), `"seed"`},
		{"too hot", valid(`,"params":{"temperature":2.0001}`), "temperature"},
		{"too cold", valid(`,"params":{"temperature":-0.0001}`), "temperature"},
		{"a huge number", valid(`,"params":{"temperature":1e400}`), "temperature"},
		{"not a number", valid(`,"params":{"temperature":NaN}`), "byte"},
		{"top_p beyond 1", valid(`,"params":{"top_p":1.0001}`), "top_p"},
		{"no tokens", valid(`,"params":{"max_tokens":0}`), "max_tokens"},
		{"tokens below zero", valid(`,"params":{"max_tokens":-1}`), "max_tokens"},
		{"more tokens than there are numbers", valid(`,"params":{"max_tokens":9223372036854775808}`), "max_tokens"},
		{"half a token", valid(`,"params":{"max_tokens":1.5}`), "max_tokens"},
		{"a number as a string", valid(`,"params":{"seed":"1"}`), "seed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if p := d.chat(c.body).refused(400, "bad_request"); !strings.Contains(p.Detail, c.says) {
				t.Errorf("detail %q does not say %q", p.Detail, c.says)
			}
		})
	}
	d.chat(valid(`,"params":{"temperature":2,"top_p":0,"max_tokens":9223372036854775807,"seed":-9223372036854775808}`)).wants(200)
	d.chat(valid(`,"params":{"temperature":0,"top_p":1,"max_tokens":1}`)).wants(200)
	d.chat(valid(`,"model":"gpt-0"`)).refused(422, "model_unknown")
	d.chat(valid(`,"kind":"edit","parentId":"abcdefgh.1"`)).refused(422, "parent_not_found")
	d.chat(valid(`,"attachments":["x"]`)).refused(400, "bad_request")
}

func TestABodyIsJSONBySayingSo(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for contentType, status := range map[string]int{
		"application/json":                  200,
		"application/json; charset=utf-8":   200,
		"Application/JSON":                  200,
		"":                                  415,
		"text/plain":                        415, // what a form of another site can send
		"application/x-www-form-urlencoded": 415,
		"multipart/form-data; boundary=x":   415,
		"application/problem+json":          415,
		"application/json;;":                415,
		"text/json, application/json":       415,
	} {
		r := d.chat(ask(chat.NewID(), chat.NewID(), "[[echo yes]]"), "Content-Type", contentType).wants(status)
		if status == 415 {
			r.refused(415, "unsupported_media")
		}
	}
}

// A packed body is not unpacked, and not taken for what it is not.
func TestAPackedBodyIsRefusedWhereverItGoes(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	id := chat.NewID()
	session, answered, _ := d.answered("[[echo yes]]")
	for _, route := range d.allRoutes(session, answered) {
		if route.method != "POST" && route.method != "PATCH" {
			continue
		}
		for _, packed := range []string{"gzip", "br", "identity, gzip", "X-None"} {
			req, err := http.NewRequest(route.method, d.url+route.path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Encoding", packed)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != 415 {
				t.Errorf("%s %s with %s: got %d, want 415", route.method, route.pattern, packed, res.StatusCode)
			}
		}
	}
	d.chat(ask(session, id, "[[echo yes]]"), "Content-Encoding", "gzip").refused(415, "unsupported_media")
	d.chat(ask(session, id, "[[echo yes]]"), "Content-Encoding", "identity").wants(200)
}

func TestLimitsAreExactAndSayTheirName(t *testing.T) {
	t.Parallel()
	const most = 4000
	d := openDoor(t, func(s *setup) { s.handlers.MessageBytes = most })
	words := func(size int, of string) string {
		return "[[echo yes]]" + strings.Repeat(of, (size-len("[[echo yes]]"))/len(of))
	}
	for _, letter := range []string{"x", "é", "\U0001F642"} { // all divide the limit
		content := words(most, letter)
		d.chat(ask(chat.NewID(), chat.NewID(), content)).wants(200)
		// As a program sends it that escapes all that is not ASCII.
		escaped := ""
		for _, r := range content {
			switch {
			case r < 0x80:
				escaped += string(r)
			case r < 0x10000:
				escaped += fmt.Sprintf(`\u%04x`, r)
			default:
				escaped += `\ud83d\ude42`
			}
		}
		body := fmt.Sprintf(`{"sessionId":%q,"requestId":%q,"content":"%s"}`, chat.NewID(), chat.NewID(), escaped)
		d.chat(body).wants(200)
		session, id := chat.NewID(), chat.NewID()
		p := d.chat(ask(session, id, content+"x")).refused(413, "too_large")
		if !strings.Contains(p.Detail, "limits.message_bytes") || !strings.Contains(p.Detail, fmt.Sprint(most)) || !strings.Contains(p.Detail, fmt.Sprint(most+1)) || p.RequestID != id {
			t.Errorf("%+v", p)
		}
		d.get(statusPath(session, id)).refused(404, "not_found")
	}

	// The body has a limit of its own, for what is not the question.
	const longest = 3*most + 64<<10
	padded := func(size int) string {
		b := mustJSON(ask(chat.NewID(), chat.NewID(), "[[echo yes]]"))
		return b + strings.Repeat(" ", size-len(b))
	}
	d.chat(padded(longest)).wants(200)
	for _, size := range []int{longest + 1, 10 * longest} {
		if p := d.chat(padded(size)).refused(413, "too_large"); !strings.Contains(p.Detail, "limits.message_bytes") || !strings.Contains(p.Detail, fmt.Sprint(longest)) {
			t.Errorf("%+v", p)
		}
	}
	// So has one of unknown length.
	d.chat(io.MultiReader(strings.NewReader(padded(longest+1)))).refused(413, "too_large")
	d.chat(io.MultiReader(strings.NewReader(padded(longest)))).wants(200)
}

// JSON that is small on the line and large in memory, or that other parsers die of.
var jsonBombs = map[string]string{
	"lists, closed":      `{"content":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + "}",
	"lists, left open":   strings.Repeat("[", 40_000),
	"objects, left open": strings.Repeat(`{"content":`, 10_001),
	"digits":             `{"attempt":` + strings.Repeat("9", 40_000) + "}",
	"a small fraction":   `{"params":{"temperature":0.` + strings.Repeat("0", 40_000) + "x}}",
	"beyond a double":    `{"params":{"temperature":1e309}}`,
	"one key often":      "{" + strings.Repeat(`"content":"",`, 4_000) + `"content":""}`,
	"keys nobody knows":  "{" + strings.Repeat(`"a":1,`, 4_000) + `"a":1}`,
	"a long name":        `{"` + strings.Repeat("a", 40_000) + `":1}`,
	"half a pair, twice": `{"\ud800":1,"\udc00":1}`,
}

// silentRoutes take no JSON, so nothing in it is looked at.
var silentRoutes = []string{"/api/attachments", "/api/conversations/{sessionID}/restore", "/api/ops/verify"}

func TestJSONThatExplodesIsRefusedWhereverItGoes(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	before := d.dump()
	tried := 0
	for _, route := range d.allRoutes(session, id) {
		if route.method != "POST" && route.method != "PATCH" || !strings.HasPrefix(route.pattern, "/api/") || slices.Contains(silentRoutes, route.pattern) {
			continue
		}
		tried++
		for name, bomb := range jsonBombs {
			if r := d.call(route.method, route.path, bomb, "Content-Type", "application/json", "Idempotency-Key", chat.NewID()); r.status < 400 || r.status >= 500 {
				t.Errorf("%s %s, %s: status %d, %.300s", route.method, route.pattern, name, r.status, r.body)
			} else if len(r.body) > 2000 {
				t.Errorf("%s %s, %s: told in %d bytes", route.method, route.pattern, name, len(r.body))
			}
		}
	}
	if tried < 12 {
		t.Errorf("only %d routes", tried)
	}
	if !maps.Equal(d.dump(), before) {
		t.Error("something was changed")
	}
	for name, says := range map[string]string{
		"lists, closed": "exceeded max depth", "lists, left open": "A JSON object is needed", "objects, left open": "max depth", "digits": `unknown field "attempt"`,
		"a small fraction": "breaks at byte", "a long name": `unknown field "aaa`, "one key often": `The field "content" is there twice`, "keys nobody knows": `unknown field "a"`,
	} {
		if p := d.chat(jsonBombs[name]).refused(400, "bad_request"); !strings.Contains(p.Detail, says) {
			t.Errorf("%s: %q does not say %q", name, p.Detail, says)
		}
	}
	// An export has a bound of its own, far below that of the parser.
	for name, deep := range map[string]int{"nested deeper than 8": 9_000, "exceeded max depth": 10_001} {
		file := `{"format":"semel.conversation","version":1,"conversation":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `,"messages":[]}`
		if r := d.call("POST", "/api/conversations/import", file, "Content-Type", "application/json"); r.status >= 500 || !strings.Contains(string(r.body), name) {
			t.Errorf("an import %d deep: status %d, %.300s", deep, r.status, r.body)
		}
	}
	// What a double holds as zero is zero, and half a pair of letters is the sign for one
	// that cannot be read, as browsers have it.
	rec := d.chat(fmt.Sprintf(`{"sessionId":%q,"requestId":%q,"content":"[[echo a\ud800b]]","params":{"temperature":1e-400}}`, chat.NewID(), chat.NewID())).wants(200).record()
	if rec.Message.Content != "a\ufffdb" {
		t.Errorf("half a pair is %q", rec.Message.Content)
	}
}

// Headers have an exact limit, which they are told when they pass it, in whatever form they come.
func TestTheLimitOfHeadersIsExactAndSaysItself(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	address := strings.TrimPrefix(d.url, "http://")
	for name, head := range map[string]string{
		"one header":          "GET /healthz HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\nX-Long: %s\r\n\r\n",
		"the address":         "GET /healthz?q=%s HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n\r\n",
		"a body of no length": "POST /api/chat/stop/abcdefgh HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nCookie: %s\r\n\r\n0\r\n\r\n",
		"many headers":        "GET /healthz HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n" + strings.Repeat("A: b\r\n", 1000) + "X-Long: %s\r\n\r\n",
	} {
		end := strings.Index(head, "\r\n\r\n") + 4
		for more, status := range map[int]int{-1: 0, 0: 0, 1: 431} {
			fill := handlers.HeaderBytes + more - (end - len("%s"))
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(conn, head, strings.Repeat("x", fill)); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			conn.Close()
			if err != nil || (res.StatusCode == 431) != (status == 431) {
				t.Errorf("%s, %d bytes more than the limit: status %d, %v", name, more, res.StatusCode, err)
			}
			if status == 431 {
				checkHeaders(t, name, res.Header)
				var p chat.Problem
				if err := json.Unmarshal(body, &p); err != nil || p.Code != "header_too_large" || !strings.Contains(p.Detail, fmt.Sprint(handlers.HeaderBytes)) || !strings.Contains(p.Detail, fmt.Sprint(handlers.HeaderBytes+1)) {
					t.Errorf("%s: %s, %v", name, body, err)
				}
			}
		}
	}
}

func TestS44TheFormOfTheJSONDoesNotMatter(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	first := fmt.Sprintf(`{"sessionId":%q,"requestId":%q,"content":"[[echo café]]","params":{"temperature":0.5,"seed":7,"top_p":1}}`, session, id)
	want := d.chat(first).wants(200).record()
	for name, body := range map[string]string{
		"another order":         fmt.Sprintf(`{"params":{"top_p":1,"seed":7,"temperature":0.5},"content":"[[echo café]]","requestId":%q,"sessionId":%q}`, id, session),
		"white space":           fmt.Sprintf("\n{ \"sessionId\" : %q ,\t\"requestId\":%q,\"content\":\"[[echo café]]\" , \"params\": {\"temperature\" :0.5,\"seed\":7,\r\n\"top_p\":1 } }\n", session, id),
		"escapes":               fmt.Sprintf(`{"sessionId":%q,"requestId":%q,"cont\u0065nt":"[[echo caf\u00e9]]","params":{"temperature":0.5,"seed":7,"top_p":1}}`, session, id),
		"another spelling of é": fmt.Sprintf(`{"sessionId":%q,"requestId":%q,"content":"[[echo cafe\u0301]]","params":{"temperature":0.5,"seed":7,"top_p":1}}`, session, id),
		"numbers otherwise":     fmt.Sprintf(`{"sessionId":%q,"requestId":%q,"content":"[[echo café]]","params":{"temperature":5e-1,"seed":7,"top_p":1.0}}`, session, id),
		"what is not there":     fmt.Sprintf(`{"sessionId":%q,"requestId":%q,"kind":"","model":null,"parentId":"","attachments":[],"content":"[[echo café]]","params":{"temperature":0.50,"seed":7,"top_p":1,"max_tokens":null}}`, session, id),
		"the kind by its name":  fmt.Sprintf(`{"sessionId":%q,"requestId":%q,"kind":"message","content":"[[echo café]]","params":{"temperature":0.5,"seed":7,"top_p":1}}`, session, id),
	} {
		t.Run(name, func(t *testing.T) {
			if rec := d.chat(body).wants(200).has("X-Idempotent-Replayed", "true").record(); rec.Message.ID != want.Message.ID {
				t.Errorf("%+v", rec)
			}
		})
	}
	if n := d.demo.Calls(); n != 1 {
		t.Errorf("%d calls of the model", n)
	}
}

func TestASlowBodyIsGivenUpAndCostsNobodyAnything(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		head := "POST %s HTTP/1.1\r\nHost: 127.0.0.1:8787\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\n{"
		for _, c := range []struct {
			path, contentType string
			status            string
		}{
			{"/api/chat", "application/json", "408"},
			{"/api/chat", "text/plain", "415"},      // refused before the body is looked at
			{"/nothing", "application/json", "404"}, // nobody would read it
			{"/api/conversations/abcdefgh/restore", "application/json", "404"},
		} {
			conn, err := d.listener.dial()
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(time.Hour))
			start := time.Now()
			fmt.Fprintf(conn, head, c.path, c.contentType)
			d.get("/healthz").wants(200) // meanwhile
			b, _ := io.ReadAll(conn)
			if took := time.Since(start); took > 31*time.Second || !strings.HasPrefix(string(b), "HTTP/1.1 "+c.status) {
				t.Errorf("%s as %s: %.100q after %s, want %s within 30s", c.path, c.contentType, b, took, c.status)
			}
			conn.Close()
		}
		// A byte now and then is as slow.
		conn, err := d.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Hour))
		start := time.Now()
		fmt.Fprintf(conn, head, "/api/chat", "application/json")
		var drips sync.WaitGroup
		drips.Go(func() {
			for {
				time.Sleep(time.Second)
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
			}
		})
		b, _ := io.ReadAll(conn)
		conn.Close()
		drips.Wait()
		if took := time.Since(start); took > 31*time.Second || !strings.HasPrefix(string(b), "HTTP/1.1 408") {
			t.Errorf("%.100q after %s", b, took)
		}
	})
}

func TestManySlowClientsBlockNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		for i := range 200 {
			conn, err := d.listener.dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			part := "POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1:8787\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
			if i%2 == 0 {
				part += "\r\n{"
			}
			if _, err := io.WriteString(conn, part); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		d.answered("[[echo yes]]")
		if took := time.Since(start); took >= 5*time.Second { // which is when the first of them are given up
			t.Errorf("an answer took %s", took)
		}
	})
}

// FuzzChatBody: no body makes the server panic or fail, and a question that is
// accepted is stored as it was sent.
func FuzzChatBody(f *testing.F) {
	for _, seed := range []string{
		`{"sessionId":"abcdefgh","requestId":"abcdefgh","content":"hello"}`,
		`{"sessionId":"01J0000000000000000000000A","requestId":"F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6","content":"\ud83d\ude42 \ud800 \u0000","params":{"temperature":1}}`,
		`{"sessionId":"abcdefgh","requestId":"12345678","kind":"edit","parentId":"abcdefgh.1","content":"x","model":"demo"}`,
		`{"sessionId":"abcdefgh","requestId":"abcdefg1","kind":"regenerate","parentId":"abcdefgh.2"}`,
		`{"sessionId":"abcdefgh","requestId":"abcdefg2","kind":"continue","parentId":"abcdefgh.9223372036854775807"}`,
		`{"sessionId":"abcdefgh","requestId":"abcdefgh","content":"hello","content":"again"}`,
		`{"params":{"max_tokens":99999999999999999999}}`, `null`, `[]`, `{}`, "\xef\xbb\xbf{}", `{"a":` + strings.Repeat("[", 100), "{\"content\":\"\xff\"}",
	} {
		f.Add(seed)
	}
	d := newDoor(f, []func(*setup){func(s *setup) {
		s.engine.Models = s.engine.Models[:1]
		s.engine.Models[0].Client = yes{}
		s.handlers.MessageBytes = 4096
	}})
	f.Cleanup(d.handler.Close)
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest("POST", "http://localhost/api/chat", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Prefer", "wait=0")
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, r)
		got := reply{t, w.Code, w.Header(), w.Body.Bytes()}
		got.wellFormed(body)
		if w.Code >= 500 {
			t.Fatalf("status %d for %q: %s", w.Code, body, w.Body)
		}
		if w.Code >= 300 {
			return
		}
		var sent struct{ SessionID, RequestID, Content, Kind string }
		if err := json.Unmarshal([]byte(body), &sent); err != nil || !utf8.ValidString(body) {
			t.Fatalf("accepted %q: %v", body, err)
		}
		rec := got.record()
		if id, err := chat.ParseID(sent.RequestID); err != nil || rec.RequestID != id {
			t.Fatalf("accepted %q as %q", sent.RequestID, rec.RequestID)
		}
		if sent.Kind != "" && sent.Kind != "message" {
			return
		}
		th, err := d.db.Thread(context.Background(), db.LocalUser, rec.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range th.Messages {
			if m.RequestID == rec.RequestID && m.Role == "user" {
				if m.Content != sent.Content && w.Header().Get("X-Idempotent-Replayed")+w.Header().Get("X-Idempotent-Joined") == "" {
					t.Fatalf("stored %q, sent %q", m.Content, sent.Content)
				}
				return
			}
		}
		// An edit elsewhere may have moved the branch; the status still has it.
		if _, err := d.db.Record(context.Background(), chat.Key{UserID: db.LocalUser, SessionID: rec.SessionID, RequestID: rec.RequestID}); err != nil {
			t.Fatal(err)
		}
	})
}

// yes is a model that answers at once.
type yes struct{}

func (yes) Stream(_ context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	emit(llm.Piece{Text: "Yes."})
	return llm.Answer{Content: "Yes.", Finish: chat.FinishStop}, nil
}
