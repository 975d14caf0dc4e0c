package handlers_test

import (
	"net/url"
	"strings"
	"testing"

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
