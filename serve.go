package main

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"semel/config"
	"semel/db"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
)

//go:embed schema.sql
var schema string

// serve runs the server until ctx ends, drains it and returns nil. When the
// database's disk fails, the process ends at once with exitIO.
func serve(ctx context.Context, cfg *config.Config, log *slog.Logger) (err error) {
	started := time.Now()
	if os.Getenv("GOGC") == "" {
		// The heap is a few megabytes and turns over with every answer: collecting
		// less often costs little memory and is a fifth of the work saved.
		debug.SetGCPercent(400)
	}
	// Taken before the database, so that a second server says which of the two is
	// in its way, and asked what address it really is.
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	defer listener.Close() // the server closes it too, on every other way out
	if err := config.LoopbackOnly(listener.Addr().String()); err != nil {
		return err
	}
	d, err := db.Open(db.Options{
		Path: cfg.DB, Schema: schema, Log: log,
		Fatal: func(err error) {
			log.Error("the database file failed; stopping at once: the next start decides what was stored", "error", err)
			os.Exit(exitIO)
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	e, err := engine.New(engine.Options{
		DB: d, Models: models(cfg), Log: log,
		Queue: cfg.Limits.Queue, PerUserPerMinute: cfg.Limits.PerUserPerMinute, Evidence: cfg.Retention.Evidence,
	})
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	h := handlers.New(handlers.Options{
		Engine: e, DB: d, Log: log,
		Language: cfg.Language, MessageBytes: int(cfg.Limits.MessageBytes), Currency: cfg.Billing.Currency,
	})
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		// Bodies and answers have deadlines of their own: a stream may be long.
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	log.Info("serving", "url", "http://"+listener.Addr().String(), "version", versionText(), "database", cfg.DB,
		"mode", "local user, loopback only", "ready_after", time.Since(started).Round(time.Millisecond).String())
	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping", "why", context.Cause(ctx).Error(), "drain", cfg.Server.Drain.String())
	}
	return errors.Join(err, shutdown(e, h, srv, cfg.Server.Drain))
}

// shutdown ends in this order: no new work, running answers until the time is up,
// then the streams, which come back to the next process, then the rest.
func shutdown(e *engine.Engine, h *handlers.Server, srv *http.Server, drain time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	e.Drain(ctx)
	h.Close()
	ctx, cancel = context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	err := srv.Shutdown(ctx)
	if err != nil {
		err = srv.Close()
	}
	// What the last ones were answered came after the loop that records it ended.
	return errors.Join(err, e.FlushArrivals(context.Background()))
}

// lastAnswers is how long answers that are on their way may take at the end.
const lastAnswers = 3 * time.Second

// models makes the configured models; config has refused providers that this
// version does not have.
func models(cfg *config.Config) []engine.Model {
	demo := llm.NewDemo()
	var list []engine.Model
	for _, m := range cfg.Models {
		list = append(list, engine.Model{
			Name: m.Name, Upstream: m.UpstreamModel, Client: demo, Price: m.Price, Context: m.Context,
			Rerun: m.OnUnknown == config.OnUnknownRerun, MaxAttempts: m.MaxAttempts, MaxCrashReruns: orNone(m.MaxCrashReruns),
			FirstTokenTimeout: m.FirstTokenTimeout, IdleTimeout: m.IdleTimeout, Concurrency: m.Concurrency,
		})
	}
	return list
}

// orNone says to the engine, for which 0 is the default, that a limit of 0 is
// meant.
func orNone(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}
