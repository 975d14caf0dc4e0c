package handlers_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/handlers"
	"semel/password"
	"semel/static"
)

const (
	goodPassword  = "correct horse battery"
	otherPassword = "staple horse battery"
)

// goodHash is that of goodPassword, made once.
var goodHash = sync.OnceValue(func() string { return password.Hash(goodPassword) })

// An actor is somebody with a browser, or a program with a key. Nil is nobody.
type actor struct {
	d      *door
	id     int64
	name   string
	header []string
}

// people makes accounts past the pages: ada, who is the first and has what the local
// user had, ben, an operator, and eve, a member.
func (d *door) people() (ada, ben, eve *actor) {
	d.t.Helper()
	return d.account("ada", chat.RoleAdmin), d.account("ben", chat.RoleOperator), d.account("eve", chat.RoleMember)
}

func (d *door) account(name string, role chat.Role) *actor {
	d.t.Helper()
	id, err := d.db.AddAccount(context.Background(), db.NewAccount{Name: name, Role: role, Password: goodHash(), Actor: "test"})
	if err != nil {
		d.t.Fatal(err)
	}
	a := &actor{d: d, id: id, name: name}
	a.header = []string{"Cookie", "semel=" + a.token("test")}
	return a
}

// token starts a login past the page.
func (a *actor) token(agent string) string {
	a.d.t.Helper()
	token := chat.NewToken()
	if err := a.d.db.StartLogin(context.Background(), db.NewLogin{Digest: chat.DigestToken(token), UserID: a.id, Password: goodHash(), Agent: agent, Lasts: 168 * time.Hour}); err != nil {
		a.d.t.Fatal(err)
	}
	return token
}

// key makes a key of a.
func (a *actor) key(scope chat.Scope) *actor {
	a.d.t.Helper()
	secret, digest := chat.NewKey()
	if _, err := a.d.db.AddKey(context.Background(), db.Key{UserID: a.id, Name: "test", Scope: scope, Digest: digest}, "test"); err != nil {
		a.d.t.Fatal(err)
	}
	return &actor{d: a.d, id: a.id, name: a.name + " by a key", header: []string{"Authorization", "Bearer " + secret}}
}

func (a *actor) call(method, path string, body any, header ...string) reply {
	a.d.t.Helper()
	return a.d.call(method, path, body, append(slices.Clone(a.header), header...)...)
}

// form posts a form as a browser without scripts does.
func (d *door) postPage(path string, values url.Values, header ...string) reply {
	d.t.Helper()
	return d.call("POST", path, values.Encode(), append([]string{"Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html"}, header...)...)
}

func (a *actor) form(path string, values url.Values, header ...string) reply {
	a.d.t.Helper()
	return a.d.postPage(path, values, append(slices.Clone(a.header), header...)...)
}

// signIn signs in by the page and returns the cookie, "" where that was refused.
func (d *door) signIn(name, password string, header ...string) (reply, string) {
	d.t.Helper()
	r := d.postPage("/login", url.Values{"name": {name}, "password": {password}, "to": {"/settings"}}, header...)
	for _, c := range (&http.Response{Header: r.header}).Cookies() {
		if strings.HasSuffix(c.Name, "semel") && c.Value != "" {
			return r, c.Name + "=" + c.Value
		}
	}
	return r, ""
}

func TestEveryRouteHasItsRight(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	known := handlers.Rights()
	for _, r := range d.allRoutes(chat.NewID(), chat.NewID()) {
		name := r.method + " " + r.pattern
		if !known[name] {
			t.Errorf("%s: handlers/rights.go has no line for this route: who may use it, and with what key?", name)
		}
		delete(known, name)
	}
	for name := range known {
		t.Errorf("%s: handlers/rights.go has a line for a route that there is not", name)
	}
}

