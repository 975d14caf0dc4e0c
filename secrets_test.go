package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/handlers"
	"semel/llm"
	"semel/llm/llmtest"
	"semel/outbox"
)

// A vault is a whole server with a secret wherever there can be one, and all that it was
// heard to say.
type vault struct {
	t      *testing.T
	dir    string
	db     string
	env    []string
	life   *life
	client *http.Client
	url    string
	cookie string // of the admin

	mu     sync.Mutex // guards what follows
	hidden map[string]string
	shown  map[string]map[string]int // by promise: how often, by secret and by what was told
	told   map[string][]byte
	heard  map[string]bool // what those were told who may know it
}

// hide makes a secret of a value. From then on, and for what was told before, it is one.
func (v *vault) hide(name, value string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(value) < 16 {
		v.t.Fatalf("%s: %q could be there by chance", name, value)
	}
	v.hidden[name] = value
	return value
}

// new makes a secret that looks like its kind.
func (v *vault) new(name, prefix string) string {
	return v.hide(name, prefix+strings.ToLower(chat.NewToken()[:20])+"x7777")
}

// mayShow says that something shows a secret so many times: by a promise.
func (v *vault) mayShow(name, where string, times int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shown[name] == nil {
		v.shown[name] = map[string]int{}
	}
	v.shown[name][where] = times
}

func (v *vault) tell(where string, what []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, twice := v.told[where]; twice {
		where += " " + fmt.Sprint(len(v.told))
	}
	v.told[where] = what
}

// forms are how a secret may look: its first half as it is, and as it would be put into
// an address, a dump or a header.
func forms(value string) [][]byte {
	half := []byte(value[:max(12, len(value)/2)])
	return [][]byte{half, []byte(url.QueryEscape(string(half))), []byte(hex.EncodeToString(half)), []byte(base64.StdEncoding.EncodeToString(half[:len(half)/3*3]))}
}

// judge finds what should not have been told.
func (v *vault) judge() {
	v.t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	type needle struct {
		name string
		form []byte
	}
	// By their first bytes, so that each text is read once.
	needles := map[[8]byte][]needle{}
	for name, value := range v.hidden {
		seen := map[string]bool{}
		for _, form := range forms(value) {
			if !seen[string(form)] {
				seen[string(form)] = true
				needles[[8]byte(form)] = append(needles[[8]byte(form)], needle{name, form})
			}
		}
	}
	for where, what := range v.told {
		found := map[string]int{}
		for i := range len(what) - 7 {
			for _, n := range needles[[8]byte(what[i:])] {
				if !bytes.HasPrefix(what[i:], n.form) {
					continue
				}
				if found[n.name]++; found[n.name] == v.shown[n.name][where]+1 {
					v.t.Errorf("%s is in %s: …%q…", n.name, where, what[max(0, i-80):min(len(what), i+len(n.form)+40)])
				}
			}
		}
	}
}

// do sends a request and remembers the answer. header are names and values in turn.
func (v *vault) do(method, path string, body io.Reader, header ...string) (status int, answer string, where string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.life.ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, v.url+path, body)
	if err != nil {
		v.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := v.client.Do(req)
	if err != nil {
		v.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	var text []byte
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		text, err = bufio.NewReader(res.Body).ReadBytes('\n') // it may not end
	} else {
		text, err = io.ReadAll(res.Body)
	}
	if err != nil && err != io.EOF {
		v.t.Fatalf("%s %s: %v", method, path, err)
	}
	var all bytes.Buffer
	fmt.Fprintln(&all, res.Status)
	_ = res.Header.Write(&all)
	all.Write(text)
	v.mu.Lock()
	where = fmt.Sprintf("answer %d to %s %s", len(v.told), method, strings.SplitN(path, "?token=", 2)[0])
	v.told[where] = all.Bytes()
	v.mu.Unlock()
	for _, c := range res.Cookies() {
		if strings.HasSuffix(c.Name, "semel") && c.Value != "" {
			name := fmt.Sprintf("the login of %s", where)
			v.hide(name, c.Value)
			v.mayShow(name, where, 1)
			if v.cookie == "" || req.Header.Get("Cookie") == v.cookie {
				v.cookie = c.Name + "=" + c.Value
			}
		}
	}
	return res.StatusCode, string(text), where
}

func (v *vault) get(path string) (int, string) {
	v.t.Helper()
	status, text, _ := v.do("GET", path, nil, "Cookie", v.cookie)
	return status, text
}

