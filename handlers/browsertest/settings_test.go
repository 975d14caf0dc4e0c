package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
	"semel/llm/llmtest"
)

const canaryKey = "sk-canary-do-not-show-4242"

// fill types into the form that connects a model.
func (tb *tab) fill(form string, fields map[string]string) {
	tb.t.Helper()
	for name, value := range fields {
		js[any](tb, `(() => { const e = document.querySelector(%q).elements[%q]; e.value = %q; e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true})); })()`, form, name, value)
	}
}

// models are the names on the settings page.
func (tb *tab) models() string {
	tb.t.Helper()
	return strings.Join(js[[]string](tb, `[...document.querySelectorAll('.card')].map((c) => c.dataset.model)`), " ")
}

// secret fails the test when the page, or anything that this browser keeps, has the key.
func (tb *tab) secret() {
	tb.t.Helper()
	if js[bool](tb, `(document.documentElement.outerHTML + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie).includes(%q)`, canaryKey) {
		tb.t.Error("the page has the key")
	}
}

func TestAModelIsConnectedTestedAskedAndRemoved(t *testing.T) {
	r := newRig(t)
	provider := llmtest.NewServer(t, llmtest.Chat)
	provider.Play(llmtest.Script{Text: []string{"hello ", "from afar"}})
	tb := newProfile(t).open(r.url + "/")
	tb.click(`#empty a[href="/settings#connect"]`, 1)
	tb.wait(`location.pathname === '/settings' && document.readyState === 'complete'`)

	const form = "#connect form"
	tb.fill(form, map[string]string{"preset": "", "url": provider.URL, "key": canaryKey})
	tb.click(`#connect button[value="test"]`, 1)
	tb.wait(`document.querySelector('.verdict[data-verdict=ok]')`)
	if n := provider.Calls(); n != 0 {
		t.Fatalf("a test ran the model %d times", n)
	}
	if got := js[string](tb, `document.querySelector('%s').elements.key.value`, form); got != canaryKey {
		t.Errorf("after the test the key field has %q: it must be as it was typed", got)
	}
	tb.click(`[data-upstream="model-b"]`, 1)
	if got := js[string](tb, `document.querySelector('%s').elements.upstream_model.value`, form); got != "model-b" {
		t.Errorf("the chosen model is %q", got)
	}
	tb.fill(form, map[string]string{"name": "afar"})
	r.clickTwice(tb, `#connect button[value="save"]`)
	tb.wait(`document.querySelector('.card[data-model=afar]') && location.search === '?done=connected'`)
	if got := tb.models(); got != "demo afar" {
		t.Errorf("the models are %q", got)
	}
	if got := js[string](tb, `document.querySelector('.card[data-model=afar] .facts').textContent`); !strings.Contains(got, "…4242") {
		t.Errorf("its facts are %q", got)
	}
	tb.secret()
	if list, err := r.db.Models(t.Context()); err != nil || len(list) != 1 {
		t.Fatalf("%d models are stored (%v), want 1", len(list), err)
	}

	tb.click(`.card[data-model=afar] button[value="default"]`, 1)
	tb.wait(`document.querySelector('.card[data-model=afar] .badge') && document.readyState === 'complete'`)
	tb.visit(r.url + "/")
	id := tb.send("Who is there?")
	tb.marked(id, "answered")
	tb.reads("? Who is there?", "! hello from afar")
	if list := provider.Requests(); list[len(list)-1].Header.Get("Authorization") != "Bearer "+canaryKey {
		t.Error("the provider did not get the key")
	}

	tb.visit(r.url + "/settings")
	tb.click(`.card[data-model=afar] summary`, 1)
	r.clickTwice(tb, `.card[data-model=afar] button[value="remove"]`)
	tb.wait(`location.search === '?done=removed' && !document.querySelector('.card[data-model=afar]') && document.readyState === 'complete'`)
	tb.visit(r.url + "/")
	second := tb.send("[[echo alpha]]")
	tb.marked(second, "answered")
	tb.reads("? [[echo alpha]]", "! alpha")
	tb.secret()
}

