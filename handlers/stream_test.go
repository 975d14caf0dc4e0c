package handlers_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/handlers"
	"semel/llm"
	"semel/views"
)

// pieces is an answer in letters of every length.
var pieces = []string{"A", " line\n", "é", "中文", "🙂", "\u2028", "\"\\", " <b>", "\r\n", "data: x\n\n", "end."}

func TestAnAnswerCutAnywhereIsTheSameAnswer(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	d.tapped(session, id)
	whole := strings.Join(pieces, "")
	first := d.stream(streamPath(session, id), nil)
	// Whenever something came, another viewer goes on from there, as a browser does
	// and as a page does.
	type cut struct {
		id, before string
		f          *feed
	}
	var cuts []cut
	seen := ""
	for i, p := range pieces {
		d.tap.pour(id, 1, p)
		for seen != strings.Join(pieces[:i+1], "") {
			list := first.until("delta")
			ev := list[len(list)-1]
			seen += ev.text(t)
			if want := fmt.Sprintf("1.%d", len(seen)); ev.id != want {
				t.Fatalf("id %q, want %q", ev.id, want)
			}
			cuts = append(cuts,
				cut{ev.id, seen, d.stream(streamPath(session, id), nil, "Last-Event-ID", ev.id)},
				cut{ev.id, seen, d.stream(streamPath(session, id)+"&after="+ev.id, nil)})
		}
	}
	d.tap.pour(id, 1, chat.FinishStop)
	list := first.rest()
	end := only(t, list, "end")
	var rec chat.Record
	end.into(t, &rec)
	if seen+joined(t, list) != whole || rec.Content != whole || end.id != fmt.Sprintf("1.%d", len(whole)+1) {
		t.Errorf("%q, end %+v", seen, end)
	}
	for _, c := range cuts {
		list := c.f.rest()
		if got := c.before + joined(t, list); got != whole || len(named(list, "attempt")) != 0 || only(t, list, "end").data != end.data {
			t.Errorf("cut at %s: %q, want %q: %+v", c.id, got, whole, list)
		}
	}
	// The same once it is over, at every character and at random.
	for at := range whole {
		d.resumes(session, id, whole, fmt.Sprintf("1.%d", at))
	}
	for range 30 {
		d.resumes(session, id, whole, fmt.Sprintf("%d.%d", rand.IntN(3), rand.IntN(2*len(whole))))
	}
}

// resumes checks what a stream of the finished answer whole, of attempt 1, sends
// from a cursor on.
func (d *door) resumes(session, id, whole, cursor string) {
	d.t.Helper()
	attempt, offset := handlers.ParseCursor(cursor)
	if attempt == 1 && offset == len(whole)+1 {
		d.call("GET", streamPath(session, id), nil, "Last-Event-ID", cursor).wants(204)
		return
	}
	list := d.stream(streamPath(session, id), nil, "Last-Event-ID", cursor).rest()
	want, restart := whole, true
	if attempt == 1 && (offset >= len(whole) || utf8.RuneStart(whole[offset])) {
		want, restart = whole[min(offset, len(whole)):], false
	}
	if got := joined(d.t, list); got != want || (len(named(list, "attempt")) == 1) != restart || len(named(list, "end")) != 1 {
		d.t.Errorf("from %s: %q, want %q, restart %t: %+v", cursor, got, want, restart, list)
	}
}

// B17, S66: no proxy may hold back, compress or keep what is streamed; every stream of
// these tests is looked at for the headers that say so.
func TestAStreamSaysWhatItIsAbout(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	d.tap.pour(id, 1, "Yes.", chat.FinishStop)
	f := d.stream("/api/chat", ask(session, id, "Pour.", "model", "tap"))
	hasHeaders(t, f.res.Header, "X-Request-Id", id, "X-Attempt", "*", "X-Idempotent-Joined", "")
	list := f.rest()
	var accepted struct {
		RequestID, SessionID string
		Attempt              int64
	}
	list[0].into(t, &accepted)
	if list[0].name != "accepted" || accepted.RequestID != id || accepted.SessionID != session {
		t.Errorf("first event %+v", list[0])
	}
	var attempt struct {
		Attempt int64
		Reason  string
	}
	only(t, list, "attempt").into(t, &attempt)
	if attempt.Attempt != 1 || attempt.Reason == "" || attempt.Reason == "unknown" {
		t.Errorf("attempt %+v", attempt)
	}
	for _, ev := range list {
		switch ev.name {
		case "accepted", "attempt", "state", "delta", "end":
		default:
			t.Errorf("event %+v", ev)
		}
	}
	if list[len(list)-1].name != "end" {
		t.Errorf("last event %+v", list[len(list)-1])
	}
}

