package handlers

import (
	"maps"
	"net/http"
	"net/netip"

	"semel/chat"
)

// Rights are the routes that have one.
func Rights() map[string]bool {
	all := map[string]bool{}
	for name := range rights {
		all[name] = true
	}
	return all
}

// RightOf is who may use a route, and with what key.
func RightOf(route string) (chat.Role, chat.Scope) { return rights[route].role, rights[route].scope }

// Client is the address that r came from where those proxies are trusted.
func Client(r *http.Request, trusted ...netip.Prefix) netip.Addr {
	return (&server{Options: Options{TrustedProxies: trusted}}).client(r)
}

// ForgetRight takes the line of a route away from one server.
func (s *Server) ForgetRight(route string) {
	s.s.rights = maps.Clone(s.s.rights)
	delete(s.s.rights, route)
}

// Tickets are those of a server that serves nobody.
type Tickets struct{ t tickets }

// Granted adds a ticket and grants it at once.
func (t *Tickets) Granted() bool {
	k := &ticket{}
	t.t.add(k, func() {})
	defer t.t.close()
	return t.t.grant(k, localGuest)
}

// GrantedAfterALook grants one that everybody was looked at after it was added.
func (t *Tickets) GrantedAfterALook() bool {
	k := &ticket{}
	t.t.add(k, func() {})
	t.t.granted()
	return t.t.grant(k, localGuest)
}
