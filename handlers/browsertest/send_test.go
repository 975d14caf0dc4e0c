package browsertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
)

// Rows A of the chat cases: one question for one intent, whatever happens to it
// on its way.

// A6: people saw two bubbles and two answers for one "hi".
func TestFirstHiIsOneQuestionAndOneAnswer(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	id := tb.send("hi")
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.reads("? hi", "! *")
	tb.reload()
	r.check(1, tb)
	tb.reads("? hi", "! *")
}

// A8: nothing blocks the second click while the first request is on its way.
func TestDoubleClickOnSendAsksOnce(t *testing.T) {
	r := newRig(t)
	r.proxy.do(func(exchange) fault { return fault{Delay: 150 * time.Millisecond} })
	tb := newProfile(t).open("").handed()
	tb.visit(r.url + "/")
	tb.typeText("[[echo alpha]]")
	tb.click("#send", 2)
	tb.wait(`document.querySelector('#log > [data-role=assistant] .body')?.textContent.includes('alpha')`)
	r.check(1, tb)
	tb.reads("? [[echo alpha]]", "! alpha")
	if n := len(r.proxy.posts("/api/chat", "")); n != 1 {
		t.Errorf("the page sent %d messages, want 1", n)
	}
}

// A8: the chip of the first page sends every click, under one id.
func TestDoubleClickMeSendsEveryClickUnderOneID(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").handed()
	tb.visit(r.url + "/")
	r.model.upTo(0)
	tb.click(`[data-action=double]`, 2)
	id := js[string](tb, `document.querySelector('#log > [data-role=user]').dataset.request`)
	until(t, "both clicks were sent", func() bool { return len(r.proxy.posts("/api/chat", id)) == 2 })
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(1, tb)
	if n := len(r.proxy.posts("/api/chat", "")); n != 2 {
		t.Errorf("the page sent %d messages, want 2", n)
	}
	until(t, "both arrivals are on record", func() bool { return len(r.receipt(tb.session(), id).Arrivals) == 2 })
	if got := r.decisions(tb.session(), id); got[chat.DecisionFirst] != 1 || got[chat.DecisionJoined]+got[chat.DecisionReplayed] != 1 {
		t.Errorf("arrivals: got %v, want one first and one repeat", got)
	}
}

// A8: Enter twice as fast as a keyboard can, and as fast as a script can.
func TestEnterTwiceAsksOnce(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	tb.eval(`window.enters = []; document.querySelector('#text').addEventListener('keydown', (e) => e.key === 'Enter' && enters.push(e.timeStamp))`, nil)
	tb.typeText("[[echo alpha]]")
	tb.enter()
	tb.enter()
	t.Logf("the second Enter came %.0f ms after the first", js[float64](tb, `enters[1] - enters[0]`))
	tb.wait(`document.querySelector('#log > [data-role=assistant] .body')?.textContent.includes('alpha')`)
	r.check(1, tb)

	tb.typeText("[[echo beta]]")
	js[any](tb, `{ const press = () => document.querySelector('#text').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', keyCode: 13, bubbles: true, cancelable: true})); press(); press(); }`)
	tb.wait(`[...document.querySelectorAll('#log > [data-role=assistant] .body')].at(-1).textContent.includes('beta')`)
	r.check(2, tb)
	tb.reads("? [[echo alpha]]", "! alpha", "? [[echo beta]]", "! beta")
	if n := len(r.proxy.posts("/api/chat", "")); n != 2 {
		t.Errorf("the page sent %d messages, want 2", n)
	}
}

// A9: two clicks on purpose are two messages, though the words are the same.
func TestSameWordsTwiceAreTwoQuestions(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	for range 2 {
		n := js[int](tb, `document.querySelectorAll('#log > [data-role=user]').length`)
		tb.typeText("[[echo yes]] ok")
		tb.click("#send", 1)
		tb.wait(`document.querySelectorAll('#log > [data-role=user] .mark[data-mark=answered]').length === %d`, n+1)
	}
	r.check(2, tb)
	tb.reads("? [[echo yes]] ok", "! yes", "? [[echo yes]] ok", "! yes")
}

// A1: the reply is lost three times; each retry carries the id and the body of
// the first, and joins its answer. A browser itself repeats a POST whose
// connection was used before and is reset before the first byte of a reply, so
// those losses are more.
func TestLostReplyIsRetriedUnderTheSameID(t *testing.T) {
	t.Run("in its middle", func(t *testing.T) { lostReply(t, 3, fault{Cut: true}) })
	t.Run("before its first byte", func(t *testing.T) { lostReply(t, 8, fault{Drop: true}) })
}

