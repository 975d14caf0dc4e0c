package handlers

import (
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
