package outbox

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// A guard decides which addresses may be called. It looks at the very address that a
// connection is made to, so a name that resolves to another one the second time gains
// nothing.
type guard struct {
	allow []netip.Prefix
	// inClear: what is not encrypted goes only where an address is allowed by name.
	inClear bool
	// here: only to this machine.
	here bool
}

var errAddressRefused = errors.New("the address is not one that may be called")

// dial connects to an address like "host:port", as [net.Dialer.DialContext] does. The
// error is errAddressRefused where every address of the host is refused.
func (g guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout: 10 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(address)
			if err != nil || !g.allows(a.Addr()) {
				return errAddressRefused
			}
			return nil
		},
	}
	return d.DialContext(ctx, network, address)
}

// allows reports whether a may be called.
func (g guard) allows(a netip.Addr) bool {
	a = reached(a)
	if g.here && !a.IsLoopback() {
		return false
	}
	for _, p := range g.allow {
		if p.Contains(a) {
			return true
		}
	}
	return !g.inClear && isPublic(a)
}

// nat64 is where translators have the IPv4 internet (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// reached returns the address at which a packet to a ends: that of IPv4 where an
// IPv6 address stands for one.
func reached(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// isPublic reports whether a belongs to somebody on the internet. Of IPv6 that is
// 2000::/3, the only part that is given out.
func isPublic(a netip.Addr) bool {
	if a.Is6() && !global6.Contains(a) {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

var global6 = netip.MustParsePrefix("2000::/3")

// special are the ranges for other purposes (the registries of RFC 6890), and where
// machines of the clouds ask for their own secrets.
var special = func() []netip.Prefix {
	var list []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8",         // this machine
		"10.0.0.0/8",        // private
		"100.64.0.0/10",     // carriers; metadata of Alibaba Cloud
		"127.0.0.0/8",       // loopback
		"168.63.129.16/32",  // metadata of Azure
		"169.254.0.0/16",    // link-local; metadata of most clouds
		"172.16.0.0/12",     // private
		"192.0.0.0/24",      // protocols; metadata of Oracle Cloud
		"192.0.2.0/24",      // documentation
		"192.88.99.0/24",    // relays of 6to4
		"192.168.0.0/16",    // private
		"198.18.0.0/15",     // benchmarks
		"198.51.100.0/24",   // documentation
		"203.0.113.0/24",    // documentation
		"224.0.0.0/4",       // multicast
		"240.0.0.0/4",       // reserved, broadcast
		"2001::/23",         // protocols, Teredo among them, which has IPv4 inside
		"2001:db8::/32",     // documentation
		"2002::/16",         // 6to4, which has IPv4 inside
		"2620:4f:8000::/48", // AS112
		"3fff::/20",         // documentation
	} {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}()

// checkHost refuses a host of which the guard would refuse every address, as far as
// that can be seen without asking for names.
func (g guard) checkHost(host string) bool {
	if host == "localhost" {
		return g.allows(netip.MustParseAddr("127.0.0.1")) || g.allows(netip.IPv6Loopback())
	}
	a, err := netip.ParseAddr(host)
	return err != nil || g.allows(a)
}