// form posts a form as the admin.
func (v *vault) form(path string, fields url.Values) (int, string, string) {
	v.t.Helper()
	return v.do("POST", path, strings.NewReader(fields.Encode()), "Cookie", v.cookie, "Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html")
}

func (v *vault) json(method, path string, body any, header ...string) (int, string) {
	v.t.Helper()
	b, ok := body.(string)
	if !ok {
		j, err := json.Marshal(body)
		if err != nil {
			v.t.Fatal(err)
		}
		b = string(j)
	}
	status, text, _ := v.do(method, path, strings.NewReader(b), append([]string{"Cookie", v.cookie, "Content-Type", "application/json", "Prefer", "wait=60"}, header...)...)
	return status, text
}

// run runs a command beside the server.
func (v *vault) run(input string, args ...string) (where, stdout string) {
	v.t.Helper()
	var out, errs strings.Builder
	root := newRoot(v.env, &errs)
	root.SetArgs(append(args, "--db", v.db))
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetIn(strings.NewReader(input))
	if err := root.ExecuteContext(v.t.Context()); err != nil {
		fmt.Fprintln(&errs, err)
	}
	where = "semel " + strings.Join(args, " ")
	v.tell(where, []byte(out.String()+errs.String()))
	return where, out.String()
}

// A gossip is a provider and a receiver that says again what it was told, in all the ways
// in which that may come back. Those that want a model ask the one behind it.
func (v *vault) gossip(behind http.Handler) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		knows := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-Api-Key") + r.URL.Query().Get("token")
		v.overhear(knows)
		var what string
		for _, mode := range []string{"refuse", "page", "lead", "garble", "blurt", "frame"} {
			if strings.Contains(r.URL.Path, "/"+mode+"/") || bytes.Contains(body, []byte("say:"+mode)) {
				what = mode
			}
		}
		line := func(text string) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, text)
		}
		w.Header().Set("X-Request-Id", knows)
		switch what {
		case "refuse":
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+knows+`"`)
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"type": "error", "error": {"message": "Incorrect key provided: %[1]s.", "type": %[1]q, "code": %[1]q, "param": %[1]q}}`, knows)
		case "page":
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, "<h1>%s</h1> of %s", knows, r.URL)
		case "lead":
			http.Redirect(w, r, "/elsewhere?token="+knows, http.StatusTemporaryRedirect)
		case "garble":
			line("HTTP/1.1 " + knows + " what\r\n\r\n")
		case "blurt":
			line("HTTP/1.1 200 OK\r\n" + knows + "\r\n\r\n")
		case "frame":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: error\ndata: {\"type\": \"error\", \"error\": {\"message\": \"not with %[1]s\", \"type\": %[1]q, \"code\": \"invalid_request_error\"}}\n\n", knows)
		default:
			behind.ServeHTTP(w, r)
		}
	}))
	v.t.Cleanup(s.Close)
	return s
}

func (v *vault) overhear(knows string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, value := range v.hidden {
		if knows == value {
			v.heard[name] = true
		}
	}
}

// mailServer refuses every password by saying it.
func (v *vault) mailServer() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		v.t.Fatal(err)
	}
	var all sync.WaitGroup
	v.t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				c := textproto.NewConn(conn)
				_ = c.PrintfLine("220 mail")
				for {
					said, err := c.ReadLine()
					if err != nil {
						return
					}
					switch word, rest, _ := strings.Cut(said, " "); strings.ToUpper(word) {
					case "EHLO":
						_ = c.PrintfLine("250-mail\r\n250 AUTH PLAIN")
					case "AUTH":
						login, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
						words := strings.Split(string(login), "\x00")
						v.overhear(words[len(words)-1])
						_ = c.PrintfLine("535 5.7.8 %s is not the password, and %s is not the login", words[len(words)-1], rest)
					case "QUIT":
						_ = c.PrintfLine("221 bye")
						return
					default:
						_ = c.PrintfLine("250 ok")
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// whsec makes a secret of a webhook. Its prefix is none.
func (v *vault) whsec(name string) string {
	key := base64.StdEncoding.EncodeToString([]byte(chat.NewToken()[:33]))
	v.hide(name, key)
	return "whsec_" + key
}

// furnish writes the configuration, with a secret in every place.
func (v *vault) furnish(format string) {
	behind := map[llmtest.Format]*httptest.Server{}
	for _, f := range []llmtest.Format{llmtest.Chat, llmtest.Responses, llmtest.Anthropic} {
		s := llmtest.NewServer(v.t, f)
		s.PlayFunc(func(_ int64, body []byte) llmtest.Script {
			if _, name, ok := bytes.Cut(body, []byte("act:")); ok {
				name, _, _ := bytes.Cut(name, []byte(";"))
				return llmtest.Script{Tools: []llm.ToolCall{{ID: "c1", Name: string(name), Arguments: "{}"}}}
			}
			return llmtest.Script{Text: []string{"yes"}}
		})
		behind[f] = v.gossip(s)
	}
	receiver := v.gossip(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s knows %s", r.URL, r.URL.Query().Get("token"))
	}))
	keep := func(name, text string) string {
		if err := os.WriteFile(filepath.Join(v.dir, name), []byte(text+"\n"), 0o600); err != nil {
			v.t.Fatal(err)
		}
		return name
	}
	var c strings.Builder
	fmt.Fprintf(&c, "log = %q\nlog_level = \"debug\"\n[server]\ntls_self_signed = true\n[limits]\nper_user_per_minute = 0\nrunning_per_user = 0\n[billing]\ndeliver = \"books\"\n", format)
	model := func(name, provider, url, key string) {
		fmt.Fprintf(&c, "[[models]]\nname = %q\nprovider = %q\nurl = %q\n%s\nmax_attempts = 1\non_unknown = \"ask\"\n", name, provider, url+"/v1", key)
	}
	model("chat", "openai", behind[llmtest.Chat].URL, fmt.Sprintf("key = %q", v.new("the key of a model", "sk-")))
	model("responses", "openai-responses", behind[llmtest.Responses].URL, "background = true\nkey_file = \""+keep("key.txt", v.new("the key of a model from a file", "sk-"))+`"`)
	model("anthropic", "anthropic", behind[llmtest.Anthropic].URL, fmt.Sprintf("key = %q", v.new("the key of a model of Anthropic", "sk-ant-")))
	v.env = []string{
		"SEMEL_LLM_URL=" + behind[llmtest.Chat].URL + "/v1", "SEMEL_LLM_MODEL=environment", "SEMEL_LLM_KEY=" + v.new("the key of a model from the environment", "sk-"),
	}
	target := func(name, mode, more string) string {
		return fmt.Sprintf(`{ kind = "webhook", url = "%s/%s/x?token=%s", allow = ["127.0.0.0/8"], max_attempts = 1%s }`, receiver.URL, mode, v.new("the address of "+name, "t-"), more)
	}
	secrets := func(name string) string { return fmt.Sprintf(", secrets = [%q]", v.whsec(name)) }
	action := func(name, more string) {
		fmt.Fprintf(&c, "[[actions]]\nname = %q\ndescription = \"Do it\"\nparameters = '{\"type\":\"object\"}'\n%s\n", name, more)
	}
	for _, mode := range []string{"refuse", "page", "lead", "garble", "blurt", "frame"} {
		action("hook_"+mode, "approval = \"auto\"\ndestination = "+target("hook_"+mode, mode, secrets("the secret of hook_"+mode)))
	}
	action("unreached", "approval = \"auto\"\ndestination = "+strings.Replace(target("unreached", "x", secrets("the secret of unreached")), receiver.URL, "http://127.0.0.1:1", 1))
	action("signed", "approval = \"ask\"\nawait_callback = true\ndestination = "+target("signed", "fine", ", secrets_file = \""+keep("secrets.txt", v.whsec("the secret of signed"))+`"`)+
		"\ncompensate = "+target("its compensation", "refuse", secrets("the secret of its compensation")))
	mail := fmt.Sprintf(`destination = { kind = "email", server = %q, tls = "none", from = "a@semel.example", to = ["b@semel.example"], username = "semel", allow = ["127.0.0.0/8"], max_attempts = 1, `, v.mailServer())
	action("mail", "approval = \"auto\"\n"+mail+fmt.Sprintf("password = %q }", v.new("the password of a mail server", "p-")))
	action("mail_file", "approval = \"auto\"\n"+mail+fmt.Sprintf("password_file = %q }", keep("password.txt", v.new("the password of a mail server from a file", "p-"))))
	fmt.Fprintf(&c, "[[destinations]]\nname = \"books\"\nkind = \"webhook\"\nurl = \"%s/fine/x?token=%s\"\nsecrets = [%q]\nallow = [\"127.0.0.0/8\"]\nmax_attempts = 1\n",
		receiver.URL, v.new("the address of the books", "t-"), v.whsec("the secret of the books"))
	if err := os.WriteFile(filepath.Join(v.dir, "semel.toml"), []byte(c.String()), 0o600); err != nil {
		v.t.Fatal(err)
	}
}

