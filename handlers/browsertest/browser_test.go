package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var (
	screens = flag.String("screens", "", "write screenshots into `DIR`")
	// Only what never comes true takes so long, on a machine that has ten other things to do.
	patience = flag.Duration("patience", 2*time.Minute, "how long a condition may take to come true")
	slow     = flag.Float64("slow", 1, "make every page `N` times slower, to find what depends on its speed")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests mostly wait: more of them than there are processors are in hand.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("4")
	}
	code := m.Run()
	stopBrowser()
	removeBinary()
	os.Exit(code)
}

// The browser

// browsers is where Chromium is looked for; .ci/need knows the same names.
var browsers = []string{
	"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
	"/Applications/Chromium.app/Contents/MacOS/Chromium",
	"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	`C:\Program Files\Google\Chrome\Application\chrome.exe`,
}

var stopBrowser = func() {}

// browser is the one browser of this test binary. Each test gets a profile of
// its own in it: no cookie and no storage is shared.
var browser = sync.OnceValues(func() (context.Context, error) {
	path := ""
	for _, name := range browsers {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		return nil, fmt.Errorf("the browser tests need Chromium or Chrome and found none of %s (Debian: apt-get install chromium)",
			strings.Join(browsers, ", "))
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.DisableGPU,
		chromedp.WindowSize(1200, 900),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("lang", "en"),
		// A name that is no trustworthy origin: plain http, and not localhost.
		chromedp.Flag("host-resolver-rules", "MAP semel.test 127.0.0.1"),
	)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stop := chromedp.NewContext(allocator)
	stopBrowser = func() {
		stop()
		stopAllocator()
	}
	if err := chromedp.Do(ctx); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return ctx, nil
})

// A profile is a browser as one person has it: its tabs share cookies and
// storage.
type profile struct {
	t   *testing.T
	ctx context.Context // of its first tab; the others are its children
}

func newProfile(t *testing.T) *profile {
	t.Helper()
	if _, err := browser(); err != nil {
		t.Fatal(err)
	}
	return &profile{t: t}
}

// A tab is one page. Its methods fail the test; they belong to one goroutine.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string         // under mu; what the console said that it should not
	allowed    []*regexp.Regexp // under mu
}

// clipboard is locked by who pastes what they copied, and read-locked by who only copies
// and by profiles that go: the browser has one for all its profiles, and empties it with
// each.
var clipboard sync.RWMutex

// open opens a tab and, unless url is "", goes there.
func (p *profile) open(url string) *tab {
	p.t.Helper()
	tb := &tab{t: p.t}
	opts := []chromedp.ContextOption{chromedp.WithListener(tb.hear)}
	parent := p.ctx
	if parent == nil {
		parent, _ = browser()
		opts = append(opts, chromedp.WithNewBrowserContext())
	}
	ctx, cancel := chromedp.NewContext(parent, opts...)
	tb.ctx = ctx
	if p.ctx == nil {
		p.ctx = ctx
	}
	p.t.Cleanup(func() {
		tb.t.Helper()
		if tb.t.Failed() {
			tb.dump()
		}
		tb.silent()
		clipboard.RLock()
		defer clipboard.RUnlock()
		cancel()
	})
	tb.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	}))
	if *slow > 1 {
		call(tb, emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{Rate: *slow})
	}
	tb.before(`addEventListener('securitypolicyviolation', (e) => console.error('policy violated: ' + e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sample))`)
	if url != "" {
		tb.visit(url)
	}
	return tb
}

// hear collects what a page of ours must never say.
func (tb *tab) hear(ev any) {
	say := ""
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		say = "exception: " + ev.ExceptionDetails.Text
		if e := ev.ExceptionDetails.Exception; e != nil {
			say += " " + e.Description
		}
	case *runtime.EventConsoleAPICalled:
		if ev.Type != "error" && ev.Type != "warning" && ev.Type != "assert" {
			return
		}
		say = "console." + string(ev.Type)
		for _, a := range ev.Args {
			say += " " + string(a.Value) + a.Description
		}
	case *log.EventEntryAdded:
		if ev.Entry.Level != "error" && ev.Entry.Level != "warning" {
			return
		}
		say = fmt.Sprintf("%s %s: %s %s", ev.Entry.Source, ev.Entry.Level, ev.Entry.Text, ev.Entry.URL)
	case *page.EventJavascriptDialogOpening:
		say = "dialog: " + ev.Message
	default:
		return
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.complaints = append(tb.complaints, say)
}

