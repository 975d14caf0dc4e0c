package browsertest

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"semel/chat"
	"semel/outbox"
	"semel/sink"
)

// The page of semel sink: what is chosen there is what happens, in both languages, by
// day and by night, on a desk and on a phone, under its strict policy.
func TestTheSinksPageChoosesHowItBehavesAndFitsEveryScreen(t *testing.T) {
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 32)))
	s, err := sink.New(sink.Options{Secrets: []string{secret}, Behaviour: sink.DefaultBehaviour(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(func() { s.Close(); server.Close() })
	deliver := func(id string) outbox.Result {
		t.Helper()
		to, err := outbox.New(outbox.Target{Kind: outbox.KindWebhook, URL: server.URL + "/sign", Secrets: []string{secret}, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		if err != nil {
			t.Fatal(err)
		}
		payload := chat.ActionPayload(chat.Key{RequestID: chat.NewID(), SessionID: "s"}, "sign_contract", `{"title":"NDA"}`, time.Now())
		return to.Deliver(t.Context(), outbox.Message{WebhookID: id, At: time.Now(), Payload: []byte(payload)})
	}
	tb := newProfile(t).open(server.URL + "/?lang=zh-CN")
	tb.wait(`document.body.textContent.includes('还没有收到任何投递')`)
	tb.fits("sink-empty", 1200)
	js[any](tb, `(() => { document.querySelector('[name=answer]').value = 'fail'; document.querySelector('[name=times]').value = '2'; window.filled = true; document.querySelector('form').requestSubmit(); })()`)
	tb.wait(`!window.filled && document.readyState === 'complete' && document.documentElement.lang === 'zh-CN' && document.querySelector('[name=answer]').value === 'fail' && document.querySelector('[name=times]').value === '2'`)
	id := "msg_" + chat.NewID()
	for i, want := range []int{500, 500, 200} {
		if r := deliver(id); r.Status != want {
			t.Errorf("delivery %d: got %+v, want %d", i+1, r, want)
		}
	}
	deliver("msg_" + strings.Repeat("long", 40))
	for _, lang := range []string{"en", "zh-CN"} {
		tb.visit(server.URL + "/?lang=" + lang)
		tb.wait(`[...document.querySelectorAll('tbody tr')].some((r) => r.textContent.includes(%q) && r.cells[2].textContent === '3' && r.cells[3].textContent === '1')`, id)
		for _, width := range []int{1200, 390} {
			size(tb, width, width < 600)
			var backgrounds []string
			for _, scheme := range []string{"light", "dark"} {
				call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				name := fmt.Sprintf("sink-%s-%s-%d", lang, scheme, width)
				tb.fits(name, width)
				backgrounds = append(backgrounds, js[string](tb, `getComputedStyle(document.body).backgroundColor`))
				tb.shoot(name)
			}
			if backgrounds[0] == backgrounds[1] {
				t.Errorf("at %d px the page is %s by day and by night", width, backgrounds[0])
			}
		}
	}
}
