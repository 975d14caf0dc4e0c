package browsertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"semel/chat"
)

// What no rule of axe sees: where the focus goes, what is read out, and what a page
// is without motion, with large letters, in few colours and on paper.

// tabKey moves the focus on, or back.
func (tb *tab) tabKey() { tb.t.Helper(); tb.key("Tab", 9, "") }

// focused waits until what a selector finds has the focus.
func (tb *tab) focused(selector string) {
	tb.t.Helper()
	tb.wait(`document.activeElement?.matches('%s')`, selector)
}

// The list of keys opens by its key and by its button, lists the keys that are chosen,
// and gives the focus back. Its key can be turned off, and types where one types.
func TestKeysAreListedOnAKey(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").ready()
	const open = `document.querySelector('#help').open`
	question := func() { t.Helper(); tb.key("?", 191, "?") }

	tb.focused("#text")
	question()
	if tb.field() != "?" || js[bool](tb, open) {
		t.Fatalf("while one types, the key of the list typed %q and opened it: %v", tb.field(), js[bool](tb, open))
	}
	for _, field := range []string{"#q", "#panel-model", "#panel-system"} { // also one in which letters choose
		js[any](tb, `document.querySelector('%s').closest('[popover]:not(:popover-open, #side)')?.showPopover(), document.querySelector('%s').focus()`, field, field)
		question()
		if js[bool](tb, open) {
			t.Errorf("it opened from %s", field)
		}
	}
	js[any](tb, `document.querySelector('#panel').hidePopover()`)
	tb.click("#keys button", 1) // Ctrl+Enter sends
	tb.focused("#keys button")
	question()
	tb.wait(open)
	if got := js[string](tb, `[...document.querySelectorAll('#help [data-key]')].map((k) => k.textContent).join(' ')`); got != "Ctrl+Enter Enter" {
		t.Errorf("the keys are listed as %q", got)
	}
	tb.key("Escape", 27, "")
	tb.wait(`!` + open)
	tb.focused("#keys button")

	tb.press("[data-action=help]")
	tb.wait(open)
	tb.click("#help [name=on]", 1)
	tb.click("#help [data-action=close]", 1)
	tb.wait(`!` + open)
	tb.focused("[data-action=help]")
	tb.reload()
	tb.ready()
	js[any](tb, `document.querySelector('.new').focus()`)
	question()
	if js[bool](tb, open) {
		t.Error("its key opens it although it was turned off")
	}
	tb.press("[data-action=help]")
	tb.wait(open)
	if js[bool](tb, `document.querySelector('#help [name=on]').checked`) {
		t.Error("the list does not say that its key is turned off")
	}
	tb.click("#help [name=on]", 1)
	tb.key("Escape", 27, "")
	tb.wait(`!` + open)
	question()
	tb.wait(open)
}

// Escape closes what is open and stops no answer behind it.
func TestEscapeInADialogStopsNoAnswer(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	r.model.upTo(40)
	id := tb.send("[[tokens 60]] [[rate 200]]")
	tb.grown(id, 20)
	tb.wait(`!document.querySelector('#stop').hidden`)
	tb.press("[data-action=help]")
	tb.wait(`document.querySelector('#help').open`)
	tb.key("Escape", 27, "")
	tb.wait(`!document.querySelector('#help').open`)
	tb.press(`#log .mark`)
	tb.wait(`document.querySelector('.drawer').open`)
	tb.key("Escape", 27, "")
	tb.wait(`!document.querySelector('.drawer').open`)
	tb.focused(`#log .mark`)
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(1, tb)
	if n := len(r.proxy.posts("/api/chat/stop/"+id, "")); n != 0 || r.model.of(id)[0].cancelled {
		t.Errorf("Escape stopped the answer behind what it closed")
	}
}

// stops is everything that the focus must come to, as the page is.
const stops = `[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')].filter((e) =>
	!e.disabled && e.type !== 'hidden' && e.checkVisibility({visibilityProperty: true, contentVisibilityAuto: true}) && !e.closest('[inert]') &&
	(e.type !== 'radio' || e.checked))`

