package views

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"semel/chat"
)

// A SettingsPage is what a user chose, and the models.
type SettingsPage struct {
	Frame
	Script    string // the address of settings.js
	RequestID string // minted for this page: the form that connects a model does so once
	Currency  string
	Done      string // what was just done, "" for nothing
	Language  string // as chosen; "" is as the browser asks
	Setup     Setup
	Models    []ModelCard
	Connect   ConnectForm
	User      *Account // nil without accounts
	KeyFile   string   // where the key is that seals the keys
}

// A Setup is how questions are asked: of new conversations, or of one.
type Setup struct {
	Models       []string // there are
	Default      string   // the model of who chooses none
	Model        string   // "" is the default
	SystemPrompt string
	Temperature  string // as typed; "" leaves it to the model
	MaxTokens    string
	Error        string // why it was not stored
}

// A ModelCard is one model in the list.
type ModelCard struct {
	Name, Host, Provider, Upstream string
	Default                        bool
	FromFile                       bool
	HasKey                         bool
	Tail                           string // how the key ends, where that may be shown
	Price                          chat.Price
	Priced                         bool
	Context                        int64
	Rerun                          bool
	Trouble                        string // why it is not in force
}

// A ConnectForm is a model as somebody describes it. It never has a key.
type ConnectForm struct {
	Presets []Preset
	Editing string // the connected model that is changed; "" is a new one
	HasKey  bool   // it has one already
	Tail    string
	Given   map[string]string // by field, without the key
	Wrong   map[string]string // by field, in words
	Error   string            // that is about no field
	Tested  *Tested
	Open    bool
}

// A Preset is a provider that is known by name.
type Preset struct{ Name, Title, URL string }

// A Tested is what a provider said to the question for its models.
type Tested struct {
	Verdict string // "ok", or how it failed
	Detail  string // as the provider or the network had it
	Names   []string
	Wanted  string
	Found   bool // Wanted is among Names
	Took    time.Duration
}

func (p SettingsPage) head() templ.Component { return settingsScript(p.Script) }

// done says what was just done.
func (p SettingsPage) done() string {
	switch p.Done {
	case "saved":
		return p.Locale.T("settings.done.saved")
	case "connected":
		return p.Locale.T("settings.done.connected")
	case "changed":
		return p.Locale.T("settings.done.changed")
	case "removed":
		return p.Locale.T("settings.done.removed")
	case "default":
		return p.Locale.T("settings.done.default")
	case "password":
		return p.Locale.T("account.done.password")
	case "out":
		return p.Locale.T("account.done.out")
	case "everywhere":
		return p.Locale.T("account.done.everywhere")
	case "revoke":
		return p.Locale.T("account.done.revoke")
	}
	return ""
}

// trouble says why a model is not in force.
func (p SettingsPage) trouble(m ModelCard) string {
	switch m.Trouble {
	case "shadowed":
		return p.Locale.T("settings.trouble.shadowed")
	case "no_key_file":
		return p.Locale.T("settings.trouble.noKeyFile", "file", p.KeyFile)
	case "other_key":
		return p.Locale.T("settings.trouble.otherKey", "file", p.KeyFile)
	case "key_damaged":
		return p.Locale.T("settings.trouble.keyDamaged")
	case "bad_key_file":
		return p.Locale.T("settings.trouble.badKeyFile", "file", p.KeyFile)
	}
	return p.Locale.T("settings.trouble.unusable")
}

// price writes what a model costs.
func (p SettingsPage) price(m ModelCard) string {
	switch {
	case !m.Priced:
		return p.Locale.T("settings.price.unknown")
	case m.Price.Free():
		return p.Locale.T("chip.free")
	}
	return p.Locale.T("settings.price.of", "in", p.Locale.Money(p.Currency, m.Price.Input), "out", p.Locale.Money(p.Currency, m.Price.Output))
}

