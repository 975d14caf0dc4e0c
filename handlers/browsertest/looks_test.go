package browsertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
)

// payloads are what would run if anything here let it: E15. Each sets pwned.
var payloads = []string{
	`<script>pwned=1</script>`,
	`<img src=x onerror=pwned=1>`,
	`<svg/onload=pwned=1>`,
	`"><img src=x onerror="pwned=1">`,
	`</title></textarea></template></script><script>pwned=1</script>`,
	`<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>`,
	`<a href="javascript:pwned=1">x</a>`,
	`[x](javascript:pwned=1)`,
	`[x](jAvAsCrIpT&colon;pwned=1)`,
	`[x](data:text/html,<script>parent.pwned=1</script>)`,
	`<javascript:pwned=1>`,
	"[x][y]\n\n[y]: javascript:pwned=1",
	`![x](javascript:pwned=1) ![x](http://semel.test:1/x.png "onerror=pwned=1")`,
	"```mermaid\ngraph TD; A[\"<img src=x onerror=pwned=1>\"]-->B; click A href \"javascript:pwned=1\"\n```",
	"```\"><script>pwned=1</script>\nx\n```",
	`<math><mtext><table><mglyph><style><img src=x onerror=pwned=1></style></mglyph></table></mtext></math>`,
	`<form action=http://semel.test:1/><input name=content><button id=send>x</button></form>`,
	`<base href=http://semel.test:1/><meta http-equiv=refresh content="0;url=javascript:pwned=1"><style>*{display:none}</style>`,
	`{{constructor.constructor('pwned=1')()}} ${pwned=1} <%= pwned=1 %>`,
	`$x^2 \href{javascript:pwned=1}{x}$ \(\unicode{<img src=x onerror=pwned=1>}\)`,
}

// inert fails the test when any of what people or models wrote became more than
// text and harmless elements. That the policy of the page stops it would not be
// enough: a blocked attempt is a complaint of the console.
func (tb *tab) inert() {
	tb.t.Helper()
	bad := js[[]string](tb, `(() => {
		const bad = window.pwned ? ['it ran'] : [];
		for (const e of document.querySelectorAll('#conversations .name *, #conversations .snippet *, #toast span *')) {
			if (!['mark', 'span'].includes(e.localName)) bad.push(e.outerHTML);
		}
		for (const e of document.querySelectorAll('#conversations *')) {
			if (!['p', 'a', 'div', 'section', 'h2', 'ol', 'li', 'span', 'mark', 'button', 'form', 'input'].includes(e.localName) && !e.closest('svg.icon')) bad.push(e.outerHTML);
			for (const a of e.attributes) if (/^on|^style$|^src/.test(a.name)) bad.push(e.outerHTML);
			if (e.localName === 'a' && e.origin !== location.origin) bad.push(e.outerHTML);
		}
		for (const e of document.querySelectorAll('#log .body *, #log .chip, #title *, #notice span *')) {
			if (!['p', 'a', 'pre', 'code', 'em', 'strong', 'ol', 'ul', 'li', 'blockquote', 'table', 'thead', 'tbody', 'tr', 'th', 'td',
				'br', 'hr', 'del', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'span', 'div'].includes(e.localName) && !e.matches('.copy')) bad.push(e.outerHTML);
			for (const a of e.attributes) if (/^on|^style$|^src|^(form)?action$|^id$/.test(a.name)) bad.push(e.outerHTML);
			if (e.localName === 'a' && !['http:', 'https:', 'mailto:'].includes(e.protocol)) bad.push(e.outerHTML);
		}
		return bad;
	})()`)
	for _, b := range bad {
		tb.t.Errorf("not inert: %s", b)
	}
}

// E15: questions, answers, names of models.
func TestWhatPeopleAndModelsWriteIsInert(t *testing.T) {
	r := newRig(t, func(e *engine.Options, _ *handlers.Options) { e.Models[0].Name = `<img src=x onerror=pwned=1>` })
	tb := newProfile(t).open(r.url + "/")
	var want []string
	for _, p := range payloads {
		id := tb.send("[[echo " + p + "]]") // as the title, the question, the stream, the answer
		tb.marked(id, "answered")
		want = append(want, id)
	}
	tb.inert()
	r.check(len(payloads), tb)
	tb.reload()
	tb.inert()
	r.check(len(payloads), tb)
	for i, id := range want {
		if got := js[string](tb, `document.querySelector('[data-role=user][data-request="%s"] .body').textContent`, id); got != "[[echo "+payloads[i]+"]]" {
			t.Errorf("the question %q is shown as %q", payloads[i], got)
		}
	}
}

// E15: titles, in the list, the page and the window.
func TestTitlesAreInert(t *testing.T) {
	r := newRig(t)
	titles := map[string]bool{}
	for _, p := range payloads {
		session := chat.NewID()
		r.ask(session, "[[echo x]] "+p)
		if status := r.api(http.MethodPatch, "/api/conversations/"+session, map[string]string{"title": p}, nil); status != http.StatusOK {
			t.Fatalf("title %q: status %d", p, status)
		}
		titles[strings.Join(strings.Fields(p), " ")] = true
	}
	tb := newProfile(t).open(r.url + "/")
	got := js[[]string](tb, `[...document.querySelectorAll('#conversations li a')].map((a) => a.textContent.trim().replace(/\s+/g, ' '))`)
	for _, title := range got {
		if !titles[title] {
			t.Errorf("a title is shown as %q", title)
		}
	}
	if len(got) != len(titles) {
		t.Errorf("%d titles are listed, want %d", len(got), len(titles))
	}
	tb.inert()
	for _, id := range js[[]string](tb, `[...document.querySelectorAll('#conversations li')].map((li) => li.dataset.id)`) {
		tb.click(`#conversations li[data-id="`+id+`"] a`, 1)
		tb.wait(`document.querySelector('#conversations li[data-id="%s"] a[aria-current=page]') && location.pathname === '/c/%s'`, id, id)
		tb.inert()
		if title, list := js[string](tb, `document.title.replace(/^\(\d+\) /, '')`), js[string](tb, `document.querySelector('#title').textContent`); !strings.HasPrefix(title, strings.Join(strings.Fields(list), " ")) {
			t.Errorf("the window is called %q, the conversation %q", title, list)
		}
	}
	r.check(len(payloads), tb)
}

