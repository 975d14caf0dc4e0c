package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"semel/chat"
)

// A Model is one model that people may choose.
type Model struct {
	Name          string
	Preset        string // name of the [Preset] that gave what was not given itself, "" for none
	Provider      string
	Price         chat.Price
	URL           string // base address, "" for the demo model only
	Key           Secret // "" for none
	KeyFile       string // where Key was read from, "" when it was given itself
	UpstreamModel string // the name the provider knows it by, "" when that is Name
	Context       int64  // tokens; 0 is not known, nothing is dropped
	Stream        bool   // false: the provider cannot, the answer comes in one piece
	Images        bool   // false: it reads text only
	Background    bool   // the provider keeps the run: it is found again after a crash
	MaxAttempts   int64
	// MaxCrashReruns counts apart from MaxAttempts: a crash says nothing about
	// the provider.
	MaxCrashReruns    int64
	OnUnknown         string // "rerun" or "ask"
	FirstTokenTimeout time.Duration
	IdleTimeout       time.Duration
	Concurrency       int
}

// Providers, each a wire format.
const (
	ProviderDemo      = "demo"
	ProviderOpenAI    = "openai" // chat completions, which many others speak, too
	ProviderResponses = "openai-responses"
	ProviderAnthropic = "anthropic"
)

var providers = []string{ProviderDemo, ProviderOpenAI, ProviderResponses, ProviderAnthropic}

// A Preset is what the name of a well-known provider stands for.
type Preset struct {
	Name     string
	Provider string
	URL      string
}

// What a model does after a call whose outcome nobody can know.
const (
	OnUnknownRerun = "rerun"
	OnUnknownAsk   = "ask"
)