// allow names console messages that this test provokes, by regular expressions of
// their parts. Browsers note every request that fails.
func (tb *tab) allow(parts ...string) *tab {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, p := range parts {
		tb.allowed = append(tb.allowed, regexp.MustCompile(p))
	}
	return tb
}

const (
	lostRequests = "Failed to load resource: net::ERR_"
	failedReply  = `the server responded with a status of (422|50[234])` // a failure that was quicker than the reply
)

// silent fails the test when the page complained.
func (tb *tab) silent() {
	tb.t.Helper()
	tb.mu.Lock()
	defer tb.mu.Unlock()
next:
	for _, c := range tb.complaints {
		for _, part := range tb.allowed {
			if part.MatchString(c) {
				continue next
			}
		}
		tb.t.Errorf("the page complained: %s", c)
	}
	tb.complaints = nil
}

// dump says what the page looks like when a test failed.
func (tb *tab) dump() {
	var state string
	if err := tb.eval(`JSON.stringify({url: location.href, notice: document.querySelector('#notice')?.textContent.trim(),
		articles: [...document.querySelectorAll('#log > article')].map((a) => [a.dataset.role, a.dataset.request, a.dataset.state,
			a.querySelector('.mark')?.dataset.mark, a.querySelector('.body').textContent.slice(0, 80)].join(' | ')),
		storage: Object.keys(localStorage)}, null, 1)`, &state); err != nil {
		state = err.Error()
	}
	tb.t.Logf("the page: %s", state)
	tb.shoot("failed-" + strings.ReplaceAll(tb.t.Name(), "/", "-"))
}

// shoot writes a screenshot when -screens is given.
func (tb *tab) shoot(name string) {
	if *screens == "" {
		return
	}
	png, err := chromedp.Run(tb.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.MkdirAll(*screens, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(*screens, name+".png"), png, 0o644)
	}
	if err != nil {
		tb.t.Errorf("screenshot %s: %v", name, err)
	}
}

// Acting

func (tb *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	if err := chromedp.Do(tb.ctx, steps...); err != nil {
		tb.t.Fatalf("browser: %v", err)
	}
}

// call sends one command of the protocol.
func call[P, R any](tb *tab, cmd cdp.Command[P, R], params P) R {
	tb.t.Helper()
	res, err := chromedp.Call(tb.ctx, cmd, params)
	if err != nil {
		tb.t.Fatalf("%s: %v", cmd.Method, err)
	}
	return res
}

func (tb *tab) visit(url string) {
	tb.t.Helper()
	tb.leave(chromedp.Navigate(url))
}

func (tb *tab) reload() {
	tb.t.Helper()
	tb.leave(chromedp.Reload())
}

// leave goes to another document and returns when that is there. The protocol takes an
// address that a page gives itself for the end of a navigation, so the page that is left
// could answer for the new one, and the new one before its scripts are at work.
func (tb *tab) leave(step chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	tb.eval(`window.stale = true`, nil)
	tb.do(step)
	tb.wait(`!window.stale`)
}

// before runs js in every document the tab will load, before its own scripts.
func (tb *tab) before(js string) {
	tb.t.Helper()
	call(tb, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: js})
}

