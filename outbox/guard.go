package outbox

import (
	"context"
	"net"
	"net/netip"

	"semel/dial"
)

// A guard decides which addresses may be called, when they are dialled.
type guard struct {
	allow []netip.Prefix
	// inClear: what is not encrypted goes only where an address is allowed by name.
	inClear bool
	// here: only to this machine.
	here bool
}

// dial connects to an address like "host:port", as [net.Dialer.DialContext] does. The
// error is [dial.ErrRefused] where every address of the host is refused.
func (g guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dial.Guarded(g.allows).DialContext(ctx, network, address)
}

// allows reports whether a may be called.
func (g guard) allows(a netip.Addr) bool {
	a = dial.Reached(a)
	if g.here && !a.IsLoopback() {
		return false
	}
	for _, p := range g.allow {
		if p.Contains(a) {
			return true
		}
	}
	return !g.inClear && dial.IsPublic(a)
}

// checkHost refuses a host of which the guard would refuse every address, as far as
// that can be seen without asking for names.
func (g guard) checkHost(host string) bool {
	if host == "localhost" {
		return g.allows(netip.MustParseAddr("127.0.0.1")) || g.allows(netip.IPv6Loopback())
	}
	a, err := netip.ParseAddr(host)
	return err != nil || g.allows(a)
}
