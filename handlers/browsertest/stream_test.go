package browsertest

import (
	"strings"
	"testing"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
)

// Rows A15, A17, B and C of the chat cases: an answer belongs to its request and
// not to the page that watches it.

// A15: a reload sent the question again.
func TestReloadingFiveTimesAsksOnce(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(150)
	id := tb.send("[[tokens 150]] [[rate 200]]")
	for n := range 5 {
		tb.grown(id, 100*(n+1))
		tb.reload()
		r.model.upTo(150 * (n + 2))
	}
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.reads("? [[tokens 150]] [[rate 200]]", "! *")
	if n := len(r.proxy.posts("/api/chat", "")); n != 1 {
		t.Errorf("%d messages were sent, want 1", n)
	}
}

// A17: the new answer grew inside a copy of the one before.
func TestReloadBeforeTheFirstTokenKeepsTheTurnsApart(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").watch().allow(lostRequests)
	tb.visit(r.url + "/")
	tb.marked(tb.send("[[echo alpha]]"), "answered")
	r.model.upTo(0)
	id := tb.send("[[tokens 40]] [[rate 200]] beta")
	tb.marked(id, "answering")
	tb.reload()
	if first := js[seen](tb, `seen`).First; len(first) < 3 || strings.TrimSpace(first[1]) != "alpha" {
		t.Errorf("the reloaded page began with %q", first)
	}
	tb.marked(id, "answering")
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(2, tb)
	tb.reads("? [[echo alpha]]", "! alpha", "? [[tokens 40]] [[rate 200]] beta", "! *")
	if got := js[seen](tb, `seen`); got.Users != 2 || got.Answers != 2 {
		t.Errorf("the page showed %d questions and %d answers at once, want 2 and 2", got.Users, got.Answers)
	}
}

// B1: after a reload the text so far was missing until the end.
func TestReloadShowsThePrefixAtOnceAndGoesOn(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").watch().allow(lostRequests)
	tb.visit(r.url + "/")
	r.model.upTo(1800)
	id := tb.send("[[tokens 600]] [[rate 1000]]")
	written, session := strings.TrimSpace(r.level(tb, id)), tb.session()
	until(t, "the text so far is stored", func() bool {
		var rec struct{ Content string }
		return r.get("/api/chat/status/"+id+"?sessionId="+session, &rec) == 200 && strings.TrimSpace(rec.Content) == written
	})
	shown := tb.text(id)
	tb.reload()
	first := js[seen](tb, `seen`).First
	if len(first) != 2 || strings.TrimSpace(first[1]) != strings.TrimSpace(shown) {
		t.Errorf("the reloaded page began with %q, before it showed %q", first[1:], shown)
	}
	r.model.upTo(2400)
	tb.grown(id, 2000)
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(1, tb)
	if got := js[seen](tb, `seen`); got.Shrank > 0 || got.Answers != 1 {
		t.Errorf("after the reload the text shrank by %d characters, in %d answers", got.Shrank, got.Answers)
	}
}

// B4, E14: another conversation is opened at 20 % and left again at 80 %.
func TestLeavingAConversationAndComingBack(t *testing.T) {
	r := newRig(t)
	other := chat.NewID()
	r.ask(other, "[[echo elsewhere]]")
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(250)
	id := tb.send("[[tokens 200]] [[rate 200]]")
	session := tb.session()
	tb.grown(id, 150)
	tb.click(`#conversations a[href="/c/`+other+`"]`, 1)
	tb.wait(`document.body?.dataset.session === '%s' && document.documentElement.classList.contains('js')`, other)
	r.model.upTo(1000)
	until(t, "more is written", func() bool { return r.model.of(id)[0].emitted >= 1000 })
	tb.reads("? [[echo elsewhere]]", "! elsewhere")
	tb.click(`#conversations a[href="/c/`+session+`"]`, 1)
	tb.wait(`document.body?.dataset.session === '%s' && document.documentElement.classList.contains('js')`, session)
	tb.grown(id, 700)
	r.model.upTo(whole)
	tb.marked(id, "answered")
	r.check(2, tb)
	tb.reads("? [[tokens 200]] [[rate 200]]", "! *")
}

