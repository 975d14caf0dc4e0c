package browsertest

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/input"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
)

// Rows A20, B13, C2 and E of the chat cases: versions of messages, what is rendered,
// and where the reader is.

// moods are what a model does when it is told to, beside what the questions say.
type moods struct {
	*model
	mu       sync.Mutex
	fails    bool          // under mu; the next calls are refused
	breaks   error         // under mu; how the next answers end after their text, nil: well
	thoughts string        // under mu
	thinks   chan struct{} // under mu; closed when it has thought, nil: at once
}

func (m *moods) set(f func(*moods)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

// Stream implements [llm.Client].
func (m *moods) Stream(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	m.mu.Lock()
	fails, breaks, thoughts, thinks := m.fails, m.breaks, m.thoughts, m.thinks
	m.mu.Unlock()
	if fails {
		m.model.mu.Lock()
		m.calls = append(m.calls, &watched{Call: c})
		m.model.mu.Unlock()
		return llm.Answer{}, &llm.Error{Outcome: chat.OutcomeDefinite, Code: "provider_refused", Detail: "Not in the mood."}
	}
	for word := range strings.SplitAfterSeq(thoughts, " ") {
		emit(llm.Piece{Reasoning: word})
	}
	if thinks != nil {
		select {
		case <-thinks:
		case <-ctx.Done():
		}
	}
	a, err := m.model.Stream(ctx, c, emit)
	a.Reasoning = thoughts
	if breaks != nil && err == nil {
		return llm.Answer{}, breaks
	}
	return a, err
}

// moodyRig is a rig whose model has moods; a second model does what it is told.
func moodyRig(t *testing.T, change ...func(*engine.Options, *handlers.Options)) (*rig, *moods) {
	t.Helper()
	m := &moods{}
	moody := func(e *engine.Options, _ *handlers.Options) {
		m.model = e.Models[0].Client.(*model)
		e.Models[0].Client, e.Models[0].Rerun = m, false
		e.Models = append(e.Models, engine.Model{Name: "other", Client: m.model, Price: e.Models[0].Price})
	}
	return newRig(t, append(change, moody)...), m
}

// last is the selector of the last message of a role.
func last(role string) string {
	return fmt.Sprintf(`#log > article[data-role=%s]:nth-last-child(1 of [data-role=%s])`, role, role)
}

// numbered waits until the last answer has its number: its page has been read anew.
func (tb *tab) numbered() {
	tb.t.Helper()
	tb.wait(`document.querySelector('%s a.chip')`, last("assistant"))
}

// versions returns what the last message of a role says of its versions.
func (tb *tab) versions(role string) string {
	tb.t.Helper()
	return js[string](tb, `document.querySelector('%s .versions > span')?.textContent ?? ''`, last(role))
}

// press clicks a button as a keyboard does: with focus and Enter.
func (tb *tab) press(selector string) {
	tb.t.Helper()
	tb.wait(`(() => { const e = document.querySelector('%s'); e?.focus(); return e && document.activeElement === e; })()`, selector)
	tb.enter()
}

// still waits until an element stays where it is, and returns its top: what comes near
// the screen gets its real size only then.
func (tb *tab) still(selector string) float64 {
	tb.t.Helper()
	return tb.rests(`document.querySelector('` + selector + `')`)
}

// rests is still for an expression.
func (tb *tab) rests(element string) float64 {
	tb.t.Helper()
	return js[float64](tb, `(async () => {
		const e = %s;
		for (let n = 0, last; n < 5; ) {
			await new Promise((resume) => requestAnimationFrame(resume));
			const { top } = e.getBoundingClientRect();
			n = top === last ? n + 1 : 0;
			last = top;
		}
		return e.getBoundingClientRect().top;
	})()`, element)
}

// wheelUp turns the wheel by so many pixels over a page that has come to rest at its
// end, and returns when it has moved by all of them. A page that still grows is for
// moments as far from its end as one that was turned.
func (tb *tab) wheelUp(by int) {
	tb.t.Helper()
	tb.still(`#log > article:last-child`)
	at := js[float64](tb, `scrollY`)
	call(tb, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseWheel, X: 600, Y: 400, DeltaX: 0.01, DeltaY: -float64(by)})
	tb.wait(`Math.abs(%v - scrollY - %d) < 1`, at, by)
}