func lostReply(t *testing.T, n int, f fault) {
	r := newRig(t)
	r.proxy.lose(n, f)
	r.model.upTo(200)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	id := tb.send("[[tokens 150]] [[rate 200]]")
	until(t, "a reply is heard", func() bool { // as if the network came back each time: the waits between tries would be minutes
		return js[bool](tb, `(dispatchEvent(new Event('online')), Boolean(document.querySelector('#log .mark[data-mark=answering]')))`)
	})
	tb.grown(id, 100)
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.reads("? [[tokens 150]] [[rate 200]]", "! *")
	sent := r.proxy.posts("/api/chat", "")
	if len(sent) != n+1 {
		t.Errorf("%d messages were sent, want the first and %d retries", len(sent), n)
	}
	for _, e := range sent {
		if e.Body != sent[0].Body {
			t.Errorf("a retry sent %s, the first %s", e.Body, sent[0].Body)
		}
	}
	if got := r.decisions(tb.session(), id); got[chat.DecisionFirst] != 1 || got[chat.DecisionJoined] != len(sent)-1 {
		t.Errorf("arrivals: got %v, want one first and %d that joined", got, len(sent)-1)
	}
}

// A2, E14: the late retry of A arrives while B streams in the same conversation. It
// gets A's answer, never B's.
func TestLateRetryNeverShowsTheOtherAnswer(t *testing.T) {
	r := newRig(t)
	r.proxy.do(func(e exchange) fault { return fault{Drop: strings.Contains(e.Body, "alpha")} })
	first := newProfile(t).open(r.url + "/").allow(lostRequests)
	a := first.send("[[echo alpha]]")
	until(t, "A is answered", func() bool { return len(r.model.of(a)) == 1 && !r.model.of(a)[0].ended.IsZero() })

	// Another person's browser: no storage is shared, so A is retried by its own tab only.
	second := newProfile(t).open(r.url + "/c/" + first.session())
	second.wait(`document.querySelector('#log > [data-role=assistant]')`)
	r.model.upTo(200)
	b := second.send("[[tokens 100]] [[rate 200]] beta")
	second.grown(b, 100)
	tries := len(r.proxy.posts("/api/chat", a))
	r.proxy.do(nil)
	first.marked(a, "answered")
	first.wait(`document.querySelector('[data-role=assistant][data-request="%s"] .body').textContent.trim() === 'alpha'`, a)
	if n := len(r.proxy.posts("/api/chat", a)); n <= tries {
		t.Fatalf("A was sent %d times and not again: this was no test", n)
	}
	r.model.upTo(whole)
	second.marked(b, "answered")
	first.reload()
	r.check(2, first, second)
	first.reads("? [[echo alpha]]", "! alpha", "? [[tokens 100]] [[rate 200]] beta", "! *")
	second.reads("? [[echo alpha]]", "! alpha", "? [[tokens 100]] [[rate 200]] beta", "! *")
}

// A3: thirty retries arrive while the first is being accepted.
func TestRetriesInTheMomentOfAcceptanceJoin(t *testing.T) {
	r := newRig(t)
	r.proxy.do(func(e exchange) fault {
		if e.RequestID == "" {
			return fault{}
		}
		return fault{Copies: 30}
	})
	tb := newProfile(t).open(r.url + "/")
	id := tb.send("[[wait 300]] [[echo alpha]]")
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.reads("? [[wait 300]] [[echo alpha]]", "! alpha")
	until(t, "31 arrivals are on record", func() bool {
		got := r.decisions(tb.session(), id)
		return got[chat.DecisionFirst] == 1 && got[chat.DecisionJoined]+got[chat.DecisionReplayed] == 30
	})
}

// skewed shifts the clock of the browser.
func (tb *tab) skewed(by time.Duration) *tab {
	tb.t.Helper()
	tb.before(fmt.Sprintf(`(() => {
		const Real = Date, by = %d;
		globalThis.Date = class extends Real {
			constructor(...at) { at.length ? super(...at) : super(Real.now() + by); }
			static now() { return Real.now() + by; }
		};
	})()`, by.Milliseconds()))
	return tb
}

// A4: ids made by a wrong clock sorted answers away and stored them twice. Here
// the page learns the server's time, and no id orders anything.
func TestWrongClockOrdersNothing(t *testing.T) {
	for _, by := range []time.Duration{10 * time.Minute, -10 * time.Minute, 72 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			r := newRig(t)
			tb := newProfile(t).open("").skewed(by)
			tb.visit(r.url + "/")
			if off := time.Duration(js[int64](tb, `Date.now()`)-time.Now().UnixMilli()) * time.Millisecond; (off - by).Abs() > 30*time.Second {
				t.Fatalf("the browser's clock is off by %s, want %s", off, by)
			}
			want := []string{}
			for _, word := range []string{"alpha", "beta", "gamma"} {
				id := tb.send("[[echo " + word + "]]")
				if at, _ := chat.IDTime(id); time.Since(at).Abs() > time.Minute {
					t.Errorf("the id %s carries the time %s", id, at)
				}
				tb.marked(id, "answered")
				want = append(want, "? [[echo "+word+"]]", "! "+word)
			}
			r.check(3, tb)
			tb.reads(want...)
			tb.reload()
			r.check(3, tb)
			tb.reads(want...)
		})
	}
}

