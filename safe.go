package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"semel/catalog"
	"semel/chat"
	"semel/config"
	"semel/db"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
	"semel/ops"
	"semel/seal"
	"semel/upkeep"
)

// serveSafe lets people read a database that must not be written, or that does not start:
// its conversations, exports and operations, as far as its pages can be read. Nothing is
// recovered, delivered, swept, checked on a schedule, backed up or upgraded. Every page
// says why.
func serveSafe(ctx context.Context, cfg *config.Config, why string, log *slog.Logger) (err error) {
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	defer listener.Close() // the server closes it too, on every other way out
	public := !config.Loopback(listener.Addr().String())
	cert, err := openCertificate(cfg, log)
	if err != nil {
		return err
	}
	if _, err := os.Stat(cfg.DB); err != nil { // nothing is made here
		return err
	}
	d, err := db.Open(db.Options{
		Path: cfg.DB, Log: log, Safe: true,
		Fatal: func(error) {}, // what cannot be read is told to whoever asks for it
	})
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", cfg.DB, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	why = reason(ctx, d, why)
	transport, demo := llm.NewTransport(), llm.NewDemo()
	defer transport.Close()
	c, err := catalog.Open(ctx, catalog.Options{
		DB: d, Box: seal.At(d.Path() + ".key"), File: cfg.Models, Presets: presets(), Build: builder(transport, demo), Log: log,
	})
	if err != nil {
		return err
	}
	o := engine.Options{DB: d, Models: c.Models(), Log: log, Meter: ops.NewMeter()}
	monitor, err := ops.New(ctx, ops.Options{DB: d, Meter: o.Meter, Log: log, Version: versionText(), Currency: cfg.Billing.Currency})
	if err != nil {
		return err
	}
	if err := withEffects(&o, cfg); err != nil {
		return err
	}
	e, err := engine.New(o) // and never started
	if err != nil {
		return err
	}
	h := handlers.New(handlers.Options{
		Engine: e, DB: d, Catalog: c, Ops: monitor, Log: log, Safe: why,
		Language: cfg.Language, MessageBytes: int(cfg.Limits.MessageBytes), Currency: cfg.Billing.Currency,
		Public: public, Idle: cfg.Sessions.Idle, Absolute: cfg.Sessions.Absolute, TrustedProxies: cfg.Server.TrustedProxies,
		Strict:      cfg.Server.TLSCert != "",
		Attachments: chat.AttachmentLimits{Count: cfg.Limits.Attachments, Bytes: cfg.Limits.AttachmentBytes, Total: cfg.Limits.AttachedBytes},
	})
	srv, scheme, served := listen(h, listener, cert, log)
	log.Info("serving", "url", scheme+reachable(listener.Addr(), public), "version", versionText(), "database", cfg.DB, "mode", "safe, only read", "why", why)
	if err := notify("READY=1"); err != nil {
		log.Error("the service manager cannot be told that we are ready", "error", err)
	}
	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping", "why", context.Cause(ctx).Error())
	}
	return errors.Join(err, notify("STOPPING=1"), shutdown(e, h, srv, 0))
}

// reason adds to why what is known of the file: the note of a life that doubted it, or
// what a look at its structure finds.
func reason(ctx context.Context, d *db.DB, why string) string {
	if note, err := os.ReadFile(upkeep.SuspectPath(d.Path())); err == nil {
		return fmt.Sprintf("%s; %.200s", why, strings.TrimSpace(string(note)))
	}
	if err := d.QuickCheck(ctx); err != nil {
		return fmt.Sprintf("%s; %.200s", why, err)
	}
	return why
}