// X9: each route for each of those who may not use it. What is another's looks exactly
// like what there is not.
func TestX9ForeignIsUnknownByteForByte(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]] mine")
	d.upload("note.txt", "a note")
	ada, ben, eve := d.people()
	nobody := &actor{d: d, name: "nobody"}
	stranger := &actor{d: d, name: "a stranger", header: []string{"Cookie", "semel=" + chat.NewToken()}}
	forged := &actor{d: d, name: "a forger", header: []string{"Authorization", "Bearer " + chat.KeyPrefix + chat.NewToken()}}
	trace := regexp.MustCompile(`[0-9A-HJKMNP-TV-Z]{26}|data-server-time="\d+"|"serverTime":"[^"]*"|msg_\S{26}|\b\d+ ms\b`)
	before := d.dump()
	for _, r := range d.allRoutes(session, id) {
		name := r.method + " " + r.pattern
		if strings.HasPrefix(r.pattern, "/callbacks/") || strings.HasPrefix(r.pattern, "/static/") {
			continue
		}
		need, scope := handlers.RightOf(name)
		// Forms and bodies that would do something, for whoever may.
		body := func() any {
			if strings.HasPrefix(r.pattern, "/api/") {
				return map[string]any{"sessionId": session, "requestId": id, "attempt": 1, "verdict": "approve"}
			}
			return ""
		}
		for _, who := range []*actor{nobody, stranger, forged} {
			got := who.call(r.method, r.path, body())
			if need == "" {
				if got.status >= 500 {
					t.Errorf("%s for %s: %d", name, who.name, got.status)
				}
				continue
			}
			got.refused(401, "signed_out")
			if bytes.Contains(got.body, []byte(id)) || bytes.Contains(got.body, []byte("mine")) {
				t.Errorf("%s tells %s: %s", name, who.name, got.body)
			}
		}
		for _, who := range []*actor{eve, ben, eve.key(chat.ScopeChat), ben.key(chat.ScopeOps), ben.key(chat.ScopeChat)} {
			role := map[int64]chat.Role{eve.id: chat.RoleMember, ben.id: chat.RoleOperator}[who.id]
			isKey := who.header[0] == "Authorization"
			holds := chat.ScopeChat
			if isKey && who.id == ben.id {
				k, err := d.db.Key(t.Context(), chat.DigestToken(strings.TrimPrefix(who.header[1], "Bearer ")))
				if err != nil {
					t.Fatal(err)
				}
				holds = k.Scope
			}
			switch {
			case need == "":
			case isKey && holds != scope:
				who.call(r.method, r.path, body()).refused(403, "forbidden_scope")
				continue
			case !role.Has(need):
				who.call(r.method, r.path, body()).refused(403, "forbidden_role")
				continue
			}
			if !strings.ContainsAny(r.pattern, "{") || need == chat.RoleOperator {
				continue // of nobody in particular, or of all
			}
			// The same for an id that there is not.
			elsewhere := strings.NewReplacer(session, chat.NewID(), id, chat.NewID()).Replace(r.path)
			if strings.Contains(r.pattern, "{attachmentID}") {
				elsewhere = "/api/attachments/" + chat.AttachmentID(who.id, "none.txt", strings.Repeat("00", 32))
			}
			if r.pattern == "/c/{sessionID}" && r.method == "POST" {
				continue // a new conversation of one's own begins here
			}
			foreign, unknown := who.call(r.method, r.path, body()), who.call(r.method, elsewhere, body())
			if r.method+r.pattern == "GET/api/conversations/export" {
				continue
			}
			if foreign.status != unknown.status || !bytes.Equal(trace.ReplaceAll(foreign.body, nil), trace.ReplaceAll(unknown.body, nil)) {
				t.Errorf("%s for %s: %d %.300s\nof what there is not: %d %.300s", name, who.name, foreign.status, foreign.body, unknown.status, unknown.body)
			}
			if foreign.status < 400 && foreign.status != 303 {
				t.Errorf("%s for %s: %d %.300s", name, who.name, foreign.status, foreign.body)
			}
		}
	}
	after := d.dump()
	for _, table := range []string{"requests", "messages", "conversations", "attachments", "models", "users", "audit", "outbox", "verdicts"} {
		if table == "audit" {
			continue // the keys of this test are in it
		}
		if before[table] != after[table] {
			t.Errorf("%s has changed:\n%s\nwas\n%s", table, after[table], before[table])
		}
	}
	// And their own is theirs, under the same ids.
	if got := ada.call("GET", "/api/chat/status/"+id+"?sessionId="+session, nil); got.status != 200 {
		t.Errorf("the owner gets %d", got.status)
	}
	eve.call("POST", "/api/chat", ask(session, id, "[[echo another]]")).wants(200)
	if got := eve.call("GET", "/api/conversations/"+session, nil).wants(200); bytes.Contains(got.body, []byte("mine")) {
		t.Errorf("%s", got.body)
	}
}

