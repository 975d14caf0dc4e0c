package handlers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"semel/chat"
)

// The table of contract section 3: what an arrival of a request id is answered.

func TestTheFirstCallWaitsForItsAnswer(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	r := d.chat(ask(session, id, "[[echo Here it is.]]")).wants(200).
		has("X-Request-Id", id, "X-Attempt", "1", "X-Idempotent-Replayed", "", "X-Idempotent-Joined", "",
			"Content-Type", "application/json; charset=utf-8", "Location", "")
	rec := r.record()
	message := chat.RecordMessage{ID: session + ".2", Seq: 2, ParentID: session + ".1", Role: "assistant", Content: "Here it is.", Finish: "stop"}
	message.CreatedAt = rec.Message.CreatedAt
	want := chat.Record{
		RequestID: id, SessionID: session, Kind: "message", Status: "COMPLETED", State: "committed", Attempt: 1,
		Content: "Here it is.", Message: &message, Model: "demo", Usage: rec.Usage, Cost: rec.Cost, Effects: []chat.Effect{},
		CreatedAt: rec.CreatedAt, CompletedAt: rec.CompletedAt, StatusURL: statusPath(session, id), StreamURL: streamPath(session, id),
	}
	if !reflect.DeepEqual(rec, want) {
		t.Errorf("record %+v, want %+v", rec, want)
	}
	if rec.Usage.OutputTokens == 0 || rec.Cost.Currency != "USD" || rec.Cost.Micros == 0 || rec.CompletedAt.IsZero() {
		t.Errorf("record %s", r.body)
	}
	// The names are public: each is there also when it has nothing to say.
	var fields map[string]json.RawMessage
	r.into(&fields)
	for _, name := range []string{"requestId", "sessionId", "kind", "status", "state", "attempt", "fromCache", "content", "message", "model",
		"usage", "cost", "contextDropped", "effects", "error", "createdAt", "completedAt", "statusUrl", "streamUrl"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("the record has no %s", name)
		}
		delete(fields, name)
	}
	if len(fields) > 0 {
		t.Errorf("the record has more than is promised: %v", fields)
	}
}

func TestACallThatDoesNotWaitIsToldWhereToLook(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	r := d.chat(ask(session, id, "Pour.", "model", "tap"), "Prefer", "wait=0").wants(202).
		has("Location", statusPath(session, id), "X-Request-Id", id, "X-Attempt", "*", "X-Idempotent-Joined", "", "X-Idempotent-Replayed", "")
	if after := r.header.Get("Retry-After"); after < "1" || after > "3" || len(after) != 1 {
		t.Errorf("Retry-After %q", after)
	}
	if rec := r.record(); rec.Status != chat.StatusProcessing || rec.Message != nil || rec.Error != nil {
		t.Errorf("record %+v", rec)
	}
	if rec := d.get(r.header.Get("Location")).wants(200).record(); rec.RequestID != id {
		t.Errorf("Location leads to %+v", rec)
	}
}

func TestAFirstCallWaitsTwoMinutesUnlessItSaysOtherwise(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		for prefer, want := range map[string]time.Duration{
			"":                         120 * time.Second,
			"wait=0":                   0,
			"wait=7":                   7 * time.Second,
			`respond-async, wait="9"`:  9 * time.Second,
			"WAIT = 11":                11 * time.Second,
			"handling=lenient":         120 * time.Second,
			"wait=2000000000":          10 * time.Minute,
			"return=minimal , wait=13": 13 * time.Second,
		} {
			header := []string{"Prefer", prefer}
			if prefer == "" {
				header = nil
			}
			start := time.Now()
			d.chat(ask(chat.NewID(), chat.NewID(), "Pour.", "model", "tap"), header...).wants(202)
			if took := time.Since(start); took < want || took > want+time.Second {
				t.Errorf("Prefer %q waited %s, want %s", prefer, took, want)
			}
		}
	}, func(s *setup) { s.engine.Lease = time.Hour; s.engine.Models[1].FirstTokenTimeout = time.Hour })
}

