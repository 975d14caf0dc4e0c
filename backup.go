package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"semel/db"
	"semel/disk"
	"semel/seal"
	"semel/upkeep"
)

func backupCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a checked copy of the database, served or not",
		Long: "Write a checked copy of the database to FILE, which must not exist. The server may\n" +
			"run meanwhile. The copy gets its name when it has been read back: its structure and\n" +
			"every invariant. Keys of models that were connected on the settings page are sealed\n" +
			"in it; the key file beside the database is not copied. With --encrypt-to it is encrypted\n" +
			"as age does it, after it was checked.",
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
			list, _ := cmd.Flags().GetStringSlice("encrypt-to")
			to, err := seal.ParseRecipients(list)
			if err != nil {
				return &failure{exitUsage, fmt.Errorf("--encrypt-to: %w", err)}
			}
			if !to.None() && !strings.HasSuffix(args[0], seal.Encrypted) {
				return &failure{exitUsage, fmt.Errorf("the name of an encrypted backup ends with %s: %s%[1]s", seal.Encrypted, args[0])}
			}
			return asFailure(backup(cmd.Context(), cfg.DB, args[0], to, cmd.OutOrStdout()))
		},
	}
	configFlags(cmd)
	cmd.Flags().StringSlice("encrypt-to", nil, "encrypt it to this `RECIPIENT` of age (age1…); may be given several times")
	return cmd
}

// backup copies the database at path to file and says what it has.
func backup(ctx context.Context, path, file string, to seal.Recipients, w io.Writer) (err error) {
	d, err := db.Open(db.Options{Path: path, ReadOnly: true, Readers: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	var b db.Backup
	if to.None() {
		b, err = d.Backup(ctx, file)
	} else {
		b, err = d.BackupSealed(ctx, file, to.Encrypt)
	}
	if err != nil {
		return fmt.Errorf("backup of %s: %w", path, err)
	}
	_, err = fmt.Fprintf(w, "%s: %s, %d requests, %d invariants hold, in %s\nsha256 %s\n",
		b.Path, disk.Bytes(b.Bytes), b.Requests, b.Checks, b.Took.Round(time.Millisecond), b.SHA256)
	return err
}

func restoreCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a backup the database; not while it is served",
		Long: "Make a backup the database, after it was checked as semel verify does. Not while it\n" +
			"is served. A database that is there is replaced with --force only, and kept beside.\n" +
			"What was answered since the backup is lost: unknown questions of that time run only\n" +
			"when a person says so, and what the backup had unfinished is not begun again by itself.\n" +
			"An encrypted backup wants --identity.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			force, _ := cmd.Flags().GetBool("force")
			identity, _ := cmd.Flags().GetString("identity")
			return asFailure(restore(cmd.Context(), cfg.DB, args[0], identity, force, cmd.OutOrStdout()))
		},
	}
	configFlags(cmd)
	cmd.Flags().Bool("force", false, "replace a database that is there; it is kept beside, under a name with the date")
	cmd.Flags().String("identity", "", "decrypt the backup with the age identities in this `KEYFILE`")
	return cmd
}

// restore makes file the database at path and says what that means.
func restore(ctx context.Context, path, file, identity string, force bool, w io.Writer) error {
	encrypted, err := seal.IsEncrypted(file)
	switch {
	case err != nil:
		return fmt.Errorf("restore: %w", err)
	case encrypted && identity == "":
		return &failure{exitUsage, fmt.Errorf("%s is encrypted: --identity KEYFILE names what decrypts it", file)}
	case !encrypted && identity != "":
		return &failure{exitUsage, fmt.Errorf("%s is not encrypted as age does it, or its beginning is damaged: --identity is for one that is", file)}
	}
	var r db.Restored
	o := db.Options{Path: path, Schema: schema}
	if encrypted {
		open, oerr := seal.With(identity)
		if oerr != nil {
			return &failure{exitUsage, fmt.Errorf("--identity: %w", oerr)}
		}
		r, err = db.RestoreSealed(ctx, o, file, open, force)
	} else {
		r, err = db.Restore(ctx, o, file, force)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("restore: %w: with --force it is replaced, and kept beside", err)
	case err != nil:
		return fmt.Errorf("restore: %w", err)
	}
	// Its doubts were about the file that is replaced.
	if err := os.Remove(upkeep.SuspectPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	kept := ""
	if r.Kept != "" {
		kept = "The database that was there is now " + r.Kept + ".\n"
	}
	_, err = fmt.Fprintf(w, `%s is restored from %s: %d requests, as of %s; %d invariants hold.
%sWhat was asked between then and now is lost, and may have been answered: a question of
that time is run again only when a person says so. Now start the server.
`, path, r.From, r.Requests, r.BackupAt.Format(time.RFC3339), r.Checks, kept)
	return err
}
