package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"semel/chat"
	"semel/config"
	"semel/db"
	"semel/password"
)

// console is who changes accounts at the command line, in the audit: whoever may write
// the file.
const console = "console"

func userCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Add, change and list accounts, beside a running server too",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say add, passwd, role, disable, enable or list") // not a failure: wrong usage
		},
	}
	add := accountCommand(environ, "add NAME", "Add an account; the first is an admin's and has what the local user had", 1, true,
		func(cmd *cobra.Command, args []string) (func(context.Context, *db.DB) error, error) {
			name, role, err := newAccount(cmd, args[0])
			if err != nil {
				return nil, err
			}
			pass, err := readPassword(cmd, name)
			if err != nil {
				return nil, err
			}
			hash := password.Hash(pass)
			return func(ctx context.Context, d *db.DB) error {
				any, err := d.HasAccounts(ctx)
				if err != nil {
					return err
				}
				if role == "" {
					if role = chat.RoleMember; !any {
						role = chat.RoleAdmin
					}
				}
				if _, err := d.AddAccount(ctx, db.NewAccount{Name: name, Role: role, Password: hash, Actor: console}); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s may sign in, as %s.\n", name, role)
				return err
			}, nil
		})
	add.Flags().String("role", "", "member, operator or admin (default member; the first is an admin)")
	passwd := accountCommand(environ, "passwd NAME", "Give an account another password; it is signed out everywhere", 1, false,
		func(cmd *cobra.Command, args []string) (func(context.Context, *db.DB) error, error) {
			pass, err := readPassword(cmd, args[0])
			if err != nil {
				return nil, err
			}
			hash := password.Hash(pass)
			return onAccount(cmd, args[0], "%s has another password.\n", func(ctx context.Context, d *db.DB, id int64) error {
				return d.SetPassword(ctx, id, hash, console)
			}), nil
		})
	for _, c := range []*cobra.Command{add, passwd} {
		c.Flags().Bool("password-stdin", false, "read the password from the standard input, also where that is a terminal")
	}
	role := accountCommand(environ, "role NAME ROLE", "Give an account another role; it is signed out everywhere", 2, false,
		func(cmd *cobra.Command, args []string) (func(context.Context, *db.DB) error, error) {
			role := chat.Role(args[1])
			if !slices.Contains(chat.Roles, role) {
				return nil, fmt.Errorf("the role must be one of %s", roles())
			}
			return onAccount(cmd, args[0], "%s has another role.\n", func(ctx context.Context, d *db.DB, id int64) error {
				return d.SetRole(ctx, id, role, console)
			}), nil
		})
	disable := accountCommand(environ, "disable NAME", "Keep an account out, at once; what it has stays", 1, false,
		func(cmd *cobra.Command, args []string) (func(context.Context, *db.DB) error, error) {
			return onAccount(cmd, args[0], "%s is disabled.\n", func(ctx context.Context, d *db.DB, id int64) error { return d.Disable(ctx, id, console) }), nil
		})
	enable := accountCommand(environ, "enable NAME", "Let a disabled account in again", 1, false,
		func(cmd *cobra.Command, args []string) (func(context.Context, *db.DB) error, error) {
			return onAccount(cmd, args[0], "%s may sign in again.\n", func(ctx context.Context, d *db.DB, id int64) error { return d.Enable(ctx, id, console) }), nil
		})
	list := accountCommand(environ, "list", "List the accounts", 0, false,
		func(cmd *cobra.Command, _ []string) (func(context.Context, *db.DB) error, error) {
			return func(ctx context.Context, d *db.DB) error { return listAccounts(ctx, d, cmd.OutOrStdout()) }, nil
		})
	cmd.AddCommand(add, passwd, role, disable, enable, list)
	return cmd
}

