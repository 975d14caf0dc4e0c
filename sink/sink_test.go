package sink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/chat"
	"semel/outbox"
)

var testSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 32)))

// A rig is a sink that is called over HTTP, and the server that it calls back.
type rig struct {
	t    *testing.T
	sink *Sink
	url  string

	mu       sync.Mutex
	replies  []int // statuses of the next callbacks; 200 after them
	heard    []heard
	callback chan heard
}

// heard is a callback that arrived.
type heard struct {
	path, id, body string
	ok             bool
}

func newRig(t *testing.T, behaviour string) *rig {
	t.Helper()
	b, err := ParseBehaviour(behaviour)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, callback: make(chan heard, 100)}
	server := httptest.NewServer(http.HandlerFunc(r.called))
	t.Cleanup(server.Close)
	if r.sink, err = New(Options{Secrets: []string{testSecret}, Callback: server.URL + "/", Behaviour: b, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	r.sink.backoff = time.Microsecond
	service := httptest.NewServer(r.sink.Handler())
	t.Cleanup(func() { r.sink.Close(); service.Close() })
	r.url = service.URL
	return r
}

func (r *rig) called(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	id, verifyErr := outbox.Verify([]string{testSecret}, req.Header, body, time.Now())
	if err != nil || verifyErr != nil || req.Method != http.MethodPost {
		r.t.Errorf("a callback that is not signed: %s %s, %v, %v", req.Method, req.URL, err, verifyErr)
	}
	var v struct {
		Type string
		Data struct{ OK *bool }
	}
	if json.Unmarshal(body, &v) != nil || v.Type != "action.result" || v.Data.OK == nil {
		r.t.Errorf("a callback that says nothing: %s", body)
		return
	}
	h := heard{req.URL.Path, id, string(body), *v.Data.OK}
	r.mu.Lock()
	status := http.StatusOK
	if len(r.replies) > 0 {
		status, r.replies = r.replies[0], r.replies[1:]
	}
	r.heard = append(r.heard, h)
	r.mu.Unlock()
	w.WriteHeader(status)
	r.callback <- h
}

func (r *rig) target(path string) outbox.Target {
	return outbox.Target{
		Kind: outbox.KindWebhook, URL: r.url + path, Secrets: []string{testSecret},
		KeyMode: outbox.KeyModeQuery, StatusURL: r.url + "/status", Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
}

func (r *rig) deliver(path, id, payload string) outbox.Result {
	r.t.Helper()
	s, err := outbox.New(r.target(path))
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Deliver(r.t.Context(), outbox.Message{WebhookID: id, At: time.Now(), Payload: []byte(payload)})
}

func (r *rig) sign(id string) outbox.Result {
	r.t.Helper()
	return r.deliver("/sign", id, `{"type":"action.sign_contract","timestamp":"2026-01-02T03:04:05Z","data":{"requestId":"req-1","sessionId":"s-1","action":"sign_contract","arguments":{"title":"NDA"}}}`)
}

func (r *rig) void(id, undoes string) outbox.Result {
	r.t.Helper()
	return r.deliver("/void", id, `{"type":"action.sign_contract.compensate","data":{"requestId":"req-1","action":"sign_contract","arguments":{},"webhookId":"`+undoes+`"}}`)
}

// executions is what GET /executions says.
func (r *rig) executions() (sum summary) {
	r.t.Helper()
	res, err := http.Get(r.url + "/executions")
	if err == nil {
		defer res.Body.Close()
		err = json.NewDecoder(res.Body).Decode(&sum)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return sum
}

// calls waits for n callbacks and for the sink to be through with all of them.
func (r *rig) calls(n int) []heard {
	r.t.Helper()
	for range n {
		<-r.callback
	}
	r.sink.running.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.heard) != n {
		r.t.Fatalf("got %d callbacks, want %d: %+v", len(r.heard), n, r.heard)
	}
	return r.heard
}

func TestADeliveryIsTreatedAsChosen(t *testing.T) {
	for _, tt := range []struct {
		behaviour         string
		first, second     chat.Outcome
		status1, status2  int
		executed1         int
		executed2         int
		callbacks         []bool
		early, retryAfter bool
	}{
		{behaviour: "", first: "ok", status1: 200, executed1: 1, second: "ok", status2: 200, executed2: 1, callbacks: []bool{true}},
		{behaviour: "answer=slow,delay=1ms", first: "ok", status1: 200, executed1: 1, second: "ok", status2: 200, executed2: 1, callbacks: []bool{true}},
		{behaviour: "answer=fail", first: "unknown", status1: 500, executed1: 1, second: "ok", status2: 200, executed2: 1, callbacks: []bool{true}},
		{behaviour: "answer=fail,times=0", first: "unknown", status1: 500, executed1: 1, second: "unknown", status2: 500, executed2: 1, callbacks: []bool{true}},
		{behaviour: "answer=drop", first: "unknown", executed1: 1, second: "ok", status2: 200, executed2: 1, callbacks: []bool{true}},
		{behaviour: "answer=refuse", first: "definite", status1: 422, second: "ok", status2: 200, executed2: 1, callbacks: []bool{true}},
		{behaviour: "answer=refuse,times=2", first: "definite", status1: 422, second: "definite", status2: 422},
		{behaviour: "answer=gone,times=0", first: "definite", status1: 410, second: "definite", status2: 410},
		{behaviour: "answer=busy,retry-after=7s", first: "definite", status1: 429, retryAfter: true, second: "ok", status2: 200, executed2: 1, callbacks: []bool{true}},
		{behaviour: "callback=not-ok", first: "ok", status1: 200, executed1: 1, second: "ok", status2: 200, executed2: 1, callbacks: []bool{false}},
		{behaviour: "callback=twice", first: "ok", status1: 200, executed1: 1, second: "ok", status2: 200, executed2: 1, callbacks: []bool{true, true}},
		{behaviour: "callback=contradict", first: "ok", status1: 200, executed1: 1, second: "ok", status2: 200, executed2: 1, callbacks: []bool{true, false}},
		{behaviour: "callback=early", first: "ok", status1: 200, executed1: 1, second: "ok", status2: 200, executed2: 1, callbacks: []bool{true}, early: true},
		{behaviour: "callback=late,delay=1ms", first: "ok", status1: 200, executed1: 1, second: "ok", status2: 200, executed2: 1, callbacks: []bool{true}},
		{behaviour: "callback=never", first: "ok", status1: 200, executed1: 1, second: "ok", status2: 200, executed2: 1},
	} {
		t.Run(tt.behaviour, func(t *testing.T) {
			r := newRig(t, tt.behaviour)
			got := r.sign("msg_1")
			r.mu.Lock()
			early := len(r.heard)
			r.mu.Unlock()
			if tt.early && early != 1 {
				t.Error("the callback was not sent before the answer")
			}
			if got.Outcome != tt.first || got.Status != tt.status1 || got.Gone != (tt.status1 == 410) || tt.retryAfter != (got.RetryAfter == 7*time.Second) {
				t.Errorf("first: got %+v", got)
			}
			if e := r.executions().Effects[0]; e.Executions != tt.executed1 || e.LastStatus != tt.status1 {
				t.Errorf("after the first: got %+v", e)
			}
			if got := r.sign("msg_1"); got.Outcome != tt.second || got.Status != tt.status2 {
				t.Errorf("second: got %+v", got)
			}
			calls := r.calls(len(tt.callbacks))
			ids := map[string]bool{}
			for i, h := range calls {
				ids[h.id] = true
				if h.ok != tt.callbacks[i] || h.path != "/callbacks/msg_1" || !strings.Contains(h.body, `"requestId":"req-1"`) || strings.Contains(h.body, "reason") == h.ok {
					t.Errorf("callback %d: got %+v", i, h)
				}
			}
			if len(ids) != len(calls) {
				t.Errorf("%d callbacks have the ids %v", len(calls), ids)
			}
			sum := r.executions()
			e := sum.Effects[0]
			if e.Deliveries != 2 || e.Executions != tt.executed2 || e.InEffect != (tt.executed2 == 1) || len(e.Callbacks) != len(tt.callbacks) {
				t.Errorf("at the end: got %+v", e)
			}
			for _, c := range e.Callbacks {
				if !c.Done || c.Tries != 1 || c.Status != 200 {
					t.Errorf("got the callback %+v", c)
				}
			}
			if sum.Deliveries != 2 || sum.Executions != tt.executed2 || sum.Twice != 0 {
				t.Errorf("got %+v", sum)
			}
		})
	}
}

func TestALateCallbackWaitsAndEndsWithTheSink(t *testing.T) {
	if verdicts, wait := (Behaviour{Callback: CallbackLate, Delay: 7}).calls(); len(verdicts) != 1 || wait != 7 {
		t.Errorf("got %v after %s", verdicts, wait)
	}
	r := newRig(t, "callback=late,delay=1h")
	if got := r.sign("msg_1"); got.Outcome != chat.OutcomeOK {
		t.Fatalf("got %+v", got)
	}
	r.sink.Close() // or this would take an hour
	if len(r.heard) != 0 {
		t.Errorf("got %+v", r.heard)
	}
}

func TestWhoGivesUpOnASlowAnswerIsCalledBackAllTheSame(t *testing.T) {
	r := newRig(t, "answer=slow,delay=1h,times=0")
	target := r.target("/sign")
	for target.Timeout = 50 * time.Millisecond; ; target.Timeout *= 2 { // until it is long enough to arrive
		s, err := outbox.New(target)
		if err != nil {
			t.Fatal(err)
		}
		got := s.Deliver(t.Context(), outbox.Message{WebhookID: "msg_1", At: time.Now(), Payload: []byte(`{"type":"x"}`)})
		if got.Code != outbox.CodeTimeout {
			t.Fatalf("got %+v", got)
		}
		if r.executions().Executions == 1 {
			break
		}
	}
	r.calls(1)
}

func TestManyDeliveriesOfOneIDAreExecutedOnce(t *testing.T) {
	r := newRig(t, "callback=twice")
	const n = 100
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			if got := r.sign("msg_1"); got.Outcome != chat.OutcomeOK {
				t.Errorf("delivery %d: got %+v", i, got)
			}
		})
	}
	close(start)
	all.Wait()
	r.calls(2)
	sum := r.executions()
	if len(sum.Effects) != 1 || sum.Deliveries != n || sum.Executions != 1 || sum.InEffect != 1 || sum.Twice != 0 {
		t.Errorf("got %+v, want one execution of %d deliveries", sum, n)
	}
}

