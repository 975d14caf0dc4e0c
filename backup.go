package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"semel/db"
	"semel/disk"
)

func backupCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a checked copy of the database, served or not",
		Long: "Write a checked copy of the database to FILE, which must not exist. The server may\n" +
			"run meanwhile. The copy gets its name when it has been read back: its structure and\n" +
			"every invariant. Keys of models that were connected on the settings page are sealed\n" +
			"in it; the key file beside the database is not copied.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			// A mistyped name must not pass as a new database with nothing to copy.
			if _, err := os.Stat(cfg.DB); err != nil {
				return &failure{exitUsage, err}
			}
			return asFailure(backup(cmd.Context(), cfg.DB, args[0], cmd.OutOrStdout()))
		},
	}
	configFlags(cmd)
	return cmd
}

// backup copies the database at path to file and says what it has.
func backup(ctx context.Context, path, file string, w io.Writer) (err error) {
	d, err := db.Open(db.Options{Path: path, ReadOnly: true, Readers: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	b, err := d.Backup(ctx, file)
	if err != nil {
		return fmt.Errorf("backup of %s: %w", path, err)
	}
	_, err = fmt.Fprintf(w, "%s: %s, %d requests, %d invariants hold, in %s\nsha256 %s\n",
		b.Path, disk.Bytes(b.Bytes), b.Requests, b.Checks, b.Took.Round(time.Millisecond), b.SHA256)
	return err
}