// Everything that can be done is reached by Tab, in the order of reading, and what has
// the focus is seen to have it and not hidden under a bar.
func TestEverythingIsReachedByTheKeyboard(t *testing.T) {
	r, views := viewsRig(t, "en")
	tb := newProfile(t).open("").allow(lostRequests, "status of 410")
	for _, v := range views {
		if !slices.Contains([]string{"empty", "conversation", "branches", "aside", "editor", "queue", "failed", "receipt", "found", "settings", "connect-tested", "import", "deleted"}, v.name) {
			continue
		}
		tb.turnTo(r, v)
		want := js[int](tb, `(window.stops = %s).length`, stops)
		js[any](tb, `(document.body.tabIndex = -1, document.body.focus(), document.body.removeAttribute('tabindex'), window.seen = [])`)
		for n := range want {
			tb.tabKey()
			got := js[string](tb, `(() => {
				const e = document.activeElement;
				const name = e.outerHTML.slice(0, 100);
				if (!stops.includes(e)) return 'is not expected: ' + name;
				if (seen.includes(e)) return 'came again: ' + name;
				const before = seen.at(-1);
				seen.push(e);
				if (before && !(before.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING)) return 'is out of order: ' + name;
				return '';
			})()`)
			// What comes near the screen gets its real size only then.
			got += strings.Join(tb.none(`(() => {
				const e = document.activeElement;
				const name = e.outerHTML.slice(0, 100);
				const style = getComputedStyle(e), field = getComputedStyle(e.closest('#composer, #search') ?? e);
				const shows = (s) => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2;
				const ring = e.matches('.choices input') ? shows(getComputedStyle(e.nextElementSibling)) : shows(style) || shows(field);
				if (!ring) return ['does not show it: ' + name];
				const r = e.getClientRects()[0], x = Math.max(1, Math.min(r.x + r.width / 2, innerWidth - 1)), y = Math.max(r.y + 1, Math.min(r.y + r.height / 2, innerHeight - 1));
				const top = document.elementFromPoint(x, y);
				if (!top || !(e === top || e.contains(top) || top.contains(e) || e.closest('label, .field')?.contains(top))) return ['is hidden: ' + name + ' by ' + top?.outerHTML.slice(0, 60)];
				return [];
			})()`), "; ")
			if got != "" {
				t.Errorf("%s: what has the focus after %d tabs %s", v.name, n+1, got)
			}
			if n == 0 {
				tb.focused(".skip")
			}
		}
		if left := js[[]string](tb, `stops.filter((e) => !seen.includes(e)).map((e) => e.outerHTML.slice(0, 100))`); len(left) > 0 {
			t.Errorf("%s: Tab does not come to %q", v.name, left)
		}
		// The link past the list leads past it.
		js[any](tb, `document.querySelector('.skip').focus()`)
		tb.enter()
		if !js[bool](tb, `Boolean(document.activeElement.closest('#composer, main'))`) {
			tb.tabKey()
		}
		if !js[bool](tb, `Boolean(document.activeElement.closest('main'))`) {
			t.Errorf("%s: the link past the list leads to %s", v.name, js[string](tb, `document.activeElement.outerHTML.slice(0, 100)`))
		}
	}
}

