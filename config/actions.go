package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"semel/chat"
	"semel/outbox"
)

// An Action is something a model may ask for, with where it goes.
type Action struct {
	chat.Action
	Destination Target  // zero where none is given, of an action that is never run
	Compensate  *Target // what undoes it; nil without
}

// A Destination is a target by name.
type Destination struct {
	Name string
	Target
}

// A Target is where messages go. Whatever prints it shows no secret.
type Target struct {
	outbox.Target
	SecretsFile  string // where Secrets were read from, "" when they were given themselves
	PasswordFile string
}

// actionKeys are the keys of one [[actions]]. Its descriptions have a key for each
// language.
var actionKeys = slices.Concat([]key[Action]{
	text("name", "The name models ask for it by: letters, digits, _ and -.",
		func(a *Action) *string { return &a.Name }, notEmpty), // chat knows what a name may be
	description,
	{
		name: "parameters", doc: "What it takes: the JSON Schema of an object, which refers to its own parts only.",
		set: func(a *Action, v value) error {
			s, ok := v.val.(string)
			if !ok {
				return errors.New("must be a string that holds a JSON Schema")
			}
			a.Parameters = []byte(s)
			return nil
		},
		get: func(a *Action) string { return literal(string(a.Parameters)) },
	},
	text("approval", "Who decides: auto (it runs), ask (a person) or never (it is recorded and refused).",
		func(a *Action) *chat.Approval { return &a.Approval }, oneOf("auto", "ask", "never")),
	truth("await_callback", "Whether it is settled only when the receiver has called back.",
		func(a *Action) *bool { return &a.AwaitCallback }),
	span("callback_timeout", "How long the receiver has to call back.",
		func(a *Action) *time.Duration { return &a.CallbackTimeout }, time.Second, 365*24*time.Hour),
},
	targetKeys("destination.", func(a *Action) *Target { return &a.Destination }),
	targetKeys("compensate.", func(a *Action) *Target { return a.Compensate }),
)

// destinationKeys are the keys of one [[destinations]].
var destinationKeys = append([]key[Destination]{
	text("name", "The name other settings call it by.",
		func(d *Destination) *string { return &d.Name }, checkName),
}, targetKeys("", func(d *Destination) *Target { return &d.Target })...)

// targetKeys are the keys of a target, each behind prefix.
func targetKeys[T any](prefix string, at func(*T) *Target) []key[T] {
	return []key[T]{
		text(prefix+"kind", "How messages leave: webhook or email.",
			func(t *T) *string { return &at(t).Kind }, oneOf(outbox.KindWebhook, outbox.KindEmail)),
		text(prefix+"url", "Address of a webhook.",
			func(t *T) *string { return &at(t).URL }, notEmpty),
		words(prefix+"secrets", "Secrets that sign what goes to a webhook and what it calls back with, each whsec_ and base64; the newest first.",
			func(t *T) *[]string { return &at(t).Secrets }),
		text(prefix+"secrets_file", "File that holds the secrets, one a line, relative to this file.",
			func(t *T) *string { return &at(t).SecretsFile }, checkPath),
		text(prefix+"server", "Mail server, as host or host:port.",
			func(t *T) *string { return &at(t).Server }, notEmpty),
		text(prefix+"tls", "How the mail server is spoken to: starttls, implicit, or none for one on this machine.",
			func(t *T) *string { return &at(t).TLS }, oneOf(outbox.TLSStart, outbox.TLSImplicit, outbox.TLSNone)),
		text(prefix+"from", "Sender of the mails.",
			func(t *T) *string { return &at(t).From }, notEmpty),
		words(prefix+"to", "Receivers of the mails.",
			func(t *T) *[]string { return &at(t).To }),
		text(prefix+"subject", "Subject of the mails; names the action when left out.",
			func(t *T) *string { return &at(t).Subject }, notEmpty),
		text(prefix+"username", "User at the mail server.",
			func(t *T) *string { return &at(t).Username }, notEmpty),
		text(prefix+"password", "Password at the mail server.",
			func(t *T) *string { return &at(t).Password }, notEmpty),
		text(prefix+"password_file", "File that holds the password, relative to this file.",
			func(t *T) *string { return &at(t).PasswordFile }, checkPath),
		span(prefix+"timeout", "How long one try may take.",
			func(t *T) *time.Duration { return &at(t).Timeout }, time.Second, 10*time.Minute),
		number(prefix+"max_attempts", "Tries before a person must decide.",
			func(t *T) *int64 { return &at(t).MaxAttempts }, 1, 1000),
		span(prefix+"backoff", "Wait after the first try that failed; it doubles with each.",
			func(t *T) *time.Duration { return &at(t).Backoff }, time.Millisecond, 24*time.Hour),
		ranges(prefix+"allow", "Addresses that may be called although they are of this machine or a private network, like \"127.0.0.0/8\".",
			func(t *T) *[]netip.Prefix { return &at(t).Allow }),
		text(prefix+"key_mode", "What the receiver remembers of an id: keyed (it knows a repeat), query (it can be asked, too) or none.",
			func(t *T) *string { return &at(t).KeyMode }, oneOf(outbox.KeyModeKeyed, outbox.KeyModeQuery, outbox.KeyModeNone)),
		span(prefix+"key_ttl", "How long it remembers; after that a person decides.",
			func(t *T) *time.Duration { return &at(t).KeyTTL }, time.Second, 100*365*24*time.Hour),
		text(prefix+"status_url", "With key_mode = \"query\": asked first whether an id was executed.",
			func(t *T) *string { return &at(t).StatusURL }, notEmpty),
	}
}