// modelDefaults is a model of provider with every key that was not given.
func modelDefaults(provider string) Model {
	m := Model{
		Provider:          provider,
		Stream:            true,
		Images:            true,
		MaxAttempts:       3,
		MaxCrashReruns:    20,
		FirstTokenTimeout: 300 * time.Second,
		IdleTimeout:       120 * time.Second,
		Concurrency:       8,
	}
	if provider == ProviderDemo {
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
	case provider == ProviderDemo:
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

// loadModels puts the model of the environment first, then those of the file.
// Where the file has none, the demo model stays.
func (c *Config) loadModels(given []table, dir string, env *table, presets []Preset) findings {
	var wrong findings
	var list []Model
	add := func(t table, dir string) {
		i := len(list)
		prefix := fmt.Sprintf("models[%d]", i)
		m, origins, errs := loadModel(t, dir, prefix, presets)
		wrong = append(wrong, errs...)
		for _, other := range list {
			if m.Name != "" && m.Name == other.Name {
				wrong.add("%s (%s): there is another model named %q", prefix, t.origin, m.Name)
			}
		}
		c.addOrigins(prefix, origins)
		list = append(list, m)
	}
	if env != nil {
		add(*env, "")
	}
	for _, t := range given {
		add(t, dir)
	}
	if len(given) == 0 {
		demo := c.Models[0]
		if env != nil && list[0].Name == demo.Name {
			wrong.add("%s = %q: there is another model named so, the built-in one; give it another name in [[models]]", envModel, demo.Name)
		}
		list = append(list, demo)
	}
	c.Models = list
	return wrong
}

// loadModel returns the model that given describes, where its values came from
// and what is wrong with it. A relative path is relative to dir.
func loadModel(given table, dir, prefix string, presets []Preset) (Model, map[string]string, findings) {
	set, wrong := known(given, "models", modelKeys)
	knownPreset := true
	if v, ok := set["preset"]; ok {
		if p, err := findPreset(presets, v); err != nil {
			knownPreset = false
			wrong.add("%s.preset = %s (%s): %w", prefix, v, v.origin, err)
			delete(set, "preset")
		} else {
			stands := func(name, s string) {
				if _, ok := set[name]; !ok && s != "" {
					set[name] = value{val: s, origin: "preset " + p.Name}
				}
			}
			stands("provider", p.Provider)
			stands("url", p.URL)
		}
	}
	provider, _ := set["provider"].val.(string)
	m := modelDefaults(provider)
	origins, errs := setKeys(&m, set, prefix, modelKeys)
	wrong = append(wrong, errs...)
	missing := func(name, hint string) {
		if _, ok := set[name]; !ok {
			wrong.add("%s (%s): %s is missing%s", prefix, given.origin, name, hint)
		}
	}
	missing("name", "")
	if knownPreset {
		missing("provider", "")
	}
	switch {
	case provider == ProviderDemo:
		for _, name := range []string{"preset", "url", "key", "key_file", "upstream_model"} {
			if v, ok := set[name]; ok {
				wrong.add("%s.%s (%s): the provider \"demo\" has no use for it", prefix, name, v.origin)
			}
		}
	case slices.Contains(providers, provider) && knownPreset:
		missing("url", ", or a preset that has one")
	}
	if !m.Stream && provider != ProviderOpenAI {
		wrong.add("%s.stream (%s): only servers of the provider %q may lack streams", prefix, set["stream"].origin, ProviderOpenAI)
	}
	if m.Background && provider != ProviderResponses {
		wrong.add("%s.background (%s): only the provider %q keeps runs", prefix, set["background"].origin, ProviderResponses)
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
			m.KeyFile = filepath.Join(dir, m.KeyFile)
		}
		secret, err := readSecret(m.KeyFile)
		if err == nil && checkKey(string(secret)) != nil {
			err = fmt.Errorf("what %s holds %w", m.KeyFile, errKey)
		}
		if err != nil {
			wrong.add("%s.key_file (%s): %w", prefix, set["key_file"].origin, err)
		}
		m.Key = secret
	}
	return m, origins, wrong
}

func findPreset(presets []Preset, v value) (Preset, error) {
	name, ok := v.val.(string)
	if !ok {
		return Preset{}, errors.New("must be a string")
	}
	var names []string
	for _, p := range presets {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("there is no such preset; there are %s", strings.Join(names, ", "))
}

// isSecret reports whether what was given for a key must not be shown. An address
// is, where it could carry a password.
func isSecret(name string, v any) bool {
	s, _ := v.(string)
	for _, part := range strings.Split(name, ".") {
		switch part {
		case "key", "secrets", "password":
			return true
		case "url", "status_url":
			if strings.ContainsAny(s, "@?") {
				return true
			}
		}
	}
	return false
}

func checkName(s string) error {
	if s == "" || len(s) > 100 || strings.ContainsFunc(s, unicode.IsControl) || strings.TrimSpace(s) != s {
		return errors.New("must be 1 to 100 bytes without control characters or space around it")
	}
	return nil
}

func checkUpstreamModel(s string) error {
	if s == "" || len(s) > 200 || strings.ContainsFunc(s, unicode.IsControl) || strings.TrimSpace(s) != s {
		return errors.New("must be 1 to 200 bytes without control characters or space around it")
	}
	return nil
}

// checkURL accepts what the path of a call can be appended to.
func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("must be an http or https address")
	case len(s) > 2000:
		return errors.New("must be at most 2000 bytes")
	case u.User != nil:
		return errors.New("must have no user or password; what the provider asks for is the key")
	case strings.ContainsAny(s, "?#"):
		return errors.New("must end with its path, up to the version, like https://api.openai.com/v1")
	}
	if port := u.Port(); port != "" {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return errors.New("the port must be a number from 0 to 65535")
		}
	}
	return nil
}

var errKey = errors.New("must be 1 to 4096 visible ASCII characters, without spaces")

// checkKey refuses what no header can carry.
func checkKey(s string) error {
	if s == "" || len(s) > 4096 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errKey
	}
	return nil
}

// checkPath refuses what no file can be named.
func checkPath(s string) error {
	if s == "" || len(s) > 4096 || strings.ContainsFunc(s, unicode.IsControl) {
		return errors.New("must be a file path")
	}
	return nil
}
