package browsertest

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
)

// What a person writes: the field, its keys, its drafts, and what waits above it.

// queue sends a question while another one is under way, and returns the id under
// which it waits.
func (tb *tab) queue(text string) string {
	tb.t.Helper()
	before := js[int](tb, `document.querySelectorAll('#queue li').length`)
	tb.typeText(text)
	tb.enter()
	tb.wait(`document.querySelectorAll('#queue li').length > %d`, before)
	return js[string](tb, `[...document.querySelectorAll('#queue li')].at(-1).dataset.request`)
}

// waiting returns the ids of the questions that wait, as they are shown.
func (tb *tab) waiting() []string {
	tb.t.Helper()
	return js[[]string](tb, `[...document.querySelectorAll('#queue li')].map((e) => e.dataset.request)`)
}

// field returns what is in the composer.
func (tb *tab) field() string {
	tb.t.Helper()
	return js[string](tb, `document.querySelector('#text').value`)
}

// in is a button of a question that waits.
func in(id, button string) string {
	return fmt.Sprintf(`#queue li[data-request="%s"] [data-do=%s]`, id, button)
}

// Keys

// D2, D8: during a composition neither Enter nor Escape reaches what they would do
// otherwise, be it to send or to stop.
func TestKeysOfACompositionStopNothing(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	r.model.upTo(40)
	id := tb.send("[[tokens 60]] [[rate 200]]")
	tb.grown(id, 20)
	tb.wait(`!document.querySelector('#stop').hidden`)
	js[any](tb, `document.querySelector('#text').focus()`)
	call(tb, input.ImeSetComposition, input.ImeSetCompositionParams{Text: "ni hao", SelectionStart: 6, SelectionEnd: 6})
	tb.key("Enter", 229, "")
	tb.key("Escape", 229, "")
	call(tb, input.InsertText, input.InsertTextParams{Text: "你好"})
	if sent := tb.waiting(); len(sent) > 0 {
		t.Fatalf("keys of a composition sent %q", sent)
	}
	if types := js[string](tb, `document.querySelector('#stop').type`); types != "button" {
		t.Errorf("Stop is a button of type %s: an Enter may press it", types)
	}
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(1, tb)
	if got := r.model.of(id)[0]; got.cancelled || len(r.proxy.posts("/api/chat/stop/"+id, "")) > 0 {
		t.Error("keys of a composition stopped the answer")
	}
	if got := tb.field(); got != "你好" {
		t.Errorf("the field holds %q, want what was composed", got)
	}
}

// D9: which key sends is chosen in one click, said under the field, and remembered
// for every field and tab of this browser.
func TestWhichKeySendsIsChosenInOneClick(t *testing.T) {
	r := newRig(t)
	p := newProfile(t)
	tb := p.open(r.url + "/")
	hint := func(tb *tab, says string) { // another tab hears of it a moment later
		t.Helper()
		tb.wait(`document.querySelector('#keys > span').textContent === '%s'`, says)
	}
	hint(tb, "Enter sends, Shift+Enter breaks the line")
	tb.click("#keys button", 1)
	other := p.open(r.url + "/")
	for _, tb := range []*tab{tb, other} {
		hint(tb, "Ctrl+Enter sends, Enter breaks the line")
	}
	tb.reload()
	tb.typeText("[[echo alpha]]")
	tb.enter()
	tb.typeText("more")
	if got := tb.field(); got != "[[echo alpha]]\nmore" {
		t.Fatalf("the field holds %q, want two lines", got)
	}
	tb.ctrlEnter()
	tb.wait(`document.querySelector('#log .mark[data-mark=answered]')`)
	tb.reads("? [[echo alpha]]\nmore", "! alpha")

	// A question that is changed in its place follows the same rule.
	tb.wait(`document.querySelector('#log > [data-role=user]').dataset.seq`)
	js[any](tb, `document.querySelector('[data-action=edit]').click()`)
	tb.enter()
	if got := js[string](tb, `document.querySelector('.editor textarea').value`); got != "[[echo alpha]]\nmore\n" {
		t.Errorf("Enter in the editor left %q, want a new line", got)
	}
	js[any](tb, `document.querySelector('.editor [data-action=cancel]').click()`)

	other.click("#keys button", 1)
	tb.wait(`document.querySelector('#keys > span').textContent.startsWith('Enter sends')`)
	tb.typeText("[[echo beta]]")
	tb.enter()
	tb.wait(`document.querySelectorAll('#log .mark[data-mark=answered]').length === 2`)
	r.check(2, tb)
}