func TestACompensationUndoesOnce(t *testing.T) {
	r := newRig(t, "")
	r.sign("msg_1")
	r.calls(1)
	for range 3 {
		if got := r.void("msg_2", "msg_1"); got.Outcome != chat.OutcomeOK {
			t.Fatalf("got %+v", got)
		}
	}
	sum := r.executions()
	if e := sum.Effects[0]; e.InEffect || e.Executions != 1 {
		t.Errorf("what was undone: got %+v", e)
	}
	if e := sum.Effects[1]; e.Kind != "void" || e.Undoes != "msg_1" || e.Deliveries != 3 || e.Executions != 1 {
		t.Errorf("what undoes: got %+v", e)
	}
	// What was under way when it was undone does not happen after all.
	if got := r.void("msg_4", "msg_3"); got.Outcome != chat.OutcomeOK {
		t.Errorf("to undo what has not come: got %+v", got)
	}
	if got := r.sign("msg_3"); got.Status != http.StatusConflict {
		t.Errorf("what was undone before it came: got %+v", got)
	}
	if got := r.sign("msg_2"); got.Status != http.StatusConflict {
		t.Errorf("an id for two things: got %+v", got)
	}
	if sum := r.executions(); sum.InEffect != 0 || sum.Executions != 3 {
		t.Errorf("got %+v", sum)
	}
}

