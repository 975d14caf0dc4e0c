package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/oklog/ulid/v2"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
)

// Rows of the chat cases that have no other test; docs/cases.md lists them all.

// A11: the line dies without a reply after the question was written. Nobody knows
// whether it was billed: nothing is sent again unasked, and the page says so.
func TestALostCallIsNotRepeatedUnasked(t *testing.T) {
	r := newRig(t, func(e *engine.Options, _ *handlers.Options) { e.Models[0].Rerun = false })
	tb := newProfile(t).open(r.url + "/").allow(failedReply)
	id := tb.send("[[cut 0 once]] [[echo alpha]]")
	tb.marked(id, "unknown")
	if why := js[string](tb, `document.querySelector('.why').textContent`); !strings.Contains(why, "Whether that call was billed, nobody can know.") {
		t.Errorf("the page says %q", why)
	}
	tb.reload()
	r.check(1, tb)
	tb.click(`.again > [data-action=retry]`, 1)
	tb.marked(id, "answered")
	r.check(2, tb)
	if rc := r.receipt(tb.session(), id); len(rc.Attempts) != 2 || rc.Attempts[0].Outcome != chat.OutcomeUnknown {
		t.Errorf("attempts: got %+v, want one of which nobody knows and the one that was asked for", rc.Attempts)
	}
}

// B10: a model that says nothing is told from a page that is dead, and both end.
func TestALongWaitIsCounted(t *testing.T) {
	r := newRig(t)
	r.model.upTo(0)
	session := chat.NewID()
	id := ulid.MustNew(ulid.Timestamp(time.Now().Add(-100*time.Second)), ulid.DefaultEntropy()).String()
	tb := newProfile(t).open(r.url + "/")
	tb.eval(fmt.Sprintf(`fetch('/api/chat', {method: 'POST', headers: {'Content-Type': 'application/json', Prefer: 'wait=0'},
		body: JSON.stringify({sessionId: '%s', requestId: '%s', content: '[[echo alpha]]'})}).then(() => 1)`, session, id), nil)
	tb.visit(r.url + "/c/" + session)
	tb.marked(id, "answering")
	tb.wait(`/^no word for \d+:\d\d$/.test(document.querySelector('.why').textContent)`)
	before := js[string](tb, `document.querySelector('.why').textContent`)
	tb.wait(`document.querySelector('.why').textContent > '%s'`, before)
	r.model.upTo(whole)
	tb.marked(id, "answered")
	tb.wait(`document.querySelector('.why').textContent.trim() === ''`)
	// A short one is not.
	second := tb.send("[[echo beta]]")
	tb.marked(second, "answered")
	r.check(2, tb)
}

// B13: a failure in the middle of an answer wiped what was there.
func TestAFailureAfterTextKeepsTheText(t *testing.T) {
	r, m := moodyRig(t)
	m.set(func(m *moods) {
		m.breaks = &llm.Error{Outcome: chat.OutcomeDefinite, Code: "context_too_long", Detail: "The context is full."}
	})
	tb := newProfile(t).open("").watch().allow(failedReply)
	tb.visit(r.url + "/")
	id := tb.send("[[tokens 200]] [[rate 1000]]")
	tb.marked(id, "failed")
	tb.wait(`document.querySelector('[data-partial=interrupted]') && !document.querySelector('.again').hidden && document.querySelector('.why').textContent.trim()`)
	r.check(1, tb)
	shown := tb.text(id)
	if n := len(strings.Fields(shown)); n < 150 { // a token is a word, or a piece of one
		t.Errorf("of 200 tokens %d words are left", n)
	}
	if got := js[seen](tb, `seen`); got.Shrank > 0 {
		t.Errorf("the text shrank by %d characters", got.Shrank)
	}
	tb.reload()
	if got := tb.text(id); strings.TrimSpace(got) != strings.TrimSpace(shown) {
		t.Errorf("after a reload the page shows %q, before it showed %q", got, shown)
	}
	r.check(1, tb)
	m.set(func(m *moods) { m.breaks = nil })
	tb.click(`.again > [data-action=retry]`, 1)
	tb.marked(id, "answered")
	r.check(2, tb)
}

// C10: what arrives between the click on Stop and its effect is kept and shown; the
// text on screen never becomes less.
func TestWhatArrivesAfterStopIsKept(t *testing.T) {
	r := newRig(t)
	stop := make(chan struct{})
	r.proxy.do(func(e exchange) fault {
		if !strings.HasPrefix(e.Path, "/api/chat/stop/") {
			return fault{}
		}
		return fault{Hold: stop}
	})
	tb := newProfile(t).open("").watch()
	tb.visit(r.url + "/")
	r.model.upTo(300)
	id := tb.send("[[tokens 2000]] [[rate 1000]]")
	tb.grown(id, 200)
	atStop := len(tb.text(id))
	tb.click("#stop", 1)
	until(t, "Stop is on its way", func() bool { return len(r.proxy.posts("/api/chat/stop/"+id, "")) == 1 })
	r.model.upTo(900)
	tb.grown(id, 700)
	close(stop)
	r.stopped(id)
	tb.wait(`document.querySelector('[data-partial=stopped]')`)
	r.check(1, tb)
	if now := len(tb.text(id)); now <= atStop || js[seen](tb, `seen`).Shrank > 0 {
		t.Errorf("at Stop there were %d characters, then %d; the text shrank by %d", atStop, now, js[seen](tb, `seen`).Shrank)
	}
	tb.reload()
	r.check(1, tb)
}

