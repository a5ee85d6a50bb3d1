//go:build !small

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
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
	if len(f.names) == 0 && len(urls) == 1 {
		f.names = []string{"import"}
	}
	if len(f.names) != len(urls) {
		return usageError{
			fmt.Errorf("%d URLs and %d names", len(urls), len(f.names)),
			"give each import a --name, in the order of the URLs: it remembers under it how far it is",
		}
	}
	conn, err := a.connect(ctx) // says in a sentence why it cannot
	if err != nil {
		return err
	}
	_ = conn.Close(ctx)
	goredis.SetLogger(&logging.VoidLogger{}) // it would repeat every failed attempt; the import says what is wrong
	ph, err := a.client(ctx, "posthorn import", nil)
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
		ph.Import(f.names[i], posthorn.ImportConfig{Streams: f.streams, BatchSize: f.batch, LeaseFor: f.takeAfter}, source)
		a.log.Info("import", "name", f.names[i], "from", source.String(), "namespace", a.namespace)
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
		from, err = redis.OpenSource(ctx, text, redis.Config{Prefix: f.prefix, Logger: a.log})
	default:
		return nil, usageError{errors.New("the URL of the broker is of no kind that is known"), "write it like redis://host:6379 or nats://host:4222"}
	}
	if errors.Is(err, posthorn.ErrInvalid) {
		return nil, usageError{err, cmp.Or(posthorn.Hint(err), "posthorn relay --help shows what URLs look like")}
	}
	return from, err
}