const (
	defaultCallbackTimeout = 24 * time.Hour
	defaultKeyTTL          = 24 * time.Hour
)

func targetDefaults() Target {
	return Target{Target: outbox.Target{Timeout: 15 * time.Second, MaxAttempts: 8, Backoff: 5 * time.Second}}
}

// noParameters is the schema of an action that takes nothing.
const noParameters = `{"type":"object","properties":{},"additionalProperties":false}`

// Declared returns what models and decisions may know of the actions: everything
// but where they go.
func (c *Config) Declared() (*chat.Declarations, error) {
	var list []chat.Action
	for _, a := range c.Actions {
		list = append(list, a.Action)
	}
	return chat.Declare(list)
}

func (c *Config) loadActions(given []table, dir string) findings {
	var wrong findings
	for i, t := range given {
		prefix := fmt.Sprintf("actions[%d]", i)
		a, origins, errs := loadAction(t, dir, prefix)
		wrong = append(wrong, errs...)
		for _, other := range c.Actions {
			if a.Name != "" && a.Name == other.Name {
				wrong.add("%s (%s): there is another action named %q", prefix, t.origin, a.Name)
			}
		}
		c.addOrigins(prefix, origins)
		c.Actions = append(c.Actions, a)
	}
	if len(wrong) == 0 {
		if _, err := c.Declared(); err != nil {
			wrong.add("actions: %w", err)
		}
	}
	return wrong
}

