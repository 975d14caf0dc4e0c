package handlers_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode"

	"semel/chat"
	"semel/handlers"
	"semel/llm"
)

// X41: what programs are looked into by is not served.
func TestX41NothingForDebuggersIsServed(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	check := func(header ...string) {
		t.Helper()
		for _, path := range []string{"/debug", "/debug/", "/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2",
			"/debug/vars", "/debug/requests", "/debug/events", "/api/debug", "/ops/debug", "/pprof", "/vars", "/_status", "/server-status", "/actuator/env", "/.env", "/.git/config",
			"/semel.db", "/semel.toml", "/backups/"} {
			for _, method := range []string{"GET", "POST"} {
				d.call(method, path, nil, header...).refused(404, "not_found")
			}
		}
	}
	check()
	ada, _, _ := d.people()
	check(ada.header...)
}

// changing is what differs between two answers to the same question.
var changing = regexp.MustCompile(`[0-9A-HJKMNP-TV-Z]{26}|data-server-time="\d+"|"serverTime":"[^"]*"|"startedAt":"[^"]*"|\b\d+ ms\b`)

// X42: a cookie and a key open the same, and there is no third way.
func TestX42WhateverCarriesItOpensTheSame(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	_, _, eve := d.people()
	key := eve.key(chat.ScopeChat)
	secret := strings.TrimPrefix(key.header[1], "Bearer ")
	token := strings.TrimPrefix(eve.header[1], "semel=")
	session, id := chat.NewID(), chat.NewID()
	eve.call("POST", "/api/chat", ask(session, id, "[[echo yes]]")).wants(200)
	compared := 0
	for _, r := range d.allRoutes(session, id) {
		name := r.method + " " + r.pattern
		need, scope := handlers.RightOf(name)
		if need == "" {
			continue
		}
		path := r.path
		sep := map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]
		for _, header := range [][]string{
			{"X-Api-Key", secret}, {"Api-Key", secret}, {"X-Auth-Token", token}, {"Authorization", secret}, {"Authorization", "Token " + secret}, {"Authorization", "Key " + secret},
			{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("eve:"+secret))}, {"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("eve:"+goodPassword))},
			{"Authorization", "Bearer " + token}, {"Cookie", "semel=" + secret}, {"Cookie", "__Host-semel=" + token}, {"Cookie", "Semel=" + token},
			{"Proxy-Authorization", "Bearer " + secret},
		} {
			if r := d.call(r.method, path, nil, header...); r.status != 401 {
				t.Errorf("%s with %s: %d", name, header, r.status)
			}
		}
		for _, query := range []string{"key=" + secret, "access_token=" + secret, "token=" + token} {
			if r := d.call(r.method, path+sep+query, nil); r.status != 401 {
				t.Errorf("%s with ?%s: %d", name, query, r.status)
			}
		}
		// A key counts alone: one that opens nothing is not made good by a cookie.
		if r := d.call(r.method, path, nil, append([]string{"Authorization", "Bearer x" + secret}, eve.header...)...); r.status != 401 {
			t.Errorf("%s with a wrong key and a right cookie: %d", name, r.status)
		}
		if r.method != "GET" || scope != chat.ScopeChat || strings.HasSuffix(r.pattern, "/events") {
			continue
		}
		a, b := eve.call(r.method, path, nil), d.call(r.method, path, nil, "Authorization", "bearer  "+secret)
		c := d.call(r.method, path, nil, append(slices.Clone(key.header), eve.header...)...)
		for _, other := range []reply{b, c} {
			if a.status != other.status || !bytes.Equal(changing.ReplaceAll(a.body, nil), changing.ReplaceAll(other.body, nil)) {
				t.Errorf("%s by the cookie: %d %.200s\nby the key: %d %.200s", name, a.status, a.body, other.status, other.body)
			}
		}
		compared++
	}
	if compared < 8 {
		t.Errorf("only %d routes were compared", compared)
	}
}

// X42: who has asked too much has, with whatever they ask.
func TestX42ALimitIsOfAUserAndNotOfWhatTheyShow(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		_, _, eve := d.people()
		again := &actor{d: d, id: eve.id, header: []string{"Cookie", "semel=" + eve.token("another browser")}}
		ways := []*actor{eve, eve.key(chat.ScopeChat), eve.key(chat.ScopeChat), again}
		for i := range 3 {
			ways[i].call("POST", "/api/chat", ask(chat.NewID(), chat.NewID(), "[[echo yes]]")).wants(200)
		}
		for _, who := range ways {
			who.call("POST", "/api/chat", ask(chat.NewID(), chat.NewID(), "[[echo yes]]"), "X-Api-Key", "another", "X-Forwarded-For", "203.0.113.9").refused(429, "rate_limited")
		}
	}, func(s *setup) { s.engine.PerUserPerMinute = 3 })
}

