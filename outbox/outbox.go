// Package outbox is how a message leaves: a webhook or an e-mail, signed or named
// so that its receiver can tell a repeat, tried once, and judged by what can be
// known of the try. When it is tried again, and whether, is the relay's affair.
package outbox

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"semel/chat"
)

// A Message is what is delivered: fixed bytes under a stable id.
type Message struct {
	WebhookID string
	At        time.Time // of this delivery: the signature's timestamp
	Payload   []byte
}

// A Result says what is known of one delivery. Nothing in it is secret.
type Result struct {
	// Outcome is ok, none (nothing that could be executed left this machine),
	// definite (an answer that is no 2xx) or unknown (it may have been executed).
	Outcome    chat.Outcome
	Status     int           // HTTP or SMTP status, 0 without one
	RetryAfter time.Duration // as asked for, at most a day; 0 when not
	Gone       bool          // 410: the destination wants no more, ever
	Code       string        // one of Codes, "" when it went well
	Detail     string        // one sentence for a person
}

// Codes of deliveries that did not go well.
const (
	CodeBadMessage      = "bad_message"      // none: it cannot be sent to anybody
	CodeAddressRefused  = "address_refused"  // none: the address is not one that may be called
	CodeUnreachable     = "unreachable"      // none: no name, no connection, no trusted certificate
	CodeTLSMissing      = "tls_missing"      // none: the mail server offers no encryption
	CodeTimeout         = "timeout"          // none or unknown: no answer in time
	CodeInterrupted     = "interrupted"      // none or unknown: this server stopped waiting
	CodeLineLost        = "line_lost"        // none or unknown: the connection ended before an answer
	CodeBadAnswer       = "bad_answer"       // none or unknown: an answer that is not understood
	CodeReceiverFailed  = "receiver_failed"  // unknown: 408, 500, 502, 504 and their like
	CodeReceiverBusy    = "receiver_busy"    // definite: 429, 503, or an SMTP reply of 4xx
	CodeReceiverRefused = "receiver_refused" // definite: any other status
	CodeReceiverGone    = "receiver_gone"    // definite: 410
	CodeRedirectRefused = "redirect_refused" // definite: 3xx
)

// Codes are all codes that a Result can have.
var Codes = []string{
	CodeBadMessage, CodeAddressRefused, CodeUnreachable, CodeTLSMissing, CodeTimeout, CodeInterrupted, CodeLineLost,
	CodeBadAnswer, CodeReceiverFailed, CodeReceiverBusy, CodeReceiverRefused, CodeReceiverGone, CodeRedirectRefused,
}

// A Sink takes messages to one destination. It is safe for use by many goroutines
// at once.
type Sink interface {
	// Deliver tries once and never again by itself. It returns when the try is over:
	// with its answer, or when it has no more time, or when ctx ends.
	Deliver(ctx context.Context, m Message) Result
}

// A Querier is a sink whose receiver can be asked.
type Querier interface {
	Sink
	// Executed asks the receiver whether it has executed a message. The answer is
	// known only where the result's outcome is ok.
	Executed(ctx context.Context, webhookID string) (executed bool, r Result)
}

// Kinds of destinations.
const (
	KindWebhook = "webhook"
	KindEmail   = "email"
)

// What the receiver remembers of a webhook-id.
const (
	KeyModeKeyed = "keyed" // it knows a repeat, for as long as KeyTTL
	KeyModeQuery = "query" // the same, and it can be asked, at StatusURL
	KeyModeNone  = "none"  // nothing
)

// How a mail server is spoken to.
const (
	TLSStart    = "starttls" // encryption begins with a command, and without it nothing is sent
	TLSImplicit = "implicit" // encrypted from the first byte
	TLSNone     = "none"     // only to this machine, where Allow has its address
)

// A Target describes a destination. It holds secrets: for people there is String.
type Target struct {
	Kind        string
	Timeout     time.Duration // of one try; 0 is 15 s
	MaxAttempts int64         // MaxAttempts, Backoff and KeyTTL are for the relay
	Backoff     time.Duration
	// Allow has the addresses that may be called although they are of this machine,
	// of a private network, or spoken to without encryption.
	Allow   []netip.Prefix
	KeyMode string // "" is keyed for a webhook, none for an e-mail
	KeyTTL  time.Duration
	RootCAs *x509.CertPool // whose certificates are trusted; nil is the system's

	// of a webhook
	URL       string
	Secrets   []string // whsec_…, the newest first: every one of them signs
	StatusURL string   // with key mode query, and only then

	// of an e-mail
	Server             string // host or host:port
	TLS                string // "" is starttls
	From               string
	To                 []string
	Subject            string // "" names the action
	Username, Password string // both or none
}

const (
	defaultTimeout = 15 * time.Second
	maxTimeout     = 10 * time.Minute
)

// New returns the sink of a destination. It checks everything that can be checked
// without the network; its errors begin with the key of the configuration that is
// wrong, one a line, and hold no secret.
func New(t Target) (Sink, error) {
	var wrong findings
	if t.Timeout == 0 {
		t.Timeout = defaultTimeout
	}
	if t.Timeout < 0 || t.Timeout > maxTimeout {
		wrong.add("timeout", "must be longer than nothing and at most %s", maxTimeout)
	}
	if t.MaxAttempts < 0 {
		wrong.add("max_attempts", "must not be negative")
	}
	if t.Backoff < 0 {
		wrong.add("backoff", "must not be negative")
	}
	if t.KeyTTL < 0 {
		wrong.add("key_ttl", "must not be negative")
	}
	for _, p := range t.Allow {
		if !p.IsValid() || p.Addr().Is4In6() {
			wrong.add("allow", "%s is not a range of IPv4 or IPv6 addresses", p)
		}
	}
	t.Allow, t.Secrets, t.To = slices.Clone(t.Allow), slices.Clone(t.Secrets), slices.Clone(t.To)
	var s Sink
	switch t.Kind {
	case KindWebhook:
		s = newWebhook(t, &wrong)
	case KindEmail:
		s = newEmail(t, &wrong)
	default:
		wrong.add("kind", "must be %q or %q", KindWebhook, KindEmail)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return s, nil
}

type findings []error

func (f *findings) add(key, format string, args ...any) {
	*f = append(*f, fmt.Errorf(key+": "+format, args...))
}

// String says where the target is, for people: without user, password, secrets and
// the values of a query.
func (t Target) String() string {
	if t.Kind == KindEmail {
		return "email " + strings.Join(t.To, ", ")
	}
	u, err := url.Parse(t.URL)
	if err != nil || u.Host == "" {
		return t.Kind
	}
	return t.Kind + " " + (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// GoString and MarshalText keep the secrets out of %#v, logs and JSON, too.
func (t Target) GoString() string { return "outbox.Target{" + t.String() + "}" }

// MarshalText implements [encoding.TextMarshaler].
func (t Target) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