// loadAction returns the action that given describes, where its values came from
// and what is wrong with it.
func loadAction(given table, dir, prefix string) (Action, map[string]string, findings) {
	set, wrong := known(given, "actions", actionKeys)
	goes, compensates := hasPrefix(set, "destination."), hasPrefix(set, "compensate.")
	a := Action{Destination: targetDefaults()}
	a.Parameters, a.Approval, a.CallbackTimeout = []byte(noParameters), chat.ApprovalAsk, defaultCallbackTimeout
	if compensates {
		t := targetDefaults()
		a.Compensate, a.Compensates = &t, true
		inherit(set)
	}
	origins, errs := setKeys(&a, set, prefix, actionKeys)
	wrong = append(wrong, errs...)
	for _, name := range []string{"name", "description"} {
		if _, ok := set[name]; !ok {
			wrong.add("%s (%s): %s is missing", prefix, given.origin, name)
		}
	}
	if !a.AwaitCallback {
		if v, ok := set["callback_timeout"]; ok {
			wrong.add("%s.callback_timeout (%s): nothing is waited for without await_callback = true", prefix, v.origin)
		}
		a.CallbackTimeout = 0
	}
	var notThere findings // what is wrong with where it goes
	if goes {
		notThere = finishTarget(&a.Destination, set, "destination.", prefix+".destination", given.origin, dir)
		wrong = append(wrong, notThere...)
		a.To = a.Destination.String()
	} else {
		a.Destination = Target{}
		if a.Approval != chat.ApprovalNever {
			wrong.add("%s (%s): destination is missing", prefix, given.origin)
		}
		if a.AwaitCallback || compensates {
			wrong.add("%s (%s): what goes nowhere is neither called back nor compensated", prefix, given.origin)
		}
	}
	if compensates && len(notThere) == 0 && !broken(set, "destination.") { // it would be found a second time
		wrong = append(wrong, finishTarget(a.Compensate, set, "compensate.", prefix+".compensate", given.origin, dir)...)
	}
	if len(wrong) == 0 {
		if _, err := chat.Declare([]chat.Action{a.Action}); err != nil {
			wrong.add("%s (%s): %w", prefix, given.origin, err)
		}
	}
	return a, origins, wrong
}

// inherit gives a compensation what it does not say itself: it mostly goes to the
// same receiver, at another address.
func inherit(set map[string]value) {
	kind, given := set["compensate.kind"]
	if given && kind.val != set["destination.kind"].val {
		return
	}
	insteadOf := map[string]string{ // who says the one does not mean the other
		"secrets": "secrets_file", "secrets_file": "secrets", "password": "password_file", "password_file": "password",
		"key_ttl": "key_mode", "status_url": "key_mode",
	}
	says := maps.Clone(set)
	for name, v := range says {
		k, ok := strings.CutPrefix(name, "destination.")
		if !ok || k == "url" {
			continue
		}
		_, itself := says["compensate."+k]
		_, otherwise := says["compensate."+insteadOf[k]]
		if !itself && !otherwise {
			v.copied = true
			set["compensate."+k] = v
		}
	}
}

func (c *Config) loadDestinations(given []table, dir string) findings {
	var wrong findings
	for i, t := range given {
		prefix := fmt.Sprintf("destinations[%d]", i)
		set, errs := known(t, "destinations", destinationKeys)
		wrong = append(wrong, errs...)
		d := Destination{Target: targetDefaults()}
		origins, errs := setKeys(&d, set, prefix, destinationKeys)
		wrong = append(wrong, errs...)
		if _, ok := set["name"]; !ok {
			wrong.add("%s (%s): name is missing", prefix, t.origin)
		}
		wrong = append(wrong, finishTarget(&d.Target, set, "", prefix, t.origin, dir)...)
		if _, ok := c.Destination(d.Name); ok && d.Name != "" {
			wrong.add("%s (%s): there is another destination named %q", prefix, t.origin, d.Name)
		}
		c.addOrigins(prefix, origins)
		c.Destinations = append(c.Destinations, d)
	}
	if name := c.Billing.Deliver; name != "" {
		if _, ok := c.Destination(name); !ok {
			wrong.add("billing.deliver = %q (%s): no [[destinations]] has that name", name, c.Origin("billing.deliver"))
		}
	}
	return wrong
}

// Destination returns the destination of that name, and whether there is one.
func (c *Config) Destination(name string) (Destination, bool) {
	for _, d := range c.Destinations {
		if d.Name == name {
			return d, true
		}
	}
	return Destination{}, false
}

func (c *Config) addOrigins(prefix string, origins map[string]string) {
	for name, origin := range origins {
		c.origins[prefix+"."+name] = origin
	}
}

