package browsertest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
	"semel/outbox"
)

// Actions that answers ask for: cards, verdicts, and what becomes of them.

// A receiver is where actions go: it says what a test tells it, and remembers.
type receiver struct {
	mu   sync.Mutex
	says func(outbox.Message) outbox.Result // under mu; nil: 200
	came map[string]int                     // under mu; deliveries by webhook id
}

func (s *receiver) Deliver(_ context.Context, m outbox.Message) outbox.Result {
	s.mu.Lock()
	s.came[m.WebhookID]++
	says := s.says
	s.mu.Unlock()
	if says == nil {
		return outbox.Result{Outcome: chat.OutcomeOK, Status: 200}
	}
	return says(m)
}

func (s *receiver) say(says func(outbox.Message) outbox.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says = says
}

func (s *receiver) count() (all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.came {
		all += n
	}
	return all
}

// asking is a model that asks for the actions that a question has as JSON behind
// "ask:", after the text before it.
type asking struct{ *model }

func (a asking) Stream(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	text, calls, asks := strings.Cut(c.Turns[len(c.Turns)-1].Content, "ask:")
	if !asks {
		return a.model.Stream(ctx, c, emit)
	}
	a.mu.Lock()
	a.calls = append(a.calls, &watched{Call: c})
	a.mu.Unlock()
	answer := llm.Answer{Finish: chat.FinishTool, Usage: chat.Usage{InputTokens: 10, OutputTokens: 10}, Content: strings.TrimSpace(text)}
	if answer.Content != "" {
		emit(llm.Piece{Text: answer.Content})
	}
	var list []struct {
		Name      string
		Arguments json.RawMessage
	}
	if err := json.Unmarshal([]byte(calls), &list); err != nil {
		return answer, err
	}
	for i, call := range list {
		answer.ToolCalls = append(answer.ToolCalls, llm.ToolCall{ID: fmt.Sprint("call-", i), Name: call.Name, Arguments: string(call.Arguments)})
	}
	return answer, nil
}

var secret = "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32))

// actionRig is a rig whose model asks for actions: sign and post wait for a person,
// note does not.
func actionRig(t *testing.T) (*rig, *receiver) {
	t.Helper()
	to := &receiver{came: map[string]int{}}
	r := newRig(t, func(e *engine.Options, _ *handlers.Options) {
		e.Models[0].Client = asking{e.Models[0].Client.(*model)}
		action := func(name, en, zh string, approval chat.Approval) chat.Action {
			return chat.Action{Name: name, Description: map[string]string{"en": en, "zh-CN": zh}, Parameters: json.RawMessage(`{"type":"object"}`),
				Approval: approval, To: "webhook https://sign.example/v1/documents"}
		}
		sign := action("sign_document", "Sign a document", "签署文件", chat.ApprovalAsk)
		sign.AwaitCallback, sign.CallbackTimeout, sign.Compensates = true, time.Hour, true
		declared, err := chat.Declare([]chat.Action{
			sign, action("post_note", "Post a note", "发布备注", chat.ApprovalAsk), action("log_it", "Write it into the log", "写入日志", chat.ApprovalAuto),
			action("delete_all", "Delete everything", "删除全部", chat.ApprovalNever),
		})
		if err != nil {
			t.Fatal(err)
		}
		e.Actions, e.Destinations = declared, map[string]engine.Destination{}
		for _, name := range []string{"sign_document", "post_note", "log_it", db.CompensationOf("sign_document")} {
			e.Destinations[name] = engine.Destination{Sink: to, Target: outbox.Target{
				Kind: outbox.KindWebhook, URL: "https://sign.example/v1/documents", Secrets: []string{secret}, MaxAttempts: 1,
			}}
		}
	})
	return r, to
}

const (
	askToPost = `ask:[{"name":"post_note","arguments":{"text":"Hello"}}]`
	askToSign = `I would sign it now. ask:[{"name":"sign_document","arguments":{"title":"Lease 2026","pages":12,"parties":["A","B"]}}]`
)

