package browsertest

import (
	"testing"

	"github.com/chromedp/cdproto/input"

	"semel/chat"
	"semel/outbox"
)

// rowsOf counts the rows of the table of requests.
const rowsOf = `document.querySelectorAll('#requests tbody tr').length`

// streams lets a page count its streams as it opens and leaves them: streams now, the
// most at once, and the addresses. A server sees late that one was left.
func (tb *tab) streams() *tab {
	tb.t.Helper()
	tb.before(`{ const real = fetch; window.streams = 0; window.most = 0; window.feeds = []; window.fetch = (url, init) => {
		if (/\/(events$|stream\/)/.test(String(url))) {
			feeds.push(String(url));
			streams++;
			init.signal.addEventListener('abort', () => streams--, {once: true});
			queueMicrotask(() => { most = Math.max(most, streams); });
		}
		return real(url, init); }; }`)
	return tb
}

func (tb *tab) point(at point) {
	tb.t.Helper()
	call(tb, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: at.X, Y: at.Y})
}

// The page follows what happens by one stream. Rows under the pointer wait, a page that
// is paused has no stream, and says afterwards how much is new.
func TestThePageOfOperationsFollowsAndStandsStill(t *testing.T) {
	r := newRig(t)
	session := chat.NewID()
	r.ask(session, "[[echo yes]] one")
	tb := newProfile(t).open("").streams()
	size(tb, 1200, false)
	tb.visit(r.url + "/ops")
	tb.wait(rowsOf + ` === 1 && streams === 1`)
	js[any](tb, `void (window.first = document.querySelector('#requests tbody tr'))`)
	r.ask(session, "[[echo yes]] two")
	tb.wait(rowsOf + ` === 2 && document.querySelectorAll('#requests tbody tr')[1] === first`) // the same node
	if got := js[string](tb, `feeds.join()`); got != "/api/ops/events" {
		t.Errorf("the streams of the tab are %s", got)
	}

	// Under the pointer nothing moves.
	tb.point(tb.center(`#requests tbody tr:last-child td:nth-child(4)`))
	at := tb.rests(`first`)
	r.ask(session, "[[echo yes]] three")
	r.ask(session, "[[echo yes]] four")
	tb.wait(`document.querySelector('[data-action=fresh]').textContent === '2 new'`)
	if n, now := js[int](tb, rowsOf), js[float64](tb, `first.getBoundingClientRect().top`); n != 2 || now != at {
		t.Errorf("under the pointer there are %d rows, and one moved from %v to %v", n, at, now)
	}
	js[any](tb, `document.querySelector('[data-action=fresh]').click()`)
	tb.wait(rowsOf + ` === 4 && document.querySelector('[data-action=fresh]').hidden`)

	// The focus is as good as the pointer.
	tb.point(point{4, 4})
	js[any](tb, `document.querySelector('#requests tbody a').focus()`)
	r.ask(session, "[[echo yes]] five")
	tb.wait(`document.querySelector('[data-action=fresh]').textContent === '1 new'`)
	if n := js[int](tb, rowsOf); n != 4 {
		t.Errorf("with the focus in it the table has %d rows", n)
	}
	js[any](tb, `document.activeElement.blur()`)
	tb.wait(rowsOf + ` === 5`)

	tb.click(`[data-action=pause]`, 1)
	tb.wait(`streams === 0 && document.querySelector('[data-action=pause]').getAttribute('aria-pressed') === 'true'`)
	before := js[int](tb, `feeds.length`)
	for _, words := range []string{"six", "seven", "eight"} {
		r.ask(session, "[[echo yes]] "+words)
	}
	if n := js[int](tb, rowsOf); n != 5 {
		t.Errorf("a paused page has %d rows", n)
	}
	if n := js[int](tb, `feeds.length`); n != before {
		t.Error("a paused page opened a stream")
	}
	tb.click(`[data-action=pause]`, 1)
	tb.wait(rowsOf + ` === 8 && document.querySelector('.live [role=status]').textContent === '3 new since the pause' && streams === 1`)
}

// What was asked for before a pause, and comes after it, does not count for what is new.
func TestALookFromBeforeThePauseSaysNothingAfterIt(t *testing.T) {
	r := newRig(t)
	session := chat.NewID()
	r.ask(session, "[[echo yes]] one")
	tb := newProfile(t).open("").held().streams()
	size(tb, 1200, false)
	tb.visit(r.url + "/ops")
	tb.wait(rowsOf + ` === 1 && streams === 1`)
	js[any](tb, `(hold = true)`)
	r.ask(session, "[[echo yes]] two")
	tb.wait(`window.arrive`)
	tb.click(`[data-action=pause]`, 1)
	tb.wait(`document.querySelector('[data-action=pause]').getAttribute('aria-pressed') === 'true'`)
	r.ask(session, "[[echo yes]] three")
	tb.click(`[data-action=pause]`, 1)
	tb.wait(`document.querySelector('[data-action=pause]').getAttribute('aria-pressed') === 'false'`)
	js[any](tb, `(hold = false, arrive())`)
	tb.wait(rowsOf + ` === 3 && document.querySelector('.live [role=status]').textContent !== ''`)
	if got := js[string](tb, `document.querySelector('.live [role=status]').textContent`); got != "2 new since the pause" {
		t.Errorf("the page says %q", got)
	}
}

func TestAHiddenPageOfOperationsHasNoStream(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").hides().streams()
	tb.visit(r.url + "/ops")
	tb.wait(`streams === 1`)
	js[any](tb, `hide(true)`)
	tb.wait(`streams === 0`)
	js[any](tb, `hide(false)`)
	tb.wait(`streams === 1`)
}

// All of a state are sent again while one watches, and what was refused is said.
func TestManyAreSentAgainInSight(t *testing.T) {
	r, to := actionRig(t)
	to.say(func(outbox.Message) outbox.Result {
		return outbox.Result{Outcome: chat.OutcomeUnknown, Status: 500, Code: outbox.CodeReceiverFailed}
	})
	session := chat.NewID()
	for range 3 {
		id, _ := r.asked(session, `ask:[{"name":"log_it","arguments":{"line":"A line for the log"}}]`)
		until(t, "it is given up", func() bool { return r.effects(session, id)[0].State == chat.EffectDead })
	}
	to.say(nil)
	tb := newProfile(t).open(r.url + "/ops/outbox?state=dead")
	tb.click(`#many summary`, 1)
	js[any](tb, `document.querySelector('#many [name=reason]').value = 'the log is there again'`)
	tb.click(`#many button`, 1)
	tb.wait(`document.querySelectorAll('#redriven li:not(.bad)').length === 3 && document.querySelector('#redriven progress').value === 3 && document.querySelector('#redriven [role=status]').textContent.startsWith('3 of 3')`)
	tb.wait(`document.querySelectorAll('#outbox-rows > ul > li').length === 0 && !document.querySelector('#many details')`)
	for _, b := range tb.barriers(everyRule) {
		t.Error(b)
	}
}
