package handlers_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
	"semel/handlers"
	"semel/static"
)

// A route is one line of the tree, with a path that leads to it.
type route struct{ method, pattern, path string }

// allRoutes walks the tree. A new route needs no line here, but a new kind of
// parameter does.
func (d *door) allRoutes(session, id string) (list []route) {
	d.t.Helper()
	file := chat.AttachmentID(db.LocalUser, "note.txt", must(chat.ReadFile("", []byte("a note"))).SHA256)
	effect := "msg_" + chat.NewID() // of nothing that there is
	run := d.handler.RunLab("short")
	err := chi.Walk(d.handler.Handler.(chi.Routes), func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		path := strings.NewReplacer("{requestID}", id, "{sessionID}", session, "{attachmentID}", file, "{decisionID}", effect, "{webhookID}", effect, "{scenario}", "short", "{runID}", run, "/static/*", static.URL("app.css")).Replace(pattern)
		if strings.ContainsAny(path, "{*") {
			d.t.Errorf("the tests know no value for %s", pattern)
		}
		if strings.Contains(pattern, "{requestID}") {
			path += "?sessionId=" + session
		}
		list = append(list, route{method, pattern, path})
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if len(list) < 18 {
		d.t.Errorf("only %d routes", len(list))
	}
	return list
}

func TestEveryAnswerHasTheHeadersThatProtectIt(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	traces := map[string]bool{}
	for _, r := range d.allRoutes(session, id) {
		for _, method := range []string{r.method, "PUT", "OPTIONS", "TRACE", "FOO"} {
			res := d.open(method, r.path, nil)
			res.Body.Close()
			checkHeaders(t, method+" "+r.path, res.Header)
			if traces[res.Header.Get("X-Trace-Id")] {
				t.Errorf("%s %s: a trace id for the second time", method, r.path)
			}
			traces[res.Header.Get("X-Trace-Id")] = true
		}
	}
}

func TestWhatIsNotServedIsSaidInOneForm(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for _, path := range []string{"/nothing", "/api", "/api/", "/api/nothing", "/api/chat/", "/api/chat/status/", "//api/models", "/api/models/", "/%2e%2e/etc/passwd", "/API/models"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if p := d.call(method, path, nil).refused(404, "not_found"); p.Retry != chat.RetryNever {
				t.Errorf("%+v", p)
			}
		}
	}
	for what, allow := range map[string]string{
		"GET /api/chat": "POST", "PUT /api/chat": "POST", "POST /api/models": "GET, HEAD", "FOO /api/models": "GET, HEAD", "OPTIONS /healthz": "GET, HEAD",
		"POST /api/conversations/abcdefgh": "GET, HEAD, PATCH, DELETE", "POST " + static.URL("app.css"): "GET, HEAD", "GET /api/chat/stop/abcdefgh": "POST",
	} {
		method, path, _ := strings.Cut(what, " ")
		r := d.call(method, path, nil)
		r.refused(405, "method_not_allowed")
		if got := strings.Join(r.header.Values("Allow"), ", "); got != allow {
			t.Errorf("%s: Allow %q, want %q", what, got, allow)
		}
	}
}

func TestHEADIsGETWithoutABody(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	d.upload("note.txt", "a note")
	running := chat.NewID()
	d.tapped(session, running)
	paths := []string{streamPath(session, running)} // it does not wait for the end
	for _, r := range d.allRoutes(session, id) {
		if r.method == "GET" {
			paths = append(paths, r.path)
		}
	}
	for _, path := range paths {
		if path == "/login" || path == "/setup" { // without accounts they lead elsewhere
			d.call("HEAD", path, nil).wants(303)
			continue
		}
		got := d.call("HEAD", path, nil).wants(200)
		res := d.open("GET", path, nil)
		res.Body.Close()
		if len(got.body) != 0 || got.header.Get("Content-Type") != res.Header.Get("Content-Type") {
			t.Errorf("HEAD %s: %q, %d bytes", path, got.header.Get("Content-Type"), len(got.body))
		}
	}
}

