package outbox

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	netmail "net/mail"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"semel/chat"
)

// An email delivers to a mail server. Its steps are taken here one by one and not by
// the library's Send, because what is known of a try depends on how far it came:
// before the dot that ends the message a server must forget it when the line is lost
// (RFC 5321, section 4.1.1.10), after it nobody knows until there is a reply.
type email struct {
	server     string // host:port
	host       string
	tls        string
	config     *tls.Config
	guard      guard
	from       *netmail.Address
	to         []*netmail.Address
	subject    string
	user, pass string
	timeout    time.Duration
}

func newEmail(t Target, wrong *findings) Sink {
	e := &email{
		tls: t.TLS, subject: t.Subject, user: t.Username, pass: t.Password, timeout: t.Timeout,
		guard: guard{allow: t.Allow},
	}
	port := "587"
	switch t.TLS {
	case "":
		e.tls = TLSStart
	case TLSStart:
	case TLSImplicit:
		port = "465"
	case TLSNone:
		port = "25"
		e.guard.inClear, e.guard.here = true, true
	default:
		wrong.add("tls", "must be %q, %q or %q", TLSStart, TLSImplicit, TLSNone)
	}
	var err error
	if e.host, port, err = splitServer(t.Server, port); err != nil {
		wrong.add("server", "%w", err)
	} else if !e.guard.checkHost(strings.ToLower(e.host)) {
		if e.guard.here {
			wrong.add("tls", "%q is for a mail server on this machine whose address allow has", TLSNone)
		} else {
			wrong.add("server", "%s is an address of this machine, of a private network or for a special purpose; where it is meant, allow must have it", e.host)
		}
	}
	e.server = net.JoinHostPort(e.host, port)
	e.config = &tls.Config{ServerName: e.host, RootCAs: t.RootCAs, MinVersion: tls.VersionTLS12}
	if e.from, err = parseAddress(t.From); err != nil {
		wrong.add("from", "%w", err)
	}
	if len(t.To) == 0 || len(t.To) > 50 {
		wrong.add("to", "must be 1 to 50 addresses")
	}
	for _, s := range t.To {
		a, err := parseAddress(s)
		if err != nil {
			wrong.add("to", "%w", err)
			break
		}
		e.to = append(e.to, a)
	}
	if len(t.Subject) > 200 || strings.ContainsFunc(t.Subject, unicode.IsControl) {
		wrong.add("subject", "must be one line of at most 200 bytes")
	}
	switch {
	case (t.Username == "") != (t.Password == ""):
		wrong.add("password", "is given with username, and only then")
	case strings.ContainsRune(t.Username, 0) || strings.ContainsRune(t.Password, 0):
		wrong.add("password", "neither it nor username can have a zero byte")
	}
	switch t.KeyMode {
	case "", KeyModeNone, KeyModeKeyed:
	default:
		wrong.add("key_mode", "of an e-mail must be %q, or %q where its receiver knows a Message-ID again", KeyModeNone, KeyModeKeyed)
	}
	for _, name := range []struct {
		key   string
		given bool
	}{{"url", t.URL != ""}, {"secrets", len(t.Secrets) > 0}, {"status_url", t.StatusURL != ""}} {
		if name.given {
			wrong.add(name.key, "an e-mail has no use for it")
		}
	}
	return e
}

func splitServer(s, port string) (host, withPort string, err error) {
	host = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if h, p, err := net.SplitHostPort(s); err == nil {
		host, port = h, p
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" || len(host) > 253 || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/@[]?#", r) }) {
		return host, port, errors.New("must be a host, or host:port")
	}
	return host, port, nil
}

var errAddress = errors.New("must be mail addresses in ASCII, like Contracts <contracts@example.com>")

