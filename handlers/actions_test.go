package handlers_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/chat"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
	"semel/outbox"
)

// A sink is a receiver that says what a test tells it, and remembers what came.
type sink struct {
	mu      sync.Mutex
	says    func(outbox.Message) outbox.Result // nil: 200
	came    []string                           // webhook ids in order
	arrived chan struct{}                      // capacity 100
}

func newSink() *sink { return &sink{arrived: make(chan struct{}, 100)} }

func (s *sink) Deliver(_ context.Context, m outbox.Message) outbox.Result {
	s.mu.Lock()
	s.came = append(s.came, m.WebhookID)
	says := s.says
	s.mu.Unlock()
	s.arrived <- struct{}{}
	if says == nil {
		return outbox.Result{Outcome: chat.OutcomeOK, Status: 200}
	}
	return says(m)
}

func (s *sink) say(says func(outbox.Message) outbox.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says = says
}

func (s *sink) count(id string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.came {
		if c == id {
			n++
		}
	}
	return n
}

func refused(outbox.Message) outbox.Result {
	return outbox.Result{Outcome: chat.OutcomeDefinite, Status: 422, Code: outbox.CodeReceiverRefused, Detail: "No."}
}

var callbackSecret = "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32))

// asks is a model that asks for the actions that the question names, each with its
// position as the argument n.
type asks struct{}

func (asks) Stream(_ context.Context, c llm.Call, _ func(llm.Piece)) (llm.Answer, error) {
	a := llm.Answer{Finish: chat.FinishTool, Usage: chat.Usage{InputTokens: 10, OutputTokens: 10}}
	for i, name := range strings.Fields(c.Turns[len(c.Turns)-1].Content) {
		a.ToolCalls = append(a.ToolCalls, llm.ToolCall{ID: fmt.Sprint("call-", i), Name: name, Arguments: fmt.Sprintf(`{"n": %d}`, i)})
	}
	return a, nil
}

// withActions declares the actions of dbtest, all delivered to one sink that is given
// up after one try.
func withActions(to *sink) func(*setup) {
	return func(s *setup) {
		s.engine.Models = []engine.Model{{Name: "asks", Client: asks{}, Price: dbtest.DemoPrice, Concurrency: 64}}
		s.engine.Actions = dbtest.Declared
		s.engine.Destinations = map[string]engine.Destination{}
		for _, name := range []string{"note", "sign", "sign/compensate", "hasty", "post"} {
			s.engine.Destinations[name] = engine.Destination{Sink: to, Target: outbox.Target{
				Kind: outbox.KindWebhook, URL: "http://127.0.0.1:9900/", Secrets: []string{callbackSecret}, MaxAttempts: 1,
			}}
		}
	}
}

// decision posts a verdict.
func (d *door) decision(id, verdict string, more ...any) reply {
	d.t.Helper()
	b := doc{"verdict": verdict}
	for i := 0; i < len(more); i += 2 {
		b[more[i].(string)] = more[i+1]
	}
	return d.post("/api/chat/decisions/"+id, b)
}

// callBack posts a callback that is signed so.
func (d *door) callBack(id, messageID, body, secret string, at time.Time) reply {
	d.t.Helper()
	h, err := outbox.Sign([]string{secret}, messageID, at, []byte(body))
	if err != nil {
		d.t.Fatal(err)
	}
	var header []string
	for name := range h {
		header = append(header, name, h.Get(name))
	}
	return d.post("/callbacks/"+id, body, header...)
}

// stands waits until the one effect of a request is in a state, and returns it.
func (d *door) stands(session, id string, want chat.EffectState) chat.Effect {
	d.t.Helper()
	var rec chat.Record
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		rec = d.get(statusPath(session, id)).wants(200).record()
		if len(rec.Effects) > 0 && rec.Effects[0].State == want {
			return rec.Effects[0]
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("the effect does not become %s: %s", want, mustJSON(rec.Effects))
		}
	}
}