// E10: switching between branches lost the tail of the newest one.
func TestBranchesKeepTheirTails(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	tb.marked(tb.send("[[echo alpha]]"), "answered")
	tb.marked(tb.send("[[echo beta]]"), "answered")
	tb.numbered()
	first := []string{"? [[echo alpha]]", "! alpha", "? [[echo beta]]", "! beta"}

	tb.press(`article[data-seq="1"] [data-action=edit]`)
	tb.wait(`document.activeElement.matches('.editor textarea')`)
	js[any](tb, `document.activeElement.select()`)
	call(tb, input.InsertText, input.InsertTextParams{Text: "[[echo gamma]]"})
	tb.enter()
	tb.wait(`document.querySelector('%s .body').textContent.includes('gamma')`, last("assistant"))
	tb.numbered()
	tb.marked(tb.send("[[echo delta]]"), "answered")
	tb.numbered()
	second := []string{"? [[echo gamma]]", "! gamma", "? [[echo delta]]", "! delta"}
	tb.reads(second...)
	r.check(4, tb)

	branch := func(action string, n int) {
		tb.press(fmt.Sprintf(`#log > article:first-child .versions button:%s-of-type`, action))
		tb.wait(`document.querySelector('#log > article:first-child .versions > span')?.textContent === '%d/2'`, n)
	}
	branch("first", 1)
	tb.reads(first...)
	tb.wait(`document.body.dataset.aside === undefined`) // questions follow it now
	r.check(4, tb)
	branch("last", 2)
	tb.reads(second...)
	tb.wait(`document.body.dataset.aside === undefined`)
	r.check(4, tb)

	// A branch inside the first one: the older version is chosen, and stays chosen.
	branch("first", 1)
	tb.wait(`document.body.dataset.aside === undefined`)
	tb.press(last("assistant") + ` [data-action=regenerate]`)
	tb.wait(`document.querySelector('%s .versions > span')?.textContent === '2/2' && document.querySelector('%s a.chip')`, last("assistant"), last("assistant"))
	tb.press(last("assistant") + ` .versions button:first-of-type`)
	tb.wait(`document.querySelector('%s .versions > span')?.textContent === '1/2' && document.body.dataset.aside === undefined`, last("assistant"))
	branch("last", 2)
	tb.wait(`document.body.dataset.aside === undefined`)
	tb.reload()
	tb.reads(second...)
	branch("first", 1)
	if got := tb.versions("assistant"); got != "1/2" {
		t.Errorf("the branch came back with version %s of its last answer, want the one that was chosen", got)
	}
	tb.wait(`document.body.dataset.aside === undefined`)
	tb.marked(tb.send("[[echo epsilon]]"), "answered")
	tb.numbered()
	r.check(6, tb)
	tb.reads(append(first, "? [[echo epsilon]]", "! epsilon")...)
}

// E11: another answer right after the end of the first made it vanish.
func TestAnotherAnswerRightAfterTheEnd(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url+"/").allow(lostRequests, "status of 409") // what cannot be followed now is only read
	id := tb.send("[[tokens 20]] [[rate 0]] alpha")
	tb.marked(id, "answered")
	tb.numbered()
	r.model.upTo(0)
	old := tb.text(id)
	tb.press(last("assistant") + ` [data-action=regenerate]`)
	// It is there at once, in the place of the first, and says so.
	tb.wait(`document.querySelectorAll('#log > article').length === 2 && document.querySelector('%s').dataset.request !== '%s'`, last("assistant"), id)
	if got := tb.versions("assistant"); got != "2/2" {
		t.Errorf("the new answer is version %q, want 2/2", got)
	}
	tb.wait(`document.querySelector('%s .mark[data-mark=answering]')`, last("assistant"))

	// The first can be read meanwhile, and the running one found again.
	tb.press(last("assistant") + ` .versions button:first-of-type`)
	tb.wait(`document.querySelector('%s').dataset.request === '%s'`, last("assistant"), id)
	if got := tb.text(id); got != old || tb.versions("assistant") != "1/2" {
		t.Errorf("the first answer is shown as %q, %s; it was %q", got, tb.versions("assistant"), old)
	}
	tb.wait(`document.querySelector('#another')`)
	tb.reload()
	tb.wait(`document.querySelector('#another') && document.documentElement.classList.contains('js')`)
	tb.press(last("assistant") + ` .versions button:last-of-type`)
	tb.wait(`document.querySelector('%s.streaming')`, last("assistant"))
	again := js[string](tb, `document.querySelector('%s').dataset.request`, last("assistant"))
	if n := len(r.proxy.posts("/api/chat", again)); n != 1 {
		t.Errorf("the page asked for it %d times, want once: it knew that the server has it", n)
	}
	r.model.upTo(whole)
	tb.numbered()
	r.check(2, tb)
	if got := tb.versions("assistant"); got != "2/2" {
		t.Errorf("the new answer is version %q after its end, want 2/2", got)
	}
	tb.press(last("assistant") + ` .versions button:first-of-type`)
	tb.wait(`document.querySelector('%s .versions > span')?.textContent === '1/2' && document.body.dataset.aside === undefined`, last("assistant"))
	r.check(2, tb)
	if got := tb.text(id); got != old {
		t.Errorf("the first answer became %q, it was %q", got, old)
	}
}