// B4: nobody watches the end of the answer.
func TestAnswerEndsWithoutAnybodyWatching(t *testing.T) {
	r := newRig(t)
	other := chat.NewID()
	r.ask(other, "[[echo elsewhere]]")
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(100)
	id := tb.send("[[tokens 60]] [[rate 200]]")
	session := tb.session()
	tb.grown(id, 50)
	tb.visit(r.url + "/c/" + other)
	r.model.upTo(whole)
	r.check(2, tb)
	tb.visit(r.url + "/c/" + session)
	r.check(2, tb)
	tb.reads("? [[tokens 60]] [[rate 200]]", "! *")
}

// stopped waits for the end of the model's call, and fails the test unless it was
// cancelled. That it takes less than a second is the engine's to keep, and tested there
// with a clock that no other program slows down.
func (r *rig) stopped(id string) {
	r.t.Helper()
	until(r.t, "the call ends", func() bool { return !r.model.of(id)[0].ended.IsZero() })
	if !r.model.of(id)[0].cancelled {
		r.t.Error("the model's call went on to its end after Stop")
	}
}

// C1, C2, C6, C10: Stop ends the call and keeps what came, and says so.
func TestStopEndsTheCallAndKeepsTheText(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(300)
	id := tb.send("[[tokens 600]] [[rate 1000]]")
	tb.grown(id, 250)
	shown := tb.text(id)
	tb.click("#stop", 1)
	r.stopped(id)
	tb.wait(`document.querySelector('[data-partial=stopped]')`)
	r.check(1, tb)
	if got := tb.text(id); !strings.HasPrefix(got, shown[:100]) { // its last words may still have been Markdown
		t.Errorf("after Stop the page shows %q, before it showed %q", got, shown)
	}
	tb.reload()
	r.check(1, tb)
	tb.reads("? [[tokens 600]] [[rate 1000]]", "! *")
	tb.wait(`document.querySelector('[data-partial=stopped]')`)
	if rc := r.receipt(tb.session(), id); rc.Record.Message == nil || rc.Record.Message.Finish != chat.FinishStopped {
		t.Errorf("the request is %+v, want an answer that was stopped", rc.Record)
	}
}

// C8: Escape stops, too.
func TestEscapeStops(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	r.model.upTo(100)
	id := tb.send("[[tokens 600]] [[rate 1000]]")
	tb.grown(id, 20)
	tb.key("Escape", 27, "")
	r.stopped(id)
	tb.marked(id, "answered")
	r.check(1, tb)
}

// C4: an answer could not be stopped after a reload.
func TestStopAfterAReload(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	r.model.upTo(100)
	id := tb.send("[[tokens 600]] [[rate 1000]]")
	tb.grown(id, 60)
	tb.reload()
	tb.click("#stop", 1)
	r.stopped(id)
	tb.wait(`document.querySelector('[data-partial=stopped]')`)
	r.check(1, tb)
}

// C4: any tab can stop it, and every tab shows that it is stopped.
func TestStopFromAnotherTab(t *testing.T) {
	r := newRig(t)
	first := newProfile(t).open(r.url + "/")
	r.model.upTo(100)
	id := first.send("[[tokens 600]] [[rate 1000]]")
	first.grown(id, 60)
	second := newProfile(t).open(r.url + "/c/" + first.session())
	second.click("#stop", 1)
	r.stopped(id)
	for _, tb := range []*tab{first, second} {
		tb.wait(`document.querySelector('[data-partial=stopped]')`)
	}
	r.check(1, first, second)
}

// Stop while a question waits for its turn, and before the first token.
func TestStopBeforeTheFirstToken(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	id := tb.send("[[hang]]")
	tb.marked(id, "answering")
	tb.click("#stop", 1)
	r.stopped(id)
	tb.wait(`!document.querySelector('[data-request="%s"] button[data-action=retry]').hidden`, id)
	r.check(1, tb)
	tb.reads("? [[hang]]")
	tb.reload()
	r.check(1, tb)
	tb.reads("? [[hang]]")
}

