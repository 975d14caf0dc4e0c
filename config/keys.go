package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"semel/seal"
)

// configKeys are the scalars of semel.toml, in the order they are printed. Each
// is also SEMEL_ and its name in the environment.
var configKeys = []key[Config]{
	text("listen", "Address and port of the server. On one that others can reach there are accounts, or only the page that makes the first.",
		func(c *Config) *string { return &c.Listen }, checkListen),
	text("db", "The database file. In a file, relative to that file.",
		func(c *Config) *string { return &c.DB }, checkDB),
	text("language", "Language of the pages: auto (as the browser asks), en or zh-CN.",
		func(c *Config) *string { return &c.Language }, oneOf("auto", "en", "zh-CN")),
	text("log", "How the log is written: text for people, json for programs.",
		func(c *Config) *string { return &c.Log }, oneOf("text", "json")),
	text("log_level", "What is logged: info, or debug with a line for every stage of every request.",
		func(c *Config) *string { return &c.LogLevel }, oneOf("info", "debug")),

	number("limits.queue", "Requests that may wait; one more is answered 503 with Retry-After.",
		func(c *Config) *int { return &c.Limits.Queue }, 1, 1_000_000),
	number("limits.per_user_per_minute", "New intents of one user a minute, repeats not counted; one more is answered 429. 0 is no limit.",
		func(c *Config) *int { return &c.Limits.PerUserPerMinute }, 0, 1_000_000),
	number("limits.running_per_user", "With accounts: answers that one user may have running at once; more wait their turn. 0 is no cap.",
		func(c *Config) *int { return &c.Limits.RunningPerUser }, 0, 1_000_000),
	number("limits.spend_per_user_per_day", "Micros that the questions of one user may cost in a day (UTC); who has spent as much is answered 429 until it ends. 0 is no cap.",
		func(c *Config) *int64 { return &c.Limits.SpendPerUserPerDay }, 0, maxPrice),
	size("limits.message_bytes", "Longest question, in bytes or like \"256KiB\".",
		func(c *Config) *int64 { return &c.Limits.MessageBytes }, 1, 16<<20),
	number("limits.attachments", "Files that a question may carry.",
		func(c *Config) *int { return &c.Limits.Attachments }, 1, 100),
	size("limits.attachment_bytes", "Largest file, in bytes or like \"5MiB\". Many providers take images up to 5 MiB.",
		func(c *Config) *int64 { return &c.Limits.AttachmentBytes }, 1, 64<<20),
	size("limits.attached_bytes", "All files of a question together, in bytes or like \"20MiB\".",
		func(c *Config) *int64 { return &c.Limits.AttachedBytes }, 1, 256<<20),

	span("retention.evidence", "How long repeats among the arrivals, texts of attempts that were not used, and tombstones of ULIDs are kept.",
		func(c *Config) *time.Duration { return &c.Retention.Evidence }, time.Hour, 100*365*24*time.Hour),
	span("retention.uploads", "How long a file is kept that was uploaded and is not sent.",
		func(c *Config) *time.Duration { return &c.Retention.Uploads }, time.Hour, 100*365*24*time.Hour),

	span("server.drain", "How long running answers may go on after SIGTERM.",
		func(c *Config) *time.Duration { return &c.Server.Drain }, 0, 10*time.Minute),
	text("server.tls_cert", "The certificate and those that lead to its root, in PEM; read anew when the file changes. In a file, relative to that file.",
		func(c *Config) *string { return &c.Server.TLSCert }, checkFile),
	text("server.tls_key", "The key of the certificate, in PEM.",
		func(c *Config) *string { return &c.Server.TLSKey }, checkFile),
	truth("server.tls_self_signed", "Whether to make a certificate and keep it beside the database; browsers warn until they are told of its fingerprint.",
		func(c *Config) *bool { return &c.Server.TLSSelfSigned }),
	proxies,

	span("sessions.idle", "With accounts: how long one stays signed in without doing anything.",
		func(c *Config) *time.Duration { return &c.Sessions.Idle }, time.Minute, 100*365*24*time.Hour),
	span("sessions.absolute", "With accounts: how long one stays signed in at the most.",
		func(c *Config) *time.Duration { return &c.Sessions.Absolute }, time.Minute, 100*365*24*time.Hour),

	text("billing.currency", "Currency of every price, three letters. Prices are in millionths of it.",
		func(c *Config) *string { return &c.Billing.Currency }, checkCurrency),
	text("billing.deliver", "Name of a destination that gets every charge through the outbox.",
		func(c *Config) *string { return &c.Billing.Deliver }, anything),

	span("verify.every", "How often the invariants are checked unasked, beside the answers; the first time a minute after the start. 0 is never.",
		func(c *Config) *time.Duration { return &c.Verify.Every }, 0, 100*365*24*time.Hour),
	text("lab.enabled", "The lab starts programs of its own: auto is only where no other machine reaches this server; or on, or off.",
		func(c *Config) *string { return &c.Lab.Enabled }, oneOf("auto", "on", "off")),

	span("backup.every", "How often the server makes a backup by itself; 0s is never.",
		func(c *Config) *time.Duration { return &c.Backup.Every }, 0, 100*24*time.Hour),
	number("backup.keep", "How many of the newest backups are kept. Older ones that the server made are removed, but for the next two keys.",
		func(c *Config) *int { return &c.Backup.Keep }, 1, 10_000),
	number("backup.keep_weekly", "Of how many weeks, from Monday and UTC, the last backup is kept, too. 0 is none.",
		func(c *Config) *int { return &c.Backup.Weekly }, 0, 1000),
	number("backup.keep_monthly", "Of how many months the last backup is kept, too. 0 is none.",
		func(c *Config) *int { return &c.Backup.Monthly }, 0, 1000),
	text("backup.directory", "Where they are; relative to the database.",
		func(c *Config) *string { return &c.Backup.Directory }, checkPath),
	encryptTo,

	size("disk.ballast", "Size of a file that is given up when the disk is full, so that answers that run can end, in bytes or like \"64MiB\". 0 is none.",
		func(c *Config) *int64 { return &c.Disk.Ballast }, 0, 16<<30),
}

