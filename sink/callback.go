package sink

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/netip"
	"net/url"
	"time"

	"semel/chat"
	"semel/outbox"
)

// A callback is one verdict about an effect, under an id of its own that stays the same
// however often it is tried.
type callback struct {
	ID     string `json:"id"`
	OK     bool   `json:"ok"`
	Tries  int    `json:"tries"`
	Status int    `json:"status"` // of the last try, 0 without an answer
	Done   bool   `json:"done"`   // answered for good, or given up
}

const callbackTries = 6

// callBackLater sends what b says, in order, after the delivery was answered.
func (s *Sink) callBackLater(e *effect, b Behaviour) {
	verdicts, wait := b.calls()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.o.Callback == "" || len(verdicts) == 0 {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-s.stopping:
				cancel()
			case <-ctx.Done():
			}
		}()
		if !s.sleep(ctx, wait) {
			return
		}
		for _, ok := range verdicts {
			s.callBack(ctx, e, ok)
		}
	})
}

// callBack sends one verdict until it is answered for good. Nobody is called back where
// no address is known.
func (s *Sink) callBack(ctx context.Context, e *effect, ok bool) {
	if s.o.Callback == "" {
		return
	}
	c := &callback{ID: "cb_" + rand.Text(), OK: ok}
	s.mu.Lock()
	e.Callbacks = append(e.Callbacks, c)
	target := s.callbackTarget(e.WebhookID)
	payload := verdict(e.RequestID, ok)
	s.mu.Unlock()
	to, err := outbox.New(target)
	if err != nil {
		panic(err) // New has checked all of it but the id, which was verified
	}
	wait := s.backoff
	for try := 1; ; try++ {
		r := to.Deliver(ctx, outbox.Message{WebhookID: c.ID, At: time.Now(), Payload: payload})
		again := try < callbackTries && (r.Outcome == chat.OutcomeNone || r.Outcome == chat.OutcomeUnknown || r.Code == outbox.CodeReceiverBusy)
		s.mu.Lock()
		c.Tries, c.Status, c.Done = try, r.Status, !again
		s.mu.Unlock()
		s.o.Log.Info("callback", "webhook_id", e.WebhookID, "callback_id", c.ID, "ok", ok, "try", try, "status", r.Status, "trouble", r.Code)
		if !again || !s.sleep(ctx, max(wait, min(r.RetryAfter, time.Minute))) {
			return
		}
		wait *= 2
	}
}

// callbackTarget may be anywhere: whoever started the sink has named it.
func (s *Sink) callbackTarget(webhookID string) outbox.Target {
	return outbox.Target{
		Kind: outbox.KindWebhook, URL: s.o.Callback + "/callbacks/" + url.PathEscape(webhookID), Secrets: s.o.Secrets,
		Timeout: 10 * time.Second, Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	}
}

func verdict(requestID string, ok bool) []byte {
	var v struct {
		Type string `json:"type"`
		Data struct {
			OK        bool   `json:"ok"`
			RequestID string `json:"requestId,omitempty"`
			Reason    string `json:"reason,omitempty"`
		} `json:"data"`
	}
	v.Type, v.Data.OK, v.Data.RequestID = "action.result", ok, requestID
	if !ok {
		v.Data.Reason = "The other party did not sign."
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and a bool
	}
	return b
}
