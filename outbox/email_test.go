package outbox

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"mime/quotedprintable"
	"net"
	"net/http/httptest"
	netmail "net/mail"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"semel/chat"
)

// A mailServer is a real one, with hooks where it can misbehave.
type mailServer struct {
	addr  string
	roots *x509.CertPool

	onSession, onMail, onData func(c net.Conn) error
	onRcpt                    func(to string) error

	mu       sync.Mutex
	conns    map[string]net.Conn
	received []received
	logins   []string
}

type received struct {
	from string
	to   []string
	text string
}

func newMailServer(t *testing.T, change func(*mailServer, *smtp.Server)) *mailServer {
	t.Helper()
	web := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1 and example.com
	t.Cleanup(web.Close)
	m := &mailServer{roots: x509.NewCertPool(), conns: map[string]net.Conn{}}
	m.roots.AddCert(web.Certificate())
	s := smtp.NewServer(m)
	s.Domain = "mail.example.com"
	s.ErrorLog = log.New(io.Discard, "", 0)
	s.TLSConfig = &tls.Config{Certificates: web.TLS.Certificates}
	if change != nil {
		change(m, s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addr = l.Addr().String()
	served := make(chan struct{})
	go func() { defer close(served); s.Serve(rememberingListener{l, m}) }()
	t.Cleanup(func() { s.Close(); l.Close(); <-served })
	return m
}

type rememberingListener struct {
	net.Listener
	m *mailServer
}

func (l rememberingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.m.mu.Lock()
		l.m.conns[c.RemoteAddr().String()] = c
		l.m.mu.Unlock()
	}
	return c, err
}

func (m *mailServer) NewSession(c *smtp.Conn) (smtp.Session, error) {
	m.mu.Lock()
	s := &mailSession{m: m, conn: m.conns[c.Conn().RemoteAddr().String()]}
	m.mu.Unlock()
	return s, m.hook(m.onSession, s.conn)
}

func (m *mailServer) hook(f func(net.Conn) error, c net.Conn) error {
	if f == nil {
		return nil
	}
	return f(c)
}

func (m *mailServer) got() []received {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]received(nil), m.received...)
}

type mailSession struct {
	m    *mailServer
	conn net.Conn
	now  received
}

func (s *mailSession) Reset()        { s.now = received{} }
func (s *mailSession) Logout() error { return nil }
func (s *mailSession) Mail(from string, _ *smtp.MailOptions) error {
	s.now = received{from: from}
	return s.m.hook(s.m.onMail, s.conn)
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.now.to = append(s.now.to, to)
	if s.m.onRcpt != nil {
		return s.m.onRcpt(to)
	}
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.now.text = string(text)
	s.m.mu.Lock()
	s.m.received = append(s.m.received, s.now)
	s.m.mu.Unlock()
	return s.m.hook(s.m.onData, s.conn)
}

