package handlers_test

import (
	"bufio"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/outbox"
)

type requestsDoc struct {
	Requests []struct {
		RequestID, SessionID string
		State                chat.State
		Arrivals             map[chat.Decision]int
		Attempt              int64
		Cost                 chat.Money
		OpenEffects          int
	}
	Next string
}

func TestTheNewestRequestsAreListedWithTheirDedupeState(t *testing.T) {
	d := openDoor(t)
	session, id, rec := d.answered("[[echo yes]]")
	d.answered("[[echo no]]")
	d.post("/api/chat", map[string]any{"sessionId": session, "requestId": id, "content": "[[echo yes]]"}).wants(200)
	d.post("/api/chat", map[string]any{"sessionId": session, "requestId": id, "content": "other words"}).wants(422)
	list := func(query string) (doc requestsDoc) {
		t.Helper()
		d.get("/api/ops/requests" + query).wants(200).into(&doc)
		return doc
	}
	all := list("")
	if len(all.Requests) != 2 || all.Next != "" {
		t.Fatalf("listed: %+v", all)
	}
	got := all.Requests[1]
	if got.RequestID != id || got.SessionID != session || got.State != chat.StateCommitted || got.Attempt != 1 || got.Cost != *rec.Cost ||
		got.Arrivals[chat.DecisionFirst] != 1 || got.Arrivals[chat.DecisionReplayed] != 1 || got.Arrivals[chat.DecisionConflict] != 1 {
		t.Errorf("listed: %+v", got)
	}
	if page := list("?limit=1"); len(page.Requests) != 1 || page.Next == "" || list("?limit=1&before=" + page.Next).Requests[0].RequestID != id {
		t.Errorf("page by page: %+v", page)
	}
	for _, q := range []string{"?view=repeated", "?view=conflicts", "?decision=replayed", "?q=" + strings.ToLower(id[12:])} {
		if doc := list(q); len(doc.Requests) != 1 || doc.Requests[0].RequestID != id {
			t.Errorf("%s: %+v", q, doc)
		}
	}
	for _, q := range []string{"?state=odd", "?decision=odd", "?view=odd", "?limit=0", "?limit=1001", "?before=x", "?q=" + strings.Repeat("x", 65)} {
		d.get("/api/ops/requests" + q).wants(400)
		d.get("/ops" + q).wants(400)
	}
	page := d.get("/ops?view=conflicts").wants(200).body
	for _, want := range []string{id, "1 + 2", "/ops/requests/" + id + "?sessionId=" + session, "conflict 1"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestTheCheckRunsOnDemand(t *testing.T) {
	d := openDoor(t)
	d.answered("[[echo yes]]")
	var out struct {
		OK     bool
		Checks []struct {
			ID         string
			Violations int64
		}
	}
	d.post("/api/ops/verify", nil).wants(200).into(&out)
	if !out.OK || len(out.Checks) < 50 {
		t.Errorf("%d checks, ok: %t", len(out.Checks), out.OK)
	}
}

// The page of the outbox works without scripts: send again, give up, undo, each with a
// reason.
func TestTheOutboxPage(t *testing.T) {
	v := newSink()
	v.say(func(outbox.Message) outbox.Result {
		return outbox.Result{Outcome: chat.OutcomeDefinite, Status: 410, Code: outbox.CodeReceiverGone, Gone: true}
	})
	d := openDoor(t, withActions(v))
	session, id, _ := d.answered("note")
	e := d.stands(session, id, chat.EffectDead)
	page := d.get("/ops/outbox?state=dead").wants(200).body
	for _, want := range []string{e.WebhookID, `value="redrive"`, `value="abandon"`, "destination_disabled"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	form := func(do, reason string) reply {
		return d.post("/ops/outbox?state=dead", url.Values{"id": {e.WebhookID}, "do": {do}, "reason": {reason}}.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	}
	form("abandon", "").wants(400)
	form("odd", "because").wants(400)
	form("compensate", "because").wants(409)
	form("abandon", "because").wants(303).has("Location", "/ops/outbox?done=1&state=dead")
	d.stands(session, id, chat.EffectAbandoned)
	form("redrive", "because").wants(409)
}

// How the program is doing is on the page as it is in the API, and is never worse for
// being looked at.
func TestThePageOfOperationsSaysHowItGoes(t *testing.T) {
	d := openDoor(t)
	page := d.get("/ops").wants(200) // of an empty file
	page.says("Not checked since the start.", "0 = 0", `data-lamp="ok"`)
	session, id, _ := d.answered("[[echo yes]]")
	d.post("/api/chat", map[string]any{"sessionId": session, "requestId": id, "content": "[[echo yes]]"}).wants(200)
	page = d.get("/ops").wants(200)
	page.says("1 = 1", `data-lamp="ok"`, "Model calls explained", "Charges = answers", "50 %", "Verify now", time.Now().UTC().Format("2006-01-02")+": $0.0")
	page.hides(`data-lamp="broken"`)

	d.post("/ops/verify", "", "Content-Type", "application/x-www-form-urlencoded").wants(303).has("Location", "/ops#check")
	for done := false; !done; {
		body := string(d.get("/ops").wants(200).body)
		done = strings.Contains(body, "rules hold.") && strings.Contains(body, "100 % of the requests there are now")
	}
}

func TestTheCostOfADayIsThatOfItsLedger(t *testing.T) {
	d := openDoor(t)
	session, id, rec := d.answered("[[echo yes]]")
	today := func() string {
		return regexp.MustCompile(time.Now().UTC().Format("2006-01-02") + `</td>\s*<td class="n">([^<]*)</td>`).FindStringSubmatch(string(d.get("/ops").wants(200).body))[1]
	}
	one := today()
	if want := fmt.Sprintf("$%.6f", float64(rec.Cost.Micros)/1e6); one != want {
		t.Errorf("today cost %s, want %s", one, want)
	}
	d.answered("[[echo yes]]")
	d.post("/api/ops/requests/"+id+"/adjust?sessionId="+session, map[string]any{"micros": 1_000_000, "reason": "estimated"}, "Idempotency-Key", chat.NewID()).wants(200)
	if got, want := today(), fmt.Sprintf("$%.6f", 1+2*float64(rec.Cost.Micros)/1e6); got != want {
		t.Errorf("today cost %s, want %s", got, want)
	}
}

// All of a state are sent again with one form, and what came of each is said.
func TestManyAreSentAgainAtOnce(t *testing.T) {
	v := newSink()
	v.say(refused)
	d := openDoor(t, withActions(v))
	var ids []string
	for range 3 {
		session, id, _ := d.answered("note")
		ids = append(ids, d.stands(session, id, chat.EffectDead).WebhookID)
	}
	d.get("/ops/outbox?state=dead").wants(200).says("Send all 3 again", "definite 422")
	d.hand("/ops/outbox?state=dead", "do", "redrive-all").wants(400).says(`role="alert"`)
	page := d.hand("/ops/outbox?state=dead", "do", "redrive-all", "reason", "it is there again").wants(200)
	for _, id := range ids {
		page.says("<code>" + id + "</code>")
		if got := d.byHand(id); got != "user:1 redrive: it is there again" {
			t.Errorf("the audit has %s", got)
		}
	}
	d.get("/ops/outbox").wants(200).hides("Send all")
}

// However much happens, a tab of operations is told twice a second at most, and now and
// then where nothing does; what happens to its user is told as in every feed.
func TestTheFeedOfOperationsIsCalm(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		events := d.open("GET", "/api/ops/events", nil)
		defer events.Body.Close()
		var mu sync.Mutex
		var changed []time.Time
		requests := 0
		go func() {
			lines := bufio.NewScanner(events.Body)
			for lines.Scan() {
				mu.Lock()
				switch lines.Text() {
				case "event: changed":
					changed = append(changed, time.Now())
				case "event: request":
					requests++
				}
				mu.Unlock()
			}
		}()
		synctest.Wait()
		began := time.Now()
		for range 400 { // for two seconds
			d.chat(ask(chat.NewID(), chat.NewID(), "[[rate 0]] [[tokens 1]] hi"), "Prefer", "wait=0")
			time.Sleep(5 * time.Millisecond)
		}
		synctest.Wait()
		busy := time.Since(began)
		mu.Lock()
		n, most := len(changed), int(busy/(500*time.Millisecond))+1
		mu.Unlock()
		if n < 3 || n > most {
			t.Errorf("told %d times in %s, want at most %d", n, busy, most)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if quiet := len(changed) - n; quiet < 5 || quiet > 8 {
			t.Errorf("told %d times while nothing happened for half a minute", quiet)
		}
		for i := 1; i < len(changed); i++ {
			if gap := changed[i].Sub(changed[i-1]); gap < 500*time.Millisecond {
				t.Errorf("told again after %s", gap)
			}
		}
		if requests < 400 || requests > 3*400 {
			t.Errorf("told of %d changes of 400 requests", requests)
		}
	})
}
