// Package config reads how Semel is to run: flags, the environment, semel.toml
// and the defaults, in that precedence.
//
// Nothing is guessed and nothing is ignored: an unknown key, a value out of
// bounds or a key that this version cannot honour is an error that names the
// key, the value and the place it came from.
package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"semel/chat"
	"semel/seal"
)

// FileName is the file looked for beside the database.
const FileName = "semel.toml"

// A Config is everything in force. It is not changed after [Load].
type Config struct {
	Listen    string
	DB        string
	Language  string // "auto", "en" or "zh-CN"
	Log       string // "text" or "json"
	LogLevel  string // "info" or "debug"
	Limits    Limits
	Retention Retention
	Models    []Model // never empty; the first is the default model
	Server    Server
	Sessions  Sessions
	Billing   Billing
	Verify    Verify
	Alerts    []Alert // one of each kind
	Lab       Lab
	Backup    Backup
	Disk      Disk
	Actions   []Action
	// Destinations have names for other settings.
	Destinations []Destination

	origins map[string]string // by key, as [Config.Origin] returns them; absent is default
}

// Limits bound what clients may ask for.
type Limits struct {
	Queue            int // requests waiting
	PerUserPerMinute int // new intents; 0 is no limit
	RunningPerUser   int // with accounts; 0 is no cap
	// SpendPerUserPerDay is in micros; 0 is no cap.
	SpendPerUserPerDay int64
	MessageBytes       int64
	Attachments        int   // files of a question
	AttachmentBytes    int64 // of a file
	AttachedBytes      int64 // of all files of a question
}

// Retention says how long what is kept.
type Retention struct {
	Evidence time.Duration
	Uploads  time.Duration
}

// Server is how the HTTP server behaves.
type Server struct {
	Drain time.Duration
	// TLSCert and TLSKey are files in PEM, both or none; TLSSelfSigned has a certificate
	// made instead.
	TLSCert, TLSKey string
	TLSSelfSigned   bool
	// TrustedProxies are the addresses whose forwarded headers count.
	TrustedProxies []netip.Prefix
}

// Sessions say how long people stay signed in.
type Sessions struct {
	Idle     time.Duration // without a request
	Absolute time.Duration
}

// Backup is what the server does by itself so that there is a way back.
type Backup struct {
	Every     time.Duration // 0 is never
	Keep      int
	Weekly    int // of each week the last, of so many weeks; beside Keep
	Monthly   int // likewise
	Directory string
	EncryptTo seal.Recipients // none: it is not encrypted
}

// Disk is how the server meets a full disk.
type Disk struct {
	Ballast int64 // bytes; 0 is none
}

// Billing is how money is shown, and who is told of it.
type Billing struct {
	Currency string
	Deliver  string // name of the destination that gets every charge, "" for none
}

// Verify is how the invariants are checked unasked.
type Verify struct {
	Every time.Duration // 0 is never
}

// Lab is whether there is a lab, which starts programs.
type Lab struct {
	Enabled string // "auto", "on" or "off"
}

// A Secret shows itself as "***" wherever it is printed, logged or encoded.
// string(s) is the secret itself.
type Secret string

const redacted = "***"

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString implements [fmt.GoStringer].
func (s Secret) GoString() string { return `config.Secret("` + s.String() + `")` }

// MarshalText implements [encoding.TextMarshaler].
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Default is what runs when nothing is configured: the demo model on loopback.
func Default() *Config {
	demo := modelDefaults(ProviderDemo)
	demo.Name = "demo"
	return &Config{
		Listen:   "127.0.0.1:8787",
		DB:       "semel.db",
		Language: "auto",
		Log:      "text",
		LogLevel: "info",
		Limits: Limits{
			Queue:            1000,
			PerUserPerMinute: 600,
			RunningPerUser:   8,
			MessageBytes:     262144,
			Attachments:      chat.DefaultAttachmentLimits.Count,
			AttachmentBytes:  chat.DefaultAttachmentLimits.Bytes,
			AttachedBytes:    chat.DefaultAttachmentLimits.Total,
		},
		Retention: Retention{Evidence: 720 * time.Hour, Uploads: 168 * time.Hour},
		Models:    []Model{demo},
		Server:    Server{Drain: 10 * time.Second},
		Sessions:  Sessions{Idle: 12 * time.Hour, Absolute: 168 * time.Hour},
		Billing:   Billing{Currency: "USD"},
		Verify:    Verify{Every: 24 * time.Hour},
		Alerts:    defaultAlerts(),
		Lab:       Lab{Enabled: "auto"},
		Backup:    Backup{Every: 24 * time.Hour, Keep: 7, Weekly: 4, Monthly: 12, Directory: "backups"},
		Disk:      Disk{Ballast: 64 << 20},
		origins:   map[string]string{},
	}
}

