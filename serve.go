package main

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

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
	public := !config.Loopback(listener.Addr().String())
	cert, err := openCertificate(cfg, log)
	if err != nil {
		return err
	}
	d, err := open(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	keeper := upkeep.New(upkeep.Options{
		DB: d, Log: log, Every: cfg.Backup.Every, Directory: upkeep.Directory(d.Path(), cfg.Backup.Directory),
		Keep: upkeep.Keep{Newest: cfg.Backup.Keep, Weekly: cfg.Backup.Weekly, Monthly: cfg.Backup.Monthly}, For: cfg.Backup.EncryptTo,
		Ballast: cfg.Disk.Ballast, CheckEvery: time.Hour,
	})
	transport, demo := llm.NewTransport(), llm.NewDemo()
	defer transport.Close()
	c, err := catalog.Open(ctx, catalog.Options{
		DB: d, Box: seal.At(d.Path() + ".key"), File: cfg.Models, Presets: presets(), Build: builder(transport, demo), Log: log,
	})
	if err != nil {
		return err
	}
	o := engine.Options{
		DB: d, Models: c.Models(), Log: log, Meter: ops.NewMeter(),
		Full:  func() bool { return keeper.Disk().Full },
		Queue: cfg.Limits.Queue, PerUserPerMinute: cfg.Limits.PerUserPerMinute, SpendPerUserPerDay: cfg.Limits.SpendPerUserPerDay,
		Evidence: cfg.Retention.Evidence,
		Uploads:  cfg.Retention.Uploads, AttachedBytes: cfg.Limits.AttachedBytes,
	}
	monitor, err := ops.New(ctx, ops.Options{
		DB: d, Meter: o.Meter, Log: log, Version: versionText(), Currency: cfg.Billing.Currency,
		Rules: rules(cfg.Alerts), VerifyEvery: cfg.Verify.Every,
		Calls:      func() int64 { return transport.Calls() + demo.Calls() },
		Disk:       func() ops.Disk { return room(keeper.Disk()) },
		LastBackup: func() *ops.Backup { return newest(keeper.LastBackup()) },
		BackupAge:  backupAge(keeper, cfg.Backup.Every),
	})
	if err != nil {
		return err
	}
	if err := withEffects(&o, cfg); err != nil {
		return err
	}
	e, err := engine.New(o)
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	c.Serve(e)
	monitor.Start()
	defer monitor.Stop() // before the file closes
	keeper.Start()
	defer keeper.Stop()
	made := ""
	if cert != nil && cfg.Server.TLSSelfSigned {
		made = fingerprint(cert.loaded.Leaf.Raw)
		log.Info("the certificate is self-signed: browsers warn until they know it", "sha256", made)
	}
	theLab, err := labFor(cfg.Lab.Enabled, listener.Addr())
	if err != nil {
		return err
	}
	h := handlers.New(handlers.Options{
		Engine: e, DB: d, Catalog: c, Ops: monitor, Log: log, Lab: theLab, Keeper: keeper,
		Language: cfg.Language, MessageBytes: int(cfg.Limits.MessageBytes), Currency: cfg.Billing.Currency,
		Public: public, Idle: cfg.Sessions.Idle, Absolute: cfg.Sessions.Absolute, RunningPerUser: cfg.Limits.RunningPerUser, TrustedProxies: cfg.Server.TrustedProxies,
		Strict: cfg.Server.TLSCert != "", Fingerprint: made,
		Room: func() (low, full bool) {
			d := keeper.Disk()
			return d.Low, d.Full
		},
		Attachments: chat.AttachmentLimits{Count: cfg.Limits.Attachments, Bytes: cfg.Limits.AttachmentBytes, Total: cfg.Limits.AttachedBytes},
	})
	srv, scheme, served := listen(h, listener, cert, log)
	for _, m := range c.Entries() {
		if m.Trouble == "" {
			log.Info("model", "name", m.Name, "provider", m.Provider, "host", host(m.Model), "on_unknown", m.OnUnknown)
		}
	}
	url := scheme + reachable(listener.Addr(), public)
	mode, err := modeOf(ctx, d, h, public, url, log)
	if err != nil {
		return err
	}
	log.Info("serving", "url", url, "version", versionText(), "database", cfg.DB,
		"mode", mode, "ready_after", time.Since(started).Round(time.Millisecond).String())
	if err := notify("READY=1"); err != nil {
		log.Error("the service manager cannot be told that we are ready", "error", err)
	}
	watching, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	go watch(watching, watchdogEvery(), d.Ping, e.Beats, log)
	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping", "why", context.Cause(ctx).Error(), "drain", cfg.Server.Drain.String())
	}
	err = errors.Join(err, notify("STOPPING=1"), shutdown(e, h, srv, cfg.Server.Drain))
	// What a provider counts, to compare with its bill.
	log.Info("stopped", "prompts_sent", transport.Calls())
	return err
}

