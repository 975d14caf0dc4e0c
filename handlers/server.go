// Package handlers is Semel over HTTP: the API, the streams and the pages.
//
// A handler returns an error; one table (errors.go) says how it is told. One
// goroutine writes to a response, and after the first byte of a stream the only
// error left is to hang up.
package handlers

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"semel/catalog"
	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/ops"
	"semel/password"
	"semel/upkeep"
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
	// Public says that others than this machine can reach the server. Without accounts it
	// then serves only the page that makes the first, to whoever has the link of Setup.
	Public bool
	// Idle and Absolute say how long one stays signed in: 12 hours without a request, a
	// week at the most, when 0.
	Idle, Absolute time.Duration
	RunningPerUser int            // answers that one user may have running at once, with accounts; 0 is no cap
	TrustedProxies []netip.Prefix // whose forwarded headers count
	Strict         bool           // browsers are to insist on TLS from now on
	Fingerprint    string         // of a certificate that this server made itself, "" for none
	// Room says how the disk is: low takes no files, full no questions. nil is neither.
	Room func() (low, full bool)
	// Safe, where it is not "", says why the database is only read: every change is refused,
	// and each page says so.
	Safe string
	// Keeper makes backups when somebody asks for one; nil makes none.
	Keeper *upkeep.Keeper
	// Hosts are names besides loopback ones that a browser may call this server by.
	Hosts []string
	// Lab, where it is not nil, is the lab of this server.
	Lab Lab
}

// A Server is the HTTP handler of the whole program.
type Server struct {
	http.Handler
	s *server
}

type server struct {
	Options
	tree     chi.Routes
	leaves   map[string]bool // all its routes
	rights   map[string]right
	replays  replays
	hasher   *password.Hasher
	seed     string // of the keys that forms make; ends with the process
	tickets  tickets
	link     setupLink
	accounts atomic.Bool   // there are some, for good
	closing  chan struct{} // closed when streams must end
	once     sync.Once

	importing sync.Mutex // held by the one import that runs
	labs      labRuns
	costs     costs
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
	if o.Idle == 0 {
		o.Idle = 12 * time.Hour
	}
	if o.Absolute == 0 {
		o.Absolute = 7 * 24 * time.Hour
	}
	s := &server{Options: o, closing: make(chan struct{}), hasher: password.NewHasher(), seed: chat.NewToken(), rights: rights}
	s.labs.lab, s.labs.log = o.Lab, o.Log
	return &Server{Handler: s.routes(), s: s}
}

// Close ends every stream and every waiting answer: their clients ask again. A run of
// the lab has ended when it returns.
func (s *Server) Close() {
	s.s.once.Do(func() {
		close(s.s.closing)
		s.s.tickets.close()
	})
	s.s.labs.close()
}