// asked puts a question past the browser and returns the effects of its answer.
func (r *rig) asked(session, content string) (id string, effects []chat.Effect) {
	r.t.Helper()
	id = r.ask(session, content)
	return id, r.effects(session, id)
}

func (r *rig) effects(session, id string) []chat.Effect {
	r.t.Helper()
	var rec chat.Record
	r.get("/api/chat/status/"+id+"?sessionId="+session, &rec)
	return rec.Effects
}

// callBack calls back, signed, as the receiver of an effect.
func (r *rig) callBack(id string, ok bool, reason string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"type":"done","data":{"ok":%t,"reason":%q}}`, ok, reason)
	h, err := outbox.Sign([]string{secret}, chat.NewID(), time.Now(), []byte(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.proxy.backend.Load().(string)+"/callbacks/"+id, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = h
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		r.t.Fatalf("call back: %v, %v", res, err)
	}
	res.Body.Close()
}

// stands waits until the last card of a tab shows an effect in a state, live, and as
// the server renders it.
func (tb *tab) stands(state chat.EffectState) {
	tb.t.Helper()
	tb.wait(`[...document.querySelectorAll('.action')].at(-1)?.dataset.effect === '%s'`, state)
}

func TestAnActionIsApprovedOnceHoweverItIsClicked(t *testing.T) {
	r, to := actionRig(t)
	p := newProfile(t)
	tb := p.open(r.url + "/")
	tb.marked(tb.send(askToPost), "answered") // at acknowledged: nobody has decided
	tb.stands(chat.EffectUndecided)
	if js[bool](tb, `document.querySelector('[data-role=assistant] .body').getBoundingClientRect().height > 0`) {
		t.Error("an answer without text has an empty body")
	}
	tb.wait(`document.querySelector('#stop').hidden && !document.querySelector('#send').hidden`)
	tb.typeText("the composer is free") // C2
	session := tb.session()
	other := p.open(r.url + "/c/" + session)
	other.stands(chat.EffectUndecided)
	js[any](tb, `document.querySelector('.judgement textarea').value = 'looks right'`)
	hold := make(chan struct{})
	r.proxy.do(func(e exchange) fault {
		if strings.HasPrefix(e.Path, "/api/chat/decisions/") {
			return fault{Hold: hold}
		}
		return fault{}
	})
	tb.click(`.judgement .approve`, 2)
	tb.wait(`document.querySelector('.judgement .approve').disabled && document.querySelector('.judgement .reject').disabled`)
	js[any](tb, `document.dispatchEvent(new Event('visibilitychange'))`) // the page is read anew meanwhile, where they are enabled
	tb.wait(`!document.querySelector('.judgement .approve').disabled`)
	tb.click(`.judgement .approve`, 1)
	close(hold)
	tb.stands(chat.EffectDelivered)
	other.stands(chat.EffectDelivered)
	for _, one := range []*tab{tb, other} {
		one.wait(`document.querySelector('.action').textContent.includes('Approved by you') && document.querySelector('.action').textContent.includes('looks right') && !document.querySelector('.action form')`)
	}
	if n := to.count(); n != 1 {
		t.Errorf("delivered %d times, want 1", n)
	}
	decision := js[string](tb, `document.querySelector('.action').dataset.decision`)
	if n := len(r.proxy.posts("/api/chat/decisions/"+decision, "")); n != 1 {
		t.Errorf("a double click sent %d verdicts, want 1", n)
	}
	tb.wait(`document.querySelector('a.chip').textContent.includes('1 action')`)
	until(t, "it is committed", func() bool {
		list, err := r.db.Unfinished(t.Context())
		return err == nil && len(list) == 0
	})
	dbtest.Check(t, r.db)
	tb.reload()
	tb.stands(chat.EffectDelivered)
	tb.silent()
}

func TestTwoTabsThatDecideAtOnceMakeOneVerdict(t *testing.T) {
	r, to := actionRig(t)
	p := newProfile(t)
	for i, second := range []string{"approve", "reject"} {
		session := chat.NewID()
		r.asked(session, askToPost)
		a, b := p.open(r.url+"/c/"+session).allow("409"), p.open(r.url+"/c/"+session).allow("409")
		a.stands(chat.EffectUndecided)
		b.stands(chat.EffectUndecided)
		hold, held := make(chan struct{}), atomic.Int64{}
		r.proxy.do(func(e exchange) fault {
			if !strings.HasPrefix(e.Path, "/api/chat/decisions/") {
				return fault{}
			}
			held.Add(1)
			return fault{Hold: hold}
		})
		js[any](a, `document.querySelector('.judgement .approve').click()`)
		js[any](b, `document.querySelector('.judgement .%s').click()`, second)
		until(t, "both are under way", func() bool { return held.Load() == 2 })
		close(hold)
		settled := `['delivered', 'rejected'].includes(document.querySelector('.action').dataset.effect)`
		a.wait(settled)
		b.wait(settled)
		state := js[string](a, `document.querySelector('.action').dataset.effect`)
		b.stands(chat.EffectState(state))
		if i == 0 && state != "delivered" {
			t.Errorf("two who approve: %s", state)
		}
		want := map[string]int{"delivered": 1}[state]
		until(t, "it is sent as it was decided", func() bool { return to.count() == want })
		to.mu.Lock()
		to.came = map[string]int{}
		to.mu.Unlock()
	}
	dbtest.Check(t, r.db)
}

// Every state that an effect can have, live in an open tab and after a reload.
func TestACardShowsWhatBecomesOfAnAction(t *testing.T) {
	r, to := actionRig(t)
	p := newProfile(t)
	session := chat.NewID()
	id, effects := r.asked(session, askToSign)
	tb := p.open(r.url + "/c/" + session)
	both := func(state chat.EffectState, says string) {
		t.Helper()
		for range 2 {
			tb.stands(state)
			tb.wait(`document.querySelector('.action').textContent.includes('%s')`, says)
			tb.reload()
		}
	}
	both(chat.EffectUndecided, "waits for you")
	sent := make(chan outbox.Result)
	to.say(func(outbox.Message) outbox.Result { return <-sent })
	tb.stands(chat.EffectUndecided)
	tb.press(`.judgement .approve`)
	both(chat.EffectDelivering, "being sent")
	sent <- outbox.Result{Outcome: chat.OutcomeUnknown, Status: 500, Code: outbox.CodeReceiverFailed}
	both(chat.EffectDead, "Sent once. The last answer was 500.")
	resolve := func(do string) {
		t.Helper()
		tb.wait(`document.querySelector('.way .%s')`, do)
		js[any](tb, `document.querySelector('.way textarea').value = 'I asked them'`)
		tb.press(`.way .` + do)
	}
	tb.press(`.way .redrive`)
	tb.wait(`document.activeElement.matches('.way textarea:invalid')`) // a reason is needed
	resolve("redrive")
	sent <- outbox.Result{Outcome: chat.OutcomeOK, Status: 202}
	both(chat.EffectAwaiting, "waiting to hear back")
	r.callBack(effects[0].WebhookID, false, "not today")
	both(chat.EffectCompensating, "being undone")
	sent <- outbox.Result{Outcome: chat.OutcomeDefinite, Status: 422, Code: outbox.CodeReceiverRefused}
	tb.wait(`document.querySelector('.action').textContent.includes('could not be undone')`)
	resolve("redrive")
	sent <- outbox.Result{Outcome: chat.OutcomeOK, Status: 200}
	both(chat.EffectCompensated, "not today")
	if rec := r.effects(session, id); rec[0].Compensation == nil || rec[0].Attempts != 2 {
		t.Errorf("%+v", rec[0])
	}
	tb.click(`a.chip`, 1)
	tb.wait(`(() => { const text = document.querySelector('dialog[open] #receipt')?.textContent ?? '';
		return ['Approved by you', 'Delivery 2', 'The receiver called back: no', 'Undoing 2', '1 action: 1 undone'].every((s) => text.includes(s)); })()`)
	dbtest.Check(t, r.db)

	// What is given up, and what is asked for twice in one answer.
	to.say(nil)
	session = chat.NewID()
	r.asked(session, `Two. ask:[{"name":"post_note","arguments":{}},{"name":"delete_all","arguments":{"sure":true}},{"name":"nobody_knows","arguments":{}}]`)
	tb.visit(r.url + "/c/" + session)
	tb.wait(`document.querySelectorAll('.action').length === 3 && document.querySelectorAll('.action[data-effect=rejected]').length === 2`)
	js[any](tb, `document.querySelector('.judgement textarea').value = 'not now'`)
	tb.press(`.judgement .reject`)
	tb.wait(`document.querySelectorAll('.action[data-effect=rejected]').length === 3 && document.querySelector('.action').textContent.includes('not now')`)
	tb.wait(`document.activeElement.closest('.action')`) // the focus is not lost with the form
	tb.reload()
	tb.wait(`document.querySelectorAll('.action[data-effect=rejected]').length === 3`)
	dbtest.Check(t, r.db)
	tb.silent()
}

// E15: what a model wrote into arguments is text, all of it is seen, and nothing of it
// turns the page.
func TestArgumentsOfAnActionAreInertAndSeen(t *testing.T) {
	r, _ := actionRig(t)
	session := chat.NewID()
	hostile := map[string]string{
		"html":        `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`,
		"closing":     `</dd></dl></section><h1>free</h1>`,
		"link":        `javascript:alert(1) [x](javascript:alert(1))`,
		"markdown":    "![x](http://127.0.0.1:1/x.png) # head",
		"turned":      `pay \u202e0001\u202c to \u2066Bob\u2069`,
		"thin":        `a\u200bb\u00adc`,
		"<b>name</b>": "of a member",
		`\u202eeman`:  "turned name",
		"template":    "{{constructor.constructor('return 1')()}} ${1}",
	}
	var members []string
	for name, value := range hostile {
		if strings.Contains(name+value, `\u`) {
			members = append(members, `"`+name+`":"`+value+`"`)
			continue
		}
		n, _ := json.Marshal(name)
		v, _ := json.Marshal(value)
		members = append(members, string(n)+":"+string(v))
	}
	long := strings.Repeat("All work and no play. ", 100)
	members = append(members, `"long":"`+long+`"`, `"deep":{"a":[1,{"b":null}]}`)
	r.asked(session, `ask:[{"name":"post_note","arguments":{`+strings.Join(members, ",")+`}}]`)
	tb := newProfile(t).open(r.url + "/c/" + session)
	tb.stands(chat.EffectUndecided)
	tb.inert()
	if got := js[int](tb, `document.querySelectorAll('.action :is(img, script, a, h1, iframe, style, b:not(.hidden-sign))').length`); got != 0 {
		t.Errorf("%d elements come from arguments", got)
	}
	for name, value := range hostile {
		if strings.Contains(name+value, `\u`) {
			continue
		}
		if !js[bool](tb, `[...document.querySelectorAll('.action dd')].some((d) => d.textContent.trim() === `+"%s"+`)`, quoted(value)) {
			t.Errorf("%s is not shown as it is", name)
		}
	}
	for _, sign := range []string{"U+202E", "U+202C", "U+2066", "U+200B", "U+00AD"} {
		tb.wait(`[...document.querySelectorAll('.hidden-sign')].some((s) => s.textContent === '%s')`, sign)
	}
	if js[bool](tb, `/[\u202a-\u202e\u2066-\u2069\u200b\u00ad]/.test(document.querySelector('.action').textContent)`) {
		t.Error("a sign that is not seen is on the page")
	}
	if js[bool](tb, `document.querySelector('.action').getBoundingClientRect().height > 1500`) {
		t.Error("a long value is not folded")
	}
	tb.click(`.action summary`, 1)
	tb.wait(`document.querySelector('.action details[open] div').innerText.trim() === %s`, quoted(strings.TrimSpace(long)))
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Without scripts the same cards are forms.
func TestActionsAreDecidedWithoutScripts(t *testing.T) {
	r, to := actionRig(t)
	session := chat.NewID()
	id, effects := r.asked(session, askToPost)
	to.say(func(outbox.Message) outbox.Result {
		return outbox.Result{Outcome: chat.OutcomeDefinite, Status: 422, Code: outbox.CodeReceiverRefused}
	})
	tb := newProfile(t).withoutScripts(r.url + "/c/" + session)
	r.clickTwice(tb, `.judgement .approve`)
	tb.stands(chat.EffectDead) // the page reloads itself while it is under way
	js[any](tb, `document.querySelector('.way textarea').value = 'never mind'`)
	tb.click(`.way .abandon`, 1)
	tb.stands(chat.EffectAbandoned)
	if e := r.effects(session, id)[0]; e.State != chat.EffectAbandoned {
		t.Errorf("it is %s", e.State)
	}
	if n := to.count(); n != 1 || effects[0].Digest == "" {
		t.Errorf("delivered %d times, want 1", n)
	}
	dbtest.Check(t, r.db)
}

// Cards in every state fit every screen, in both languages, by day and by night.
func TestActionsFitEveryScreen(t *testing.T) {
	r, to := actionRig(t)
	p := newProfile(t)
	session := chat.NewID()
	r.asked(session, `I would like to do some of these. ask:[{"name":"log_it","arguments":{"line":"A line for the log"}},{"name":"delete_all","arguments":{"sure":true}},`+
		`{"name":"post_note","arguments":{"text":"Dear all,\n\nthe meeting is on Friday at ten.\nSee you there.","to":["a@example.com","b@example.com"],"urgent":false,"hidden":"pay \u202e0001"}}]`)
	to.say(func(outbox.Message) outbox.Result {
		return outbox.Result{Outcome: chat.OutcomeUnknown, Status: 500, Code: outbox.CodeReceiverFailed}
	})
	id, effects := r.asked(session, askToSign)
	r.api("POST", "/api/chat/decisions/"+effects[0].DecisionID, map[string]string{"verdict": "approve", "reason": "as agreed"}, nil)
	until(t, "it is given up", func() bool { return r.effects(session, id)[0].State == chat.EffectDead })
	tb := p.open(r.url + "/").allow(lostRequests)
	for _, lang := range []string{"en", "zh-CN"} {
		size(tb, 1200, false)
		tb.visit(r.url + "/")
		if js[string](tb, `document.documentElement.lang`) != lang {
			tb.click(`.language button[value="`+lang+`"]`, 1)
			tb.wait(`document.documentElement.lang === '%s'`, lang)
		}
		for _, page := range []struct{ name, path string }{{"cards", "/c/" + session}, {"receipt", "/c/" + session + "/r/" + id}} {
			size(tb, 1200, false)
			tb.visit(r.url + page.path)
			tb.wait(`document.documentElement.lang === '%s' && document.querySelector('.action, .timeline')`, lang)
			for _, width := range []int{1200, 390, 320} {
				size(tb, width, width < 600)
				for _, scheme := range []string{"light", "dark"} {
					call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
					name := fmt.Sprintf("action-%s-%s-%s-%d", page.name, lang, scheme, width)
					tb.fits(name, width)
					tb.shoot(name)
					if width == 390 {
						rules := everyRule
						if scheme == "dark" {
							rules = colours
						}
						for _, b := range tb.barriers(rules) {
							t.Errorf("%s: %s", name, b)
						}
					}
					if page.name == "cards" {
						js[any](tb, `document.querySelector('.action[data-effect=rejected]').scrollIntoView({block: 'start', behavior: 'instant'})`)
						tb.shoot(name + "-first")
						js[any](tb, `scrollTo({top: 1e6, behavior: 'instant'})`)
					}
				}
			}
		}
	}
}