func (s *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }
func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, pass string) error {
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		s.m.logins = append(s.m.logins, user)
		if pass != "right-canary" {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

func (m *mailServer) target() Target {
	return Target{
		Kind: KindEmail, Server: m.addr, Allow: loopback, RootCAs: m.roots, Timeout: time.Minute,
		From: "Contracts <contracts@example.com>", To: []string{"legal@example.com", "Zoë <zoe@example.com>"},
		Username: "robot-canary", Password: "right-canary",
	}
}

var testMail = Message{
	WebhookID: "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	Payload: []byte(`{"type":"action.sign_contract","timestamp":"2026-01-02T03:04:00Z","data":{"requestId":"req-1","action":"sign_contract","arguments":{"title":"保密协议","party":"ACME"}}}`),
}

func TestAnEmailIsSentEncryptedUnderAStableID(t *testing.T) {
	for _, mode := range []string{TLSStart, TLSImplicit} {
		m := newMailServer(t, nil)
		target := m.target()
		target.TLS = mode
		if mode == TLSImplicit {
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: httptestCertificate(t, m)})
			if err != nil {
				t.Fatal(err)
			}
			s := smtp.NewServer(m)
			s.Domain, s.AllowInsecureAuth = "mail.example.com", true // it does not know that it is secure
			s.ErrorLog = log.New(io.Discard, "", 0)
			served := make(chan struct{})
			go func() { defer close(served); s.Serve(rememberingListener{l, m}) }()
			defer func() { s.Close(); l.Close(); <-served }()
			target.Server = l.Addr().String()
		}
		sink := mustNew(t, target)
		for range 2 {
			if r := sink.Deliver(t.Context(), testMail); r.Status != 250 || r.Outcome != chat.OutcomeOK {
				t.Fatalf("%s: got %+v", mode, r)
			}
		}
		got := m.got()
		if len(got) != 2 || got[0].text != got[1].text || len(m.logins) != 2 {
			t.Fatalf("%s: got %d messages, %d logins, want 2 and the same text", mode, len(got), len(m.logins))
		}
		if got[0].from != "contracts@example.com" || strings.Join(got[0].to, " ") != "legal@example.com zoe@example.com" {
			t.Errorf("%s: got %+v", mode, got[0])
		}
		msg, err := netmail.ReadMessage(strings.NewReader(got[0].text))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"Message-Id": "<msg_2KWPBgLlAfxdpx2AI54pPJ85f4W@example.com>", "Webhook-Id": testMail.WebhookID, "Subject": "Semel: sign_contract",
			"Date": "Fri, 02 Jan 2026 03:04:05 +0000", "Auto-Submitted": "auto-generated", "User-Agent": "", "X-Mailer": "",
			"Content-Type": "text/plain; charset=UTF-8",
		} {
			if got := msg.Header.Get(name); got != want {
				t.Errorf("%s: %s: got %q, want %q", mode, name, got, want)
			}
		}
		body, err := io.ReadAll(quotedprintable.NewReader(msg.Body))
		if err != nil || !strings.Contains(string(body), "title: 保密协议\r\n    party: ACME\r\n") {
			t.Errorf("%s: got %q, %v", mode, body, err)
		}
	}
}

func httptestCertificate(t *testing.T, m *mailServer) []tls.Certificate {
	t.Helper()
	web := httptest.NewTLSServer(nil)
	t.Cleanup(web.Close)
	m.roots.AddCert(web.Certificate())
	return web.TLS.Certificates
}

func TestWhatAMailServerSaysIsDefinite(t *testing.T) {
	reply := func(code int) error { return &smtp.SMTPError{Code: code, Message: "canary"} }
	for _, tt := range []struct {
		name   string
		change func(*mailServer, *smtp.Server)
		target func(*Target)
		status int
		code   string
		stored int
	}{
		{name: "no mail now", change: func(m *mailServer, _ *smtp.Server) { m.onMail = func(net.Conn) error { return reply(451) } }, status: 451, code: CodeReceiverBusy},
		{name: "no mail from there", change: func(m *mailServer, _ *smtp.Server) { m.onMail = func(net.Conn) error { return reply(550) } }, status: 550, code: CodeReceiverRefused},
		{name: "one of two recipients is unknown", change: func(m *mailServer, _ *smtp.Server) {
			m.onRcpt = func(to string) error {
				if to == "zoe@example.com" {
					return reply(550)
				}
				return nil
			}
		}, status: 550, code: CodeReceiverRefused},
		{name: "a wrong password", target: func(t *Target) { t.Password = "wrong-canary" }, status: 535, code: CodeReceiverRefused},
		{name: "the text is put off", change: func(m *mailServer, _ *smtp.Server) { m.onData = func(net.Conn) error { return reply(452) } }, status: 452, code: CodeReceiverBusy, stored: 1},
		{name: "the text is refused", change: func(m *mailServer, _ *smtp.Server) { m.onData = func(net.Conn) error { return reply(554) } }, status: 554, code: CodeReceiverRefused, stored: 1},
		{name: "it is too large", change: func(_ *mailServer, s *smtp.Server) { s.MaxMessageBytes = 10 }, status: 552, code: CodeReceiverRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMailServer(t, tt.change)
			target := m.target()
			if tt.target != nil {
				tt.target(&target)
			}
			r := mustNew(t, target).Deliver(t.Context(), testMail)
			wantResult(t, r, chat.OutcomeDefinite, tt.code)
			if r.Status != tt.status {
				t.Errorf("got status %d, want %d", r.Status, tt.status)
			}
			if n := len(m.got()); n != tt.stored {
				t.Errorf("%d messages arrived whole, want %d", n, tt.stored)
			}
		})
	}
}