func roles() string {
	var names []string
	for _, r := range chat.Roles {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

func newAccount(cmd *cobra.Command, given string) (name string, role chat.Role, err error) {
	name, ok := chat.ParseName(given)
	if !ok {
		return "", "", fmt.Errorf("%q is no name: letters, digits and . _ - @ make one", given)
	}
	if f := cmd.Flags().Lookup("role"); f.Changed {
		if role = chat.Role(f.Value.String()); !slices.Contains(chat.Roles, role) {
			return "", "", fmt.Errorf("--role must be one of %s", roles())
		}
	}
	return name, role, nil
}

// accountCommand is a command that changes accounts. prepare does what needs no
// database, and its errors are wrong usage. creates says that the database may be new.
func accountCommand(environ []string, use, short string, args int, creates bool, prepare func(*cobra.Command, []string) (func(context.Context, *db.DB) error, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			do, err := prepare(cmd, args)
			if err != nil {
				return &failure{exitUsage, err}
			}
			if _, err := os.Stat(cfg.DB); err != nil && !creates {
				return &failure{exitUsage, err}
			}
			return asFailure(withAccounts(cmd.Context(), cfg, do))
		},
	}
	configFlags(cmd)
	return cmd
}

// withAccounts opens the database for do, beside a server when one serves it.
func withAccounts(ctx context.Context, cfg *config.Config, do func(context.Context, *db.DB) error) (err error) {
	d, err := db.Open(db.Options{Path: cfg.DB, Schema: schema})
	if errors.Is(err, db.ErrServed) {
		d, err = db.Open(db.Options{Path: cfg.DB, Beside: true})
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return do(ctx, d)
}

// onAccount changes the account of a name.
func onAccount(cmd *cobra.Command, given, said string, do func(context.Context, *db.DB, int64) error) func(context.Context, *db.DB) error {
	return func(ctx context.Context, d *db.DB) error {
		name, _ := chat.ParseName(given)
		a, _, err := d.Account(ctx, name)
		if err == nil {
			err = do(ctx, d, a.ID)
		}
		if errors.Is(err, db.ErrNotFound) {
			return fmt.Errorf("there is no account %q", given)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), said, a.Name)
		return err
	}
}

// readPassword asks for a new password at a terminal, where it is not seen and wanted
// twice, and takes a line of the standard input anywhere else. Its errors are wrong usage.
func readPassword(cmd *cobra.Command, name string) (pass string, err error) {
	in, ok := cmd.InOrStdin().(*os.File)
	if quiet, _ := cmd.Flags().GetBool("password-stdin"); !quiet && ok && term.IsTerminal(int(in.Fd())) {
		pass, err = typedTwice(cmd, in, name)
	} else {
		pass, err = bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 2*chat.MaxPassword)).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
		pass = strings.TrimRight(pass, "\r\n")
	}
	if err != nil {
		return "", err
	}
	if !chat.GoodPassword(pass, name) {
		return "", fmt.Errorf("the password must have at least %d characters and not be one that everybody tries", chat.MinPassword)
	}
	return pass, nil
}

func typedTwice(cmd *cobra.Command, terminal *os.File, name string) (string, error) {
	var typed [2]string
	for i, prompt := range []string{"Password of " + name + ": ", "Once more: "} {
		if _, err := fmt.Fprint(cmd.ErrOrStderr(), prompt); err != nil {
			return "", err
		}
		var err error
		if typed[i], err = unseen(cmd.Context(), terminal); err != nil {
			return "", err
		}
		if _, err := fmt.Fprintln(cmd.ErrOrStderr()); err != nil {
			return "", err
		}
	}
	if typed[0] != typed[1] {
		return "", errors.New("the two passwords differ: nothing was changed")
	}
	return typed[0], nil
}

// unseen reads a line that the terminal does not show. When ctx ends first, the terminal
// shows again what is typed; the read goes on behind it, and ends with the process.
func unseen(ctx context.Context, terminal *os.File) (string, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		return string(l.text), l.err
	case <-ctx.Done():
		return "", errors.Join(context.Cause(ctx), term.Restore(fd, before))
	}
}