func TestTheReceiverSaysWhetherItHasExecuted(t *testing.T) {
	r := newRig(t, "answer=fail,callback=never")
	s, err := outbox.New(r.target("/sign"))
	if err != nil {
		t.Fatal(err)
	}
	q := s.(outbox.Querier)
	if executed, got := q.Executed(t.Context(), "msg_1"); executed || got.Outcome != chat.OutcomeOK {
		t.Errorf("before: got %t, %+v", executed, got)
	}
	r.sign("msg_1")
	if executed, got := q.Executed(t.Context(), "msg_1"); !executed || got.Outcome != chat.OutcomeOK {
		t.Errorf("after: got %t, %+v", executed, got)
	}
	if res, err := http.Get(r.url + "/status?webhook-id=msg_1"); err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("unsigned: got %v, %v", res, err)
	} else {
		res.Body.Close()
	}
	h, err := outbox.Sign([]string{testSecret}, "msg_2", time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest(http.MethodGet, r.url+"/status?webhook-id=msg_1", nil)
	req.Header = h
	if res, err := http.DefaultClient.Do(req); err != nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("another id than was signed: got %v, %v", res, err)
	} else {
		res.Body.Close()
	}
}

func TestWhatIsNotSignedIsNotExecuted(t *testing.T) {
	r := newRig(t, "")
	for _, path := range []string{"/sign", "/void"} {
		for _, tt := range []struct {
			secret, body string
			at           time.Time
			want         int
		}{
			{"", `{"type":"x","data":{"webhookId":"m"}}`, time.Now(), http.StatusUnauthorized},
			{"whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 32))), `{"type":"x","data":{"webhookId":"m"}}`, time.Now(), http.StatusUnauthorized},
			{testSecret, `{"type":"x","data":{"webhookId":"m"}}`, time.Now().Add(-time.Hour), http.StatusUnauthorized},
			{testSecret, `what?`, time.Now(), http.StatusBadRequest},
			{testSecret, `{}`, time.Now(), http.StatusBadRequest},
			{testSecret, strings.Repeat(" ", 1<<20+1), time.Now(), http.StatusRequestEntityTooLarge},
		} {
			req, err := http.NewRequest(http.MethodPost, r.url+path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if tt.secret != "" {
				if req.Header, err = outbox.Sign([]string{tt.secret}, "msg_1", tt.at, []byte(tt.body)); err != nil {
					t.Fatal(err)
				}
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != tt.want {
				t.Errorf("%s %.20q: got %d, want %d", path, tt.body, res.StatusCode, tt.want)
			}
		}
	}
	if sum := r.executions(); sum.Deliveries != 0 || sum.Executions != 0 {
		t.Errorf("got %+v", sum)
	}
}

func TestACallbackIsTriedAgainUnderItsID(t *testing.T) {
	r := newRig(t, "")
	r.replies = []int{503, 500, 429}
	r.sign("msg_1")
	calls := r.calls(4)
	for _, h := range calls {
		if h.id != calls[0].id || h.body != calls[0].body {
			t.Errorf("got %+v, want %+v again", h, calls[0])
		}
	}
	if c := r.executions().Effects[0].Callbacks; len(c) != 1 || c[0].Tries != 4 || c[0].Status != 200 || !c[0].Done {
		t.Errorf("got %+v", c[0])
	}

	for status, want := range map[int]int{404: 1, 401: 1, 500: callbackTries} { // heard and refused; never heard well
		r = newRig(t, "")
		r.replies = []int{status, status, status, status, status, status, status}
		r.sign("msg_1")
		r.calls(want)
		if c := r.executions().Effects[0].Callbacks[0]; c.Tries != want || c.Status != status || !c.Done {
			t.Errorf("%d: got %+v, want %d tries", status, c, want)
		}
	}
}

func TestMemoryIsBoundedAndNothingIsForgotten(t *testing.T) {
	r := newRig(t, "callback=never")
	r.sink.most = 1
	r.sign("msg_1")
	if got := r.sign("msg_2"); got.Status != http.StatusServiceUnavailable {
		t.Errorf("one too many: got %+v", got)
	}
	if got := r.sign("msg_1"); got.Outcome != chat.OutcomeOK {
		t.Errorf("a known one: got %+v", got)
	}
	if e := r.executions().Effects[0]; e.Executions != 1 || e.Deliveries != 2 {
		t.Errorf("got %+v", e)
	}
}

func TestTheBehaviourIsChosenWhileItRuns(t *testing.T) {
	r := newRig(t, "")
	post := func(contentType, body string, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, r.url+"/behaviour", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, res.Header.Get("Location") + string(text)
	}
	form := url.Values{"answer": {"busy"}, "callback": {"never"}, "times": {"2"}, "delay": {"1s"}, "retry-after": {"9s"}, "lang": {"zh-CN"}}.Encode()
	if status, said := post("application/x-www-form-urlencoded", form); status != http.StatusSeeOther || said != "/?lang=zh-CN" {
		t.Errorf("a form: got %d %s", status, said)
	}
	if got, want := r.executions().Behaviour.String(), "answer=busy,callback=never,times=2,delay=1s,retry-after=9s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if status, said := post("application/json", `{"answer":"drop","delay":"3s"}`); status != http.StatusOK || !strings.Contains(said, `"answer":"drop","callback":"never","times":2,"delay":"3s"`) {
		t.Errorf("JSON: got %d %s", status, said)
	}
	for _, body := range []string{`{"answer":"maybe"}`, `{"times":-1}`, `{"delay":"soon"}`, `{"delay":"25h"}`, `{"ansver":"ok"}`, `{"callback":""}`, `[]`} {
		if status, said := post("application/json", body); status != http.StatusBadRequest {
			t.Errorf("%s: got %d %s", body, status, said)
		}
	}
	for _, body := range []string{"answer=maybe", "times=x", "delay=-1s", "callback="} {
		if status, said := post("application/x-www-form-urlencoded", body); status != http.StatusBadRequest {
			t.Errorf("%s: got %d %s", body, status, said)
		}
	}
	if status, _ := post("application/x-www-form-urlencoded", "answer=ok", "Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Errorf("from another site: got %d", status)
	}
	if got := r.executions().Behaviour.Answer; got != AnswerDrop {
		t.Errorf("what was refused has changed it to %s", got)
	}
}

func TestABehaviourIsReadFromText(t *testing.T) {
	b, err := ParseBehaviour(" answer=slow, callback=late,times=0,delay=2m,retry-after=1s ")
	if want := "answer=slow,callback=late,times=0,delay=2m0s,retry-after=1s"; err != nil || b.String() != want {
		t.Errorf("got %s, %v, want %s", b, err, want)
	}
	if again, err := ParseBehaviour(b.String()); err != nil || again != b {
		t.Errorf("got %s, %v, want it again", again, err)
	}
	for _, text := range []string{"slow", "answer=", "answer=x", "callback=x", "times=1001", "times=", "delay=1", "retry-after=x", "what=ok"} {
		if b, err := ParseBehaviour(text); err == nil {
			t.Errorf("%q: got %s", text, b)
		}
	}
}

func TestASinkIsCheckedWhenItIsMade(t *testing.T) {
	good := Options{Secrets: []string{testSecret}, Behaviour: DefaultBehaviour(), Log: slog.New(slog.DiscardHandler)}
	for name, change := range map[string]func(*Options){
		"secret":    func(o *Options) { o.Secrets = []string{"whsec_"} },
		"callback":  func(o *Options) { o.Callback = "127.0.0.1:8787" },
		"behaviour": func(o *Options) { o.Behaviour.Answer = "" },
	} {
		o := good
		change(&o)
		if s, err := New(o); err == nil || s != nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	s, err := New(good) // calls nobody back
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	r := &rig{t: t, url: server.URL, sink: s}
	if got := r.sign("msg_1"); got.Outcome != chat.OutcomeOK || len(r.executions().Effects[0].Callbacks) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestItServesUntilItIsToldToStop(t *testing.T) {
	r := newRig(t, "answer=slow,delay=1h,callback=late")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.sink.Serve(ctx, l) }()
	r.url = "http://" + l.Addr().String()
	answered := make(chan outbox.Result, 1)
	go func() { answered <- r.sign("msg_1") }()
	for r.executions().Executions == 0 { // each asks over HTTP
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := <-answered; got.Outcome != chat.OutcomeUnknown && got.Outcome != chat.OutcomeOK {
		t.Errorf("who waited: got %+v", got)
	}
}

func TestThePageShowsWhatCame(t *testing.T) {
	for lang, all := range words {
		for other, more := range words {
			for key, text := range all {
				if more[key] == "" || text == "" {
					t.Errorf("%s has %q, %s has not", lang, key, other)
				}
			}
		}
	}
	r := newRig(t, "callback=never")
	read := func(query, accept string) (string, http.Header) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, r.url+"/"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Language", accept)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res.Status, err)
		}
		return string(text), res.Header
	}
	if text, _ := read("", ""); !strings.Contains(text, words["en"]["none"]) {
		t.Errorf("got %s", text)
	}
	r.deliver("/sign", "<b>x</b>", `{"type":"a","data":{"action":"<script>alert(1)</script>"}}`)
	r.void("msg_2", "<b>x</b>")
	for _, tt := range []struct{ query, accept, lang string }{
		{"", "", "en"}, {"", "fr, zh-TW;q=0.5, en;q=0.3", "zh-CN"}, {"", "en-GB,zh", "en"}, {"?lang=zh-CN", "en", "zh-CN"}, {"?lang=xx", "de", "en"},
	} {
		text, h := read(tt.query, tt.accept)
		w := words[tt.lang]
		if !strings.Contains(text, `<html lang="`+tt.lang+`">`) || !strings.Contains(text, w["title"]) || !strings.Contains(text, w["undoes"]) {
			t.Errorf("%+v: got %s", tt, text)
		}
		if strings.Contains(text, "<b>") || strings.Contains(text, "<script") || strings.Contains(text, "ZgotmplZ") || strings.Contains(text, "style=") {
			t.Errorf("not escaped: %s", text)
		}
		if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'self';") || strings.Contains(csp, "unsafe") {
			t.Errorf("got the policy %q", csp)
		}
	}
}