func TestOnlyNamesOfThisMachineAreServed(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(s *setup) { s.handlers.Hosts = []string{"chat.example"} })
	for _, host := range []string{
		"localhost", "localhost:8787", "LocalHost:80", "localhost.", "localhost.:8787", "127.0.0.1", "127.0.0.1:1", "127.1.2.3", "127.0.0.1.",
		"[::1]", "[::1]:8787", "[0:0:0:0:0:0:0:1]:8787", "[::ffff:127.0.0.1]", "chat.example", "chat.example:8787", "CHAT.example.",
	} {
		if r := d.get("/api/models", "Host", host); r.status != 200 {
			t.Errorf("%s: %d", host, r.status)
		}
	}
	for _, host := range []string{
		"evil.example", "evil.example:8787", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1.nip.io", "evil-localhost", "xlocalhost",
		"localhost.localdomain", "0.0.0.0", "0.0.0.0:8787", "[::]", "192.168.1.2", "10.0.0.1", "169.254.169.254", "[fe80::1]", "[::ffff:10.0.0.1]",
		"2130706433", "0x7f.1", "127.1", "017700000001", "localhost..", "chat.example.evil", "sub.chat.example", "localhost:8787:1", "127.0.0.1%2eevil",
	} {
		for _, path := range []string{"/", "/api/models", "/healthz", "/nothing", static.URL("app.css")} {
			r := d.get(path, "Host", host)
			if p := r.refused(403, "forbidden_host"); p.Retry != chat.RetryNever {
				t.Errorf("%+v", p)
			}
		}
		d.chat(ask(chat.NewID(), chat.NewID(), "hello"), "Host", host).refused(403, "forbidden_host")
	}
	if n := d.demo.Calls(); n != 0 {
		t.Errorf("%d calls of the model", n)
	}
}

func TestX19WhatCameThroughAProxyIsRefused(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "x-real-ip"} {
		for _, value := range []string{"127.0.0.1", "for=127.0.0.1", " "} {
			for _, path := range []string{"/", "/api/models", "/readyz"} {
				if p := d.get(path, header, value).refused(403, "forwarded_refused"); !strings.Contains(strings.ToLower(p.Detail), strings.ToLower(header)) {
					t.Errorf("%+v", p)
				}
			}
		}
	}
}

func TestX5AnotherSiteCanMakeNoChange(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	origin := d.url
	host := strings.TrimPrefix(origin, "http://")
	port := host[strings.LastIndex(host, ":"):]
	before := d.dump()
	for name, header := range map[string][]string{
		"cross-site":                      {"Sec-Fetch-Site", "cross-site"},
		"cross-site by a form":            {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Origin", "https://evil.example"},
		"same-site, another port":         {"Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:1"},
		"same-site with a false Origin":   {"Sec-Fetch-Site", "same-site", "Origin", origin},
		"cross-site with a false Origin":  {"Sec-Fetch-Site", "cross-site", "Origin", origin},
		"an old browser":                  {"Origin", "https://evil.example"},
		"Origin null":                     {"Origin", "null"},
		"Origin null, cross-site":         {"Origin", "null", "Sec-Fetch-Site", "cross-site"},
		"another port":                    {"Origin", "http://127.0.0.1:1"},
		"no port":                         {"Origin", "http://127.0.0.1"},
		"https without the port":          {"Origin", "https://127.0.0.1"},
		"a name that begins alike":        {"Origin", "http://" + host + ".evil.example"},
		"a name that ends alike":          {"Origin", "http://evil.example/" + host},
		"user information":                {"Origin", "http://" + host + "@evil.example"},
		"another name of the machine":     {"Origin", "http://localhost" + port},
		"an origin that is none":          {"Origin", "::"},
		"a value that nobody knows":       {"Sec-Fetch-Site", "same-planet"},
		"an extension":                    {"Origin", "chrome-extension://abcdefghijklmnop"},
		"a file":                          {"Origin", "file://"},
		"https with another site's claim": {"Origin", "https://" + host, "Sec-Fetch-Site", "cross-site"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range d.allRoutes(session, id) {
				if r.method == "GET" || r.method == "HEAD" || strings.HasPrefix(r.pattern, "/callbacks/") {
					continue // a callback is believed by its signature, wherever it comes from
				}
				d.call(r.method, r.path, ask(chat.NewID(), chat.NewID(), "hello"), header...).refused(403, "forbidden_origin")
			}
		})
	}
	if after := d.dump(); !maps.Equal(before, after) {
		t.Error("the database has changed")
	}
	for name, header := range map[string][]string{
		"a program":     nil,
		"our own page":  {"Sec-Fetch-Site", "same-origin", "Origin", origin},
		"an old page":   {"Origin", origin},
		"an address":    {"Sec-Fetch-Site", "none"},
		"our own https": {"Origin", "https://" + host}, // the same host and port is the same server
	} {
		t.Run(name, func(t *testing.T) {
			d.chat(ask(session, id, "[[echo yes]]"), header...).wants(200)
		})
	}
}

