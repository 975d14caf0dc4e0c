// Package dial says which addresses are whose, and has the very address judged that a
// connection is made to: a name that leads elsewhere the second time gains nothing.
package dial

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// ErrRefused: every address of a host was refused.
var ErrRefused = errors.New("the address is not one that may be called")

// Guarded returns a dialer that calls only what allows allows. It is asked with each
// address, as [Reached] has it, when it is dialled. Where a host has several, those that are
// refused are passed over.
func Guarded(allows func(netip.Addr) bool) *net.Dialer {
	return &net.Dialer{
		Timeout: 10 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(address)
			if err != nil || !allows(Reached(a.Addr())) {
				return ErrRefused
			}
			return nil
		},
	}
}

// nat64 is where translators have the IPv4 internet (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Reached returns the address at which a packet to a ends: that of IPv4 where an
// IPv6 address stands for one.
func Reached(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// IsPublic reports whether an address that is reached belongs to somebody on the
// internet. Of IPv6 that is 2000::/3, the only part that is given out.
func IsPublic(a netip.Addr) bool { return !(a.Is6() && !global6.Contains(a)) && !in(special, a) }

// IsMetadata reports whether at an address that is reached a machine of a cloud asks for
// its own secrets, or only the neighbours of a line reach each other, which is
// where most clouds have theirs.
func IsMetadata(a netip.Addr) bool { return in(metadata, a) }

func in(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

var global6 = netip.MustParsePrefix("2000::/3")

// special are the ranges for other purposes (the registries of RFC 6890), and where
// machines of the clouds ask for their own secrets.
var special = prefixes(
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
)

var metadata = prefixes(
	"100.100.100.200/32", // Alibaba Cloud
	"168.63.129.16/32",   // Azure
	"169.254.0.0/16",     // link-local; most clouds
	"192.0.0.192/32",     // Oracle Cloud
	"fd00:ec2::/32",      // Amazon
	"fd20:ce::254/128",   // Google
	"fe80::/10",          // link-local
)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}