func TestAFailedTestSaysWhatFailedAndKeepsWhatIsTyped(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/settings").allow("status of 422")
	const form = "#connect form"
	for _, c := range []struct{ url, wait string }{
		{"ftp://nowhere", `document.querySelector('#wrong-url')`},
		{"http://127.0.0.1:1/v1", `document.querySelector('.verdict[data-verdict=unreachable]') && !document.querySelector('#wrong-url')`},
		{r.url + "/v1", `document.querySelector('.verdict[data-verdict=address]')`},
	} {
		tb.fill(form, map[string]string{"preset": "", "url": c.url, "key": canaryKey, "upstream_model": "m"})
		tb.click(`#connect button[value="test"]`, 1)
		tb.wait(c.wait)
		if got := js[string](tb, `[...new FormData(document.querySelector('%s'))].filter(([k]) => k === 'url' || k === 'key').join(' ')`, form); got != "url,"+c.url+" key,"+canaryKey {
			t.Errorf("after the test the form has %q", got)
		}
	}
}

func TestTheFormThatConnectsAModelWorksWithoutScripts(t *testing.T) {
	r := newRig(t)
	provider := llmtest.NewServer(t, llmtest.Chat)
	tb := newProfile(t).withoutScripts(r.url + "/settings")
	const form = "#connect form"
	tb.fill(form, map[string]string{"preset": "", "url": provider.URL, "key": canaryKey, "upstream_model": "model-a"})
	tb.click(`#connect button[value="test"]`, 1)
	tb.wait(`document.querySelector('.verdict[data-verdict=ok]')`)
	tb.secret()
	tb.fill(form, map[string]string{"key": canaryKey})
	r.clickTwice(tb, `#connect button[value="save"]`)
	tb.wait(`document.querySelector('.card[data-model="model-a"]')`)
	tb.secret()
	if list, err := r.db.Models(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%d models are stored (%v), want 1", len(list), err)
	}
}

func TestChoicesTakeEffectAtOnceAndInEveryBrowser(t *testing.T) {
	r := newRig(t)
	one, other := newProfile(t).open(r.url+"/settings"), newProfile(t).open(r.url+"/")
	choose := func(name, value string) {
		t.Helper()
		one.wait(`document.readyState === 'complete'`)
		one.click(fmt.Sprintf(`input[name=%s][value=%q]`, name, value), 1)
	}
	choose("theme", "dark")
	one.wait(`document.documentElement.dataset.theme === 'dark' && document.querySelector('#done').textContent !== ''`)
	choose("sendKey", "mod_enter")
	one.wait(`localStorage.getItem('semel.enter') === 'breaks'`)
	choose("language", "zh-CN")
	one.wait(`document.documentElement.lang === 'zh-CN'`)
	other.reload()
	other.wait(`document.readyState === 'complete'`)
	if got := js[string](other, `[document.documentElement.lang, document.documentElement.dataset.theme, localStorage.getItem('semel.enter')].join(' ')`); got != "zh-CN dark breaks" {
		t.Errorf("the other browser has %q", got)
	}
	if light, dark := `rgb(251, 250, 247)`, js[string](other, `getComputedStyle(document.body).backgroundColor`); light == dark {
		t.Error("the dark page is light")
	}
}

func TestThePanelChangesTheConversationOnThePage(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	open := func() {
		t.Helper()
		tb.click(".tune", 1)
		tb.wait(`document.querySelector('#panel').matches(':popover-open')`)
	}
	open() // of new conversations
	tb.wait(`document.querySelector('#panel [name=section]')`)
	tb.click(`#panel header button`, 1)
	tb.wait(`!document.querySelector('#panel').matches(':popover-open')`)
	first := tb.send("[[echo alpha]]")
	tb.marked(first, "answered")
	open()
	tb.wait(`!document.querySelector('#panel [name=section]')`)
	tb.fill("#panel form", map[string]string{"systemPrompt": "Be brief.\nVery.", "temperature": "0.3", "maxTokens": "77"})
	tb.click(`#panel button.primary`, 1)
	tb.wait(`!document.querySelector('#panel').matches(':popover-open')`)
	second := tb.send("[[echo beta]]")
	tb.marked(second, "answered")
	r.check(2, tb)
	calls := r.model.of(second)
	if len(calls) != 1 || calls[0].Turns[0].Role != "system" || calls[0].Turns[0].Content != "Be brief.\nVery." || *calls[0].Params.Temperature != 0.3 || *calls[0].Params.MaxTokens != 77 {
		t.Errorf("it was asked with %+v", calls)
	}
	if got := r.model.of(first); len(got[0].Turns) != 1 {
		t.Errorf("the first question was asked with %+v", got[0].Turns)
	}
	open()
	tb.wait(`document.querySelector('#panel [name=temperature]').value === '0.3'`)
}

