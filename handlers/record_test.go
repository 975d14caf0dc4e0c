package handlers_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
)

// A receiptDoc is a receipt as clients read it.
type receiptDoc struct {
	RequestID, SessionID string
	State                chat.State
	Status               chat.Status
	Arrivals             []arrivalRow
	Transitions          []struct {
		From, To      chat.State
		Attempt       int64
		Actor, Reason string
		At            time.Time
	}
	Attempts []struct {
		N                                              int64
		Reason, Model, Code                            string
		Outcome                                        chat.Outcome
		StartedAt, DispatchedAt, FirstTokenAt, EndedAt *time.Time
		Usage                                          *chat.Usage
	}
	Snapshot           *string
	Decisions, Effects []any
	Ledger             []struct {
		Kind     string
		Micros   int64
		Currency string
		Attempt  int64
	}
	CallsSaved int
	MoneySaved chat.Money
	Sentence   string
}

type arrivalRow struct {
	At       time.Time
	Source   chat.Source
	Decision chat.Decision
	Status   *int
}

func (d *door) receipt(session, id string) (rc receiptDoc) {
	d.t.Helper()
	d.get(receiptPath(session, id)).wants(200).has("X-Request-Id", id, "X-Attempt", "*").into(&rc)
	return rc
}

func (rc receiptDoc) decisions() map[chat.Decision]int {
	n := map[chat.Decision]int{}
	for _, a := range rc.Arrivals {
		n[a.Decision]++
	}
	return n
}

func TestAReceiptCountsEveryArrivalUpToTheMomentItIsRead(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, first := d.answered("[[echo yes]]")
	for i := range 20 {
		d.chat(ask(session, id, "[[echo yes]]")).wants(200)
		if rc := d.receipt(session, id); len(rc.Arrivals) != i+2 || rc.CallsSaved != i+1 {
			t.Fatalf("after %d arrivals the receipt has %d and saved %d", i+2, len(rc.Arrivals), rc.CallsSaved)
		}
	}
	d.chat(ask(session, id, "other")).wants(422)
	d.stream("/api/chat", ask(session, id, "[[echo yes]]"), "Sec-Fetch-Site", "same-origin").rest()
	rc := d.receipt(session, id)
	if n := rc.decisions(); n[chat.DecisionFirst] != 1 || n[chat.DecisionReplayed] != 21 || n[chat.DecisionConflict] != 1 || len(rc.Arrivals) != 23 {
		t.Errorf("arrivals %v", n)
	}
	for i, a := range rc.Arrivals {
		want, source := 200, chat.SourceAPI
		switch i {
		case 21:
			want = 422
		case 22:
			source = chat.SourceWeb
		}
		if a.Status == nil || *a.Status != want || a.Source != source || a.At.IsZero() {
			t.Errorf("arrival %d: %+v, want %d by %s", i, a, want, source)
		}
	}
	if rc.CallsSaved != 21 || rc.MoneySaved.Micros != 21*first.Cost.Micros || rc.MoneySaved.Currency != "USD" ||
		rc.Snapshot == nil || len(*rc.Snapshot) != hex.EncodedLen(sha256.Size) {
		t.Errorf("%+v", rc)
	}
	if len(rc.Ledger) != 1 || rc.Ledger[0].Kind != "charge" || rc.Ledger[0].Micros != first.Cost.Micros || rc.Ledger[0].Currency != "USD" {
		t.Errorf("ledger %+v", rc.Ledger)
	}
	var path []string
	for _, tr := range rc.Transitions {
		path = append(path, fmt.Sprintf("%s>%s %d", tr.From, tr.To, tr.Attempt))
		if tr.Actor == "" || tr.Reason == "" || tr.At.IsZero() {
			t.Errorf("transition %+v", tr)
		}
	}
	if got, want := strings.Join(path, ", "), "new>pending 0, pending>generating 1, generating>acknowledged 1, acknowledged>committed 1"; got != want {
		t.Errorf("transitions %s, want %s", got, want)
	}
	if len(rc.Attempts) != 1 {
		t.Fatalf("attempts %+v", rc.Attempts)
	}
	if a := rc.Attempts[0]; a.N != 1 || a.Outcome != chat.OutcomeOK || a.Model != "demo" || a.Usage == nil ||
		a.StartedAt == nil || a.DispatchedAt == nil || a.FirstTokenAt == nil || a.EndedAt == nil {
		t.Errorf("attempt %+v", a)
	}
	if rc.Decisions == nil || rc.Effects == nil {
		t.Error("decisions and effects are null")
	}
	if want := "This question arrived 22 times and was accepted once; the model was called once, one answer is in the history, it was billed once, and 21 repeats were absorbed."; rc.Sentence != want {
		t.Errorf("sentence %q, want %q", rc.Sentence, want)
	}
}

