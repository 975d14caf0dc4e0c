// Package handlers is Semel over HTTP: the API, the streams and the pages.
//
// A handler returns an error; one table (errors.go) says how it is told. One
// goroutine writes to a response, and after the first byte of a stream the only
// error left is to hang up.
package handlers

import (
	"log/slog"
	"net/http"
	"sync"

	"semel/catalog"
	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/ops"
)

// Options say what a server serves. Engine, DB, Catalog and Ops are needed.
type Options struct {
	Engine       *engine.Engine
	DB           *db.DB
	Catalog      *catalog.Catalog // of the engine's models
	Ops          *ops.Monitor     // of the engine's meter
	Log          *slog.Logger
	Language     string                // "auto", "en" or "zh-CN"; "" is auto
	MessageBytes int                   // the longest question; 0 is 262144
	Currency     string                // of every amount; "" is USD
	Attachments  chat.AttachmentLimits // what is 0 is the default
	// Hosts are names besides loopback ones that a browser may call this server by.
	Hosts []string
}

// A Server is the HTTP handler of the whole program.
type Server struct {
	http.Handler
	s *server
}

type server struct {
	Options
	replays replays
	closing chan struct{} // closed when streams must end
	once    sync.Once

	importing sync.Mutex // held by the one import that runs
}

// New returns the handler.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MessageBytes == 0 {
		o.MessageBytes = 262144
	}
	o.Attachments = o.Attachments.Or(chat.DefaultAttachmentLimits)
	if o.Currency == "" {
		o.Currency = "USD"
	}
	if o.Language == "" {
		o.Language = "auto"
	}
	s := &server{Options: o, closing: make(chan struct{})}
	return &Server{Handler: s.routes(), s: s}
}

// Close ends every stream and every waiting answer: their clients ask again.
func (s *Server) Close() { s.s.once.Do(func() { close(s.s.closing) }) }

// user is who asks. Until accounts exist there is one.
func (s *server) user(*http.Request) int64 { return db.LocalUser }