func TestACursorOfAnOlderAttemptStartsOver(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	d.tap.pour(id, 1, "The first try.", errLost)
	d.chat(ask(session, id, "Pour.", "model", "tap")).wants(502)
	d.post("/api/chat/retry/"+id, doc{"sessionId": session, "attempt": 1}).wants(202)
	live := d.stream(streamPath(session, id), nil, "Last-Event-ID", "1.9")
	d.tap.pour(id, 2, "The second.")
	list := live.until("delta")
	var a struct {
		Attempt int64
		Reason  string
	}
	ev := only(t, list, "attempt")
	if ev.into(t, &a); a.Attempt != 2 || a.Reason != "explicit" || ev.id != "2.0" {
		t.Errorf("%+v", ev)
	}
	d.tap.pour(id, 2, chat.FinishStop)
	if got := joined(t, append(list, live.rest()...)); got != "The second." {
		t.Errorf("%q", got)
	}
	for _, cursor := range []string{"1.9", "1.0", "0.0", "1.15"} {
		list := d.stream(streamPath(session, id)+"&after="+cursor, nil).rest()
		if got := joined(t, list); got != "The second." || len(named(list, "attempt")) != 1 {
			t.Errorf("after %s: %+v", cursor, list)
		}
	}
}

func TestAViewerOfAnAttemptIsToldOfTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id := chat.NewID(), chat.NewID()
		f := d.stream("/api/chat", ask(session, id, "Pour.", "model", "tap"))
		list := f.until("attempt")
		d.tap.pour(id, 1, errBusyForNow)
		d.tap.pour(id, 2, "Yes.", chat.FinishStop)
		list = append(list, f.rest()...)
		attempts := named(list, "attempt")
		if len(attempts) != 2 || !strings.Contains(attempts[1].data, `"engine_retry"`) || joined(t, list) != "Yes." {
			t.Errorf("%+v", list)
		}
	})
}

var errBusyForNow = &llm.Error{Outcome: chat.OutcomeDefinite, Transient: true, Status: 503, Code: "provider_busy", Detail: "Busy."}

func TestAnUnusableCursorIsTheBeginning(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	whole := "Über 中文"
	d.tapped(session, id)
	d.tap.pour(id, 1, whole)
	d.stream(streamPath(session, id), nil).texts(whole)
	unusable := []string{
		"", "x", "1", "1.", ".1", "1.x", "-1.2", "1.-2", "1,2", "1.2.3", " 1.2", "+1.2x", "1e0.2", "0x1.2", "99999999999999999999.1",
		"1.99999999999999999999", "1.281474976710656", "2.0", "1.1", "1.7", "1.500",
	}
	live := map[string]*feed{}
	for _, cursor := range unusable {
		live[cursor] = d.stream(streamPath(session, id)+"&after="+url.QueryEscape(cursor), nil)
	}
	for cursor, f := range live {
		list := f.until("delta")
		if got := joined(t, list); got != whole || len(named(list, "attempt")) != 1 {
			t.Errorf("while it runs, after %q: %+v", cursor, list)
		}
		f.close()
	}
	d.tap.pour(id, 1, chat.FinishStop)
	d.settled(session, id)
	for _, cursor := range unusable {
		list := d.stream(streamPath(session, id)+"&after="+url.QueryEscape(cursor), nil).rest()
		want := whole
		if cursor == "1.500" {
			want = "" // beyond the end of what is over
		}
		if got := joined(t, list); got != want || len(named(list, "end")) != 1 {
			t.Errorf("when it is over, after %q: %+v", cursor, list)
		}
	}
	// Of two cursors the header is the newer one.
	list := d.stream(streamPath(session, id)+"&after=1.0", nil, "Last-Event-ID", fmt.Sprintf("1.%d", len(whole))).rest()
	if got := joined(t, list); got != "" {
		t.Errorf("%q", got)
	}
}