func TestLoginLeadsBackAndTheTokenIsNewEachTime(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.people()
	r := d.call("GET", "/c/abcdefgh?at=2", nil, "Accept", "text/html")
	if r.status != 303 || r.header.Get("Location") != "/login?to="+url.QueryEscape("/c/abcdefgh?at=2") {
		t.Errorf("%d %s", r.status, r.header.Get("Location"))
	}
	page := d.call("GET", r.header.Get("Location"), nil, "Accept", "text/html").wants(200)
	if !bytes.Contains(page.body, []byte(`value="/c/abcdefgh?at=2"`)) || bytes.Contains(page.body, []byte("<script")) {
		t.Errorf("%s", page.body)
	}
	r, cookie := d.signIn("ADA ", goodPassword)
	if r.status != 303 || r.header.Get("Location") != "/settings" || cookie == "" {
		t.Fatalf("%d %v", r.status, r.header)
	}
	set := r.header.Get("Set-Cookie")
	for _, want := range []string{"semel=", "Path=/", "HttpOnly", "SameSite=Lax", "Max-Age=604800"} {
		if !strings.Contains(set, want) {
			t.Errorf("%s lacks %s", set, want)
		}
	}
	if strings.Contains(set, "Secure") || strings.Contains(set, "__Host-") {
		t.Errorf("on plain http: %s", set)
	}
	_, again := d.signIn("ada", goodPassword, "Cookie", cookie)
	if again == "" || again == cookie {
		t.Errorf("the second token is %q", again)
	}
	d.get("/api/models", "Cookie", again).wants(200)
	d.get("/api/models", "Cookie", cookie).refused(401, "signed_out")
	if r := d.postPage("/logout", nil, "Cookie", again); r.status != 303 || !strings.Contains(r.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("%d %v", r.status, r.header)
	}
	d.get("/api/models", "Cookie", again).refused(401, "signed_out")
	for _, to := range []string{"//evil.example", "https://evil.example/", `/\evil.example`, "javascript:alert(1)"} {
		r := d.postPage("/login", url.Values{"name": {"ada"}, "password": {goodPassword}, "to": {to}})
		if r.status != 303 || r.header.Get("Location") != "/" {
			t.Errorf("%s leads to %s", to, r.header.Get("Location"))
		}
	}
}

func TestAFormThatCameTooLateIsGivenBack(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.people()
	session := chat.NewID()
	r := d.postPage("/c/"+session, url.Values{"requestId": {chat.NewID()}, "content": {"what I <wrote> for an hour"}})
	if r.status != 401 || !bytes.Contains(r.body, []byte("what I &lt;wrote&gt; for an hour")) || !bytes.Contains(r.body, []byte(`value="/c/`+session+`"`)) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// X15, X16, X17: one answer for all that is wrong, a limit by account and place that
// outlives the process, and that knows no way around.
func TestX16PasswordsAreTriedAFewTimes(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	_, _, eve := d.people()
	if err := d.db.Disable(t.Context(), eve.id, "test"); err != nil {
		t.Fatal(err)
	}
	// Each fails alike, a name that there is not, one that cannot be, one that is disabled.
	var first []byte
	for name, pass := range map[string]string{"ada": "wrong", "nobody": goodPassword, "eve": goodPassword, "a/b": "x", "": "", "ben": strings.Repeat("x", 5000)} {
		r, cookie := d.signIn(name, pass)
		body := bytes.ReplaceAll(r.body, []byte(`name="name" value="`+name+`"`), []byte(`name="name" value=""`))
		body = regexp.MustCompile(`data-server-time="\d+"| autofocus`).ReplaceAll(body, nil)
		if r.status != 401 || cookie != "" {
			t.Errorf("%q: %d", name, r.status)
		}
		if first == nil {
			first = body
		}
		if !bytes.Equal(body, first) {
			t.Errorf("%q: %s\nand another: %s", name, body, first)
		}
	}
	n := 0
	for range 30 {
		r, _ := d.signIn("ada", "wrong", "X-Forwarded-For", fmt.Sprint("10.0.0.", n), "X-Real-IP", "10.1.1.1", "Forwarded", "for=10.2.2.2")
		if r.status == 429 {
			if r.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			break
		}
		n++
	}
	if n > 10 {
		t.Errorf("%d tries were let through", n)
	}
	if r, cookie := d.signIn("ada", goodPassword); r.status != 429 || cookie != "" {
		t.Errorf("the right one after too many: %d", r.status)
	}
	if r, cookie := d.signIn("ben", goodPassword); r.status != 303 || cookie == "" {
		t.Errorf("another's: %d", r.status)
	}
	tries := 0
	for ; tries < 12; tries++ { // the right one of a disabled account is wrong, and counts
		if r, _ := d.signIn("eve", goodPassword); r.status == 429 {
			break
		}
	}
	if tries > 9 { // and once above
		t.Errorf("%d tries of a disabled account were let through", tries)
	}
	next := openDoor(t, func(s *setup) { s.file = d.file; d.drain(); d.db.Close() })
	if r, _ := next.signIn("ada", goodPassword); r.status != 429 {
		t.Errorf("after a restart: %d", r.status)
	}
}

// X11 to X14: whatever ends a login or a key cuts what is open by it.
func TestX13OpenStreamsAreCut(t *testing.T) {
	for what, change := range map[string]func(d *door, ada, eve *actor) error{
		"signed out": func(_ *door, _, eve *actor) error { eve.form("/logout", nil).wants(303); return nil },
		"another role": func(d *door, ada, eve *actor) error {
			ada.form("/admin/users", url.Values{"do": {"role"}, "user": {fmt.Sprint(eve.id)}, "role": {"operator"}}).wants(303)
			return nil
		},
		"disabled": func(d *door, ada, eve *actor) error {
			ada.form("/admin/users", url.Values{"do": {"disable"}, "user": {fmt.Sprint(eve.id)}}).wants(303)
			return nil
		},
		"another password": func(d *door, ada, eve *actor) error {
			ada.form("/admin/users", url.Values{"do": {"password"}, "user": {fmt.Sprint(eve.id)}, "password": {otherPassword}}).wants(303)
			return nil
		},
		"disabled by a command": func(d *door, _, eve *actor) error { return d.db.Disable(context.Background(), eve.id, "console") },
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *door) {
				ada, _, eve := d.people()
				session, id := chat.NewID(), chat.NewID()
				eve.call("POST", "/api/chat", ask(session, id, "Pour.", "model", "tap"), "Prefer", "wait=0").wants(202)
				var ended sync.WaitGroup
				for _, path := range []string{"/api/events", "/api/chat/stream/" + id + "?sessionId=" + session} {
					res := d.open("GET", path, nil, append(slices.Clone(eve.header), "Accept", "text/event-stream")...)
					if res.StatusCode != 200 {
						t.Fatal(res.Status)
					}
					ended.Go(func() { _, _ = io.Copy(io.Discard, res.Body); res.Body.Close() })
				}
				kept := d.open("GET", "/api/events", nil, ada.header...)
				synctest.Wait()
				started := time.Now()
				if err := change(d, ada, eve); err != nil {
					t.Fatal(err)
				}
				ended.Wait()
				beside := what == "disabled by a command" // which the server finds out by looking
				if took := time.Since(started); took > 5*time.Second || took > 0 && !beside {
					t.Errorf("cut after %v", took)
				}
				eve.call("GET", "/api/models", nil).refused(401, "signed_out")
				if _, err := io.ReadAtLeast(kept.Body, make([]byte, 64), 10); err != nil {
					t.Errorf("another's stream: %v", err)
				}
				kept.Body.Close()
				if strings.HasPrefix(what, "disabled") {
					if beside {
						time.Sleep(time.Minute) // the reaper comes round
					}
					synctest.Wait()
					r, err := d.db.Record(context.Background(), chat.Key{UserID: eve.id, SessionID: session, RequestID: id})
					if err != nil || r.State != chat.StateFailed || r.Error.Code != "stopped" {
						t.Errorf("its run is %s, %+v, %v", r.State, r.Error, err)
					}
				} else {
					d.tap.pour(id, 1, "x", chat.FinishStop)
				}
			})
		})
	}
}

