// Package sink is a signing service to try actions with. It is what a receiver of
// webhooks should be: it verifies each delivery, executes each webhook-id once, and
// calls back. And it can be what receivers sometimes are: slow, forgetful of its
// manners, silent, or of two minds. What it remembers ends with the process.
package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"semel/outbox"
)

// Options say how a sink is to run.
type Options struct {
	Secrets   []string // whsec_…; deliveries are verified and callbacks signed with them
	Callback  string   // base address of the server that is called back; "" calls nobody
	Behaviour Behaviour
	Log       *slog.Logger
}

// A Sink is the service. It is safe for use by many goroutines at once.
type Sink struct {
	o        Options
	backoff  time.Duration // between the first two tries of a callback; it doubles
	most     int           // effects
	stopping chan struct{} // closed by Close
	running  sync.WaitGroup

	mu        sync.Mutex // guards what follows
	closed    bool
	behaviour Behaviour
	order     []*effect
	byID      map[string]*effect
	voided    map[string]bool // webhook-ids whose effect was undone, come or not
}

// Kinds of effects.
const (
	kindSign = "sign"
	kindVoid = "void"
)

// An effect is all that is known of one webhook-id.
type effect struct {
	WebhookID  string      `json:"webhookId"`
	Kind       string      `json:"kind"` // sign or void
	Action     string      `json:"action"`
	RequestID  string      `json:"requestId"`
	Undoes     string      `json:"undoes,omitempty"` // of a void: the webhook-id of what it undoes
	Deliveries int         `json:"deliveries"`
	Executions int         `json:"executions"`
	InEffect   bool        `json:"inEffect"` // executed and not undone
	LastStatus int         `json:"lastStatus"`
	Callbacks  []*callback `json:"callbacks"`
}

// maxEffects bounds the memory. Beyond it new ids are refused: to forget one would be
// to execute it twice.
const maxEffects = 100_000

// New returns a sink that has executed nothing yet.
func New(o Options) (*Sink, error) {
	if _, err := outbox.Sign(o.Secrets, "msg", time.Now(), nil); err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	if err := o.Behaviour.check(); err != nil {
		return nil, err
	}
	s := &Sink{
		o: o, backoff: time.Second, most: maxEffects, stopping: make(chan struct{}),
		behaviour: o.Behaviour, byID: map[string]*effect{}, voided: map[string]bool{},
	}
	if o.Callback != "" {
		s.o.Callback = strings.TrimSuffix(o.Callback, "/")
		if _, err := outbox.New(s.callbackTarget(strings.Repeat("%", 256))); err != nil {
			return nil, fmt.Errorf("callback %w", err)
		}
	}
	return s, nil
}

// Serve serves on l until ctx ends.
func (s *Sink) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if srv.Shutdown(ctx) != nil {
		err = errors.Join(err, srv.Close())
	}
	return err
}

// Close ends what runs beside the requests: waits, and callbacks that are not through.
func (s *Sink) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stopping)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Handler returns the HTTP service.
func (s *Sink) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sign", func(w http.ResponseWriter, r *http.Request) { s.receive(w, r, kindSign) })
	mux.HandleFunc("POST /void", func(w http.ResponseWriter, r *http.Request) { s.receive(w, r, kindVoid) })
	mux.HandleFunc("GET /status", s.status)
	mux.HandleFunc("GET /executions", s.executions)
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /sink.css", style)
	// A page elsewhere must not change what is tried here.
	mux.Handle("POST /behaviour", http.NewCrossOriginProtection().Handler(http.HandlerFunc(s.setBehaviour)))
	return mux
}

// A delivery is what is sent to /sign and /void.
type delivery struct {
	Type string `json:"type"`
	Data struct {
		RequestID string `json:"requestId"`
		Action    string `json:"action"`
		WebhookID string `json:"webhookId"`
	} `json:"data"`
}

func (s *Sink) receive(w http.ResponseWriter, r *http.Request, kind string) {
	// Not the server's ReadTimeout: that would end a slow answer, too.
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second)) // HTTP servers can
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	_ = c.SetReadDeadline(time.Time{})
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "the body could not be read, or is larger than 1 MiB")
		return
	}
	id, err := outbox.Verify(s.o.Secrets, r.Header, body, time.Now())
	if err != nil {
		s.o.Log.Warn("not believed", "path", r.URL.Path, "error", err)
		refuse(w, http.StatusUnauthorized, err.Error())
		return
	}
	var d delivery
	if err := json.Unmarshal(body, &d); err != nil || d.Type == "" || kind == kindVoid && d.Data.WebhookID == "" {
		refuse(w, http.StatusBadRequest, `the body is no message: it needs a type, and to undo something data.webhookId`)
		return
	}
	t := s.take(id, kind, d)
	s.o.Log.Info(kind, "webhook_id", id, "action", d.Data.Action, "delivery", t.delivery, "executed_now", t.executed, "answer", t.status)
	if t.executed && kind == kindSign && t.behaviour.Callback == CallbackEarly {
		s.callBack(r.Context(), t.effect, true)
	}
	if s.sleep(r.Context(), t.wait) { // else who sent it waits no longer
		s.answer(w, t)
	}
	if t.executed && kind == kindSign {
		s.callBackLater(t.effect, t.behaviour)
	}
}

// A treatment is what becomes of one delivery.
type treatment struct {
	effect    *effect
	delivery  int  // which one of its id, from 1
	executed  bool // by this delivery
	behaviour Behaviour
	status    int
	drop      bool // hang up instead of answering
	wait      time.Duration
	says      string
}