func TestAWaitThatNobodyUnderstandsRunsNothing(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for _, prefer := range []string{"wait", "wait=", "wait=soon", "wait=-1", "wait=1.5", "wait=99999999999999999999", "wait=1;x"} {
		session, id := chat.NewID(), chat.NewID()
		p := d.chat(ask(session, id, "hello"), "Prefer", prefer).refused(400, "bad_request")
		if !strings.Contains(p.Detail, "wait") || p.RequestID != id {
			t.Errorf("%q: %+v", prefer, p)
		}
		d.get(statusPath(session, id)).refused(404, "not_found")
	}
	if n := d.demo.Calls(); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A22: an id that exists is joined, never streamed beside the first.
func TestARepeatJoinsTheAnswerThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	body := ask(session, id, "Pour.", "model", "tap")
	d.tapped(session, id)

	// Without a wait it is told at once where to look.
	r := d.chat(body).wants(202).has("X-Idempotent-Joined", "true", "Location", statusPath(session, id), "Retry-After", "*", "X-Request-Id", id)
	if rec := r.record(); rec.FromCache || rec.Status != chat.StatusProcessing {
		t.Errorf("record %+v", rec)
	}
	// With one it waits, and so does any number of others; a stream joins as well.
	f := d.stream("/api/chat", body)
	hasHeaders(t, f.res.Header, "X-Idempotent-Joined", "true")
	const waiting = 8
	replies := make([]reply, waiting)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() { replies[i] = d.chat(body, "Prefer", "wait=30") })
	}
	d.tap.pour(id, 1, "One ", "answer.")
	f.texts("One answer.")
	d.tap.pour(id, 1, chat.FinishStop)
	wg.Wait()
	for _, r := range replies {
		rec := r.wants(200).record()
		joined, replayed := r.header.Get("X-Idempotent-Joined") == "true", r.header.Get("X-Idempotent-Replayed") == "true"
		if rec.Content != "One answer." || joined == replayed || rec.FromCache != replayed {
			t.Errorf("%+v with %v", rec, r.header)
		}
	}
	only(t, f.rest(), "end")
	if n := d.tap.asked(); n != 1 {
		t.Errorf("%d calls of the model", n)
	}
}

// F15: a replay says that it is one.
func TestARepeatOfAnAnsweredQuestionGetsTheSameMessageByteForByte(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	body := ask(session, id, "[[echo <b>“中文”</b> & \u2028 \u0000 \\ / 🙂 é]]")
	message := func(r reply) string {
		var rec struct{ Message json.RawMessage }
		r.into(&rec)
		return string(rec.Message)
	}
	first := message(d.chat(body).wants(200))
	for _, prefer := range []string{"wait=0", "wait=5", "respond-async"} {
		r := d.chat(body, "Prefer", prefer).wants(200).has("X-Idempotent-Replayed", "true", "Idempotent-Replayed", "true", "X-Idempotent-Joined", "", "X-Attempt", "1")
		if got := message(r); got != first {
			t.Errorf("message %s, want %s", got, first)
		}
		if !r.record().FromCache {
			t.Error("fromCache is false")
		}
	}
	if got := message(d.get(statusPath(session, id)).wants(200)); got != first {
		t.Errorf("status: message %s, want %s", got, first)
	}

	f := d.stream("/api/chat", body)
	hasHeaders(t, f.res.Header, "X-Idempotent-Replayed", "true", "Idempotent-Replayed", "true")
	list := f.rest()
	var end chat.Record
	only(t, list, "end").into(t, &end)
	var raw struct{ Message json.RawMessage }
	only(t, list, "end").into(t, &raw)
	if got := joined(t, list); got != end.Content || string(raw.Message) != first || !end.FromCache {
		t.Errorf("stream %q, end %+v", got, end)
	}
	if n := d.demo.Calls(); n != 1 {
		t.Errorf("%d calls of the model", n)
	}
}