// What opens over the page takes the focus, keeps it, and gives it back.
func TestFocusStaysInWhatIsOpenAndComesBack(t *testing.T) {
	r, views := viewsRig(t, "en")
	tb := newProfile(t).open("").allow(lostRequests)
	for _, c := range []struct {
		name, view, from, inside string
		width                    int
	}{
		{"list", "conversation", ".menu", "#side:popover-open", 390},
		{"panel", "conversation", ".tune", "#panel:popover-open", 1200},
		{"panel of a phone", "conversation", ".tune", "#panel:popover-open", 390},
		{"receipt", "conversation", "a.chip", ".drawer[open]", 1200},
		{"keys", "conversation", "[data-action=help]", "#help[open]", 1200},
	} {
		tb.turnTo(r, views[slices.IndexFunc(views, func(v view) bool { return v.name == c.view })])
		size(tb, c.width, c.width < 600)
		tb.press(c.from)
		tb.wait(`document.querySelector('%s')?.contains(document.activeElement) && (document.querySelector('dialog[open]') || document.querySelector('[inert]'))`, c.inside)
		for n := range js[int](tb, `[...document.querySelector('%s').querySelectorAll('a[href], button, input, select, textarea')].length`, c.inside) + 3 {
			tb.tabKey()
			if js[bool](tb, `document.activeElement !== document.body && !document.querySelector('%s')?.contains(document.activeElement)`, c.inside) {
				t.Errorf("%s: after %d tabs the focus is outside, on %s", c.name, n+1, js[string](tb, `document.activeElement.outerHTML.slice(0, 100)`))
				break
			}
		}
		js[any](tb, `document.querySelector('%s').querySelector('button').focus()`, c.inside)
		tb.key("Escape", 27, "")
		tb.wait(`!document.querySelector('%s')`, c.inside)
		tb.focused(c.from)
		if n := js[int](tb, `document.querySelectorAll('[inert]').length`); n != 0 {
			t.Errorf("%s: %d parts of the page are still out of reach", c.name, n)
		}
	}

	// Menus end when the focus leaves them; Escape gives it back.
	tb.turnTo(r, view{path: "/", ready: `true`})
	size(tb, 1200, false)
	js[any](tb, `document.querySelector('#conversations li a').focus()`)
	tb.tabKey()
	tb.focused("#conversations .actions")
	tb.enter()
	tb.wait(`document.querySelector('#row-menu').matches(':popover-open') && document.activeElement.closest('#row-menu')`)
	tb.key("ArrowUp", 38, "")
	tb.focused("#row-menu [data-do=delete]")
	tb.key("Escape", 27, "")
	tb.wait(`!document.querySelector('#row-menu').matches(':popover-open')`)
	tb.focused("#conversations .actions")
	tb.enter()
	tb.wait(`document.querySelector('#row-menu').matches(':popover-open')`)
	for range 12 {
		tb.tabKey()
	}
	tb.wait(`!document.querySelector('#row-menu').matches(':popover-open')`)
	tb.turnTo(r, views[slices.IndexFunc(views, func(v view) bool { return v.name == "failed" })])
	tb.press(".again:not([hidden]) summary")
	tb.wait(`document.querySelector('.choice[open]')`)
	tb.tabKey()
	tb.focused(".choice[open] button")
	tb.key("Escape", 27, "")
	tb.wait(`!document.querySelector('.choice[open]')`)
	tb.focused("summary")
	tb.enter()
	tb.wait(`document.querySelector('.choice[open]')`)
	for range js[int](tb, `document.querySelectorAll('.choice[open] button').length`) + 1 {
		tb.tabKey()
	}
	tb.wait(`!document.querySelector('.choice[open]')`)
}

// Buttons of one page that do different things have different names, or stand in what
// has one.
func TestButtonsAreToldApartByTheirNames(t *testing.T) {
	r, views := viewsRig(t, "en")
	tb := newProfile(t).open("").allow(lostRequests)
	for _, v := range views {
		if !slices.Contains([]string{"conversation", "branches", "queue", "settings", "rename"}, v.name) {
			continue
		}
		tb.turnTo(r, v)
		if same := js[[]string](tb, `(() => {
			const seen = new Set(), same = [];
			for (const e of document.querySelectorAll('button, a[href], select, textarea, input:not([type=hidden], [type=radio])')) {
				if (!e.checkVisibility({visibilityProperty: true})) continue;
				const label = e.labels?.[0]?.textContent ?? '';
				const within = e.closest('article, #queue li, .card, .code, #top');
				const name = [within ? [...document.querySelectorAll('article, #queue li, .card, .code, #top')].indexOf(within) : '', (e.getAttribute('aria-label') ?? '') || label || e.textContent.trim(), e.getAttribute('href') ?? ''].join(' | ');
				if (name.endsWith('|  | ') || seen.has(name)) same.push(name + ' ' + e.outerHTML.slice(0, 80));
				seen.add(name);
			}
			return same;
		})()`); len(same) > 0 {
			t.Errorf("%s: these are called the same: %q", v.name, same)
		}
	}
}

// A page that is read anew does not take the focus from the button under a message.
func TestARefreshKeepsTheFocusOfAButton(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(failedReply)
	tb.marked(tb.send("[[echo alpha]]"), "answered")
	tb.numbered()
	path, refreshed := "/c/"+tb.session(), make(chan struct{})
	r.proxy.do(func(e exchange) fault {
		if e.Method == http.MethodGet && e.Path == path {
			return fault{Hold: refreshed}
		}
		return fault{}
	})
	id := tb.send("[[fail 400 once]] [[echo beta]]")
	tb.marked(id, "failed")
	retry := `#log > [data-role=user][data-request="` + id + `"] [data-action=retry]`
	js[any](tb, `document.querySelector('%s').focus()`, retry)
	close(refreshed)
	tb.wait(`document.querySelector('%s')?.value`, retry)
	tb.focused(retry)
	tb.enter()
	tb.marked(id, "answered")
	r.check(3, tb)
}