func TestAReceiptTellsOfEveryState(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	d.tapped(session, id)
	waits := chat.NewID() // behind it
	d.chat(ask(session, waits, "Next.", "model", "tap"), "Prefer", "wait=0").wants(202)
	if rc := d.receipt(session, waits); !strings.Contains(rc.Sentence, "the model was not called so far, and its answer is still to come") || rc.Snapshot != nil {
		t.Errorf("%q", rc.Sentence)
	}
	d.post("/api/chat/stop/"+waits, doc{"sessionId": session}).wants(200)
	if rc := d.receipt(session, waits); !strings.Contains(rc.Sentence, "the model was not called, and it ended as failed: stopped") {
		t.Errorf("%q", rc.Sentence)
	}
	d.generating(session, id)
	if rc := d.receipt(session, id); !strings.Contains(rc.Sentence, "arrived once") || !strings.Contains(rc.Sentence, "called once so far") {
		t.Errorf("%q", rc.Sentence)
	}
	d.tap.pour(id, 1, "Half.", errLost)
	d.settled(session, id)
	rc := d.receipt(session, id)
	if !strings.Contains(rc.Sentence, "(what came of one call nobody can know)") {
		t.Errorf("the sentence hides that the outcome is unknown: %q", rc.Sentence)
	}
	if !strings.Contains(rc.Sentence, "ended as failed: line_lost") || len(rc.Ledger) != 1 || rc.Ledger[0].Kind != "waste" || rc.Ledger[0].Micros == 0 || rc.MoneySaved.Micros != 0 {
		t.Errorf("%+v", rc)
	}
	if a := rc.Attempts[0]; a.Outcome != chat.OutcomeUnknown || a.Code != "line_lost" {
		t.Errorf("%+v", a)
	}
}

func TestStatusIsTheRecordInEveryState(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	d.get(statusPath(session, id)).refused(404, "not_found")
	d.tapped(session, id)
	d.generating(session, id)
	if rec := d.get(statusPath(session, id)).wants(200).has("X-Request-Id", id, "X-Attempt", "1").record(); rec.State != chat.StateGenerating || rec.Status != chat.StatusProcessing || !rec.CompletedAt.IsZero() {
		t.Errorf("%+v", rec)
	}
	d.tap.pour(id, 1, "Done.", chat.FinishLength)
	if rec := d.settled(session, id); rec.Status != chat.StatusCompleted || rec.Message.Finish != chat.FinishLength || rec.FromCache {
		t.Errorf("%+v", rec)
	}
	d.get(statusPath(strings.ToLower(session), strings.ToLower(id))).wants(200)
	d.get("/api/chat/status/"+id).refused(400, "session_invalid")
	d.get("/api/chat/status/x?sessionId="+session).refused(400, "key_invalid")
}

func TestWhatIsNotThereAndWhatNeverWasAnswerAlike(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	strip := func(r reply) string { return fmt.Sprint(r.status, string(r.body)) }
	for _, path := range []func(string, string) string{statusPath, streamPath, receiptPath} {
		want := strip(d.get(path(chat.NewID(), chat.NewID())).wants(404))
		for _, other := range []string{path(session, chat.NewID()), path(chat.NewID(), id)} {
			if got := strip(d.get(other)); got != want {
				t.Errorf("%s: %s, want %s", other, got, want)
			}
		}
	}
	for _, verb := range []string{"stop", "retry"} {
		for _, in := range []string{session, chat.NewID()} {
			d.post("/api/chat/"+verb+"/"+chat.NewID(), doc{"sessionId": in, "attempt": 1}).refused(404, "not_found")
		}
	}
}

