package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"semel/chat"
	"semel/config"
	"semel/engine"
	"semel/llm"
)

// presets are the well-known providers, as config has to know them.
func presets() []config.Preset {
	var list []config.Preset
	for _, p := range llm.Presets {
		list = append(list, config.Preset{Name: p.Name, Provider: p.Provider, URL: p.URL})
	}
	return list
}

// builder returns what makes the engine's model of a described one. All of them share
// one transport, so that its count is that of the process, and one demo model, whose
// answers say which call of this process they were.
func builder(t *llm.Transport, demo *llm.Demo) func(config.Model) engine.Model {
	return func(m config.Model) engine.Model {
		return engine.Model{
			Name: m.Name, Upstream: m.UpstreamModel, Client: newClient(m, t, demo), Price: m.Price, Context: m.Context, NoImages: !m.Images,
			Rerun: m.OnUnknown == config.OnUnknownRerun, MaxAttempts: m.MaxAttempts, MaxCrashReruns: orNone(m.MaxCrashReruns),
			FirstTokenTimeout: m.FirstTokenTimeout, IdleTimeout: m.IdleTimeout, Concurrency: m.Concurrency,
		}
	}
}

// orNone says to the engine, for which 0 is the default, that a limit of 0 is
// meant.
func orNone(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}

// newClient returns what calls m. config has refused other providers.
func newClient(m config.Model, t *llm.Transport, demo *llm.Demo) llm.Client {
	e := llm.Endpoint{URL: m.URL, Key: string(m.Key), Quirks: quirks(m)}
	switch m.Provider {
	case config.ProviderDemo:
		return demo
	case config.ProviderOpenAI:
		return llm.NewOpenAI(t, e)
	case config.ProviderResponses:
		return llm.NewResponses(t, e, m.Background)
	case config.ProviderAnthropic:
		return llm.NewAnthropic(t, e)
	}
	panic("no client for the provider " + m.Provider)
}

// quirks are those of m's preset. A model without one has those of whoever is at
// its address, where that is a name on the internet; a port of this machine says
// nothing of who listens there.
func quirks(m config.Model) llm.Quirks {
	var q llm.Quirks
	for _, p := range llm.Presets {
		known := p.Name == m.Preset
		if m.Preset == "" {
			known = p.URL == strings.TrimSuffix(m.URL, "/") && strings.HasPrefix(p.URL, "https://")
		}
		if known && p.Provider == m.Provider {
			q = p.Quirks
		}
	}
	if !m.Stream {
		q.NoStream = true
	}
	return q
}

// host is where m is, without anything that could be a secret.
func host(m config.Model) string {
	u, err := url.Parse(m.URL)
	if err != nil || u.Host == "" {
		return "built in"
	}
	return u.Host
}

func modelsCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List or test the configured models",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("say list or test") // not a failure: wrong usage
		},
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "List the configured models; the first is the default",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			asJSON, _ := cmd.Flags().GetBool("json")
			return asFailure(listModels(cfg.Models, asJSON, cmd.OutOrStdout()))
		},
	}
	list.Flags().Bool("json", false, "print JSON")
	test := &cobra.Command{
		Use:   "test [NAME]",
		Short: "Call a model once, with a tiny prompt",
		Long: "Call a model once, with a tiny prompt: the default model, or the one named.\n" +
			"It is a real call, which its provider may bill. Exit code 1: it failed.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			limit, _ := cmd.Flags().GetDuration("timeout")
			if limit <= 0 {
				return &failure{exitUsage, errors.New("--timeout must be longer than nothing")}
			}
			m := cfg.Models[0]
			if len(args) == 1 {
				i := slices.IndexFunc(cfg.Models, func(m config.Model) bool { return m.Name == args[0] })
				if i < 0 {
					return &failure{exitUsage, fmt.Errorf("no model %q is configured; semel models list shows which are", args[0])}
				}
				m = cfg.Models[i]
			}
			return asFailure(testModel(cmd.Context(), m, limit, cmd.OutOrStdout()))
		},
	}
	test.Flags().Duration("timeout", 2*time.Minute, "longest `DURATION` of the whole test")
	for _, c := range []*cobra.Command{list, test} {
		configFlags(c)
		cmd.AddCommand(c)
	}
	return cmd
}