func (tb *tab) ctrlEnter() {
	tb.t.Helper()
	for _, typ := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
		call(tb, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: typ, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13, Modifiers: 2})
	}
}

// Drafts

// F4: a draft survives a reload, in a conversation and in a new one; what was sent
// never comes back.
func TestDraftSurvivesAReloadAndASendDoesNot(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	session := tb.session()
	tb.typeText("half a thought")
	tb.reload()
	if got := tb.field(); got != "half a thought" || tb.session() != session {
		t.Fatalf("after a reload the field holds %q in the conversation %s, want the draft in %s", got, tb.session(), session)
	}
	tb.typeText(" [[echo alpha]]")
	tb.enter()
	tb.wait(`document.querySelector('#log .mark[data-mark=answered]')`)
	if got := tb.session(); got != session {
		t.Errorf("it was sent to %s, the draft was of %s", got, session)
	}
	tb.reload()
	if got := tb.field(); got != "" {
		t.Errorf("F4: what was sent is back in the field: %q", got)
	}
	tb.typeText("the next")
	tb.reload()
	if got := tb.field(); got != "the next" {
		t.Errorf("after a reload the field holds %q", got)
	}
	r.check(1, tb)
}

// F4: the browser dies between the two writes of a send.
func TestSentTextDoesNotReappearAfterACrashInTheMiddle(t *testing.T) {
	r := newRig(t)
	r.proxy.lose(1000, fault{Cut: true})
	tb := newProfile(t).open("").allow(lostRequests)
	tb.before(`{ const remove = Storage.prototype.removeItem; Storage.prototype.removeItem = function (key) {
		if (!(key.startsWith('semel.draft.') && sessionStorage.getItem('dead') === null)) return remove.call(this, key);
		sessionStorage.setItem('dead', '1');
	}; }`)
	tb.visit(r.url + "/")
	id := tb.send("[[echo alpha]]")
	tb.marked(id, "kept")
	if n := js[int](tb, `Object.keys(localStorage).filter((k) => k.startsWith('semel.draft.')).length`); n != 1 {
		t.Fatalf("%d drafts are left: no test", n)
	}
	tb.reload()
	tb.marked(id, "kept")
	if got := tb.field(); got != "" {
		t.Errorf("what is on its way is back in the field: %q", got)
	}
	r.proxy.do(nil)
	tb.marked(id, "answered")
	r.check(1, tb)
}

// F4: a new chat whose tab is closed, or dies with the browser, is taken up by the
// next one, and not by one that is opened beside it.
func TestDraftOfANewChatOutlivesItsTab(t *testing.T) {
	r := newRig(t)
	p := newProfile(t)
	first := p.open("")
	first.before(`window.setInterval = () => 0`) // it dies: no sign of life
	first.visit(r.url + "/")
	first.typeText("half a thought")
	session := first.session()
	beside := p.open(r.url + "/")
	if got := beside.field(); got != "" || beside.session() == session {
		t.Fatalf("a tab beside it shows %q in %s", got, beside.session())
	}
	beside.wait(`localStorage['semel.draft.%s'].includes('half a thought')`, session) // one tab's storage is another's a moment later
	later := p.open("").skewed(11 * time.Minute)                                      // without a sign of life
	later.visit(r.url + "/")
	if got := later.field(); got != "half a thought" || later.session() != session {
		t.Errorf("after its tab died the field holds %q", got)
	}
	later.visit("about:blank") // left
	beside.wait(`JSON.parse(localStorage['semel.draft.%s']).held === 0`, session)
	after := p.open(r.url + "/")
	if got := after.field(); got != "half a thought" {
		t.Errorf("after its tab was closed the field holds %q", got)
	}
}

