package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	sqlite3 "modernc.org/sqlite/lib"

	"semel/lab"
	"semel/lab/naive"
)

type labOptions struct {
	runs int
	seed uint64
	json bool
}

func labCommand() *cobra.Command {
	var names strings.Builder
	for _, s := range lab.Scenarios {
		fmt.Fprintf(&names, "\n  %2d  %s", s.Number, s.Name)
	}
	var o labOptions
	cmd := &cobra.Command{
		Use:   "lab [NAME|all]",
		Short: "Do the same to a naive application and to Semel, and compare",
		Long: "Do the same to a naive application and to Semel, and compare what becomes of it.\n" +
			"Both are servers of their own in a temporary folder, with the built-in model: it\n" +
			"costs nothing and touches nothing. The scenarios:\n" + names.String() + "\n\n" +
			"Exit code 1: something that must hold does not hold in Semel. 2: it could not run.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.runs < 1 {
				return &failure{exitUsage, errors.New("--runs must be at least 1")}
			}
			scenarios := lab.Scenarios
			if len(args) == 1 && args[0] != "all" {
				s, ok := lab.Find(args[0])
				if !ok {
					return &failure{exitUsage, fmt.Errorf("there is no scenario %q; semel lab --help lists them", args[0])}
				}
				scenarios = []lab.Scenario{s}
			}
			l, err := lab.New(lab.Options{Schema: schema})
			if err != nil {
				return &failure{exitUsage, err}
			}
			return runLab(cmd.Context(), l, scenarios, o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntVar(&o.runs, "runs", 1, "how often each scenario runs, each time with the next seed")
	cmd.Flags().Uint64Var(&o.seed, "seed", 1, "what chooses the moments and orders that a scenario leaves open")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the report as JSON")
	return cmd
}

// newReport returns a report without results.
func newReport(o labOptions) lab.Report {
	return lab.Report{
		Semel: versionText(), SQLite: sqlite3.SQLITE_VERSION, Go: strings.TrimPrefix(runtime.Version(), "go"),
		Seed: o.seed, Runs: o.runs, Results: []lab.Result{},
	}
}

// runLab runs scenarios and writes a line for each as it ends, or the report as JSON.
func runLab(ctx context.Context, l *lab.Lab, scenarios []lab.Scenario, o labOptions, w io.Writer) error {
	report := newReport(o)
	table := w
	if o.json {
		table = io.Discard
	}
	cells := func(b lab.Board) string {
		return fmt.Sprintf("%8d%9d%10d%6d", b.Answers, b.Charges, b.Executions, b.Lost)
	}
	const heads = " answers  charges  executed  lost"
	fmt.Fprintf(table, "%-20s%5s  %-35s%s\n%-20s%5s  %-35s%s\n", "", "", " NAIVE", " SEMEL", "scenario", "runs", heads, heads)
	for _, s := range scenarios {
		var left, right lab.Board
		broken := 0
		for i := range o.runs {
			r, err := l.Run(ctx, lab.Run{Scenario: s.Name, Seed: o.seed + uint64(i)}, func(lab.Event) {})
			if err != nil {
				return &failure{exitUsage, fmt.Errorf("lab %s --seed %d: %w", s.Name, o.seed+uint64(i), err)}
			}
			report.Results = append(report.Results, r)
			left, right = left.Plus(r.Naive), right.Plus(r.Semel)
			if len(r.Broken) > 0 {
				broken++
			}
		}
		verdict := "holds"
		if broken > 0 {
			verdict = fmt.Sprintf("BROKEN in %d", broken)
		}
		fmt.Fprintf(table, "%-20s%5d  %-35s%s  %s\n", s.Name, o.runs, cells(left), cells(right), verdict)
	}
	if err := report.Seal(); err != nil {
		return &failure{exitUsage, err}
	}
	failed := report.Failed()
	for _, r := range failed {
		fmt.Fprintf(table, "\n%s with seed %d:\n  %s\nThe same again: semel lab %s --seed %d\n", r.Scenario, r.Seed, strings.Join(r.Broken, "\n  "), r.Scenario, r.Seed)
	}
	if _, err := fmt.Fprintf(table, "\nSHA-256 of the report: %s\n", report.Digest); err != nil {
		return &failure{exitUsage, err}
	}
	if o.json {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(report); err != nil {
			return &failure{exitUsage, err}
		}
	}
	if len(failed) > 0 {
		return &failure{exitFailed, fmt.Errorf("lab: runs in which something does not hold: %d of %d", len(failed), len(report.Results))}
	}
	return nil
}

// naiveCommand is the left lane's application, which only the lab starts.
func naiveCommand(stderr io.Writer) *cobra.Command {
	o := naive.Options{Price: lab.Price}
	cmd := &cobra.Command{
		Use:    "lab-naive",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return asFailure(err)
			}
			slog.New(slog.NewTextHandler(stderr, nil)).Info("serving", "url", "http://"+l.Addr().String())
			return asFailure(naive.Serve(cmd.Context(), l, o))
		},
	}
	cmd.Flags().StringVar(&o.File, "file", "", "where everything is stored")
	cmd.Flags().StringVar(&o.Model, "model", "", "address of the provider")
	cmd.Flags().StringVar(&o.Sink, "sink", "", "address of the signing service")
	cmd.Flags().StringVar(&o.Secret, "secret", "", "of the signing service")
	return cmd
}
