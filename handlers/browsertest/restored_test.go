package browsertest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/handlers"
)

// A restore, seen from a browser: what it may have lost the answer of is asked for before
// it is sent again, and keeps its id.

// backup makes a backup of the rig's file.
func (r *rig) backup() string {
	r.t.Helper()
	b, err := r.db.Backup(r.t.Context(), filepath.Join(r.t.TempDir(), "backup.db"))
	if err != nil {
		r.t.Fatal(err)
	}
	return b.Path
}

// restored ends the server and starts another over the restored backup, at the same
// address.
func (r *rig) restored(backup string) *rig {
	r.t.Helper()
	r.stop()
	file := filepath.Join(r.t.TempDir(), "restored.db")
	if _, err := db.Restore(r.t.Context(), db.Options{Path: file, Schema: dbtest.Schema(r.t)}, backup, false); err != nil {
		r.t.Fatal(err)
	}
	d, before := dbtest.OpenAt(r.t, file, nil), map[string]int{}
	checkFile(r.t, d, func(id string, attempts int) { before[id] = attempts })
	next := openRig(r.t, d)
	next.before = before
	r.proxy.backend.Store(next.proxy.backend.Load())
	r.proxy.do(nil)
	next.proxy, next.url = r.proxy, r.url
	return next
}

// lost sends a question whose answer the page does not hear of, and which the backup
// does not have.
func (r *rig) lost(tb *tab, text string) (id string) {
	r.t.Helper()
	r.proxy.lose(1<<30, fault{Cut: true})
	id = tb.allow(lostRequests, "status of 409", "status of 50[234]").send(text)
	tb.marked(id, "kept")
	until(r.t, "it is answered", func() bool { w := r.model.of(id); return len(w) == 1 && !w[0].ended.IsZero() })
	return id
}

// anew waits until the page is one of the restored file: it comes by itself.
func (r *rig) anew(tb *tab) {
	r.t.Helper()
	tb.wait(`document.body?.dataset.epoch === '%d'`, r.db.Epoch())
	tb.ready()
}

func confirms(list []exchange) (n int) {
	for _, e := range list {
		if strings.Contains(e.Body, `"confirm":"restored"`) {
			n++
		}
	}
	return n
}

func asked(id, action string) string {
	return fmt.Sprintf(`article[data-request="%s"] [data-action=%s]`, id, action)
}

func TestAQuestionThatARestoreMayHaveLostIsAskedForOverReloadsAndSentOnce(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	tb.marked(tb.send("[[echo before]]"), "answered")
	b := r.backup()
	id := r.lost(tb, "[[echo lost]]")
	next := r.restored(b)
	next.anew(tb)
	tb.marked(id, "asked")
	sent := len(next.proxy.posts("/api/chat", id))
	tb.reload()
	next.anew(tb)
	tb.marked(id, "asked")
	if n := len(next.proxy.posts("/api/chat", id)); n != sent || confirms(next.proxy.posts("/api/chat", id)) != 0 {
		t.Errorf("it was sent %d times more, and a person said nothing", n-sent)
	}
	// What is written meanwhile does not wait for the word.
	tb.marked(tb.send("[[echo between]]"), "answered")
	tb.wait(`document.querySelector('#log > article:last-child')?.dataset.request === '%s'`, id) // it goes below what is stored
	next.clickTwice(tb, asked(id, "confirm"))
	tb.marked(id, "answered")
	next.check(2, tb)
	tb.reads("? [[echo before]]", "! before", "? [[echo between]]", "! between", "? [[echo lost]]", "! lost")
	if got := confirms(next.proxy.posts("/api/chat", "")); got != 1 || len(next.model.of(id)) != 1 {
		t.Errorf("a double click sent it %d times, and called the model %d times for it, want 1 and 1", got, len(next.model.of(id)))
	}
}

// The conversation is lost, too: its page is gone, and the question is kept for it.
func TestAQuestionOfALostConversationIsAskedForWhereverItsPageIs(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	b := r.backup()
	tb.marked(tb.send("[[echo alpha]]"), "answered")
	id := r.lost(tb, "[[echo beta]]")
	next := r.restored(b)
	tb.visit(r.url + "/")
	tb.click("#kept", 1)
	next.anew(tb)
	tb.marked(id, "asked")
	tb.click(asked(id, "confirm"), 1)
	tb.marked(id, "answered")
	next.check(1, tb)
	tb.reads("? [[echo beta]]", "! beta")
}