// modelKeys are the keys of one [[models]].
var modelKeys = []key[Model]{
	text("name", "The name people choose it by.",
		func(m *Model) *string { return &m.Name }, checkName),
	text("preset", "A provider by name; gives provider, url and quirks where they are not given themselves.",
		func(m *Model) *string { return &m.Preset }, notEmpty), // loadModel knows which there are
	text("provider", "Who answers: demo (needs no key and no network), openai (chat completions, which most speak), openai-responses or anthropic.",
		func(m *Model) *string { return &m.Provider }, oneOf(providers...)),
	number("price.input", "Micros per million input tokens.",
		func(m *Model) *int64 { return &m.Price.Input }, 0, maxPrice),
	number("price.cached", "Micros per million input tokens that the provider had cached; as input when left out.",
		func(m *Model) *int64 { return &m.Price.Cached }, 0, maxPrice),
	number("price.output", "Micros per million output tokens.",
		func(m *Model) *int64 { return &m.Price.Output }, 0, maxPrice),
	text("url", "Base address of the provider, up to the version: https://api.openai.com/v1.",
		func(m *Model) *string { return &m.URL }, checkURL),
	text("key", "Key of the provider, where it wants one.",
		func(m *Model) *Secret { return &m.Key }, checkKey),
	text("key_file", "File that holds the key, relative to this file.",
		func(m *Model) *string { return &m.KeyFile }, checkPath),
	text("upstream_model", "The name the provider knows it by, where it is not its name here.",
		func(m *Model) *string { return &m.UpstreamModel }, checkUpstreamModel),
	number("context", "Tokens that fit; the oldest turns are left out beyond. 0 is not known.",
		func(m *Model) *int64 { return &m.Context }, 0, 1<<40),
	number("max_attempts", "Refused attempts before a question fails.",
		func(m *Model) *int64 { return &m.MaxAttempts }, 1, 1000),
	number("max_crash_reruns", "Re-runs after a crash before a question fails.",
		func(m *Model) *int64 { return &m.MaxCrashReruns }, 0, 1000),
	text("on_unknown", "After a call that may or may not have run: rerun, or ask a person.",
		func(m *Model) *string { return &m.OnUnknown }, oneOf(OnUnknownRerun, OnUnknownAsk)),
	span("first_token_timeout", "Silence allowed before the first token.",
		func(m *Model) *time.Duration { return &m.FirstTokenTimeout }, time.Millisecond, 24*time.Hour),
	span("idle_timeout", "Silence allowed between tokens.",
		func(m *Model) *time.Duration { return &m.IdleTimeout }, time.Millisecond, 24*time.Hour),
	number("concurrency", "Calls that may run at once.",
		func(m *Model) *int { return &m.Concurrency }, 1, 100_000),
	truth("stream", "Whether answers come as they are written; false for a server of the provider openai that cannot.",
		func(m *Model) *bool { return &m.Stream }),
	truth("images", "Whether it takes images; false for a model that reads text only.",
		func(m *Model) *bool { return &m.Images }),
	truth("background", "With openai-responses: the provider keeps the run, so an answer is found again after a crash.",
		func(m *Model) *bool { return &m.Background }),
}

