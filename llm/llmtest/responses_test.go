package llmtest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"semel/chat"
	"semel/llm/llmtest"
)

// A responseEvent is what a test looks at of an event.
type responseEvent struct {
	Type     string
	Sequence int `json:"sequence_number"`
	Delta    string
	Code     string
	Response *response
}

type response struct {
	ID, Status string
	Background bool
	Error      *struct{ Code, Message string }
	Incomplete *struct{ Reason string } `json:"incomplete_details"`
	Output     []struct {
		Type, Status, Name, Arguments string
		CallID                        string `json:"call_id"`
		Content, Summary              []struct{ Text string }
	}
	Usage *struct {
		Input   int64 `json:"input_tokens"`
		Output  int64 `json:"output_tokens"`
		Details struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	}
}

// responseEvents returns the events of a stream that begins with the one numbered
// first.
func responseEvents(t *testing.T, body string, first int) (list []responseEvent) {
	t.Helper()
	for i, e := range events(body) {
		var ev responseEvent
		if err := json.Unmarshal([]byte(e), &ev); err != nil {
			t.Fatal(err)
		}
		if ev.Sequence != first+i || !strings.Contains(body, "event: "+ev.Type+"\ndata: "+e) {
			t.Errorf("event %d: got number %d of %s", first+i, ev.Sequence, ev.Type)
		}
		list = append(list, ev)
	}
	return list
}

// said joins the deltas of one type.
func said(list []responseEvent, event string) (text string) {
	for _, e := range list {
		if e.Type == event {
			text += e.Delta
		}
	}
	return text
}

// background posts a prompt that is to run in the background.
func background(t *testing.T, s *llmtest.Server, stream bool) reply {
	t.Helper()
	return send(t, backgroundPrompt(t, s, stream))
}

func backgroundPrompt(t *testing.T, s *llmtest.Server, stream bool) *http.Request {
	t.Helper()
	r := prompt(t.Context(), t, s, llmtest.Responses, stream)
	body := fmt.Sprintf(`{"model":"m","input":"Hi","background":true,"stream":%v}`, stream)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return r
}

// fetch asks for something of a stored run.
func fetch(t *testing.T, s *llmtest.Server, method, path string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/responses/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, r)
}

// state returns a run as a plain GET shows it.
func state(t *testing.T, s *llmtest.Server, id string) (got response) {
	t.Helper()
	r := fetch(t, s, "GET", id)
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.StatusCode != 200 {
		t.Fatalf("got %d %s, %v", r.StatusCode, r.body, err)
	}
	return got
}

func checkWhole(t *testing.T, got response) {
	t.Helper()
	if got.Status != "completed" || len(got.Output) != 4 || got.Usage == nil || got.Usage.Input != 100 || got.Usage.Details.Cached != 60 || got.Usage.Output != 7 {
		t.Fatalf("got %+v", got)
	}
	if o := got.Output; o[0].Summary[0].Text != "Let me think." || o[1].Content[0].Text != "Once <&> \u2028 一次." || o[1].Status != "completed" ||
		o[2].Name != "sign" || o[2].Arguments != everything.Tools[0].Arguments || o[3].CallID != "x" {
		t.Errorf("got %+v", o)
	}
}

func TestAResponseStreamSaysEverything(t *testing.T) {
	list := responseEvents(t, ask(t, llmtest.Responses, everything, true).body, 0)
	if got := said(list, "response.output_text.delta"); got != "Once <&> \u2028 一次." {
		t.Errorf("got text %q", got)
	}
	if got := said(list, "response.reasoning_summary_text.delta"); got != "Let me think." {
		t.Errorf("got reasoning %q", got)
	}
	if got := said(list, "response.function_call_arguments.delta"); got != everything.Tools[0].Arguments+"{}" {
		t.Errorf("got arguments %q", got)
	}
	count := map[string]int{}
	for _, e := range list {
		count[e.Type]++
	}
	for event, want := range map[string]int{
		"response.created": 1, "response.queued": 0, "response.in_progress": 1, "response.output_item.added": 4, "response.output_item.done": 4,
		"response.content_part.added": 1, "response.content_part.done": 1, "response.output_text.done": 1,
		"response.reasoning_summary_part.added": 1, "response.reasoning_summary_part.done": 1, "response.reasoning_summary_text.done": 1,
		"response.function_call_arguments.done": 2, "response.completed": 1,
	} {
		if count[event] != want {
			t.Errorf("got %d of %s, want %d", count[event], event, want)
		}
	}
	last := list[len(list)-1]
	if list[0].Type != "response.created" || list[0].Response.Status != "in_progress" || last.Type != "response.completed" {
		t.Errorf("got %+v … %+v", list[0], last)
	}
	checkWhole(t, *last.Response)

	var whole response
	if err := json.Unmarshal([]byte(ask(t, llmtest.Responses, everything, false).body), &whole); err != nil {
		t.Fatal(err)
	}
	checkWhole(t, whole)
}