// What the panel reads when it opens comes when it likes, even between the two halves
// of a click.
func TestAClickInThePanelCountsWhateverArrivesMeanwhile(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("")
	tb.before(`{ const real = fetch; window.fetch = async (url, init) => {
		const response = await real(url, init);
		if (init?.headers?.Accept === 'text/html') await new Promise((arrive) => { window.arrive = arrive; });
		return response;
	}; }`)
	session := chat.NewID()
	r.ask(session, "[[echo yes]]")
	for _, path := range []string{"/", "/c/" + session} {
		tb.visit(r.url + path)
		tb.wait(`document.readyState === 'complete'`)
		tb.click(".tune", 1)
		tb.wait(`window.arrive`)
		js[any](tb, `document.querySelector('#panel [name=temperature]').value = '1.5'`) // of last time
		at := tb.center("#panel header button")
		tb.mouse(input.DispatchMouseEventTypeMousePressed, at, 1)
		js[any](tb, `window.arrive()`)
		tb.wait(`document.querySelector('#panel [name=temperature]').value === ''`)
		tb.mouse(input.DispatchMouseEventTypeMouseReleased, at, 1)
		tb.wait(`!document.querySelector('#panel').matches(':popover-open')`)
	}
}

// The page and the panel in both languages, by day and by night, on a desk and on a
// phone.
func TestSettingsFitEveryScreen(t *testing.T) {
	r := newRig(t, func(e *engine.Options, _ *handlers.Options) {
		e.Models[0].Name = "a model whose name is so long that it needs a second line on most telephones"
	})
	provider := llmtest.NewServer(t, llmtest.Chat)
	tb := newProfile(t).open(r.url + "/settings")
	tb.fill("#connect form", map[string]string{"preset": "", "url": provider.URL, "key": canaryKey, "upstream_model": "model-a", "name": "local", "price.input": "0.25", "price.output": "2", "context": "128000"})
	tb.click(`#connect button[value="save"]`, 1)
	tb.wait(`document.querySelector('.card[data-model=local]')`)
	session := chat.NewID()
	r.ask(session, "[[echo yes]] and now?")
	for _, lang := range []string{"en", "zh-CN"} {
		size(tb, 1200, false)
		tb.visit(r.url + "/settings")
		js[bool](tb, `window.before = true`)
		tb.click(`input[name=language][value="`+lang+`"]`, 1)
		tb.wait(`!window.before && document.documentElement.lang === '%s' && document.readyState === 'complete'`, lang)
		for _, p := range []struct{ name, path, do, ready string }{
			{"settings", "/settings", "", `document.querySelector('.card')`},
			{"settings-form", "/settings?edit=local#connect", `#connect button[value="test"]`, `document.querySelector('.verdict')`},
			{"settings-panel", "/c/" + session, ".tune", `document.querySelector('#panel').matches(':popover-open')`},
			{"settings-empty", "/", "", `document.querySelector('#empty a')`},
		} {
			size(tb, 1200, false)
			tb.visit("about:blank")
			tb.visit(r.url + p.path)
			tb.wait(`document.readyState === 'complete'`)
			if p.do != "" {
				tb.click(p.do, 1)
			}
			tb.wait(p.ready)
			for _, width := range []int{1200, 390} {
				size(tb, width, width < 600)
				for _, scheme := range []string{"light", "dark"} {
					call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
					name := fmt.Sprintf("%s-%s-%s-%d", p.name, lang, scheme, width)
					tb.fits(name, width)
					tb.shoot(name)
				}
			}
		}
	}
}