// listTables are the lists of tables.
var listTables = []string{"models", "actions", "destinations", "alerts"}

// maxPrice is a million units of the currency per million tokens.
const maxPrice = 1_000_000_000_000

// A key is one scalar of a T: of the program or of one model.
type key[T any] struct {
	name string
	doc  string // one line
	set  func(*T, value) error
	get  func(*T) string // in TOML
}

// A value is what was given for a key.
type value struct {
	val    any    // a string when text is set, else as TOML has it
	text   bool   // from the environment or a flag
	origin string // as [Config.Origin] returns it
	secret bool
	broken bool // it was refused
	copied bool // it stands elsewhere, where it is judged
}

// String is the value as a message shows it.
func (v value) String() string {
	if v.secret {
		return redacted
	}
	switch s := v.val.(type) {
	case string:
		if seal.IsIdentity(s) { // where a recipient should be
			return redacted
		}
		if utf8.RuneCountInString(s) > 100 {
			s = string([]rune(s)[:100]) + "…"
		}
		return strconv.Quote(s)
	case int64, float64, bool:
		return fmt.Sprint(s)
	case []any:
		return "[…]"
	}
	return "…"
}

func text[T any, S ~string](name, doc string, at func(*T) *S, check func(string) error) key[T] {
	return key[T]{
		name: name, doc: doc,
		set: func(t *T, v value) error {
			s, ok := v.val.(string)
			if !ok {
				return errors.New("must be a string")
			}
			if !utf8.ValidString(s) {
				return errors.New("must be UTF-8")
			}
			if err := check(s); err != nil {
				return err
			}
			*at(t) = S(s)
			return nil
		},
		get: func(t *T) string { return quote(string(*at(t))) },
	}
}

func number[T any, N int | int64](name, doc string, at func(*T) *N, low, high int64) key[T] {
	return key[T]{
		name: name, doc: doc,
		set: func(t *T, v value) error {
			n, ok := v.val.(int64)
			if v.text {
				var err error
				n, err = strconv.ParseInt(v.val.(string), 10, 64)
				ok = err == nil
			}
			if !ok {
				return errors.New("must be a whole number")
			}
			return within(n, low, high, func() { *at(t) = N(n) })
		},
		get: func(t *T) string { return fmt.Sprint(*at(t)) },
	}
}

func size[T any](name, doc string, at func(*T) *int64, low, high int64) key[T] {
	k := number(name, doc, at, low, high)
	k.set = func(t *T, v value) error {
		n, ok := v.val.(int64)
		if !ok {
			s, _ := v.val.(string)
			if n, ok = parseSize(s); !ok {
				return errors.New("must be a whole number of bytes, or one with KiB, MiB or GiB")
			}
		}
		return within(n, low, high, func() { *at(t) = n })
	}
	return k
}

func span[T any](name, doc string, at func(*T) *time.Duration, low, high time.Duration) key[T] {
	return key[T]{
		name: name, doc: doc,
		set: func(t *T, v value) error {
			s, _ := v.val.(string)
			d, err := time.ParseDuration(s)
			if err != nil {
				return errors.New(`must be a duration like "10s", "5m" or "720h"`)
			}
			if d < low || d > high {
				return fmt.Errorf("must be between %s and %s", short(low), short(high))
			}
			*at(t) = d
			return nil
		},
		get: func(t *T) string { return quote(short(*at(t))) },
	}
}

func truth[T any](name, doc string, at func(*T) *bool) key[T] {
	return key[T]{
		name: name, doc: doc,
		set: func(t *T, v value) error {
			b, ok := v.val.(bool)
			if v.text {
				b, ok = v.val == "true", v.val == "true" || v.val == "false"
			}
			if !ok {
				return errors.New("must be true or false")
			}
			*at(t) = b
			return nil
		},
		get: func(t *T) string { return strconv.FormatBool(*at(t)) },
	}
}

func within(n, low, high int64, set func()) error {
	if n < low || n > high {
		return fmt.Errorf("must be between %d and %d", low, high)
	}
	set()
	return nil
}

func parseSize(s string) (int64, bool) {
	unit := int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = strings.TrimSpace(n), u
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > math.MaxInt64/unit || n < 0 {
		return 0, false
	}
	return n * unit, true
}