// A12: the page is reloaded while nobody knows whether the message arrived.
func TestReloadSendsTheUnheardMessageUnderTheSameID(t *testing.T) {
	r := newRig(t)
	r.proxy.lose(1000, fault{Cut: true})
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	id := tb.send("[[echo alpha]]")
	tb.marked(id, "kept")
	if got := js[[]string](tb, `Object.keys(localStorage).filter(k => k.startsWith("semel.outbox."))`); len(got) != 1 || got[0] != "semel.outbox."+id {
		t.Errorf("kept: got %q, want the message under its id", got)
	}
	tries := len(r.proxy.posts("/api/chat", id))
	tb.reload()
	until(t, "the reloaded page sends it again", func() bool { return len(r.proxy.posts("/api/chat", id)) > tries })
	if text := js[string](tb, `document.querySelector('#text').value`); text != "" {
		t.Errorf("F4: the sent text is back in the field: %q", text)
	}
	r.proxy.do(nil)
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.reads("? [[echo alpha]]", "! alpha")
	if all, same := r.proxy.posts("/api/chat", ""), r.proxy.posts("/api/chat", id); len(all) != len(same) {
		t.Errorf("%d of %d messages carried another id", len(all)-len(same), len(all))
	}
}

// A13: no crypto.randomUUID on an origin that is not trustworthy.
func TestPlainHTTPOriginCanSend(t *testing.T) {
	r := newRig(t, func(_ *engine.Options, h *handlers.Options) { h.Hosts = []string{"semel.test"} })
	_, port, _ := strings.Cut(r.proxy.addr, ":")
	tb := newProfile(t).open("http://semel.test:" + port + "/").allow("Cross-Origin-Opener-Policy header has been ignored")
	if js[bool](tb, `isSecureContext || 'randomUUID' in crypto`) {
		t.Fatal("this is a secure context: no test")
	}
	id := tb.send("[[echo alpha]]")
	tb.marked(id, "answered")
	tb.reload()
	r.check(1, tb)
	tb.reads("? [[echo alpha]]", "! alpha")
}

// A13: a message whose id cannot be made stays where it is, and the page says so.
func TestMessageWithoutAnIDStaysInTheField(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").allow("no randomness")
	tb.before(`crypto.getRandomValues = () => { throw new Error('no randomness'); }`)
	tb.visit(r.url + "/")
	tb.typeText("precious")
	tb.enter()
	tb.wait(`!document.querySelector('#notice').hidden && document.querySelector('#notice').textContent.trim() !== ''`)
	if text := js[string](tb, `document.querySelector('#text').value`); text != "precious" {
		t.Errorf("the field holds %q, want the text", text)
	}
	r.check(0, tb)
	tb.reads()
	if n := len(r.proxy.posts("/api/chat", "")); n != 0 {
		t.Errorf("%d messages left without an id", n)
	}
}

// watch counts, after every change, what the log shows.
func (tb *tab) watch() *tab {
	tb.t.Helper()
	tb.before(`addEventListener('DOMContentLoaded', () => {
		const log = document.querySelector('#log');
		const text = (a) => a.querySelector('.body').textContent;
		window.seen = {users: 0, answers: 0, streaming: 0, first: [...log.children].map(text), shrank: 0};
		let longest = 0;
		const look = () => {
			const count = (s) => log.querySelectorAll(s).length;
			seen.users = Math.max(seen.users, count('[data-role=user]'));
			seen.answers = Math.max(seen.answers, count('[data-role=assistant]'));
			seen.streaming = Math.max(seen.streaming, count('.streaming'));
			const length = [...log.querySelectorAll('[data-role=assistant]')].reduce((n, a) => n + text(a).length, 0);
			if (length < longest) seen.shrank = Math.max(seen.shrank, longest - length);
			longest = Math.max(longest, length);
		};
		look();
		new MutationObserver(look).observe(log, {childList: true, subtree: true, characterData: true});
	})`)
	return tb
}

type seen struct {
	Users, Answers, Streaming, Shrank int
	First                             []string
}

