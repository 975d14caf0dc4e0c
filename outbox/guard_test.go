package outbox

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"semel/dial"
)

func TestAddressesOfThisMachineAndOfPrivateNetworksAreRefused(t *testing.T) {
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1",
		"64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.1.2.3", "64:ff9b:1::1", "64:ff9b:1::808:808", "100::1", "fc00::1", "fd00:ec2::254",
		"fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "3fff::1", "5f00::1", "4000::1",
	} {
		if (guard{}).allows(netip.MustParseAddr(a)) {
			t.Errorf("%s may be called", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1",
		"223.255.255.255", "2606:4700::1111", "2001:4860:4860::8888", "2400:3200::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"} {
		if !(guard{}).allows(netip.MustParseAddr(a)) {
			t.Errorf("%s may not be called", a)
		}
		if (guard{inClear: true}).allows(netip.MustParseAddr(a)) {
			t.Errorf("%s may be called without encryption", a)
		}
	}
}

func TestAnAllowedAddressMayBeCalledInWhateverFormItIsWritten(t *testing.T) {
	allow := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("1.1.1.1/32")}
	for _, inClear := range []bool{false, true} {
		g := guard{allow: allow, inClear: inClear}
		for _, a := range []string{"127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.9.9.9", "fe80::1%eth0", "1.1.1.1"} {
			if !g.allows(netip.MustParseAddr(a)) {
				t.Errorf("%s is allowed and may not be called", a)
			}
		}
		for _, a := range []string{"10.0.0.1", "::1", "fd00::1", "169.254.169.254"} {
			if g.allows(netip.MustParseAddr(a)) {
				t.Errorf("%s is not allowed and may be called", a)
			}
		}
	}
	if (guard{allow: allow, here: true}).allows(netip.MustParseAddr("1.1.1.1")) {
		t.Error("another machine may be called where only this one may")
	}
}

// The address that is dialled is what counts, not the name it was found by. However a
// machine's resolver reads the odd forms, no connection is made.
func TestTheAddressIsJudgedWhenItIsDialled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{"localhost", "127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1"} {
		if c, err := (guard{}).dial(t.Context(), "tcp", net.JoinHostPort(host, port)); !errors.Is(err, dial.ErrRefused) {
			t.Errorf("%s: got %v, %v, want a refusal", host, c, err)
		}
	}
	for _, host := range []string{"127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost."} {
		if c, err := (guard{}).dial(t.Context(), "tcp", net.JoinHostPort(host, port)); err == nil {
			t.Errorf("%s: connected to %s", host, c.RemoteAddr())
		}
	}
	c, err := guard{allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}.dial(t.Context(), "tcp", net.JoinHostPort("localhost", port))
	if err != nil {
		t.Fatalf("allowed: %v", err)
	}
	c.Close()
}