func TestAMailWhoseReplyIsLostIsUnknown(t *testing.T) {
	m := newMailServer(t, func(m *mailServer, _ *smtp.Server) {
		m.onData = func(c net.Conn) error { return c.Close() }
	})
	wantResult(t, mustNew(t, m.target()).Deliver(t.Context(), testMail), chat.OutcomeUnknown, CodeLineLost)
	if n := len(m.got()); n != 1 {
		t.Errorf("%d messages arrived", n)
	}

	released := make(chan struct{})
	m = newMailServer(t, func(m *mailServer, _ *smtp.Server) {
		m.onData = func(net.Conn) error { <-released; return nil }
	})
	defer close(released)
	inTime(t, m.target(), testMail)
}

func TestWithoutEncryptionNothingIsSent(t *testing.T) {
	m := newMailServer(t, func(_ *mailServer, s *smtp.Server) { s.TLSConfig, s.AllowInsecureAuth = nil, true })
	wantResult(t, mustNew(t, m.target()).Deliver(t.Context(), testMail), chat.OutcomeNone, CodeTLSMissing)
	if len(m.got()) != 0 || len(m.logins) != 0 {
		t.Errorf("got %d messages and the logins %v", len(m.got()), m.logins)
	}
	target := m.target()
	target.TLS = TLSNone // said by name, to this machine
	wantResult(t, mustNew(t, target).Deliver(t.Context(), testMail), chat.OutcomeOK, "")

	m = newMailServer(t, nil)
	target = m.target()
	target.RootCAs = x509.NewCertPool()
	for _, mode := range []string{TLSStart, TLSImplicit} {
		target.TLS = mode
		r := mustNew(t, target).Deliver(t.Context(), testMail)
		wantResult(t, r, chat.OutcomeNone, CodeUnreachable)
	}
	if len(m.got()) != 0 || len(m.logins) != 0 {
		t.Errorf("who is not known got %d messages and the logins %v", len(m.got()), m.logins)
	}
}

func TestAMailServerOnAnAddressThatIsNotAllowedIsNotCalled(t *testing.T) {
	m := newMailServer(t, nil)
	target := m.target()
	target.Server = strings.Replace(m.addr, "127.0.0.1", "localhost", 1)
	moved := mustNew(t, target).(*email)
	moved.guard.allow = nil
	wantResult(t, moved.Deliver(t.Context(), testMail), chat.OutcomeNone, CodeAddressRefused)
}

// A rawMail is a mail server by hand: it replies to each command what replies has for
// its first word, or 250.
func rawMail(t *testing.T, replies map[string]string, then func(net.Conn, *bufio.Reader)) Target {
	t.Helper()
	s := newRawServer(t, func(_ *rawServer, c net.Conn) {
		r := bufio.NewReader(c)
		say := func(word string) bool {
			reply, ok := replies[word]
			if !ok {
				reply = "250 fine"
			}
			if reply == "" {
				return false
			}
			_, err := io.WriteString(c, reply+"\r\n")
			return err == nil && !strings.HasPrefix(reply, "354")
		}
		if _, ok := replies["greeting"]; !ok {
			io.WriteString(c, "220 here\r\n")
		} else if !say("greeting") {
			if then != nil {
				then(c, r)
			}
			return
		}
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if !say(strings.Fields(line)[0]) {
				if then != nil {
					then(c, r)
				}
				return
			}
		}
	})
	return Target{Kind: KindEmail, TLS: TLSNone, Server: strings.Split(s.url, "/")[2], Allow: loopback, From: "a@example.com", To: []string{"b@example.com"}}
}

func readToDot(r *bufio.Reader) {
	for line, err := "", error(nil); err == nil && line != ".\r\n"; {
		line, err = r.ReadString('\n')
	}
}