// Loopback reports whether only this machine can reach addr, which may lack its port.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// A Source is where a configuration is read from.
type Source struct {
	// Flags are the flags that were given, by key.
	Flags map[string]string
	// File is semel.toml. "" looks for it in SEMEL_CONFIG and then beside the
	// database, where it may be missing.
	File string
	// Environ is the environment, as [os.Environ] returns it.
	Environ []string
	// Presets are the providers that a model may name by preset.
	Presets []Preset
}

// Load returns the configuration in force. An error lists everything that is
// wrong, one finding a line; the Config is nil then.
func Load(s Source) (*Config, error) {
	env, err := readEnviron(s.Environ)
	if err != nil {
		return nil, err
	}
	path := s.File
	if path == "" {
		path = env.file
	}
	beside := path == ""
	if beside {
		db := Default().DB
		if v, ok := env.values["db"]; ok {
			db = v.val.(string)
		}
		if v, ok := s.Flags["db"]; ok {
			db = v
		}
		path = filepath.Join(filepath.Dir(db), FileName)
	}
	data, err := readSmallFile(path, maxFileBytes)
	if err != nil && !(beside && errors.Is(err, os.ErrNotExist)) {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return load(path, data, env, s)
}

// load is Load without looking for anything.
func load(path string, data []byte, env environ, s Source) (*Config, error) {
	f, err := parseFile(path, data)
	if err != nil {
		return nil, err
	}
	c := Default()
	var wrong findings
	in := map[string]value{} // the winner of each key
	for _, given := range f.settings {
		if knownKey(configKeys, given.name) == nil {
			wrong = append(wrong, unknownKey("", given, fileKeys()))
			continue
		}
		in[given.name] = given.value
	}
	for name, v := range env.values {
		in[name] = v
	}
	for name, text := range s.Flags {
		if knownKey(configKeys, name) == nil {
			panic("config: flag for an unknown key " + name)
		}
		in[name] = value{val: text, text: true, origin: "flag --" + name}
	}
	for _, k := range configKeys {
		v, ok := in[k.name]
		if !ok {
			continue
		}
		if err := k.set(c, v); err != nil {
			wrong.add("%s = %s (%s): %w", k.name, v, v.origin, err)
			continue
		}
		c.origins[k.name] = v.origin
	}
	if v, ok := in["db"]; ok && !v.text && !filepath.IsAbs(c.DB) {
		c.DB = filepath.Join(filepath.Dir(path), c.DB)
	}
	wrong = append(wrong, f.wrong...)
	dir := filepath.Dir(path)
	wrong = append(wrong, c.loadModels(f.tables["models"], dir, env.model, s.Presets)...)
	wrong = append(wrong, c.loadActions(f.tables["actions"], dir)...)
	wrong = append(wrong, c.loadDestinations(f.tables["destinations"], dir)...)
	wrong = append(wrong, c.loadAlerts(f.tables["alerts"])...)
	wrong = append(wrong, c.checkTLS(path, in)...)
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return c, nil
}

// checkTLS looks at what belongs together, and finds the files from where the
// configuration is.
func (c *Config) checkTLS(path string, in map[string]value) (wrong findings) {
	s := &c.Server
	switch {
	case (s.TLSCert == "") != (s.TLSKey == ""):
		wrong.add("server.tls_cert and server.tls_key go together (%s)", c.Origin("server.tls_cert"))
	case s.TLSCert != "" && s.TLSSelfSigned:
		wrong.add("server.tls_self_signed (%s): there is a certificate already, server.tls_cert", c.Origin("server.tls_self_signed"))
	}
	for name, at := range map[string]*string{"server.tls_cert": &s.TLSCert, "server.tls_key": &s.TLSKey} {
		if v, ok := in[name]; ok && !v.text && *at != "" && !filepath.IsAbs(*at) {
			*at = filepath.Join(filepath.Dir(path), *at)
		}
	}
	return wrong
}

// Origin says where the value of key came from: "default", "FILE:LINE",
// "env NAME" or "flag --NAME". The keys of a list are named models[N].key.
func (c *Config) Origin(key string) string {
	if o, ok := c.origins[key]; ok {
		return o
	}
	return "default"
}

// findings are what is wrong, in the order found.
type findings []error

func (f *findings) add(format string, args ...any) {
	*f = append(*f, fmt.Errorf(format, args...))
}