// A14: one click on a slow line painted three bubbles, two of them stuck.
func TestOneClickOnASlowLineIsOneBubble(t *testing.T) {
	r := newRig(t)
	r.proxy.do(func(exchange) fault { return fault{Delay: 400 * time.Millisecond} })
	tb := newProfile(t).open("").watch()
	tb.visit(r.url + "/")
	tb.typeText("你好，请介绍一下自己。[[tokens 40]] [[rate 40]]")
	tb.click("#send", 1)
	tb.wait(`document.querySelector('#log > [data-role=user] .mark[data-mark=answered]')`)
	r.check(1, tb)
	tb.reads("? 你好，请介绍一下自己。[[tokens 40]] [[rate 40]]", "! *")
	if got := js[seen](tb, `seen`); got.Users != 1 || got.Answers != 1 {
		t.Errorf("the page showed %d questions and %d answers at once, want 1 and 1", got.Users, got.Answers)
	}
}

// A18: two sends and a reconnect between them keep their order.
func TestTwoSendsAndAReconnectKeepTheirOrder(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(100)
	a := tb.send("[[tokens 60]] [[rate 200]] alpha")
	b := tb.queue("[[echo beta]]")
	tb.grown(a, 50)
	r.proxy.hangUp()
	r.model.upTo(whole)
	tb.marked(a, "answered")
	tb.marked(b, "answered")
	r.check(2, tb)
	want := []string{"? [[tokens 60]] [[rate 200]] alpha", "! *", "? [[echo beta]]", "! beta"}
	tb.reads(want...)
	tb.reload()
	r.check(2, tb)
	tb.reads(want...)
}

// The network of the browser goes away, and a message is written meanwhile.
func TestMessageWrittenOfflineIsSentOnce(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	tb.offline(true)
	a := tb.send("[[echo alpha]]")
	b := tb.queue("[[echo beta]]")
	tb.marked(a, "kept")
	if n := r.accepted(); n != 0 || len(r.proxy.posts("/api/chat", "")) != 0 {
		t.Fatalf("%d messages arrived over no network", n)
	}
	tb.offline(false)
	tb.marked(a, "answered")
	tb.marked(b, "answered")
	r.check(2, tb)
	tb.reads("? [[echo alpha]]", "! alpha", "? [[echo beta]]", "! beta")
	for _, id := range []string{a, b} {
		if n := len(r.proxy.posts("/api/chat", id)); n != 1 {
			t.Errorf("request %s was sent %d times over the network, want once", id, n)
		}
	}
}

// The line is cut during an answer and comes back; nothing is sent again.
func TestLineLostDuringAnAnswerIsJoinedAgain(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").watch().allow(lostRequests)
	tb.visit(r.url + "/")
	r.model.upTo(200)
	id := tb.send("[[tokens 120]] [[rate 200]]")
	tb.grown(id, 100)
	r.proxy.online(false)
	r.model.upTo(400)
	until(t, "the answer goes on without a viewer", func() bool { return r.model.of(id)[0].emitted >= 400 })
	second := tb.queue("[[echo beta]]")
	r.proxy.online(true)
	tb.grown(id, 250)
	r.model.upTo(whole)
	tb.marked(id, "answered")
	tb.marked(second, "answered")
	r.check(2, tb)
	tb.reads("? [[tokens 120]] [[rate 200]]", "! *", "? [[echo beta]]", "! beta")
	if n := len(r.proxy.posts("/api/chat", id)); n != 1 {
		t.Errorf("the question was sent %d times, want once", n)
	}
	if got := js[seen](tb, `seen`); got.Shrank > 0 {
		t.Errorf("the shown text shrank by %d characters", got.Shrank)
	}
}

// A message that no retry can mend comes back into the field, and its id is not
// used again.
func TestRefusedMessageComesBackIntoTheField(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow("status of 413")
	long := strings.Repeat("long ", 5000)
	js[any](tb, `document.querySelector('#text').dataset.limit = 1e6`) // the server's limit was another when the page was made
	tb.typeText(long)
	tb.enter()
	tb.wait(`!document.querySelector('#notice').hidden && document.querySelector('#text').value.length > 20000`)
	r.check(0, tb)
	tb.reads()
	js[any](tb, `document.querySelector('#text').value = ''; document.querySelector('#text').dispatchEvent(new Event('input'))`)
	id := tb.send("[[echo alpha]]")
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.reads("? [[echo alpha]]", "! alpha")
	var body struct{ RequestID string }
	if err := json.Unmarshal([]byte(r.proxy.posts("/api/chat", "")[0].Body), &body); err != nil || body.RequestID == id {
		t.Errorf("the refused id %q was used again (%v)", body.RequestID, err)
	}
}