// Screen readers hear that there is an answer coming and that it is there, and no word
// of it in between.
func TestAnAnswerIsAnnouncedTwice(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").ready()
	js[any](tb, `(() => {
		window.heard = [];
		for (const region of document.querySelectorAll('[role=status], [role=alert], [role=log], [aria-live], output'))
			new MutationObserver(() => { const text = region.checkVisibility() ? region.innerText.trim() : ''; if (text && text !== heard.at(-1)) heard.push(text); }).observe(region, {childList: true, subtree: true, characterData: true, attributes: true});
	})()`)
	r.model.upTo(60)
	id := tb.send("[[tokens 60]] [[rate 1000]]")
	tb.grown(id, 30)
	r.model.upTo(whole)
	tb.marked(id, "answered")
	tb.wait(`heard.length > 1`)
	r.check(1, tb)
	got := js[[]string](tb, `heard`)
	words := js[int](tb, `[...new Intl.Segmenter('en', {granularity: 'word'}).segment(document.querySelector('#log [data-role=assistant] .body').textContent)].filter((w) => w.isWordLike).length`)
	if len(got) != 2 || got[0] != "Answering." || got[1] != fmt.Sprintf("Answered, %d words.", words) {
		t.Errorf("a screen reader heard %q", got)
	}
	if live := js[[]string](tb, `[...document.querySelectorAll('[role=status], [role=alert], [role=log], [aria-live]')].filter((e) => e.closest('#log') || e.querySelector('article')).map((e) => e.outerHTML.slice(0, 80))`); len(live) > 0 {
		t.Errorf("messages are in live regions: %q", live)
	}
}

// How long a question may be is said when it comes near, and again when it is too
// long: not with every letter.
func TestTheLimitIsAnnouncedOnce(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").ready()
	js[any](tb, `(() => { window.heard = []; new MutationObserver(() => heard.push(document.querySelector('#live').textContent)).observe(document.querySelector('#live'), {childList: true}); })()`)
	tb.typeText(strings.Repeat("x", 18_500))
	for range 5 {
		tb.typeText("y")
	}
	tb.typeText(strings.Repeat("z", 2000))
	for range 5 {
		tb.typeText("y")
	}
	got := js[[]string](tb, `heard`)
	if len(got) != 2 || !strings.Contains(got[0], "18,500 of 20,000") || !strings.Contains(got[1], "too long") {
		t.Errorf("a screen reader heard %q", got)
	}
	if js[bool](tb, `Boolean(document.querySelector('#limit').closest('[role], [aria-live]'))`) {
		t.Error("the counter is a live region: each letter would be read out")
	}
}

// Who asked their system for less motion sees none.
func TestReducedMotionIsRespected(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	r.model.upTo(40)
	id := tb.send("[[tokens 60]] [[rate 200]]")
	tb.grown(id, 20)
	moving := func(preference string) int {
		call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: preference}}})
		return js[int](tb, `new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(() => resume(document.getAnimations().length))))`)
	}
	until(t, "something moves while it is answered", func() bool { return moving("no-preference") > 0 })
	until(t, "nothing moves where less motion was asked for", func() bool { return moving("reduce") == 0 })
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(1, tb)
}

// With letters of twice the size everything is still there, on a desk and on a phone.
func TestPagesFitWithLettersOfTwiceTheSize(t *testing.T) {
	r, views := viewsRig(t, "en")
	tb := newProfile(t).open("").allow(lostRequests, "status of 410", "status of 422")
	call(tb, page.SetFontSizes, page.SetFontSizesParams{FontSizes: &page.FontSizes{Standard: 32, Fixed: 26}})
	for _, v := range views {
		if slices.Contains([]string{"missing", "undo", "receipt-failed", "rename", "row-menu", "found-nothing"}, v.name) {
			continue
		}
		tb.turnTo(r, v)
		if got := js[string](tb, `getComputedStyle(document.documentElement).fontSize`); got != "32px" {
			t.Fatalf("a rem is %s: no test", got)
		}
		for _, width := range []int{1200, 390} {
			if v.width != 0 && width != v.width {
				continue
			}
			size(tb, width, width < 600)
			name := fmt.Sprintf("large-%s-%d", v.name, width)
			tb.fits(name, width)
			tb.shoot(name)
			if cut := tb.none(`[...document.querySelectorAll('button, .button, .primary, h1, h2')].filter((e) => e.checkVisibility() && !e.closest('.unseen, .scroll, #side:not(:popover-open), .tools') && e.id !== 'title' &&
				(e.scrollWidth > e.clientWidth + 2 && getComputedStyle(e).overflowX !== 'visible' || e.getBoundingClientRect().right > innerWidth + 1)).map((e) => e.outerHTML.slice(0, 100))`); len(cut) > 0 {
				t.Errorf("%s: cut off: %q", name, cut)
			}
		}
	}
}