func TestAWaitingAnswerIsCutWithAProblem(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		_, _, eve := d.people()
		id := chat.NewID()
		got := make(chan reply, 1)
		go func() { got <- eve.call("POST", "/api/chat", ask(chat.NewID(), id, "Pour.", "model", "tap")) }()
		synctest.Wait()
		if err := d.db.EndLogins(context.Background(), eve.id, nil); err != nil {
			t.Fatal(err)
		}
		if r := <-got; r.status != 401 {
			t.Errorf("%d %s", r.status, r.body)
		}
		d.tap.pour(id, 1, "x", chat.FinishStop)
	})
}

func TestOwnAccount(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	_, ben, eve := d.people()
	elsewhere := "semel=" + eve.token("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
	page := eve.call("GET", "/settings", nil, "Accept", "text/html").wants(200)
	for _, want := range []string{"Firefox on Linux", `id="account"`, "Sign out everywhere else"} {
		if !bytes.Contains(page.body, []byte(want)) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if bytes.Contains(page.body, []byte(`id="connect"`)) || bytes.Contains(page.body, []byte("/admin/users")) || bytes.Contains(page.body, []byte(`href="/ops"`)) {
		t.Error("a member sees what is for others")
	}
	for _, do := range []string{"save", "test", "remove"} {
		eve.call("POST", "/settings/models", "do="+do+"&name=demo", "Content-Type", "application/x-www-form-urlencoded").wants(403)
	}
	eve.form("/settings/models", url.Values{"do": {"default"}, "name": {"demo"}}).wants(303)

	change := func(current, pass, again string) reply {
		return eve.form("/settings/account", url.Values{"do": {"password"}, "current": {current}, "password": {pass}, "again": {again}})
	}
	change("wrong", otherPassword, otherPassword).wants(401)
	change(goodPassword, otherPassword, goodPassword).wants(422)
	change(goodPassword, "short", "short").wants(422)
	d.get("/api/models", "Cookie", elsewhere).wants(200)
	r := change(goodPassword, otherPassword, otherPassword).wants(303)
	if d.get("/api/models", "Cookie", elsewhere).status != 401 || eve.call("GET", "/api/models", nil).status != 401 {
		t.Error("another browser, or the old token, is still let in")
	}
	eve.header[1], _, _ = strings.Cut(r.header.Get("Set-Cookie"), ";")
	eve.call("GET", "/api/models", nil).wants(200)
	if _, cookie := d.signIn("eve", goodPassword); cookie != "" {
		t.Error("the old password is let in")
	}
	_, third := d.signIn("eve", otherPassword)
	eve.form("/settings/account", url.Values{"do": {"everywhere"}}).wants(303)
	d.get("/api/models", "Cookie", third).refused(401, "signed_out")
	eve.call("GET", "/api/models", nil).wants(200)

	eve.form("/settings/account", url.Values{"do": {"key"}, "requestId": {chat.NewID()}, "name": {"x"}, "scope": {"ops"}}).wants(403)
	page = eve.form("/settings/account", url.Values{"do": {"key"}, "requestId": {chat.NewID()}, "name": {"my script"}, "scope": {"chat"}}).wants(200)
	key := regexp.MustCompile(`semel_[\w-]{43}`).FindString(string(page.body))
	d.get("/api/models", "Authorization", "Bearer "+key).wants(200)
	d.get("/api/models", "Authorization", "bearer  "+key).wants(200)
	d.get("/api/models?key="+key).refused(401, "signed_out")
	d.get("/api/models", "Authorization", "Bearer "+key, "Cookie", eve.header[1]).wants(200)
	d.get("/api/models", "Authorization", "Bearer wrong", "Cookie", eve.header[1]).refused(401, "signed_out")
	d.get("/settings", "Authorization", "Bearer "+key).refused(403, "forbidden_scope")
	if list := eve.call("GET", "/settings", nil, "Accept", "text/html"); bytes.Contains(list.body, []byte(key)) || !bytes.Contains(list.body, []byte("my script")) {
		t.Error("the key is shown again, or not listed")
	}
	keys, err := d.db.Keys(t.Context(), eve.id)
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	revoke := url.Values{"do": {"revoke"}, "id": {fmt.Sprint(keys[0].ID)}}
	ben.form("/settings/account", revoke).wants(404)
	d.get("/api/models", "Authorization", "Bearer "+key).wants(200)
	eve.form("/settings/account", revoke).wants(303)
	d.get("/api/models", "Authorization", "Bearer "+key).refused(401, "signed_out")
}

func TestAnAdminLooksAfterPeople(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	ada, _, _ := d.people()
	do := func(values ...string) reply {
		v := url.Values{}
		for i := 0; i < len(values); i += 2 {
			v.Set(values[i], values[i+1])
		}
		return ada.form("/admin/users", v)
	}
	do("do", "add", "name", "Zoë", "password", goodPassword, "role", "member").wants(303)
	if r, cookie := d.signIn("zoë", goodPassword); r.status != 303 || cookie == "" {
		t.Errorf("%d", r.status)
	}
	for what, r := range map[string]reply{
		"a name for the second time": do("do", "add", "name", "ZOË", "password", "another "+goodPassword, "role", "member"),
		"a name that is none":        do("do", "add", "name", "a b", "password", goodPassword, "role", "member"),
		"a short password":           do("do", "add", "name", "kim", "password", "short", "role", "member"),
		"the last admin":             do("do", "disable", "user", fmt.Sprint(ada.id)),
	} {
		if r.status != 422 || !bytes.Contains(r.body, []byte(`role="alert"`)) {
			t.Errorf("%s: %d", what, r.status)
		}
	}
	do("do", "add", "name", "kim", "password", goodPassword, "role", "root").wants(400)
	do("do", "role", "user", "77", "role", "admin").wants(404)
	do("do", "role", "user", "2", "role", "root").wants(400)
	do("do", "nothing", "user", "2").wants(400)
	page := ada.call("GET", "/admin/users", nil, "Accept", "text/html").wants(200)
	for _, want := range []string{`data-user="ada"`, `data-user="zoë"`, "4 accounts"} {
		if !bytes.Contains(page.body, []byte(want)) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if bytes.Contains(page.body, []byte("argon2")) {
		t.Error("a hash is on the page")
	}
	if audit := d.dump()["audit"]; strings.Count(audit, "user:1") < 1 || !strings.Contains(audit, "add account") {
		t.Errorf("audit: %s", audit)
	}
}

// On loopback the first account is made on the page for people, and has what the local
// user had; from then on everybody signs in.
func TestTheLocalUserBecomesTheFirstAdmin(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id, _ := d.answered("[[echo yes]] mine")
		feed := d.open("GET", "/api/events", nil)
		page := d.call("GET", "/admin/users", nil, "Accept", "text/html").wants(200)
		if !bytes.Contains(page.body, []byte("The first account")) {
			t.Errorf("%s", page.body)
		}
		r := d.postPage("/admin/users", url.Values{"do": {"add"}, "name": {"ada"}, "password": {goodPassword}}).wants(303)
		cookie, _, _ := strings.Cut(r.header.Get("Set-Cookie"), ";")
		if _, err := io.Copy(io.Discard, feed.Body); err != nil {
			t.Logf("the feed of before: %v", err)
		}
		d.get("/api/conversations").refused(401, "signed_out")
		d.get("/api/chat/status/"+id+"?sessionId="+session, "Cookie", cookie).wants(200)
		d.postPage("/admin/users", url.Values{"do": {"add"}, "name": {"eve"}, "password": {goodPassword}, "role": {"admin"}}).wants(401)
	})
}

// X34, X47: before there is an account, a server that others reach does nothing but make
// one, for whoever has the link, once.
func TestX47TheLinkMakesOneAccount(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(s *setup) { s.handlers.Public = true })
	for _, r := range d.allRoutes(chat.NewID(), chat.NewID()) {
		switch r.pattern {
		case "/callbacks/{webhookID}", "/healthz", "/readyz", "/static/*", "/setup", "/language":
			continue
		}
		d.call(r.method, r.path, "{}").refused(403, "setup_needed")
	}
	d.get("/nothing").refused(403, "setup_needed")
	if r := d.postPage("/language", url.Values{"lang": {"zh-CN"}, "to": {"/setup"}}); r.status != 303 || !strings.Contains(r.header.Get("Set-Cookie"), "lang=zh-CN") {
		t.Errorf("%d %v", r.status, r.header)
	}
	if page := d.get("/", "Accept", "text/html", "Host", "chat.example"); page.status != 403 || !bytes.Contains(page.body, []byte("console")) {
		t.Errorf("%d %s", page.status, page.body)
	}
	d.get("/healthz", "Host", "chat.example").wants(200)
	d.get(static.URL("app.css")).wants(200)
	good := url.Values{"name": {"ada"}, "password": {goodPassword}, "again": {goodPassword}}
	with := func(token, name string) url.Values {
		v := maps.Clone(good)
		v.Set("token", token)
		v.Set("name", name)
		return v
	}
	d.postPage("/setup", with("", "ada")).wants(403)
	old := d.handler.Setup()
	token := d.handler.Setup()
	d.postPage("/setup", with(old, "ada")).wants(403)
	d.postPage("/setup", with(token, "a b")).wants(422) // what is wrong does not use it up
	if page := d.get("/setup?token="+token, "Accept", "text/html").wants(200); !bytes.Contains(page.body, []byte(token)) {
		t.Errorf("%s", page.body)
	}
	var made sync.Map
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			r := d.postPage("/setup", with(token, fmt.Sprint("admin", i)))
			if r.status == 303 && r.header.Get("Location") == "/" {
				made.Store(i, r.header.Get("Set-Cookie"))
			}
		})
	}
	wg.Wait()
	n := 0
	made.Range(func(_, cookie any) bool {
		n++
		name, _, _ := strings.Cut(cookie.(string), ";")
		d.get("/api/models", "Cookie", name).wants(200)
		return true
	})
	if list, err := d.db.Accounts(t.Context(), time.Hour); n != 1 || err != nil || len(list) != 1 {
		t.Errorf("%d were made, %+v, %v", n, list, err)
	}
	d.get("/api/models").refused(401, "signed_out")
	if r := d.get("/setup?token="+token, "Accept", "text/html"); r.status != 303 || r.header.Get("Location") != "/login" {
		t.Errorf("%d", r.status)
	}
}