// F11: two tabs do not write over each other's drafts; two tabs of one conversation
// have one draft.
func TestTwoTabsDoNotClobberDrafts(t *testing.T) {
	r := newRig(t)
	p := newProfile(t)
	a, b := chat.NewID(), chat.NewID()
	r.ask(a, "[[echo alpha]]")
	r.ask(b, "[[echo beta]]")
	first, second := p.open(r.url+"/c/"+a), p.open(r.url+"/c/"+b)
	for n := range 5 {
		first.typeText(fmt.Sprint("a", n))
		second.typeText(fmt.Sprint("b", n))
	}
	first.reload()
	second.reload()
	if x, y := first.field(), second.field(); x != "a0a1a2a3a4" || y != "b0b1b2b3b4" {
		t.Errorf("the drafts are %q and %q", x, y)
	}
	same := p.open(r.url + "/c/" + a)
	same.wait(`document.querySelector('#text').value === 'a0a1a2a3a4'`)
	same.typeText(" and more")
	first.wait(`document.querySelector('#text').value === 'a0a1a2a3a4 and more'`)
	first.typeText("!")
	same.wait(`document.querySelector('#text').value === 'a0a1a2a3a4 and more!'`)
	same.enter()
	first.wait(`document.querySelector('#text').value === ''`)
	first.marked(js[string](same, `[...document.querySelectorAll('#log > [data-role=user]')].at(-1).dataset.request`), "answered")
	r.check(3, first, same)
}

// The queue

// Sent while an answer runs, questions wait in sight, in their order, over a reload,
// each under the id it got at Send.
func TestQuestionsWaitInTheirOrder(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(40)
	a := tb.send("[[tokens 60]] [[rate 200]] alpha")
	b, c := tb.queue("[[echo beta]]"), tb.queue("[[echo gamma]]")
	tb.grown(a, 20)
	tb.reload()
	tb.wait(`document.querySelectorAll('#queue li').length === 2`)
	if got := tb.waiting(); got[0] != b || got[1] != c {
		t.Errorf("after a reload %q wait, want %s and %s", got, b, c)
	}
	if n := len(r.proxy.posts("/api/chat", "")); n != 1 {
		t.Errorf("%d questions left, want only the first", n)
	}
	r.model.upTo(whole)
	tb.marked(c, "answered")
	r.check(3, tb)
	tb.reads("? [[tokens 60]] [[rate 200]] alpha", "! *", "? [[echo beta]]", "! beta", "? [[echo gamma]]", "! gamma")
	tb.wait(`document.querySelector('#queue').hidden`)
}

// A question that waits can be taken back into the field, where it gets a new id,
// or deleted.
func TestWaitingQuestionsCanBeChangedAndDeleted(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	r.model.upTo(40)
	a := tb.send("[[tokens 60]] [[rate 200]] alpha")
	b, c := tb.queue("[[echo beta]]"), tb.queue("[[echo gamma]]")
	tb.grown(a, 20)
	tb.typeText("typed")
	tb.click(in(b, "edit"), 1)
	if got := tb.field(); got != "[[echo beta]]\n\ntyped" {
		t.Fatalf("the field holds %q, want the text above what was typed", got)
	}
	tb.click(in(c, "delete"), 1)
	tb.wait(`document.querySelector('#queue').hidden`)
	d := tb.queue("")
	if d == b || d == c || !isULID(d) {
		t.Errorf("the changed question waits under the id %s, before it was %s", d, b)
	}
	r.model.upTo(whole)
	tb.marked(d, "answered")
	r.check(2, tb)
	tb.reads("? [[tokens 60]] [[rate 200]] alpha", "! *", "? [[echo beta]]\n\ntyped", "! beta")
	if n := len(r.proxy.posts("/api/chat", b)) + len(r.proxy.posts("/api/chat", c)); n != 0 {
		t.Errorf("what was taken back was sent %d times", n)
	}
}

// A20: "send now" on one sent all of them, and two answers ran in one conversation.
func TestSendNowStopsTheAnswerAndSendsOnlyThatOne(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	r.model.upTo(40)
	first := tb.send("[[tokens 60]] [[rate 200]] alpha")
	second, third := tb.queue("[[echo beta]]"), tb.queue("[[tokens 60]] [[rate 200]] gamma")
	tb.grown(first, 20)
	tb.click(in(third, "now"), 1)
	tb.wait(`document.querySelector('[data-request="%s"] [data-partial=stopped]')`, first)
	tb.grown(third, 20)
	if got := tb.waiting(); len(got) != 1 || got[0] != second {
		t.Errorf("%q wait, want only the second", got)
	}
	if n := len(r.proxy.posts("/api/chat", second)); n != 0 {
		t.Errorf("the second question was sent %d times", n)
	}
	r.stopped(first)
	r.model.upTo(whole)
	tb.marked(second, "answered")
	r.check(3, tb)
	tb.reads("? [[tokens 60]] [[rate 200]] alpha", "! *", "? [[tokens 60]] [[rate 200]] gamma", "! *", "? [[echo beta]]", "! beta")
}