// Beside a notch, round corners and the bars of a system nothing stands.
func TestNothingStandsInTheUnsafeEdges(t *testing.T) {
	r, views := viewsRig(t, "en")
	tb := newProfile(t).open("").allow(lostRequests)
	top, side, bottom := int64(40), int64(50), int64(34)
	for _, v := range views {
		if !slices.Contains([]string{"empty", "conversation", "side", "panel", "drawer", "help", "undo", "settings", "queue"}, v.name) {
			continue
		}
		tb.turnTo(r, v)
		for _, width := range []int{1200, 390} {
			if v.width != 0 && width != v.width {
				continue
			}
			size(tb, width, width < 600)
			call(tb, emulation.SetSafeAreaInsetsOverride, emulation.SetSafeAreaInsetsOverrideParams{Insets: &emulation.SafeAreaInsets{Top: &top, Left: &side, Bottom: &bottom, Right: &side}})
			name := fmt.Sprintf("edges-%s-%d", v.name, width)
			tb.fits(name, width)
			tb.shoot(name)
			if bad := tb.none(`[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, h1, h2, p, summary')].filter((e) => {
				if (!e.checkVisibility({visibilityProperty: true}) || e.closest('.unseen, .skip, .scroll, .code, [inert]') || e.matches('.skip')) return false;
				const over = document.querySelector(':popover-open:not(#toast), dialog[open]');
				if (over && !over.contains(e)) return false;
				const r = e.getBoundingClientRect();
				const fixed = e.closest('#top, #bottom, #side, #toast') || over; // all else scrolls out of the edges
				return r.width && (r.left < 50 || r.right > innerWidth - 50 || (fixed && !over && (r.top < 40 || r.bottom > innerHeight - 34) && !e.closest('#conversations')) );
			}).map((e) => e.outerHTML.slice(0, 100))`); len(bad) > 0 {
				t.Errorf("%s: in the edges stand %q", name, bad)
			}
			call(tb, emulation.SetSafeAreaInsetsOverride, emulation.SetSafeAreaInsetsOverrideParams{Insets: &emulation.SafeAreaInsets{}})
		}
	}
}

// Where a person's few colours replace ours, what is chosen, marked or focused is still
// told from what is not.
func TestPagesAreReadInForcedColours(t *testing.T) {
	r, views := viewsRig(t, "en")
	tb := newProfile(t).open("").allow(lostRequests)
	call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}, {Name: "prefers-color-scheme", Value: "dark"}}})
	for _, v := range views {
		if !slices.Contains([]string{"empty", "conversation", "streaming", "failed", "receipt", "settings", "help", "queue"}, v.name) {
			continue
		}
		tb.turnTo(r, v)
		tb.shoot("forced-" + v.name)
		var bad []string
		switch v.name {
		case "empty":
			js[any](tb, `document.querySelector('#text').focus()`)
			bad = tb.none(`(() => { const s = getComputedStyle(document.querySelector('#composer')); return s.outlineStyle === 'solid' && s.outlineColor !== 'rgba(0, 0, 0, 0)' ? [] : ['the focus of the field: ' + s.outlineColor]; })()`)
		case "conversation":
			bad = tb.none(`[['#conversations li:has([aria-current])', 'outlineStyle'], ['[data-role=user] .body', 'borderTopStyle'], ['#send', 'borderTopStyle']].filter(([s, p]) => getComputedStyle(document.querySelector(s))[p] === 'none').map(String)`)
		case "settings":
			bad = tb.none(`(() => { const [a, b] = ['input:checked + span', 'input:not(:checked) + span'].map((s) => getComputedStyle(document.querySelector('.choices ' + s)).backgroundColor); return a === b ? ['what is chosen looks like what is not: ' + a] : []; })()`)
		case "streaming":
			bad = tb.none(`[...document.querySelectorAll('.streaming .body > :last-child')].filter((e) => getComputedStyle(e, '::after').backgroundColor === getComputedStyle(document.body).backgroundColor).map((e) => 'that it is being written')`)
		case "receipt":
			bad = tb.none(`[...document.querySelectorAll('.timeline li[data-lane=arrival]')].filter((e) => getComputedStyle(e, '::before').backgroundColor === getComputedStyle(document.body).backgroundColor).map((e) => 'a point of time')`)
		}
		if len(bad) > 0 {
			t.Errorf("%s: not seen: %q", v.name, bad)
		}
	}
}