// F15: the refusal names the fields that differ.
func TestAnIDThatWasUsedForSomethingElseIsRefused(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	const secret = "[[echo a well kept secret]]"
	same := func(more ...any) doc { return ask(session, id, secret, more...) }
	d.chat(same("params", doc{"seed": 1})).wants(200)
	for _, c := range []struct {
		body   doc
		fields []string
	}{
		{ask(session, id, "other words", "params", doc{"seed": 1}), []string{"content"}},
		{same("params", doc{"seed": 2}), []string{"params"}},
		{same(), []string{"params"}},
		{same("model", "demo", "params", doc{"seed": 1}), []string{"model"}},
		{same("model", "no such model", "params", doc{"seed": 1}), []string{"model"}},
		{ask(session, id, secret, "kind", "edit", "parentId", session+".1", "params", doc{"seed": 1}), []string{"kind", "parentId"}},
		{ask(session, id, "", "kind", "continue", "parentId", session+".2"), []string{"kind", "content", "parentId", "params"}},
	} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			r := d.chat(c.body, "Accept", accept)
			p := r.has("X-Request-Id", id, "X-Attempt", "1").refused(422, "key_reused")
			if !slices.Equal(p.Fields, c.fields) || p.Retry != chat.RetryNewID || p.RequestID != id {
				t.Errorf("%v: %+v", c.fields, p)
			}
			for _, name := range c.fields {
				if !strings.Contains(p.Detail, name) {
					t.Errorf("detail %q does not name %s", p.Detail, name)
				}
			}
			if strings.Contains(string(r.body), "secret") {
				t.Errorf("the refusal reveals the text: %s", r.body)
			}
		}
	}

	// Also while the answer is on its way: the fingerprint comes before the state.
	session, id = chat.NewID(), chat.NewID()
	d.tapped(session, id)
	d.chat(ask(session, id, "Other.", "model", "tap")).refused(422, "key_reused")
	// And after the conversation is gone, gone comes first: there is nothing to compare with.
	d.call("DELETE", "/api/conversations/"+session, nil).wants(200)
	d.chat(ask(session, id, "Other.", "model", "tap")).refused(410, "conversation_gone")
}

func TestTheSameIDInAnotherConversationIsAnotherIntent(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	_, id, rec := d.answered("[[echo first]]")
	other := d.chat(ask(chat.NewID(), id, "[[echo second]]")).wants(200).record()
	if rec.Content != "first" || other.Content != "second" {
		t.Errorf("%q and %q", rec.Content, other.Content)
	}
}

func TestADeletedConversationTakesNoQuestions(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	d.call("DELETE", "/api/conversations/"+session, nil).wants(200)
	for _, accept := range []string{"application/json", "text/event-stream"} {
		for _, which := range []string{id, chat.NewID()} {
			if p := d.chat(ask(session, which, "[[echo yes]]"), "Accept", accept).refused(410, "conversation_gone"); p.Retry != chat.RetryNever {
				t.Errorf("%+v", p)
			}
		}
	}
	for _, path := range []string{statusPath(session, id), streamPath(session, id), receiptPath(session, id), "/api/conversations/" + session, "/api/conversations/" + session + "/export"} {
		d.get(path).refused(410, "conversation_gone")
	}
	d.post("/api/chat/stop/"+id, doc{"sessionId": session}).refused(410, "conversation_gone")
	d.post("/api/chat/retry/"+id, doc{"sessionId": session, "attempt": 1}).refused(410, "conversation_gone")
}