func TestEndsOfAResponseStream(t *testing.T) {
	for name, tt := range map[string]struct {
		script              llmtest.Script
		last, status, cause string
	}{
		"plain":       {llmtest.Script{}, "response.completed", "completed", ""},
		"twice":       {llmtest.Script{DoubleEnd: true}, "response.completed", "completed", ""},
		"no end":      {llmtest.Script{NoDone: true}, "response.output_item.done", "", ""},
		"no status":   {llmtest.Script{NoFinish: true}, "response.completed", "", ""},
		"too long":    {llmtest.Script{Finish: chat.FinishLength}, "response.incomplete", "incomplete", "max_output_tokens"},
		"filtered":    {llmtest.Script{Finish: chat.FinishFiltered}, "response.incomplete", "incomplete", "content_filter"},
		"failed":      {llmtest.Script{ErrorFrame: &llmtest.Failure{}}, "response.failed", "failed", "server_error"},
		"busy":        {llmtest.Script{ErrorFrame: &llmtest.Failure{Status: 429}}, "response.failed", "failed", "rate_limit_exceeded"},
		"flagged":     {llmtest.Script{ErrorFrame: &llmtest.Failure{Status: 400}}, "response.failed", "failed", "invalid_prompt"},
		"error event": {llmtest.Script{ErrorFrame: &llmtest.Failure{Code: "odd"}, ErrorEvent: true}, "error", "", "odd"},
	} {
		list := responseEvents(t, ask(t, llmtest.Responses, tt.script, true).body, 0)
		last := list[len(list)-1]
		status, cause := "", last.Code
		if r := last.Response; r != nil {
			status = r.Status
			if r.Incomplete != nil {
				cause = r.Incomplete.Reason
			}
			if r.Error != nil {
				cause = r.Error.Code
			}
		}
		if last.Type != tt.last || status != tt.status || cause != tt.cause {
			t.Errorf("%s: got %s, status %q, cause %q, want %+v", name, last.Type, status, cause, tt)
		}
		if again := list[len(list)-2].Type == last.Type; again != tt.script.DoubleEnd {
			t.Errorf("%s: got the end twice: %v", name, again)
		}
	}
	if got := ask(t, llmtest.Responses, llmtest.Script{NoUsage: true}, false).body; !strings.Contains(got, `"usage":null`) {
		t.Errorf("got %s, want no usage", got)
	}
}

func TestARunGoesOnWithoutItsLine(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Responses)
	script := everything
	script.Cut, script.CutAt, script.CutAgain = llmtest.CutReset, 2000, 1
	script.Hang, script.HangAfter = llmtest.AfterPieces, 3
	s.Play(script)
	lost := background(t, s, true)
	if lost.err == nil {
		t.Fatal("got a whole stream, want a cut one")
	}
	<-s.Stalled()
	if got := state(t, s, "resp_1"); got.Status != "in_progress" || !got.Background || len(got.Output) != 0 {
		t.Errorf("got %+v, want a run in progress", got)
	}
	s.Release()
	s.Settle()
	checkWhole(t, state(t, s, "resp_1"))

	if again := fetch(t, s, "GET", "resp_1?stream=true"); again.err == nil {
		t.Error("got a whole stream, want a second cut one")
	}
	all := responseEvents(t, fetch(t, s, "GET", "resp_1?stream=true").body, 0)
	if got := said(all, "response.output_text.delta"); got != "Once <&> \u2028 一次." || all[1].Type != "response.queued" || all[0].Response.Status != "queued" {
		t.Errorf("got %q", got)
	}
	for _, after := range []int{0, 7, len(all) - 2, len(all) - 1, len(all) + 5} {
		got := responseEvents(t, fetch(t, s, "GET", fmt.Sprintf("resp_1?stream=true&starting_after=%d", after)).body, after+1)
		if len(got) != max(0, len(all)-after-1) {
			t.Errorf("after %d of %d: got %d events", after, len(all), len(got))
		}
	}
	if s.Calls() != 1 || s.Executed() != 1 || s.Aborted() != 0 {
		t.Errorf("got %d calls, %d executed, %d aborted, want 1, 1, 0", s.Calls(), s.Executed(), s.Aborted())
	}
}

func TestAResumedStreamFollowsALiveRun(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Responses)
	s.Play(llmtest.Script{Text: []string{"one", "two"}, Hang: llmtest.AfterPieces, HangAfter: 1, Cut: llmtest.CutClose, CutAt: 10})
	background(t, s, true)
	<-s.Stalled()
	got := make(chan reply, 1)
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/responses/resp_1?stream=true&starting_after=3", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := newClient().Do(r) // before the run is at its end
	if err != nil {
		t.Fatal(err)
	}
	in, begun := bufio.NewReader(resp.Body), ""
	for !strings.Contains(begun, "one") { // which is there while the run hangs
		l, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		begun += l
	}
	go func() {
		b, err := io.ReadAll(in)
		got <- reply{body: begun + string(b), err: err}
	}()
	s.Release()
	whole := <-got
	resp.Body.Close()
	if text := said(responseEvents(t, whole.body, 4), "response.output_text.delta"); whole.err != nil || text != "onetwo" {
		t.Errorf("got %q, %v", text, whole.err)
	}
}

