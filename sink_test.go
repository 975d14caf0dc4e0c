package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/outbox"
)

// What semel sink prints is what a destination needs to reach it.
func TestSinkPrintsTheDestinationThatReachesIt(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, stdout := io.Pipe()
	var log strings.Builder
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, []string{"sink", "--listen", "127.0.0.1:0", "--callback", "", "--behaviour", "answer=fail"}, nil, stdout, &log)
		stdout.Close()
		ended <- code
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	found := regexp.MustCompile(`^destination = \{ kind = "webhook", url = "(http://127\.0\.0\.1:\d+)/sign", secrets = \["(whsec_[^"]+)"\], allow = \["([^"]+)"\] \}\n$`).FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("got %q, %v", line, err)
	}
	s, err := outbox.New(outbox.Target{
		Kind: outbox.KindWebhook, URL: found[1] + "/sign", Secrets: []string{found[2]}, Allow: []netip.Prefix{netip.MustParsePrefix(found[3])},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []chat.Outcome{chat.OutcomeUnknown, chat.OutcomeOK} {
		m := outbox.Message{WebhookID: "msg_1", At: time.Now(), Payload: []byte(chat.ActionPayload(chat.Key{RequestID: "r"}, "sign_contract", `{"title":"NDA"}`, time.Now()))}
		if r := s.Deliver(t.Context(), m); r.Outcome != want {
			t.Errorf("delivery %d: got %+v, want %s", i+1, r, want)
		}
	}
	res, err := http.Get(found[1] + "/executions")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var sum struct{ Deliveries, Executions int }
	if err := json.NewDecoder(res.Body).Decode(&sum); err != nil || sum.Deliveries != 2 || sum.Executions != 1 {
		t.Errorf("got %+v, %v", sum, err)
	}
	stop()
	if code := <-ended; code != 0 || strings.Contains(log.String(), found[2]) || strings.Contains(log.String(), "other machines") {
		t.Errorf("got exit %d, %s", code, log.String())
	}
}

func TestSinkWarnsWhereOtherMachinesReachIt(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, stdout := io.Pipe()
	var log strings.Builder
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"sink", "--listen", "0.0.0.0:0"}, nil, stdout, &log) }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // printed after the warning
		t.Fatal(err)
	}
	stop()
	if code := <-ended; code != 0 || !strings.Contains(log.String(), "other machines can reach this") {
		t.Errorf("got exit %d, %s", code, log.String())
	}
}