// X43: what a client makes up opens nothing, and gives nobody another role or name.
func TestX43WhatAClientMakesUpOpensNothing(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	_, _, eve := d.people()
	token := strings.TrimPrefix(eve.header[1], "semel=")
	digest := chat.DigestToken(token)
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"ada","role":"admin","user":1}`)) + "."
	flipped := []byte(token)
	flipped[0] ^= 1
	for _, value := range []string{
		hex.EncodeToString(digest), base64.StdEncoding.EncodeToString(digest), base64.RawURLEncoding.EncodeToString(digest), url.QueryEscape(string(digest)),
		token[:len(token)-1], token + "x", string(flipped), strings.ToUpper(token), strings.Repeat("A", len(token)), token + "." + token,
		claims, base64.StdEncoding.EncodeToString([]byte(`{"user":1,"role":"admin"}`)), "1", "ada", "admin", "true", "null", "{}", "' OR 1=1 --", strings.Repeat("x", 4000),
	} {
		for _, name := range []string{"semel", "__Host-semel"} {
			d.get("/api/models", "Cookie", name+"="+value).refused(401, "signed_out")
		}
		d.get("/api/models", "Authorization", "Bearer "+value).refused(401, "signed_out")
	}
	made := []string{}
	for _, name := range []string{
		"X-User", "X-User-Id", "X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Preferred-Username", "X-Remote-User", "Remote-User", "X-WebAuth-User", "X-Auth-Request-User",
		"X-Authenticated-User", "X-Webauth-Role", "X-Role", "X-Admin", "X-Semel-User", "X-Forwarded-Groups", "Remote-Groups", "X-Client-Cert", "X-Ssl-Client-Verify",
	} {
		made = append(made, name, "ada")
	}
	made = append(made, "X-Original-Url", "/api/models", "X-Rewrite-Url", "/api/models", "X-Http-Method-Override", "GET", "X-Forwarded-Prefix", "/static", "X-Forwarded-For", "127.0.0.1",
		"X-Real-Ip", "127.0.0.1", "Cookie", "role=admin; user=1; admin=true")
	d.get("/api/models", made...).refused(401, "signed_out")
	for _, path := range []string{"/admin/users", "/ops", "/api/ops/stats", "/metrics"} {
		eve.call("GET", path, nil, made...).refused(403, "forbidden_role")
	}
	page := string(eve.call("GET", "/settings", nil, made...).wants(200).body)
	if !strings.Contains(page, "eve") || strings.Contains(page, "/admin/users") {
		t.Error("the headers made eve another")
	}
}

// hostile are texts that somebody may hope are more than texts: to SQL, to its LIKE, to
// the index of the search, to JSON, to a header, to a template, to a path, to a shell.
var hostile = func() (list []string) {
	for _, s := range []string{
		"'", `"`, "''", "`", `\`, `\'`, "%", "_", "%_%", `\%`, "*", "?", "[a-z]", "^", "-", "--", ";", "/*", "*/", "(", ")", "NEAR", "AND", "OR NOT", "content:", `"a" NEAR/2 "b"`, "a*", "{a}:", "+a -b",
		"' OR '1'='1", "' OR 1=1 --", "'; DROP TABLE messages; --", "1; PRAGMA writable_schema=ON", "') UNION SELECT password FROM users --", "x' || (SELECT token FROM logins) || '",
		"$1", "?1", ":a", "@a", "%s%n%d", "{{.}}", "${7*7}", "#{7*7}", "<%= 7 %>", "../../etc/passwd", "..\\..\\x", "|id", "$(id)", "`id`", "&&id", "\t", "a\u2028b", "\u202eevil", "\ufeff", "\U000e0041",
		"null", "undefined", "true", "0", "-1", "1e999", "NaN", "[]", "{}", `{"$ne":1}`, "__proto__", "constructor", "=1+1", "@SUM(1)", "é́́́", "ﷺ", "\u0000x"[1:] + "ff",
	} {
		list = append(list, s, "a "+s+" b", strings.Repeat(s, 3))
	}
	return list
}()