func listAccounts(ctx context.Context, d *db.DB, out io.Writer) error {
	list, err := d.Accounts(ctx, config.Default().Sessions.Absolute)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tROLE\tSTATE\tSIGNED IN\tKEYS\tSINCE")
	for _, a := range list {
		state := "active"
		if a.Disabled {
			state = "disabled"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", a.Name, a.Role, state, a.Logins, a.Keys, a.CreatedAt.Format(time.DateOnly))
	}
	return w.Flush()
}

func keyCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Add, revoke and list API keys, beside a running server too",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say add, revoke or list") // not a failure: wrong usage
		},
	}
	add := accountCommand(environ, "add", "Add a key and print it, this once, as the last word", 0, false,
		func(cmd *cobra.Command, _ []string) (func(context.Context, *db.DB) error, error) {
			user, _ := cmd.Flags().GetString("user")
			scope, _ := cmd.Flags().GetString("scope")
			label, _ := cmd.Flags().GetString("name")
			if user == "" {
				return nil, errors.New("whose key? name an account with --user")
			}
			if scope != string(chat.ScopeChat) && scope != string(chat.ScopeOps) {
				return nil, errors.New("--scope must be chat or ops")
			}
			if label == "" {
				label = scope
			}
			return func(ctx context.Context, d *db.DB) error {
				name, _ := chat.ParseName(user)
				a, _, err := d.Account(ctx, name)
				if errors.Is(err, db.ErrNotFound) {
					return fmt.Errorf("there is no account %q", user)
				}
				if err != nil {
					return err
				}
				if scope == string(chat.ScopeOps) && !a.Role.Has(chat.RoleOperator) {
					return fmt.Errorf("%s is no operator: a key opens what its owner may do", a.Name)
				}
				secret, digest := chat.NewKey()
				k, err := d.AddKey(ctx, db.Key{UserID: a.ID, Name: label, Scope: chat.Scope(scope), Digest: digest}, console)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Key %d of %s for %s, shown this once: %s\n", k.ID, a.Name, scope, secret)
				return err
			}, nil
		})
	add.Flags().String("user", "", "the account that the key acts for")
	add.Flags().String("scope", "", "chat (conversations) or ops (operations and metrics)")
	add.Flags().String("name", "", "what it is for, to know it again")
	revoke := accountCommand(environ, "revoke NUMBER", "Revoke a key, at once", 1, false,
		func(cmd *cobra.Command, args []string) (func(context.Context, *db.DB) error, error) {
			id, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%q is no number of a key; semel key list shows them", args[0])
			}
			return func(ctx context.Context, d *db.DB) error {
				if err := d.RevokeKey(ctx, 0, id, console); errors.Is(err, db.ErrNotFound) {
					return fmt.Errorf("there is no key %d", id)
				} else if err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "Key %d is revoked.\n", id)
				return err
			}, nil
		})
	list := accountCommand(environ, "list", "List the keys, without what they open", 0, false,
		func(cmd *cobra.Command, _ []string) (func(context.Context, *db.DB) error, error) {
			return func(ctx context.Context, d *db.DB) error { return listKeys(ctx, d, cmd.OutOrStdout()) }, nil
		})
	cmd.AddCommand(add, revoke, list)
	return cmd
}

func listKeys(ctx context.Context, d *db.DB, out io.Writer) error {
	list, err := d.Keys(ctx, 0)
	if err != nil {
		return err
	}
	day := func(t time.Time, none string) string {
		if t.IsZero() {
			return none
		}
		return t.Format(time.DateOnly)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tUSER\tSCOPE\tNAME\tSINCE\tUSED\tREVOKED")
	for _, k := range list {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.User, k.Scope, strconv.QuoteToGraphic(k.Name), day(k.CreatedAt, ""), day(k.UsedAt, "never"), day(k.RevokedAt, "-"))
	}
	return w.Flush()
}
