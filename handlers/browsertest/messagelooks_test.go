package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"semel/chat"
)

const longAnswer = "## What it costs\n\nA paragraph with `code`, **weight**, *stress*, a [link](https://example.com) and prices: $148+ → $19, then $15.4/月.\n\n" +
	"| Model | Input | Output | Context | Cached | Vision | Tools | Notes |\n|---|--:|--:|--:|--:|:-:|:-:|---|\n" +
	"| first | $2.50 | $10.00 | 128,000 | $1.25 | yes | yes | the one with the long description |\n| second | $0.15 | $0.60 | 128,000 | $0.07 | yes | no | cheap |\n\n" +
	"```go\n// once runs f exactly once.\nfunc once(id string, f func() error) error {\n\tif seen[id] {\n\t\treturn nil // 42 times, still one call\n\t}\n\tseen[id] = true\n\treturn f()\n}\n```\n\n" +
	"```diff\n- retry(3)\n+ retry(once)\n```\n\n> A quote, for the looks of it.\n\n1. First\n2. Second\n   - nested\n"

// Every state of a message, in both languages, by day and by night, on a desk and on
// phones: nothing is wider than the screen.
func TestMessagesFitEveryScreen(t *testing.T) {
	r, m := moodyRig(t)
	long, branches, failed := chat.NewID(), chat.NewID(), chat.NewID()
	m.set(func(m *moods) {
		m.thoughts = "The person wants a table. A table with prices, then code, then a list.\nThat should do."
	})
	receipt := r.ask(long, "[[echo "+longAnswer+"]] Show me everything you can write.")
	m.set(func(m *moods) { m.thoughts = "" })
	r.ask(branches, "[[tokens 40]] [[rate 0]] What is a branch?")
	for range 2 {
		r.api("POST", "/api/chat", map[string]string{"sessionId": branches, "requestId": chat.NewID(), "kind": "regenerate", "parentId": branches + ".2"}, nil)
	}
	r.api("POST", "/api/chat", map[string]string{"sessionId": branches, "requestId": chat.NewID(), "kind": "edit", "parentId": branches + ".1", "content": "[[tokens 30]] [[rate 0]] What is a branch, in one line?"}, nil)
	m.set(func(m *moods) { m.fails = true })
	broken := chat.NewID()
	r.api("POST", "/api/chat", map[string]string{"sessionId": branches, "requestId": chat.NewID(), "kind": "regenerate", "parentId": branches + ".5"}, nil)
	r.api("POST", "/api/chat", map[string]string{"sessionId": failed, "requestId": broken, "content": "How does it fail?"}, nil)
	m.set(func(m *moods) { m.fails = false })

	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	pages := []struct{ name, path, ready, open string }{
		{"long", "/c/" + long, `document.querySelector('.code .copy')`, `(document.querySelector('.reasoning').open = true, document.querySelector('.reasoning').scrollIntoView())`},
		{"branches", "/c/" + branches, `document.querySelector('[data-kind=regenerate] .mark[data-mark=failed]')`, ``},
		{"editor", "/c/" + branches, `document.querySelector('[data-action=edit]')`, `document.querySelector('[data-action=edit]').click()`},
		{"aside", "/c/" + branches + "?at=2", `document.querySelector('#another')`, ``},
		{"menu", "/c/" + failed, `document.querySelector('.again:not([hidden]) .choice')`, `(document.querySelector('.again:not([hidden]) .choice').open = true)`},
		{"drawer", "/c/" + long, `document.querySelector('a.chip')`, `document.querySelector('a.chip').click()`},
		{"receipt", "/c/" + long + "/r/" + receipt, `document.querySelector('.timeline')`, ``},
		{"receipt-failed", "/c/" + failed + "/r/" + broken, `document.querySelector('.timeline')`, ``},
	}
	for _, lang := range []string{"en", "zh-CN"} {
		size(tb, 1200, false)
		tb.visit(r.url + "/")
		if js[string](tb, `document.documentElement.lang`) != lang {
			tb.click(`.language button[value="`+lang+`"]`, 1)
			tb.wait(`document.documentElement.lang === '%s'`, lang)
		}
		for _, p := range pages {
			size(tb, 1200, false)
			tb.visit(r.url + p.path)
			tb.wait(`document.documentElement.lang === '%s' && %s && (document.documentElement.classList.contains('js') || location.pathname.includes('/r/'))`, lang, p.ready)
			if p.open != "" {
				js[any](tb, `void `+p.open)
			}
			if p.name == "drawer" {
				tb.wait(`document.querySelector('dialog[open] .timeline')`)
			}
			for _, width := range []int{1200, 390, 320} {
				size(tb, width, width < 600)
				for _, scheme := range []string{"light", "dark"} {
					call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
					name := fmt.Sprintf("message-%s-%s-%s-%d", p.name, lang, scheme, width)
					tb.fits(name, width)
					if strings.HasPrefix(p.name, "menu") {
						if got := js[bool](tb, `(() => { const r = document.querySelector('.choice[open] div').getBoundingClientRect(); return r.left >= 0 && r.right <= innerWidth; })()`); !got {
							t.Errorf("%s: the menu is cut off", name)
						}
					}
					tb.shoot(name)
				}
			}
		}
	}
}