// E11, and failures of other answers: they are shown, the first answer stays, and
// they can be asked again, with another model too.
func TestAnotherAnswerThatFails(t *testing.T) {
	r, m := moodyRig(t)
	tb := newProfile(t).open(r.url + "/").allow(failedReply)
	id := tb.send("[[echo alpha]]")
	tb.marked(id, "answered")
	tb.numbered()
	m.set(func(m *moods) { m.fails = true })
	tb.press(last("assistant") + ` [data-action=regenerate]`)
	failed := `#log > article[data-kind=regenerate][data-state=failed]`
	for range 2 {
		tb.wait(`document.querySelector('%s .mark[data-mark=failed]') && document.querySelector('%s .again:not([hidden])')`, failed, failed)
		tb.wait(`document.querySelector('article[data-role=assistant][data-request="%s"] .body')?.textContent.trim() === 'alpha'`, id)
		if why := js[string](tb, `document.querySelector('%s .why').textContent.trim()`, failed); why != "The model refused the call." {
			t.Errorf("the page says %q", why)
		}
		tb.reload()
	}
	tb.press(failed + ` .choice summary`)
	tb.press(failed + ` [data-model=other]`)
	tb.wait(`document.querySelector('%s .versions > span')?.textContent === '2/2'`, last("assistant"))
	tb.numbered()
	r.check(3, tb)
	tb.wait(`(({textContent: chip}) => chip.startsWith('other · ') && chip.includes('2 attempts'))(document.querySelector('%s .chip'))`, last("assistant"))
	tb.press(last("assistant") + ` .versions button:first-of-type`)
	tb.wait(`document.querySelector('%s').dataset.request === '%s' && document.body.dataset.aside === undefined`, last("assistant"), id)
	r.check(3, tb)
}

// A question that failed is asked again with another model, from the keyboard; Esc
// closes the menu and stops nothing.
func TestAskAgainWithAnotherModel(t *testing.T) {
	r, m := moodyRig(t)
	m.set(func(m *moods) { m.fails = true })
	tb := newProfile(t).open(r.url + "/").allow(failedReply)
	id := tb.send("[[echo alpha]]")
	tb.marked(id, "failed")
	tb.wait(`document.querySelector('article[data-seq="1"]')`)
	tb.press(`.again:not([hidden]) .choice summary`)
	tb.wait(`document.querySelector('.choice').open`)
	tb.key("Escape", 27, "")
	tb.wait(`!document.querySelector('.choice').open && document.activeElement.matches('summary')`)
	tb.enter()
	tb.wait(`document.querySelector('.choice').open`)
	// A page that is read anew leaves it open.
	js[any](tb, `(document.querySelector('article[data-seq="1"]').dataset.old = '', document.dispatchEvent(new Event('visibilitychange')))`)
	tb.wait(`!document.querySelector('[data-old]')`) // no page of the server has that
	if !js[bool](tb, `document.querySelector('.choice').open`) {
		t.Error("the menu closed by itself")
	}
	tb.press(`[data-model=other]`)
	tb.marked(id, "answered")
	tb.numbered()
	r.check(2, tb)
	tb.reads("? [[echo alpha]]", "! alpha")
	if rc := r.receipt(tb.session(), id); rc.Record.Model != "other" || len(rc.Attempts) != 2 {
		t.Errorf("it was answered by %s after %d attempts", rc.Record.Model, len(rc.Attempts))
	}
}

// D2: Esc in the editor loses nothing and stops nothing; a composition sends nothing.
func TestChangingAQuestion(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	tb.marked(tb.send("[[echo alpha]]"), "answered")
	tb.numbered()
	r.model.upTo(10)
	running := tb.send("[[tokens 30]] beta")
	tb.marked(running, "answering")
	edit := `article[data-seq="1"] [data-action=edit]`
	tb.press(edit)
	tb.wait(`document.activeElement.matches('.editor textarea')`)
	call(tb, input.InsertText, input.InsertTextParams{Text: " and more"})
	tb.key("Escape", 27, "")
	tb.wait(`!document.querySelector('.editor') && document.activeElement.matches('[data-action=edit]')`)
	r.model.upTo(whole)
	tb.marked(running, "answered")
	tb.numbered()
	if w := r.model.of(running)[0]; w.cancelled || len(r.proxy.posts("/api/chat/stop/"+running, "")) > 0 {
		t.Error("Esc in the editor stopped the answer that runs")
	}
	tb.reload()
	tb.press(edit)
	tb.wait(`document.activeElement.matches('.editor textarea') && document.activeElement.value === '[[echo alpha]] and more'`)
	js[any](tb, `(() => {
		const field = document.activeElement;
		field.dispatchEvent(new CompositionEvent('compositionstart', {bubbles: true}));
		field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', keyCode: 229, isComposing: true, bubbles: true, cancelable: true}));
	})()`)
	if !js[bool](tb, `document.querySelector('.editor') !== null`) {
		t.Fatal("Enter of a composition sent the change")
	}
	tb.enter()
	tb.wait(`document.querySelector('#log > article:first-child .versions > span')?.textContent === '2/2'`)
	tb.numbered()
	r.check(3, tb)
	tb.reads("? [[echo alpha]] and more", "! alpha")
	if left := js[[]string](tb, `Object.keys(localStorage).filter((k) => k.startsWith('semel.draft.'))`); len(left) > 0 {
		t.Errorf("drafts are left: %q", left)
	}
}