// X20: of every secret that a server holds, none is in anything that it says or keeps,
// but where it is shown once by promise.
func TestX20NoSecretIsInAnythingThatAServerSaysOrKeeps(t *testing.T) {
	t.Parallel()
	semelBinary(t)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			v := &vault{t: t, dir: t.TempDir(), hidden: map[string]string{}, shown: map[string]map[string]int{}, told: map[string][]byte{}, heard: map[string]bool{}}
			v.db = filepath.Join(v.dir, "semel.db")
			v.furnish(format)
			v.serve()
			v.setUp()
			v.connect()
			asked := v.ask()
			v.walk(asked)
			v.commands()
			v.life.kill()
			v.tell("the log", []byte(v.life.log.String()))
			v.files()
			v.judge()
			for name := range v.hidden {
				talks := strings.HasPrefix(name, "the key of a") || strings.HasPrefix(name, "the address of") || strings.HasPrefix(name, "the password of a mail")
				if talks && !v.heard[name] && name != "the address of unreached" {
					t.Errorf("%s reached nobody: no test", name)
				}
			}
			if log := v.life.log.String(); !strings.Contains(log, "dispatched") || !strings.Contains(log, "/settings/models") {
				t.Error("the log is not that of a server at work, at debug level")
			}
		})
	}
}

