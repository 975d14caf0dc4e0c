package views

import (
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"

	"semel/chat"
)

//go:embed locales/*.json
var localeFiles embed.FS

// A Locale is the words of one language. It is never changed, so any number of
// goroutines may use it.
type Locale struct {
	Tag   string // as in lang="…"
	tag   language.Tag
	texts map[string]phrase
	js    string
}

// A phrase is one message: with one form for all numbers, or with one for each
// plural category of its language.
type phrase struct {
	other string
	forms map[string]string
}

// Locales are all languages there are; the first is for those who asked for none
// of them.
var Locales = []*Locale{loadLocale("en"), loadLocale("zh-CN")}

var matcher = language.NewMatcher([]language.Tag{Locales[0].tag, Locales[1].tag})

// FindLocale returns the language with that tag, or nil.
func FindLocale(tag string) *Locale {
	for _, l := range Locales {
		if l.Tag == tag {
			return l
		}
	}
	return nil
}

// maxAcceptLanguage is far beyond what any browser sends. Parsing more is work
// that a stranger could order.
const maxAcceptLanguage = 512

// ChooseLocale returns the language for a page: what this person chose once
// (the cookie), else what the configuration says ("auto" for nothing), else what
// the browser accepts.
func ChooseLocale(cookie, configured, acceptLanguage string) *Locale {
	for _, tag := range []string{cookie, configured} {
		if l := FindLocale(tag); l != nil {
			return l
		}
	}
	if len(acceptLanguage) > maxAcceptLanguage {
		acceptLanguage = acceptLanguage[:maxAcceptLanguage]
	}
	// The error is for a malformed header; what was readable before it is used.
	wanted, _, _ := language.ParseAcceptLanguage(acceptLanguage)
	_, i, _ := matcher.Match(wanted...)
	return Locales[i]
}

// T returns the message key with each {name} replaced. Values are pairs of a name
// and what stands for it. A key that does not exist is a programming mistake.
func (l *Locale) T(key string, values ...string) string {
	t, ok := l.texts[key]
	if !ok {
		panic(fmt.Sprintf("views: no message %q in %s", key, l.Tag))
	}
	return fill(t.other, values)
}

// N returns the form of the message key for n, which also stands for {n}.
func (l *Locale) N(key string, n int64, values ...string) string {
	t, ok := l.texts[key]
	if !ok {
		panic(fmt.Sprintf("views: no message %q in %s", key, l.Tag))
	}
	form, ok := t.forms[pluralName(l.tag, n)]
	if !ok {
		form = t.other
	}
	return fill(form, append([]string{"n", l.Number(n)}, values...))
}

// Problem returns what to say of p: in this language where its code is known, else
// what p says itself.
func (l *Locale) Problem(p chat.Problem) string {
	say := l.texts["problem."+p.Code].other
	if say == "" {
		say = p.Detail
	}
	if say == "" {
		say = l.T("problem.other")
	}
	if p.Outcome == chat.OutcomeUnknown {
		say += " " + l.T("problem.maybe_billed")
	}
	return say
}

// JS returns the messages for the page's scripts as JSON.
func (l *Locale) JS() string { return l.js }

func fill(s string, values []string) string {
	if len(values) == 0 {
		return s
	}
	pairs := make([]string, len(values))
	for i, v := range values {
		pairs[i] = v
		if i%2 == 0 {
			pairs[i] = "{" + v + "}"
		}
	}
	return strings.NewReplacer(pairs...).Replace(s)
}

func pluralName(tag language.Tag, n int64) string {
	if n < 0 {
		n = -n
	}
	switch plural.Cardinal.MatchPlural(tag, int(n%10_000_000), 0, 0, 0, 0) {
	case plural.Zero:
		return "zero"
	case plural.One:
		return "one"
	case plural.Two:
		return "two"
	case plural.Few:
		return "few"
	case plural.Many:
		return "many"
	}
	return "other"
}

func loadLocale(tag string) *Locale {
	raw, err := localeFiles.ReadFile("locales/" + tag + ".json")
	if err != nil {
		panic(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		panic(fmt.Sprintf("views: locale %s: %v", tag, err))
	}
	l := &Locale{Tag: tag, tag: language.MustParse(tag), texts: map[string]phrase{}}
	forJS := map[string]json.RawMessage{}
	for key, value := range all {
		var t phrase
		if json.Unmarshal(value, &t.other) != nil {
			if err := json.Unmarshal(value, &t.forms); err != nil {
				panic(fmt.Sprintf("views: locale %s: %s: %v", tag, key, err))
			}
			t.other = t.forms["other"]
		}
		l.texts[key] = t
		if strings.HasPrefix(key, "js.") || strings.HasPrefix(key, "problem.") {
			forJS[key] = value
		}
	}
	// encoding/json escapes <, > and &, so this can stand inside a script element.
	out, err := json.Marshal(forJS)
	if err != nil {
		panic(err)
	}
	l.js = string(out)
	return l
}
