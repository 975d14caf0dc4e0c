package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestWhereCloudsKeepSecretsIsNoPlaceOfAModel(t *testing.T) {
	for _, a := range []string{
		"169.254.169.254", "169.254.170.2", "169.254.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::1%eth0",
		"::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::169.254.169.254", "64:ff9b::a9fe:a9fe",
	} {
		if !IsMetadata(Reached(netip.MustParseAddr(a))) {
			t.Errorf("%s is taken for a place of a model", a)
		}
	}
	for _, a := range []string{"127.0.0.1", "::1", "10.0.0.1", "172.17.0.1", "192.168.1.20", "100.64.0.1", "100.100.100.199", "fd00::1", "169.253.255.255", "169.255.0.0", "1.1.1.1", "2606:4700::1111"} {
		if IsMetadata(Reached(netip.MustParseAddr(a))) {
			t.Errorf("a model at %s is refused", a)
		}
	}
}

// A name is nothing: what it leads to is judged, each time and each address.
func TestWhatANameLeadsToIsJudged(t *testing.T) {
	here, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	_, port, _ := net.SplitHostPort(here.Addr().String())
	var answers atomic.Pointer[[]string]
	d := Guarded(func(a netip.Addr) bool { return !IsMetadata(a) })
	d.Resolver = resolver(t, &answers)
	for _, tt := range []struct {
		what    string
		leads   []string
		refused bool
	}{
		{"this machine", []string{"127.0.0.1"}, false},
		{"the same name, the second time", []string{"169.254.169.254"}, true},
		{"a name with both", []string{"169.254.169.254", "127.0.0.1"}, false},
		{"a name with several", []string{"169.254.169.254", "100.100.100.200", "168.63.129.16"}, true},
	} {
		answers.Store(&tt.leads)
		c, err := d.DialContext(t.Context(), "tcp4", net.JoinHostPort("model.test.", port))
		switch {
		case errors.Is(err, ErrRefused) != tt.refused || !tt.refused && err != nil:
			t.Errorf("%s: %v", tt.what, err)
		case err == nil:
			c.Close()
		}
	}
}

// resolver is one whose server answers every name with the addresses of the moment.
func resolver(t *testing.T, answers *atomic.Pointer[[]string]) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { server.Close(); <-done })
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil {
				return
			}
			m.Response, m.Additionals = true, nil
			for _, q := range m.Questions {
				if q.Type != dnsmessage.TypeA {
					continue
				}
				for _, a := range *answers.Load() {
					m.Answers = append(m.Answers, dnsmessage.Resource{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()},
					})
				}
			}
			p, err := m.Pack()
			if err != nil {
				return
			}
			if _, err := server.WriteTo(p, from); err != nil {
				return
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}
