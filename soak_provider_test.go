package main

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"semel/llm/llmtest"
)

// A provider is a model provider that misbehaves: in what it answers, and by not
// being there. It remembers which question came when.
type provider struct {
	t      testing.TB
	server *llmtest.Server
	addr   string
	seed   uint64
	tame   *atomic.Bool // no more faults

	http *http.Server // of the goroutine that opens and closes

	mu      sync.Mutex
	prompts map[string][]time.Time // by request id
}

// Each question says its request id. What was asked earlier in the conversation
// comes first.
var questionMark = regexp.MustCompile(`Question ([0-9A-Z]{26})`)

func newProvider(t testing.TB, f llmtest.Format, seed uint64, tame *atomic.Bool) *provider {
	p := &provider{t: t, server: llmtest.NewServer(t, f), addr: "127.0.0.1:0", seed: seed, tame: tame, prompts: map[string][]time.Time{}}
	p.server.PlayFunc(p.play)
	p.open()
	t.Cleanup(func() { p.close(true) })
	return p
}

// open begins to listen, at the same address each time.
func (p *provider) open() {
	p.t.Helper()
	var l net.Listener
	var err error
	if !eventually(func() bool { l, err = net.Listen("tcp", p.addr); return err == nil }) {
		p.t.Fatal(err)
	}
	p.addr = l.Addr().String()
	p.http = &http.Server{Handler: p.server}
	go p.http.Serve(l) // its error is that of close
}

// close stops listening: who comes then is refused. Lines that are in use are cut,
// or may go on to their end.
func (p *provider) close(cut bool) {
	if cut {
		_ = p.http.Close() // nobody needs it any more
		return
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.http.Shutdown(over) // which says that lines are in use
}

// play remembers a prompt and says what becomes of it: the same for the same
// question asked as often, whatever else is going on.
func (p *provider) play(_ int64, body []byte) llmtest.Script {
	all := questionMark.FindAllSubmatch(body, -1)
	if all == nil {
		p.t.Errorf("a prompt without a question: %s", body)
		return llmtest.Script{}
	}
	id := string(all[len(all)-1][1])
	p.mu.Lock()
	n := len(p.prompts[id])
	p.prompts[id] = append(p.prompts[id], time.Now())
	p.mu.Unlock()
	if p.tame.Load() {
		return llmtest.Script{}
	}
	h := fnv.New64a()
	h.Write([]byte(id))
	return fault(rand.New(rand.NewPCG(p.seed, h.Sum64()+uint64(n))), "http://"+p.addr+"/v1/chat/completions")
}

// arrivals returns when each prompt of each question arrived, in order.
func (p *provider) arrivals() map[string][]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string][]time.Time{}
	for id, at := range p.prompts {
		all[id] = append([]time.Time(nil), at...)
	}
	return all
}

// nonsense is what some servers answer with status 200.
var nonsense = []string{"", "null", "[]", `{"choices": [`, `{"object": "list"}`, "data: {nope\n\n", "event: error\ndata: nope\n\n", "data: [DONE]\n\n", "\x1f\x8b\x08 not gzip"}

// fault is one of all the ways in which a call may go, a third of them good. away is
// where a redirect leads: whoever follows it asks twice.
func fault(rng *rand.Rand, away string) llmtest.Script {
	s := llmtest.Script{Text: llmtest.Tokens(1 + rng.IntN(40)), Rate: 30 + 400*rng.Float64(), TokenDelay: upTo(rng, 60*time.Millisecond)}
	refuse := func(status int, after string) llmtest.Script {
		return llmtest.Script{Refuse: &llmtest.Failure{Status: status, RetryAfter: after}}
	}
	one := func(list ...int) int { return list[rng.IntN(len(list))] }
	switch n := rng.IntN(100); {
	case n < 26:
	case n < 30:
		s.Gzip, s.KeepAlive, s.Reasoning = true, true, llmtest.Tokens(3)
	case n < 34:
		s.OneByte, s.SplitRunes, s.Rate = rng.IntN(2) == 0, true, 0
	case n < 37:
		s.JSON, s.DoubleEnd, s.NoUsage = true, true, true
	case n < 41:
		s.NoDone, s.NoFinish = rng.IntN(2) == 0, rng.IntN(2) == 0
	case n < 53:
		s.Cut, s.CutAt = llmtest.Cut(1+rng.IntN(3)), rng.IntN(4000)-400
	case n < 60:
		s.ErrorFrame, s.ErrorAfter = &llmtest.Failure{Status: one(429, 500, 503)}, rng.IntN(5)
	case n < 70:
		return refuse(one(429, 503, 529), []string{"", "0", "1", "90", "soon", "Thu, 01 Jan 2026 00:00:00 GMT"}[rng.IntN(6)])
	case n < 76:
		return refuse(one(408, 500, 502, 504, 520), "")
	case n < 79:
		return refuse(one(400, 401, 403, 404, 422), "")
	case n < 83:
		s.Hang = llmtest.BeforeHeaders
	case n < 85:
		s.Hang = llmtest.AfterHeaders
	case n < 89:
		s.Hang, s.HangAfter = llmtest.AfterPieces, rng.IntN(8)
	case n < 91:
		s.Late = true
	case n < 94:
		s.Redirect = away
	case n < 96:
		s.HTML = true
	default:
		body := nonsense[rng.IntN(len(nonsense))]
		return llmtest.Script{Refuse: &llmtest.Failure{Status: 200, Body: &body}}
	}
	// Of runs that are kept; nothing else looks at it.
	s.CutAgain, s.AskFails, s.NoResume, s.Forgets = rng.IntN(3), rng.IntN(2), rng.IntN(6) == 0, rng.IntN(20) == 0
	return s
}

// comeAndGo closes providers and opens them again until enough is closed.
func comeAndGo(rng *rand.Rand, list []*provider, enough <-chan struct{}) {
	wait := func(d time.Duration) (over bool) {
		select {
		case <-time.After(d): // the moment of the fault
			return false
		case <-enough:
			return true
		}
	}
	for !wait(upTo(rng, 1200*time.Millisecond)) {
		p := list[rng.IntN(len(list))]
		p.close(rng.IntN(2) == 0)
		wait(upTo(rng, 600*time.Millisecond))
		p.open()
	}
}

// counts says how many prompts arrived at each.
func counts(list []*provider) string {
	var s string
	for i, p := range list {
		if i > 0 {
			s += " + "
		}
		s += strconv.FormatInt(p.server.Calls(), 10)
	}
	return s
}