func TestAVerdictIsGivenOnceAndBoundToWhatWasShown(t *testing.T) {
	t.Parallel()
	to := newSink()
	d := openDoor(t, withActions(to))
	session, id, rec := d.answered("post")
	if rec.State != chat.StateAcknowledged || rec.Status != chat.StatusProcessing || len(rec.Effects) != 1 {
		t.Fatalf("an answer that asks is %s", mustJSON(rec))
	}
	e := rec.Effects[0]
	if e.State != chat.EffectUndecided || e.Verdict != "ask" || string(e.Arguments) != `{"n":0}` {
		t.Errorf("undecided: %s", mustJSON(e))
	}
	d.decision(e.DecisionID, "perhaps").refused(400, "bad_request")
	d.decision(e.DecisionID, "approve", "digest", strings.Repeat("0", 64)).refused(409, "digest_mismatch")
	d.decision("msg_"+chat.NewID(), "approve").refused(404, "not_found")
	d.decision(e.DecisionID, "approve", "reason", strings.Repeat("x", 2001)).refused(400, "bad_request")
	if n := to.count(e.WebhookID); n != 0 {
		t.Fatalf("sent %d times without a verdict", n)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { d.decision(e.DecisionID, "approve", "digest", e.Digest, "reason", "fine").wants(200) })
	}
	wg.Wait()
	d.decision(e.DecisionID, "reject", "digest", e.Digest).refused(409, "already_decided")
	e = d.stands(session, id, chat.EffectDelivered)
	if e.Verdict != "approve" || e.Reason != "fine" || e.DecidedBy != "user:1" || e.DecidedAt.IsZero() || e.LastStatus != 200 || e.Attempts != 1 {
		t.Errorf("delivered: %s", mustJSON(e))
	}
	if n := to.count(e.WebhookID); n != 1 {
		t.Errorf("sent %d times, want 1", n)
	}
	if again := d.decision(e.DecisionID, "approve").wants(200).record(); again.State != chat.StateCommitted {
		t.Errorf("the same verdict afterwards: %s", mustJSON(again))
	}
}

