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
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"semel/chat"
)

// FileName is the file looked for beside the database.
const FileName = "semel.toml"

// A Config is everything in force. It is not changed after [Load].
type Config struct {
	Listen    string
	DB        string
	Language  string // "auto", "en" or "zh-CN"
	Limits    Limits
	Retention Retention
	Models    []Model // never empty; the first is the default model
	Server    Server
	Billing   Billing

	origins map[string]string // by key, as [Config.Origin] returns them; absent is default
}

// Limits bound what clients may ask for.
type Limits struct {
	Queue            int // requests waiting
	PerUserPerMinute int // new intents; 0 is no limit
	RunningPerUser   int // with accounts; 0 is no cap
	MessageBytes     int64
}

// Retention says how long what is kept.
type Retention struct {
	Evidence time.Duration
}

// Server is how the HTTP server behaves.
type Server struct {
	Drain time.Duration
}

// Billing is how money is shown.
type Billing struct {
	Currency string
}

// A Model is one model that people may choose.
type Model struct {
	Name          string
	Provider      string
	Price         chat.Price
	URL           string
	Key           Secret
	KeyFile       string // where Key was read from, "" when it was given itself
	UpstreamModel string // the name the provider knows it by
	Context       int64  // tokens; 0 is not known, nothing is dropped
	MaxAttempts   int64
	// MaxCrashReruns counts apart from MaxAttempts: a crash says nothing about
	// the provider.
	MaxCrashReruns    int64
	OnUnknown         string // "rerun" or "ask"
	FirstTokenTimeout time.Duration
	IdleTimeout       time.Duration
	Concurrency       int
}

// What a model does after a call whose outcome nobody can know.
const (
	OnUnknownRerun = "rerun"
	OnUnknownAsk   = "ask"
)

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
	demo := modelDefaults(providerDemo)
	demo.Name = "demo"
	return &Config{
		Listen:   "127.0.0.1:8787",
		DB:       "semel.db",
		Language: "auto",
		Limits: Limits{
			Queue:            1000,
			PerUserPerMinute: 600,
			RunningPerUser:   8,
			MessageBytes:     262144,
		},
		Retention: Retention{Evidence: 720 * time.Hour},
		Models:    []Model{demo},
		Server:    Server{Drain: 10 * time.Second},
		Billing:   Billing{Currency: "USD"},
		origins:   map[string]string{},
	}
}

const providerDemo = "demo"

// laterProviders are named in the documentation and come with a later version.
var laterProviders = []string{"openai", "openai-responses", "anthropic"}

// modelDefaults is a model of provider with every key that was not given.
func modelDefaults(provider string) Model {
	m := Model{
		Provider:          provider,
		MaxAttempts:       3,
		MaxCrashReruns:    20,
		FirstTokenTimeout: 300 * time.Second,
		IdleTimeout:       120 * time.Second,
		Concurrency:       8,
	}
	if provider == providerDemo {
		// Nobody is billed; the price makes saved money visible.
		m.Price = chat.Price{Input: 150_000, Cached: 75_000, Output: 600_000}
		m.OnUnknown = OnUnknownRerun
		m.Concurrency = 64
	}
	return m
}

// OnUnknownDefault says whether a call whose outcome is unknown is made again
// when the model does not say (contract, section 4). A second call may be billed
// a second time, so it is only made where nobody pays: for the demo model, for a
// price set to 0, and for a model without a price on a loopback or private
// address. price is nil where none was configured.
func OnUnknownDefault(provider string, price *chat.Price, rawURL string) string {
	switch {
	case provider == providerDemo:
		return OnUnknownRerun
	case price != nil && price.Free():
		return OnUnknownRerun
	case price == nil && onPrivateAddress(rawURL):
		return OnUnknownRerun
	}
	return OnUnknownAsk
}