func TestStopEndsAnAnswerWithWhatItHas(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	d.tapped(session, id)
	f := d.stream(streamPath(session, id), nil)
	d.tap.pour(id, 1, "So far.")
	f.texts("So far.")
	stop := func(body any) reply { return d.post("/api/chat/stop/"+id, body) }
	// Meant for another attempt, it does nothing.
	if rec := stop(doc{"sessionId": session, "attempt": 7}).wants(200).record(); rec.State != chat.StateGenerating {
		t.Errorf("%+v", rec)
	}
	rec := stop(doc{"sessionId": session, "attempt": 1}).wants(200).has("X-Request-Id", id, "X-Attempt", "1").record()
	if rec.Status != chat.StatusCompleted || rec.Content != "So far." || rec.Message.Finish != chat.FinishStopped || !rec.Usage.Estimated || rec.Cost == nil {
		t.Errorf("%+v", rec)
	}
	var end chat.Record
	only(t, f.rest(), "end").into(t, &end)
	if end.Content != "So far." {
		t.Errorf("%+v", end)
	}
	for range 3 { // from then on nothing changes
		if again := stop(doc{"sessionId": session}).wants(200).record(); mustJSON(again.Message) != mustJSON(rec.Message) {
			t.Errorf("%+v", again)
		}
	}
	stop(doc{"sessionId": session, "attempt": "1"}).refused(400, "bad_request")
	stop(doc{"sessionId": session, "attempts": 1}).refused(400, "bad_request")
	stop(doc{}).refused(400, "session_invalid")
}

func TestStopBeforeThereIsTextIsAFailureThatMayBeAskedAgain(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	body := ask(session, id, "Pour.", "model", "tap")
	d.tapped(session, id)
	d.generating(session, id)
	rec := d.post("/api/chat/stop/"+id, doc{"sessionId": session}).wants(200).record()
	if rec.Status != chat.StatusFailed || rec.Error.Code != "stopped" || rec.Error.Retry != chat.RetryExplicit || rec.Error.State != chat.StateFailed {
		t.Errorf("%+v", rec)
	}
	if p := d.chat(body).has("X-Idempotent-Replayed", "true").refused(422, "stopped"); p.RequestID != id {
		t.Errorf("%+v", p)
	}
	d.tap.pour(id, 2, "Now.", chat.FinishStop)
	rec = d.post("/api/chat/retry/"+id, doc{"sessionId": session, "attempt": 1}, "Prefer", "wait=30").wants(200).record()
	if rec.Content != "Now." || rec.Attempt != 2 {
		t.Errorf("%+v", rec)
	}
}

func TestARetryByAPersonStartsOnce(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	d.tap.pour(id, 1, errLost)
	d.chat(ask(session, id, "Pour.", "model", "tap")).wants(502)
	path := "/api/chat/retry/" + id

	d.post(path, doc{"sessionId": session}).refused(400, "bad_request")
	d.post(path, doc{"sessionId": session, "attempt": nil}).refused(400, "bad_request")
	d.post(path, doc{"sessionId": session, "attempt": 1, "model": "gpt-0"}).refused(422, "model_unknown")
	// An attempt that nobody saw fail starts nothing.
	d.post(path, doc{"sessionId": session, "attempt": 0}).has("X-Idempotent-Replayed", "true").refused(502, "line_lost")
	d.post(path, doc{"sessionId": session, "attempt": 2}).has("X-Idempotent-Replayed", "true").refused(502, "line_lost")

	const tabs = 8
	replies := make([]reply, tabs)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() { replies[i] = d.post(path, doc{"sessionId": session, "attempt": 1}) })
	}
	wg.Wait()
	for _, r := range replies {
		r.wants(202).has("Location", statusPath(session, id), "Retry-After", "*")
	}
	d.tap.pour(id, 2, "Once.", chat.FinishStop)
	if rec := d.settled(session, id); rec.Attempt != 2 || rec.Content != "Once." {
		t.Errorf("%+v", rec)
	}
	if n := d.receipt(session, id).decisions(); n[chat.DecisionRestarted] != 1 || n[chat.DecisionJoined] != tabs-1 {
		t.Errorf("arrivals %v", n)
	}
	if rec := d.post(path, doc{"sessionId": session, "attempt": 2}).wants(200).has("X-Idempotent-Replayed", "true").record(); !rec.FromCache {
		t.Errorf("%+v", rec)
	}
	if n := d.tap.asked(); n != 2 {
		t.Errorf("%d calls of the model", n)
	}
}