func listModels(list []config.Model, asJSON bool, w io.Writer) error {
	if asJSON {
		type price struct {
			Input  int64 `json:"input"`
			Cached int64 `json:"cached"`
			Output int64 `json:"output"`
		}
		type row struct {
			Name        string `json:"name"`
			Provider    string `json:"provider"`
			Preset      string `json:"preset,omitempty"`
			URL         string `json:"url,omitempty"`
			Upstream    string `json:"upstreamModel"`
			HasKey      bool   `json:"hasKey"`
			Price       price  `json:"price"` // micros per million tokens
			Context     int64  `json:"context"`
			OnUnknown   string `json:"onUnknown"`
			Concurrency int    `json:"concurrency"`
			Stream      bool   `json:"stream"`
			Images      bool   `json:"images"`
			Background  bool   `json:"background"`
		}
		var rows []row
		for _, m := range list {
			rows = append(rows, row{
				Name: m.Name, Provider: m.Provider, Preset: m.Preset, URL: m.URL, Upstream: upstream(m), HasKey: m.Key != "",
				Price: price(m.Price), Context: m.Context, OnUnknown: m.OnUnknown, Concurrency: m.Concurrency,
				Stream: m.Stream, Images: m.Images, Background: m.Background,
			})
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(rows)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tPROVIDER\tHOST\tITS NAME THERE\tKEY\tON UNKNOWN")
	for _, m := range list {
		key := "no"
		if m.Key != "" {
			key = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Provider, host(m), upstream(m), key, m.OnUnknown)
	}
	return t.Flush()
}

func upstream(m config.Model) string { return cmp.Or(m.UpstreamModel, m.Name) }

// askLimit is how long a provider may take for what is no call of a model.
const askLimit = 10 * time.Second

// testModel makes one call of m and writes how it went. It returns an error when
// the call failed.
func testModel(ctx context.Context, m config.Model, limit time.Duration, w io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s", limit))
	defer cancel()
	t := llm.NewTransport()
	defer t.Close()
	c := newClient(m, t, llm.NewDemo())
	fmt.Fprintf(w, "%s: %s, %s, as %s\n", m.Name, m.Provider, host(m), upstream(m))
	if l, ok := c.(llm.Lister); ok {
		fmt.Fprintln(w, offered(ctx, l, upstream(m)))
	}
	price := "The provider may bill it."
	if m.Provider == config.ProviderDemo {
		price = "It costs nothing."
	}
	fmt.Fprintf(w, "Calling it once, with a tiny prompt. %s\n", price)

	var first time.Duration
	var run string // that the provider keeps
	started := time.Now()
	a, err := c.Stream(ctx, llm.Call{
		RequestID: "models-test", Attempt: 1, Model: upstream(m),
		Turns:   []llm.Turn{{Role: "user", Content: "Say hello in one short sentence."}},
		Started: func(id string) { run = id },
	}, func(llm.Piece) {
		if first == 0 {
			first = time.Since(started)
		}
	})
	took := time.Since(started)
	if r, ok := c.(llm.Reattacher); ok && err != nil && run != "" {
		// Nobody will come back for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
		if cerr := r.Cancel(ctx, run); cerr != nil {
			err = fmt.Errorf("%w; and its run could not be ended: %w", err, cerr)
		}
		cancel()
	}
	if err != nil {
		return callFailed(ctx, m, took, err)
	}
	if first == 0 {
		first = took // an answer without a word
	}
	fmt.Fprintf(w, "First token after %s, the end after %s.\n", round(first), round(took))
	counted := ""
	if a.Usage.Estimated {
		counted = "; estimated, the provider did not count"
	}
	fmt.Fprintf(w, "Tokens: %d in, of which %d cached, and %d out%s.\n", a.Usage.InputTokens, a.Usage.CachedTokens, a.Usage.OutputTokens, counted)
	said := printable(a.Content, 200)
	if said == "" {
		said = fmt.Sprintf("nothing (finish: %s)", a.Finish)
	}
	_, err = fmt.Fprintf(w, "It says: %s\n", said)
	return err
}

// offered says which models the provider has, and whether name is one.
func offered(ctx context.Context, l llm.Lister, name string) string {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	names, err := l.Models(ctx)
	if err != nil {
		return "It does not say which models it has: " + why(err)
	}
	const most = 20
	var shown []string
	for _, n := range names[:min(len(names), most)] {
		shown = append(shown, printable(n, 100))
	}
	list := strings.Join(shown, ", ")
	if len(names) > most {
		list += ", …"
	}
	text := fmt.Sprintf("It has %d models: %s", len(names), list)
	if !slices.Contains(names, name) && !slices.Contains(names, name+":latest") { // as Ollama lists it
		text += fmt.Sprintf("\n%s is not among them.", name)
	}
	return text
}

// callFailed says what is known of a call that failed.
func callFailed(ctx context.Context, m config.Model, took time.Duration, err error) error {
	text := why(err)
	if cause := context.Cause(ctx); cause != nil {
		text = cause.Error() + ": " + text
	}
	var e *llm.Error
	switch {
	case !errors.As(err, &e):
	case e.Outcome == chat.OutcomeUnknown:
		text += "\nNobody can know whether the model ran and was billed."
	case e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed:
		text += fmt.Sprintf("\nIs the url complete, up to the version (…/v1), and is there a model %q?", upstream(m))
	}
	return fmt.Errorf("the call of %s failed after %s: %s", m.Name, round(took), text)
}

// why is err with what it wraps, on one line.
func why(err error) string {
	text := err.Error()
	var e *llm.Error
	if errors.As(err, &e) && e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	return printable(text, 1000)
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// printable is the beginning of s on one line, without anything that could
// command a terminal.
func printable(s string, runes int) string {
	s = strings.Join(strings.Fields(s), " ")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
	if list := []rune(s); len(list) > runes {
		s = string(list[:runes]) + "…"
	}
	return s
}