// A20 on a line that is gone: nothing is stopped, so nothing is sent; it is the next.
func TestSendNowWithoutALineIsTheNext(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(40)
	first := tb.send("[[tokens 60]] [[rate 200]] alpha")
	second, third := tb.queue("[[echo beta]]"), tb.queue("[[echo gamma]]")
	tb.grown(first, 20)
	r.proxy.online(false)
	tb.click(in(third, "now"), 1)
	tb.wait(`!document.querySelector('#notice').hidden`)
	if got := tb.waiting(); len(got) != 2 || got[0] != third {
		t.Errorf("%q wait, want the third before the second", got)
	}
	r.model.upTo(whole)
	r.proxy.online(true)
	tb.marked(second, "answered")
	tb.marked(third, "answered")
	r.check(3, tb)
	tb.reads("? [[tokens 60]] [[rate 200]] alpha", "! *", "? [[echo gamma]]", "! gamma", "? [[echo beta]]", "! beta")
}

// A failed answer, or a stopped one, lets the next go.
func TestFailuresDoNotStallTheQueue(t *testing.T) {
	r := newRig(t, func(e *engine.Options, _ *handlers.Options) { e.Models[0].Rerun = false })
	tb := newProfile(t).open(r.url + "/").allow(failedReply)
	r.model.upTo(40)
	a := tb.send("[[cut 30]] [[rate 200]] alpha")
	tb.grown(a, 20)
	b, c := tb.queue("[[tokens 600]] [[rate 0]] beta"), tb.queue("[[fail 400]]")
	d := tb.queue("[[echo delta]]")
	r.model.upTo(600) // the first comes to where it is cut, the second not to its end
	tb.marked(a, "unknown")
	r.level(tb, b)
	tb.wait(`!document.querySelector('#stop').hidden`)
	tb.click("#stop", 1)
	r.model.upTo(whole)
	tb.marked(c, "failed")
	tb.marked(d, "answered")
	r.check(4, tb)
}

// The tab is closed while questions wait. The next page of any conversation sends
// them, in their order.
func TestQueueOfAClosedTabIsSentByTheNextPage(t *testing.T) {
	r := newRig(t)
	p := newProfile(t)
	tb := p.open(r.url + "/").allow(lostRequests)
	r.model.upTo(40)
	a := tb.send("[[tokens 60]] [[rate 200]] alpha")
	tb.grown(a, 20)
	b, c := tb.queue("[[echo beta]]"), tb.queue("[[echo gamma]]")
	session := tb.session()
	tb.visit("about:blank")
	r.model.upTo(whole)
	until(t, "the answer ends without a page", func() bool { return !r.model.of(a)[0].ended.IsZero() })
	if n := len(r.proxy.posts("/api/chat", "")); n != 1 {
		t.Fatalf("%d questions left: no test", n)
	}
	elsewhere := p.open(r.url + "/")
	until(t, "both are answered", func() bool { return len(r.model.of(c)) == 1 && !r.model.of(c)[0].ended.IsZero() })
	if x, y := r.model.of(b)[0], r.model.of(c)[0]; x.ended.After(y.ended) {
		t.Error("the third was answered before the second")
	}
	tb.visit(r.url + "/c/" + session)
	r.check(3, tb, elsewhere)
	tb.reads("? [[tokens 60]] [[rate 200]] alpha", "! *", "? [[echo beta]]", "! beta", "? [[echo gamma]]", "! gamma")
}

// hides lets the test hide a page: a browser without a window has no other tab to
// turn to.
func (tb *tab) hides() *tab {
	tb.t.Helper()
	tb.before(`{ let hidden = false; Object.defineProperty(document, 'hidden', { get: () => hidden });
		Object.defineProperty(document, 'visibilityState', { get: () => hidden ? 'hidden' : 'visible' });
		window.hide = (yes) => { hidden = yes; document.dispatchEvent(new Event('visibilitychange')); }; }`)
	return tb
}

