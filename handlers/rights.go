package handlers

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"semel/chat"
)

// A right says who may use a route once there are accounts.
type right struct {
	role  chat.Role  // "" is anybody, signed in or not
	scope chat.Scope // of a key; "" is for people alone
	// blind is a route that does not look who asks.
	blind bool
	// first is a route that answers before there is an account, on an address that
	// others can reach.
	first bool
}

var (
	nobodys   = right{blind: true, first: true}
	anyones   = right{}
	members   = right{role: chat.RoleMember, scope: chat.ScopeChat}
	peoples   = right{role: chat.RoleMember} // pages
	operators = right{role: chat.RoleOperator, scope: chat.ScopeOps}
	watchers  = right{role: chat.RoleOperator} // pages of operations
	admins    = right{role: chat.RoleAdmin}
)

// rights are those of every route of the tree in routes.go. A route without a line is
// for nobody who asks over a network, and a test says so.
var rights = map[string]right{
	"POST /callbacks/{webhookID}": nobodys, // believed by its signature
	"GET /healthz":                nobodys,
	"GET /readyz":                 nobodys,
	"GET /static/*":               nobodys,

	"POST /api/chat":                        members,
	"GET /api/chat/status/{requestID}":      members,
	"GET /api/chat/stream/{requestID}":      members,
	"POST /api/chat/stop/{requestID}":       members,
	"POST /api/chat/retry/{requestID}":      members,
	"GET /api/chat/receipt/{requestID}":     members,
	"POST /api/chat/decisions/{decisionID}": members,

	"POST /api/attachments":               members,
	"GET /api/attachments/{attachmentID}": members,

	"GET /api/conversations":                      members,
	"GET /api/conversations/export":               members,
	"POST /api/conversations/import":              members,
	"GET /api/conversations/{sessionID}":          members,
	"PATCH /api/conversations/{sessionID}":        members,
	"DELETE /api/conversations/{sessionID}":       members,
	"POST /api/conversations/{sessionID}/restore": members,
	"GET /api/conversations/{sessionID}/export":   members,

	"GET /api/models":     members,
	"GET /api/settings":   members,
	"PATCH /api/settings": members,
	"GET /api/events":     members,

	"GET /metrics":                                operators,
	"GET /api/ops/outbox":                         operators,
	"POST /api/ops/outbox/redrive":                operators,
	"POST /api/ops/outbox/{webhookID}/redrive":    operators,
	"POST /api/ops/outbox/{webhookID}/compensate": operators,
	"POST /api/ops/outbox/{webhookID}/abandon":    operators,
	"GET /api/ops/stats":                          operators,
	"GET /api/ops/requests/{requestID}":           operators,
	"POST /api/ops/requests/{requestID}/release":  operators,
	"GET /api/ops/audit":                          operators,
	"GET /api/ops/events":                         operators,
	"GET /api/ops/requests":                       operators,
	"POST /api/ops/verify":                        operators,
	"POST /api/ops/backup":                        operators,
	"GET /api/ops/spending":                       operators,
	"POST /api/ops/requests/{requestID}/refund":   operators,
	"POST /api/ops/requests/{requestID}/adjust":   operators,

	"GET /":                             peoples,
	"GET /c/{sessionID}":                peoples,
	"POST /c/{sessionID}":               peoples,
	"POST /c/{sessionID}/act":           peoples,
	"POST /c/{sessionID}/manage":        peoples,
	"GET /c/{sessionID}/r/{requestID}":  peoples,
	"POST /c/{sessionID}/setup":         peoples,
	"GET /settings":                     peoples,
	"POST /settings":                    peoples,
	"POST /settings/models":             peoples, // which model is one's own default; the rest is for admins, see postModels
	"POST /settings/account":            peoples,
	"GET /import":                       peoples,
	"POST /import":                      peoples,
	"POST /logout":                      peoples,
	"POST /language":                    {first: true},
	"GET /login":                        anyones,
	"POST /login":                       anyones,
	"GET /setup":                        {first: true},
	"POST /setup":                       {first: true},
	"GET /ops":                          watchers,
	"GET /ops/requests/{requestID}":     watchers,
	"POST /ops/requests/{requestID}":    watchers,
	"GET /ops/audit":                    watchers,
	"POST /ops/verify":                  watchers,
	"POST /ops/backup":                  watchers,
	"GET /ops/outbox":                   watchers,
	"POST /ops/outbox":                  watchers,
	"GET /lab":                          watchers, // it starts programs
	"GET /lab/naive":                    watchers,
	"GET /lab/{scenario}":               watchers,
	"POST /lab/runs":                    watchers,
	"GET /lab/runs/{runID}":             watchers,
	"POST /lab/runs/{runID}":            watchers,
	"GET /lab/runs/{runID}/events":      watchers,
	"GET /lab/runs/{runID}/report.json": watchers,
	"GET /admin/users":                  admins,
	"POST /admin/users":                 admins,
}

// noRole is nobody's: of routes without a line.
const noRole chat.Role = "nobody"

// leaves returns every route that the tree has.
func leaves(routes chi.Routes) map[string]bool {
	all := map[string]bool{}
	_ = chi.Walk(routes, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		all[method+" "+pattern] = true
		return nil
	})
	return all
}

// rightOf finds the line of a request's route, before the router does. What leads
// nowhere is for everybody who is signed in: they are told so.
func (s *server) rightOf(r *http.Request) right {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	route := method + " " + s.tree.Find(chi.NewRouteContext(), method, routePath(r))
	switch may, ok := s.rights[route]; {
	case ok:
		return may
	case s.leaves[route]:
		return right{role: noRole}
	}
	return peoples
}

// routePath is the path by which the router goes.
func routePath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	if r.URL.Path == "" {
		return "/"
	}
	return r.URL.Path
}

// wantsPage reports whether r is a person's, who should see a page.
func wantsPage(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") && !strings.HasPrefix(r.URL.Path, "/api/")
}