func TestS37AReconnectAfterTheEndIsToldToStop(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	end := only(t, d.stream(streamPath(session, id), nil).rest(), "end")
	d.get(streamPath(session, id), "Last-Event-ID", end.id).wants(204)
	d.get(streamPath(session, id) + "&after=" + end.id).wants(204)

	failed := chat.NewID()
	d.tap.pour(failed, 1, "Part.", errLost)
	d.chat(ask(session, failed, "Pour.", "model", "tap")).wants(502)
	last := only(t, d.stream(streamPath(session, failed), nil).rest(), "error")
	d.get(streamPath(session, failed), "Last-Event-ID", last.id).wants(204)
}

// A process that dies takes up to a second of text with it that viewers had. The
// cursor of one of them may look like the end of what is left.
func TestS37AReconnectFromTextThatIsLostHearsTheEnd(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	r := dbtest.Accept(t, d.db, chat.NewID(), "Pour.")
	session, id := r.Key.SessionID, r.Key.RequestID
	r, _, err := d.db.Claim(t.Context(), db.Claim{Request: r, Owner: "gone", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.db.Finish(t.Context(), r, db.Answer{Content: "Par", ToolCalls: "[]", Finish: chat.FinishStopped,
		Outcome: chat.OutcomeStopped, Actor: "recovery:next", Reason: "stopped"})
	if err != nil {
		t.Fatal(err)
	}
	end := only(t, d.stream(streamPath(session, id), nil, "Last-Event-ID", "1.4").rest(), "end")
	if end.id != "1.4" {
		t.Errorf("the end is %s", end.id)
	}
}

func TestAnErrorSaysHowMuchTextIsStored(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	f := d.stream("/api/chat", ask(session, id, "Pour.", "model", "tap"))
	d.tap.pour(id, 1, "中文 half", errLost)
	list := f.rest()
	var p chat.Problem
	last := list[len(list)-1]
	if last.into(t, &p); last.name != "error" || p.Partial != len("中文 half") || p.Code != "line_lost" || p.State != chat.StateFailed || p.Status != 502 {
		t.Errorf("%+v", last)
	}
	if got := joined(t, list); got != "中文 half" {
		t.Errorf("%q", got)
	}
}

func TestBlocksOfHTMLJoinToTheWholeHoweverTheyAreCut(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	// A block so long that growing it is not worth an event each time.
	words := []string{"# Title\n\n", "A *para", "graph*.\n", "\n- one\n", "- two\n\n", "<script>alert(1)</script>\n\n", "```go\n", strings.Repeat("x := 1\n", 2000), "y := 2\n", "```\n", "\nThe end."}
	whole := strings.Join(words, "")
	d.tapped(session, id)
	live := d.stream(streamPath(session, id)+"&as=html", nil)
	text := d.stream(streamPath(session, id), nil)
	seen := ""
	for _, w := range words {
		d.tap.pour(id, 1, w)
		for seen += w; seen != ""; {
			list := text.until("delta")
			seen = strings.TrimPrefix(seen, list[len(list)-1].text(t))
		}
	}
	from := d.stream(streamPath(session, id)+"&as=html&after=1.20", nil)
	d.tap.pour(id, 1, chat.FinishStop)
	for name, f := range map[string]*feed{"live": live, "from a cursor": from, "replayed": nil} {
		if f == nil {
			f = d.stream(streamPath(session, id)+"&as=html", nil)
		}
		list := f.rest()
		if got, want := blocksOf(t, list), views.Markdown(whole); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		var end struct{ HTML, Content string }
		if only(t, list, "end").into(t, &end); end.HTML != views.Markdown(whole) || end.Content != whole {
			t.Errorf("%s: end %+v", name, end)
		}
		if strings.Contains(blocksOf(t, list), "<script") {
			t.Errorf("%s: a script survived", name)
		}
	}

	// What came of a failed answer is all there, too.
	session, id = chat.NewID(), chat.NewID()
	d.tap.pour(id, 1, strings.Repeat("word ", 2000), "the last", errLost)
	list := d.stream("/api/chat?as=html", ask(session, id, "Pour.", "model", "tap")).rest()
	if got, want := blocksOf(t, list), views.Markdown(strings.Repeat("word ", 2000)+"the last"); got != want {
		t.Errorf("the partial text ends with %q", got[max(0, len(got)-40):])
	}
}

// blocksOf joins the blocks as a page has them at the end.
func blocksOf(t *testing.T, list []event) string {
	var blocks []string
	for _, ev := range list {
		switch ev.name {
		case "attempt":
			blocks = nil
		case "delta":
			var b struct {
				Block int
				HTML  string
			}
			ev.into(t, &b)
			if b.Block > len(blocks) {
				t.Fatalf("block %d after %d", b.Block, len(blocks))
			}
			blocks = append(blocks[:b.Block], b.HTML)
		}
	}
	return strings.Join(blocks, "")
}

// B11: a model that reads its prompt for minutes leaves the line alive.
func TestASilentStreamSaysEvery15SecondsThatItIsThere(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id := chat.NewID(), chat.NewID()
		for name, open := range map[string]func() *feed{
			"an answer":  func() *feed { return d.stream("/api/chat", ask(session, id, "Pour.", "model", "tap")) },
			"the events": func() *feed { return d.stream("/api/events", nil) },
		} {
			f := open()
			comments := 0
			start := time.Now()
			for at := start; comments < 4; {
				ev, ok := f.next()
				if !ok {
					t.Fatalf("%s ended", name)
				}
				if ev.comment == "" {
					at = time.Now()
					continue
				}
				if gap := time.Since(at); gap > 15*time.Second || ev.name != "" || ev.data != "" {
					t.Errorf("%s: %+v after %s", name, ev, gap)
				}
				comments++
				at = time.Now()
			}
			f.close()
		}
	})
}

