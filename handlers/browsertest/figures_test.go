package browsertest

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
)

var figures = flag.Bool("figures", false, "measure the page in the browser (docs/benchmarks.md)")

// timing notes the longest task of a page and its first paint.
const timing = `window.longest = 0;
	new PerformanceObserver((list) => { for (const e of list.getEntries()) longest = Math.max(longest, e.duration); }).observe({type: 'longtask', buffered: true});
	window.painted = () => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0;`

// longWait is wait for what takes minutes.
func (tb *tab) longWait(condition string) {
	tb.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		var holds bool
		if tb.eval("Boolean("+condition+")", &holds) == nil && holds {
			return
		}
		if time.Now().After(deadline) {
			tb.t.Fatalf("waited in vain until %s", condition)
		}
	}
}

// A coder writes a block of code, line by line.
type coder struct {
	lines int
	every time.Duration
}

// Stream implements [llm.Client].
func (c coder) Stream(ctx context.Context, _ llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	var text strings.Builder
	say := func(s string) { text.WriteString(s); emit(llm.Piece{Text: s}) }
	say("Here it is:\n\n```go\n")
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for n := range c.lines {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return llm.Answer{}, ctx.Err()
		}
		say(fmt.Sprintf("func line%d(a, b int) string { return \"number %d\" } // adds nothing\n", n, n))
	}
	say("```\n\nThat was it.\n")
	return llm.Answer{Content: text.String(), Finish: chat.FinishStop}, nil
}

// E4: a block of 3,000 lines, some fifteen hundred tokens a second. Reported, not
// asserted: the machine of a test has no promise to keep.
func TestFiguresOfALongBlockOfCode(t *testing.T) {
	if !*figures {
		t.Skip("-figures measures")
	}
	r := newRig(t, func(e *engine.Options, _ *handlers.Options) { e.Models[0].Client = coder{3000, 5 * time.Millisecond} })
	tb := newProfile(t).open("")
	tb.before(timing)
	tb.visit(r.url + "/")
	id := tb.send("Write much.")
	tb.longWait(`document.querySelector('#log > [data-role=user][data-request="` + id + `"] .mark[data-mark=answered]') && document.querySelector('a.chip')`)
	t.Logf("longest task while 3,000 lines came: %.0f ms; %d characters in %d elements", js[float64](tb, `longest`),
		js[int](tb, `document.querySelector('code').textContent.length`), js[int](tb, `document.querySelectorAll('#log *').length`))
	tb.reload()
	tb.wait(`document.querySelector('code') && document.documentElement.classList.contains('js')`)
	js[any](tb, `new Promise((resume) => setTimeout(resume, 500))`)
	t.Logf("opened again: first paint %.0f ms, longest task %.0f ms", js[float64](tb, `painted()`), js[float64](tb, `longest`))
}

// A conversation of 2,000 messages: opened, read upwards, and written to.
func TestFiguresOfALongConversation(t *testing.T) {
	if !*figures {
		t.Skip("-figures measures")
	}
	r := newRig(t, func(_ *engine.Options, h *handlers.Options) { h.MessageBytes = 100_000 })
	session := chat.NewID()
	for n := range 1000 {
		r.ask(session, fmt.Sprintf("[[echo Answer %d has **words**, `code` and a list:\n\n- one\n- two\n- three\n\n```go\nfunc f%d() string { return \"text\" }\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nAnd an end.]]", n, n))
	}
	tb := newProfile(t).open("")
	tb.before(timing)
	tb.visit(r.url + "/c/" + session)
	tb.wait(`document.documentElement.classList.contains('js') && painted() > 0`)
	t.Logf("opened: first byte %.0f ms, first paint %.0f ms, ready %.0f ms, longest task %.0f ms; %.0f kB of HTML",
		js[float64](tb, `performance.getEntriesByType('navigation')[0].responseStart`), js[float64](tb, `painted()`),
		js[float64](tb, `performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd`), js[float64](tb, `longest`),
		js[float64](tb, `performance.getEntriesByType('navigation')[0].encodedBodySize / 1000`))
	js[any](tb, `(longest = 0, window.dispatchEvent(new WheelEvent('wheel', {deltaY: -100})))`)
	tb.longWait(`(scrollTo({top: 0, behavior: 'instant'}), document.querySelectorAll('#log > article').length === 2000)`)
	t.Logf("read up to the first of 2,000 messages: longest task %.0f ms, %d elements", js[float64](tb, `longest`), js[int](tb, `document.querySelectorAll('#log *').length`))
	js[any](tb, `(longest = 0, scrollTo({top: document.documentElement.scrollHeight, behavior: 'instant'}))`)
	id := tb.send("[[tokens 300]] [[rate 200]] And now?")
	tb.marked(id, "answered")
	tb.numbered()
	t.Logf("another turn below 2,000 messages on screen: longest task %.0f ms", js[float64](tb, `longest`))
}
