package main

import (
	"context"
	"errors"
	"log/slog"

	"semel/config"
)

// serve runs the server until ctx ends, drains it and returns nil. An I/O error
// of the database is returned as a *failure with exitIO.
func serve(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	return errors.New("not wired")
}