func (p SettingsPage) key(m ModelCard) string {
	switch {
	case !m.HasKey:
		return p.Locale.T("settings.key.none")
	case m.Tail == "":
		return p.Locale.T("settings.key.there")
	}
	return p.Locale.T("settings.key.tail", "tail", m.Tail)
}

// WrongField says what is wrong with a field; why is "missing", "taken", "anew",
// "unkept" or anything else.
func (l *Locale) WrongField(field, why string) string {
	switch why {
	case "missing":
		return l.T("settings.wrong.missing")
	case "taken":
		return l.T("settings.wrong.taken")
	case "anew":
		return l.T("settings.wrong.keyAnew")
	case "unkept":
		return l.T("settings.wrong.keyFile")
	}
	switch field {
	case "name", "upstream_model":
		return l.T("settings.wrong.name")
	case "url":
		return l.T("settings.wrong.url")
	case "key":
		return l.T("settings.wrong.key")
	case "context":
		return l.T("settings.wrong.context")
	case "price.input", "price.cached", "price.output":
		return l.T("settings.wrong.price")
	case "temperature":
		return l.T("settings.wrong.temperature")
	case "max_tokens":
		return l.T("settings.wrong.maxTokens")
	}
	return l.T("settings.wrong.other")
}

// verdict says how a test ended.
func (l *Locale) verdict(t *Tested) string {
	switch t.Verdict {
	case "ok":
		return l.N("settings.test.ok", int64(len(t.Names))) + " " + l.T("settings.test.took", "time", l.seconds(t.Took))
	case "unreachable":
		return l.T("settings.test.unreachable")
	case "key":
		return l.T("settings.test.key")
	case "address":
		return l.T("settings.test.address")
	case "busy":
		return l.T("settings.test.busy")
	case "slow":
		return l.T("settings.test.slow")
	case "no_list":
		return l.T("settings.test.noList")
	}
	return l.T("settings.test.odd")
}

// shownNames is how many models of a provider a test lists.
const shownNames = 60

func (t *Tested) shown() []string { return t.Names[:min(len(t.Names), shownNames)] }

func settingsAt(query, fragment string) templ.SafeURL {
	return templ.SafeURL("/settings" + query + "#" + fragment)
}

// PlainPrice writes a price for a field: digits and at most one point.
func PlainPrice(micros int64) string {
	s := strconv.FormatInt(micros/1_000_000, 10)
	if f := strings.TrimRight(strconv.FormatInt(1_000_000+micros%1_000_000, 10)[1:], "0"); f != "" {
		s += "." + f
	}
	return s
}

func orAuto(language string) string {
	if language == "" {
		return "auto"
	}
	return language
}

func pressed(yes bool) string { return strconv.FormatBool(yes) }

// gone reports whether the chosen model is not there any more.
func (s Setup) gone() bool { return s.Model != "" && !slices.Contains(s.Models, s.Model) }

func (p ChatPage) setupAction() templ.SafeURL {
	if p.Fresh {
		return "/settings"
	}
	return templ.SafeURL("/c/" + p.SessionID + "/setup")
}

// field is what an input of the form has.
func (f ConnectForm) field(name string) templ.Attributes {
	a := templ.Attributes{"id": "connect-" + name, "name": name, "value": f.Given[name]}
	if f.Wrong[name] != "" {
		a["aria-invalid"], a["aria-describedby"] = "true", "wrong-"+name
	}
	return a
}

// more reports whether what is seldom needed is filled in.
func (f ConnectForm) more() bool {
	for _, name := range []string{"price.input", "price.output", "price.cached", "context", "on_unknown"} {
		if f.Given[name] != "" || f.Wrong[name] != "" {
			return true
		}
	}
	return false
}

func (p SettingsPage) keyPlaceholder() string {
	if !p.Connect.HasKey {
		return ""
	}
	return "••••••••" + p.Connect.Tail
}

func (p SettingsPage) keyText() string {
	if p.Connect.HasKey {
		return p.Locale.T("settings.keyKept")
	}
	return p.Locale.T("settings.keyText")
}