// F15: what is too old to be known is not new.
func TestAnIDOlderThanTheMemoryOfTheServerIsNeverRun(t *testing.T) {
	t.Parallel()
	first := openDoor(t)
	at := time.Now().Add(-time.Minute)
	stamped := func(at time.Time) string {
		id := ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy())
		return id.String()
	}
	session, id := "room-4711", stamped(at)
	first.chat(ask(session, id, "[[echo yes]]")).wants(200)
	first.call("DELETE", "/api/conversations/"+session, nil).wants(200)
	first.drain()
	ctx, later := context.Background(), time.Now().Add(time.Hour)
	for _, purge := range []func(context.Context, time.Time) (bool, error){first.db.PurgeConversations, first.db.ForgetTombstones} {
		for more := true; more; {
			var err error
			if more, err = purge(ctx, later); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := first.db.Close(); err != nil {
		t.Fatal(err)
	}

	d := openDoor(t, func(s *setup) { s.file = first.file })
	for _, accept := range []string{"application/json", "text/event-stream"} {
		for _, old := range []string{id, stamped(at.Add(-time.Hour)), strings.ToLower(id)} {
			if p := d.chat(ask(chat.NewID(), old, "[[echo yes]]"), "Accept", accept).refused(412, "key_expired"); p.Retry != chat.RetryNewID {
				t.Errorf("%+v", p)
			}
		}
	}
	if n := d.demo.Calls(); n != 0 {
		t.Errorf("%d calls of the model", n)
	}
	d.chat(ask(chat.NewID(), stamped(at.Add(time.Second)), "[[echo yes]]")).wants(200)
	d.chat(ask(chat.NewID(), "order-4711", "[[echo yes]]")).wants(200) // it carries no time
}

func TestAnIDFromTheFutureIsRefusedWithTheTime(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	ahead := func(by time.Duration) string {
		return ulid.MustNew(ulid.Timestamp(time.Now().Add(by)), ulid.DefaultEntropy()).String()
	}
	for _, accept := range []string{"application/json", "text/event-stream"} {
		r := d.chat(ask(chat.NewID(), ahead(11*time.Minute), "[[echo yes]]"), "Accept", accept)
		if p := r.refused(400, "key_from_future"); p.Retry != chat.RetryNewID {
			t.Errorf("%+v", p)
		}
		date, err := http.ParseTime(r.header.Get("Date"))
		if err != nil || time.Since(date).Abs() > time.Minute {
			t.Errorf("Date %q", r.header.Get("Date"))
		}
	}
	d.chat(ask(chat.NewID(), ahead(9*time.Minute), "[[echo yes]]")).wants(200)
}

func TestAFailureThatAPersonMustDecideIsReplayed(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for _, c := range []struct {
		err    error
		status int
		code   string
		detail string
	}{
		{errLost, 502, "line_lost", "The line was lost."},
		{errDenied, 422, "provider_refused", "Denied."}, // never the provider's own 401
	} {
		session, id := chat.NewID(), chat.NewID()
		body := ask(session, id, "Pour.", "model", "tap")
		d.tap.pour(id, 1, "Half of an 答", c.err)
		first := d.chat(body)
		p := first.has("X-Request-Id", id, "X-Attempt", "1", "X-Idempotent-Replayed", "").refused(c.status, c.code)
		if p.State != chat.StateFailed || p.Retry != chat.RetryExplicit || p.RequestID != id || p.Detail != c.detail || p.Partial != len("Half of an 答") || p.Outcome == "" {
			t.Errorf("%+v", p)
		}
		again := d.chat(body).wants(c.status).has("X-Idempotent-Replayed", "true", "Idempotent-Replayed", "true", "X-Attempt", "1", "X-Request-Id", id)
		if string(again.body) != string(first.body) {
			t.Errorf("replayed %s, want %s", again.body, first.body)
		}
		f := d.stream("/api/chat", body)
		hasHeaders(t, f.res.Header, "X-Idempotent-Replayed", "true", "Idempotent-Replayed", "true")
		list := f.rest()
		if got := joined(t, list); got != "Half of an 答" {
			t.Errorf("partial text %q", got)
		}
		if last := list[len(list)-1]; last.name != "error" || last.data+"\n" != string(first.body) {
			t.Errorf("last event %+v, want %s", last, first.body)
		}
		rec := d.get(statusPath(session, id)).wants(200).record()
		if rec.Status != chat.StatusFailed || rec.Error == nil || rec.Error.Code != c.code || rec.Content != "Half of an 答" || rec.Message != nil {
			t.Errorf("record %+v", rec)
		}
	}
	if n := d.tap.asked(); n != 2 {
		t.Errorf("%d calls of the model", n)
	}
}

func TestAFailureThatMayRestartIsRestartedByARepeat(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	body := ask(session, id, "Pour.", "model", "tap")
	d.tap.pour(id, 1, errBusyForLong)
	if p := d.chat(body).refused(503, "provider_busy"); p.Retry != chat.RetryAuto || p.State != chat.StateFailed {
		t.Errorf("%+v", p)
	}
	// Of many repeats one starts it, and the others join.
	const many = 12
	replies := make([]reply, many)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() { replies[i] = d.chat(body, "Prefer", "wait=30") })
	}
	d.tap.pour(id, 2, "Now.", chat.FinishStop)
	wg.Wait()
	for _, r := range replies {
		if rec := r.wants(200).has("X-Attempt", "2").record(); rec.Content != "Now." || rec.Attempt != 2 {
			t.Errorf("%+v", rec)
		}
	}
	if n := d.tap.asked(); n != 2 {
		t.Errorf("%d calls of the model", n)
	}
	if rc := d.receipt(session, id); rc.decisions()[chat.DecisionRestarted] != 1 {
		t.Errorf("arrivals %+v", rc.Arrivals)
	}

	// A restart waits like a first call, and streams like one.
	session, id = chat.NewID(), chat.NewID()
	body = ask(session, id, "Pour.", "model", "tap")
	d.tap.pour(id, 1, errBusyForLong)
	d.chat(body).wants(503)
	d.tap.pour(id, 2, errBusyForLong)
	d.chat(body).wants(503).has("X-Attempt", "2", "X-Idempotent-Replayed", "")
	d.tap.pour(id, 3, "Third time lucky.", chat.FinishStop)
	list := d.stream("/api/chat", body).rest()
	if got := joined(t, list); got != "Third time lucky." {
		t.Errorf("%q in %+v", got, list)
	}
	only(t, list, "end")
}

