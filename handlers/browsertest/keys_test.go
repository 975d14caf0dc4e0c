package browsertest

import (
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
)

// Rows D of the chat cases: an Enter that ends a composition sends nothing.

// stamped gives synthetic events a clock of their own, which pass moves: between two
// real ones a busy machine may take longer than any hand.
const stamped = `
	const clock = (window.clock ??= { now: performance.now() });
	const stamp = (event) => Object.defineProperty(event, 'timeStamp', { value: clock.now });
	const pass = (ms) => { clock.now += ms; };`

// dispatch sends the composer synthetic events. An input method's own keys cannot
// be pressed from outside.
func (tb *tab) dispatch(events string) {
	tb.t.Helper()
	js[any](tb, `(() => {`+stamped+`
		const field = document.querySelector('#text');
		field.focus();
		const composition = (type, data = '') => field.dispatchEvent(stamp(new CompositionEvent(type, {data, bubbles: true})));
		const type = (text) => { field.value += text; field.dispatchEvent(new InputEvent('input', {data: text, bubbles: true})); };
		const enter = (init) => field.dispatchEvent(stamp(new KeyboardEvent('keydown', {key: 'Enter', code: 'Enter', bubbles: true, cancelable: true, keyCode: 13, ...init})));
		`+events+`
	})()`)
}

func TestEnterOfACompositionSendsNothing(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	for _, tt := range []struct{ name, events string }{
		{"D1, Safari: the composition ends before its Enter",
			`composition('compositionstart'); type('nihao'); composition('compositionend', 'nihao'); enter({keyCode: 229});`},
		{"D2, Chrome and Firefox: the Enter comes inside the composition",
			`composition('compositionstart'); type('ni'); enter({keyCode: 229, isComposing: true}); composition('compositionend', 'ni');`},
		{"D4, embedded WebKit: an ordinary Enter right after the end",
			`composition('compositionstart'); type('hao'); composition('compositionend', 'hao'); enter({});`},
		{"Shift+Enter is a new line", `enter({shiftKey: true});`},
	} {
		tb.dispatch(tt.events)
		if got := js[int](tb, `document.querySelectorAll('#log article').length`); got != 0 {
			t.Fatalf("%s: it sent", tt.name)
		}
	}
	if text := js[string](tb, `document.querySelector('#text').value`); text != "nihaonihao" {
		t.Errorf("the field holds %q, want everything that was typed", text)
	}
	r.check(0, tb)

	// D4: later, Enter is an Enter again.
	tb.dispatch(`field.value = ''; type('[[echo alpha]]'); composition('compositionstart'); composition('compositionend'); pass(400); enter({});`)
	tb.wait(`document.querySelector('#log .mark[data-mark=answered]')`)
	r.check(1, tb)
	tb.reads("? [[echo alpha]]", "! alpha")
}

// D2 with the browser's own composition.
func TestEnterInAComposingFieldSendsNothing(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	js[any](tb, `document.querySelector('#text').focus()`)
	call(tb, input.ImeSetComposition, input.ImeSetCompositionParams{Text: "ni hao", SelectionStart: 6, SelectionEnd: 6})
	tb.key("Enter", 229, "")
	if n := js[int](tb, `document.querySelectorAll('#log article').length`); n != 0 {
		t.Fatal("an Enter during the composition sent")
	}
	call(tb, input.InsertText, input.InsertTextParams{Text: "你好 [[echo alpha]]"})
	js[any](tb, `new Promise((resume) => setTimeout(resume, 50))`) // an Enter that comes sooner belongs to the composition
	tb.enter()
	tb.wait(`document.querySelector('#log .mark[data-mark=answered]')`)
	r.check(1, tb)
	tb.reads("? 你好 [[echo alpha]]", "! alpha")
}

// D9: on a touch keyboard Enter is the only way to a new line.
func TestEnterOnATouchKeyboardBreaksTheLine(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("")
	call(tb, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 800, DeviceScaleFactor: 2, Mobile: true})
	call(tb, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true})
	tb.visit(r.url + "/")
	if !js[bool](tb, `matchMedia('(pointer: coarse)').matches`) {
		t.Fatal("this is no touch device: no test")
	}
	tb.typeText("[[echo alpha]]")
	tb.enter()
	tb.typeText("more")
	if text := js[string](tb, `document.querySelector('#text').value`); text != "[[echo alpha]]\nmore" {
		t.Errorf("the field holds %q, want two lines", text)
	}
	tb.click("#send", 1)
	tb.wait(`document.querySelector('#log .mark[data-mark=answered]')`)
	r.check(1, tb)
}
