package handlers_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db/dbtest"
)

func TestCloseEndsStreamsWithoutAnEndAndWaitsWithA202(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id := chat.NewID(), chat.NewID()
		body := ask(session, id, "Pour.", "model", "tap")
		var wg sync.WaitGroup
		var first, joinedReply reply
		wg.Go(func() { first = d.chat(body) })
		synctest.Wait()
		wg.Go(func() { joinedReply = d.chat(body, "Prefer", "wait=100") })
		streams := []*feed{d.stream(streamPath(session, id), nil), d.stream("/api/chat", body), d.stream("/api/events", nil)}
		d.tap.pour(id, 1, "Half.")
		streams[0].texts("Half.")
		synctest.Wait()
		start := time.Now()
		d.handler.Close()
		d.handler.Close() // twice is no error
		wg.Wait()
		first.wants(202).has("Location", statusPath(session, id), "Retry-After", "*", "X-Idempotent-Joined", "")
		joinedReply.wants(202).has("Location", statusPath(session, id), "X-Idempotent-Joined", "true")
		for i, f := range streams {
			list := f.rest() // a clean close, or next would fail
			if len(named(list, "end"))+len(named(list, "error")) != 0 {
				t.Errorf("stream %d: %+v", i, list)
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %s", took)
		}
		// The run goes on.
		d.tap.pour(id, 1, " Whole.", chat.FinishStop)
		if rec := d.settled(session, id); rec.Content != "Half. Whole." {
			t.Errorf("%+v", rec)
		}
	})
}

func TestAServerThatStopsTakesNothingNewAndStillTellsWhatItHas(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	failed := chat.NewID()
	d.tap.pour(failed, 1, errBusyForLong)
	d.chat(ask(session, failed, "Pour.", "model", "tap")).wants(503)
	d.get("/readyz").wants(200)
	d.drain()
	d.get("/healthz").wants(200)
	if p := d.get("/readyz").has("Retry-After", "2").refused(503, "not_ready"); !strings.Contains(p.Detail, "stopping") {
		t.Errorf("%+v", p)
	}
	next := chat.NewID()
	if p := d.chat(ask(session, next, "[[echo no]]")).has("Retry-After", "2").refused(503, "shutting_down"); p.Retry != chat.RetrySameID || p.State != "" {
		t.Errorf("%+v", p)
	}
	d.chat(ask(session, failed, "Pour.", "model", "tap")).refused(503, "shutting_down")
	d.get(statusPath(session, next)).refused(404, "not_found")
	d.chat(ask(session, id, "[[echo yes]]")).wants(200).has("X-Idempotent-Replayed", "true")
	d.get(statusPath(session, id)).wants(200)
	only(t, d.stream(streamPath(session, id), nil).rest(), "end")
	d.stream("/api/events", nil).rest() // it says hello and ends
	d.get("/").wants(200)
}

func TestAnAnswerThatIsCutShortByAStopGoesOnInTheNextLife(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	body := ask(session, id, "[[wait 3600000]] hello")
	f := d.stream("/api/chat", body)
	f.until("state")
	d.drain()
	d.handler.Close()
	if list := f.rest(); len(named(list, "end"))+len(named(list, "error")) != 0 {
		t.Errorf("%+v", list)
	}
	if err := d.db.Close(); err != nil {
		t.Fatal(err)
	}
	next := openDoor(t, func(s *setup) { s.file = d.file })
	next.chat(body).wants(202).has("X-Idempotent-Joined", "true")
	next.post("/api/chat/stop/"+id, doc{"sessionId": session}).wants(200)
}

func TestReadinessSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	var ready struct {
		Status   string
		Counters map[string]int64
	}
	d.chat(ask(chat.NewID(), "?", "hello")).wants(400)
	d.chat(ask(chat.NewID(), chat.NewID(), "hello", "model", "gpt-0")).wants(422)
	d.get("/readyz").wants(200).into(&ready)
	if ready.Status != "ready" || ready.Counters["refused_model_unknown"] != 1 {
		t.Errorf("%+v", ready)
	}
	if got := string(d.get("/healthz").wants(200).body); got != `{"status":"ok"}`+"\n" {
		t.Errorf("%s", got)
	}
}

func TestAClockBehindWhatIsStoredIsNotReady(t *testing.T) {
	earlier := openDoor(t)
	earlier.answered("[[echo yes]]")
	earlier.drain()
	if err := earlier.db.Close(); err != nil {
		t.Fatal(err)
	}
	inBubble(t, func(t *testing.T, d *door) { // it is the year 2000 there
		if p := d.get("/readyz").refused(503, "not_ready"); !strings.Contains(p.Detail, "clock") {
			t.Errorf("%+v", p)
		}
		d.get("/healthz").wants(200)
		// A time that cannot be believed refuses no id for lying ahead of it.
		d.chat(ask(chat.NewID(), idA, "[[echo yes]]")).wants(200)
	}, func(s *setup) { s.file = earlier.file })
}

func TestAQuestionWhoseStorageIsOpenIsAskedAgainAndRunOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []dbtest.Mode{dbtest.Stored, dbtest.NotStored} {
		faults := &dbtest.Faults{}
		d := openDoor(t, func(s *setup) { s.faults = faults })
		session, id := chat.NewID(), chat.NewID()
		body := ask(session, id, "[[echo yes]]")
		faults.Arm("COMMIT", 0, mode, dbtest.ErrInjected)
		if p := d.chat(body).has("Retry-After", "2").refused(503, "outcome_open"); p.Retry != chat.RetrySameID || p.State != "" || !strings.Contains(p.Detail, "same id") {
			t.Errorf("%+v", p)
		}
		if rec := d.chat(body, "Prefer", "wait=30").wants(200).record(); rec.Content != "yes" {
			t.Errorf("%+v", rec)
		}
		if n := d.demo.Calls(); n != 1 {
			t.Errorf("%d calls of the model", n)
		}
	}
}