// An answer that a limit cut goes on below it.
func TestGoingOnWithAnAnswer(t *testing.T) {
	r := newRig(t)
	session := chat.NewID()
	r.ask(session, "[[echo alpha]]")
	limit := func(params string) {
		if status := r.api("PATCH", "/api/conversations/"+session, map[string]any{"params": map[string]any{params: 12}}, nil); status != 200 {
			t.Fatalf("params: status %d", status)
		}
	}
	limit("max_tokens")
	tb := newProfile(t).open(r.url + "/c/" + session)
	id := tb.send("[[tokens 60]] [[rate 0]] beta")
	tb.marked(id, "answered")
	tb.numbered()
	before := tb.text(id)
	limit("seed")
	tb.press(last("assistant") + ` [data-action=continue]`)
	tb.wait(`document.querySelectorAll('#log > [data-role=assistant]').length === 3 && document.querySelector('%s a.chip')`, last("assistant"))
	r.check(3, tb)
	tb.reads("? [[echo alpha]]", "! alpha", "? [[tokens 60]] [[rate 0]] beta", "! *", "! *")
	if tb.text(id) != before {
		t.Error("the first part has changed")
	}
	tb.wait(`document.querySelectorAll('[data-action=continue]').length === 0`)
}

// The chip says what an answer took; it opens the receipt, and the receipt says
// every arrival.
func TestChipAndReceipt(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").handed()
	tb.visit(r.url + "/")
	r.model.upTo(0)
	tb.click(`[data-action=double]`, 2)
	id := js[string](tb, `document.querySelector('#log > [data-role=user]').dataset.request`)
	until(t, "both arrivals are on record", func() bool {
		var rec struct{ State string }
		return len(r.proxy.posts("/api/chat", id)) == 2 && r.get("/api/chat/status/"+id+"?sessionId="+tb.session(), &rec) == 200 && r.decisions(tb.session(), id)[chat.DecisionJoined] == 1
	})
	r.model.upTo(whole)
	tb.numbered()
	chip := last("assistant") + ` a.chip`
	tb.wait(`(({textContent: chip}) => chip.startsWith('demo · ') && chip.includes('billed once · duplicates absorbed: 1'))(document.querySelector('%s'))`, chip)
	tb.press(chip)
	tb.wait(`document.querySelector('dialog[open] #receipt .timeline')`)
	got := js[struct{ Sentence, Lanes string }](tb, `({Sentence: document.querySelector('dialog .sentence').textContent,
		Lanes: [...document.querySelectorAll('dialog .timeline li')].map((e) => e.dataset.lane).join(' ')})`)
	if want := "This request arrived 2 times and was accepted once; the model was called once, and one answer is in the history, billed once; 1 repeat was absorbed."; got.Sentence != want {
		t.Errorf("the receipt says\n%q, want\n%q", got.Sentence, want)
	}
	for lane, n := range map[string]int{"arrival": 2, "state": 4, "attempt": 3, "snapshot": 1, "ledger": 1} {
		if have := strings.Count(got.Lanes, lane); have != n {
			t.Errorf("%d rows of %s, want %d: %s", have, lane, n, got.Lanes)
		}
	}
	tb.key("Escape", 27, "")
	tb.wait(`!document.querySelector('dialog[open]') && document.activeElement.matches('a.chip')`)
	tb.wait(`!document.querySelector('dialog #receipt')`)
	r.check(1, tb)

	// The page of it, and the receipt of a failure, from its mark.
	failed := tb.allow(failedReply).send("[[fail 400]] beta")
	tb.marked(failed, "failed")
	tb.wait(`document.querySelector('article[data-request="%s"] a.mark[href]')`, failed)
	tb.press(`article[data-request="` + failed + `"] a.mark`)
	tb.wait(`document.querySelector('dialog[open] .sentence')?.textContent.includes('ended without an answer: The model refused the call.')`)
	tb.visit(r.url + "/c/" + tb.session() + "/r/" + failed)
	tb.wait(`document.querySelector('main #receipt .sentence')?.textContent.includes('ended without an answer')`)
}

