package main

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"modernc.org/sqlite"
)

// The test binary is the server, too: the same code, made worse or killed from within by
// SQLite's own hooks, for which the program itself has no switch.
const (
	asServer     = "TEST_AS_SERVER"
	serverNormal = "synchronous=NORMAL"
)

// beServer runs the command line as main does when the environment asks for it.
func beServer() {
	how := os.Getenv(asServer)
	if how == "" {
		return
	}
	sqlite.RegisterConnectionHook(func(c sqlite.ExecQuerierContext, _ string) error {
		switch how {
		case serverNormal:
			_, err := c.ExecContext(context.Background(), `PRAGMA synchronous=NORMAL`, []driver.NamedValue{})
			return err
		}
		return fmt.Errorf("%s=%s: what is that?", asServer, how)
	})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