// X28: no text is more than a text, in whichever field.
func TestX28NoTextIsMoreThanAText(t *testing.T) {
	t.Parallel()
	if len(hostile) < 200 {
		t.Fatalf("only %d texts", len(hostile))
	}
	d := openDoor(t)
	ada, _, eve := d.people()
	kept, id := chat.NewID(), chat.NewID()
	eve.call("POST", "/api/chat", ask(kept, id, "[[echo zyxwvut]] of eve")).wants(200)
	session := chat.NewID()
	asked := chat.NewID()
	ada.call("POST", "/api/chat", ask(session, asked, "[[echo yes]]")).wants(200)
	before := d.dump()
	fine := func(what, text string, r reply) reply {
		t.Helper()
		if r.status >= 500 || bytes.Contains(r.body, []byte("zyxwvut")) {
			t.Errorf("%s with %q: %d %.200s", what, text, r.status, r.body)
		}
		return r
	}
	var gets []route
	for _, r := range d.allRoutes(session, asked) {
		if r.method == "GET" && !strings.HasSuffix(r.pattern, "/events") && !strings.HasPrefix(r.pattern, "/lab") {
			gets = append(gets, r)
		}
	}
	names := []string{"q", "title", "state", "view", "before", "after", "limit", "format", "from", "to", "user", "model", "sessionId", "edit", "done", "actor", "object", "archived", "since", "range"}
	for i, text := range hostile {
		var title struct{ Title, SystemPrompt string }
		if r := fine("a title", text, ada.call("PATCH", "/api/conversations/"+session, doc{"title": "t" + text + "t", "systemPrompt": text})); r.status == 200 {
			ada.call("GET", "/api/conversations/"+session, nil).wants(200).into(&title)
			if title.Title != strings.Join(strings.Fields("t"+text+"t"), " ") && title.Title != "t"+text+"t" || title.SystemPrompt != text && title.SystemPrompt != strings.TrimRight(text, " \t\n") {
				t.Errorf("title and prompt %q: stored %+v", text, title)
			}
		}
		for name, r := range map[string]reply{
			"a search":    ada.call("GET", "/api/conversations?q="+url.QueryEscape(text), nil),
			"an id":       ada.call("GET", "/api/conversations/"+url.PathEscape(text), nil),
			"a request":   ada.call("POST", "/api/chat", ask(session, text, "[[echo yes]]")),
			"a session":   ada.call("POST", "/api/chat", ask(text, chat.NewID(), "[[echo yes]]")),
			"a model":     ada.call("POST", "/api/chat", ask(session, chat.NewID(), "[[echo yes]]", "model", text)),
			"a key":       ada.call("POST", "/api/chat", ask(session, "", "[[echo yes]]"), "Idempotency-Key", url.PathEscape(text)),
			"a decision":  ada.call("POST", "/api/chat/decisions/"+url.PathEscape(text), doc{"verdict": text, "reason": text, "digest": text}),
			"a refund":    ada.call("POST", "/api/ops/requests/"+asked+"/adjust?sessionId="+session, doc{"micros": 1, "reason": "r" + text}, "Idempotency-Key", chat.NewID()),
			"a setting":   ada.call("PATCH", "/api/settings", doc{"systemPrompt": text, "model": text}),
			"a file":      ada.call("POST", "/api/attachments?name="+url.QueryEscape(text), "text", "Content-Type", "application/octet-stream"),
			"a user":      ada.form("/admin/users", url.Values{"do": {text}, "user": {text}, "name": {text}, "role": {text}, "key": {text}}),
			"a login":     ada.form("/settings/account", url.Values{"do": {"out"}, "id": {text}}),
			"a connected": ada.form("/settings/models", url.Values{"do": {"default"}, "name": {text}}),
			"a renamed":   ada.form("/c/"+session+"/manage", url.Values{"do": {"rename"}, "title": {text}}),
			"a language":  ada.call("GET", "/settings", nil, "Accept-Language", url.PathEscape(text), "Cookie", "lang="+url.QueryEscape(text)),
		} {
			fine(name, text, r)
		}
		r := gets[i%len(gets)] // every page has a dozen of them
		sep := map[bool]string{true: "&", false: "?"}[strings.Contains(r.path, "?")]
		for _, name := range names {
			sep += name + "=" + url.QueryEscape(text) + "&"
		}
		fine(r.pattern, text, ada.call("GET", r.path+sep, nil))
		if i%3 == 0 {
			question := chat.NewID()
			said := ada.call("POST", "/api/chat", ask(chat.NewID(), question, "[[echo yes]] q"+text+"q"))
			if fine("a question", text, said).status == 200 {
				ada.form("/settings/account", url.Values{"do": {"key"}, "requestId": {chat.NewID()}, "scope": {"chat"}, "name": {"k" + text + "k"}})
			}
		}
	}
	ctx := context.Background()
	keys, err := d.db.Keys(ctx, ada.id)
	if err != nil || len(keys) < len(hostile)/6 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	for _, k := range keys {
		if text := strings.TrimSuffix(strings.TrimPrefix(k.Name, "k"), "k"); !slices.Contains(hostile, text) {
			t.Errorf("a key is named %q", k.Name)
		}
	}
	th, err := d.db.Thread(ctx, eve.id, kept)
	if err != nil || len(th.Messages) != 2 || th.Messages[1].Content != "zyxwvut" {
		t.Errorf("eve's is %+v, %v", th, err)
	}
	after := d.dump()
	for table := range before {
		if _, ok := after[table]; !ok {
			t.Errorf("the table %s is gone", table)
		}
	}
	if before["users"] != after["users"] {
		t.Errorf("users: %s\nwas %s", after["users"], before["users"])
	}
}