// On paper there is nothing to press, nothing that only a colour says, and all of the
// code.
func TestPagesPrint(t *testing.T) {
	r, views := viewsRig(t, "en")
	tb := newProfile(t).open("").allow(lostRequests)
	for _, lang := range []string{"light", "dark"} { // a dark page prints dark letters
		r.api("PATCH", "/api/settings", map[string]string{"theme": lang}, nil)
		for _, v := range views {
			if !slices.Contains([]string{"conversation", "branches", "failed", "receipt", "drawer"}, v.name) {
				continue
			}
			tb.turnTo(r, v)
			size(tb, 794, false) // A4 at 96 dots an inch
			call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
			name := "print-" + v.name + "-" + lang
			tb.fits(name, 794)
			tb.shoot(name)
			if bad := tb.none(`[...document.querySelectorAll('button, input, select, textarea, .copy, #side, #bottom, dialog:not(.drawer), [popover]')].filter((e) => e.checkVisibility()).map((e) => 'to press: ' + e.outerHTML.slice(0, 100))
				.concat([...document.querySelectorAll('pre, pre code, .scroll, .drawer')].filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1 && e.clientWidth).map((e) => 'cut off: ' + e.outerHTML.slice(0, 100)))`); len(bad) > 0 {
				t.Errorf("%s: %q", name, bad)
			}
			if ink := js[string](tb, `getComputedStyle(document.body).color`); ink != "rgb(36, 34, 30)" {
				t.Errorf("%s: the letters are %s", name, ink)
			}
			says := js[string](tb, `document.body.innerText`)
			for _, want := range map[string][]string{
				"conversation": {"What it costs", "return nil // 42 times, still one call", "The person wants a table"},
				"branches":     {"What is a branch"},
				"failed":       {"How does it fail?", "failed"}, // a word, not a colour
				"receipt":      {"Receipt", "billed once"},
				"drawer":       {"Receipt", "billed once"},
			}[v.name] {
				if !strings.Contains(says, want) {
					t.Errorf("%s: %q is not on the paper:\n%s", name, want, says)
				}
			}
			if v.name == "drawer" && strings.Contains(says, "What it costs") {
				t.Errorf("%s: an open receipt is printed with the conversation under it", name)
			}
			pdf := call(tb, page.PrintToPDF, page.PrintToPDFParams{})
			if len(pdf.Data) < 5000 {
				t.Errorf("%s: the PDF has %d bytes", name, len(pdf.Data))
			}
			call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
		}
	}
}

// One long cell of a table does not make a phone's worth of lines: the table scrolls.
func TestALongCellScrollsOnAPhone(t *testing.T) {
	r := newRig(t)
	session := chat.NewID()
	long := strings.TrimSpace(strings.Repeat("a cell with many words ", 12))
	r.ask(session, "[[echo | Name | Number | What it is |\n|---|--:|---|\n| one | 1,000 | "+long+" |\n| two | 2,000 | short |]]")
	tb := newProfile(t).open("")
	size(tb, 390, true)
	tb.visit(r.url + "/c/" + session)
	tb.ready()
	got := js[struct{ Cell, Height, Table, Box float64 }](tb, `(() => {
		const table = document.querySelector('#log table'), cell = table.querySelectorAll('td')[2].getBoundingClientRect();
		return {Cell: cell.width, Height: cell.height, Table: table.offsetWidth, Box: table.parentElement.clientWidth};
	})()`)
	if got.Cell < 256 || got.Table <= got.Box {
		t.Errorf("a long cell is %+v", got)
	}
	size(tb, 1200, false)
	tb.wait(`innerWidth === 1200 && (() => { const b = document.querySelector('#log .scroll'); return b.scrollWidth <= b.clientWidth; })()`) // on a desk there is nothing to scroll
	tb.fits("table", 1200)
}