// known returns what is given by key, and the keys that do not exist.
func known[T any](given table, list string, keys []key[T]) (map[string]value, findings) {
	set := map[string]value{}
	var wrong findings
	for _, s := range given.settings {
		// A table in the place of one value is that key's to refuse, or to take.
		if name, rest, ok := strings.Cut(s.name, "."); ok && knownKey(keys, name) != nil {
			set[name] = inTable(set[name], rest, s.value)
			continue
		}
		if knownKey(keys, s.name) == nil {
			wrong = append(wrong, unknownKey(list+".", s, keyNames(keys)))
			continue
		}
		set[s.name] = s.value
	}
	return set, wrong
}

// setKeys sets what is given, in the order of the keys, and returns where it came
// from.
func setKeys[T any](t *T, set map[string]value, prefix string, keys []key[T]) (map[string]string, findings) {
	origins := map[string]string{}
	var wrong findings
	for _, k := range keys {
		v, ok := set[k.name]
		if !ok {
			continue
		}
		if err := k.set(t, v); err != nil {
			if !v.copied {
				wrong.add("%s.%s = %s (%s): %w", prefix, k.name, v, v.origin, err)
			}
			set[k.name] = value{origin: v.origin, broken: true}
			continue
		}
		origins[k.name] = v.origin
	}
	return origins, wrong
}

// finishTarget reads the files of a target, gives it what depends on its kind, and
// lets the package that delivers check it. Its keys in set begin with prefix; at
// names it in what is found.
func finishTarget(t *Target, set map[string]value, prefix, at, origin, dir string) findings {
	var wrong findings
	if broken(set, prefix) { // one mistake is one finding
		return nil
	}
	is := func(name string) bool { _, ok := set[prefix+name]; return ok }
	if !is("kind") {
		wrong.add("%s (%s): kind is missing", at, origin)
		return wrong
	}
	read := func(name string, path *string, into func(Secret)) {
		if !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
		s, err := readSecret(*path)
		if err != nil {
			wrong.add("%s.%s (%s): %w", at, name, set[prefix+name].origin, err)
			return
		}
		into(s)
	}
	for _, k := range []string{"secrets", "password"} {
		if is(k) && is(k+"_file") {
			wrong.add("%s (%s): %s and %s_file are both given", at, origin, k, k)
			return wrong
		}
	}
	if t.SecretsFile != "" {
		read("secrets_file", &t.SecretsFile, func(s Secret) { t.Secrets = strings.Fields(string(s)) })
	}
	if t.PasswordFile != "" {
		read("password_file", &t.PasswordFile, func(s Secret) { t.Password = string(s) })
	}
	if t.KeyMode == "" {
		t.KeyMode = outbox.KeyModeKeyed
		if t.Kind == outbox.KindEmail {
			t.KeyMode = outbox.KeyModeNone
		}
	}
	switch {
	case t.KeyMode != outbox.KeyModeNone && t.KeyTTL == 0:
		t.KeyTTL = defaultKeyTTL
	case t.KeyMode == outbox.KeyModeNone && is("key_ttl"):
		wrong.add("%s.key_ttl (%s): with key_mode = \"none\" nothing is remembered", at, set[prefix+"key_ttl"].origin)
	}
	if len(wrong) > 0 {
		return wrong
	}
	_, err := outbox.New(t.Target)
	for _, e := range each(err) {
		name, what, _ := strings.Cut(e.Error(), ": ")
		from := origin
		for _, n := range []string{name, name + "_file"} {
			if is(n) {
				from = set[prefix+n].origin
			}
		}
		wrong.add("%s.%s (%s): %s", at, name, from, what)
	}
	return wrong
}