// take counts a delivery, executes it if that has not been done, and says how it is
// answered. All of it under one lock: that is what makes an id be executed once.
func (s *Sink) take(id, kind string, d delivery) treatment {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil {
		if len(s.order) >= s.most {
			return treatment{status: http.StatusServiceUnavailable, says: "too many ids to remember; start again"}
		}
		e = &effect{WebhookID: id, Kind: kind, Action: d.Data.Action, RequestID: d.Data.RequestID, Callbacks: []*callback{}}
		if kind == kindVoid {
			e.Undoes = d.Data.WebhookID
		}
		s.byID[id] = e
		s.order = append(s.order, e)
	}
	e.Deliveries++
	t := treatment{effect: e, delivery: e.Deliveries, behaviour: s.behaviour, status: http.StatusOK}
	answer := s.behaviour.Answer
	if n := s.behaviour.Times; n > 0 && e.Deliveries > n {
		answer = AnswerOK
	}
	switch answer {
	case AnswerRefuse:
		t.status, t.says = http.StatusUnprocessableEntity, "refused"
	case AnswerGone:
		t.status, t.says = http.StatusGone, "no more of these, please"
	case AnswerBusy:
		t.status, t.says = http.StatusTooManyRequests, "busy"
	}
	switch {
	case t.status != http.StatusOK:
	case e.Kind != kind:
		t.status, t.says = http.StatusConflict, "this id was used for something else"
	case kind == kindSign && s.voided[id]:
		t.status, t.says = http.StatusConflict, "it was undone before" // what comes late must not be done after all
	default:
		t.says = "executed before"
		if e.Executions == 0 {
			s.execute(e)
			t.executed, t.says = true, "executed"
		}
		switch answer {
		case AnswerSlow:
			t.wait = time.Duration(s.behaviour.Delay)
		case AnswerFail:
			t.status, t.says = http.StatusInternalServerError, "executed, and then something went wrong"
		case AnswerDrop:
			t.drop = true
		}
	}
	e.LastStatus = t.status
	if t.drop {
		e.LastStatus = 0
	}
	return t
}

// execute is where a contract would be signed, or the signature withdrawn. The caller
// holds mu.
func (s *Sink) execute(e *effect) {
	e.Executions++
	switch e.Kind {
	case kindSign:
		e.InEffect = true
	case kindVoid:
		s.voided[e.Undoes] = true
		if o := s.byID[e.Undoes]; o != nil {
			o.InEffect = false
		}
	}
}

func (s *Sink) answer(w http.ResponseWriter, t treatment) {
	if t.drop {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			c.Close()
		}
		return
	}
	if t.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(time.Duration(t.behaviour.RetryAfter)/time.Second), 10))
	}
	writeJSON(w, t.status, map[string]string{"status": t.says})
	_ = http.NewResponseController(w).Flush() // before anything that must come later
}

// sleep reports whether the time has passed before ctx or the sink ended.
func (s *Sink) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-s.stopping:
	}
	return false
}

// status answers whether a webhook-id was executed.
func (s *Sink) status(w http.ResponseWriter, r *http.Request) {
	id, err := outbox.Verify(s.o.Secrets, r.Header, nil, time.Now())
	switch {
	case err != nil:
		refuse(w, http.StatusUnauthorized, err.Error())
		return
	case id != r.URL.Query().Get("webhook-id"):
		refuse(w, http.StatusBadRequest, "the query asks for another webhook-id than was signed")
		return
	}
	s.mu.Lock()
	e := s.byID[id]
	executed := e != nil && e.Executions > 0
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]bool{"executed": executed})
}

// A summary is what is shown of everything that came.
type summary struct {
	Behaviour  Behaviour `json:"behaviour"`
	Deliveries int       `json:"deliveries"`
	Executions int       `json:"executions"`
	InEffect   int       `json:"inEffect"`
	Twice      int       `json:"executedTwice"` // ids; what must stay 0
	Effects    []effect  `json:"executionsById"`
}

func (s *Sink) summary() summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := summary{Behaviour: s.behaviour, Effects: []effect{}}
	for _, e := range s.order {
		c := *e
		c.Callbacks = make([]*callback, len(e.Callbacks))
		for i, one := range e.Callbacks {
			copied := *one
			c.Callbacks[i] = &copied
		}
		sum.Effects = append(sum.Effects, c)
		sum.Deliveries += e.Deliveries
		sum.Executions += e.Executions
		if e.InEffect {
			sum.InEffect++
		}
		if e.Executions > 1 {
			sum.Twice++
		}
	}
	return sum
}

func (s *Sink) executions(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.summary())
}

// setBehaviour takes a form of the page or JSON; what is not given stays.
func (s *Sink) setBehaviour(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	s.mu.Lock()
	b := s.behaviour
	s.mu.Unlock()
	var err error
	asJSON := strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
	if asJSON {
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		err = dec.Decode(&b)
	} else if err = r.ParseForm(); err == nil {
		for _, key := range behaviourKeys {
			if r.PostForm.Has(key) && err == nil {
				err = b.set(key, r.PostForm.Get(key))
			}
		}
	}
	if err == nil {
		err = b.check()
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	s.behaviour = b
	s.mu.Unlock()
	s.o.Log.Info("behaviour", "is", b.String())
	if asJSON {
		writeJSON(w, http.StatusOK, b)
		return
	}
	to := "/"
	if lang := r.PostForm.Get("lang"); lang != "" {
		to += "?lang=" + url.QueryEscape(lang)
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func refuse(w http.ResponseWriter, status int, why string) {
	writeJSON(w, status, map[string]string{"error": why})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only types of this package are written
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // whoever has gone does not read it
}