// A page that nobody looks at still sends what waits.
func TestQueueGoesOnWhileThePageIsHidden(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").hides()
	tb.visit(r.url + "/")
	r.model.upTo(40)
	a := tb.send("[[tokens 60]] [[rate 200]] alpha")
	tb.grown(a, 20)
	b := tb.queue("[[echo beta]]")
	js[any](tb, `hide(true)`)
	r.model.upTo(whole)
	until(t, "the second is answered", func() bool { return len(r.model.of(b)) == 1 && !r.model.of(b)[0].ended.IsZero() })
	js[any](tb, `hide(false)`)
	tb.marked(b, "answered")
	r.check(2, tb)
	tb.reads("? [[tokens 60]] [[rate 200]] alpha", "! *", "? [[echo beta]]", "! beta")
}

// A9 and the offer of ui.md: the same words while they are being answered are a
// question of their own, which may be dropped.
func TestSameWordsWhileTheyAreAnsweredMayBeDropped(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	const words = "[[tokens 60]] [[rate 200]] alpha"
	r.model.upTo(40)
	a := tb.send(words)
	tb.grown(a, 20)
	b, c := tb.queue(words), tb.queue("[[echo beta]]")
	if js[bool](tb, `document.querySelector('%s').hidden`, in(b, "join")) || !js[bool](tb, `document.querySelector('%s').hidden`, in(c, "join")) {
		t.Error("the offer is not with the same words, or with others")
	}
	d := tb.queue(words)
	tb.click(in(d, "join"), 1)
	tb.wait(`document.querySelectorAll('#queue li').length === 2`)
	r.model.upTo(whole)
	tb.marked(c, "answered")
	r.check(3, tb)
	tb.reads("? "+words, "! *", "? "+words, "! *", "? [[echo beta]]", "! beta")
	if len(r.model.of(b)) != 1 || len(r.model.of(d)) != 0 {
		t.Errorf("the kept one was asked %d times, the dropped one %d times", len(r.model.of(b)), len(r.model.of(d)))
	}
}

// Size

// E5: a megabyte is pasted quickly, becomes a file beside the question, which outlives
// a reload, and is sent without a word.
func TestPastingAMegabyteIsQuick(t *testing.T) {
	r := newRig(t, func(_ *engine.Options, h *handlers.Options) { h.MessageBytes = 262_144 })
	tb := newProfile(t).open(r.url + "/")
	js[any](tb, `(() => {
		window.took = [];
		addEventListener('paste', (e) => { window.pasted = e.clipboardData.getData('text/plain').length; }, true);
		addEventListener('keydown', () => {
			const begun = performance.now();
			requestAnimationFrame(() => setTimeout(() => took.push(performance.now() - begun)));
		}, true);
	})()`)
	func() {
		clipboard.Lock()
		defer clipboard.Unlock()
		js[any](tb, `(() => {
			const from = document.createElement('textarea');
			from.value = 'one line of a long text, which in the end comes to 中文\n'.repeat(20_000).slice(0, 1_000_000);
			document.body.append(from);
			from.select();
			document.execCommand('copy');
			from.remove();
			document.querySelector('#text').focus();
		})()`)
		call(tb, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: "v", Code: "KeyV", WindowsVirtualKeyCode: 86, Modifiers: 2, Commands: []string{"paste"}})
		tb.wait(`took.length === 1 && window.pasted`)
	}()
	t.Logf("a paste of 1 MB: %.0f ms from the key to the paint", js[float64](tb, `took[0]`))
	// What makes it quick: it is a file beside the question, and not laid out.
	tb.chipsAre("ready pasted text.txt")
	if got := tb.field(); got != "" {
		t.Errorf("the field holds %d bytes", len(got))
	}
	const pasted = 1_000_000 + 4*18_518 // two letters in each line have three bytes
	tb.wait(`Object.keys(localStorage).some((k) => k.startsWith('semel.draft.') && localStorage[k].includes('"bytes":%d'))`, pasted)
	tb.reload()
	tb.wait(`document.querySelector('#attached [data-state=ready]')`)
	tb.click("#send", 1)
	tb.wait(`document.querySelector('#log [data-role=user] .mark[data-mark=answered]')`)
	if f := r.model.calls[0].Turns[0].Files; len(f) != 1 || len(f[0].Data) != pasted {
		t.Errorf("the model was sent %d files", len(f))
	}
	r.check(1, tb)
}