// Without scripts the cards are forms. They say what they showed.
func TestAFormDecidesOnWhatItShowed(t *testing.T) {
	t.Parallel()
	to := newSink()
	d := openDoor(t, withActions(to))
	session, id, rec := d.answered("post")
	e := rec.Effects[0]
	page := string(d.get("/c/"+session, "Accept-Language", "en").wants(200).body)
	for _, want := range []string{`name="decision" value="` + e.DecisionID, `name="digest" value="` + e.Digest, "Do post", `value="approve"`, `value="reject"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	act := "/c/" + session + "/act"
	d.form(act, "decision", e.DecisionID, "verdict", "approve").wants(400)
	d.form(act, "decision", e.DecisionID, "verdict", "approve", "digest", strings.Repeat("0", 64)).wants(409)
	d.form(act, "decision", e.DecisionID, "verdict", "both", "digest", e.Digest).wants(400)
	if n := to.count(e.WebhookID); n != 0 {
		t.Fatalf("sent %d times", n)
	}
	to.say(refused)
	for range 2 {
		d.form(act, "decision", e.DecisionID, "verdict", "approve", "digest", e.Digest).wants(303)
	}
	d.form(act, "decision", e.DecisionID, "verdict", "reject", "digest", e.Digest).wants(409)
	d.stands(session, id, chat.EffectDead)
	d.form(act, "effect", e.WebhookID, "resolve", "abandon").wants(400)
	d.form(act, "effect", e.WebhookID, "resolve", "explode", "reason", "x").wants(400)
	d.form(act, "effect", e.WebhookID, "resolve", "abandon", "reason", "enough").wants(303)
	d.stands(session, id, chat.EffectAbandoned)
}

func TestARejectionCommitsWithoutADelivery(t *testing.T) {
	t.Parallel()
	to := newSink()
	d := openDoor(t, withActions(to))
	_, _, rec := d.answered("post never unknown")
	e := rec.Effects[0]
	rec = d.decision(e.DecisionID, "reject", "reason", "no thanks").wants(200).record()
	if rec.State != chat.StateCommitted || rec.Effects[0].State != chat.EffectRejected || rec.Effects[0].Reason != "no thanks" {
		t.Errorf("rejected: %s", mustJSON(rec))
	}
	d.decision(e.DecisionID, "approve").refused(409, "already_decided")
	for _, other := range rec.Effects[1:] {
		d.decision(other.DecisionID, "approve").refused(409, "already_decided")
	}
	d.drain()
	if len(to.came) != 0 {
		t.Errorf("%v was sent", to.came)
	}
}

// A callback needs no cookie, no origin and no name of this server: its signature is
// what counts.
func TestACallbackIsBelievedByItsSignature(t *testing.T) {
	t.Parallel()
	d := openDoor(t, withActions(newSink()))
	session, id, rec := d.answered("sign")
	e := rec.Effects[0]
	d.decision(e.DecisionID, "approve", "digest", e.Digest).wants(200)
	d.stands(session, id, chat.EffectAwaiting)
	now, yes := time.Now(), `{"type":"signed","data":{"ok":true,"requestId":"`+id+`","more":1},"extra":[]}`
	other := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 32))
	d.callBack("msg_"+chat.NewID(), "m1", yes, callbackSecret, now).refused(404, "not_found")
	d.callBack(e.WebhookID, "m1", yes, other, now).refused(401, "signature_invalid")
	d.callBack(e.WebhookID, "m1", yes, callbackSecret, now.Add(-6*time.Minute)).refused(401, "signature_invalid")
	d.post("/callbacks/"+e.WebhookID, yes).refused(401, "signature_invalid")
	for _, wrong := range []string{``, `[]`, `{}`, `{"type":"x"}`, `{"type":"x","data":{}}`, `{"data":{"ok":true}}`, `{"type":"x","data":{"ok":"yes"}}`, yes + yes} {
		d.callBack(e.WebhookID, "m1", wrong, callbackSecret, now).refused(400, "bad_request")
	}
	d.callBack(e.WebhookID, "m1", strings.Repeat(" ", 64<<10)+yes, callbackSecret, now).refused(413, "too_large")
	d.callBack(e.WebhookID, "m1", `{"type":"x","data":{"ok":true,"requestId":"another-one"}}`, callbackSecret, now).refused(409, "other_request")
	d.stands(session, id, chat.EffectAwaiting)

	from := func(body string) reply {
		h, err := outbox.Sign([]string{callbackSecret}, "m1", now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return d.post("/callbacks/"+e.WebhookID, body, "Webhook-Id", h.Get("Webhook-Id"), "Webhook-Timestamp", h.Get("Webhook-Timestamp"),
			"Webhook-Signature", h.Get("Webhook-Signature"), "Host", "semel.example", "X-Forwarded-For", "203.0.113.9", "Origin", "https://elsewhere.example", "Content-Type", "text/plain")
	}
	decision := func(r reply) string {
		var got struct{ Decision string }
		r.wants(200).into(&got)
		return got.Decision
	}
	if got := decision(from(yes)); got != "first" {
		t.Errorf("the first callback is %q", got)
	}
	if got := decision(from(yes)); got != "duplicate" {
		t.Errorf("the same message again is %q", got)
	}
	if got := decision(d.callBack(e.WebhookID, "m2", `{"type":"x","data":{"ok":false,"reason":"no"}}`, callbackSecret, now)); got != "contradiction" {
		t.Errorf("the opposite is %q", got)
	}
	e = d.stands(session, id, chat.EffectDelivered)
	if e.Callback == nil || !e.Callback.OK {
		t.Errorf("called back: %s", mustJSON(e))
	}
	// Nothing else may be done so.
	d.post("/api/chat/decisions/"+e.DecisionID, doc{"verdict": "approve"}, "Host", "semel.example").refused(403, "forbidden_host")
	d.post("/api/chat/decisions/"+e.DecisionID, doc{"verdict": "approve"}, "Sec-Fetch-Site", "cross-site", "Origin", "https://elsewhere.example").refused(403, "forbidden_origin")
	d.get("/callbacks/" + e.WebhookID).wants(405)
}

func TestWhatIsTroubledIsSentAgainUndoneOrGivenUp(t *testing.T) {
	t.Parallel()
	to := newSink()
	to.say(refused)
	d := openDoor(t, withActions(to))
	session, id, rec := d.answered("sign")
	e := rec.Effects[0]
	resolve := func(id, do string, body any) reply { return d.post("/api/ops/outbox/"+id+"/"+do, body) }
	why := doc{"reason": "I looked"}
	resolve(e.WebhookID, "redrive", why).refused(404, "not_found")
	d.decision(e.DecisionID, "approve", "digest", e.Digest).wants(200)
	if dead := d.stands(session, id, chat.EffectDead); dead.Code != "max_attempts" || dead.LastStatus != 422 {
		t.Errorf("dead: %s", mustJSON(dead))
	}
	var page struct {
		Outbox []struct{ ID, Kind, RequestID, SessionID, Destination, State, Code string }
		Next   string
	}
	d.get("/api/ops/outbox?state=dead").wants(200).into(&page)
	if len(page.Outbox) != 1 || page.Outbox[0].ID != e.WebhookID || page.Outbox[0].RequestID != id || page.Outbox[0].SessionID != session || page.Outbox[0].Kind != "effect" {
		t.Errorf("the outbox: %s", mustJSON(page))
	}
	d.get("/api/ops/outbox?state=odd").wants(400)
	d.get("/api/ops/outbox?limit=0").wants(400)
	d.get("/api/ops/outbox?before=x").wants(400)
	resolve(e.WebhookID, "redrive", doc{"reason": " "}).refused(400, "bad_request")
	resolve(e.WebhookID, "redrive", why).wants(200)
	d.stands(session, id, chat.EffectDead)
	if n := to.count(e.WebhookID); n != 2 {
		t.Errorf("sent %d times under its id, want 2", n)
	}
	resolve(e.WebhookID, "compensate", why).wants(200)
	resolve(e.WebhookID, "compensate", why).wants(200)
	resolve(e.WebhookID, "redrive", why).refused(409, "not_now")
	var undo *chat.Compensation
	for deadline := time.Now().Add(limit); undo == nil || undo.State != chat.EffectDead; time.Sleep(time.Millisecond) {
		if undo = d.stands(session, id, chat.EffectCompensating).Compensation; time.Now().After(deadline) {
			t.Fatalf("the compensation is %s", mustJSON(undo))
		}
	}
	to.say(nil)
	resolve(undo.WebhookID, "redrive", why).wants(200)
	d.stands(session, id, chat.EffectCompensated)

	session, id, rec = d.answered("sign")
	to.say(refused)
	e = rec.Effects[0]
	d.decision(e.DecisionID, "approve").wants(200)
	d.stands(session, id, chat.EffectDead)
	resolve(e.WebhookID, "abandon", why).wants(200)
	resolve(e.WebhookID, "abandon", why).wants(200)
	if rec := d.get(statusPath(session, id)).wants(200).record(); rec.State != chat.StateCommitted || rec.Effects[0].State != chat.EffectAbandoned {
		t.Errorf("given up: %s", mustJSON(rec))
	}
}

func TestManyAreSentAgainWithAResultEach(t *testing.T) {
	t.Parallel()
	to := newSink()
	to.say(refused)
	d := openDoor(t, withActions(to))
	var ids []string
	var sessions [][2]string
	for range 3 {
		session, id, rec := d.answered("post")
		d.decision(rec.Effects[0].DecisionID, "approve").wants(200)
		d.stands(session, id, chat.EffectDead)
		ids, sessions = append(ids, rec.Effects[0].WebhookID), append(sessions, [2]string{session, id})
	}
	var page struct {
		Outbox []struct{ ID string }
		Next   string
	}
	d.get("/api/ops/outbox?limit=2").wants(200).into(&page)
	if len(page.Outbox) != 2 || page.Outbox[0].ID != ids[2] || page.Next == "" {
		t.Fatalf("the first page: %s", mustJSON(page))
	}
	d.get("/api/ops/outbox?limit=2&before=" + page.Next).wants(200).into(&page)
	if len(page.Outbox) != 1 || page.Outbox[0].ID != ids[0] || page.Next != "" {
		t.Fatalf("the second page: %s", mustJSON(page))
	}
	to.say(nil)
	many := func(body doc) (got struct {
		Results []struct {
			ID, State string
			Error     *chat.Problem
		}
	}) {
		d.post("/api/ops/outbox/redrive", body).wants(200).into(&got)
		return got
	}
	got := many(doc{"ids": []string{ids[0], "msg_none"}, "reason": "it is up again"})
	if len(got.Results) != 2 || got.Results[0].State != "pending" || got.Results[0].Error != nil || got.Results[1].Error == nil || got.Results[1].Error.Code != "not_found" {
		t.Errorf("by their ids: %s", mustJSON(got))
	}
	d.stands(sessions[0][0], sessions[0][1], chat.EffectDelivered)
	if got = many(doc{"state": "dead", "reason": "it is up again"}); len(got.Results) != 2 {
		t.Errorf("all of a state: %s", mustJSON(got))
	}
	for _, s := range sessions {
		d.stands(s[0], s[1], chat.EffectDelivered)
	}
	for _, wrong := range []doc{{"reason": "x"}, {"state": "pending", "reason": "x"}, {"state": "dead", "ids": []string{"a"}, "reason": "x"}, {"ids": ids}} {
		d.post("/api/ops/outbox/redrive", wrong).refused(400, "bad_request")
	}
}

func TestACorrectionIsMadeOnceForItsKey(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, rec := d.answered("What does it cost?")
	post := func(do, key string, body doc) reply {
		return d.post("/api/ops/requests/"+id+"/"+do+"?sessionId="+session, body, "Idempotency-Key", key)
	}
	key := chat.NewID()
	for range 2 {
		post("refund", key, doc{"micros": 1, "reason": "too slow"}).wants(200)
	}
	post("refund", key, doc{"micros": 2, "reason": "too slow"}).refused(422, "key_reused")
	post("adjust", key, doc{"micros": -1, "reason": "too slow"}).refused(422, "key_reused")
	post("adjust", chat.NewID(), doc{"micros": 5, "reason": "estimated"}).wants(200)
	post("refund", chat.NewID(), doc{"micros": rec.Cost.Micros + 100, "reason": "all"}).refused(409, "not_now")
	for _, wrong := range []doc{{"reason": "x"}, {"micros": 0, "reason": "x"}, {"micros": -1, "reason": "x"}, {"micros": 1}} {
		post("refund", chat.NewID(), wrong).refused(400, "bad_request")
	}
	d.post("/api/ops/requests/"+id+"/refund?sessionId="+session, doc{"micros": 1, "reason": "x"}).refused(400, "key_missing")
	var rc struct {
		Ledger []struct {
			Kind   string
			Micros int64
		}
	}
	d.get(receiptPath(session, id)).wants(200).into(&rc)
	if got := fmt.Sprint(rc.Ledger[1:]); got != "[{refund -1} {adjustment 5}]" {
		t.Errorf("the ledger has %s", got)
	}
}

// A receiver may call back before its answer is there: then the request is committed
// while the delivery is open, and what is told of that must not be kept.
func TestWhatIsToldOfAnEffectIsNeverStale(t *testing.T) {
	t.Parallel()
	to := newSink()
	called := make(chan struct{})
	to.say(func(outbox.Message) outbox.Result {
		<-called
		return outbox.Result{Outcome: chat.OutcomeOK, Status: 202}
	})
	d := openDoor(t, withActions(to))
	session, id, rec := d.answered("sign")
	e := rec.Effects[0]
	d.decision(e.DecisionID, "approve").wants(200)
	<-to.arrived
	d.callBack(e.WebhookID, "m1", `{"type":"x","data":{"ok":true}}`, callbackSecret, time.Now()).wants(200)
	for range 2 {
		again := d.chat(ask(session, id, "sign")).wants(200).record()
		if again.State != chat.StateCommitted || again.Effects[0].LastStatus != 0 || !again.FromCache {
			t.Fatalf("called back early: %s", mustJSON(again))
		}
	}
	close(called)
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		if got := d.stands(session, id, chat.EffectDelivered); got.LastStatus == 202 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the delivery does not end")
		}
	}
	if again := d.chat(ask(session, id, "sign")).wants(200).record(); again.Effects[0].LastStatus != 202 {
		t.Errorf("the repeat is told %s", mustJSON(again.Effects))
	}
}

func TestAReceiptHasTheEvidenceOfEveryEffect(t *testing.T) {
	t.Parallel()
	to := newSink()
	d := openDoor(t, withActions(to))
	session, id, rec := d.answered("sign never post")
	e := rec.Effects[0]
	d.decision(e.DecisionID, "approve", "reason", "go").wants(200)
	d.stands(session, id, chat.EffectAwaiting)
	for range 2 {
		d.callBack(e.WebhookID, "m1", `{"type":"x","data":{"ok":false,"reason":"not mine"}}`, callbackSecret, time.Now()).wants(200)
	}
	d.stands(session, id, chat.EffectCompensated)
	var rc struct {
		Decisions []struct {
			ID, Verdict, Code string
			Said              *struct{ Verdict, Actor, Reason string }
		}
		Effects []struct {
			State      string
			Deliveries []struct {
				N       int
				Outcome string
				Status  int
			}
			Callbacks []struct {
				OK               bool
				Reason, Decision string
				Times            int
			}
			Compensation *struct {
				State      string
				Deliveries []json.RawMessage
			}
		}
		Sentence string
	}
	d.get(receiptPath(session, id)).wants(200).into(&rc)
	if len(rc.Decisions) != 3 || rc.Decisions[0].Said == nil || rc.Decisions[0].Said.Reason != "go" || rc.Decisions[1].Verdict != "never" || rc.Decisions[2].Said != nil {
		t.Errorf("decisions: %s", mustJSON(rc.Decisions))
	}
	one := rc.Effects[0]
	if len(one.Deliveries) != 1 || one.Deliveries[0].Status != 200 || len(one.Callbacks) != 1 || one.Callbacks[0].Times != 2 || one.Callbacks[0].Reason != "not mine" ||
		one.Compensation == nil || one.Compensation.State != "delivered" || len(one.Compensation.Deliveries) != 1 {
		t.Errorf("the first effect: %s", mustJSON(one))
	}
	if want := "it asked for 3 actions: one was undone, one was rejected, one waits for a person."; !strings.HasSuffix(rc.Sentence, want) {
		t.Errorf("the sentence is %q", rc.Sentence)
	}
	if got := d.get("/c/"+session+"/r/"+id, "Accept-Language", "en").wants(http.StatusOK); len(got.body) == 0 {
		t.Error("no page")
	}
}