func TestWhatIsRefusedLeavesTheIDUnused(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(s *setup) { s.engine.Queue = 2; s.engine.Models[1].Concurrency = 1 })
	session, id := chat.NewID(), chat.NewID()
	for i := range 3 {
		waits := chat.NewID()
		d.chat(ask(session, waits, fmt.Sprint(i), "model", "tap"), "Prefer", "wait=0").wants(202)
		if i == 0 {
			d.generating(session, waits) // it has left the queue
		}
	}
	r := d.chat(ask(session, id, "[[echo yes]]")).has("Retry-After", "2")
	if p := r.refused(503, "overloaded"); p.Retry != chat.RetrySameID || p.State != "" || !strings.Contains(p.Detail, "limits.queue") {
		t.Errorf("%+v", p)
	}
	d.get(statusPath(session, id)).refused(404, "not_found")
	d.call("DELETE", "/api/conversations/"+session, nil).wants(200)
	d.chat(ask(chat.NewID(), id, "[[echo yes]]")).wants(200)
}

func TestRepeatsAreFreeOfTheRateLimit(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(s *setup) { s.engine.PerUserPerMinute = 1 })
	session, id, _ := d.answered("[[echo yes]]")
	next := chat.NewID()
	r := d.chat(ask(session, next, "[[echo no]]")).has("Retry-After", "60")
	if p := r.refused(429, "rate_limited"); p.Retry != chat.RetrySameID || !strings.Contains(p.Detail, "limits.per_user_per_minute") {
		t.Errorf("%+v", p)
	}
	d.get(statusPath(session, next)).refused(404, "not_found")
	for range 10 {
		d.chat(ask(session, id, "[[echo yes]]")).wants(200).has("X-Idempotent-Replayed", "true")
	}
	d.chat(ask(session, id, "[[echo no]]")).refused(422, "key_reused")
}