// A text that came into the field some other way, be it long, stays editable, and the
// field scrolls.
func TestALongTextInTheFieldCanBeChanged(t *testing.T) {
	r := newRig(t, func(_ *engine.Options, h *handlers.Options) { h.MessageBytes = 262_144 })
	tb := newProfile(t).open(r.url + "/")
	js[any](tb, `(() => { const e = document.querySelector('#text'); e.value = 'one line of a long text\n'.repeat(4000); e.dispatchEvent(new Event('input', {bubbles: true})); e.focus(); })()`)
	box := js[struct{ Height, Scroll, Window float64 }](tb, `(() => { const e = document.querySelector('#text'); return {Height: e.clientHeight, Scroll: e.scrollHeight, Window: innerHeight}; })()`)
	tb.typeText("the last words")
	if !strings.HasSuffix(tb.field(), "the last words") {
		t.Error("a long text cannot be changed")
	}
	if box.Height > box.Window/2 || box.Scroll <= box.Height {
		t.Errorf("the field is %.0f of %.0f px high and scrolls over %.0f", box.Height, box.Window, box.Scroll)
	}
}

// The field grows with its text up to a maximum, and its limit is counted in bytes
// as the server counts them, only near the end.
func TestTheLimitIsSaidNearIt(t *testing.T) {
	r := newRig(t, func(_ *engine.Options, h *handlers.Options) { h.MessageBytes = 3000 })
	tb := newProfile(t).open(r.url + "/")
	one := js[float64](tb, `document.querySelector('#text').clientHeight`)
	tb.typeText("a\nb\nc\nd")
	four := js[float64](tb, `document.querySelector('#text').clientHeight`)
	if four < 2.5*one {
		t.Errorf("one line is %.0f px, four are %.0f", one, four)
	}
	set := func(text string) {
		js[any](tb, `(() => { const e = document.querySelector('#text'); e.value = '%s'; e.dispatchEvent(new Event('input', {bubbles: true})); })()`, text)
	}
	says := func() string {
		return js[string](tb, `(() => { const e = document.querySelector('#limit'); return e.hidden ? '' : (e.classList.contains('over') ? 'over: ' : '') + e.textContent; })()`)
	}
	for _, tt := range []struct{ text, want string }{
		{strings.Repeat("x", 2600), ""},
		{strings.Repeat("中", 899), ""},
		{strings.Repeat("中", 900), "2,700 of 3,000 bytes"},
		{strings.Repeat("中", 1000), "3,000 of 3,000 bytes"},
		{strings.Repeat("中", 1000) + "x", "over: 1 byte too long: a question has at most 3,000 bytes"},
	} {
		set(tt.text)
		if got := says(); got != tt.want {
			t.Errorf("of %d bytes the page says %q, want %q", len(tt.text), got, tt.want)
		}
	}
	tb.enter()
	if n := len(r.proxy.posts("/api/chat", "")); n != 0 {
		t.Fatalf("a text that is too long was sent %d times", n)
	}
	set(strings.Repeat("中", 1000))
	tb.enter()
	tb.wait(`document.querySelector('#log .mark[data-mark=answered]')`)
	r.check(1, tb)
}

// Contract, section 1: on these the text returns to the field, under a new id; on
// 401 it stays where it is, and its id with it (B6).
func TestRefusalsReturnTheText(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").allow("Failed to load resource")
	tb.before(`{ const real = fetch; window.fetch = async (url, init) => {
		if (window.refuse && url === '/api/chat') {
			const {status, code} = window.refuse;
			window.refuse = undefined;
			window.refused = JSON.parse(init.body).requestId;
			return new Response(JSON.stringify({type: 'urn:semel:problem:' + code, code, status}), {status, headers: {'Content-Type': 'application/problem+json'}});
		}
		return real(url, init);
	}; }`)
	tb.visit(r.url + "/")
	tb.marked(tb.send("[[echo alpha]]"), "answered")
	for n, tt := range []struct {
		status int
		code   string
	}{{409, "busy"}, {410, "conversation_gone"}, {412, "key_expired"}, {413, "too_large"}, {422, "key_reused"}} {
		js[any](tb, `window.refuse = {status: %d, code: '%s'}`, tt.status, tt.code)
		tb.typeText("[[echo beta]]")
		tb.enter()
		tb.wait(`document.querySelector('#text').value === '[[echo beta]]' && !document.querySelector('#notice').hidden`)
		refused := js[string](tb, `refused`)
		tb.enter()
		tb.wait(`document.querySelectorAll('#log .mark[data-mark=answered]').length === %d`, n+2)
		if id := js[string](tb, `[...document.querySelectorAll('#log > [data-role=user]')].at(-1).dataset.request`); id == refused {
			t.Errorf("after %d the refused id was used again", tt.status)
		}
	}
	js[any](tb, `window.refuse = {status: 401, code: 'login_required'}`)
	id := tb.send("[[echo gamma]]")
	tb.marked(id, "kept")
	if got := js[string](tb, `refused`); got != id || tb.field() != "" {
		t.Errorf("after 401 the id is %s, sent was %s, and the field holds %q", id, got, tb.field())
	}
	tb.reload() // as after a login
	tb.marked(id, "answered")
	r.check(7, tb)
}