func TestAQuestionThatAPersonDoesNotWantSentAgainIsTextAgain(t *testing.T) {
	r := newRig(t)
	p := newProfile(t)
	tb := p.open(r.url + "/")
	tb.marked(tb.send("[[echo before]]"), "answered")
	b := r.backup()
	id := r.lost(tb, "[[echo lost]]")
	next := r.restored(b)
	next.anew(tb)
	tb.marked(id, "asked")
	other := p.open(r.url + "/c/" + tb.session()).allow("status of 409")
	other.marked(id, "asked")
	tb.click(asked(id, "withdraw"), 1)
	tb.wait(`document.querySelector('#text').value === '[[echo lost]]' && document.activeElement.id === 'text'`)
	other.wait(`!document.querySelector('article[data-request="%s"]')`, id)
	next.check(0, tb, other)
	tb.reads("? [[echo before]]", "! before")
	tb.enter() // another intent
	tb.wait(`document.querySelectorAll('#log .mark[data-mark=answered]').length === 2`)
	next.check(1, tb)
	if n := len(next.model.of(id)); n != 0 || confirms(next.proxy.posts("/api/chat", "")) != 0 {
		t.Errorf("the model was called %d times for what a person did not want", n)
	}
}

// One is answered in one tab, by the keyboard alone, and asked in the other no longer; of
// the other both say yes at the same moment.
func TestTwoTabsAreAskedAndAnsweredOnce(t *testing.T) {
	r := newRig(t)
	p := newProfile(t)
	first := p.open(r.url + "/")
	first.marked(first.send("[[echo before]]"), "answered")
	b := r.backup()
	one := r.lost(first, "[[echo one]]")
	two := first.queue("[[echo two]]") // it waits behind the first, and is asked for when that one is
	next := r.restored(b)
	next.anew(first)
	first.wait(`/restored from an earlier copy.*Send it all the same/.test(document.querySelector('#live').textContent)`) // for who does not see it
	second := p.open(r.url + "/c/" + first.session()).allow("status of 409")
	for _, tb := range []*tab{first, second} {
		tb.marked(one, "asked")
		tb.marked(two, "asked")
	}
	js[any](first, `document.querySelector('article[data-request="%s"] .asked').focus()`, one)
	first.key("Tab", 9, "")
	first.enter()
	first.wait(`document.activeElement.id === 'text'`)
	for _, tb := range []*tab{first, second} {
		tb.marked(one, "answered")
		tb.marked(two, "asked")
	}
	for _, tb := range []*tab{first, second} {
		js[any](tb, `void document.querySelector('[data-action=confirm]')?.click()`)
	}
	for _, tb := range []*tab{first, second} {
		tb.marked(two, "answered")
		tb.wait(`!document.querySelector('.asked')`)
	}
	next.check(2, first, second)
}

func TestARetryThatARestoreMayHaveLostIsAskedForAndStartsOneAttempt(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url+"/").allow(failedReply, lostRequests, "status of 409")
	const text = "[[fail 400 once]] [[echo alpha]]"
	id := tb.send(text)
	tb.marked(id, "failed")
	b := r.backup()
	tb.click(asked(id, "retry"), 1)
	tb.marked(id, "answered")
	r.check(2, tb)
	next := r.restored(b)
	next.anew(tb)
	tb.marked(id, "failed")
	next.clickTwice(tb, asked(id, "retry"))
	tb.marked(id, "asked")
	tb.click(asked(id, "withdraw"), 1)
	tb.marked(id, "failed")
	tb.wait(`document.activeElement.dataset.action === 'retry'`)
	tb.enter() // and once too often: it is not taken for the word
	tb.enter()
	tb.marked(id, "asked")
	tb.wait(`document.activeElement.matches('.asked')`)
	if n := next.model.count(); n != 0 {
		t.Errorf("the model was called %d times, and a person said nothing", n)
	}
	next.clickTwice(tb, asked(id, "confirm"))
	tb.marked(id, "answered")
	next.check(1, tb)
	tb.reads("? "+text, "! alpha")
	if got := len(next.receipt(tb.session(), id).Attempts); got != 2 {
		t.Errorf("%d attempts, want that of the backup and one", got)
	}
}