func TestReadingChangesNothing(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	failed := chat.NewID()
	d.tap.pour(failed, 1, errBusyForLong) // a repeat would restart it: a look must not
	d.chat(ask(session, failed, "Pour.", "model", "tap")).wants(503)
	d.receipt(session, id) // arrivals so far are stored
	before := d.dump()
	for _, which := range []string{id, failed, chat.NewID()} {
		for _, r := range d.allRoutes(session, which) {
			if r.method != "GET" {
				continue
			}
			for _, method := range []string{"GET", "HEAD"} {
				for _, query := range []string{"", "requestId=" + chat.NewID() + "&content=hello&title=New"} {
					path := r.path
					if query != "" {
						path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + query
					}
					res := d.open(method, path, nil, "X-Request-Id", which, "Idempotency-Key", which, "X-HTTP-Method-Override", "DELETE")
					res.Body.Close()
				}
			}
		}
	}
	d.receipt(session, id)
	after := d.dump()
	for table, rows := range before {
		if after[table] != rows {
			t.Errorf("table %s has changed:\n%s\nwas\n%s", table, after[table], rows)
		}
	}
	if d.demo.Calls() != 1 || d.tap.asked() != 1 {
		t.Errorf("%d and %d calls of the models", d.demo.Calls(), d.tap.asked())
	}
}

// dump is all there is in the database, by table, but for the number of the last
// transaction: a readiness probe proves that the file can be written.
func (d *door) dump() map[string]string {
	d.t.Helper()
	// What is stored behind the answers, first.
	if err := d.engine.FlushArrivals(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	for more := true; more; {
		var err error
		if more, err = d.db.IndexSlice(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
	}
	c, err := sql.Open("sqlite", "file:"+d.file+"?mode=ro")
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	strings := func(query string) (list []string) {
		rows, err := c.QueryContext(d.t.Context(), query)
		if err != nil {
			d.t.Fatal(err)
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			d.t.Fatal(err)
		}
		for rows.Next() {
			values := make([]any, len(columns))
			into := make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				d.t.Fatal(err)
			}
			if len(values) == 1 {
				list = append(list, fmt.Sprint(values[0]))
			} else {
				list = append(list, fmt.Sprintf("%q", values))
			}
		}
		if err := rows.Err(); err != nil {
			d.t.Fatal(err)
		}
		return list
	}
	all := map[string]string{}
	for _, table := range strings("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
		query := "SELECT * FROM " + table
		if table == "instance" {
			query = "SELECT epoch, purge_horizon, pruned_id FROM instance"
		}
		rows := strings(query)
		slices.Sort(rows)
		all[table] = fmt.Sprint(rows)
	}
	if len(all) < 8 {
		d.t.Fatalf("only %d tables", len(all))
	}
	return all
}

func TestWhatClientsSendDoesNotReachTheHeaders(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	for _, path := range []string{
		"/api/chat/status/" + id + "%0d%0aSet-Cookie:x?sessionId=" + session,
		"/api/chat/status/" + id + "?sessionId=" + session + "%0d%0aSet-Cookie:x",
		"/api/conversations/" + session + "%0d%0aSet-Cookie:x/export",
		"/%0d%0aSet-Cookie:x", "/c/%0d%0aSet-Cookie:x",
	} {
		r := d.get(path)
		if r.status < 400 || r.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", path, r.status, r.header)
		}
	}
}

func TestAPanicIsAnAnswerAndHasALine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := handlers.New(handlers.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	w := httptest.NewRecorder()
	req := httptest.NewRequest("POST", "/x?token=secret", strings.NewReader("password=secret"))
	req.Header.Set("Cookie", "semel=secret")
	req.Header.Set("Authorization", "Bearer secret")
	s.Around(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a canary") })).ServeHTTP(w, req)
	r := reply{t, w.Code, w.Header(), w.Body.Bytes()}
	r.wellFormed("a panic")
	if p := r.refused(500, "internal"); strings.Contains(string(r.body), "canary") || p.Retry != chat.RetrySameID {
		t.Errorf("%+v", p)
	}
	if strings.Contains(log.String()+string(r.body), "secret") {
		t.Errorf("a panic shows what came with the request: %s", log.String())
	}
	if trace := w.Header().Get("X-Trace-Id"); !strings.Contains(log.String(), "canary") || !strings.Contains(log.String(), trace) {
		t.Errorf("log %q", log.String())
	}
	// After the first byte the only error left is to hang up.
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("recovered %v", v)
		}
	}()
	s.Around(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		panic("late")
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/x", nil))
	t.Error("it went on")
}

func TestAnUnknownFileIsAProblemLikeEveryOther(t *testing.T) {
	d := openDoor(t)
	d.get("/static/another-version/app.css").refused(404, "not_found")
}