// serve starts the server where others could reach it, and finds the link in its log.
func (v *vault) serve() {
	v.t.Helper()
	cmd := exec.Command(semelBinary(v.t), "serve", "--db", v.db, "--listen", "0.0.0.0:0")
	cmd.Env = v.env
	v.life = start(v.t, cmd)
	v.client = &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	v.t.Cleanup(v.client.CloseIdleConnections)
	link := regexp.MustCompile(`https://[^/"]*:(\d+)/setup\?token=([\w-]{43})`)
	var found []string
	if !eventually(func() bool {
		log := v.life.log.String()
		found = link.FindStringSubmatch(log)
		return v.life.gone() || found != nil && strings.Contains(log, "ready_after")
	}) || found == nil {
		v.t.Fatalf("it does not serve:\n%s", v.life.log)
	}
	v.url = "https://127.0.0.1:" + found[1]
	v.hide("the token of the link", found[2])
	v.mayShow("the token of the link", "the log", 1)
	certificate, err := os.ReadFile(v.db + ".tls.pem")
	if err != nil {
		v.t.Fatal(err)
	}
	if _, key, ok := strings.Cut(string(certificate), "PRIVATE KEY-----\n"); ok {
		v.hide("the key of the certificate", strings.SplitN(key, "\n", 2)[0])
	} else {
		v.t.Fatal("the file of the certificate has no key")
	}
}

