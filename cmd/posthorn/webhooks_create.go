package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

const webhooksCreateMore = `With --secret ed25519 Posthorn makes a pair of keys and prints the public one, which
is no secret.

The webhook gets the events that pass all the filters given, as with posthorn
groups subscribe; without a filter, all events. Events of restricted and
confidential streams go only to webhooks whose --stream is the whole name of the
stream.

Periods are written like 90s, 5m, 12h or 3d.`

// webhookFlags are the settings of a webhook.
type webhookFlags struct {
	settings  admin.WebhookSettings
	wants     subscribeFlags
	headers   []string
	noHeaders bool
	rate      float64
	gzip      bool
}

func (f *webhookFlags) add(cmd *cobra.Command) {
	f.wants.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.settings.Body, "body", "", "cloudevents, or payload to send the payload alone (default cloudevents)")
	numberVar(flags, &f.settings.Batch, "batch", 0, 1, 100, "events of one request at most, as an array (default 1, without an array)")
	flags.BoolVar(&f.gzip, "gzip", false, "compress bodies of 1 KiB and more; the endpoint has to unpack them")
	flags.StringVar(&f.settings.Order, "order", "", "none, or key to send the events of a key one after another (default none)")
	numberVar(flags, &f.settings.Concurrency, "concurrency", 0, 1, 100, "requests at once at most (default 10)")
	flags.Float64Var(&f.rate, "rate", 0, "requests a second at most; 0 for no limit")
	flags.StringVar(&f.settings.Timeout, "timeout", "", "how long a request may take (default 15s)")
	flags.StringSliceVar(&f.settings.Delays, "delays", nil, "delays before each further attempt (default 5s,5m,30m,2h,5h,10h,14h,20h,24h)")
	flags.StringVar(&f.settings.DisableAfter, "disable-after", "", "disable it when every request has failed for that long, or never (default 3d)")
	flags.StringArrayVar(&f.headers, "header", nil, "a header of each request, as in 'Name: value'; may be repeated")
}

// read returns the settings of the flags that were given.
func (f *webhookFlags) read(cmd *cobra.Command) (admin.WebhookSettings, error) {
	s := f.settings
	changed := cmd.Flags().Changed
	for _, flag := range append(filterFlags, "condition", "params") {
		if !changed(flag) {
			continue
		}
		wanted, err := f.wants.subscription()
		if err != nil {
			return s, err
		}
		s.Filter = &wanted
	}
	if changed("rate") {
		s.Rate = &f.rate
	}
	if changed("gzip") {
		s.Gzip = &f.gzip
	}
	if len(f.headers) > 0 || f.noHeaders {
		s.Headers = map[string]string{}
	}
	for _, header := range f.headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok {
			return s, usageError{errors.New("a --header has no colon"), "write it like 'Authorization: Bearer 7Zk'"} // the header is not quoted, since it may be a secret
		}
		s.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return s, nil
}

const secretUsage = "whsec_… or whsk_… of the receiver, - to read it from the standard input, or ed25519 (default: one is made)"

func newWebhooksCreate(a *app) *cobra.Command {
	var f webhookFlags
	var secret string
	in := &op.CreateWebhookInput{}
	cmd := changeOf(a, op.CreateWebhook, in, func(c *changeCommand) {
		c.about = aboutOf(op.CreateWebhook, webhooksCreateMore)
		c.prepare = func(cmd *cobra.Command, args []string) error {
			settings, err := f.read(cmd)
			if err != nil {
				return err
			}
			settings.URL = args[1]
			settings.Secret, err = secretOf(cmd, secret)
			in.Body.Name, in.Body.WebhookSettings.WebhookSettings = args[0], settings
			return err
		}
	})
	f.add(cmd)
	cmd.Flags().StringVar(&secret, "secret", "", secretUsage)
	return cmd
}

func newWebhooksChange(a *app) *cobra.Command {
	var f webhookFlags
	in := &op.ChangeWebhookInput{}
	cmd := changeOf(a, op.ChangeWebhook, in, func(c *changeCommand) {
		c.prepare = func(cmd *cobra.Command, args []string) (err error) {
			if cmd.Flags().NFlag() == 0 {
				return usageError{errors.New("no setting is given"), "run: posthorn webhooks change --help"}
			}
			in.Name = args[0]
			in.Body.WebhookSettings, err = f.read(cmd)
			return err
		}
	})
	f.add(cmd)
	cmd.Flags().StringVar(&f.settings.URL, "url", "", "the URL of the endpoint")
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "remove all headers")
	cmd.MarkFlagsMutuallyExclusive("header", "no-headers")
	return cmd
}

// secretOf is the secret that a flag gives. Other users can see the arguments of a
// command, so - reads the secret from the standard input.
func secretOf(cmd *cobra.Command, value string) (string, error) {
	if value != "-" {
		return value, nil
	}
	text, err := io.ReadAll(io.LimitReader(input{cmd.Context(), cmd.InOrStdin()}, 1000))
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	if value = strings.TrimSpace(string(text)); value == "" {
		return "", usageError{errors.New("the standard input is empty"), "it should hold the secret"}
	}
	return value, nil
}