// Stop

// C6: the answer ends while nobody looks; then the button is Send again.
func TestStopIsSendAgainWhenTheAnswerEndedUnseen(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").hides()
	tb.visit(r.url + "/")
	r.model.upTo(40)
	id := tb.send("[[tokens 60]] [[rate 200]]")
	tb.grown(id, 20)
	tb.wait(`!document.querySelector('#stop').hidden && document.querySelector('#send').hidden`)
	js[any](tb, `hide(true)`)
	r.model.upTo(whole)
	until(t, "it ends", func() bool { return !r.model.of(id)[0].ended.IsZero() })
	js[any](tb, `hide(false)`)
	tb.wait(`document.querySelector('#stop').hidden && !document.querySelector('#send').hidden`)
	r.check(1, tb)
}

// A8: the answer begins between the two clicks of a double click. The second must not
// find Stop in the place of Send.
func TestSecondClickOnSendDoesNotStop(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("")
	tb.before(`{ const set = setTimeout; window.setTimeout = (f, ms, ...a) => ms === 800 ? (window.settle = f, 0) : set(f, ms, ...a); }`)
	tb.visit(r.url + "/")
	r.model.upTo(40)
	tb.typeText("[[tokens 60]] [[rate 200]]")
	tb.click("#send", 1)
	tb.wait(`document.querySelector('#log .mark[data-mark=answering]')`)
	if !js[bool](tb, `document.querySelector('#stop').hidden`) {
		t.Error("Stop took the place of Send within a double click")
	}
	tb.click("#send", 1)
	js[any](tb, `settle()`)
	tb.wait(`!document.querySelector('#stop').hidden`)
	r.model.upTo(whole)
	tb.wait(`document.querySelector('#log .mark[data-mark=answered]')`)
	r.check(1, tb)
	if n := js[int](tb, `document.querySelectorAll('[data-partial]').length`); n != 0 {
		t.Error("the second click stopped the answer")
	}
}

// C8: Stop does not move while the text grows, nor when something is typed or waits.
func TestStopStaysWhereItIs(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	r.model.upTo(40)
	id := tb.send("[[tokens 3000]] [[rate 1000]]")
	tb.grown(id, 20)
	tb.wait(`!document.querySelector('#stop').hidden`)
	at := func() point {
		return js[point](tb, `(() => { const r = document.querySelector('#stop').getBoundingClientRect(); return {X: r.x, Y: r.y}; })()`)
	}
	want := at()
	for n := 500; n <= 2500; n += 500 {
		r.model.upTo(n)
		tb.grown(id, n-200)
		if got := at(); got.X != want.X || math.Abs(got.Y-want.Y) > 1 { // a page that begins to scroll rounds once
			t.Fatalf("at %d characters Stop is at %v, before it was at %v", n, got, want)
		}
	}
	waits := tb.queue("[[echo beta]]")
	tb.typeText("more")
	if got := at(); got.X != want.X || math.Abs(got.Y-want.Y) > 1 {
		t.Errorf("with a question that waits Stop is at %v, before it was at %v", got, want)
	}
	tb.click(in(waits, "delete"), 1)
	tb.click("#stop", 1)
	r.stopped(id)
	tb.wait(`document.querySelector('#stop').hidden`)
	r.check(1, tb)
}