func TestAClientThatHangsUpStopsNothingAndIsOnRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id := chat.NewID(), chat.NewID()
		d.tapped(session, id)
		ctx, hangUp := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, "POST", d.url+"/api/chat", strings.NewReader(mustJSON(ask(session, id, "Pour.", "model", "tap"))))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Prefer", "wait=60")
			_, err := d.client.Do(req)
			gone <- err
		}()
		synctest.Wait()
		onRecord := func(when string) {
			rc := d.receipt(session, id)
			if len(rc.Arrivals) != 2 || rc.Arrivals[1].Decision != chat.DecisionJoined || rc.Arrivals[1].Status != nil {
				t.Errorf("%s: arrivals %s", when, mustJSON(rc.Arrivals))
			}
		}
		onRecord("while it waits")
		hangUp()
		if err := <-gone; err == nil {
			t.Error("it was answered")
		}
		synctest.Wait() // the server has noticed
		d.tap.pour(id, 1, "Still here.", chat.FinishStop)
		if rec := d.settled(session, id); rec.Content != "Still here." {
			t.Errorf("%+v", rec)
		}
		onRecord("in the end")
	})
}

func TestAWaitingRepeatIsOnRecordOnceAndWithItsStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id := chat.NewID(), chat.NewID()
		d.tapped(session, id)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { d.chat(ask(session, id, "Pour.", "model", "tap"), "Prefer", "wait=30").wants(200) })
		}
		synctest.Wait()
		before := d.receipt(session, id)
		time.Sleep(10 * time.Second)
		d.tap.pour(id, 1, "Yes.", chat.FinishStop)
		wg.Wait()
		after := d.receipt(session, id)
		if len(before.Arrivals) != 4 || len(after.Arrivals) != 4 {
			t.Fatalf("%d arrivals, then %d, want 4", len(before.Arrivals), len(after.Arrivals))
		}
		for i := range 4 {
			b, a := before.Arrivals[i], after.Arrivals[i]
			if !a.At.Equal(b.At) || a.Decision != b.Decision || a.Status == nil || *a.Status != []int{202, 200, 200, 200}[i] || (i > 0 && b.Status != nil) {
				t.Errorf("arrival %d: %+v, then %+v", i, b, a)
			}
		}
	})
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// A repeat may be answered from memory: with the same bytes and headers, under the
// same rules.
func TestAReplayFromMemoryIsAReplay(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	first := d.chat(ask(session, id, "[[echo yes]]")).wants(200) // from the database
	for range 2 {
		again := d.chat(ask(session, id, "[[echo yes]]")).wants(200)
		if !bytes.Equal(first.body, again.body) {
			t.Errorf("got %s, want %s", again.body, first.body)
		}
		for _, r := range []reply{first, again} {
			r.has("X-Idempotent-Replayed", "true", "Idempotent-Replayed", "true", "X-Request-Id", id, "X-Attempt", "1",
				"Content-Type", "application/json; charset=utf-8", "Cache-Control", "no-store")
		}
	}
	d.chat(ask(session, id, "[[echo no]]")).refused(422, "key_reused")
	if n := len(d.receipt(session, id).Arrivals); n != 5 {
		t.Errorf("%d arrivals, want 5", n)
	}
	d.call("DELETE", "/api/conversations/"+session, nil).wants(200)
	d.chat(ask(session, id, "[[echo yes]]")).refused(410, "conversation_gone")
	d.post("/api/conversations/"+session+"/restore", nil).wants(200)
	if again := d.chat(ask(session, id, "[[echo yes]]")).wants(200); !bytes.Equal(first.body, again.body) {
		t.Errorf("after an undo: %s", again.body)
	}
}
