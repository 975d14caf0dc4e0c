package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	sqlite3 "modernc.org/sqlite/lib"

	"semel/chat"
	"semel/config"
)

// version is set by -ldflags "-X main.version=…" where a release is built.
var version = "dev"

// Exit codes. verify has its own use for the first two: a violation, and that it
// could not run.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2  // the command line or the configuration is wrong
	exitDamaged = 65 // the database is damaged; starting again does not help
	exitIO      = 70 // the disk failed under the database; start-up recovery decides what was stored
)

// A failure is an error of a command, with the exit code it ends the program
// with.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// run executes the command line and returns the exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	// On Windows cobra would keep the program from being started by a double
	// click; here that is a fine way to start it.
	cobra.MousetrapHelpText = ""
	root := newRoot(environ, stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "semel: %v\n", err)
	var f *failure
	if errors.As(err, &f) {
		return f.code
	}
	// Commands return failures only, so this is cobra's: the usage is wrong.
	fmt.Fprintf(stderr, "See %s --help.\n", cmd.CommandPath())
	return exitUsage
}

func newRoot(environ []string, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "semel",
		Short: "A chat server in which one question gets one answer",
		Long: "Semel is a chat server in which one question gets one answer, however often\n" +
			"it arrives and wherever the process is killed.\n\n" +
			"Without a command it serves. Every setting comes from a flag, else from the\n" +
			"environment (SEMEL_…), else from semel.toml beside the database, else from the\n" +
			"default; semel config print shows which.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	serve := serveCommand(environ, stderr)
	root.RunE = serve.RunE
	configFlags(root)
	listenFlag(root)
	root.AddCommand(serve, backupCommand(environ), restoreCommand(environ), doctorCommand(environ), verifyCommand(environ), replayCommand(environ), healthcheckCommand(environ), versionCommand(), configCommand(environ), modelsCommand(environ), userCommand(environ), keyCommand(environ), sinkCommand(stderr),
		labCommand(), naiveCommand(stderr))
	return root
}

// configFlags gives cmd the flags that say which database and which file.
func configFlags(cmd *cobra.Command) {
	cmd.Flags().String("db", "", "database `FILE` (default "+config.Default().DB+")")
	cmd.Flags().String("config", "", "configuration `FILE` (default "+config.FileName+" beside the database)")
}

func listenFlag(cmd *cobra.Command) {
	cmd.Flags().String("listen", "", "`ADDRESS` and port of the server (default "+config.Default().Listen+")")
}

// loadConfig reads the configuration in force for cmd.
func loadConfig(cmd *cobra.Command, environ []string) (*config.Config, error) {
	s := config.Source{Flags: map[string]string{}, Environ: environ, Presets: presets()}
	for _, name := range []string{"db", "listen"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			s.Flags[name] = f.Value.String()
		}
	}
	if f := cmd.Flags().Lookup("config"); f.Changed {
		if s.File = f.Value.String(); s.File == "" {
			return nil, &failure{exitUsage, errors.New("--config must not be empty")}
		}
	}
	cfg, err := config.Load(s)
	if err != nil {
		return nil, &failure{exitUsage, err}
	}
	return cfg, nil
}

func serveCommand(environ []string, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the pages and the API (what semel alone does)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			if f := cmd.Flags().Lookup("safe"); f != nil && f.Changed {
				return asFailure(serveSafe(cmd.Context(), cfg, f.Value.String(), newLog(stderr, cfg)))
			}
			return asFailure(serve(cmd.Context(), cfg, newLog(stderr, cfg)))
		},
	}
	configFlags(cmd)
	listenFlag(cmd)
	cmd.Flags().String("safe", "", "only read the database, to look at it; every page says `WHY`")
	cmd.Flags().Lookup("safe").NoOptDefVal = "it was started with --safe"
	return cmd
}

func verifyCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every invariant of a database file, served or not",
		Long:  "Check every invariant of a database file, served or not.\nExit code 1: one is violated. 2: it could not run.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			// A mistyped name must not pass as a new and flawless database.
			if _, err := os.Stat(cfg.DB); err != nil {
				return &failure{exitUsage, err}
			}
			asJSON, _ := cmd.Flags().GetBool("json")
			violated, err := verify(cmd.Context(), cfg.DB, asJSON, cmd.OutOrStdout())
			if err != nil {
				return &failure{exitUsage, fmt.Errorf("verify %s: %w", cfg.DB, err)}
			}
			if violated > 0 {
				return &failure{exitFailed, fmt.Errorf("%s: invariants violated: %d", cfg.DB, violated)}
			}
			return nil
		},
	}
	configFlags(cmd)
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

func replayCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Decide anew on every action that answers asked for, and compare",
		Long: "Decide anew on every action that answers asked for, from what is stored, and compare.\n" +
			"Nothing is written and no model is called.\nExit code 1: a decision differs. 2: it could not run.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			if _, err := os.Stat(cfg.DB); err != nil {
				return &failure{exitUsage, err}
			}
			var against *chat.Declarations
			if f := cmd.Flags().Lookup("against"); f.Changed {
				if against, err = declaredIn(f.Value.String()); err != nil {
					return &failure{exitUsage, fmt.Errorf("--against: %w", err)}
				}
			}
			n, err := replay(cmd.Context(), cfg.DB, against, cmd.OutOrStdout())
			if err != nil {
				return &failure{exitUsage, fmt.Errorf("replay %s: %w", cfg.DB, err)}
			}
			if n.differ > 0 {
				return &failure{exitFailed, fmt.Errorf("%s: decisions that differ: %d", cfg.DB, n.differ)}
			}
			return nil
		},
	}
	configFlags(cmd)
	cmd.Flags().String("against", "", "decide by the [[actions]] of this configuration `FILE` instead of those of the time")
	return cmd
}

// declaredIn returns what a configuration file declares, whatever else is in force.
func declaredIn(path string) (*chat.Declarations, error) {
	if path == "" {
		return nil, errors.New("must not be empty")
	}
	cfg, err := config.Load(config.Source{File: path, Presets: presets()})
	if err != nil {
		return nil, err
	}
	return cfg.Declared()
}

func healthcheckCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the configured server whether it lives; for containers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			return asFailure(healthcheck(cmd.Context(), cfg))
		},
	}
	configFlags(cmd)
	listenFlag(cmd)
	return cmd
}

func healthcheck(ctx context.Context, cfg *config.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	scheme := "http://"
	if cfg.Server.TLSCert != "" || cfg.Server.TLSSelfSigned {
		scheme = "https://"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+cfg.Listen+"/healthz", nil)
	if err != nil {
		return err
	}
	// Not the default transport: a proxy of the environment cannot see this server.
	res, err := (&http.Transport{DisableKeepAlives: true, TLSClientConfig: knowing(cfg)}).RoundTrip(req)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: %s answered %s", req.URL, res.Status)
	}
	return nil
}

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Semel, SQLite and Go",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if parts, _ := cmd.Flags().GetBool("sbom"); parts {
				return asFailure(writeBOM(cmd.OutOrStdout()))
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "semel %s\nSQLite %s\nGo %s %s/%s\n", versionText(),
				sqlite3.SQLITE_VERSION, strings.TrimPrefix(runtime.Version(), "go"), runtime.GOOS, runtime.GOARCH)
			return asFailure(err)
		},
	}
	cmd.Flags().Bool("sbom", false, "print everything that the program is made of, as CycloneDX JSON")
	return cmd
}

// versionText is the version, and the commit where the build knows it: some
// build machines switch VCS stamping off.
func versionText() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	commit := set["vcs.revision"]
	if commit == "" {
		return version
	}
	commit = commit[:min(12, len(commit))]
	if set["vcs.modified"] == "true" {
		commit += ", modified"
	}
	return fmt.Sprintf("%s (%s)", version, commit)
}

func configCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or check the configuration",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("say print or check") // not a failure: wrong usage
		},
	}
	show := &cobra.Command{
		Use:   "print",
		Short: "Print what is in force and where each value came from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			redact, _ := cmd.Flags().GetBool("redacted")
			return asFailure(cfg.Print(cmd.OutOrStdout(), redact))
		},
	}
	show.Flags().Bool("redacted", false, "hide the keys of providers")
	check := &cobra.Command{
		Use:   "check",
		Short: "Say what is wrong with the configuration",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := loadConfig(cmd, environ); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "The configuration is good.")
			return asFailure(err)
		},
	}
	for _, c := range []*cobra.Command{show, check} {
		configFlags(c)
		listenFlag(c)
		cmd.AddCommand(c)
	}
	return cmd
}

// asFailure gives err the exit code 1, unless it carries one already.
func asFailure(err error) error {
	var f *failure
	if err == nil || errors.As(err, &f) {
		return err
	}
	return &failure{exitFailed, err}
}