// eval evaluates js in the page and decodes its value.
func (tb *tab) eval(js string, into any) error {
	ctx, cancel := context.WithTimeout(tb.ctx, *patience)
	defer cancel()
	res, err := chromedp.Call(ctx, runtime.Evaluate, runtime.EvaluateParams{Expression: js, ReturnByValue: new(true), AwaitPromise: new(true), UserGesture: new(true)})
	if err != nil {
		return err
	}
	if d := res.ExceptionDetails; d != nil {
		if d.Exception != nil {
			return errors.New(d.Exception.Description)
		}
		return errors.New(d.Text)
	}
	if into == nil || len(res.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(res.Result.Value, into)
}

// js evaluates an expression in the page.
func js[T any](tb *tab, expression string, args ...any) (v T) {
	tb.t.Helper()
	if len(args) > 0 {
		expression = fmt.Sprintf(expression, args...)
	}
	if err := tb.eval(expression, &v); err != nil {
		tb.t.Fatalf("evaluate %s: %v", expression, err)
	}
	return v
}

// until waits for a condition, wherever it is.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(*patience); ; time.Sleep(25 * time.Millisecond) {
		if holds() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain until %s", *patience, what)
		}
	}
}

// wait waits until a JavaScript condition holds in the page. A page that is being
// replaced has no conditions yet, nor has one that is not there as a whole: its scripts
// are not at work, and what stands further down is missing.
func (tb *tab) wait(condition string, args ...any) {
	tb.t.Helper()
	if len(args) > 0 {
		condition = fmt.Sprintf(condition, args...)
	}
	until(tb.t, condition, func() bool {
		var holds bool
		return tb.eval("document.readyState === 'complete' && Boolean("+condition+")", &holds) == nil && holds
	})
}

// none waits until a JavaScript expression is an empty list, and says what is in it when
// it never is: what moves may be in the wrong place on its way. Who has failed already
// looks once.
func (tb *tab) none(list string, args ...any) (left []string) {
	tb.t.Helper()
	for deadline := time.Now().Add(*patience); ; time.Sleep(25 * time.Millisecond) {
		left = js[[]string](tb, list, args...)
		if len(left) == 0 || tb.t.Failed() || time.Now().After(deadline) {
			return left
		}
	}
}

// typeText puts text into the composer as an input method would.
func (tb *tab) typeText(text string) {
	tb.t.Helper()
	tb.eval(`document.querySelector('#text').focus()`, nil)
	call(tb, input.InsertText, input.InsertTextParams{Text: text})
}

// key presses and releases a key.
func (tb *tab) key(key string, code int64, text string) {
	tb.t.Helper()
	for _, typ := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		p := input.DispatchKeyEventParams{Type: typ, Key: key, Code: key, WindowsVirtualKeyCode: code}
		if typ == input.DispatchKeyEventTypeKeyDown {
			p.Text = text
		}
		call(tb, input.DispatchKeyEvent, p)
	}
}

func (tb *tab) enter() { tb.t.Helper(); tb.key("Enter", 13, "\r") }

// click clicks what a CSS selector finds, times times, as a mouse does.
func (tb *tab) click(selector string, times int) {
	tb.t.Helper()
	at := tb.center(selector)
	for n := range times {
		for _, typ := range []input.DispatchMouseEventType{input.DispatchMouseEventTypeMousePressed, input.DispatchMouseEventTypeMouseReleased} {
			tb.mouse(typ, at, n+1)
		}
	}
}

// handed holds back what a page does a moment after a click, until settle() is called in
// it: between the two clicks of a test a busy machine may take longer than any hand.
func (tb *tab) handed() *tab {
	tb.t.Helper()
	tb.before(`{ const set = setTimeout; window.settle = () => {};
		window.setTimeout = (f, ms, ...a) => ms === 800 || ms === 1500 ? (window.settle = f, 0) : set(f, ms, ...a); }`)
	return tb
}

// clickTwice clicks what posts a form, and again before a reply can be there.
func (s *server) clickTwice(tb *tab, selector string) {
	s.t.Helper()
	late := make(chan struct{})
	s.proxy.do(func(e exchange) fault {
		if e.Method != http.MethodPost {
			return fault{}
		}
		return fault{Late: late}
	})
	tb.click(selector, 2)
	s.proxy.do(nil)
	close(late)
}

