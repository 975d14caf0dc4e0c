package browsertest

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"semel/chat"
	"semel/db"
	"semel/outbox"
)

// The pages of operations in both languages, by day and by night, on a desk and on a
// phone, without a barrier.
func TestOperationsFitEveryScreen(t *testing.T) {
	r, to := actionRig(t)
	p := newProfile(t)
	session := chat.NewID()
	to.say(func(outbox.Message) outbox.Result {
		return outbox.Result{Outcome: chat.OutcomeUnknown, Status: 500, Code: outbox.CodeReceiverFailed}
	})
	for range 8 {
		r.ask(session, "[[echo yes]] and now?")
	}
	r.asked(session, askToPost)
	id, _ := r.asked(session, `ask:[{"name":"log_it","arguments":{"line":"A line for the log"}}]`)
	until(t, "it is given up", func() bool { return r.effects(session, id)[0].State == chat.EffectDead })
	again := chat.NewID()
	for _, words := range []string{"[[echo yes]] and now?", "[[echo yes]] and now?", "something else", "[[echo yes]] and now?"} {
		r.api("POST", "/api/chat", map[string]string{"sessionId": session, "requestId": again, "content": words}, nil)
	}
	detail := func(session, id string) string { return "/ops/requests/" + id + "?sessionId=" + session }
	deed := db.Deed{Actor: "user:1", Reason: "A customer asked what was sent to them on the day before yesterday"}
	if _, err := r.db.Reveal(t.Context(), r.receipt(session, id).Request.ID, deed); err != nil {
		t.Fatal(err)
	}
	r.model.upTo(20)
	other, running := chat.NewID(), chat.NewID()
	r.begin(other, running, "Tell me all about the sea.")
	until(t, "it has begun", func() bool { a := r.receipt(other, running).Attempts; return len(a) == 1 && !a[0].FirstToken.IsZero() })
	tb := p.open(r.url + "/ops")
	for _, lang := range []string{"en", "zh-CN"} {
		size(tb, 1200, false)
		tb.visit(r.url + "/ops")
		if js[string](tb, `document.documentElement.lang`) != lang {
			tb.click(`.language button[value="`+lang+`"]`, 1)
			tb.wait(`document.documentElement.lang === '%s'`, lang)
		}
		for _, page := range []struct{ name, path string }{{"requests", "/ops"}, {"outbox", "/ops/outbox"},
			{"detail", detail(session, again)}, {"effect", detail(session, id)}, {"running", detail(other, running)}, {"audit", "/ops/audit"}} {
			size(tb, 1200, false)
			tb.visit(r.url + page.path)
			tb.wait(`document.documentElement.lang === '%s' && document.querySelector('.ops')`, lang)
			for _, width := range []int{1200, 390, 320} {
				size(tb, width, width < 600)
				for _, scheme := range []string{"light", "dark"} {
					call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
					name := fmt.Sprintf("ops-%s-%s-%s-%d", page.name, lang, scheme, width)
					tb.fits(name, width)
					tb.shoot(name)
					for _, below := range []string{"charts", "check", "said", "rows"} { // for who looks at the pictures
						if *screens != "" && js[bool](tb, `!!document.getElementById('%s')`, below) {
							js[any](tb, `document.getElementById('%s').scrollIntoView({behavior: 'instant'})`, below)
							tb.shoot(name + "-" + below)
						}
					}
					if (lang == "en") == (scheme == "light") && width != 320 { // the others are as these
						for _, b := range tb.barriers(everyRule) {
							t.Errorf("%s: %s", name, b)
						}
					}
				}
			}
		}
	}
	// What needs a person is found and given up, with a reason.
	size(tb, 1200, false)
	tb.visit(r.url + "/ops?view=waiting")
	tb.wait(`document.querySelectorAll('#requests tbody tr').length === 2`)
	tb.visit(r.url + "/ops/outbox?state=dead")
	tb.click(`.outbox summary`, 1)
	js[any](tb, `document.querySelector('.outbox [name=reason]').value = 'nobody needs it'`)
	tb.click(`button[value=abandon]`, 1)
	tb.wait(`document.querySelector('#done').textContent.trim() !== ''`)
	if got := r.effects(session, id)[0].State; got != chat.EffectAbandoned {
		t.Errorf("the effect is %s", got)
	}
}
