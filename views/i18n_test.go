package views

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"semel/chat"
)

func TestLanguagesHaveTheSameMessages(t *testing.T) {
	first := slices.Sorted(maps.Keys(Locales[0].texts))
	for _, l := range Locales[1:] {
		if got := slices.Sorted(maps.Keys(l.texts)); !slices.Equal(got, first) {
			t.Errorf("%s and %s differ in %v", Locales[0].Tag, l.Tag, difference(first, got))
		}
	}
	braces := regexp.MustCompile(`\{\w+\}`)
	for key, p := range Locales[0].texts {
		want := braces.FindAllString(p.other, -1)
		slices.Sort(want)
		for _, l := range Locales[1:] {
			got := braces.FindAllString(l.texts[key].other, -1)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s has %v, %s has %v", key, Locales[0].Tag, want, l.Tag, got)
			}
			if (l.texts[key].forms == nil) != (p.forms == nil) {
				t.Errorf("%s has plural forms in only one language", key)
			}
		}
	}
	for _, l := range Locales {
		for key, p := range l.texts {
			if p.other == "" {
				t.Errorf("%s: %s is empty", l.Tag, key)
			}
		}
	}
}

// A message is used when its key stands in quotes somewhere; a key that is asked
// for must exist. Those of problems are made from their codes; the lab hands keys
// around.
func TestMessagesAndTheirUsesAgree(t *testing.T) {
	asked := regexp.MustCompile(`\.[TN]\("([^"]+)"|\bt\('([^']+)'`)
	used := map[string]bool{}
	source := readSources(t, "*.go", "*.templ", "../handlers/*.go", "../static/*.js")
	lab := readSources(t, "../lab/*.go")
	for _, m := range regexp.MustCompile(`"(lab\.[a-z0-9_]+\.[a-z0-9_]+)"`).FindAllStringSubmatch(lab, -1) {
		used[m[1]] = true
		if _, ok := Locales[0].texts[m[1]]; !ok {
			t.Errorf("there is no message %q, which the lab says", m[1])
		}
	}
	for _, m := range asked.FindAllStringSubmatch(source, -1) {
		key := m[1] + m[2]
		used[key] = true
		if _, ok := Locales[0].texts[key]; !ok {
			t.Errorf("there is no message %q", key)
		}
	}
	for key := range Locales[0].texts {
		if !used[key] && !strings.HasPrefix(key, "problem.") && !strings.Contains(source, `'`+key+`'`) {
			t.Errorf("nobody uses the message %q", key)
		}
	}
}

func TestEveryProblemHasItsWords(t *testing.T) {
	source := readSources(t, "../chat/problem.go")
	codes := regexp.MustCompile(`(?m)^\t"(\w+)":\s+"`).FindAllStringSubmatch(source, -1)
	if len(codes) < 20 {
		t.Fatalf("found only %d codes in chat/problem.go", len(codes))
	}
	known := map[string]bool{"other": true, "maybe_billed": true}
	for _, m := range codes {
		known[m[1]] = true
		if _, ok := Locales[0].texts["problem."+m[1]]; !ok {
			t.Errorf("the problem %q has no words for people", m[1])
		}
	}
	for key := range Locales[0].texts {
		if code, ok := strings.CutPrefix(key, "problem."); ok && !known[code] {
			t.Errorf("there are words for a problem %q that does not exist", code)
		}
	}
}

func TestChooseLocale(t *testing.T) {
	for _, test := range []struct{ name, cookie, configured, accept, want string }{
		{"nothing known", "", "auto", "", "en"},
		{"English", "", "auto", "en-GB,en;q=0.9", "en"},
		{"Chinese", "", "auto", "zh-CN,zh;q=0.9,en;q=0.8", "zh-CN"},
		{"Chinese of any kind", "", "auto", "zh", "zh-CN"},
		{"simplified script", "", "auto", "zh-Hans-SG", "zh-CN"},
		{"the order of preference", "", "auto", "de;q=0.3,zh-CN;q=0.8,en;q=0.9", "en"},
		{"a language nobody here speaks", "", "auto", "de-DE", "en"},
		{"the configuration before the browser", "", "zh-CN", "en", "zh-CN"},
		{"the person before the configuration", "en", "zh-CN", "zh-CN", "en"},
		{"a cookie from elsewhere", "<script>", "auto", "zh-CN", "zh-CN"},
		{"a malformed header", "", "auto", "zh-CN;q=x,,,;;", "en"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ChooseLocale(test.cookie, test.configured, test.accept).Tag; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestALongAcceptLanguageIsCheap(t *testing.T) {
	header := strings.Repeat("zh;q=0.5,", 100_000) // the parser itself refuses many dashes
	cost := func(header string) float64 {
		return testing.AllocsPerRun(10, func() { ChooseLocale("", "auto", header) })
	}
	if long, most := cost(header), cost(header[:maxAcceptLanguage]); long > most {
		t.Errorf("%d bytes take %.0f allocations, the longest that is read takes %.0f", len(header), long, most)
	}
}

func TestPlurals(t *testing.T) {
	en, zh := FindLocale("en"), FindLocale("zh-CN")
	for _, test := range []struct {
		l    *Locale
		n    int64
		want string
	}{
		{en, 1, "The oldest message did not fit and was not sent to the model."},
		{en, 2, "The 2 oldest messages did not fit and were not sent to the model."},
		{zh, 1, "最早的 1 条消息放不下，没有发给模型。"},
	} {
		if got := test.l.N("chat.dropped", test.n); got != test.want {
			t.Errorf("%s, %d: got %q, want %q", test.l.Tag, test.n, got, test.want)
		}
	}
}

func TestProblemsInWords(t *testing.T) {
	en := FindLocale("en")
	for _, test := range []struct {
		p    chat.Problem
		want string
	}{
		{chat.Problem{Code: "line_lost"}, "The line to the model was lost."},
		{chat.Problem{Code: "line_lost", Outcome: chat.OutcomeUnknown}, "The line to the model was lost. Whether that call was billed, nobody can know."},
		{chat.Problem{Code: "new_one", Detail: "Something new."}, "Something new."},
		{chat.Problem{}, "That did not work."},
	} {
		if got := en.Problem(test.p); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.p, got, test.want)
		}
	}
}

func TestMessagesForScriptsCannotLeaveTheirElement(t *testing.T) {
	for _, l := range Locales {
		if strings.ContainsAny(l.JS(), "<>&") {
			t.Errorf("%s: a message for scripts contains <, > or &", l.Tag)
		}
	}
}

func readSources(t *testing.T, patterns ...string) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(names))
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(b)
		}
	}
	return all.String()
}

func difference(a, b []string) (list []string) {
	for _, s := range append(slices.Clone(a), b...) {
		if slices.Contains(a, s) != slices.Contains(b, s) {
			list = append(list, s)
		}
	}
	return list
}