// mouse is one half of the nth click at a point.
func (tb *tab) mouse(half input.DispatchMouseEventType, at point, nth int) {
	tb.t.Helper()
	call(tb, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: half, X: at.X, Y: at.Y, Button: input.MouseButtonLeft, ClickCount: int64(nth)})
}

type point struct{ X, Y float64 }

// center waits until the element is visible, on top and at rest, and returns its middle.
func (tb *tab) center(selector string) (at point) {
	tb.t.Helper()
	quoted, _ := json.Marshal(selector)
	until(tb.t, selector+" can be clicked", func() bool {
		before := at
		at = point{}
		err := tb.eval(fmt.Sprintf(`(() => {
			const e = document.querySelector(%s);
			if (!e) return {};
			e.scrollIntoView({block: 'center', behavior: 'instant'});
			const r = e.getBoundingClientRect();
			const at = {X: r.x + r.width / 2, Y: r.y + r.height / 2};
			const top = document.elementFromPoint(at.X, at.Y);
			return r.width && top && (e === top || e.contains(top)) ? at : {};
		})()`, quoted), &at)
		return err == nil && at != point{} && at == before
	})
	return at
}

// send types a question and presses Enter; it returns the request id that the
// page gave it.
func (tb *tab) send(text string) string {
	tb.t.Helper()
	js[any](tb, `void (window.asked = new Set([...document.querySelectorAll('#log > [data-role=user]')].map((a) => a.dataset.request)))`)
	tb.typeText(text)
	tb.enter()
	// Another tab's question may come at the same moment.
	quoted, _ := json.Marshal(strings.TrimSpace(text))
	mine := fmt.Sprintf(`[...document.querySelectorAll('#log > [data-role=user]')].find((a) => !asked.has(a.dataset.request) && a.querySelector('.body').textContent.trim() === %s)`, quoted)
	tb.wait("%s", mine)
	return js[string](tb, "%s.dataset.request", mine)
}

// marked waits until the question of a request carries a delivery mark.
func (tb *tab) marked(id, mark string) {
	tb.t.Helper()
	tb.wait(`document.querySelector('#log > [data-role=user][data-request="%s"] .mark[data-mark=%s]')`, id, mark)
}

// text returns what the answer of a request shows, "" where there is none.
func (tb *tab) text(id string) string {
	tb.t.Helper()
	return js[string](tb, `document.querySelector('#log > [data-role=assistant][data-request="%s"] .body')?.textContent ?? ''`, id)
}

// grown waits until the answer of a request shows at least n characters.
func (tb *tab) grown(id string, n int) {
	tb.t.Helper()
	tb.wait(`(document.querySelector('#log > [data-role=assistant][data-request="%s"] .body')?.textContent ?? '').length >= %d`, id, n)
}

// session returns the conversation that the page shows.
func (tb *tab) session() string {
	tb.t.Helper()
	return js[string](tb, `document.body.dataset.session`)
}

// offline takes the network away from this tab, and gives it back.
func (tb *tab) offline(offline bool) {
	tb.t.Helper()
	call(tb, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1}},
	})
	call(tb, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1})
}

// Reading

// An article is a message as the page shows it.
type article struct {
	Role, Request, Seq, State, Mark, Partial, Text, HTML string
	Streaming                                            bool
}

func (tb *tab) articles() ([]article, error) {
	var list []article
	err := tb.eval(`[...document.querySelectorAll('#log > article')].map((a) => {
		const body = a.querySelector('.body').cloneNode(true);
		for (const button of body.querySelectorAll('.copy')) button.remove(); // ours, not the message's
		return {
		Role: a.dataset.role, Request: a.dataset.request, Seq: a.dataset.seq ?? '', State: a.dataset.state ?? '',
		Mark: a.querySelector('.mark')?.dataset.mark ?? '', Partial: a.querySelector('[data-partial]')?.dataset.partial ?? '',
		Text: body.textContent, HTML: body.innerHTML, Streaming: a.classList.contains('streaming')};
	})`, &list)
	return list, err
}