// What stopped before its first word has a receipt, too.
func TestReceiptOfAStoppedQuestion(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(failedReply)
	id := tb.send("[[hang]]")
	tb.marked(id, "answering")
	tb.click("#stop", 1)
	tb.wait(`document.querySelector('article[data-request="%s"] .mark[data-mark=failed], article[data-request="%s"] .mark[data-mark=unknown]')`, id, id)
	tb.press(`article[data-request="` + id + `"] a.mark`)
	tb.wait(`document.querySelector('dialog[open] .timeline')?.textContent.includes('A person stopped it.')`)
}

// Copying works where there is no clipboard: plain http, and not localhost.
func TestCopyOnPlainHTTP(t *testing.T) {
	r := newRig(t, func(_ *engine.Options, h *handlers.Options) { h.Hosts = []string{"semel.test"} })
	clipboard.RLock()
	defer clipboard.RUnlock()
	u, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	tb := newProfile(t).open("http://semel.test:" + u.Port() + "/").allow("Cross-Origin-Opener-Policy header has been ignored")
	if js[bool](tb, `isSecureContext || 'clipboard' in navigator`) {
		t.Fatal("there is a clipboard: no test")
	}
	const text = "Some **words**\n\n```go\nx := 1\n```\n"
	id := tb.send("[[echo " + text + "]]")
	tb.marked(id, "answered")
	tb.numbered()
	js[any](tb, `document.addEventListener('copy', () => { window.copied = document.activeElement.value; })`)
	tb.press(last("assistant") + ` .copy`)
	tb.wait(`window.copied === 'x := 1\n'`)
	tb.press(last("assistant") + ` [data-action=copy]`)
	tb.wait(`window.copied?.startsWith('Some **words**')`)
	tb.press(last("user") + ` [data-action=copy]`)
	tb.wait(`window.copied?.startsWith('[[echo Some')`)
	if focus := js[bool](tb, `document.activeElement.matches('[data-role=user] [data-action=copy]')`); !focus {
		t.Error("the focus is lost after copying")
	}
	r.check(1, tb)
}

// Reasoning is folded, and its time is the server's.
func TestReasoningIsFoldedAndTimed(t *testing.T) {
	r, m := moodyRig(t)
	think := make(chan struct{})
	m.set(func(m *moods) { m.thoughts, m.thinks = "first this, then that", think })
	tb := newProfile(t).open(r.url + "/")
	id := tb.send("[[echo alpha]]")
	summary := `document.querySelector('` + last("assistant") + ` .reasoning:not([hidden], [open]) summary')?.textContent.trim()`
	tb.wait(`%s === 'Thinking'`, summary)
	close(think)
	tb.marked(id, "answered")
	tb.numbered()
	const timed = `^Thought for [\d.]+ m?s$`
	tb.wait(`/%s/.test(%s)`, timed, summary)
	tb.reload()
	tb.wait(`/%s/.test(%s)`, timed, summary)
	if got := js[string](tb, `document.querySelector('.thoughts').textContent`); got != "first this, then that" {
		t.Errorf("the reasoning is %q", got)
	}
	r.check(1, tb)
}

// E1, E3, E7: an answer grows below the reader; the line being read stays where it
// is, and so does a selection in it, also at the end.
func TestReadingWhileAnAnswerGrows(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	r.model.upTo(0)
	var b strings.Builder
	for n := range 60 {
		fmt.Fprintf(&b, "Paragraph %d has some words, and *a few* more.\n\n```go\nfunc f%d() {}\n```\n\n", n, n)
	}
	id := tb.send("[[echo " + b.String() + "]] [[rate 500]]")
	tb.marked(id, "answering")
	r.model.upTo(b.Len() / 2)
	r.level(tb, id)
	js[any](tb, `(() => {
		window.dispatchEvent(new WheelEvent('wheel', {deltaY: -100}));
		const p = document.querySelectorAll('%s .body > p')[6];
		p.scrollIntoView({block: 'center', behavior: 'instant'});
		getSelection().selectAllChildren(p);
		window.read = p;
		window.copyButton = document.querySelector('.code .copy');
	})()`, last("assistant"))
	at := tb.rests(`read`)
	selected := js[string](tb, `getSelection().toString()`)
	stays := func(when string) {
		t.Helper()
		if now := js[float64](tb, `read.getBoundingClientRect().top`); now != at {
			t.Errorf("%s the line moved by %.1f px", when, now-at)
		}
		if got := js[string](tb, `getSelection().toString()`); got != selected || !strings.Contains(got, "Paragraph 6") {
			t.Errorf("%s the selection is %q, it was %q", when, got, selected)
		}
		if !js[bool](tb, `read.isConnected && copyButton.isConnected`) {
			t.Errorf("%s the paragraph, or the button beside it, is another one", when)
		}
	}
	r.model.upTo(3 * b.Len() / 4)
	r.level(tb, id)
	stays("while more came")
	tb.wait(`!document.querySelector('#latest').hidden`)
	r.model.upTo(whole)
	tb.numbered()
	stays("at the end")
	tb.click("#latest", 1)
	tb.wait(`document.documentElement.scrollHeight - innerHeight - scrollY < 30 && document.querySelector('#latest').hidden`)
	r.check(1, tb)
}