func TestHowFarAMailCameSaysWhatIsKnown(t *testing.T) {
	data := map[string]string{"DATA": "354 go on"}
	for _, tt := range []struct {
		name    string
		replies map[string]string
		then    func(net.Conn, *bufio.Reader)
		outcome chat.Outcome
		code    string
	}{
		{"lost before the text", map[string]string{"DATA": ""}, nil, chat.OutcomeNone, CodeUnreachable},
		{"lost after the dot", data, func(_ net.Conn, r *bufio.Reader) { readToDot(r) }, chat.OutcomeUnknown, CodeLineLost},
		{"accepted in other words", data, func(c net.Conn, r *bufio.Reader) { readToDot(r); io.WriteString(c, "251 fine\r\n"); r.ReadString('\n') }, chat.OutcomeOK, ""},
		{"accepted, and then lost", data, func(c net.Conn, r *bufio.Reader) { readToDot(r); io.WriteString(c, "250 fine\r\n") }, chat.OutcomeOK, ""},
		{"a reply that is none", data, func(c net.Conn, r *bufio.Reader) { readToDot(r); io.WriteString(c, "what?\r\n"); r.ReadString('\n') }, chat.OutcomeUnknown, CodeLineLost},
		{"a reply of another kind", data, func(c net.Conn, r *bufio.Reader) { readToDot(r); io.WriteString(c, "354 more\r\n"); r.ReadString('\n') }, chat.OutcomeUnknown, CodeBadAnswer},
		{"no place for the text", map[string]string{"DATA": "250 what?"}, nil, chat.OutcomeNone, CodeBadAnswer},
		{"a closed shop", map[string]string{"greeting": "554 no"}, nil, chat.OutcomeDefinite, CodeReceiverRefused},
		{"one that talks for ever", map[string]string{"greeting": ""}, func(c net.Conn, _ *bufio.Reader) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, strings.Repeat("x", 4096))
			}
		}, chat.OutcomeNone, CodeUnreachable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := mustNew(t, rawMail(t, tt.replies, tt.then)).Deliver(t.Context(), testMail)
			wantResult(t, r, tt.outcome, tt.code)
		})
	}
}

func TestAMailTargetIsCheckedWithoutTheNetwork(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Target)
		want   string
	}{
		{"as it is", func(*Target) {}, ""},
		{"with a port", func(t *Target) { t.Server = "mail.example.com:2525" }, ""},
		{"IPv6", func(t *Target) { t.Server = "[2606:4700::1]:25" }, ""},
		{"keyed", func(t *Target) { t.KeyMode = KeyModeKeyed }, ""},
		{"plain, here", func(t *Target) { t.TLS, t.Server, t.Allow = TLSNone, "localhost", loopback }, ""},
		{"plain, here, not allowed", func(t *Target) { t.TLS, t.Server = TLSNone, "localhost" }, "tls: "},
		{"plain, elsewhere", func(t *Target) {
			t.TLS, t.Server, t.Allow = TLSNone, "10.0.0.1", []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
		}, "tls: "},
		{"inside", func(t *Target) { t.Server = "10.0.0.1:587" }, "server: "},
		{"no server", func(t *Target) { t.Server = "" }, "server: "},
		{"no port", func(t *Target) { t.Server = "mail.example.com:x" }, "server: "},
		{"an address instead of a server", func(t *Target) { t.Server = "smtp://user:canary@mail.example.com" }, "server: "},
		{"tls", func(t *Target) { t.TLS = "maybe" }, "tls: "},
		{"no sender", func(t *Target) { t.From = "" }, "from: "},
		{"two lines in the sender", func(t *Target) { t.From = "a@example.com\r\nBcc: canary@example.com" }, "from: "},
		{"two lines in the name", func(t *Target) { t.From = "=?utf-8?q?x=0d=0aBcc:_canary@example.com?= <a@example.com>" }, "from: "},
		{"a bracket in the sender", func(t *Target) { t.From = `"a>canary"@example.com` }, "from: "},
		{"no recipient", func(t *Target) { t.To = nil }, "to: "},
		{"too many", func(t *Target) { t.To = make([]string, 51) }, "to: "},
		{"a recipient that is none", func(t *Target) { t.To = []string{"a@example.com", "canary"} }, "to: "},
		{"a recipient not in ASCII", func(t *Target) { t.To = []string{"合同@example.com"} }, "to: "},
		{"two lines in the subject", func(t *Target) { t.Subject = "x\nBcc: canary@example.com" }, "subject: "},
		{"half a login", func(t *Target) { t.Username = "canary" }, "password: "},
		{"a zero byte", func(t *Target) { t.Username, t.Password = "a", "canary\x00" }, "password: "},
		{"query", func(t *Target) { t.KeyMode = KeyModeQuery }, "key_mode: "},
		{"keys of a webhook", func(t *Target) { t.URL = "https://canary" }, "url: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := Target{Kind: KindEmail, Server: "mail.example.com", From: "a@example.com", To: []string{"b@example.com"}}
			tt.change(&target)
			s, err := New(target)
			if tt.want == "" {
				if err != nil || s == nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || s != nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Fatalf("got %v, want a finding that begins with %q", err, tt.want)
			}
			// The only finding, but for the too many that are also empty.
			var joined interface{ Unwrap() []error }
			if errors.As(err, &joined) && len(joined.Unwrap()) != 1 && tt.name != "too many" {
				t.Errorf("got %v, want one finding", err)
			}
			wantNoSecret(t, err.Error())
		})
	}
}

