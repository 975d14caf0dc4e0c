package browsertest

import (
	"fmt"
	"testing"

	"semel/chat"
)

// Several tabs of one person, and several people's browsers, on one conversation.

// B20, F10: what one tab sends, the other shows.
func TestTwoTabsShowTheSame(t *testing.T) {
	r := newRig(t)
	p := newProfile(t)
	first := p.open(r.url + "/")
	first.marked(first.send("[[echo alpha]]"), "answered")
	second := p.open(r.url + "/c/" + first.session())
	r.model.upTo(150)
	id := first.send("[[tokens 60]] [[rate 200]] beta")
	second.grown(id, 80)
	r.model.upTo(whole)
	for _, tb := range []*tab{first, second} {
		tb.marked(id, "answered")
	}
	r.check(2, first, second)
	first.reads("? [[echo alpha]]", "! alpha", "? [[tokens 60]] [[rate 200]] beta", "! *")
	second.reads("? [[echo alpha]]", "! alpha", "? [[tokens 60]] [[rate 200]] beta", "! *")
}

// F10: both tabs send at once; both questions are accepted, one after the other.
func TestTwoTabsSendAtOnce(t *testing.T) {
	r := newRig(t)
	first := newProfile(t).open(r.url + "/")
	first.marked(first.send("[[echo alpha]]"), "answered")
	second := newProfile(t).open(r.url + "/c/" + first.session())
	both := make(chan struct{})
	arrived := 0 // under the proxy's lock
	r.proxy.do(func(e exchange) fault {
		if e.RequestID == "" {
			return fault{}
		}
		if arrived++; arrived == 2 {
			close(both)
		}
		return fault{Hold: both}
	})
	b := first.send("[[tokens 30]] [[rate 200]] beta")
	c := second.send("[[tokens 30]] [[rate 200]] gamma")
	for _, tb := range []*tab{first, second} {
		tb.marked(b, "answered")
		tb.marked(c, "answered")
	}
	first.reload()
	second.reload()
	r.check(3, first, second)
	if n := r.accepted(); n != 3 {
		t.Errorf("%d questions were accepted, want 3", n)
	}
}

// One tab of a new conversation loses its reply, another tab hears of it: the
// first must not wait for ever.
func TestOtherTabHearsWhatThisOneDidNot(t *testing.T) {
	r := newRig(t)
	p := newProfile(t)
	r.proxy.lose(1000, fault{Cut: true})
	first := p.open(r.url + "/").allow(lostRequests)
	id := first.send("[[echo alpha]]")
	first.marked(id, "kept")
	second := p.open(r.url + "/c/" + first.session())
	second.marked(id, "answered")
	first.marked(id, "answered")
	r.check(1, first, second)
	first.reads("? [[echo alpha]]", "! alpha")
	second.reads("? [[echo alpha]]", "! alpha")
}

// The conversation is opened in another tab while its first message is still
// being retried there.
func TestUnsentMessageOfANewChatIsSentByEitherTab(t *testing.T) {
	r := newRig(t)
	p := newProfile(t)
	first := p.open(r.url + "/").allow(lostRequests)
	first.offline(true)
	id := first.send("[[echo alpha]]")
	first.marked(id, "kept")
	second := p.open(r.url + "/")
	until(t, "the other tab sends it", func() bool { return len(r.proxy.posts("/api/chat", id)) > 0 })
	first.offline(false)
	first.marked(id, "answered")
	r.check(1, first, second)
	first.reads("? [[echo alpha]]", "! alpha")
	second.reads()
}

// Two tabs retry one failed request at the same moment: one attempt, two viewers.
func TestTwoTabsRetryOnce(t *testing.T) {
	r := newRig(t)
	first := newProfile(t).open(r.url + "/")
	first.allow(failedReply)
	id := first.send("[[fail 400 once]] [[tokens 40]] [[rate 200]]")
	first.marked(id, "failed")
	second := newProfile(t).open(r.url + "/c/" + first.session())
	second.marked(id, "failed")
	both := make(chan struct{})
	arrived := 0 // under the proxy's lock
	r.proxy.do(func(e exchange) fault {
		if e.Method != "POST" {
			return fault{}
		}
		if arrived++; arrived == 2 {
			close(both)
		}
		return fault{Hold: both}
	})
	r.model.upTo(0) // the answer is not there before both have asked
	first.click("button[data-action=retry]", 1)
	second.click("button[data-action=retry]", 1)
	until(t, "both have asked", func() bool {
		n := r.decisions(first.session(), id)
		return n[chat.DecisionRestarted]+n[chat.DecisionJoined] == 2
	})
	r.model.upTo(whole)
	for _, tb := range []*tab{first, second} {
		tb.marked(id, "answered")
	}
	r.check(2, first, second)
	first.reads("? [[fail 400 once]] [[tokens 40]] [[rate 200]]", "! *")
	second.reads("? [[fail 400 once]] [[tokens 40]] [[rate 200]]", "! *")
	if got := r.decisions(first.session(), id); got[chat.DecisionRestarted] != 1 || got[chat.DecisionJoined] != 1 {
		t.Errorf("arrivals: got %v, want one restart and one that joined it", got)
	}
}

// A double click on Retry is one attempt.
func TestDoubleClickOnRetryStartsOneAttempt(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	tb.allow(failedReply)
	id := tb.send("[[fail 400 once]] [[wait 300]] [[echo alpha]]")
	tb.marked(id, "failed")
	tb.click("button[data-action=retry]", 2)
	tb.marked(id, "answered")
	r.check(2, tb)
	tb.reads("? [[fail 400 once]] [[wait 300]] [[echo alpha]]", "! alpha")
}

// B18: a browser has six lines to a server without HTTP/2. Tabs that nobody looks at
// take none of them, so the eighth loads while seven answers run.
func TestEightTabsLoadWhileAnswersRun(t *testing.T) {
	r := newRig(t)
	p := newProfile(t)
	r.model.upTo(40)
	var tabs []*tab
	var ids []string
	for n := range 8 {
		tb := p.open("").hides().streams()
		tb.visit(r.url + "/")
		tb.ready()
		id := tb.send(fmt.Sprintf("[[tokens 60]] [[rate 1000]] number %d", n))
		tb.marked(id, "answering")
		tb.grown(id, 20)
		tabs, ids = append(tabs, tb), append(ids, id)
		if n < 7 { // another tab comes to the front
			js[any](tb, `hide(true)`)
			tb.wait(`streams === 0`)
			until(t, "the hidden tab has no stream", func() bool { return r.proxy.streams() == 0 })
		}
	}
	until(t, "the last tab has one stream", func() bool { return r.proxy.streams() == 1 })
	r.model.upTo(whole)
	front := 7
	for n, tb := range tabs {
		js[any](tabs[front], `hide(true)`)
		until(t, "the hidden tab has no stream", func() bool { return r.proxy.streams() == 0 })
		js[any](tb, `hide(false)`)
		tb.marked(ids[n], "answered")
		front = n
	}
	r.check(8, tabs...)
	for n, tb := range tabs {
		if most, now := js[int](tb, `most`), js[int](tb, `streams`); most != 1 || (now != 0) != (n == front) {
			t.Errorf("tab %d had %d streams at once, and has %d now, want one, and only in the tab in front", n, most, now)
		}
	}
}