// held makes every document that the page fetches wait until the test calls arrive().
func (tb *tab) held() *tab {
	tb.t.Helper()
	tb.before(`{ const real = fetch; window.hold = false; window.fetch = async (url, init) => {
		const response = await real(url, init);
		if (window.hold && init?.headers?.Accept === 'text/html') await new Promise((resume) => { window.arrive = resume; });
		return response;
	}; }`)
	return tb
}

// E7: what the page reads anew comes when it likes, even between the two halves of a click.
func TestAClickUnderAMessageCountsWhateverArrivesMeanwhile(t *testing.T) {
	r, m := moodyRig(t)
	m.set(func(m *moods) { m.fails = true })
	tb := newProfile(t).open("").held().allow(failedReply)
	tb.visit(r.url + "/")
	js[any](tb, `(hold = true)`)
	first := tb.send("[[echo alpha]]")
	tb.marked(first, "failed")
	m.set(func(m *moods) { m.fails = false })
	tb.wait(`window.arrive`)
	press := func(selector string, arrives func()) {
		t.Helper()
		at := tb.center(selector)
		tb.mouse(input.DispatchMouseEventTypeMousePressed, at, 1)
		arrives()
		tb.mouse(input.DispatchMouseEventTypeMouseReleased, tb.center(selector), 1)
	}
	press(`.again > [data-action=retry]`, func() {
		js[any](tb, `(hold = false, arrive())`)
		tb.wait(`document.querySelector('%s').dataset.seq`, last("user"))
	})
	tb.marked(first, "answered")

	// Its mark leads to the receipt, whatever it says by now.
	r.model.upTo(0)
	second := tb.send("[[echo beta]]")
	tb.marked(second, "answering")
	press(`article[data-request="`+second+`"] a.mark`, func() {
		r.model.upTo(whole)
		tb.marked(second, "answered")
		tb.numbered()
	})
	tb.wait(`document.querySelector('dialog[open] .timeline')`)
	tb.key("Escape", 27, "")
	r.check(3, tb)
}

// E11: a page that was read before the end of an answer, and comes after it, takes nothing
// back.
func TestAPageFromBeforeTheEndChangesNothingAfterIt(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").watch().held()
	tb.visit(r.url + "/")
	r.model.upTo(40)
	id := tb.send("[[tokens 60]] [[rate 200]]")
	tb.grown(id, 20)
	js[any](tb, `(hold = true, document.dispatchEvent(new Event('visibilitychange')))`) // looked at again
	tb.wait(`window.arrive`)
	// Nor does one take back what came meanwhile of an answer that goes on.
	r.model.upTo(150)
	tb.grown(id, 120)
	js[any](tb, `(arrive(), window.arrive = undefined, document.dispatchEvent(new Event('visibilitychange')))`)
	tb.wait(`window.arrive`) // the next one is read when the first was taken over
	r.model.upTo(250)
	tb.grown(id, 220)
	r.model.upTo(whole)
	tb.marked(id, "answered")
	js[any](tb, `{
		const mark = document.querySelector('#log .mark'), before = document.querySelector('#live').textContent;
		window.back = [];
		new MutationObserver(() => {
			if (mark.dataset.mark !== 'answered' || !mark.isConnected) back.push(mark.dataset.mark);
			if (document.querySelector('#live').textContent !== before) back.push(document.querySelector('#live').textContent);
		}).observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
		hold = false;
		arrive();
	}`)
	tb.numbered()
	if back := js[[]string](tb, `back`); len(back) > 0 || js[seen](tb, `seen`).Shrank > 0 {
		t.Errorf("after the end the page said %q, and the text shrank by %d characters", back, js[seen](tb, `seen`).Shrank)
	}
	r.check(1, tb)
}

