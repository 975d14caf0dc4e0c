package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"semel/engine"
	"semel/handlers"
)

// Every state of the composer, in both languages, by day and by night, on a desk and
// on phones: nothing is wider than the screen, and what waits leaves room to read.
func TestComposerFitsEveryScreen(t *testing.T) {
	r := newRig(t, func(_ *engine.Options, h *handlers.Options) { h.MessageBytes = 2000 })
	tb := newProfile(t).open(r.url+"/").allow(lostRequests, "status of 415")
	const words = "[[tokens 60]] [[rate 200]] What does it cost to keep a promise?"
	r.model.upTo(120)
	running := tb.send(words)
	tb.grown(running, 80)
	for _, text := range []string{"And what does it cost to break one, if nobody saw it happen and a-very-long-word-" + strings.Repeat("0123456789", 12), words, "如果有人看见了呢？", "Thanks", "One more", "And one more"} {
		tb.queue(text)
	}
	session := tb.session()
	fill := func(text string) string {
		return `(() => { const e = document.querySelector('#text'); e.value = '` + text + `'; e.dispatchEvent(new Event('input', {bubbles: true})); })()`
	}
	states := []struct{ name, path, open, ready string }{
		{"queue", "/c/" + session, fill(""), `document.querySelectorAll('#queue li').length === 6`},
		{"typed", "/c/" + session, fill("Half a thought\\nin two lines"), `!document.querySelector('#send').hidden`},
		{"near", "/", fill(strings.Repeat("中文 and more ", 120)), `!document.querySelector('#limit').hidden`},
		{"over", "/", fill(strings.Repeat("中文 and more ", 180)), `document.querySelector('#limit.over')`},
		{"files", "/", fill("What is in these?") + `; (() => {
			const all = new DataTransfer();
			all.items.add(new File(['one\ntwo'], 'notes of the meeting.txt'));
			all.items.add(new File([Uint8Array.from(atob('` + picture + `'), (c) => c.charCodeAt(0))], 'a picture with a name that is really long, 很长的名字.png'));
			all.items.add(new File([new Uint8Array([0, 1])], 'tool.exe'));
			document.querySelector('#pick').files = all.files;
			document.querySelector('#pick').dispatchEvent(new Event('change'));
		})()`, `document.querySelectorAll('#attached [data-state=ready]').length === 2 && document.querySelector('#attached [data-state=failed]')`},
		{"keys", "/", fill("") + `; document.querySelector('#keys button').click()`, `true`},
	}
	for _, lang := range []string{"en", "zh-CN"} {
		size(tb, 1200, false)
		tb.visit(r.url + "/")
		if js[string](tb, `document.documentElement.lang`) != lang {
			tb.click(`.language button[value="`+lang+`"]`, 1)
			tb.wait(`document.documentElement.lang === '%s'`, lang)
		}
		for _, p := range states {
			size(tb, 1200, false)
			tb.visit(r.url + p.path)
			tb.wait(`document.documentElement.lang === '%s' && document.documentElement.classList.contains('js')`, lang)
			js[any](tb, p.open)
			tb.wait(p.ready)
			for _, width := range []int{1200, 390, 320} {
				size(tb, width, width < 600)
				call(tb, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: width < 600})
				for _, scheme := range []string{"light", "dark"} {
					call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
					name := fmt.Sprintf("composer-%s-%s-%s-%d", p.name, lang, scheme, width)
					tb.fits(name, width)
					if share := js[float64](tb, `document.querySelector('#bottom').offsetHeight / innerHeight`); share > 0.6 {
						t.Errorf("%s: the composer takes %.0f %% of the screen", name, 100*share)
					}
					tb.shoot(name)
				}
			}
			call(tb, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{})
			if p.name == "files" {
				for range 3 {
					tb.click("#attached [data-do=remove]", 1)
				}
			}
			if p.name == "keys" {
				tb.click("#keys button", 1)
			}
		}
	}
	size(tb, 1200, false)
	tb.visit(r.url + "/c/" + session)
	js[any](tb, fill(""))
	for range 6 {
		tb.click("#queue [data-do=delete]", 1)
	}
	r.model.upTo(whole)
	tb.marked(running, "answered")
	r.check(1, tb)
}
