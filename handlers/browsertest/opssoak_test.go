package browsertest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	cdpruntime "github.com/chromedp/cdproto/runtime"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
)

var (
	opsSoak = flag.Duration("opssoak", 8*time.Second, "how long the page of operations is watched under load")
	opsRate = flag.Int("opsrate", 200, "requests a second meanwhile, half of them repeats")
)

// Under load the page of operations stays calm (it looks at most twice a second, and
// keeps as many rows as it shows), and neither it nor the server grows.
func TestThePageOfOperationsStaysCalmUnderLoad(t *testing.T) {
	demo := llm.NewDemo()
	r := newRig(t, func(eo *engine.Options, _ *handlers.Options) {
		eo.Models[0].Client, eo.Models[0].Concurrency = demo, 64
		eo.PerUserPerMinute = 0
	})
	tb := newProfile(t).open("")
	tb.before(`{ const real = fetch; window.looks = 0; window.fetch = (url, init) => { looks += String(url) === '/ops'; return real(url, init); }; }`)
	size(tb, 1200, false)
	tb.visit(r.url + "/ops")

	load, stop := context.WithCancel(t.Context())
	sent := make(chan int, 1)
	past := httptest.NewServer(r.handler) // the proxy of the rig keeps all that it sees
	t.Cleanup(past.Close)
	beside := server{t, r.proxy, past.URL}
	go func() { sent <- beside.load(load, *opsRate) }()
	tb.wait(rowsOf + ` === 50`)

	measure := func() (page, nodes float64, server uint64) {
		call(tb, heapprofiler.CollectGarbage, cdp.Empty{})
		u := call(tb, cdpruntime.GetHeapUsage, cdp.Empty{})
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return u.UsedSize, js[float64](tb, `document.querySelectorAll('main *').length`), m.HeapAlloc
	}
	// What is full after a fifth of the time stays so.
	first := time.NewTimer(*opsSoak / 5)
	end := time.NewTimer(*opsSoak)
	<-first.C
	page1, nodes1, server1 := measure()
	from := time.Now()
	looks1 := js[float64](tb, `looks`)
	<-end.C
	tb.wait(`looks > %v`, looks1) // a busy machine may need longer for one
	looks, took := js[float64](tb, `looks`)-looks1, time.Since(from)
	page2, nodes2, server2 := measure()
	stop()
	n := <-sent
	t.Logf("%d requests; %.1f looks a second; page %.1f to %.1f MB of JavaScript, %.0f to %.0f nodes; server %.1f to %.1f MB",
		n, looks/took.Seconds(), page1/1e6, page2/1e6, nodes1, nodes2, float64(server1)/1e6, float64(server2)/1e6)

	if looks > 2*took.Seconds()+2 {
		t.Errorf("%.0f looks in %s, want at most two a second", looks, took)
	}
	if rows := js[int](tb, rowsOf); rows != 50 {
		t.Errorf("%d rows, want 50", rows)
	}
	if nodes2 > nodes1*1.2 {
		t.Errorf("the page grew from %.0f nodes to %.0f", nodes1, nodes2)
	}
	if n := js[int](tb, `document.querySelectorAll('#conversations li').length`); n >= 250 {
		t.Errorf("%d conversations are listed beside it", n)
	}
	if page2 > page1*1.5+4e6 {
		t.Errorf("the page grew from %.0f bytes to %.0f", page1, page2)
	}
	if float64(server2) > float64(server1)*1.5+32e6 {
		t.Errorf("the server grew from %d bytes to %d", server1, server2)
	}
	until(t, "nothing is unfinished", func() bool {
		list, err := r.db.Unfinished(t.Context())
		return err == nil && len(list) == 0
	})
	checkFile(t, r.db, func(id string, attempts int) {
		if attempts != 1 {
			t.Errorf("request %s: %d attempts", id, attempts)
		}
	})
}

// load sends that many requests a second until ctx ends, each question twice, and
// returns how many were taken. A server that is slower gets fewer: no more wait at once
// than it has room for.
func (s *server) load(ctx context.Context, rate int) (taken int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	tick := time.NewTicker(2 * time.Second / time.Duration(rate))
	defer tick.Stop()
	session, waiting := "", make(chan struct{}, 100)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		select {
		case <-ctx.Done():
			wg.Wait()
			return taken
		case waiting <- struct{}{}:
		}
		if n%8 == 0 {
			session = chat.NewID()
		}
		body := fmt.Appendf(nil, `{"sessionId":%q,"requestId":%q,"content":"[[echo yes]] %d"}`, session, chat.NewID(), n)
		wg.Go(func() {
			defer func() { <-waiting }()
			for range 2 {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/api/chat", bytes.NewReader(body))
				if err != nil {
					s.t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					if ctx.Err() == nil {
						s.t.Error(err)
					}
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusAccepted {
					s.t.Errorf("got %d", res.StatusCode)
				}
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
}