// setUp makes the accounts, the keys and the logins.
func (v *vault) setUp() {
	v.t.Helper()
	token := v.hidden["the token of the link"]
	v.do("GET", "/setup?token="+token+"x", nil, "Accept", "text/html")
	_, _, where := v.do("GET", "/setup?token="+token, nil, "Accept", "text/html")
	v.mayShow("the token of the link", where, 1) // in the form that it opens
	pass := v.new("the password of ada", "horse-")
	typed := func(name, pass, again string) url.Values {
		return url.Values{"token": {token}, "name": {name}, "password": {pass}, "again": {again}}
	}
	_, _, where = v.form("/setup", typed("ada", pass, v.new("a password typed wrongly", "horse-")))
	v.mayShow("the token of the link", where, 1)
	if status, text, _ := v.form("/setup", typed("ada", pass, pass)); status != 303 || v.cookie == "" {
		v.t.Fatalf("set up: %d %s", status, text)
	}
	v.form("/setup", typed("eve", pass, pass)) // the link, again
	evePass := v.new("the password of eve", "horse-")
	for range 2 {
		v.form("/admin/users", url.Values{"do": {"add"}, "name": {"eve"}, "role": {"member"}, "password": {evePass}})
	}
	v.form("/admin/users", url.Values{"do": {"add"}, "name": {"a/b"}, "role": {"member"}, "password": {evePass}})
	v.form("/admin/users", url.Values{"do": {"password"}, "user": {"2"}, "password": {evePass}})
	admin := v.cookie
	for _, name := range []string{"eve", "nobody", evePass} {
		_, _, where := v.do("POST", "/login", strings.NewReader(url.Values{"name": {name}, "password": {evePass}}.Encode()), "Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html")
		if name == evePass {
			v.mayShow("the password of eve", where, 1) // it is the name, as far as anybody knows
		}
	}
	v.cookie = admin
	v.form("/settings/account", url.Values{"do": {"password"}, "current": {evePass}, "password": {pass}, "again": {pass}})
	v.form("/settings/account", url.Values{"do": {"password"}, "current": {pass}, "password": {evePass}, "again": {pass}})
	another := v.new("the next password of ada", "horse-")
	if status, text, _ := v.form("/settings/account", url.Values{"do": {"password"}, "current": {pass}, "password": {another}, "again": {another}}); status != 303 {
		v.t.Fatalf("another password: %d %s", status, text)
	}
	made := regexp.MustCompile(chat.KeyPrefix + `[\w-]{43}`)
	for _, scope := range []string{"chat", "ops"} {
		_, text, where := v.form("/settings/account", url.Values{"do": {"key"}, "requestId": {chat.NewID()}, "name": {"a program"}, "scope": {scope}})
		key := made.FindString(text)
		name := "a key for " + scope
		v.hide(name, key)
		v.mayShow(name, where, strings.Count(text, key))
		if n := strings.Count(text, key); n != 1 {
			v.t.Errorf("a new key is shown %d times", n)
		}
		for _, path := range []string{"/api/models", "/api/ops/stats", "/admin/users"} {
			v.do("GET", path, nil, "Authorization", "Bearer "+key)
			v.do("GET", path, nil, "Authorization", "Bearer "+key+"x")
			v.do("GET", path, nil, "X-Api-Key", key)
		}
	}
	where, out := v.run("", "key", "add", "--user", "eve", "--scope", "chat")
	v.hide("a key made by a command", made.FindString(out))
	v.mayShow("a key made by a command", where, 1)
	v.run(v.new("the password of bob", "horse-")+"\n", "user", "add", "bob", "--password-stdin")
	v.run("short\n", "user", "passwd", "bob", "--password-stdin")
}

// connect connects models by the form, in all ways in which that fails.
func (v *vault) connect() {
	v.t.Helper()
	s := llmtest.NewServer(v.t, llmtest.Chat)
	s.Play(llmtest.Script{Text: []string{"yes"}})
	talks := v.gossip(s)
	key, wrong := v.new("the key of a model from the form", "sk-"), v.new("a key that was not taken", "sk-")
	model := func(do, name, address, key string, more ...string) url.Values {
		f := url.Values{"do": {do}, "requestId": {chat.NewID()}, "preset": {""}, "url": {address}, "key": {key}, "upstream_model": {"model-a"}, "name": {name}}
		for i := 0; i < len(more); i += 2 {
			f.Set(more[i], more[i+1])
		}
		return f
	}
	for _, mode := range []string{"refuse", "page", "lead", "garble", "blurt", "frame"} {
		v.form("/settings/models", model("test", "form", talks.URL+"/"+mode+"/v1", key))
		v.form("/settings/models", model("test", "form", talks.URL+"/"+mode+"/v1", key, "preset", "anthropic"))
	}
	v.form("/settings/models", model("test", "form", "http://127.0.0.1:1/v1", key))
	v.form("/settings/models", model("test", "form", "http://no.such.host.invalid/v1", key))
	for _, bad := range []string{wrong + " x", wrong + "\x00", wrong + "é"} {
		v.form("/settings/models", model("save", "form", talks.URL+"/v1", bad))
	}
	v.form("/settings/models", model("save", "chat", talks.URL+"/v1", wrong))
	v.form("/settings/models", model("save", "form", "ftp://x", wrong))
	_, _, where := v.form("/settings/models", model("save", "form", "https://u:"+wrong+"@a/v1", wrong)) // typed in the wrong field
	v.mayShow("a key that was not taken", where, 1)
	v.form("/settings/models", model("save", "form", talks.URL+"/v1", wrong, "price.input", "x"))
	if status, text, _ := v.form("/settings/models", model("save", "form", talks.URL+"/v1", key)); status != 303 {
		v.t.Fatalf("connect: %d %s", status, text)
	}
	v.form("/settings/models", model("save", "form", talks.URL+"/other/v1", "", "editing", "form"))
	v.form("/settings/models", model("test", "form", talks.URL+"/v1", "", "editing", "form"))
	v.form("/settings/models", model("save", "form", talks.URL+"/v1", "", "editing", "form", "context", "4096"))
	sealed, err := os.ReadFile(v.db + ".key")
	if err != nil {
		v.t.Fatal(err)
	}
	v.hide("the key file", strings.TrimSpace(string(sealed)))
	raw, err := hex.DecodeString(strings.TrimSpace(string(sealed)))
	if err != nil {
		v.t.Fatal(err)
	}
	v.hide("the key in the key file", string(raw))
	v.get("/settings?edit=form")
}

