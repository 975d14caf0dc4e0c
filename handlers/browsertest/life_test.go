package browsertest

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"semel/chat"
)

// What happens to a page besides reloads: it sleeps, it is left and returned to,
// it is read while it grows, it is deleted.

// B2: the page is frozen during the answer and its line dies meanwhile.
func TestFrozenPageShowsTheAnswerWhenItThaws(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(100)
	id := tb.send("[[tokens 60]] [[rate 200]]")
	tb.grown(id, 50)
	call(tb, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: page.SetWebLifecycleStateStateFrozen})
	r.proxy.hangUp()
	r.model.upTo(whole)
	until(t, "the answer ends", func() bool { return !r.model.of(id)[0].ended.IsZero() })
	call(tb, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: page.SetWebLifecycleStateStateActive})
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.reads("? [[tokens 60]] [[rate 200]]", "! *")
}

// B3, B22: a telephone is locked in the middle of an answer. Nothing that stood there is
// taken away, not even for a moment, and what was being typed is still there.
func TestALockedTelephoneErasesNothing(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").hides().allow(lostRequests)
	size(tb, 390, true)
	tb.visit(r.url + "/")
	tb.ready()
	r.model.upTo(100)
	id := tb.send("[[tokens 60]] [[rate 1000]]")
	tb.grown(id, 80)
	tb.typeText("half a thought")
	js[any](tb, `(() => {
		window.shrunk = [];
		let most = 0;
		const look = () => {
			const n = document.querySelector('#log [data-role=assistant] .body')?.textContent.length ?? 0;
			if (n < most || !document.querySelector('#log [data-role=user]')) shrunk.push(most + ' > ' + n);
			most = n;
		};
		new MutationObserver(look).observe(document.querySelector('main'), {childList: true, subtree: true, characterData: true});
	})()`)
	lock := func(meanwhile func()) {
		t.Helper()
		js[any](tb, `hide(true)`)
		until(t, "no stream is open", func() bool { return r.proxy.streams() == 0 })
		call(tb, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: page.SetWebLifecycleStateStateFrozen})
		r.proxy.hangUp()
		meanwhile()
		call(tb, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: page.SetWebLifecycleStateStateActive})
		js[any](tb, `hide(false)`)
	}
	// A page that was asked for while somebody looked comes when nobody does, and may
	// have less of the answer than the stream had told.
	path, held := "/c/"+tb.session(), make(chan struct{})
	r.proxy.do(func(e exchange) fault {
		if e.Method == "GET" && e.Path == path {
			return fault{Hold: held}
		}
		return fault{}
	})
	lock(func() {})
	until(t, "its stream is open again", func() bool { return r.proxy.streams() == 1 })
	read := fmt.Sprintf(`performance.getEntriesByType('resource').filter((e) => e.name.endsWith('%s') && e.responseEnd > 0).length`, path)
	before := js[int](tb, read)
	js[any](tb, `hide(true)`)
	until(t, "no stream is open", func() bool { return r.proxy.streams() == 0 })
	close(held)
	tb.wait(`%s > %d`, read, before)
	js[any](tb, `hide(false)`)
	until(t, "its stream is open once more", func() bool { return r.proxy.streams() == 1 })
	lock(func() {
		r.model.upTo(whole)
		until(t, "the answer ends", func() bool { return !r.model.of(id)[0].ended.IsZero() })
	})
	tb.marked(id, "answered")
	r.check(1, tb)
	if shrunk := js[[]string](tb, `shrunk`); len(shrunk) > 0 {
		t.Errorf("text was taken away: %q", shrunk)
	}
	if got := tb.field(); got != "half a thought" {
		t.Errorf("the field holds %q", got)
	}
}

// The Back button leads to the conversation, not to the form it began with.
func TestBackButtonShowsTheAnswer(t *testing.T) {
	r := newRig(t)
	other := chat.NewID()
	r.ask(other, "[[echo elsewhere]]")
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(100)
	id := tb.send("[[tokens 60]] [[rate 200]]")
	tb.grown(id, 50)
	tb.click(`#conversations a[href="/c/`+other+`"]`, 1)
	tb.wait(`document.body?.dataset.session === '%s' && document.documentElement.classList.contains('js')`, other)
	tb.do(chromedp.NavigateBack())
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(2, tb)
	tb.reads("? [[tokens 60]] [[rate 200]]", "! *")
	if n := len(r.proxy.posts("/api/chat", "")); n != 1 {
		t.Errorf("%d messages were sent, want 1", n)
	}
}

