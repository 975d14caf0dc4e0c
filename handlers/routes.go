package handlers

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"semel/db"
	"semel/static"
)

// routes is every URL there is. Who may use which says the table in rights.go: a new
// one needs a line there.
func (s *server) routes() http.Handler {
	r := chi.NewRouter()
	s.tree = r
	r.Use(s.trace, s.patience, s.recovered, s.headers, s.brief, s.unpacked, middleware.GetHead)
	r.With(s.readOnly).Post("/callbacks/{webhookID}", s.handle(s.postCallback)) // believed by its signature, wherever it comes from
	r.Group(s.here)
	s.leaves = leaves(r)
	return r
}

// here is what serves people and their programs.
func (s *server) here(r chi.Router) {
	r.Use(s.guard, s.sameOrigin, s.readOnly)

	r.Get("/healthz", s.handle(s.healthz))
	r.Get("/readyz", s.handle(s.readyz))
	r.Get("/metrics", s.handle(s.getMetrics))

	r.Route("/api", func(r chi.Router) {
		r.Post("/chat", s.handle(s.postChat))
		r.Get("/chat/status/{requestID}", s.handle(s.getStatus))
		r.Get("/chat/stream/{requestID}", s.handle(s.getStream))
		r.Post("/chat/stop/{requestID}", s.handle(s.postStop))
		r.Post("/chat/retry/{requestID}", s.handle(s.postRetry))
		r.Get("/chat/receipt/{requestID}", s.handle(s.getReceipt))
		r.Post("/chat/decisions/{decisionID}", s.handle(s.postDecision))

		r.Post("/attachments", s.handle(s.postAttachment))
		r.Get("/attachments/{attachmentID}", s.handle(s.getAttachment))

		r.Get("/conversations", s.handle(s.listConversations))
		r.Get("/conversations/export", s.handle(s.exportAll))
		r.Post("/conversations/import", s.handle(s.postImport))
		r.Get("/conversations/{sessionID}", s.handle(s.getConversation))
		r.Patch("/conversations/{sessionID}", s.handle(s.patchConversation))
		r.Delete("/conversations/{sessionID}", s.handle(s.deleteConversation))
		r.Post("/conversations/{sessionID}/restore", s.handle(s.restoreConversation))
		r.Get("/conversations/{sessionID}/export", s.handle(s.exportConversation))

		r.Get("/models", s.handle(s.listModels))
		r.Get("/settings", s.handle(s.getSettings))
		r.Patch("/settings", s.handle(s.patchSettings))
		r.Get("/events", s.handle(s.getEvents))

		r.Get("/ops/outbox", s.handle(s.listOutbox))
		r.Post("/ops/outbox/redrive", s.handle(s.postRedrive))
		r.Post("/ops/outbox/{webhookID}/redrive", s.handle(s.resolve(db.Redrive)))
		r.Post("/ops/outbox/{webhookID}/compensate", s.handle(s.resolve(db.Compensate)))
		r.Post("/ops/outbox/{webhookID}/abandon", s.handle(s.resolve(db.Abandon)))
		r.Get("/ops/requests", s.handle(s.listRequests))
		r.Get("/ops/stats", s.handle(s.getStats))
		r.Get("/ops/requests/{requestID}", s.handle(s.getOpsRequest))
		r.Post("/ops/requests/{requestID}/release", s.handle(s.postRelease))
		r.Get("/ops/audit", s.handle(s.listAudit))
		r.Get("/ops/events", s.handle(s.getOpsEvents))
		r.Post("/ops/verify", s.handle(s.postVerify))
		r.Post("/ops/backup", s.handle(s.postBackup))
		r.Get("/ops/spending", s.handle(s.getSpending))
		r.Post("/ops/requests/{requestID}/refund", s.handle(s.correct("refund")))
		r.Post("/ops/requests/{requestID}/adjust", s.handle(s.correct("adjustment")))
	})

	r.Method(http.MethodGet, "/static/*", static.Handler(http.HandlerFunc(s.notFound)))
	s.pages(r)

	r.NotFound(s.notFound)
	r.MethodNotAllowed(s.handle(methodNotAllowed))
}
