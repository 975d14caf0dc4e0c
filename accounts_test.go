package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/config"
	"semel/handlers"
)

// withInput runs a command with something to read.
func withInput(t *testing.T, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	root := newRoot(nil, &errs)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetIn(strings.NewReader(input))
	err := root.ExecuteContext(t.Context())
	if err != nil {
		errs.WriteString(err.Error())
		code = 1
		if f, ok := err.(*failure); ok {
			code = f.code
		}
	}
	return code, out.String(), errs.String()
}

func TestAccountsAndKeysAtTheCommandLine(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "semel.db")
	const pass = "correct horse battery\n"
	for _, step := range []struct {
		args, input, want string
		code              int
	}{
		{"user add ada --role member --password-stdin", pass, "the first account must be an admin's", 1},
		{"user add Ada --password-stdin", pass, "ada may sign in, as admin.", 0},
		{"user add bob --password-stdin", "short\n", "at least 10 characters", 2},
		{"user add bob", pass, "bob may sign in, as member.", 0},
		{"user add BOB --password-stdin", pass, "another account has that name", 1},
		{"user passwd bob --password-stdin", "another horse battery", "bob has another password.", 0},
		{"user passwd eve --password-stdin", pass, `there is no account "eve"`, 1},
		{"user role bob operator", "", "bob has another role.", 0},
		{"user role bob root", "", "the role must be one of member, operator, admin", 2},
		{"user disable ada", "", "it is the last admin", 1},
		{"user disable bob", "", "bob is disabled.", 0},
		{"user list", "", "disabled", 0},
		{"user enable bob", "", "bob may sign in again.", 0},
		{"key add --user bob --scope ops --name metrics", "", "semel_", 0},
		{"key add --user eve --scope chat", "", `there is no account "eve"`, 1},
		{"user role bob member", "", "bob has another role.", 0},
		{"key add --user bob --scope ops", "", "bob is no operator", 1},
		{"key list", "", `"metrics"`, 0},
		{"key revoke 1", "", "Key 1 is revoked.", 0},
		{"key revoke 9", "", "there is no key 9", 1},
		{"verify", "", "", 0},
	} {
		code, stdout, stderr := withInput(t, step.input, append(strings.Fields(step.args), "--db", db)...)
		if code != step.code || !strings.Contains(stdout+stderr, step.want) {
			t.Errorf("semel %s: exit %d, %q and %q; want %d and %q", step.args, code, stdout, stderr, step.code, step.want)
		}
		if strings.Contains(stdout+stderr, "horse") {
			t.Errorf("semel %s shows the password: %q %q", step.args, stdout, stderr)
		}
		if strings.HasPrefix(step.args, "key add --user bob --scope ops --name") {
			words := strings.Fields(stdout)
			if last := words[len(words)-1]; !regexp.MustCompile(`^semel_[\w-]{43}$`).MatchString(last) {
				t.Errorf("the last word is %q", last)
			}
		}
	}
}