func TestARetryThatARestoreMayHaveLostIsAskedForWithoutScripts(t *testing.T) {
	r := newRig(t)
	session := "session-restored"
	r.api("POST", "/api/chat", map[string]string{"sessionId": session, "requestId": "request-restored", "content": "[[fail 400 once]] [[echo alpha]]"}, nil)
	next := r.restored(r.backup())
	tb := newProfile(t).withoutScripts(r.url + "/c/" + session).allow("status of 409")
	tb.click(asked("request-restored", "retry"), 1)
	tb.wait(`document.querySelector('#notice:not([hidden]) [form=confirm]')`)
	if n := next.model.count(); n != 0 {
		t.Fatalf("the model was called %d times, and a person said nothing", n)
	}
	next.clickTwice(tb, "#notice [form=confirm]")
	tb.marked("request-restored", "answered")
	next.check(1, tb)
}

// In both languages, by day and by night, on a desk and on a phone: what is asked fits,
// and bars nobody.
func TestWhatIsAskedAfterARestoreFitsEveryScreen(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url+"/").allow(failedReply, lostRequests, "status of 409")
	failed := tb.send("[[fail 400]] What failed before the backup?")
	tb.marked(failed, "failed")
	b := r.backup()
	id := r.lost(tb, "[[echo lost]] A question of the time that is lost, and rather a long one, so that it has more than one line on a phone")
	next := r.restored(b)
	next.anew(tb)
	for _, lang := range []string{"en", "zh-CN"} {
		size(tb, 1200, false)
		if js[string](tb, `document.documentElement.lang`) != lang {
			tb.click(`.language button[value="`+lang+`"]`, 1)
			tb.wait(`document.documentElement.lang === '%s'`, lang)
		}
		tb.ready()
		tb.marked(id, "asked")
		tb.click(asked(failed, "retry"), 1)
		tb.marked(failed, "asked")
		for _, width := range []int{1200, 390} {
			size(tb, width, width < 600)
			for _, scheme := range []string{"light", "dark"} {
				call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
					{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
				name := fmt.Sprintf("asked-%s-%s-%d", lang, scheme, width)
				tb.fits(name, width)
				tb.shoot(name)
				for _, barrier := range tb.barriers(everyRule) {
					t.Errorf("%s: %s", name, barrier)
				}
			}
		}
	}
}

// In safe mode every page says why, and what is sent is kept until the server works again.
func TestAPageInSafeModeSaysSoAndKeepsWhatIsSent(t *testing.T) {
	const why = "semel.service failed, and journalctl -u semel says how; 2026-11-30T08:00:00Z disk I/O error (10)"
	r := newRig(t, func(_ *engine.Options, h *handlers.Options) { h.Safe = why })
	tb := newProfile(t).open(r.url + "/").allow("status of 503").ready()
	id := tb.send("[[echo alpha]]")
	tb.marked(id, "kept")
	tb.wait(`document.querySelector('#log .why').textContent.includes('it only reads')`)
	tb.reload()
	tb.ready()
	tb.marked(id, "kept")
	for _, scheme := range []string{"light", "dark"} {
		call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		for _, width := range []int{1200, 390} {
			size(tb, width, width < 600)
			name := fmt.Sprintf("safe-%s-%d", scheme, width)
			tb.wait(`document.querySelector('.alarm').textContent.includes(%q)`, why)
			tb.fits(name, width)
			tb.shoot(name)
			for _, barrier := range tb.barriers(everyRule) {
				t.Errorf("%s: %s", name, barrier)
			}
		}
	}
	// Also to a reader at the end of a long page.
	js[any](tb, `(document.body.style.minHeight = '300vh', scrollTo({top: innerHeight, behavior: 'instant'}))`)
	tb.wait(`scrollY > 100 && document.elementFromPoint(innerWidth / 2, 8)?.className === 'alarm'`)
	if n := r.model.count(); n != 0 {
		t.Errorf("the model was called %d times", n)
	}
}