func TestTheLinkIsGoodForAnHour(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		token := d.handler.Setup()
		time.Sleep(time.Hour - time.Second)
		d.get("/setup?token="+token, "Accept", "text/html").wants(200)
		time.Sleep(2 * time.Second)
		d.get("/setup?token="+token, "Accept", "text/html").wants(403)
	}, func(s *setup) { s.handlers.Public = true })
}

func TestACommandMakesTheFirstAccountBesideTheServer(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.get("/api/models").wants(200)
	beside, err := db.Open(db.Options{Path: d.file, Beside: true})
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	if _, err := beside.AddAccount(t.Context(), db.NewAccount{Name: "ada", Role: chat.RoleAdmin, Password: goodHash()}); err != nil {
		t.Fatal(err)
	}
	d.get("/api/models").refused(401, "signed_out")
	_, cookie := d.signIn("ada", goodPassword)
	d.get("/api/models", "Cookie", cookie).wants(200)
	if err := beside.EndLogins(t.Context(), 1, nil); err != nil {
		t.Fatal(err)
	}
	d.get("/api/models", "Cookie", cookie).refused(401, "signed_out")
}

// X19: whose word counts for where a request came from.
func TestX19OnlyTrustedProxiesSayWhereARequestCameFrom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		peer, forwarded, want string
	}{
		{"192.0.2.1:5", "", "192.0.2.1"},
		{"192.0.2.1:5", "10.9.9.9", "192.0.2.1"},
		{"10.0.0.1:5", "", "10.0.0.1"},
		{"10.0.0.1:5", "198.51.100.7", "198.51.100.7"},
		{"10.0.0.1:5", "1.2.3.4, 198.51.100.7", "198.51.100.7"},
		{"10.0.0.1:5", "1.2.3.4, 198.51.100.7, 10.0.0.2", "198.51.100.7"},
		{"10.0.0.1:5", "10.0.0.3, 10.0.0.2", "10.0.0.3"},
		{"10.0.0.1:5", "198.51.100.7, unknown", "10.0.0.1"},
		{"10.0.0.1:5", "198.51.100.7, 10.0.0.2, ::ffff:10.0.0.4", "198.51.100.7"},
		{"10.0.0.1:5", "198.51.100.7:1234", "198.51.100.7"},
		{"10.0.0.1:5", "[2001:db8::1]:1234", "2001:db8::1"},
		{"[::ffff:10.0.0.1]:5", "198.51.100.7", "198.51.100.7"},
		{"pipe", "198.51.100.7", "invalid IP"},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: http.Header{}}
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := handlers.Client(r, netip.MustParsePrefix("10.0.0.0/8")); got.String() != c.want {
			t.Errorf("%s for %q: %s, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
}

func TestTheCookieIsBoundToTheHostWhereTheLineIsSecure(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(s *setup) {
		s.handlers.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	d.people()
	r, cookie := d.signIn("ada", goodPassword, "X-Forwarded-Proto", "https", "X-Forwarded-For", "198.51.100.7")
	if set := r.header.Get("Set-Cookie"); !strings.HasPrefix(set, "__Host-semel=") || !strings.Contains(set, "; Secure") || strings.Contains(set, "Domain") {
		t.Errorf("%s", set)
	}
	d.get("/api/models", "Cookie", cookie, "X-Forwarded-Proto", "https").wants(200)
	// The same value under the other name, which a page on plain http could set.
	plain := strings.TrimPrefix(cookie, "__Host-")
	d.get("/api/models", "Cookie", plain, "X-Forwarded-Proto", "https").refused(401, "signed_out")
	d.get("/api/models", "Cookie", cookie).refused(401, "signed_out")
}

func TestTheUseOfALoginAndAKeyIsNotedToTheMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		ada, _, _ := d.people()
		by := ada.key(chat.ScopeChat)
		time.Sleep(30 * time.Minute)
		ada.call("GET", "/api/models", nil).wants(200)
		by.call("GET", "/api/models", nil).wants(200)
		logins, err := d.db.Logins(context.Background(), ada.id, time.Hour)
		if err != nil || time.Since(logins[0].SeenAt) > time.Minute {
			t.Errorf("%+v %v", logins, err)
		}
		keys, err := d.db.Keys(context.Background(), ada.id)
		if err != nil || time.Since(keys[0].UsedAt) > time.Minute {
			t.Errorf("%+v %v", keys, err)
		}
		time.Sleep(time.Hour + time.Minute)
		ada.call("GET", "/api/models", nil).refused(401, "signed_out")
	}, func(s *setup) { s.handlers.Idle = time.Hour })
}