func TestARunCanBePolledOnly(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Responses)
	for _, script := range []llmtest.Script{{NoResume: true}, {JSON: true, NoResume: true}} {
		s.Play(script)
		background(t, s, true)
		s.Settle()
		id := fmt.Sprintf("resp_%d", s.Calls())
		if got := fetch(t, s, "GET", id+"?stream=true"); got.StatusCode != 400 {
			t.Errorf("got %d %s", got.StatusCode, got.body)
		}
		if got := state(t, s, id); got.Status != "completed" {
			t.Errorf("got %+v", got)
		}
	}

	s.Play(llmtest.Script{Hang: llmtest.AfterPieces, AskFails: 2})
	var got response
	if err := json.Unmarshal([]byte(background(t, s, false).body), &got); err != nil || got.Status == "completed" || got.ID != "resp_3" {
		t.Fatalf("got %+v, %v, want the run at its start", got, err)
	}
	<-s.Stalled()
	s.Release()
	s.Settle()
	for range 2 {
		if got := fetch(t, s, "GET", "resp_3"); got.StatusCode != 503 {
			t.Errorf("got %d, want 503", got.StatusCode)
		}
	}
	if got := state(t, s, "resp_3"); got.Status != "completed" {
		t.Errorf("got %+v", got)
	}
	if got := fetch(t, s, "GET", "resp_3?stream=true"); got.StatusCode != 400 {
		t.Errorf("got %d, want 400: it was not created as a stream", got.StatusCode)
	}
}

func TestARunCanFailEndEarlyOrBeForgotten(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Responses)
	s.Play(
		llmtest.Script{ErrorFrame: &llmtest.Failure{Status: 429}, ErrorAfter: 2},
		llmtest.Script{Finish: chat.FinishLength},
		llmtest.Script{Forgets: true},
	)
	if list := responseEvents(t, background(t, s, true).body, 0); list[len(list)-1].Type != "response.failed" {
		t.Errorf("got %+v", list[len(list)-1])
	}
	background(t, s, true)
	background(t, s, true)
	s.Settle()
	if got := state(t, s, "resp_1"); got.Status != "failed" || got.Error == nil || got.Error.Code != "rate_limit_exceeded" {
		t.Errorf("got %+v", got)
	}
	if got := state(t, s, "resp_2"); got.Status != "incomplete" || got.Incomplete.Reason != "max_output_tokens" {
		t.Errorf("got %+v", got)
	}
	for _, path := range []string{"resp_3", "resp_3?stream=true", "resp_9"} {
		if got := fetch(t, s, "GET", path); got.StatusCode != 404 {
			t.Errorf("%s: got %d, want 404", path, got.StatusCode)
		}
	}
	if got := fetch(t, s, "POST", "resp_3/cancel"); got.StatusCode != 404 {
		t.Errorf("got %d, want 404", got.StatusCode)
	}
	if s.Calls() != 3 || s.Executed() != 2 {
		t.Errorf("got %d calls, %d executed, want 3, 2", s.Calls(), s.Executed())
	}
}

func TestARunCanBeCancelled(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Responses)
	s.Play(llmtest.Script{Hang: llmtest.AfterPieces, HangAfter: 1, Cut: llmtest.CutClose, CutAt: 10}, llmtest.Script{})
	background(t, s, true)
	<-s.Stalled()
	for range 2 {
		if got := fetch(t, s, "POST", "resp_1/cancel"); got.StatusCode != 200 || !strings.Contains(got.body, `"status":"cancelled"`) {
			t.Errorf("got %d %s", got.StatusCode, got.body)
		}
	}
	s.Settle() // without a release
	if got := state(t, s, "resp_1"); got.Status != "cancelled" {
		t.Errorf("got %+v", got)
	}
	if got := fetch(t, s, "GET", "resp_1?stream=true"); got.err != nil || strings.Contains(got.body, "response.completed") {
		t.Errorf("got %q, %v", got.body, got.err)
	}
	background(t, s, true)
	s.Settle()
	if got := fetch(t, s, "POST", "resp_2/cancel"); got.StatusCode != 200 || !strings.Contains(got.body, `"status":"completed"`) {
		t.Errorf("got %d %s, want what had ended as it was", got.StatusCode, got.body)
	}
	if s.Executed() != 1 || s.Calls() != 2 {
		t.Errorf("got %d executed, %d calls, want 1, 2", s.Executed(), s.Calls())
	}
}

func TestABackgroundRunExistsBeforeItsClientHearsOfIt(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Responses)
	s.Play(llmtest.Script{Hang: llmtest.BeforeHeaders})
	leaveRequest(t, s, backgroundPrompt(t, s, true))
	if got := state(t, s, "resp_1"); got.Status != "completed" {
		t.Errorf("got %+v", got)
	}
	if s.Executed() != 1 || s.Aborted() != 0 {
		t.Errorf("got %d executed, %d aborted, want 1, 0", s.Executed(), s.Aborted())
	}
}