// parseAddress refuses what a command of SMTP could not carry everywhere.
func parseAddress(s string) (*netmail.Address, error) {
	a, err := netmail.ParseAddress(s)
	if err != nil || len(s) > 320 || strings.ContainsFunc(a.Name, unicode.IsControl) ||
		strings.ContainsFunc(a.Address, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`<>"\`, r) }) {
		return nil, errAddress
	}
	return a, nil
}

// Deliver implements [Sink].
func (e *email) Deliver(ctx context.Context, m Message) Result {
	text, err := e.compose(m)
	if err != nil {
		return Result{Outcome: chat.OutcomeNone, Code: CodeBadMessage, Detail: "The message cannot be written as an e-mail."}
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	conn, err := e.guard.dial(ctx, "tcp", e.server)
	if err != nil {
		return e.failed(ctx, false, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	complete, err := e.send(&boundedConn{Conn: conn, left: replyBytes}, text)
	var reply *textproto.Error
	switch {
	case err == nil:
		return Result{Outcome: chat.OutcomeOK, Status: 250}
	case !errors.As(err, &reply):
		return e.failed(ctx, complete, err)
	case complete && reply.Code/100 == 2: // only 250 is expected, but this says the same
		return Result{Outcome: chat.OutcomeOK, Status: reply.Code}
	case reply.Code/100 == 4:
		return Result{Outcome: chat.OutcomeDefinite, Status: reply.Code, Code: CodeReceiverBusy, Detail: fmt.Sprintf("%s cannot take it now: reply %d.", e.server, reply.Code)}
	case reply.Code/100 == 5:
		return Result{Outcome: chat.OutcomeDefinite, Status: reply.Code, Code: CodeReceiverRefused, Detail: fmt.Sprintf("%s refused it: reply %d.", e.server, reply.Code)}
	}
	r := Result{Outcome: chat.OutcomeNone, Code: CodeBadAnswer, Detail: e.server + " gave a reply that means nothing here."}
	if complete {
		r.Outcome, r.Status = chat.OutcomeUnknown, reply.Code
	}
	return r
}

// failed judges a try that brought no reply.
func (e *email) failed(ctx context.Context, complete bool, err error) Result {
	r := Result{Outcome: chat.OutcomeNone}
	r.Code, r.Detail = explain(ctx, err, e.server)
	switch {
	case errors.Is(err, errNoTLS):
		r.Code, r.Detail = CodeTLSMissing, e.server+" offers no encryption, without which nothing is sent."
	case errors.Is(err, errNoLogin):
		r.Code, r.Detail = CodeUnreachable, e.server+" offers no way to log in with a password."
	case complete:
		r.Outcome = chat.OutcomeUnknown
		if r.Code == CodeUnreachable {
			r.Code, r.Detail = CodeLineLost, "The connection to "+e.server+" ended before it replied."
		}
	}
	return r
}

var (
	errNoTLS   = errors.New("no STARTTLS")
	errNoLogin = errors.New("no AUTH PLAIN or LOGIN")
)

// send reports whether the message was sent up to its end: then it may have been
// accepted whatever the error is.
func (e *email) send(conn net.Conn, text []byte) (complete bool, err error) {
	if e.tls == TLSImplicit {
		conn = tls.Client(conn, e.config)
	}
	c, err := smtp.NewClient(conn, e.host)
	if err != nil {
		return false, err
	}
	defer func() {
		var reply *textproto.Error
		if err == nil || errors.As(err, &reply) {
			// Who replies is told the end, but not waited for long: all is known.
			if conn.SetDeadline(time.Now().Add(quitWait)) == nil {
				_ = c.Quit()
			}
		}
	}()
	_, domain, _ := strings.Cut(e.from.Address, "@")
	if err := c.Hello(domain); err != nil {
		return false, err
	}
	if e.tls == TLSStart {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return false, errNoTLS
		}
		if err := c.StartTLS(e.config); err != nil {
			return false, err
		}
	}
	if e.user != "" {
		if err := e.login(c); err != nil {
			return false, err
		}
	}
	if err := c.Mail("<" + e.from.Address + ">"); err != nil {
		return false, err
	}
	for _, a := range e.to { // all of them or none
		if err := c.Rcpt("<" + a.Address + ">"); err != nil {
			return false, err
		}
	}
	w, err := c.Data()
	if err != nil {
		return false, err
	}
	if _, err := w.Write(text); err != nil {
		return false, err
	}
	return true, w.Close() // writes the dot and reads the reply
}

// quitWait is how long a mail server may take to say good-bye.
const quitWait = 2 * time.Second

// login shows the password only to who is known by a certificate, or is on this
// machine.
func (e *email) login(c *smtp.Client) error {
	_, offered := c.Extension("AUTH")
	switch mechanisms := strings.Fields(offered); {
	case slices.Contains(mechanisms, "PLAIN"):
		return c.Auth(smtp.PlainAuth("", e.user, e.pass, e.host, e.tls == TLSNone))
	case slices.Contains(mechanisms, "LOGIN"):
		return c.Auth(smtp.LoginAuth(e.user, e.pass, e.host, e.tls == TLSNone))
	}
	return errNoLogin
}

// A boundedConn gives up on a server that talks without end: textproto would keep a
// line of any length.
type boundedConn struct {
	net.Conn
	left int
}

const replyBytes = 256 << 10

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// compose writes the message. Its Message-ID is made of the webhook-id alone, so that
// it is the same in every try.
func (e *email) compose(m Message) ([]byte, error) {
	if !isMessageID(m.WebhookID) || strings.ContainsAny(m.WebhookID, `()<>[]:;@\,"`) {
		return nil, ErrHeaders
	}
	_, domain, _ := strings.Cut(e.from.Address, "@")
	subject, text := render(m)
	if e.subject != "" {
		subject = e.subject
	}
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent(), mail.WithEncoding(mail.EncodingQP))
	msg.FromMailAddress(e.from)
	msg.ToMailAddress(e.to...)
	msg.Subject(subject)
	msg.SetDateWithValue(m.At.UTC())
	msg.SetMessageIDWithValue(m.WebhookID + "@" + domain)
	msg.SetGenHeader("Webhook-Id", m.WebhookID)
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // so that no absence is reported to it
	msg.SetBodyString(mail.TypeTextPlain, text)
	var b bytes.Buffer
	_, err := msg.WriteTo(&b)
	return b.Bytes(), err
}