func TestASlowViewerCostsNobodyAnythingAndIsHungUpOn(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id := chat.NewID(), chat.NewID()
		d.tapped(session, id)
		slow, err := d.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(slow, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", streamPath(session, id))
		fast := d.stream(streamPath(session, id), nil)
		start := time.Now()
		piece := strings.Repeat("word ", 1000)
		for i := range 100 {
			d.tap.pour(id, 1, piece)
			fast.texts(piece)
			if took := time.Since(start); took > time.Duration(i+1)*100*time.Millisecond {
				t.Fatalf("piece %d came after %s", i, took)
			}
		}
		d.tap.pour(id, 1, chat.FinishStop)
		only(t, fast.rest(), "end")
		// It has read nothing so far; the server gave up after half a minute.
		time.Sleep(31*time.Second - time.Since(start))
		b, _ := io.ReadAll(slow)
		if strings.Contains(string(b), "event: end") {
			t.Error("the slow viewer got everything after all")
		}
		slow.Close()
	})
}

func TestTwoViewersSeeTheSame(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	const viewers = 6
	var wg sync.WaitGroup
	got := make([][]event, viewers)
	d.tapped(session, id)
	for i := range got {
		f := d.stream(streamPath(session, id), nil)
		wg.Go(func() { got[i] = f.rest() })
	}
	for range 20 {
		d.tap.pour(id, 1, "some words, ")
	}
	d.tap.pour(id, 1, chat.FinishStop)
	wg.Wait()
	for i := range got {
		if joined(t, got[i]) != strings.Repeat("some words, ", 20) || only(t, got[i], "end").data != only(t, got[0], "end").data {
			t.Errorf("viewer %d: %+v", i, got[i])
		}
	}
}

func TestAConnectionIsKeptAfterAStreamThatEnded(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	for i := range 3 {
		reused := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }})
		req, err := http.NewRequestWithContext(ctx, "GET", d.url+streamPath(session, id), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := d.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.ProtoMinor != 1 || res.Close || !reused {
			t.Errorf("stream %d: %s, close %t, reused %t", i, res.Proto, res.Close, reused)
		}
	}
}

func TestAcceptSaysWhetherItIsAStream(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id, _ := d.answered("[[echo yes]]")
	for accept, stream := range map[string]bool{
		"":                                     false,
		"*/*":                                  false,
		"application/json":                     false,
		"text/event-stream":                    true,
		"Text/Event-Stream":                    true,
		"application/json, text/event-stream":  true,
		"text/event-stream;q=0.5, text/html":   true,
		"text/event-stream;q=0, */*":           false,
		"application/json;x=text/event-stream": false,
	} {
		res := d.open("POST", "/api/chat", ask(session, id, "[[echo yes]]"), "Accept", accept)
		if got := strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream"); got != stream || res.StatusCode != 200 {
			t.Errorf("Accept %q: %d %s", accept, res.StatusCode, res.Header.Get("Content-Type"))
		}
		res.Body.Close()
	}
}