// short is d without its zero minutes and seconds: "720h", not "720h0m0s".
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func checkListen(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("must be an address and a port, like 127.0.0.1:8787")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port must be a number from 0 to 65535")
	}
	return nil
}

// checkFile accepts a path, or none.
func checkFile(s string) error {
	if s == "" {
		return nil
	}
	return checkPath(s)
}

// listOf is a list of strings, which stand in the environment with commas.
func listOf(v value) ([]string, error) {
	if v.text {
		return strings.FieldsFunc(v.val.(string), func(r rune) bool { return r == ',' || r == ' ' }), nil
	}
	return stringsOf(v)
}

// proxies is a list of addresses and ranges of them; in the environment, with commas.
var proxies = key[Config]{
	name: "server.trusted_proxies", doc: "Addresses and ranges of the proxies before this server, whose X-Forwarded-For and X-Forwarded-Proto count.",
	set: func(c *Config, v value) error {
		list, err := listOf(v)
		if err != nil {
			return err
		}
		c.Server.TrustedProxies = nil
		for _, s := range list {
			p, err := netip.ParsePrefix(s)
			if ip, ierr := netip.ParseAddr(s); ierr == nil && ip.Zone() == "" {
				p, err = netip.PrefixFrom(ip, ip.BitLen()), nil
			}
			if err != nil {
				return fmt.Errorf("%q is no address and no range, like 10.0.0.2 or 10.0.0.0/8", s)
			}
			if p.Bits() == 0 {
				return fmt.Errorf("%s is everybody: name the proxies", s)
			}
			c.Server.TrustedProxies = append(c.Server.TrustedProxies, p.Masked())
		}
		return nil
	},
	get: func(c *Config) string {
		var list []string
		for _, p := range c.Server.TrustedProxies {
			list = append(list, p.String())
		}
		return quoteAll(list)
	},
}

// encryptTo is a list of recipients; in the environment, with commas.
var encryptTo = key[Config]{
	name: "backup.encrypt_to", doc: "Recipients of age, age1…: whoever has the identity of any of them can restore a backup that the server made. [] encrypts none.",
	set: func(c *Config, v value) error {
		list, err := listOf(v)
		if err != nil {
			return err
		}
		c.Backup.EncryptTo, err = seal.ParseRecipients(list)
		return err
	},
	get: func(c *Config) string { return quoteAll(c.Backup.EncryptTo.Strings()) },
}

func checkDB(s string) error {
	switch {
	case s == "":
		return errors.New("must not be empty")
	case strings.HasPrefix(s, ":") || strings.HasPrefix(s, "file:"):
		// What was answered must be there after a crash, and one lock names one file.
		return errors.New("must be a plain file path")
	case strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("must not contain control characters")
	}
	return nil
}

func checkCurrency(s string) error {
	if len(s) != 3 || strings.ContainsFunc(s, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		return errors.New(`must be three capital letters, like "USD"`)
	}
	return nil
}

func anything(string) error { return nil }

func notEmpty(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return nil
}

func oneOf(words ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("must be one of %s", strings.Join(words, ", "))
		}
		return nil
	}
}

func knownKey[T any](keys []key[T], name string) *key[T] {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

func keyNames[T any](keys []key[T]) []string {
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	return names
}

// fileKeys are all names that may stand at the top of the file.
func fileKeys() []string {
	names := keyNames(configKeys)
	under := func(list string, keys []string) {
		for _, k := range keys {
			names = append(names, list+"."+k)
		}
	}
	under("models", keyNames(modelKeys))
	under("actions", keyNames(actionKeys))
	under("destinations", keyNames(destinationKeys))
	under("alerts", keyNames(alertKeys))
	return names
}

func unknownKey(prefix string, s setting, known []string) error {
	if isTable(s.name) {
		return fmt.Errorf("%s%s (%s): must be a table", prefix, s.name, s.origin)
	}
	return fmt.Errorf("unknown key %q (%s); the nearest known key is %q", prefix+s.name, s.origin, prefix+nearest(s.name, known))
}

// nearest returns the name in known that is the fewest typing mistakes away. A
// key put in the wrong table counts as one mistake.
func nearest(name string, known []string) string {
	best, fewest := "", math.MaxInt
	for _, k := range known {
		d := min(mistakes(name, k), 1+mistakes(last(name), last(k)))
		if d < fewest {
			best, fewest = k, d
		}
	}
	return best
}

func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// mistakes is the Levenshtein distance between a and b, of which only the first
// 100 bytes count.
func mistakes(a, b string) int {
	a, b = a[:min(len(a), 100)], b[:min(len(b), 100)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