// listen serves h until the server is shut down; then served has why.
func listen(h http.Handler, listener net.Listener, cert *certificate, log *slog.Logger) (srv *http.Server, scheme string, served <-chan error) {
	srv, scheme = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    handlers.HeaderBytes, // and 4 kB
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		// Bodies and answers have deadlines of their own: a stream may be long.
	}, "http://"
	ended := make(chan error, 1)
	if cert != nil {
		scheme, srv.TLSConfig = "https://", cert.config()
	}
	go func() {
		if cert != nil {
			ended <- srv.ServeTLS(listener, "", "")
			return
		}
		ended <- srv.Serve(listener)
	}()
	return srv, scheme, ended
}

// rules are the alerts that are not off.
func rules(alerts []config.Alert) (list []ops.Rule) {
	for _, a := range alerts {
		if !a.Off {
			list = append(list, ops.Rule{On: a.On, Threshold: a.Threshold, Below: a.Below})
		}
	}
	return list
}

// newLog writes what happens to w as it is configured.
func newLog(w io.Writer, cfg *config.Config) *slog.Logger {
	o := &slog.HandlerOptions{}
	if cfg.LogLevel == "debug" {
		o.Level = slog.LevelDebug
	}
	if cfg.Log == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// reachable is where a browser finds a listener: one that listens everywhere is not
// called by that.
func reachable(a net.Addr, public bool) string {
	host, port, err := net.SplitHostPort(a.String())
	if ip := net.ParseIP(host); err != nil || !public || ip == nil || !ip.IsUnspecified() {
		return a.String()
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		return net.JoinHostPort(name, port)
	}
	return a.String()
}

// modeOf says who is let in. Where nobody is yet and others can reach the server, it
// prints the link that makes the first account: whoever reads the console may.
func modeOf(ctx context.Context, d *db.DB, h *handlers.Server, public bool, url string, log *slog.Logger) (string, error) {
	has, err := d.HasAccounts(ctx)
	switch {
	case err != nil:
		return "", err
	case has:
		return "accounts", nil
	case public:
		log.Warn("nobody has an account: this link makes the first, once, within an hour", "link", url+"/setup?token="+h.Setup())
		return "set up by the link", nil
	}
	return "local user, loopback only", nil
}

// open opens the database to serve it, after it was read whole where an earlier life
// had reason to doubt it.
func open(ctx context.Context, cfg *config.Config, log *slog.Logger) (*db.DB, error) {
	path, err := filepath.EvalSymlinks(cfg.DB)
	if err != nil { // it is new, or opening it says what is wrong
		path = cfg.DB
	}
	backups := upkeep.Directory(path, cfg.Backup.Directory)
	checked, err := upkeep.Trust(ctx, path, backups)
	if errors.Is(err, upkeep.ErrDamaged) {
		return nil, &failure{exitDamaged, err}
	}
	if err != nil {
		return nil, err
	}
	if checked {
		log.Info("an earlier life had reason to doubt the database: it was read whole, and is sound", "database", path)
	}
	d, err := db.Open(db.Options{
		Path: cfg.DB, Schema: schema, Log: log,
		Fatal: func(err error) {
			log.Error("the database file failed; stopping at once: the next start reads it whole, and decides what was stored", "error", err,
				"note", upkeep.SuspectPath(path), "noted", upkeep.Suspect(path, err))
			os.Exit(exitIO)
		},
	})
	if db.IsDamaged(err) {
		return nil, &failure{exitDamaged, upkeep.Damaged(path, backups, err)}
	}
	return d, err
}

// room is how the monitor tells of the disk.
func room(d upkeep.Disk) ops.Disk {
	r := ops.Disk{Free: d.Free, Total: d.Total}
	switch {
	case d.Err != nil:
		r.Trouble = "the disk cannot be measured: " + d.Err.Error()
	case d.Full:
		r.Trouble = "the disk of the database is full"
	}
	return r
}

func newest(b upkeep.Made) *ops.Backup {
	if b.At.IsZero() {
		return nil
	}
	return &ops.Backup{At: chat.Stamp{Time: b.At}, Path: b.Path, Bytes: b.Bytes}
}

// backupAge is for the alert; without backups by the server there is none.
func backupAge(k *upkeep.Keeper, every time.Duration) func() time.Duration {
	if every == 0 {
		return nil
	}
	return func() time.Duration { return k.BackupAge(time.Now()) }
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