// The whole way with the real program: a server that others can reach, over TLS, set up
// by the link on its console, with accounts and keys changed beside it.
func TestAServerForSeveralPeople(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := filepath.Join(dir, "semel.db")
	configured := "[server]\ntls_self_signed = true\n"
	if err := os.WriteFile(filepath.Join(dir, "semel.toml"), []byte(configured), 0o600); err != nil {
		t.Fatal(err)
	}
	l := serveNow(t, db, "--listen", "0.0.0.0:0")
	text := l.log.String()
	found := regexp.MustCompile(`link="?https://[^/]*:(\d+)(/setup\?token=[\w-]{43})`).FindStringSubmatch(text)
	print := regexp.MustCompile(`sha256=([0-9A-F:]{95})`).FindStringSubmatch(text)
	if found == nil || print == nil {
		t.Fatalf("no link, or no fingerprint: %s", text)
	}
	if n := strings.Count(text, found[2]); n != 1 {
		t.Errorf("the link is shown %d times", n)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		if got := fingerprint(s.PeerCertificates[0].Raw); got != print[1] {
			t.Errorf("the certificate is %s, printed was %s", got, print[1])
		}
		return nil
	}}}}
	defer client.CloseIdleConnections()
	base := "https://127.0.0.1:" + found[1]
	do := func(method, path string, form url.Values, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		if form != nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		req.Header.Set("Accept", "text/html")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.Header.Get("Strict-Transport-Security") != "" {
			t.Error("HSTS for a certificate that no browser knows")
		}
		return res.StatusCode, string(body)
	}
	if status, _ := do("GET", "/api/models", nil); status != 403 {
		t.Errorf("before there is an account: %d", status)
	}
	if code, _, stderr := withInput(t, "", "healthcheck", "--db", db, "--listen", "127.0.0.1:"+found[1]); code != 0 {
		t.Errorf("healthcheck: %d %s", code, stderr)
	}
	token := strings.TrimPrefix(found[2], "/setup?token=")
	status, page := do("POST", "/setup", url.Values{"token": {token}, "name": {"ada"}, "password": {"correct horse battery"}, "again": {"correct horse battery"}})
	if status != 200 || !strings.Contains(page, `id="out"`) {
		t.Fatalf("set up: %d %.300s", status, page)
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	if cookies := jar.Cookies(u); len(cookies) != 1 || cookies[0].Name != "__Host-semel" {
		t.Errorf("cookies %v", cookies)
	}
	if status, page := do("GET", "/settings", nil); status != 200 || !strings.Contains(page, print[1]) {
		t.Errorf("the settings lack the fingerprint: %d", status)
	}
	semel := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := withInput(t, "correct horse battery\n", append(args, "--db", db)...)
		if code != 0 {
			t.Fatalf("semel %v: %d %s", args, code, stderr)
		}
		return stdout
	}
	semel("user", "add", "eve", "--password-stdin")
	words := strings.Fields(semel("key", "add", "--user", "eve", "--scope", "chat"))
	bearer := "Bearer " + words[len(words)-1]
	if status, body := do("GET", "/api/models", nil, "Authorization", bearer); status != 200 || !json.Valid([]byte(body)) {
		t.Errorf("by the key: %d %s", status, body)
	}
	semel("user", "disable", "eve")
	if status, _ := do("GET", "/api/models", nil, "Authorization", bearer); status != 401 {
		t.Errorf("by the key of a disabled account: %d", status)
	}
	semel("user", "disable", "eve") // again is no error
	l.kill()
	if strings.Contains(l.log.String(), "correct horse") || strings.Contains(l.log.String(), words[len(words)-1]) {
		t.Error("a password or a key is in the log")
	}
	again := serveNow(t, db, "--listen", "0.0.0.0:0")
	if text := again.log.String(); strings.Contains(text, "/setup") || !strings.Contains(text, print[1]) {
		t.Errorf("with an account, and the same certificate: %s", text)
	}
	again.kill()
	verifyFile(t, db)
}

func TestTheSelfSignedCertificateIsForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DB, cfg.Server.TLSSelfSigned = filepath.Join(t.TempDir(), "x.db"), true
	log := slog.New(slog.DiscardHandler)
	first, err := openCertificate(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(selfSignedFile(cfg))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
	again, err := openCertificate(cfg, log)
	if err != nil || !bytes.Equal(first.loaded.Leaf.Raw, again.loaded.Leaf.Raw) {
		t.Errorf("another certificate is made, %v", err)
	}
	if err := again.loaded.Leaf.VerifyHostname("localhost"); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(selfSignedFile(cfg), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openCertificate(cfg, log); err == nil || !strings.Contains(err.Error(), "read by others") {
		t.Errorf("a file that others may read: %v", err)
	}
	if err := os.WriteFile(selfSignedFile(cfg), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(selfSignedFile(cfg), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openCertificate(cfg, log); err == nil {
		t.Error("a damaged file is taken")
	}
}

// X21: a served certificate of files: browsers are to insist on it, nothing older than TLS 1.2
// is spoken, whatever Go is told, and the next one is shown to the next who comes.
func TestX21ACertificateOfFilesIsServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	renew := func(mode os.FileMode) (print string) {
		t.Helper()
		path := filepath.Join(dir, "made.pem")
		if err := writeSelfSigned(path); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"cert.pem", "key.pem"} {
			if err := os.WriteFile(filepath.Join(dir, name+".new"), raw, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, name+".new"), mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		return fingerprint(pair.Leaf.Raw)
	}
	first := renew(0o644)
	cmd := exec.Command(semelBinary(t), serveArgs(filepath.Join(dir, "semel.db"))...)
	cmd.Env = []string{"SEMEL_SERVER_TLS_CERT=" + filepath.Join(dir, "cert.pem"), "SEMEL_SERVER_TLS_KEY=" + filepath.Join(dir, "key.pem"), "GODEBUG=tls10server=1"}
	l := start(t, cmd)
	if !l.ready(t) {
		t.Fatal(l.log)
	}
	if text := l.log.String(); !strings.Contains(text, "everybody on this machine may read the key") || !strings.Contains(text, "key.pem") {
		t.Errorf("nothing is said of a key that is open to all:\n%s", text)
	}
	address := strings.TrimPrefix(l.url, "https://")
	shown := func() string {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return fingerprint(c.ConnectionState().PeerCertificates[0].Raw)
	}
	if got := shown(); got != first {
		t.Errorf("shown is %s, want %s", got, first)
	}
	_, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	if err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: %v", err)
	}
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	if err != nil {
		t.Errorf("TLS 1.2: %v", err)
	} else {
		c.Close()
	}
	l.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	res, err := l.http.Get(l.url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got := res.Header.Get("Strict-Transport-Security"); got != "max-age=31536000" {
		t.Errorf("HSTS is %q", got)
	}
	second := renew(0o600)
	if !eventually(func() bool { return shown() == second }) {
		t.Errorf("the new certificate is not shown:\n%s", l.log)
	}
	l.kill()

	// Without TLS there is nothing to insist on; and headers that net/http itself refuses
	// have their bound where it is documented.
	l = serveNow(t, filepath.Join(dir, "semel.db"))
	if res, err = l.http.Get(l.url + "/healthz"); err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got := res.Header.Get("Strict-Transport-Security"); got != "" {
		t.Errorf("without TLS HSTS is %q", got)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(l.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	head := "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "
	if _, err := io.WriteString(conn, head+strings.Repeat("x", handlers.HeaderBytes+4096-len(head))); err != nil {
		t.Fatal(err)
	}
	if res, err = http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != 431 {
		t.Errorf("headers without end: %v, %v", res, err)
	}
}

// X21: whoever renews a certificate restarts nothing; half of a new one changes nothing.
func TestX21ANewCertificateIsShownWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := func(name string) []byte {
		path := filepath.Join(dir, name)
		if err := writeSelfSigned(path); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	old, fresh := made("old.pem"), made("new.pem")
	cfg := config.Default()
	cfg.Server.TLSCert, cfg.Server.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	stamp := time.Now()
	put := func(name string, content []byte) {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		stamp = stamp.Add(time.Second)
		if err := os.Chtimes(name, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	put(cfg.Server.TLSCert, old)
	put(cfg.Server.TLSKey, old)
	synctest.Test(t, func(t *testing.T) {
		c, err := openCertificate(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		shown := func() []byte {
			time.Sleep(lookEvery)
			got, err := c.get(nil)
			if err != nil {
				t.Fatal(err)
			}
			return got.Leaf.Raw
		}
		first := shown()
		put(cfg.Server.TLSCert, fresh)
		if !bytes.Equal(shown(), first) {
			t.Error("a certificate without its key is shown")
		}
		put(cfg.Server.TLSKey, fresh)
		second := shown()
		if bytes.Equal(second, first) {
			t.Error("the new one is not shown")
		}
		if err := os.Remove(cfg.Server.TLSCert); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(shown(), second) {
			t.Error("one that is gone took the last with it")
		}
	})
	if _, err := openCertificate(cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("it starts without the file")
	}
	put(cfg.Server.TLSCert, fresh)
	tlsServer := func() error {
		c, err := openCertificate(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		ln, err := tls.Listen("tcp", "127.0.0.1:0", c.config())
		if err != nil {
			return err
		}
		defer ln.Close()
		go func() {
			if conn, err := ln.Accept(); err == nil {
				_ = conn.(*tls.Conn).Handshake()
				conn.Close()
			}
		}()
		raw, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return err
		}
		defer raw.Close()
		return tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}).Handshake()
	}
	if err := tlsServer(); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: %v", err)
	}
}