// A route that somebody adds without a line in the table is for nobody, whatever else
// they forget.
func TestARouteWithoutALineIsForNobody(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	ada, _, _ := d.people()
	d.handler.ForgetRight("GET /api/models")
	if p := ada.call("GET", "/api/models", nil).refused(403, "forbidden_role"); !strings.Contains(p.Detail, "rights.go") {
		t.Errorf("whoever added it is told %q", p.Detail)
	}
}

// Whoever is turned away between the look and the start of a request is turned away.
func TestNobodySlipsInBetweenAChangeAndWhatItCuts(t *testing.T) {
	t.Parallel()
	var tickets handlers.Tickets
	if !tickets.Granted() {
		t.Error("a look that nothing happened after does not count")
	}
	if tickets.GrantedAfterALook() {
		t.Error("a look from before a change counts")
	}
}

func TestAForgedProtocolMakesNoSecureCookie(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.people()
	_, cookie := d.signIn("ada", goodPassword, "X-Forwarded-Proto", "https")
	if !strings.HasPrefix(cookie, "semel=") {
		t.Errorf("%s", cookie)
	}
}

// limits.running_per_user is for those who are several.
func TestWithAccountsAUserHasAFewAnswersRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		running := func(who *actor) (n int) {
			t.Helper()
			before := d.tap.asked()
			for range 3 {
				who.call("POST", "/api/chat", ask(chat.NewID(), chat.NewID(), "Pour.", "model", "tap"), "Prefer", "wait=0").wants(202)
			}
			synctest.Wait()
			return d.tap.asked() - before
		}
		if n := running(&actor{d: d}); n != 3 {
			t.Errorf("%d run of the one user there is, want 3", n)
		}
		_, ben, eve := d.people()
		for _, who := range []*actor{ben, eve} {
			if n := running(who); n != 1 {
				t.Errorf("%d run of %s, want 1", n, who.name)
			}
		}
	}, func(s *setup) { s.handlers.RunningPerUser = 1 })
}

