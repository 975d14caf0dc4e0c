package browsertest

import (
	"context"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
)

var pictures = flag.String("pictures", "", "draw the pictures of the documentation into `DIR`")

// An actor answers what it has learnt, and stops in the middle of an answer that ends
// in "…".
type actor struct{ words map[string]string }

// Stream implements [llm.Client].
func (a actor) Stream(ctx context.Context, c llm.Call, emit func(llm.Piece)) (llm.Answer, error) {
	text := a.words[c.Turns[len(c.Turns)-1].Content]
	if text == "" {
		text = "Yes."
	}
	for word := range strings.SplitAfterSeq(text, " ") {
		emit(llm.Piece{Text: word})
	}
	if strings.HasSuffix(text, "…") {
		<-ctx.Done()
		return llm.Answer{}, ctx.Err()
	}
	return llm.Answer{Content: text, Finish: chat.FinishStop, Usage: chat.Usage{InputTokens: 412, OutputTokens: int64(len(text) / 4)}}, nil
}

const (
	askedSafe  = "How do I make a retry safe?"
	askedZh    = "幂等键应该由谁生成？"
	askedAgain = "And if the process dies in the middle?"
)

var part = actor{map[string]string{
	askedSafe: "Give the *intent* an id before the first try, and send the same id with every try. The receiver keeps the id and the result in **one transaction**:\n\n" +
		"```go\nfunc (s *Store) Once(id string, do func(*sql.Tx) error) error {\n\treturn s.tx(func(tx *sql.Tx) error {\n\t\tif seen, err := s.seen(tx, id); seen || err != nil {\n\t\t\treturn err // answered already: nothing runs twice\n\t\t}\n\t\treturn do(tx)\n\t})\n}\n```\n\n" +
		"| what happens | without an id | with one |\n|---|---|---|\n| the reply is lost | two orders | one order |\n| a double click | two orders | one order |\n| the same words on purpose | two orders | two orders |\n\nThe id is the identity of the intent, never its content.",
	askedAgain: "Then nobody knows whether the call was made, and the id must outlive the process. On the next start the receiver looks at what was on its way:\n\n1. Not sent yet: it is sent, under the same id.\n2. Sent, and the other side can be asked: it is asked.\n3. Sent, and it cannot: a person decides, because a second call may cost a second time. That is rare, and …",
	askedZh:    "由**发起意图的一方**生成，也就是用户点击“发送”的那一刻，在第一次网络请求之前。这样无论重试多少次，服务器看到的都是同一个标识：\n\n- 回复丢失：同一个标识，返回已有的回答；\n- 双击：同一个标识，只有一个问题；\n- 故意再问一次：新的标识，新的问题。\n\n```js\nconst requestId = ulid(serverNow());\noutbox.put({ requestId, content }); // 先存，后发\n```",
}}

// The pictures of the README and of docs/screens. They are drawn anew with
//
//	go test ./handlers/browsertest -run TestPictures -pictures "$PWD/docs/screens"
func TestPicturesOfTheDocumentation(t *testing.T) {
	if *pictures == "" {
		t.Skip("-pictures draws")
	}
	r := newRig(t, func(e *engine.Options, _ *handlers.Options) {
		e.Models[0].Client = part
		e.Models[0].Name = "small-model"
	})
	now := time.Now()
	for _, c := range []struct {
		title string
		back  time.Duration
	}{
		{"发票与退款规则", 50 * 24 * time.Hour}, {"Names for a boat", 20 * 24 * time.Hour}, {"Why is the sea salty?", 5 * 24 * time.Hour},
		{"A letter to the landlord", 4 * 24 * time.Hour}, {"周末去哪儿爬山", 26 * time.Hour}, {"Packing list for October", 25 * time.Hour},
	} {
		r.when(r.titled(c.title, c.title+"?"), now.Add(-c.back))
	}
	safe, zh := chat.NewID(), chat.NewID()
	r.ask(zh, askedZh)
	id := r.ask(safe, askedSafe)
	for range 2 { // a double click, and a lost reply
		if status := r.api(http.MethodPost, "/api/chat", map[string]string{"sessionId": safe, "requestId": id, "content": askedSafe}, nil); status != http.StatusOK {
			t.Fatalf("repeat: status %d", status)
		}
	}
	r.patch(zh, map[string]any{"seen": true})
	tb := newProfile(t).open("").allow(lostRequests)
	draw := func(name string, width, height int, scheme, lang, path string, do ...string) {
		t.Helper()
		call(tb, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: int64(width), Height: int64(height), DeviceScaleFactor: 2, Mobile: width < 600})
		call(tb, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: width < 600})
		call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		tb.visit(r.url + "/")
		if js[string](tb, `document.documentElement.lang`) != lang {
			js[any](tb, `void document.querySelector('.language button[value="%s"]').click()`, lang)
			tb.wait(`document.documentElement.lang === '%s'`, lang)
		}
		tb.visit("about:blank")
		tb.visit(r.url + path)
		tb.wait(`document.documentElement.classList.contains('js') || location.pathname.includes('/r/')`)
		for _, step := range do {
			if strings.HasPrefix(step, "wait ") {
				tb.wait("%s", step[5:])
				continue
			}
			js[any](tb, `void (`+step+`)`)
		}
		js[any](tb, `new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(resume)))`)
		quality := int64(80)
		picture := call(tb, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: &quality})
		if err := os.MkdirAll(*pictures, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*pictures, name+".webp"), picture.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const top = `scrollTo({top: 0, behavior: 'instant'})`
	draw("chat", 1200, 860, "light", "en", "/c/"+safe, top)
	draw("receipt", 1200, 860, "light", "en", "/c/"+safe, `document.querySelector('a.chip').click()`, `wait document.querySelector('dialog[open] .timeline')`)
	draw("chat-zh", 1200, 860, "dark", "zh-CN", "/c/"+zh, top)
	draw("settings", 1200, 860, "light", "en", "/settings")
	draw("search-phone", 390, 844, "light", "zh-CN", "/c/"+zh, `document.querySelector('.menu').click()`, `wait document.querySelector('#side').matches(':popover-open')`,
		`(document.querySelector('#q').value = '标识', document.querySelector('#q').dispatchEvent(new Event('input')))`, `wait document.querySelector('#conversations mark')`)
	draw("receipt-phone", 390, 844, "dark", "zh-CN", "/c/"+safe+"/r/"+id)

	// An answer on its way, and what waits behind it.
	call(tb, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{}) // its Enter breaks the line
	tb.visit(r.url + "/c/" + safe)
	tb.ready()
	running := tb.send(askedAgain)
	tb.marked(running, "answering")
	tb.queue("Who should be that person?")
	draw("answering-phone", 390, 844, "dark", "en", "/c/"+safe, `wait document.querySelector('.streaming .body')?.textContent.includes('rare')`, `wait document.querySelector('#queue li')`,
		`scrollTo({top: document.documentElement.scrollHeight, behavior: 'instant'})`)
	draw("answering", 1200, 860, "dark", "en", "/c/"+safe, `wait document.querySelector('.streaming .body')?.textContent.includes('rare')`, `wait document.querySelector('#queue li')`)
	tb.click("#queue [data-do=delete]", 1)
	tb.click("#stop", 1)
	tb.wait(`document.querySelector('[data-partial=stopped]')`)
}