// onPrivateAddress looks at the address as it is written. A name other than
// localhost could resolve to anything, so it is not private.
func onPrivateAddress(rawURL string) bool {
	u, err := url.Parse(rawURL)
	if err != nil {
		return false
	}
	if strings.EqualFold(u.Hostname(), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && (ip.IsLoopback() || ip.Unmap().IsPrivate())
}

// LoopbackOnly refuses a listen address that other machines could reach. addr
// may lack its port.
func LoopbackOnly(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%q is not a loopback address: accounts do not exist yet, so whoever reaches it could read and write everything; use 127.0.0.1, [::1] or localhost", addr)
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
	return load(path, data, env.values, s.Flags)
}

// load is Load without looking for anything.
func load(path string, data []byte, env map[string]value, flags map[string]string) (*Config, error) {
	f, err := parseFile(path, data)
	if err != nil {
		return nil, err
	}
	c := Default()
	var wrong findings
	in := map[string]value{} // the winner of each key
	for _, s := range f.settings {
		if knownKey(configKeys, s.name) == nil {
			wrong = append(wrong, unknownKey("", s, fileKeys()))
			continue
		}
		in[s.name] = s.value
	}
	for name, v := range env {
		in[name] = v
	}
	for name, text := range flags {
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
	wrong = append(wrong, f.later...)
	if len(f.models) > 0 {
		c.Models = nil
	}
	for i, given := range f.models {
		m, errs := loadModel(given, path, c.origins, fmt.Sprintf("models[%d]", i))
		wrong = append(wrong, errs...)
		for _, other := range c.Models {
			if m.Name != "" && m.Name == other.Name {
				wrong.add("models[%d] (%s): there is another model named %q", i, given.origin, m.Name)
			}
		}
		c.Models = append(c.Models, m)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return c, nil
}

// Origin says where the value of key came from: "default", "FILE:LINE",
// "env NAME" or "flag --NAME". A model's keys are named models[N].key.
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

// loadModel returns the model that given describes, and what is wrong with it.
func loadModel(given table, path string, origins map[string]string, prefix string) (Model, findings) {
	var wrong findings
	set := map[string]value{}
	for _, s := range given.settings {
		if knownKey(modelKeys, s.name) == nil {
			wrong = append(wrong, unknownKey("models.", s, keyNames(modelKeys)))
			continue
		}
		set[s.name] = s.value
	}
	provider, _ := set["provider"].val.(string)
	m := modelDefaults(provider)
	for _, k := range modelKeys {
		v, ok := set[k.name]
		if !ok {
			continue
		}
		if err := k.set(&m, v); err != nil {
			wrong.add("%s.%s = %s (%s): %w", prefix, k.name, v, v.origin, err)
			continue
		}
		origins[prefix+"."+k.name] = v.origin
	}
	for _, name := range []string{"name", "provider"} {
		if _, ok := set[name]; !ok {
			wrong.add("%s (%s): %s is missing", prefix, given.origin, name)
		}
	}

	_, hasIn := set["price.input"]
	_, hasCached := set["price.cached"]
	_, hasOut := set["price.output"]
	priced := hasIn || hasCached || hasOut
	if priced && !(hasIn && hasOut) {
		wrong.add("%s (%s): a price needs input and output", prefix, given.origin)
	}
	if priced && !hasCached {
		m.Price.Cached = m.Price.Input // nobody may charge less than was configured
	}
	if m.OnUnknown == "" {
		price := &m.Price
		if !priced {
			price = nil
		}
		m.OnUnknown = OnUnknownDefault(m.Provider, price, m.URL)
	}

	if m.KeyFile != "" && m.Key != "" {
		wrong.add("%s (%s): key and key_file are both given", prefix, given.origin)
	} else if m.KeyFile != "" {
		if !filepath.IsAbs(m.KeyFile) {
			m.KeyFile = filepath.Join(filepath.Dir(path), m.KeyFile)
		}
		secret, err := readSecret(m.KeyFile)
		if err != nil {
			wrong.add("%s.key_file (%s): %w", prefix, set["key_file"].origin, err)
		}
		m.Key = secret
	}

	if m.Provider == providerDemo {
		for _, name := range []string{"url", "key", "key_file", "upstream_model"} {
			if v, ok := set[name]; ok {
				wrong.add("%s.%s (%s): the provider \"demo\" has no use for it", prefix, name, v.origin)
			}
		}
	}
	return m, wrong
}