// E1, E3, E7: a reader who scrolled up is not moved by what is written below, nor
// by its end, and what is selected stays selected.
func TestReaderIsNotMovedByTheAnswer(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	r.model.upTo(1800)
	id := tb.send("[[tokens 600]] [[rate 1000]]")
	r.level(tb, id)
	tb.wait(`document.documentElement.scrollHeight > innerHeight + 300 && document.querySelectorAll('[data-role=assistant] .body > *').length > 3`)
	tb.wheelUp(250)
	js[any](tb, `(() => {
		window.line = document.querySelector('[data-role=assistant] .body > *');
		getSelection().selectAllChildren(line);
		window.selected = String(getSelection());
	})()`)
	read := tb.rests(`line`)
	shown := len(tb.text(id))
	r.model.upTo(2400)
	tb.wait(`!document.querySelector('#latest').hidden`)
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(1, tb)
	got := js[struct {
		Top      float64
		There    bool
		Selected string
		Same     bool
	}](tb, `({Top: line.getBoundingClientRect().top, There: line.isConnected, Selected: String(getSelection()), Same: String(getSelection()) === selected})`)
	if now := len(tb.text(id)); now <= shown {
		t.Fatal("nothing was written after the reader scrolled up: this was no test")
	}
	if !got.There || got.Top != read {
		t.Errorf("the line that was read moved from %v to %v (still there: %v)", read, got.Top, got.There)
	}
	if got.Selected == "" || !got.Same {
		t.Errorf("the selection is now %q", got.Selected)
	}
	tb.click("#latest", 1)
	tb.wait(`document.querySelector('#latest').hidden && document.documentElement.scrollHeight - innerHeight - scrollY < 24`)
}

// F4: what is typed survives a reload, in its own conversation.
func TestDraftSurvivesAReload(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	tb.marked(tb.send("[[echo alpha]]"), "answered")
	tb.typeText("a thought\nin two lines")
	tb.reload()
	if text := js[string](tb, `document.querySelector('#text').value`); text != "a thought\nin two lines" {
		t.Errorf("the field holds %q after the reload", text)
	}
	tb.visit(r.url + "/")
	if text := js[string](tb, `document.querySelector('#text').value`); text != "" {
		t.Errorf("the draft of another conversation is in the field: %q", text)
	}
	r.check(1)
}

// A conversation is deleted while it is being answered, and brought back.
func TestDeletingStopsTheAnswerAndCanBeUndone(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(100)
	id := tb.send("[[tokens 60]] [[rate 1000]]")
	session := tb.session()
	tb.grown(id, 60)
	tb.click("[data-action=delete]", 1)
	r.stopped(id)
	tb.wait(`location.pathname === '/' && document.querySelector('#toast').matches(':popover-open')`)
	tb.click("#toast .link", 1)
	tb.wait(`location.pathname === '/c/%s' && document.querySelector('[data-partial=stopped]')`, session)
	r.check(1, tb)
	tb.reads("? [[tokens 60]] [[rate 1000]]", "! *")
}

// The server is stopped politely, in the middle of an answer that takes longer
// than it is given: the page that stays open ends with the whole answer.
func TestServerStoppedDuringAnAnswer(t *testing.T) {
	p := startProcess(t, "rerun")
	tb := newProfile(t).open(p.url + "/").allow(lostRequests)
	id := tb.send("Tell me about the end.")
	tb.grown(id, 100)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Skipf("this system cannot stop a process politely: %v", err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("SIGTERM: %v", err)
	}
	p.start()
	tb.marked(id, "answered")
	p.same(tb)
	tb.reads("? Tell me about the end.", "! *")
	session := tb.session()
	if rc := receiptOf(t, p.end(), session, id); len(rc.Attempts) != 2 || rc.Attempts[1].Outcome != chat.OutcomeOK {
		t.Errorf("attempts: got %+v, want one that was left and one that is the answer", rc.Attempts)
	}
}