// A syncBuffer may be written to by many goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A countedLog counts what is logged.
type countedLog struct {
	slog.Handler
	n *atomic.Int64
}

func (c countedLog) Handle(ctx context.Context, r slog.Record) error {
	c.n.Add(1)
	return c.Handler.Handle(ctx, r)
}

func (c countedLog) WithAttrs(a []slog.Attr) slog.Handler {
	return countedLog{c.Handler.WithAttrs(a), c.n}
}
func (c countedLog) WithGroup(g string) slog.Handler { return countedLog{c.Handler.WithGroup(g), c.n} }

// X25: whatever clients, people and providers write, an event is one line, and no
// character of it commands a terminal.
func TestX25AnEventIsOneLineOfTheLog(t *testing.T) {
	t.Parallel()
	const forged = "level=ERROR msg=forged"
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			var out syncBuffer
			var n atomic.Int64
			o := &slog.HandlerOptions{Level: slog.LevelDebug}
			var h slog.Handler = slog.NewTextHandler(&out, o)
			if format == "json" {
				h = slog.NewJSONHandler(&out, o)
			}
			log := slog.New(countedLog{h, &n})
			d := openDoor(t, func(s *setup) { s.handlers.Log, s.engine.Log = log, log })
			for _, text := range []string{"\r\n" + forged, "\n{\"level\":\"ERROR\",\"msg\":\"forged\"}", "\x1b[2J\x1b]0;x\x07", "\" " + forged + " x=\"", "\u2028" + forged, "\x7f\b\b", "\u202eforged"} {
				quoted := url.PathEscape(text)
				for _, path := range []string{"/" + quoted, "/api/chat/status/" + quoted + "?sessionId=" + quoted, "/c/" + quoted, "/callbacks/" + quoted, "/static/" + quoted, "/api/conversations?q=" + quoted} {
					for _, method := range []string{"GET", "POST", "DELETE"} {
						d.call(method, path, nil)
					}
				}
				for _, body := range []doc{ask(text, chat.NewID(), "x"), ask(chat.NewID(), text, "x"), ask(chat.NewID(), chat.NewID(), text, "model", text)} {
					d.chat(body)
				}
				session, id := chat.NewID(), chat.NewID()
				d.tap.pour(id, 1, &llm.Error{Outcome: chat.OutcomeDefinite, Status: 400, Code: "provider_refused", Detail: "It says " + text, Err: fmt.Errorf("the line said %s", text)})
				d.chat(ask(session, id, "Pour"+text, "model", "tap")).wants(422)
				d.call("PATCH", "/api/conversations/"+session, doc{"title": "a" + text})
				d.form("/settings/models", connecting("http://127.0.0.1:1/"+text, "name", "n"+text, "upstream_model", text)...)
				d.form("/settings/models", "do", "remove", "name", text)
				d.form("/settings/models", "do", text, "name", text)
				printable := strings.Map(func(r rune) rune {
					if unicode.IsControl(r) {
						return ' ' // no client can send it
					}
					return r
				}, text)
				d.get("/", "User-Agent", printable, "X-Request-Id", printable, "Idempotency-Key", printable, "Accept-Language", printable, "Cookie", "lang="+printable)
			}
			d.people()
			for _, name := range []string{"a\r\n" + forged, "a\x1b[2J", "ada\n"} {
				d.signIn(name, "wrong", "User-Agent", "x")
			}
			d.drain()
			logged := out.String()
			lines := strings.Split(strings.TrimSuffix(logged, "\n"), "\n")
			if int64(len(lines)) != n.Load() || len(lines) < 100 {
				t.Errorf("%d lines of %d events", len(lines), n.Load())
			}
			first := regexp.MustCompile(`^time=\S+ level=(DEBUG|INFO|WARN|ERROR) msg=`)
			for _, line := range lines {
				if strings.ContainsFunc(line, func(r rune) bool { return r < 0x20 || r == 0x7f && format == "text" || r == '\u2028' }) {
					t.Errorf("a control character: %q", line)
				}
				var event struct{ Time, Level, Msg string }
				if format == "json" && (json.Unmarshal([]byte(line), &event) != nil || event.Msg == "" || event.Msg == "forged") || format == "text" && !first.MatchString(line) {
					t.Errorf("no event: %q", line)
				}
			}
			if format == "text" && strings.Contains(logged, " "+forged) && regexp.MustCompile(`(?m)^[^"]*("[^"\\]*(\\.[^"\\]*)*"[^"]*)* `+forged).MatchString(logged) {
				t.Error("a forged level stands outside of quotes")
			}
		})
	}
}