// D2 in the field of the search: an Enter of a composition searches for nothing and
// leads nowhere.
func TestEnterOfACompositionInTheSearchLeadsNowhere(t *testing.T) {
	r := newRig(t)
	r.titled("first", "[[echo 你好]]")
	r.titled("second", "[[echo two]]")
	tb := newProfile(t).open(r.url + "/").ready()
	js[any](tb, `(window.here = true, document.querySelector('#q').focus())`)
	call(tb, input.ImeSetComposition, input.ImeSetCompositionParams{Text: "ni hao", SelectionStart: 6, SelectionEnd: 6})
	tb.key("Enter", 229, "")
	if got := js[string](tb, `document.querySelector('#q').value`); got != "ni hao" || len(tb.rows()) != 2 {
		t.Errorf("the field has %q, the list %+v", got, tb.rows())
	}
	call(tb, input.InsertText, input.InsertTextParams{Text: "你好"})
	tb.wait(`document.querySelectorAll('#conversations li').length === 1 && document.querySelector('#conversations mark')?.textContent === '你好'`)
	if !js[bool](tb, `window.here === true`) {
		t.Error("the page went away")
	}
}

// D8: an Enter can press no other button of the form than Send.
func TestOnlySendSubmits(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").ready()
	if got := js[string](tb, `[...document.querySelectorAll('#composer button')].filter((b) => b.type === 'submit').map((b) => b.id).join(' ')`); got != "send" {
		t.Errorf("an Enter may press %q", got)
	}
}

// E1, E3: three hundred messages, read far up while an answer grows at the end: the
// line stays, also when the answer ends, and a small turn of the wheel is enough to
// let go of the end.
func TestALongConversationStaysWhereItIsReadWhileAnAnswerGrows(t *testing.T) {
	r := newRig(t)
	session := chat.NewID()
	for n := range 40 {
		r.ask(session, fmt.Sprintf("[[echo answer %d]]", n))
	}
	tb := newProfile(t).open(r.url + "/c/" + session).ready()
	r.model.upTo(400)
	id := tb.send("[[tokens 400]] [[rate 1000]]")
	r.level(tb, id)
	tb.wait(`document.documentElement.scrollHeight - innerHeight - scrollY < 24`) // at the end
	tb.wheelUp(40)
	js[any](tb, `void (window.line = [...document.querySelectorAll('#log > article')].find((a) => a.getBoundingClientRect().bottom > 200))`)
	at := tb.rests(`line`)
	r.model.upTo(1500)
	r.level(tb, id)
	if now := js[float64](tb, `line.getBoundingClientRect().top`); now != at {
		t.Errorf("near the end the line moved by %.1f px", now-at)
	}
	js[any](tb, `(window.line = document.querySelector('[data-seq="21"]'), line.scrollIntoView({block: 'center', behavior: 'instant'}))`)
	at = tb.still(`[data-seq="21"]`)
	r.model.upTo(whole)
	tb.marked(id, "answered")
	tb.numbered()
	if now := js[float64](tb, `line.getBoundingClientRect().top`); now != at {
		t.Errorf("the line moved by %.1f px until the end", now-at)
	}
	tb.wait(`!document.querySelector('#latest').hidden`)
	r.check(41, tb)
}

// E15: what was imported, and what providers say when they fail, is as inert as the
// rest.
func TestWhatIsImportedAndWhatFailuresSayIsInert(t *testing.T) {
	r, m := moodyRig(t)
	var list []any
	for _, p := range payloads {
		list = append(list, chat.NewID(), p, true, strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(p, `\`, `\\`), `"`, `\"`), "\n", `\n`))
	}
	tb := newProfile(t).open(r.url + "/import").ready()
	tb.choose(exported(list[:4*9]...), exported(list[4*9:4*18]...), exported(list[4*18:]...))
	tb.click("#importer button", 1)
	for _, got := range tb.report(len(payloads)) {
		if !strings.HasPrefix(got, "imported ") {
			t.Fatalf("the report says %q", got)
		}
	}
	bad := js[[]string](tb, `[...document.querySelectorAll('#report *')].filter((e) => !['li', 'strong', 'span', 'a', 'p', 'ul', 'ol', 'h2', 'svg'].includes(e.localName) && !e.closest('svg')).map((e) => e.outerHTML)`)
	if len(bad) > 0 || js[bool](tb, `window.pwned`) {
		t.Errorf("the report has %q", bad)
	}
	for i := range payloads {
		tb.visit(r.url + "/c/" + list[4*i].(string))
		tb.ready()
		tb.inert()
		if got := js[string](tb, `document.querySelector('#log > [data-role=user] .body').textContent`); got != payloads[i] {
			t.Errorf("the question %q is shown as %q", payloads[i], got)
		}
	}

	tb.allow(failedReply)
	tb.visit(r.url + "/")
	for _, p := range payloads {
		m.set(func(m *moods) {
			m.breaks = &llm.Error{Outcome: chat.OutcomeDefinite, Code: "provider_" + strings.Repeat("x", 3), Detail: p}
		})
		id := tb.send("[[echo alpha]]")
		tb.marked(id, "failed")
		tb.wait(`document.querySelector('article[data-request="%s"] .why').textContent.trim()`, id)
		tb.wait(`document.querySelector('%s').dataset.seq`, last("user"))
		tb.inert()
		tb.press(`article[data-request="` + id + `"] a.mark`)
		tb.wait(`document.querySelector('dialog[open] .timeline')`)
		if js[bool](tb, `window.pwned || document.querySelector('dialog :is(script, img, iframe, style, base, meta, math, [onload], [onerror]), .why > *') !== null`) {
			t.Errorf("the failure %q became more than text", p)
		}
		tb.key("Escape", 27, "")
		tb.wait(`!document.querySelector('dialog[open]')`)
	}
	if n := r.model.count(); n != len(payloads) {
		t.Errorf("the model was called %d times, want once for each failure", n)
	}
}
