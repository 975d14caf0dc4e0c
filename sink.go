package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"semel/config"
	"semel/sink"
)

func sinkCommand(stderr io.Writer) *cobra.Command {
	var listen, callback, behaviour string
	var secrets []string
	cmd := &cobra.Command{
		Use:   "sink",
		Short: "Run a signing service to try actions with",
		Long: "Run a signing service to try actions with. It takes signed deliveries at /sign and\n" +
			"/void, executes each webhook-id once, calls back, and says at /status what it has\n" +
			"executed. Its page, or --behaviour, makes it behave as receivers sometimes do:\n\n" +
			"  answer       " + strings.Join(sink.Answers, ", ") + "\n" +
			"  callback     " + strings.Join(sink.Callbacks, ", ") + "\n" +
			"  times        how many deliveries of one id the answer is for; 0 is all\n" +
			"  delay        of a slow answer and a late callback\n" +
			"  retry-after  of busy\n\n" +
			"What it remembers ends with it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := sink.ParseBehaviour(behaviour)
			if err != nil {
				return &failure{exitUsage, err}
			}
			if len(secrets) == 0 {
				secrets = []string{newSecret()}
			}
			log := slog.New(slog.NewTextHandler(stderr, nil))
			s, err := sink.New(sink.Options{Secrets: secrets, Callback: callback, Behaviour: b, Log: log})
			if err != nil {
				return &failure{exitUsage, err}
			}
			return asFailure(serveSink(cmd.Context(), s, listen, !cmd.Flags().Changed("secret"), secrets[0], cmd.OutOrStdout(), log))
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9900", "`ADDRESS` and port")
	cmd.Flags().StringArrayVar(&secrets, "secret", nil, "`SECRET` whsec_… of the destination; again for another one; without, one is made")
	cmd.Flags().StringVar(&callback, "callback", "http://"+config.Default().Listen, "`URL` of the server that is called back; empty for none")
	cmd.Flags().StringVar(&behaviour, "behaviour", sink.DefaultBehaviour().String(), "how it behaves, as `KEY=VALUE,…`")
	return cmd
}

// serveSink prints what semel.toml needs when the secret was made here: nobody knows it
// otherwise.
func serveSink(ctx context.Context, s *sink.Sink, listen string, made bool, secret string, stdout io.Writer, log *slog.Logger) (err error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	defer func() {
		if e := l.Close(); !errors.Is(e, net.ErrClosed) { // the server closes it, too
			err = errors.Join(err, e)
		}
	}()
	base := "http://" + l.Addr().String()
	if !config.Loopback(l.Addr().String()) {
		log.Warn("other machines can reach this: whoever does can read what came and change how it behaves")
	}
	if made {
		_, err := fmt.Fprintf(stdout, "destination = { kind = \"webhook\", url = \"%s/sign\", secrets = [\"%s\"], allow = [\"127.0.0.0/8\"] }\n", base, secret)
		if err != nil {
			return err
		}
	}
	log.Info("sink", "url", base)
	return s.Serve(ctx, l)
}

// newSecret returns a secret that nobody has.
func newSecret() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key[:])
}
