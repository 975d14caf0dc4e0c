package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/db/dbtest"
)

// A signer is the signing service of the program in a process of its own.
type signer struct {
	t    *testing.T
	addr string
}

var sinkServing = regexp.MustCompile(`msg=sink url=http://(\S+)`)

// startSigner starts "semel sink", which calls back at the proxy and behaves so.
func startSigner(t *testing.T, callback, behaviour string) *signer {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "sink", "--listen", "127.0.0.1:0", "--secret", secret, "--callback", callback, "--behaviour", behaviour)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log, addr := &lines{}, make(chan string, 1)
	go log.read(stderr, func(line string) {
		if m := sinkServing.FindStringSubmatch(line); m != nil {
			addr <- m[1]
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the sink's log:\n%s", log)
		}
	})
	select {
	case a := <-addr:
		return &signer{t, a}
	case <-time.After(*patience):
		t.Fatalf("the sink does not serve:\n%s", log)
	}
	return nil
}

// A signed is what the signing service remembers of one webhook id.
type signed struct {
	WebhookID, RequestID   string
	Deliveries, Executions int
	InEffect               bool
}

func (s *signer) all() []signed {
	s.t.Helper()
	res, err := http.Get("http://" + s.addr + "/executions")
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var summary struct{ ExecutionsByID []signed }
	if err := json.NewDecoder(res.Body).Decode(&summary); err != nil {
		s.t.Fatal(err)
	}
	return summary.ExecutionsByID
}

// The whole story: an answer asks to sign, a person approves with a double click, the
// service signs and then answers 500, so it is sent again, calls back, and the request
// is committed, signed once and billed once.
func TestTheStoryOfASignature(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	service := startSigner(t, p.url, "answer=fail,times=1,callback=ok")
	p.configure(fmt.Sprintf(`server.drain = "200ms"
[[models]]
name = "demo"
provider = "demo"
[[actions]]
name = "sign_contract"
description = { en = "Have a contract signed", zh-CN = "签署合同" }
parameters = '''{"type":"object","required":["title"],"properties":{"title":{"type":"string"}},"additionalProperties":false}'''
approval = "ask"
await_callback = true
destination = { kind = "webhook", url = "http://%s/sign", secrets = ["%s"], backoff = "10ms", allow = ["127.0.0.0/8"] }
compensate = { kind = "webhook", url = "http://%[1]s/void" }
`, service.addr, secret))
	p.start()
	// The service is quick: what it says waits until its second answer is on screen.
	hold := make(chan struct{})
	p.proxy.do(func(e exchange) fault {
		if strings.HasPrefix(e.Path, "/callbacks/") {
			return fault{Hold: hold}
		}
		return fault{}
	})

	tb := newProfile(t).open(p.url + "/").allow(lostRequests)
	id := tb.send(`[[tool sign_contract {"title":"Lease 2026"}]] Please have the lease signed.`)
	tb.marked(id, "answered")
	tb.stands(chat.EffectUndecided)
	if list := service.all(); len(list) != 0 {
		t.Fatalf("before anybody approved: %+v", list)
	}
	tb.click(`.judgement .approve`, 2)
	tb.stands(chat.EffectAwaiting)
	tb.wait(`document.querySelector('.action').textContent.includes('Sent 2 times, under one id.')`)
	close(hold)
	tb.stands(chat.EffectDelivered)
	tb.wait(`document.querySelector('.action').textContent.includes('The receiver called back: done')`)

	list := service.all()
	if len(list) != 1 || list[0].RequestID != id || list[0].Deliveries != 2 || list[0].Executions != 1 || !list[0].InEffect {
		t.Errorf("the service has %+v, want one id, delivered twice and executed once", list)
	}
	session := tb.session()
	until(t, "it is committed", func() bool {
		var rec chat.Record
		return p.get("/api/chat/status/"+id+"?sessionId="+session, &rec) == http.StatusOK && rec.State == chat.StateCommitted
	})
	d := p.end()
	dbtest.Check(t, d)
	rc := receiptOf(t, d, session, id)
	if rc.Request.State != chat.StateCommitted || len(rc.Ledger) != 1 || len(rc.Attempts) != 1 || len(rc.Sent) != 1 {
		t.Fatalf("%s, %d ledger rows, %d calls, %d effects", rc.Request.State, len(rc.Ledger), len(rc.Attempts), len(rc.Sent))
	}
	tries := rc.Sent[0].Deliveries
	if len(tries) != 2 || tries[0].Outcome != chat.OutcomeUnknown || tries[0].Status != 500 || tries[1].Outcome != chat.OutcomeOK {
		t.Errorf("deliveries: %+v", tries)
	}
	if c := rc.Sent[0].Callbacks; len(c) != 1 || !c[0].OK {
		t.Errorf("callbacks: %+v", c)
	}
}