// A question is one that was asked, and the effect of its answer.
type question struct{ session, id, effect string }

// ask asks every model whatever makes its provider talk, and lets every destination talk.
func (v *vault) ask() (list []question) {
	v.t.Helper()
	put := func(model, content string) (a question) {
		a = question{session: chat.NewID(), id: chat.NewID()}
		v.json("POST", "/api/chat", map[string]any{"sessionId": a.session, "requestId": a.id, "content": content, "model": model})
		list = append(list, a)
		return a
	}
	record := func(a question) (r chat.Record) {
		_, text := v.get("/api/chat/status/" + a.id + "?sessionId=" + a.session)
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			v.t.Fatalf("%v in %s", err, text)
		}
		return r
	}
	for _, model := range []string{"chat", "responses", "anthropic", "environment", "form"} {
		for _, mode := range []string{"refuse", "page", "lead", "garble", "blurt", "frame", "answer"} {
			if (model == "environment" || model == "form") && (mode == "garble" || mode == "blurt") {
				continue // they would be asked again, and again
			}
			a := put(model, "say:"+mode)
			if !eventually(func() bool { return record(a).Status != chat.StatusProcessing }) {
				v.t.Errorf("%s of %s does not end: %+v", mode, model, record(a))
			}
		}
	}
	stands := func(a *question, state chat.EffectState) {
		v.t.Helper()
		var r chat.Record
		if !eventually(func() bool {
			r = record(*a)
			return len(r.Effects) == 1 && r.Effects[0].State == state
		}) {
			v.t.Fatalf("the effect is not %s: %+v", state, r.Effects)
		}
		a.effect = r.Effects[0].WebhookID
	}
	for _, action := range []string{"hook_refuse", "hook_page", "hook_lead", "hook_garble", "hook_blurt", "unreached", "mail", "mail_file"} {
		put("chat", "act:"+action+";")
		stands(&list[len(list)-1], chat.EffectDead)
	}
	put("chat", "act:hook_frame;")
	stands(&list[len(list)-1], chat.EffectDelivered)
	for _, ok := range []bool{true, false} {
		put("anthropic", "act:signed;")
		a := &list[len(list)-1]
		stands(a, chat.EffectUndecided)
		r := record(*a)
		v.json("POST", "/api/chat/decisions/"+r.Effects[0].DecisionID, map[string]any{"verdict": "approve", "digest": r.Effects[0].Digest})
		stands(a, chat.EffectAwaiting)
		v.callBack(a.effect, ok)
	}
	settled := &list[len(list)-2] // the one that was done
	v.json("POST", "/api/ops/outbox/"+settled.effect+"/compensate", map[string]any{"reason": "a mistake"})
	if !eventually(func() bool { return v.has("the address of its compensation") }) {
		v.t.Error("nothing was undone")
	}
	return list
}

func (v *vault) has(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.heard[name]
}

// callBack calls back as whoever has the secret, and as others.
func (v *vault) callBack(effect string, ok bool) {
	v.t.Helper()
	body := fmt.Appendf(nil, `{"type":"action.result","data":{"ok":%t,"reason":"because"}}`, ok)
	for _, of := range []string{"the secret of the books", "the secret of signed"} {
		h, err := outbox.Sign([]string{"whsec_" + v.hidden[of]}, "msg_"+chat.NewID(), time.Now(), body)
		if err != nil {
			v.t.Fatal(err)
		}
		status, text, _ := v.do("POST", "/callbacks/"+effect, bytes.NewReader(body), "Content-Type", "application/json",
			"Webhook-Id", h.Get("Webhook-Id"), "Webhook-Timestamp", h.Get("Webhook-Timestamp"), "Webhook-Signature", h.Get("Webhook-Signature"))
		if (status == 200) != (of == "the secret of signed") {
			v.t.Errorf("a callback with %s: %d %s", of, status, text)
		}
	}
}