var secretShown = regexp.MustCompile(`<code class="secret">(semel_[\w-]{43})</code>`)

// Of a double click a browser shows the second answer. It must be the first one: one key,
// and its secret.
func TestADoubleClickMakesOneKey(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		ada, _, eve := d.people()
		page := eve.call("GET", "/settings", nil, "Accept", "text/html").wants(200)
		form := regexp.MustCompile(`name="requestId" value="(\w{26})" autocomplete="off"><div class="fields"><div class="field"><label for="key-name">`).FindSubmatch(page.body)
		if form == nil {
			t.Fatal("the form has no id")
		}
		values := url.Values{"do": {"key"}, "requestId": {string(form[1])}, "name": {"my script"}, "scope": {"chat"}}
		var clicks sync.WaitGroup
		var answers [8]reply
		for i := range answers {
			clicks.Go(func() { answers[i] = eve.form("/settings/account", values) })
		}
		clicks.Wait()
		secret := ""
		for _, r := range answers {
			m := secretShown.FindSubmatch(r.wants(200).body)
			if m == nil || secret != "" && string(m[1]) != secret {
				t.Fatalf("shown is %q, and was %q", m, secret)
			}
			secret = string(m[1])
			if n := bytes.Count(r.body, []byte("Revoke my script")); n != 1 {
				t.Errorf("%d keys", n)
			}
		}
		d.get("/api/models", "Authorization", "Bearer "+secret).wants(200)

		// Another form, another user, another name, or later: it is not this key any more.
		again := func(who *actor, status int, change ...string) (shown string) {
			t.Helper()
			v := maps.Clone(values)
			for i := 0; i < len(change); i += 2 {
				v.Set(change[i], change[i+1])
			}
			r := who.form("/settings/account", v).wants(status)
			if m := secretShown.FindSubmatch(r.body); m != nil {
				shown = string(m[1])
			}
			if status == 409 && !strings.Contains(string(r.body), "has made a key already") {
				t.Errorf("%v: nothing is said", change)
			}
			return shown
		}
		if got := again(eve, 200, "requestId", chat.NewID()); got == secret || got == "" {
			t.Errorf("another form shows %q", got)
		}
		if got := again(ada, 200); got == secret || got == "" {
			t.Errorf("another user is shown %q", got)
		}
		if got := again(eve, 409, "name", "another"); got != "" {
			t.Errorf("another name is shown %q", got)
		}
		again(eve, 400, "requestId", "")
		again(eve, 400, "requestId", "abcdefgh")
		time.Sleep(59 * time.Second)
		if got := again(eve, 200); got != secret {
			t.Errorf("a moment later %q", got)
		}
		time.Sleep(2 * time.Second)
		if got := again(eve, 409); got != "" {
			t.Errorf("still later %q", got)
		}
		d.get("/api/models", "Authorization", "Bearer "+secret).wants(200) // it is none the worse
		keys, err := d.db.Keys(t.Context(), eve.id)
		if err != nil || len(keys) != 2 {
			t.Errorf("%d keys, %v", len(keys), err)
		}
		// What is revoked at once is not shown as one to copy.
		v := maps.Clone(values)
		v.Set("requestId", chat.NewID())
		eve.form("/settings/account", v).wants(200)
		if keys, err = d.db.Keys(t.Context(), eve.id); err != nil {
			t.Fatal(err)
		}
		eve.form("/settings/account", url.Values{"do": {"revoke"}, "id": {fmt.Sprint(keys[0].ID)}}).wants(303)
		if r := eve.form("/settings/account", v).wants(409); secretShown.Match(r.body) {
			t.Error("a key that is revoked is shown")
		}
	})
}

func TestADoubleClickMakesOneAccount(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	ada := d.account("ada", chat.RoleAdmin)
	values := url.Values{"do": {"add"}, "name": {"kim"}, "password": {goodPassword}, "role": {"member"}}
	var clicks sync.WaitGroup
	for range 3 {
		clicks.Go(func() { ada.form("/admin/users", values).wants(303).has("Location", "/admin/users?done=add") })
	}
	clicks.Wait()
	for what, change := range map[string][2]string{"another password": {"password", otherPassword}, "another role": {"role", "operator"}} {
		v := maps.Clone(values)
		v.Set(change[0], change[1])
		if r := ada.form("/admin/users", v).wants(422); !strings.Contains(string(r.body), "Another account has that name") {
			t.Errorf("%s: nothing is said", what)
		}
	}
	if list, err := d.db.Accounts(t.Context(), time.Hour); err != nil || len(list) != 2 {
		t.Errorf("%d accounts, %v", len(list), err)
	}
}
