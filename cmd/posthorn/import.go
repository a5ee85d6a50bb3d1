package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

const importLong = `Publish here what relays of other databases have written to a broker, until Ctrl-C
or SIGTERM: to Redis Streams or NATS JetStream, by URL, as for posthorn relay.

The events come into streams of the same names, each once, those of a stream in
their order; groups and all else treat them like others. Their metadata say under
posthorn_origin where they were published first. As many processes as you like may
run this: one of them imports, and another goes on when it ends. With several URLs
there is an import for each, and each needs a --name.

A new import begins with the first event that the broker still has. A confidential
stream takes sealed payloads only: set its policy before you import it.`

const importExample = `  posthorn import redis://localhost:6379
  posthorn import nats://localhost:4222 --name from-shop --stream orders --stream 'user.*' --from-namespace shop`

type importFlags struct {
	names, streams []string
	batch          int
	takeAfter      time.Duration
	prefix, from   string
}

func newImport(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "import URL [URL...]",
		Short:   "Publish what Redis or NATS has from other databases",
		Long:    importLong,
		Example: importExample,
		Args:    cobra.MinimumNArgs(1),
	}
	var f importFlags
	flags := cmd.Flags()
	flags.StringArrayVar(&f.names, "name", nil, `the import's name, one for each URL (default "import")`)
	flags.StringArrayVar(&f.streams, "stream", nil, "only streams that match this pattern; may be repeated")
	flags.IntVar(&f.batch, "batch-size", 0, "events of one transaction (default 1000)")
	flags.DurationVar(&f.takeAfter, "take-over-after", 0, "how long after this process has died another goes on (default 10s)")
	flags.StringVar(&f.prefix, "prefix", "", "what keys, or names of streams, begin with at the broker")
	flags.StringVar(&f.from, "from-namespace", "", "the namespace that NATS has the streams under (default that of --namespace)")
	cmd.RunE = func(cmd *cobra.Command, urls []string) error {
		return untilTold(cmd.Context(), a.importFrom(cmd.Context(), urls, f))
	}
	return cmd
}

func (a *app) importFrom(ctx context.Context, urls []string, f importFlags) error {
	ph, names, err := a.brokerClient(ctx, "import", f.names, urls)
	if err != nil {
		return err
	}
	defer ph.Close()
	for i, text := range urls {
		source, err := f.open(ctx, a, text)
		if err != nil {
			return err
		}
		defer func() { _ = source.Close() }() // it was only read
		ph.Import(names[i], posthorn.ImportConfig{Streams: f.streams, BatchSize: f.batch, LeaseFor: f.takeAfter}, source)
		a.log.Info("import", "name", names[i], "from", source.String(), "namespace", a.namespace)
	}
	return ph.Run(ctx)
}

// source is one that can be closed.
type source interface {
	posthorn.Source
	io.Closer
}

// open opens the source of a URL. A broker that is not there is waited for.
func (f importFlags) open(ctx context.Context, a *app, text string) (from source, err error) {
	switch scheme, _, _ := strings.Cut(text, "://"); {
	case scheme == "nats" || scheme == "tls":
		from, err = nats.OpenSource(ctx, text, cmp.Or(f.from, a.namespace), nats.Config{Prefix: f.prefix, Logger: a.log})
	case strings.HasPrefix(scheme, "redis"):
		from, err = redis.OpenSource(ctx, text, redis.Config{Prefix: f.prefix})
	default:
		return nil, errUnknownBroker
	}
	if errors.Is(err, posthorn.ErrInvalid) {
		return nil, usageError{err, cmp.Or(posthorn.Hint(err), "posthorn relay --help shows what URLs look like")}
	}
	return from, err
}
