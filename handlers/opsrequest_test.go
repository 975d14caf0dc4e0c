package handlers_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/outbox"
)

func opsPath(session, id string) string {
	return "/ops/requests/" + id + "?sessionId=" + url.QueryEscape(session)
}

// hand sends a form of the page of a request, with the key that the page has.
func (d *door) hand(path string, fields ...string) reply {
	d.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return d.post(path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// key is that of the forms on a page.
func (r reply) key() string {
	r.t.Helper()
	m := regexp.MustCompile(`name="key" value="(\w{26})"`).FindSubmatch(r.wants(200).body)
	if m == nil {
		r.t.Fatal("the page has no key")
	}
	return string(m[1])
}

// byHand are the deeds that the audit has about an object.
func (d *door) byHand(object string) string {
	d.t.Helper()
	var out struct {
		Audit []struct{ Actor, Action, Reason, RequestID string }
	}
	d.get("/api/ops/audit?object=" + url.QueryEscape(object)).wants(200).into(&out)
	var list []string
	for _, a := range out.Audit {
		list = append(list, a.Actor+" "+a.Action+": "+a.Reason)
	}
	return strings.Join(list, "; ")
}

func (r reply) says(texts ...string) {
	r.t.Helper()
	for _, want := range texts {
		if !strings.Contains(string(r.body), want) {
			r.t.Errorf("the page does not say %q", want)
		}
	}
}

func (r reply) hides(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if strings.Contains(string(r.body), text) {
			r.t.Errorf("it says %q", text)
		}
	}
}

func TestWordsAreHiddenUntilSomebodyAsksAndThatIsWrittenDown(t *testing.T) {
	d := openDoor(t)
	session, id, failed := chat.NewID(), chat.NewID(), chat.NewID()
	long := "What may be read by nobody who runs the place, and is longer than a title can be: the canary's question?"
	d.tap.pour(id, 1, "The canary's answer.", chat.FinishStop)
	d.chat(ask(session, id, long, "model", "tap")).wants(200)
	d.tap.pour(failed, 1, "The canary's half", errBusyForLong)
	d.chat(ask(session, failed, long+" Again!", "model", "tap"))
	hidden := []string{"canary"}
	d.get(opsPath(session, id)).wants(200).hides(hidden...)
	d.get(opsPath(session, failed)).wants(200).hides(hidden...)
	d.get("/api" + opsPath(session, id)).wants(200).hides(hidden...)
	d.get("/api" + opsPath(session, failed)).wants(200).hides(hidden...)
	if got := d.byHand(id); got != "" {
		t.Errorf("nobody has asked, and the audit has %s", got)
	}
	for range 2 { // each look is one
		d.hand(opsPath(session, id), "do", "reveal", "reason", "a complaint").wants(200).says("the canary&#39;s question?", "The canary&#39;s answer.")
	}
	d.hand(opsPath(session, failed), "do", "reveal").wants(200).says("The canary&#39;s half")
	if got := d.byHand(id); got != "user:1 reveal: a complaint; user:1 reveal: a complaint" {
		t.Errorf("the audit has %s", got)
	}
	d.get(opsPath(session, id)).wants(200).hides(hidden...)
}

func TestArgumentsAreWordsToo(t *testing.T) {
	v := newSink()
	v.say(func(outbox.Message) outbox.Result {
		return outbox.Result{Outcome: chat.OutcomeDefinite, Status: 410, Code: outbox.CodeReceiverGone, Detail: "I got a canary", Gone: true}
	})
	d := openDoor(t, withActions(v))
	session, id, _ := d.answered("note")
	d.stands(session, id, chat.EffectDead)
	d.get(opsPath(session, id)).wants(200).hides("canary", `{"n": 0}`, "{&#34;n&#34;: 0}")
	d.get("/api"+opsPath(session, id)).wants(200).hides("canary", `"n":0`)
	d.hand(opsPath(session, id), "do", "reveal").wants(200).says("{&#34;n&#34;: 0}")
}

func TestThePageOfARequestSaysWhyEachArrivalWasADuplicate(t *testing.T) {
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	d.tapped(session, id)
	d.tapped(session, id) // joins
	d.chat(ask(session, id, "other words", "model", "tap")).wants(422)
	d.tap.pour(id, 1, "Yes.", chat.FinishStop)
	d.chat(ask(session, id, "Pour.", "model", "tap"), "Prefer", "wait=60").wants(200)
	d.chat(ask(session, id, "Pour.", "model", "tap")).wants(200)
	page := d.get(opsPath(session, id)).wants(200)
	page.says("No duplicate: this conversation had never seen the id", "A duplicate: same id, same content, and",
		"A duplicate: same id, same content, and the answer was final.", "No duplicate, but a mistake: the same id with other content.", "1 + 4", "/c/"+session+"/r/"+id)
	var out struct {
		Arrivals []struct{ Decision chat.Decision }
		ByHand   []any
	}
	d.get("/api" + opsPath(session, id)).wants(200).into(&out)
	if len(out.Arrivals) != 5 || out.ByHand == nil {
		t.Errorf("%+v", out)
	}
}

func TestWhatIsDoneByHandIsDoneOnceAndWrittenDown(t *testing.T) {
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	d.tapped(session, id)
	d.running(session, id)
	path := opsPath(session, id)
	key := d.get(path).key()

	d.hand(path, "do", "stop", "key", key, "attempt", "1").wants(400).says(`role="alert"`)
	d.hand(path, "do", "stop", "attempt", "1", "reason", "it hangs").wants(400)
	d.hand(path, "do", "stop", "key", key, "attempt", "one", "reason", "it hangs").wants(400)
	d.hand(path, "do", "odd", "key", key, "attempt", "1", "reason", "it hangs").wants(400)
	if got := d.byHand(id); got != "" {
		t.Errorf("what was refused is written down: %s", got)
	}
	for range 2 {
		d.hand(path, "do", "stop", "key", key, "attempt", "1", "reason", "it hangs").wants(303).has("Location", "/ops/requests/"+id+"?done=1&sessionId="+session)
	}
	d.get(path+"&done=1").wants(200).says("Done, and written down.", "Stopped by you.", "Why: it hangs")

	again := d.get(path).key()
	for range 2 {
		d.hand(path, "do", "retry", "key", again, "attempt", "1", "model", "demo", "reason", "it is there again").wants(303)
	}
	d.chat(ask(session, id, "Pour.", "model", "tap"), "Prefer", "wait=60").wants(200)

	money := d.get(path).key()
	d.hand(path, "do", "refund", "key", money, "attempt", "2", "amount", "a lot", "reason", "a complaint").wants(400).says(`value="a lot"`)
	d.hand(path, "do", "refund", "key", money, "attempt", "2", "amount", "1000", "reason", "a complaint").wants(409)
	for range 2 {
		d.hand(path, "do", "adjustment", "key", money, "attempt", "2", "amount", "0.25", "reason", "estimated too low").wants(303)
	}
	d.hand(path, "do", "refund", "key", d.get(path).key(), "attempt", "2", "amount", "0.05", "reason", "a complaint").wants(303)
	rc := d.receipt(session, id)
	sum := int64(0)
	for _, l := range rc.Ledger {
		if l.Kind == "adjustment" || l.Kind == "refund" {
			sum += l.Micros
		}
	}
	if sum != 200_000 {
		t.Errorf("corrected by %d, want 200000", sum)
	}
	want := "user:1 refund: a complaint; user:1 adjustment: estimated too low; user:1 retry: it is there again; user:1 stop: it hangs"
	if got := d.byHand(id); got != want {
		t.Errorf("the audit has\n%s, want\n%s", got, want)
	}
	d.get("/ops/audit?action=refund&actor=user:1&object="+id).wants(200).says("a complaint", url.QueryEscape(session))
	d.get("/ops/audit?before=x").wants(400)
	d.get("/api/ops/audit?limit=0").wants(400)
}

func TestAStuckLeaseIsReleased(t *testing.T) {
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	d.tapped(session, id)
	d.running(session, id)
	path := "/api/ops/requests/" + id + "/release?sessionId=" + session
	d.post(path, map[string]any{"attempt": 1}).refused(400, "bad_request")
	d.post(path, map[string]any{"reason": "it hangs"}).refused(400, "bad_request")
	d.post(path, map[string]any{"attempt": 2, "reason": "it hangs"}).refused(409, "not_now")
	d.post("/api/ops/requests/"+chat.NewID()+"/release?sessionId="+session, map[string]any{"attempt": 1, "reason": "it hangs"}).refused(404, "not_found")
	for range 2 {
		var rec chat.Record
		d.post(path, map[string]any{"attempt": 1, "reason": "it hangs"}).wants(200).into(&rec)
		if rec.State != chat.StateFailed || rec.Error.Code != "interrupted" || rec.Error.Outcome != chat.OutcomeUnknown {
			t.Fatalf("%+v", rec)
		}
	}
	answered, other, _ := d.answered("[[echo yes]]")
	d.post("/api/ops/requests/"+other+"/release?sessionId="+answered, map[string]any{"attempt": 1, "reason": "it hangs"}).refused(409, "not_now")
	if got := d.byHand(id); got != "user:1 release: it hangs" {
		t.Errorf("the audit has %s", got)
	}
}

func TestAnEffectIsResolvedOnThePageOfItsRequestOnly(t *testing.T) {
	v := newSink()
	v.say(refused)
	d := openDoor(t, withActions(v))
	session, id, _ := d.answered("note")
	e := d.stands(session, id, chat.EffectDead)
	other, another, _ := d.answered("note")
	d.hand(opsPath(other, another), "do", "abandon", "id", e.WebhookID, "reason", "enough").wants(404)
	d.hand(opsPath(session, id), "do", "abandon", "id", e.WebhookID).wants(400)
	d.get(opsPath(session, id)).wants(200).says(`value="redrive"`, "definite 422")
	for range 2 {
		d.hand(opsPath(session, id), "do", "abandon", "id", e.WebhookID, "reason", "enough").wants(303)
	}
	d.hand(opsPath(session, id), "do", "redrive", "id", e.WebhookID, "reason", "again").wants(409).says(`role="alert"`)
	if got := d.byHand(id); got != "user:1 abandon: enough" { // the audit of a request has that of its effects
		t.Errorf("the audit has %s", got)
	}
	// And so has the receipt, for whoever asked.
	d.get("/c/" + session + "/r/" + id).wants(200).says("Given up by you. Why: enough")
	d.get(receiptPath(session, id)).wants(200).says(`"action":"abandon"`)
}

func TestOperationsSeeRequestsOfAllUsers(t *testing.T) {
	d := openDoor(t)
	c, err := sql.Open("sqlite", "file:"+d.file+"?_pragma=busy_timeout(5000)")
	if err == nil {
		_, err = c.Exec(`INSERT INTO users (id, name, created_at) VALUES (2, 'other', 1)`)
	}
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := dbtest.Submission("session-other", chat.NewID(), "a canary")
	s.Key.UserID = 2
	r, err := d.db.Accept(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	path := opsPath("session-other", r.Key.RequestID)
	d.get(path).wants(404)
	d.get(path + "&user=x").wants(400)
	page := d.get(path + "&user=2").wants(200)
	page.says("<dd>2</dd>")
	page.hides("canary", "/r/"+r.Key.RequestID) // whose receipt is its owner's
	d.get("/ops").wants(200).says("user=2")
	d.hand(path+"&user=2", "do", "stop", "key", page.key(), "attempt", "0", "reason", "not here").wants(303)
	got, err := d.db.Load(t.Context(), r.ID)
	if err != nil || got.State != chat.StateFailed {
		t.Errorf("it is %s (%v)", got.State, err)
	}
}

func TestAmountsAreReadAsPeopleWriteThem(t *testing.T) {
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	path := opsPath(session, id)
	for _, bad := range []string{"", "0", "1e3", "1/2", "0x10", "0.0000001", "ten", "1_000", "9999999999999999"} {
		d.hand(path, "do", "adjustment", "key", chat.NewID(), "attempt", "1", "amount", bad, "reason", "x").wants(400)
	}
	for i, amount := range []string{"0.25", " 1 ", "−0.5", "+2", ".75"} {
		d.hand(path, "do", "adjustment", "key", fmt.Sprintf("key-0000%d", i), "attempt", "1", "amount", amount, "reason", "x").wants(303)
	}
	sum := int64(0)
	for _, l := range d.receipt(session, id).Ledger {
		if l.Kind == "adjustment" {
			sum += l.Micros
		}
	}
	if sum != 3_500_000 {
		t.Errorf("adjusted by %d", sum)
	}
}

// running waits until a request is being answered.
func (d *door) running(session, id string) {
	d.t.Helper()
	r, err := d.db.Find(d.t.Context(), chat.Key{UserID: db.LocalUser, SessionID: session, RequestID: id})
	if err != nil {
		d.t.Fatal(err)
	}
	l := d.engine.Live(r.ID)
	for v := l.View(); v.Request.State != chat.StateGenerating; v = l.View() {
		<-v.Changed
	}
}
