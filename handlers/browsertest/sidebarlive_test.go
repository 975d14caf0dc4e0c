package browsertest

import (
	"strings"
	"testing"
)

// What the list says of other conversations while one is open, or none is looked at.

// Answered while you were away: marked, counted, and gone when looked at, on every
// device.
func TestWhatWasAnsweredElsewhereIsMarkedAndCounted(t *testing.T) {
	r := newRig(t)
	first, second := r.titled("first", "[[echo one]]"), r.titled("second", "[[echo two]]")
	tb := newProfile(t).open(r.url + "/c/" + first).ready()
	other := newProfile(t).open(r.url + "/").ready()
	marks := func(tb *tab, title string) string {
		for _, row := range tb.rows() {
			if row.Title == title {
				return strings.Join(row.Marks, " ")
			}
		}
		return "no such row"
	}
	r.model.upTo(5)
	done := make(chan bool)
	go func() {
		r.ask(second, "[[tokens 20]] [[rate 1000]]")
		done <- true
	}()
	for _, tb := range []*tab{tb, other} {
		until(t, "it is shown as running", func() bool { return marks(tb, "second") == "running" })
		if title := js[string](tb, `document.title`); strings.HasPrefix(title, "(") {
			t.Errorf("the tab counts %q before there is an answer", title)
		}
	}
	r.model.upTo(whole)
	<-done
	for _, tb := range []*tab{tb, other} {
		until(t, "it is shown as new", func() bool { return marks(tb, "second") == "news" })
		tb.wait(`document.title.startsWith('(1) ')`)
	}
	// What happens in the conversation on screen is no news.
	r.ask(first, "[[echo three]]")
	tb.wait(`document.querySelectorAll('#log [data-role=assistant]').length === 2`)
	until(t, "it is seen on the other device, too", func() bool { return marks(other, "first") == "" && marks(other, "second") == "news" })
	// Looked at on one device, it is seen on both.
	other.click(`#conversations li[data-id="`+second+`"] a`, 1)
	other.wait(`location.pathname === '/c/%s'`, second)
	for _, tb := range []*tab{tb, other} {
		tb.wait(`!document.title.startsWith('(')`)
		until(t, "it is seen", func() bool { return marks(tb, "second") == "" })
	}
	r.check(4, tb, other)
}

// A hidden page has no stream. Its title says all the same when the answer is there.
func TestAHiddenTabSaysWhenTheAnswerIsThere(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("")
	tb.before(`{ const set = setTimeout; window.setTimeout = (f, ms, ...a) => set(f, ms >= 15000 && ms < 16000 ? 200 : ms, ...a);
		let hidden = false; Object.defineProperty(document, 'hidden', { get: () => hidden });
		Object.defineProperty(document, 'visibilityState', { get: () => hidden ? 'hidden' : 'visible' });
		const get = fetch; window.looks = 0; window.fetch = (url, ...a) => { if (hidden && String(url).startsWith('/api/conversations?')) window.looks++; return get(url, ...a); };
		window.hide = (yes) => { hidden = yes; document.dispatchEvent(new Event('visibilitychange')); }; }`)
	tb.visit(r.url + "/")
	tb.ready()
	r.model.upTo(5)
	id := tb.send("[[tokens 20]] [[rate 1000]]")
	tb.grown(id, 3)
	js[any](tb, `hide(true)`)
	until(t, "no stream is open", func() bool { return r.proxy.streams() == 0 })
	tb.wait(`looks > 3`) // more than were under way when it was hidden
	r.model.upTo(whole)
	tb.wait(`document.title.startsWith('(1) ')`)
	if n := r.proxy.streams(); n != 0 {
		t.Errorf("%d streams are open while the page is hidden", n)
	}
	js[any](tb, `hide(false)`)
	tb.wait(`!document.title.startsWith('(')`)
	tb.marked(id, "answered")
	until(t, "the feed is open", func() bool { return r.proxy.streams() == 1 })
	r.check(1, tb)
}

// B18: a tab has one stream, of the list or of an answer.
func TestATabHasOneStream(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").ready()
	until(t, "the feed is open", func() bool { return r.proxy.streams() == 1 })
	r.model.upTo(50)
	id := tb.send("[[tokens 60]] [[rate 1000]]")
	tb.grown(id, 20)
	until(t, "the answer's stream is the only one", func() bool { return r.proxy.streams() == 1 })
	r.model.upTo(whole)
	tb.marked(id, "answered")
	until(t, "the feed is open again", func() bool { return r.proxy.streams() == 1 })
	// B20: what another device asks is shown here.
	r.ask(tb.session(), "[[echo from afar]]")
	tb.wait(`document.querySelectorAll('#log [data-role=assistant]').length === 2`)
	r.check(2, tb)
}
