package outbox

import (
	"net/netip"
	"strings"
	"testing"
)

// FuzzAddress: no address of this machine or of a private network is allowed, however it
// is written and whatever stands for it.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{
		"127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "10.0.0.1", "fe80::1%eth0", "fc00::1", "0.0.0.0", "::", "169.254.169.254",
		"2002:7f00:1::", "8.8.8.8", "2606:4700::1", "::127.0.0.1", "255.255.255.255", "100.64.0.1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := netip.ParseAddr(text)
		if err != nil || !(guard{}).allows(a) {
			return
		}
		inside := []netip.Addr{a.WithZone("").Unmap()}
		if b := a.As16(); a.Is6() && strings.HasPrefix(string(b[:]), "\x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00") {
			inside = append(inside, netip.AddrFrom4([4]byte(b[12:])))
		}
		for _, ip := range inside {
			if ip.IsLoopback() || ip.IsPrivate() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip.IsInterfaceLocalMulticast() {
				t.Errorf("%s is allowed, and is %s", text, ip)
			}
		}
		if (guard{here: true}).allows(a) || (guard{inClear: true}).allows(a) {
			t.Errorf("%s is allowed where only this machine is, or without encryption", text)
		}
	})
}

// FuzzTarget: whatever an operator writes as an address is a target or is refused, and
// what is told of it has no password.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"https://example.com/hook?a=1", "http://user:canary-word@example.com/", "https://[::1]:99999/", "https://exa mple", "//x", "https://user:canary-word@", "https://x/%zz", "https://127.1/", "https://0x7f000001/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		target := Target{Kind: KindWebhook, URL: url, Secrets: []string{"whsec_b25seSBmb3IgdGhlIHRlc3RzIG9mIGVmZmVjdHM="}}
		_, err := New(target)
		said := target.String()
		if err != nil {
			said += err.Error()
		}
		if user, rest, ok := strings.Cut(url, "canary-word@"); ok && strings.HasSuffix(user, ":") && strings.Contains(rest, ".") && strings.Contains(said, "canary-word") {
			t.Errorf("%q is told as %q", url, said)
		}
		if strings.Contains(said, "b25seSBmb3I") {
			t.Errorf("a secret is told: %q", said)
		}
	})
}