func TestARetryMayNameAnotherModel(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	body := ask(session, id, "[[echo from demo]]", "model", "tap")
	d.tap.pour(id, 1, errDenied)
	d.chat(body).wants(422)
	rec := d.post("/api/chat/retry/"+id, doc{"sessionId": session, "attempt": 1, "model": "demo"}, "Prefer", "wait=30").wants(200).record()
	if rec.Model != "demo" || rec.Content != "from demo" {
		t.Errorf("%+v", rec)
	}
	if rc := d.receipt(session, id); len(rc.Attempts) != 2 || rc.Attempts[0].Model != "tap" || rc.Attempts[1].Model != "demo" {
		t.Errorf("%+v", rc.Attempts)
	}
	d.chat(body).wants(200).has("X-Idempotent-Replayed", "true") // the intent is as it was sent
}

func TestKindsHangWhereTheySay(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, _, first := d.answered("[[echo one]]")
	question, answer := session+".1", session+".2"
	sent := func(content string, more ...any) chat.Record {
		t.Helper()
		return d.chat(ask(session, chat.NewID(), content, more...)).wants(200).record()
	}
	if first.Message.ID != answer || first.Message.ParentID != question {
		t.Fatalf("%+v", first.Message)
	}
	again := sent("", "kind", "regenerate", "parentId", question)
	more := sent("", "kind", "continue", "parentId", again.Message.ID)
	edit := sent("[[echo two]]", "kind", "edit", "parentId", question)
	if again.Message.ParentID != question || more.Message.ParentID != again.Message.ID || edit.Content != "two" {
		t.Errorf("%+v, %+v, %+v", again.Message, more.Message, edit.Message)
	}
	var th threadDoc
	d.get("/api/conversations/" + session).wants(200).into(&th)
	if len(th.Messages) != 2 || th.Messages[0].Sibling != 2 || len(th.Messages[0].Siblings) != 2 || th.Messages[0].ParentID != "" {
		t.Errorf("%+v", th.Messages)
	}
	d.chat(ask(session, chat.NewID(), "", "kind", "continue", "parentId", question)).refused(422, "parent_not_found")
	d.chat(ask(session, chat.NewID(), "", "kind", "regenerate", "parentId", session+".99")).refused(422, "parent_not_found")
	d.chat(ask(session, chat.NewID(), "", "kind", "regenerate", "parentId", "another.1")).refused(422, "parent_not_found")
}

func TestTimesAreOfOneForm(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				walk(path+"."+k, x)
				if strings.HasSuffix(k, "At") || k == "at" {
					if s, ok := x.(string); ok {
						if at, err := time.Parse(chat.StampFormat, s); err != nil || time.Since(at).Abs() > time.Hour {
							t.Errorf("%s.%s: %q: %v", path, k, s, err)
						}
					} else if x != nil {
						t.Errorf("%s.%s: %v", path, k, x)
					}
				}
			}
		case []any:
			for i, x := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), x)
			}
		}
	}
	for _, path := range []string{statusPath(session, id), receiptPath(session, id), "/api/conversations", "/api/conversations/" + session} {
		var v any
		if err := json.Unmarshal(d.get(path).wants(200).body, &v); err != nil {
			t.Fatal(err)
		}
		walk(path, v)
	}
}

func TestAStopIsHeardWithinASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id := chat.NewID(), chat.NewID()
		d.tapped(session, id)
		synctest.Wait()
		d.tap.pour(id, 1, "Text.")
		synctest.Wait()
		start := time.Now()
		if rec := d.post("/api/chat/stop/"+id, doc{"sessionId": session}).wants(200).record(); rec.Message == nil || time.Since(start) > time.Second {
			t.Errorf("%+v after %s", rec, time.Since(start))
		}
		if _, err := d.db.Find(t.Context(), chat.Key{UserID: db.LocalUser, SessionID: session, RequestID: id}); err != nil {
			t.Fatal(err)
		}
	})
}
