package browsertest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"semel/chat"
)

// X4: no page and no page of an error does what its policy forbids, for nobody, for the
// one user there is without accounts, for an admin and for a member. Those of the lab
// are looked at where it runs: every tab of these tests listens for violations.
func TestX4NoPageDoesWhatItsPolicyForbids(t *testing.T) {
	r, _ := actionRig(t)
	session, deleted := chat.NewID(), chat.NewID()
	id := r.ask(session, askToSign)
	r.ask(deleted, "[[echo gone]]")
	r.api("DELETE", "/api/conversations/"+deleted, nil, nil)
	var pages []string
	err := chi.Walk(r.handler.Handler.(chi.Routes), func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method != "GET" || strings.HasPrefix(pattern, "/api/") || strings.HasPrefix(pattern, "/static/") || strings.HasPrefix(pattern, "/lab") || pattern == "/healthz" || pattern == "/readyz" || pattern == "/metrics" {
			return nil
		}
		path := strings.NewReplacer("{sessionID}", session, "{requestID}", id).Replace(pattern)
		if strings.Contains(path, "{") {
			t.Errorf("the test knows no value for %s", pattern)
		}
		if strings.Contains(pattern, "{requestID}") {
			path += "?sessionId=" + session
		}
		pages = append(pages, path)
		return nil
	})
	if err != nil || len(pages) < 12 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	pages = append(pages, "/c/"+deleted, "/c/"+chat.NewID(), "/c/x", "/nothing", "/lab/nothing", "/ops/requests/x", "/settings?edit=nobody", "/ops/outbox?state=odd", "/?q=%3Cb%3E", "/setup?token=x")
	walk := func(tb *tab, sends bool) {
		t.Helper()
		tb.allow(lostRequests, `the server responded with a status of 4\d\d`)
		for _, path := range pages {
			tb.visit(r.url + path)
			tb.wait(`document.readyState === 'complete' && document.querySelector('main')`)
			tb.silent()
		}
		if !sends {
			return
		}
		// What is sent and refused is answered with a page, too.
		for _, to := range []string{"/settings", "/settings/models", "/c/" + session, "/c/" + session + "/act", "/c/" + session + "/manage", "/ops/outbox", "/admin/users", "/setup", "/language"} {
			js[any](tb, `void (window.stale = true, (() => { const f = document.createElement('form'); f.method = 'post'; f.action = '%s'; document.body.append(f); f.submit(); })())`, to)
			tb.wait(`!window.stale && document.readyState === 'complete' && document.body.childElementCount > 0`)
			tb.silent()
		}
	}
	walk(newProfile(t).open(""), true)
	r.account("ada", chat.RoleAdmin)
	r.account("eve", chat.RoleMember)
	walk(newProfile(t).open(""), false)
	for _, name := range []string{"ada", "eve"} {
		tb := newProfile(t).open(r.url + "/login")
		tb.signIn(name)
		walk(tb, name == "eve")
	}

	// What is forbidden would have been heard.
	tb := newProfile(t).open(r.url + "/login")
	for what, does := range map[string]string{
		"require-trusted-types-for": `document.body.insertAdjacentHTML('beforeend', '<i>x</i>')`,
		"img-src":                   `void (new Image().src = 'http://semel.test:1/x.png')`,
	} {
		_ = tb.eval(does, nil) // it may throw
		until(t, what+" is heard to be violated", func() bool {
			tb.mu.Lock()
			defer tb.mu.Unlock()
			for _, c := range tb.complaints {
				if strings.Contains(c, "policy violated: "+what) {
					return true
				}
			}
			return false
		})
	}
	tb.allow(".") // those of this page
}