func TestThoughtsAreShownButAreNoPartOfTheAnswer(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	f := d.stream("/api/chat", ask(session, id, "Pour.", "model", "tap"))
	d.tap.pour(id, 1, llm.Piece{Reasoning: "Let me "}, llm.Piece{Reasoning: "see."}, "Yes.", chat.FinishStop)
	for _, list := range [][]event{f.rest(), d.stream(streamPath(session, id), nil).rest()} {
		thought := ""
		for _, ev := range named(list, "reasoning") {
			thought += ev.text(t)
		}
		var end chat.Record
		only(t, list, "end").into(t, &end)
		if thought != "Let me see." || joined(t, list) != "Yes." || end.Message.Reasoning != thought || end.Content != "Yes." {
			t.Errorf("%+v", list)
		}
	}
}

// A2: streams are of a request, not of a conversation.
func TestAStreamOfOneQuestionNeverShowsAnother(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, a, b := chat.NewID(), chat.NewID(), chat.NewID()
	d.tapped(session, a)
	d.tapped(session, b) // waits behind a
	f := d.stream(streamPath(session, b), nil)
	d.tap.pour(b, 1, "Answer of b.", chat.FinishStop)
	d.tap.pour(a, 1, "Answer of a.", chat.FinishStop)
	if got := joined(t, f.rest()); got != "Answer of b." {
		t.Errorf("%q", got)
	}
}

func TestABubbleEndsWithItsViewers(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id := chat.NewID(), chat.NewID()
		d.tapped(session, id)
		for range 20 { // viewers and waiting clients that go away leave nothing behind
			d.stream(streamPath(session, id), nil).close()
			d.stream("/api/events", nil).close()
		}
		synctest.Wait()
	})
}

// FuzzCursor: any cursor is answered, and one that can be resumed resumes.
func FuzzCursor(f *testing.F) {
	for _, seed := range []string{"", "1.0", "1.3", "1.4", "1.11", "1.12", "2.0", "0.0", "1.999", "x", "-1.-1", "9223372036854775807.281474976710655", "1.0x1", "１.２"} {
		f.Add(seed)
	}
	d := newDoor(f, nil)
	f.Cleanup(d.handler.Close)
	const whole = "é中🙂\nab" // 12 bytes
	session, id := chat.NewID(), chat.NewID()
	do := func(t testing.TB, method, path, body string, header ...string) reply {
		r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, r)
		return reply{t, w.Code, w.Header(), w.Body.Bytes()}
	}
	do(f, "POST", "/api/chat", mustJSON(ask(session, id, "[[echo "+whole+"]]"))).wants(200)
	f.Fuzz(func(t *testing.T, cursor string) {
		attempt, offset := handlers.ParseCursor(cursor)
		if attempt < 0 || offset < 0 {
			t.Fatalf("%q is %d.%d", cursor, attempt, offset)
		}
		if again, o := handlers.ParseCursor(fmt.Sprintf("%d.%d", attempt, offset)); again != attempt || o != offset {
			t.Fatalf("%d.%d is %d.%d", attempt, offset, again, o)
		}
		for _, r := range []reply{
			do(t, "GET", streamPath(session, id)+"&after="+url.QueryEscape(cursor), ""),
			do(t, "GET", streamPath(session, id), "", "Last-Event-ID", cursor),
		} {
			if attempt == 1 && offset == len(whole)+1 {
				r.wants(204)
				continue
			}
			want := whole
			if attempt == 1 && (offset >= len(whole) || utf8.RuneStart(whole[offset])) {
				want = whole[min(offset, len(whole)):]
			}
			got := r.wants(200).events()
			if joined(t, got) != want || len(named(got, "end")) != 1 {
				t.Fatalf("from %q: %+v, want %q", cursor, got, want)
			}
		}
	})
}

// events are those of a stream that was read as a whole.
func (r reply) events() []event {
	r.t.Helper()
	f := &feed{t: r.t, in: newReader(r.body)}
	return f.rest()
}