const richAnswer = "# A heading that is rather long for a small screen\n\nA paragraph with `code`, **weight** and " +
	"a-very-long-word-without-any-break-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789.\n\n" +
	"| One | Two | Three | Four | Five | Six | Seven |\n|---|---|---|---|---|---|---|\n| a wide table | with seven | columns of | words that | do not fit | on a small | screen |\n\n" +
	"```go\nfunc main() { fmt.Println(\"a line of code that is much longer than a phone is wide, and must scroll by itself\") }\n```\n\n" +
	"> 引用：一次点击，一个问题，一个回答。\n\n1. one\n2. two\n"

// Every state of the page, in both languages, by day and by night, on a desk and
// on a phone: nothing is wider than the screen.
func TestPagesFitEveryScreen(t *testing.T) {
	r := newRig(t, func(e *engine.Options, _ *handlers.Options) { e.Models[0].Rerun = false })
	finished, failed, streaming := chat.NewID(), chat.NewID(), chat.NewID()
	r.ask(finished, "[[echo "+richAnswer+"]] 请给我看一个表格，and a-very-long-word-"+strings.Repeat("0123456789", 12))
	r.api(http.MethodPost, "/api/chat", map[string]string{"sessionId": failed, "requestId": chat.NewID(), "content": "[[cut 60]] [[rate 0]] How does it break off?"}, nil)
	r.api(http.MethodPost, "/api/chat", map[string]string{"sessionId": failed, "requestId": chat.NewID(), "content": "[[fail 400]] How does it fail?"}, nil)
	running := chat.NewID()
	r.model.upTo(400)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	tb.eval(fmt.Sprintf(`fetch('/api/chat', {method: 'POST', headers: {'Content-Type': 'application/json', Prefer: 'wait=0'},
		body: JSON.stringify({sessionId: '%s', requestId: '%s', content: '[[tokens 600]] [[rate 40]] What takes long?'})}).then(() => 1)`, streaming, running), nil)

	pages := []struct{ name, path, ready string }{
		{"empty", "/", `document.querySelector('#empty h2')`},
		{"finished", "/c/" + finished, `document.querySelector('[data-role=assistant] table')`},
		{"failed", "/c/" + failed, `document.querySelectorAll('button[data-action=retry]:not([hidden])').length === 2 && document.querySelector('[data-partial=interrupted]')`},
		{"streaming", "/c/" + streaming, `!document.querySelector('#stop').hidden && document.querySelector('.streaming .body').textContent.length > 100`},
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
			tb.wait(`document.documentElement.classList.contains('js') && document.documentElement.lang === '%s' && %s`, lang, p.ready)
			for _, width := range []int{1200, 390} {
				size(tb, width, width < 600)
				var backgrounds []string
				for _, scheme := range []string{"light", "dark"} {
					call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
					name := fmt.Sprintf("%s-%s-%s-%d", p.name, lang, scheme, width)
					tb.fits(name, width)
					backgrounds = append(backgrounds, js[string](tb, `getComputedStyle(document.body).backgroundColor`))
					tb.shoot(name)
					if width < 600 && p.name == "finished" {
						tb.click(".menu", 1)
						tb.wait(`document.querySelector('#side').matches(':popover-open')`)
						tb.fits(name+"-menu", width)
						tb.shoot(name + "-menu")
						tb.click("#side .close", 1)
					}
				}
				if backgrounds[0] == backgrounds[1] {
					t.Errorf("%s at %d px: the page is %s by day and by night", p.name, width, backgrounds[0])
				}
			}
		}
	}
	if n := len(r.model.of(running)); n != 1 {
		t.Errorf("the model was called %d times for the running question", n)
	}
	tb.click("#stop", 1)
	tb.wait(`document.querySelector('[data-partial=stopped]')`)
	r.check(4, tb)
}

func size(tb *tab, width int, mobile bool) {
	tb.t.Helper()
	call(tb, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: int64(width), Height: 844, DeviceScaleFactor: 1, Mobile: mobile})
}

// fits fails the test when the page is, and stays, wider than the screen. A phone would
// zoom out instead of scrolling, so the visible width counts, too.
func (tb *tab) fits(name string, width int) {
	tb.t.Helper()
	wide := tb.none(`new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(() => {
		const is = {inner: innerWidth, scroll: document.documentElement.scrollWidth, client: document.documentElement.clientWidth, body: document.body.scrollWidth};
		if (is.inner === %[1]d && is.scroll <= is.client && is.body <= is.client) return resume([]);
		resume([JSON.stringify(is), ...[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > %[1]d + 1).slice(0, 5).map((e) => e.outerHTML.slice(0, 120))]);
	})))`, width)
	if len(wide) > 0 {
		tb.t.Errorf("%s: the page does not fit a screen of %d px: %q", name, width, wide)
	}
}
