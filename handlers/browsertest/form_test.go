package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"semel/chat"
)

// The page without JavaScript, and what keys mean in it with JavaScript.

// withoutScripts opens a tab in which no page can run a script.
func (p *profile) withoutScripts(url string) *tab {
	p.t.Helper()
	tb := p.open("")
	call(tb, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	tb.visit(url)
	if js[bool](tb, `document.documentElement.classList.contains('js')`) {
		p.t.Fatal("scripts run in this tab: no test")
	}
	return tb
}

// The form posts, the page leads to the conversation and reloads itself until the
// answer is there.
func TestFormWithoutScripts(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).withoutScripts(r.url + "/")
	tb.typeText("[[wait 1000]] [[echo alpha]]")
	id := js[string](tb, `document.querySelector('[name=requestId]').value`)
	tb.click("#send", 1)
	tb.wait(`location.pathname.startsWith('/c/') && document.querySelector('article[data-request="%s"]')`, id)
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.reads("? [[wait 1000]] [[echo alpha]]", "! alpha")

	second := js[string](tb, `document.querySelector('[name=requestId]').value`)
	if second == id {
		t.Fatal("the next form carries the id of the last")
	}
	tb.typeText("[[echo beta]]\nsecond line")
	tb.click("#send", 1)
	tb.marked(second, "answered")
	r.check(2, tb)
	tb.reads("? [[wait 1000]] [[echo alpha]]", "! alpha", "? [[echo beta]]\nsecond line", "! beta")
	if got := r.decisions(tb.session(), id); got[chat.DecisionFirst] != 1 || len(got) != 1 {
		t.Errorf("arrivals: got %v, want one", got)
	}
}

// A8: a double click submits the form once or twice, as the browser likes.
func TestDoubleClickOnTheFormAsksOnce(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).withoutScripts(r.url + "/")
	tb.typeText("[[echo alpha]]")
	id := js[string](tb, `document.querySelector('[name=requestId]').value`)
	r.clickTwice(tb, "#send")
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.reads("? [[echo alpha]]", "! alpha")
}

// A1 without scripts: the reply to the form is lost, and the person reloads the
// browser's error page, which posts the form again.
func TestFormPostedAgainAfterALostReplyAsksOnce(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).withoutScripts(r.url + "/").allow(lostRequests)
	r.proxy.do(func(e exchange) fault { return fault{Drop: e.Method == "POST"} })
	path := "/c/" + tb.session()
	tb.typeText("[[echo alpha]]")
	id := js[string](tb, `document.querySelector('[name=requestId]').value`)
	tb.click("#send", 1)
	until(t, "the question is answered", func() bool { w := r.model.of(id); return len(w) == 1 && !w[0].ended.IsZero() })
	tb.wait(`!document.querySelector('#composer')`)
	r.proxy.do(nil)
	tb.reload()
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.reads("? [[echo alpha]]", "! alpha")
	if n := len(r.proxy.posts(path, "")); n < 2 {
		t.Errorf("the form was posted %d times: this was no test", n)
	}
}

func isULID(id string) bool { _, ok := chat.IDTime(id); return ok }

// A refused message is given back, under an id that was never used.
func TestRefusedFormComesBackWithItsTextAndAFreshID(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).withoutScripts(r.url + "/").allow("status of 413")
	session := tb.session()
	long := strings.Repeat("long ", 5000)
	tb.typeText(long)
	id := js[string](tb, `document.querySelector('[name=requestId]').value`)
	tb.click("#send", 1)
	tb.wait(`document.querySelector('#notice')?.hidden === false`)
	got := js[struct{ Text, ID, Session, Notice string }](tb, `({Text: document.querySelector('#text').value, ID: document.querySelector('[name=requestId]').value,
		Session: document.body.dataset.session, Notice: document.querySelector('#notice').textContent.trim()})`)
	if strings.TrimSpace(got.Text) != strings.TrimSpace(long) || got.ID == id || !isULID(got.ID) || got.Session != session || got.Notice == "" {
		t.Errorf("the page came back with %d characters, the id %s after %s, the conversation %s after %s and the notice %q",
			len(got.Text), got.ID, id, got.Session, session, got.Notice)
	}
	if n := r.accepted(); n != 0 {
		t.Errorf("%d questions were accepted", n)
	}
	js[any](tb, `document.querySelector('#text').value = '[[echo alpha]]'`)
	tb.click("#send", 1)
	tb.marked(got.ID, "answered")
	r.check(1, tb)
	tb.reads("? [[echo alpha]]", "! alpha")
}
