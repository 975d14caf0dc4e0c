package browsertest

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
	"semel/llm/llmtest"
)

// axe finds what can be found by machine of what bars a page to somebody. It is for
// tests only, of npm's axe-core 4.14.1.
//
//go:embed testdata/axe-core/axe.min.js
var axe string

const (
	everyRule = `runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22a', 'wcag22aa'], rules: {'target-size': {enabled: true}}`
	colours   = `runOnly: {type: 'rule', values: ['color-contrast', 'link-in-text-block']}`
)

// barriers returns what breaks a rule on the page as it is; all are those of WCAG
// 2.0, 2.1 and 2.2, levels A and AA. The rules come over the debugger's line: the page's policy lets no
// foreign script in.
func (tb *tab) barriers(rules string) []string {
	tb.t.Helper()
	tb.rules()
	return tb.none(violations, rules)
}

// rules brings them to the page.
func (tb *tab) rules() {
	tb.t.Helper()
	if !js[bool](tb, `Boolean(window.axe)`) {
		js[any](tb, "void (() => {"+axe+"\n})()")
	}
}

const violations = `axe.run(document, {
	%s,
	preload: false, resultTypes: ['violations'], // what it would preload, it would put into the page
}).then(({violations}) => violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.target.join(' ') + ' ' + n.html.slice(0, 120) + ' ' +
	[...n.any, ...n.all, ...n.none].map((c) => c.message).join('; '))))`

// A view is a state of a page.
type view struct {
	name, path string
	ready      string        // when it can be looked at
	open       func(tb *tab) // brings it about on the page, nil: nothing to do
	width      int           // the only one at which there is such a state; 0: all
}

// No page in any of its states bars anybody, in both languages, by day and by night,
// on a desk and on a phone; and none is wider than a small phone.
func TestNoPageBarsAnybody(t *testing.T) {
	for _, lang := range []string{"en", "zh-CN"} {
		t.Run(lang, func(t *testing.T) { noBarriers(t, lang) })
	}
}

// A page without scripts has forms instead of menus.
func TestAPageWithoutScriptsBarsNobody(t *testing.T) {
	r := newRig(t)
	session := chat.NewID()
	r.ask(session, "[[echo "+longAnswer+"]]")
	tb := newProfile(t).withoutScripts(r.url + "/c/" + session)
	call(tb, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{}) // the rules are a script; the page's own had its chance
	for _, b := range tb.barriers(everyRule) {
		t.Error(b)
	}
	if !js[bool](tb, `document.querySelector('.manage').checkVisibility()`) {
		t.Error("the forms are not there: this was no test")
	}
}

// The rules find what is planted, so that none found means something.
func TestBarriersAreFound(t *testing.T) {
	tb := newProfile(t).open(newRig(t).url + "/").ready()
	js[any](tb, `(() => {
		const main = document.querySelector('#empty');
		const plant = (name, f) => { const e = document.createElement(name); f(e); main.append(e); };
		plant('button', () => {}); // without a name
		plant('img', (e) => (e.src = '/static/none.svg'));
		plant('input', () => {});
		plant('p', (e) => { e.textContent = 'hard to read'; e.style.color = '#ccc'; });
		plant('p', (e) => { for (const c of 'ab') { const b = document.createElement('button'); b.textContent = c; b.style.cssText = 'width:10px;height:10px;padding:0;border:0'; e.append(b); } });
		plant('div', (e) => { e.setAttribute('role', 'nonsense'); });
		document.documentElement.lang = '';
	})()`)
	tb.allow("status of 404").rules()
	found := strings.Join(js[[]string](tb, violations, everyRule), "\n")
	for _, rule := range []string{"button-name", "image-alt", "label", "color-contrast", "target-size", "aria-roles", "html-has-lang"} {
		if !strings.Contains("\n"+found, "\n"+rule+":") {
			t.Errorf("%s was not found in\n%s", rule, found)
		}
	}
}