// E8: currency was taken for mathematics, and text vanished.
func TestCurrencyIsText(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	for _, text := range []string{"月成本 **$148+ → $19**（省 87%，年省 ~$1,550）；再降到 $15.4/月", "R$ 12,29 … R$ 15,83", "$5 and $10, $x^2$ and $$y_1$$"} {
		id := tb.send("[[echo " + text + "]]")
		tb.marked(id, "answered")
		if got, want := strings.TrimSpace(tb.text(id)), strings.ReplaceAll(text, "**", ""); got != want {
			t.Errorf("the page shows %q, want %q", got, want)
		}
	}
	tb.numbered()
	r.check(3, tb)
}

// A20: what waits its turn while an answer runs keeps it: a stop ends that answer
// alone, and the next one is the next one.
func TestStopEndsOnlyTheRunningAnswer(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(40)
	first := tb.send("[[tokens 60]] [[rate 0]] alpha")
	tb.grown(first, 20)
	second := tb.queue("[[echo beta]]")
	third := tb.queue("[[echo gamma]]")
	tb.click("#stop", 1)
	r.stopped(first)
	r.model.upTo(whole)
	tb.marked(third, "answered")
	tb.numbered()
	r.check(3, tb)
	tb.reads("? [[tokens 60]] [[rate 0]] alpha", "! *", "? [[echo beta]]", "! beta", "? [[echo gamma]]", "! gamma")
	tb.wait(`document.querySelector('article[data-request="%s"] [data-partial=stopped]')`, first)
	if calls := r.model.of(second); len(calls) != 1 || len(calls[0].Turns) != 3 {
		t.Errorf("the second question was sent %d times", len(calls))
	}
}

// E1: the page has the last turns; earlier ones come when the reader goes there, the
// line being read does not move, and it is there again after a reload.
func TestALongConversationIsReadUpwards(t *testing.T) {
	r := newRig(t)
	session := chat.NewID()
	const turns = 100
	for n := range turns {
		r.ask(session, fmt.Sprintf("[[echo answer %d]]", n))
	}
	tb := newProfile(t).open(r.url + "/c/" + session)
	tb.wait(`document.documentElement.classList.contains('js')`)
	if n := js[int](tb, `document.querySelectorAll('#log > article').length`); n != 80 {
		t.Fatalf("the page has %d messages, want 80", n)
	}
	hold := make(chan struct{})
	r.proxy.do(func(e exchange) fault {
		if e.Path != "/c/"+session {
			return fault{}
		}
		return fault{Hold: hold}
	})
	js[any](tb, `(() => {
		window.dispatchEvent(new WheelEvent('wheel', {deltaY: -100}));
		scrollTo({top: 300, behavior: 'instant'});
		window.line = [...document.querySelectorAll('#log > article')].find((a) => a.getBoundingClientRect().top > 150);
	})()`)
	top := tb.rests(`line`)
	close(hold)
	tb.wait(`document.querySelectorAll('#log > article').length > 80`)
	if moved := tb.rests(`line`) - top; math.Abs(moved) >= 1 {
		t.Errorf("the line moved by %.1f px when earlier messages came", moved)
	}
	tb.wait(`(scrollTo({top: 0, behavior: 'instant'}), document.querySelectorAll('#log > article').length === 200 && document.querySelector('#earlier').hidden)`)
	place := `(() => { const a = document.querySelector('article[data-seq="41"]'); return a ? Math.round(a.getBoundingClientRect().top) : -1e6; })()`
	js[any](tb, `document.querySelector('article[data-seq="41"]').scrollIntoView({block: 'center', behavior: 'instant'})`)
	at := int(math.Round(tb.still(`article[data-seq="41"]`)))
	tb.reload()
	tb.wait(`Math.abs(%s - %d) <= 1`, place, at)
	if now := int(math.Round(tb.still(`article[data-seq="41"]`))); max(now-at, at-now) > 1 {
		t.Errorf("after a reload the line comes to rest at %d, it was at %d", now, at)
	}
	numbers := js[[]int](tb, `[...document.querySelectorAll('#log > article')].map((a) => Number(a.dataset.seq))`)
	if !slices.IsSorted(numbers) {
		t.Errorf("the messages are out of order: %v", numbers)
	}
	// The end is the end for whoever comes anew, and a new turn leaves the rest alone.
	tb.marked(tb.send("[[echo the last]]"), "answered")
	tb.numbered()
	tb.wait(`document.querySelectorAll('#log > article').length >= 82`)
	if got := js[[]int](tb, `[...document.querySelectorAll('#log > article')].map((a) => Number(a.dataset.seq))`); !slices.IsSorted(got) || len(got) < len(numbers)+2 {
		t.Errorf("after another turn there are %d messages, before there were %d", len(got), len(numbers))
	}
}

