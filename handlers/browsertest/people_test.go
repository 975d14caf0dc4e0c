package browsertest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/handlers"
	"semel/password"
)

const goodPassword = "correct horse battery"

var goodHash = sync.OnceValue(func() string { return password.Hash(goodPassword) })

func (r *rig) account(name string, role chat.Role) int64 {
	r.t.Helper()
	id, err := r.db.AddAccount(r.t.Context(), db.NewAccount{Name: name, Role: role, Password: goodHash(), Actor: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// signIn fills the form of the sign-in page that the tab shows.
func (tb *tab) signIn(name string) {
	tb.t.Helper()
	tb.wait(`document.querySelector('#door-password')`)
	tb.fill("form[action='/login']", map[string]string{"name": name, "password": goodPassword})
	tb.click(".door .primary", 1)
	tb.wait(`document.querySelector('#out') && document.documentElement.classList.contains('js')`)
}

// B6: the login is over when Send is pressed. Text and id are kept, and sent under that
// id once the same person has signed in; nobody else's page sends it.
func TestB6AnExpiredLoginKeepsWhatWasSentAndGoesOn(t *testing.T) {
	r := newRig(t)
	ada := r.account("ada", chat.RoleAdmin)
	r.account("eve", chat.RoleMember)
	tb := newProfile(t).open(r.url+"/login").allow(lostRequests, "status of 401", "status of 404")
	tb.signIn("ada")
	first := tb.send("[[echo yes]] first")
	tb.marked(first, "answered")
	session := tb.session()
	if err := r.db.EndLogins(t.Context(), ada, nil); err != nil {
		t.Fatal(err)
	}
	second := tb.send("[[echo yes]] second")
	tb.marked(second, "kept")
	tb.wait(`[...document.querySelectorAll('a, button')].some((e) => e.textContent === 'Sign in' && e.checkVisibility())`)
	kept := js[[]string](tb, `Object.keys(localStorage).filter((k) => k.startsWith('semel.outbox.'))`)
	if len(kept) != 1 || !strings.HasSuffix(kept[0], second) {
		t.Fatalf("kept are %v, want %s", kept, second)
	}
	js[any](tb, `void [...document.querySelectorAll('a, button')].find((e) => e.textContent === 'Sign in' && e.checkVisibility()).click()`)
	tb.signIn("eve") // at the same machine
	if n := r.model.asked(second); n != 0 {
		t.Errorf("it was sent for another: %d calls", n)
	}
	tb.click("#out button", 1)
	tb.wait(`document.querySelector('#door-password')`)
	tb.visit(r.url + "/login?to=/c/" + session)
	tb.signIn("ada")
	tb.marked(second, "answered")
	if n := r.model.asked(second); n != 1 {
		t.Errorf("%d calls of the model, want one", n)
	}
	tb.wait(`Object.keys(localStorage).every((k) => !k.startsWith('semel.outbox.'))`)
	th, err := r.db.Thread(t.Context(), ada, session)
	if err != nil || len(th.Messages) != 4 {
		t.Errorf("%d messages, %v", len(th.Messages), err)
	}
}

// asked is how often the model was called for a request.
func (m *model) asked(id string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.calls {
		if c.RequestID == id {
			n++
		}
	}
	return n
}

// The pages about people in both languages, by day and by night, on a desk and on a
// phone, without a barrier: before there is an account, at the door, and behind it.
func TestPeopleFitEveryScreen(t *testing.T) {
	r := newRig(t, func(_ *engine.Options, o *handlers.Options) {
		o.Public, o.Fingerprint = true, strings.TrimSuffix(strings.Repeat("A7:", 32), ":")
	})
	tb := newProfile(t).open("").allow("status of 403", "status of 401", "status of 422")
	look := func(lang, name, path, do, ready string) {
		t.Helper()
		size(tb, 1200, false)
		tb.visit(r.url + path)
		tb.wait(`document.querySelector('main') && document.documentElement.lang === '%s'`, lang)
		if do != "" {
			js[any](tb, `void (() => {`+do+`})()`)
		}
		tb.wait(ready)
		for _, width := range []int{1200, 390, 320} {
			size(tb, width, width < 600)
			for _, scheme := range []string{"light", "dark"} {
				if width == 320 && scheme == "dark" {
					continue // colours make nothing wider
				}
				call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				full := fmt.Sprintf("people-%s-%s-%s-%d", name, lang, scheme, width)
				tb.fits(full, width)
				if width != 320 {
					tb.shoot(full)
				}
				if width != 390 {
					continue // the rules are about the same page
				}
				rules := colours
				if scheme == "light" {
					rules = everyRule
				}
				for _, b := range tb.barriers(rules) {
					t.Errorf("%s: %s", full, b)
				}
			}
		}
	}
	speak := func(lang, path string) {
		t.Helper()
		size(tb, 1200, false)
		tb.visit(r.url + path)
		if js[string](tb, `document.documentElement.lang`) != lang {
			tb.click(`.language button[value="`+lang+`"]`, 1)
			tb.wait(`document.documentElement.lang === '%s'`, lang)
		}
	}
	token := r.handler.Setup()
	for _, lang := range []string{"en", "zh-CN"} {
		speak(lang, "/")
		look(lang, "unset", "/", "", `document.querySelector('.door pre')`)
		look(lang, "setup", "/setup?token="+token, "", `document.querySelector('#door-again')`)
	}
	ada := r.account("ada", chat.RoleAdmin)
	for name, role := range map[string]chat.Role{"ben": chat.RoleOperator, "王小明": chat.RoleMember, "somebody-with-a-very-long-name-indeed-and-a-few-letters-more@example": chat.RoleMember} {
		id := r.account(name[:min(len(name), 64)], role)
		if role == chat.RoleMember && name != "王小明" {
			if err := r.db.Disable(t.Context(), id, "test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, k := range []string{"Backup script", "Dashboard"} {
		_, digest := chat.NewKey()
		if _, err := r.db.AddKey(t.Context(), db.Key{UserID: ada, Name: k, Scope: []chat.Scope{chat.ScopeChat, chat.ScopeOps}[i], Digest: digest}, "test"); err != nil {
			t.Fatal(err)
		}
	}
	for _, agent := range []string{"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Safari/604.1", "curl/8"} {
		if err := r.db.StartLogin(t.Context(), db.NewLogin{Digest: chat.DigestToken(agent), UserID: ada, Password: goodHash(), Agent: agent, Lasts: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	const wrong = `document.querySelector('#door-name').value = 'ada'; document.querySelector('#door-password').value = 'wrong'; document.querySelector('form[action="/login"]').requestSubmit()`
	for _, lang := range []string{"zh-CN", "en"} {
		speak(lang, "/login")
		look(lang, "login", "/login?to=/settings", "", `document.querySelector('#door-password')`)
		look(lang, "login-wrong", "/login?to=/settings", wrong, `document.querySelector('[role=alert]')`)
	}
	tb.signIn("ada")
	for _, lang := range []string{"en", "zh-CN"} {
		speak(lang, "/settings")
		look(lang, "account", "/settings", `document.querySelector('#account details').open = true; document.querySelector('#account').scrollIntoView()`, `document.querySelector('#account-again')`)
		look(lang, "key", "/settings", `document.querySelector('#key-name').value = 'x'; document.querySelector('#keys button[value=key]').click()`, `document.querySelector('.secret') && document.querySelector('#keys .verdict')`)
		look(lang, "users", "/admin/users", "", `document.querySelectorAll('[data-user]').length === 4`)
		look(lang, "users-open", "/admin/users", `for (const d of document.querySelectorAll('[data-user=ada] details')) d.open = true`, `document.querySelector('[data-user=ada] .danger').checkVisibility()`)
		look(lang, "users-role", "/admin/users", `document.querySelector('[data-user=ada] details').open = true`, `document.querySelector('[data-user=ada] select').checkVisibility()`)
	}
	tb.silent()
	if got := js[int](tb, `fetch('/ops').then((r) => r.status)`); got != http.StatusOK {
		t.Errorf("an admin gets %d of /ops", got)
	}
}
