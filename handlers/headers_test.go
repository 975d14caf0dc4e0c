package handlers

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"semel/views"
)

// FuzzHeaders: whatever a client writes into the headers that are read before anything
// else, there is an answer, and it stays within its bounds.
func FuzzHeaders(f *testing.F) {
	f.Add("wait=5", "text/event-stream", "zh-CN,en;q=0.5", "192.0.2.7, 127.0.0.1")
	f.Add(`respond-async, wait="120"`, "text/html,text/event-stream;q=0", "*;q=0.1", "[2001:db8::1]:443, ::ffff:127.0.0.1")
	f.Add("WAIT = 99999999999", "text/event-stream;q=nan", "en-US-u-va-posix", "unknown, 127.0.0.1%eth0,")
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s := &server{Options: Options{TrustedProxies: trusted}}
	f.Fuzz(func(t *testing.T, prefer, accept, language, forwarded string) {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
		r.RemoteAddr = "127.0.0.1:1234"
		r.Header.Set("Prefer", prefer)
		r.Header.Set("Accept", accept)
		r.Header.Set("X-Forwarded-For", forwarded)
		wait, there, err := preferWait(r)
		if wait < 0 || wait > longestWait || (err != nil || !there) && wait != 0 {
			t.Errorf("Prefer %q is %s, %t, %v", prefer, wait, there, err)
		}
		if wantsStream(r) && !strings.Contains(strings.ToLower(accept), "text/event-stream") {
			t.Errorf("Accept %q is a stream", accept)
		}
		if views.ChooseLocale("", "", language) == nil {
			t.Errorf("Accept-Language %q has no language", language)
		}
		ip := s.client(r)
		if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() {
			t.Errorf("X-Forwarded-For %q is %v", forwarded, ip)
		}
		// Who is not trusted says nothing.
		r.RemoteAddr = "192.0.2.1:1234"
		if ip := s.client(r); ip != netip.MustParseAddr("192.0.2.1") {
			t.Errorf("of a peer that is not trusted, X-Forwarded-For %q is %v", forwarded, ip)
		}
	})
}

// FuzzLocalPath: wherever a form wants to lead, it leads to a page of this server, as a
// browser understands it.
func FuzzLocalPath(f *testing.F) {
	for _, seed := range []string{"/", "/settings?x=1", "//host", `/\host`, "/%2f/host", "/\thost", "https://host", "/.//host", "/x/..//host", "/?//host", "javascript:x", "/%5chost", "///host"} {
		f.Add(seed)
	}
	base, err := url.Parse("http://localhost/here")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, to string) {
		path := localPath(to)
		// Browsers drop tabs and line ends, and take a backslash for a slash.
		seen := strings.NewReplacer("\t", "", "\n", "", "\r", "", `\`, "/").Replace(strings.TrimSpace(path))
		u, err := base.Parse(seen)
		if err != nil || u.Host != "localhost" || u.Scheme != "http" || !strings.HasPrefix(seen, "/") || strings.HasPrefix(seen, "//") {
			t.Errorf("%q leads to %q, which is %v, %v", to, path, u, err)
		}
	})
}