// E1 where the browser keeps nothing in place by itself.
func TestEarlierMessagesMoveNothingWithoutScrollAnchoring(t *testing.T) {
	r := newRig(t)
	session := chat.NewID()
	for n := range 60 {
		r.ask(session, fmt.Sprintf("[[echo answer %d]]", n))
	}
	tb := newProfile(t).open(r.url + "/c/" + session)
	tb.wait(`document.documentElement.classList.contains('js')`)
	moved := js[float64](tb, `(async () => {
		const sheet = new CSSStyleSheet();
		sheet.replaceSync('* { overflow-anchor: none !important; content-visibility: visible !important; }');
		document.adoptedStyleSheets = [sheet];
		const frame = () => new Promise((resume) => requestAnimationFrame(resume));
		window.dispatchEvent(new WheelEvent('wheel', {deltaY: -100}));
		scrollTo({top: 300, behavior: 'instant'});
		const p = [...document.querySelectorAll('#log > article')].find((a) => a.getBoundingClientRect().top > 150);
		const top = p.getBoundingClientRect().top;
		while (document.querySelectorAll('#log > article').length <= 80) await frame();
		await frame();
		return p.getBoundingClientRect().top - top;
	})()`)
	if math.Abs(moved) >= 1 {
		t.Errorf("the line moved by %.1f px when earlier messages came", moved)
	}
}

// E4: a block of code grows by what comes; what is there is not laid out again.
func TestGrowingCodeKeepsItsNodes(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	var code strings.Builder
	for n := range 450 {
		fmt.Fprintf(&code, "line %d of a < b\n", n)
	}
	r.model.upTo(3000)
	id := tb.send("[[echo ```text\n" + code.String() + "```\n]] [[rate 0]]")
	tb.wait(`document.querySelectorAll('.code .lines').length >= 1`)
	js[any](tb, `(window.box = document.querySelector('.code'), window.line = document.querySelector('.lines').firstChild)`)
	r.model.upTo(6000)
	tb.wait(`document.querySelector('.code code').textContent.length > 5000`)
	if !js[bool](tb, `box.isConnected && line.isConnected`) {
		t.Error("the code was made anew while it grew")
	}
	r.model.upTo(whole)
	tb.marked(id, "answered")
	tb.numbered()
	if got := js[string](tb, `document.querySelector('.code code').textContent`); got != code.String() {
		t.Errorf("the code has %d characters, want %d", len(got), code.Len())
	}
	if n := js[int](tb, `document.querySelectorAll('.code .lines').length`); n != 5 || !js[bool](tb, `box.isConnected`) {
		t.Errorf("the code stands in %d boxes at the end, want 5, the first the same", n)
	}
	r.check(1, tb)
}

// Without scripts, buttons of messages are buttons of a form.
func TestMessagesWithoutScripts(t *testing.T) {
	r, m := moodyRig(t)
	tb := newProfile(t).withoutScripts(r.url + "/").allow(failedReply)
	ask := func(text string) string {
		tb.typeText(text)
		id := js[string](tb, `document.querySelector('#composer [name=requestId]').value`)
		tb.click("#send", 1)
		tb.wait(`document.querySelector('article[data-request="%s"]')`, id)
		return id
	}
	first := ask("[[echo alpha]]")
	tb.marked(first, "answered")
	r.clickTwice(tb, last("assistant")+` [data-action=regenerate]`) // as people do
	tb.wait(`document.querySelector('%s .versions > span')?.textContent === '2/2' && document.querySelector('%s a.chip')`, last("assistant"), last("assistant"))
	r.check(2, tb)
	tb.click(last("assistant")+` .versions button:first-of-type`, 1)
	tb.wait(`document.querySelector('%s .versions > span')?.textContent === '1/2'`, last("assistant"))
	if js[bool](tb, `document.querySelector('#another') !== null`) {
		t.Error("the branch was only read")
	}
	tb.click(last("user")+` [data-action=edit]`, 1)
	tb.wait(`document.querySelector('#text')?.value === '[[echo alpha]]' && document.querySelector('#another')`)
	js[any](tb, `document.querySelector('#text').value = '[[echo beta]]'`)
	tb.click("#send", 1)
	tb.wait(`document.querySelector('%s .body')?.textContent.trim() === 'beta'`, last("assistant"))
	r.check(3, tb)
	tb.reads("? [[echo beta]]", "! beta")

	m.set(func(m *moods) { m.fails = true })
	failed := ask("[[echo gamma]]")
	tb.marked(failed, "failed")
	tb.click(`article[data-request="`+failed+`"] .choice summary`, 1)
	tb.click(`article[data-request="`+failed+`"] [data-model=other]`, 1)
	tb.marked(failed, "answered")
	r.check(5, tb)
	tb.click(last("assistant")+` a.chip`, 1)
	tb.wait(`location.pathname.includes('/r/') && document.querySelector('#receipt .sentence')?.textContent.includes('called 2 times')`)
}