// walk calls every route of the tree as the admin, with what makes sense and with what
// does not.
func (v *vault) walk(list []question) {
	v.t.Helper()
	done := slices.IndexFunc(list, func(a question) bool { return a.effect != "" })
	about := list[done]
	// Whatever somebody may put into the wrong field, or into one that there is not.
	odd := map[string]any{"password": v.hidden["the password of ada"], "key": v.hidden["a key that was not taken"], "token": v.hidden["the token of the link"],
		"secrets": []string{v.hidden["the secret of signed"]}}
	spill := url.Values{}
	for name, value := range odd {
		if s, ok := value.(string); ok {
			spill.Set(name, s)
		}
	}
	spill.Set("current", v.hidden["the password of eve"])
	spill.Set("again", v.hidden["the password of eve"])
	deeds := []string{"", "save", "test", "default", "remove", "role", "disable", "enable", "revoke", "out", "key", "rename", "pin", "archive", "delete", "restore", "stop", "release", "retry",
		"refund", "adjustment", "reveal", "redrive", "abandon", "compensate", "play", "step", "end", "nothing"}
	routes := handlers.New(handlers.Options{}).Handler.(chi.Routes)
	type leaf struct{ method, pattern string }
	var leaves []leaf
	err := chi.Walk(routes, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		leaves = append(leaves, leaf{method, pattern})
		return nil
	})
	if err != nil || len(leaves) < 70 {
		v.t.Fatalf("%d routes, %v", len(leaves), err)
	}
	// What ends something comes last.
	last := func(l leaf) int {
		switch {
		case l.pattern == "/logout":
			return 2
		case l.method == "DELETE":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(leaves, func(a, b leaf) int { return last(a) - last(b) })
	for _, l := range leaves {
		path := func(a question) string {
			p := strings.NewReplacer("{requestID}", a.id, "{sessionID}", a.session, "{webhookID}", a.effect, "{decisionID}", a.effect, "{attachmentID}", "none.txt",
				"{scenario}", "short", "{runID}", chat.NewID(), "*", "x").Replace(l.pattern)
			if strings.Contains(l.pattern, "{requestID}") {
				p += "?sessionId=" + a.session
			}
			return p
		}
		switch {
		case l.method == "GET":
			accepts := []string{"text/html", "application/json", "text/event-stream"}
			for _, accept := range accepts {
				v.do("GET", path(about), nil, "Cookie", v.cookie, "Accept", accept)
			}
			for i, a := range list {
				v.do("GET", path(a), nil, "Cookie", v.cookie, "Accept", accepts[i%2])
				if !strings.Contains(l.pattern, "{requestID}") && !strings.Contains(l.pattern, "{sessionID}") {
					break
				}
			}
			if strings.HasSuffix(l.pattern, "export") {
				v.get(path(about) + "?format=json")
				v.get(path(about) + "?format=md")
			}
		case l.pattern == "/api/attachments", l.pattern == "/api/conversations/import": // they keep what they are given
		case strings.HasPrefix(l.pattern, "/api/"), strings.HasPrefix(l.pattern, "/callbacks/"):
			fine := map[string]any{}
			switch {
			case l.pattern == "/api/chat":
				fine = map[string]any{"sessionId": chat.NewID(), "requestId": chat.NewID(), "content": "say:answer", "model": "chat"}
			case strings.HasSuffix(l.pattern, "{decisionID}"):
				fine = map[string]any{"verdict": "approve"}
			case strings.HasSuffix(l.pattern, "/refund"), strings.HasSuffix(l.pattern, "/adjust"):
				fine = map[string]any{"micros": 1, "reason": "a mistake"}
			case strings.Contains(l.pattern, "outbox"), strings.HasSuffix(l.pattern, "/release"):
				fine = map[string]any{"reason": "a mistake"}
			}
			bodies := []any{fine, odd, "", "{", "[]", `"` + v.hidden["the password of ada"] + `"`, `{"` + v.hidden["the password of ada"][:10]}
			for name, value := range odd {
				with := map[string]any{name: value}
				for k := range fine {
					with[k] = fine[k]
				}
				bodies = append(bodies, with)
			}
			for _, body := range bodies {
				v.json(l.method, path(about), body, "Idempotency-Key", chat.NewID())
			}
		default:
			for _, do := range deeds {
				f := url.Values{"do": {do}, "requestId": {chat.NewID()}, "id": {"999999"}, "user": {"2"}, "name": {"eve"}, "role": {"member"}, "reason": {"a mistake"}, "amount": {"0.01"},
					"attempt": {"1"}, "scope": {"all"}, "section": {"page"}, "lang": {"en"}, "title": {"a title"}, "fresh": {chat.NewID()}, "at": {"1"}}
				for name := range spill {
					f.Set(name, spill.Get(name))
				}
				if strings.HasPrefix(l.pattern, "/ops") {
					f.Set("key", chat.NewID()) // of the deed
				}
				if do == "key" {
					f.Set("scope", "none")
				}
				v.form(path(about), f)
				if l.pattern == "/login" || l.pattern == "/setup" || l.pattern == "/logout" {
					break // each would count as a try, or end the login
				}
			}
		}
	}
}

// commands runs what can be run beside a server.
func (v *vault) commands() {
	v.t.Helper()
	for _, args := range [][]string{
		{"config", "print", "--redacted"}, {"config", "check"}, {"doctor"}, {"doctor", "--json"}, {"doctor", "--url", v.url}, {"models", "list"}, {"models", "list", "--json"},
		{"models", "test", "chat"}, {"models", "test", "responses"}, {"models", "test", "anthropic"}, {"models", "test", "environment"},
		{"user", "list"}, {"key", "list"}, {"verify"}, {"verify", "--json"}, {"replay"}, {"version"}, {"backup", filepath.Join(v.dir, "copy.db")},
	} {
		v.run("", args...)
	}
	// A configuration that is wrong is told in the same places.
	good, err := os.ReadFile(filepath.Join(v.dir, "semel.toml"))
	if err != nil {
		v.t.Fatal(err)
	}
	text := string(good)
	for name, bad := range map[string]string{
		"a key that is two":          strings.Replace(text, "key = ", "kee = ", 1),
		"a key that is a list":       regexp.MustCompile(`key = ("[^"]+")`).ReplaceAllString(text, "key = [$1]"),
		"a key with a space":         regexp.MustCompile(`key = "([^"]+)"`).ReplaceAllString(text, `key = "$1 x"`),
		"a secret that is a word":    regexp.MustCompile(`secrets = \[("[^"]+")\]`).ReplaceAllString(text, "secrets = $1"),
		"a secret without a prefix":  strings.ReplaceAll(text, `"whsec_`, `"`),
		"a password that is a list":  regexp.MustCompile(`password = ("[^"]+")`).ReplaceAllString(text, "password = [$1]"),
		"an address that is none":    strings.ReplaceAll(text, `url = "http://`, `url = "htp://`),
		"an address with a fragment": regexp.MustCompile(`(\?token=[\w-]+)`).ReplaceAllString(text, "$1#x"),
		"a quote too much":           regexp.MustCompile(`key = ("[^"]+")`).ReplaceAllString(text, `key = $1"`),
		"a line that does not end":   regexp.MustCompile(`password = ("[^"]+)"`).ReplaceAllString(text, "password = $1"),
		"half of a file":             text[:strings.Index(text, "sk-")+20],
	} {
		if bad == text {
			v.t.Errorf("%s: nothing was changed", name)
		}
		file := filepath.Join(v.dir, "bad.toml")
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			v.t.Fatal(err)
		}
		where, _ := v.run("", "config", "check", "--config", file)
		v.mu.Lock()
		if strings.Contains(string(v.told[where]), "is good") {
			v.t.Errorf("%s is taken", name)
		}
		v.told[where+" of "+name] = v.told[where]
		delete(v.told, where)
		v.mu.Unlock()
		_ = os.Remove(file)
	}
}

// files reads all that the server has left, but for what holds secrets by its nature.
func (v *vault) files() {
	v.t.Helper()
	err := filepath.WalkDir(v.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch filepath.Base(path) {
		case "semel.toml", "key.txt", "secrets.txt", "password.txt", "semel.db.key", "semel.db.tls.pem":
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil {
			v.tell("the file "+filepath.Base(path), b)
		}
		return err
	})
	if err != nil {
		v.t.Fatal(err)
	}
	if v.told["the file copy.db"] == nil || v.told["the file semel.db"] == nil {
		v.t.Error("no copy, or no database")
	}
}