// B13 and the next turn after a failure: the text so far stays, marked; what
// follows knows the question and not the broken text.
func TestBrokenAnswerStaysAndTheNextTurnGoesOn(t *testing.T) {
	r := newRig(t, func(e *engine.Options, _ *handlers.Options) { e.Models[0].Rerun = false })
	tb := newProfile(t).open(r.url + "/")
	tb.allow(failedReply)
	id := tb.send("[[cut 30]] [[rate 200]] alpha")
	tb.marked(id, "unknown")
	tb.wait(`document.querySelector('[data-partial=interrupted]')`)
	r.check(1, tb)
	second := tb.send("[[echo beta]]")
	tb.marked(second, "answered")
	r.check(2, tb)
	want := []string{"? [[cut 30]] [[rate 200]] alpha", "! *", "? [[echo beta]]", "! beta"}
	tb.reads(want...)
	tb.reload()
	r.check(2, tb)
	tb.reads(want...)
	var roles []string
	for _, turn := range r.model.of(second)[0].Turns {
		roles = append(roles, turn.Role)
	}
	if got := strings.Join(roles, " "); got != "user user" {
		t.Errorf("the next turn saw %q, want the two questions", got)
	}
}

// A retry replaces the broken text by the answer, in place.
func TestRetryReplacesTheBrokenText(t *testing.T) {
	r := newRig(t, func(e *engine.Options, _ *handlers.Options) { e.Models[0].Rerun = false })
	tb := newProfile(t).open(r.url + "/")
	tb.allow(failedReply)
	id := tb.send("[[cut 30 once]] [[tokens 60]] [[rate 200]] alpha")
	tb.marked(id, "unknown")
	tb.click(`button[data-action=retry]`, 1)
	tb.marked(id, "answered")
	r.check(2, tb)
	want := []string{"? [[cut 30 once]] [[tokens 60]] [[rate 200]] alpha", "! *"}
	tb.reads(want...)
	tb.reload()
	r.check(2, tb)
	tb.reads(want...)
}

// A failure that the page hears from the reply to its message, and not from a
// stream, can be retried like any other.
func TestFailureInTheReplyCanBeRetried(t *testing.T) {
	r := newRig(t)
	r.proxy.lose(1, fault{Cut: true}) // until the page asks again it has failed
	tb := newProfile(t).open(r.url+"/").allow(lostRequests, failedReply)
	id := tb.send("[[fail 400 once]] [[echo alpha]]")
	tb.marked(id, "failed")
	tb.click(`button[data-action=retry]`, 1)
	tb.marked(id, "answered")
	r.check(2, tb)
	tb.reads("? [[fail 400 once]] [[echo alpha]]", "! alpha")
}

// An engine's own retry is one answer to the page, and needs nobody.
func TestBusyModelIsAskedAgainByTheEngine(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	id := tb.send("[[fail 503 once]] [[echo alpha]]")
	tb.marked(id, "answered")
	r.check(2, tb)
	tb.reads("? [[fail 503 once]] [[echo alpha]]", "! alpha")
}

// A question that failed is asked again after the conversation went on: its answer
// stands under it, and the newer turn stays the newest.
func TestRetryOfAnOlderQuestionIsAnsweredInItsPlace(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(failedReply)
	first := tb.send("[[fail 400 once]] [[echo alpha]]")
	tb.marked(first, "failed")
	tb.marked(tb.send("[[echo beta]]"), "answered")
	tb.click(`[data-request="`+first+`"] button[data-action=retry]`, 1)
	tb.marked(first, "answered")
	r.check(3, tb)
	want := []string{"? [[fail 400 once]] [[echo alpha]]", "! alpha", "? [[echo beta]]", "! beta"}
	tb.reads(want...)
	tb.reload()
	r.check(3, tb)
	tb.reads(want...)
	tb.marked(tb.send("[[echo gamma]]"), "answered")
	tb.reload()
	r.check(4, tb)
	tb.reads(append(want, "? [[echo gamma]]", "! gamma")...)
}