func noBarriers(t *testing.T, lang string) {
	r, views := viewsRig(t, lang)
	tb := newProfile(t).open("").allow(lostRequests, "status of 404", "status of 410", "status of 422")
	for _, v := range views {
		tb.turnTo(r, v)
		for _, width := range []int{1200, 390, 320} {
			if v.width != 0 && width != v.width {
				continue
			}
			size(tb, width, width < 600)
			for _, scheme := range []string{"light", "dark"} {
				call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
					{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
				name := fmt.Sprintf("access-%s-%s-%s-%d", v.name, lang, scheme, width)
				tb.shoot(name)
				rules := everyRule
				if scheme == "dark" {
					rules = colours // the others found the same by day
				} else {
					tb.fits(name, width)
				}
				if width == 320 {
					continue // the same, but narrower
				}
				for _, b := range tb.barriers(rules) {
					t.Errorf("%s: %s", name, b)
				}
			}
		}
	}
}

// turnTo opens a state of a page.
func (tb *tab) turnTo(r *rig, v view) {
	tb.t.Helper()
	width := 1200
	if v.width != 0 {
		width = v.width
	}
	size(tb, width, width < 600)
	tb.visit(r.url + v.path)
	tb.ready()
	if v.open != nil {
		v.open(tb)
	}
	tb.wait(v.ready)
}

// begin puts a question past the browser and waits for no answer.
func (s *server) begin(session, id, content string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"sessionId":%q,"requestId":%q,"content":%q}`, session, id, content)
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.proxy.backend.Load().(string)+"/api/chat", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Prefer", "wait=0")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		s.t.Fatalf("begin %q: got %d, want 202", content, res.StatusCode)
	}
}

// viewsRig is a rig with every state that a page can be in.
func viewsRig(t *testing.T, lang string) (*rig, []view) {
	t.Helper()
	r, m := moodyRig(t, func(_ *engine.Options, h *handlers.Options) { h.Language, h.MessageBytes = lang, 2000 })
	const thoughts = "The person wants a table. A table with prices, then code, then a list."
	long, branches, failed, other, deleted := chat.NewID(), chat.NewID(), chat.NewID(), chat.NewID(), chat.NewID()
	m.set(func(m *moods) { m.thoughts = thoughts })
	receipt := r.ask(long, "[[echo "+longAnswer+"]] Show me everything you can write.")
	m.set(func(m *moods) { m.thoughts = "" })
	r.ask(branches, "[[tokens 40]] [[rate 0]] What is a branch?")
	r.ask(other, "[[echo elsewhere]] Something pinned")
	r.patch(other, map[string]any{"pinned": true})
	r.ask(deleted, "[[echo gone]]")
	r.api("DELETE", "/api/conversations/"+deleted, nil, nil)
	r.api("POST", "/api/chat", map[string]string{"sessionId": branches, "requestId": chat.NewID(), "kind": "regenerate", "parentId": branches + ".2"}, nil)
	r.api("POST", "/api/chat", map[string]string{"sessionId": branches, "requestId": chat.NewID(), "kind": "edit", "parentId": branches + ".1", "content": "[[tokens 30]] [[rate 0]] What is a branch, in one line?"}, nil)
	m.set(func(m *moods) { m.fails = true })
	broken := chat.NewID()
	r.api("POST", "/api/chat", map[string]string{"sessionId": failed, "requestId": broken, "content": "How does it fail?"}, nil)
	m.set(func(m *moods) { m.fails = false })
	r.model.upTo(400)
	running, streaming := chat.NewID(), chat.NewID()
	r.begin(streaming, running, "[[tokens 600]] [[rate 0]] What takes long?")
	provider := llmtest.NewServer(t, llmtest.Chat)

	click := func(selector string) func(*tab) { return func(tb *tab) { tb.click(selector, 1) } }
	row := `#conversations li[data-id="` + branches + `"]`
	actions := func(tb *tab) {
		js[any](tb, `document.querySelector('%s a').focus()`, row)
		tb.click(row+" .actions", 1)
	}
	return r, []view{
		{name: "empty", path: "/", ready: `document.querySelector('#empty h2')`},
		{name: "conversation", path: "/c/" + long, ready: `document.querySelector('.code .copy') && document.querySelector('.reasoning').open`,
			open: func(tb *tab) { js[any](tb, `void (document.querySelector('.reasoning').open = true)`) }},
		{name: "branches", path: "/c/" + branches, ready: `document.querySelector('.versions')`},
		{name: "aside", path: "/c/" + branches + "?at=2", ready: `document.querySelector('#another')`},
		{name: "editor", path: "/c/" + branches, ready: `document.querySelector('.editor textarea')`,
			open: func(tb *tab) { tb.press("[data-action=edit]") }},
		{name: "streaming", path: "/c/" + streaming, ready: `document.querySelector('.streaming .body').textContent.length > 300 && !document.querySelector('#stop').hidden`},
		{name: "queue", path: "/c/" + streaming, ready: `document.querySelectorAll('#queue li').length === 2`,
			open: func(tb *tab) {
				for n := js[int](tb, `document.querySelectorAll('#queue li').length`); n < 2; n++ {
					tb.queue("And then?")
				}
			}},
		{name: "too-long", path: "/", ready: `document.querySelector('#limit.over')`,
			open: func(tb *tab) { tb.typeText(strings.Repeat("a word or two ", 180)) }},
		{name: "failed", path: "/c/" + failed, ready: `document.querySelector('.mark[data-mark=failed]')`},
		{name: "failed-menu", path: "/c/" + failed, ready: `document.querySelector('.choice[open]')`, open: click(".again:not([hidden]) summary")},
		{name: "drawer", path: "/c/" + long, ready: `document.querySelector('dialog[open] .timeline')`, open: click("a.chip")},
		{name: "receipt", path: "/c/" + long + "/r/" + receipt, ready: `document.querySelector('.timeline')`},
		{name: "receipt-failed", path: "/c/" + failed + "/r/" + broken, ready: `document.querySelector('.timeline')`},
		{name: "side", path: "/c/" + long, width: 390, ready: `document.querySelector('#side').matches(':popover-open')`, open: click(".menu")},
		{name: "row-menu", path: "/", width: 1200, ready: `document.querySelector('#row-menu').matches(':popover-open')`, open: actions},
		{name: "rename", path: "/", width: 1200, ready: `document.querySelector('.rename')`,
			open: func(tb *tab) { actions(tb); tb.click("#row-menu [data-do=rename]", 1) }},
		{name: "found", path: "/?q=quote", width: 1200, ready: `document.querySelector('.snippet mark')`},
		{name: "found-nothing", path: "/?q=nothingofthekind", width: 1200, ready: `!document.querySelector('#conversations .hint').hidden`},
		{name: "help", path: "/c/" + long, ready: `document.querySelector('#help[open]')`, open: func(tb *tab) { tb.key("?", 191, "?") }},
		{name: "panel", path: "/c/" + long, ready: `document.querySelector('#panel').matches(':popover-open')`, open: click(".tune")},
		{name: "settings", path: "/settings", ready: `document.querySelector('.card')`},
		{name: "connect-wrong", path: "/settings", ready: `document.querySelector('#wrong-url')`,
			open: func(tb *tab) {
				tb.fill("#connect form", map[string]string{"preset": "", "url": "ftp://nowhere", "key": "k"})
				tb.click(`#connect button[value="test"]`, 1)
			}},
		{name: "connect-tested", path: "/settings", ready: `document.querySelector('.offered button')`,
			open: func(tb *tab) {
				tb.fill("#connect form", map[string]string{"preset": "", "url": provider.URL, "key": "k", "upstream_model": "model-b"})
				tb.click(`#connect button[value="test"]`, 1)
			}},
		{name: "import", path: "/import", ready: `document.querySelectorAll('#report li').length === 2 && [...document.querySelectorAll('#conversations .name')].some((e) => e.textContent.trim() === 'A title')`,
			open: func(tb *tab) {
				tb.choose(exported(chat.NewID(), "A title", true, "one"), "no JSON at all")
				tb.click("#importer button", 1)
			}},
		{name: "deleted", path: "/c/" + deleted, ready: `document.querySelector('main.note form') && document.querySelector('#conversations li')`},
		{name: "missing", path: "/nothing/here", ready: `document.querySelector('main.note')`},
		{name: "undo", path: "/", ready: `document.querySelector('#toast').matches(':popover-open')`,
			open: func(tb *tab) {
				js[any](tb, `fetch('/api/conversations/%s/restore', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'}).then(() => sessionStorage.setItem('semel.undo',
					JSON.stringify({id: '%s', title: 'A title', until: Date.now() + 600000, back: false})))`, deleted, deleted)
				tb.reload()
				tb.ready()
			}},
	}
}