// What a model writes is text between the lines that are ours, whatever it is.
func TestWhatAModelWroteStaysInItsLines(t *testing.T) {
	m := testMail
	m.Payload = []byte(`{"type":"action.sign.compensate","data":{"webhookId":"msg_0","action":"sign",` +
		`"arguments":{"note":"first\nWebhook-Id: forged\r\n.\r\nBcc: x@example.com","a: b\nc":"x","rtl":"\u202egnp","nul":"\u0000\u0085",` +
		`"n":[1,true,null,{"deep":[]},["x\ny"]],"empty":{},"s":""}}}`)
	subject, text := render(m)
	const want = `type: action.sign.compensate
data:
  webhookId: msg_0
  action: sign
  arguments:
    note:
      | first
      | Webhook-Id: forged
      | .
      | Bcc: x@example.com
    "a: b\nc": x
    rtl: \u202egnp
    nul: \u0000\u0085
    n:
      - 1
      - true
      - null
      -
        deep:
          []
      -
        -
          | x
          | y
    empty:
      {}
    s: 

--
This message may come twice; then its Webhook-Id and Message-ID are the same.
Webhook-Id: msg_2KWPBgLlAfxdpx2AI54pPJ85f4W
`
	if text != want || subject != "Semel: sign (to be undone)" {
		t.Errorf("got %q\n%s\nwant\n%s", subject, text, want)
	}
	server := newMailServer(t, nil)
	wantResult(t, mustNew(t, server.target()).Deliver(t.Context(), m), chat.OutcomeOK, "")
	msg, err := netmail.ReadMessage(strings.NewReader(server.got()[0].text))
	if err != nil || len(server.got()[0].to) != 2 || msg.Header.Get("Bcc") != "" || msg.Header.Get("Webhook-Id") != m.WebhookID {
		t.Errorf("got %+v, %v", msg, err)
	}
	body, _ := io.ReadAll(quotedprintable.NewReader(msg.Body))
	if got := strings.ReplaceAll(string(body), "\r\n", "\n"); got != want && got != want+"\n" {
		t.Errorf("arrived as\n%s", got)
	}
	// A name that could not be a header's is no part of one.
	m.Payload = []byte(`{"data":{"action":"x\r\nBcc: y"}}`)
	if subject, _ := render(m); subject != "Semel" {
		t.Errorf("got the subject %q", subject)
	}
}

func TestAMailNeedsAnIDThatCanBeItsOwn(t *testing.T) {
	sink := mustNew(t, Target{Kind: KindEmail, Server: "mail.example.com", From: "a@example.com", To: []string{"b@example.com"}})
	for _, id := range []string{"", "a b", "a>", "a@b", "a\r\nBcc: c"} {
		m := testMail
		m.WebhookID = id
		wantResult(t, sink.Deliver(t.Context(), m), chat.OutcomeNone, CodeBadMessage)
	}
}

func FuzzRender(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":"c\n"}],"d":1e5}`))
	f.Add([]byte(`"x`))
	f.Add([]byte(strings.Repeat("[", 5000) + strings.Repeat("]", 5000)))
	f.Fuzz(func(t *testing.T, payload []byte) {
		_, text := render(Message{WebhookID: "msg_1", Payload: payload})
		if strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), isHidden) {
			t.Errorf("%q has what cannot be seen", text)
		}
		if n := strings.Count(text, "\nWebhook-Id: "); n != 1 {
			t.Errorf("%q has %d lines with the id", text, n)
		}
	})
}