// each returns the errors that were joined in err.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func broken(set map[string]value, prefix string) bool {
	for name, v := range set {
		if v.broken && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func hasPrefix(set map[string]value, prefix string) bool {
	for name := range set {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// description is one text in English, or a table of them by language.
var description = key[Action]{
	name: "description", doc: "What it does, for models and people: one text in English, or one by language.",
	set: func(a *Action, v value) error {
		a.Description = map[string]string{}
		switch d := v.val.(type) {
		case string:
			a.Description["en"] = d
			return nil
		case map[string]any:
			for tag, s := range d {
				text, ok := s.(string)
				if !ok {
					return fmt.Errorf("%s must be a string", tag)
				}
				a.Description[tag] = text
			}
			if len(d) > 0 {
				return nil
			}
		}
		return errors.New("must be a string, or a table of strings by language")
	},
	get: func(a *Action) string {
		var list []string
		for _, tag := range slices.Sorted(maps.Keys(a.Description)) {
			list = append(list, bare(tag)+" = "+quote(a.Description[tag]))
		}
		return "{ " + strings.Join(list, ", ") + " }"
	},
}

// inTable is the table v with one more value in it.
func inTable(v value, name string, one value) value {
	all, ok := v.val.(map[string]any)
	if !ok {
		all = map[string]any{}
		v = value{val: all, origin: one.origin}
	}
	all[strings.Trim(name, `"`)] = one.val
	v.secret = v.secret || one.secret
	return v
}

// words is a key that holds a list of strings.
func words[T any](name, doc string, at func(*T) *[]string) key[T] {
	return key[T]{
		name: name, doc: doc,
		set: func(t *T, v value) error {
			list, err := stringsOf(v)
			if err == nil {
				*at(t) = list
			}
			return err
		},
		get: func(t *T) string { return quoteAll(*at(t)) },
	}
}

// ranges is a key that holds a list of ranges of addresses.
func ranges[T any](name, doc string, at func(*T) *[]netip.Prefix) key[T] {
	return key[T]{
		name: name, doc: doc,
		set: func(t *T, v value) error {
			list, err := stringsOf(v)
			if err != nil {
				return err
			}
			*at(t) = nil
			for _, s := range list {
				p, err := netip.ParsePrefix(s)
				if err != nil {
					return fmt.Errorf("%q is no range of addresses, like 127.0.0.0/8 or fd00::/8", s)
				}
				*at(t) = append(*at(t), p)
			}
			return nil
		},
		get: func(t *T) string {
			var list []string
			for _, p := range *at(t) {
				list = append(list, p.String())
			}
			return quoteAll(list)
		},
	}
}

func stringsOf(v value) ([]string, error) {
	list, ok := v.val.([]any)
	if !ok {
		return nil, errors.New("must be a list of strings")
	}
	var out []string
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil, errors.New("must be a list of strings")
		}
		out = append(out, s)
	}
	return out, nil
}

func quoteAll(list []string) string {
	var out []string
	for _, s := range list {
		out = append(out, quote(s))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// literal is s as TOML without escapes where it can be: JSON is full of quotes.
func literal(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\'' }) {
		return quote(s)
	}
	return "'" + s + "'"
}

// shown is t as it is printed. What was read from a file is named, not shown, in
// either case.
func (t Target) shown(redact bool) Target {
	if t.SecretsFile != "" {
		t.Secrets = nil
	}
	if t.PasswordFile != "" {
		t.Password = ""
	}
	if !redact {
		return t
	}
	t.Secrets = slices.Clone(t.Secrets)
	for i := range t.Secrets {
		t.Secrets[i] = redacted
	}
	if t.Password != "" {
		t.Password = redacted
	}
	t.URL, t.StatusURL = redactURL(t.URL), redactURL(t.StatusURL)
	return t
}

// redactURL hides user, password and the values of the query.
func redactURL(raw string) string {
	u, err := url.Parse(raw)
	if raw == "" || err != nil {
		return raw
	}
	s := u.Scheme + "://"
	if u.User != nil {
		s += redacted + "@"
	}
	s += u.Host + u.EscapedPath()
	for i, part := range strings.Split(u.RawQuery, "&") {
		if u.RawQuery == "" {
			break
		}
		if name, _, ok := strings.Cut(part, "="); ok {
			part = name + "=" + redacted
		} else {
			part = redacted
		}
		s += map[bool]string{true: "?", false: "&"}[i == 0] + part
	}
	return s
}
