package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay/kafka"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

const importLong = `Publish the events that relays of other databases have written to a broker, until
Ctrl-C or SIGTERM: from Redis Streams, NATS JetStream or Kafka, by URL, as for
posthorn relay.

The events come into streams of the same names, each once, and those of a stream
in their order; groups treat them like other events. Their metadata has the place
where they were first published under posthorn_origin. Any number of processes
may run this: one of them imports, and another takes over when it ends. Each URL
has an import of its own; several URLs need a --name each.

A new import begins with the first event that the broker still has. A confidential
stream accepts only sealed payloads: set its policy before you import it.`

const importExample = `  posthorn import redis://localhost:6379
  posthorn import nats://localhost:4222 --name from-shop --stream orders --stream 'user.*' --from-namespace shop
  posthorn import kafka://host1:9092,host2:9092 --name from-shop`

type importFlags struct {
	brokerFlags
	fromNamespace string
}

func newImport(a *app) *cobra.Command {
	cmd := about{"import URL [URL...]", "Publish events of other databases from Redis, NATS or Kafka", importLong, importExample}.command()
	var f importFlags
	f.add(cmd, "events of one transaction (default 1000)")
	cmd.Flags().StringVar(&f.fromNamespace, "from-namespace", "", "the namespace of the streams in NATS or Kafka (default that of --namespace)")
	cmd.RunE = func(cmd *cobra.Command, urls []string) error {
		return ignoreInterrupt(cmd.Context(), a.importFrom(cmd.Context(), urls, f))
	}
	return cmd
}

func (a *app) importFrom(ctx context.Context, urls []string, f importFlags) error {
	return f.run(ctx, a, "import", urls, func(ph *posthorn.Client, name, url string) (io.Closer, error) {
		source, err := f.open(ctx, a, url)
		if err != nil {
			return nil, err
		}
		ph.Import(name, posthorn.ImportConfig{Streams: f.streams, BatchSize: f.batch, LeaseFor: f.takeOverAfter}, source)
		a.log.Info("import", "name", name, "from", source.String(), "namespace", a.namespace)
		return source, nil
	})
}

// source is a broker that imports read.
type source interface {
	posthorn.Source
	io.Closer
}

// open opens the source of a URL. If the broker cannot be reached, the source connects
// later.
func (f importFlags) open(ctx context.Context, a *app, url string) (from source, err error) {
	switch scheme, _, _ := strings.Cut(url, "://"); {
	case isNATS(scheme):
		from, err = nats.OpenSource(ctx, url, cmp.Or(f.fromNamespace, a.namespace), nats.Config{Prefix: f.prefix, Logger: a.log})
	case strings.HasPrefix(scheme, "kafka"):
		from, err = kafka.OpenSource(ctx, url, cmp.Or(f.fromNamespace, a.namespace), kafka.Config{Prefix: f.prefix})
	case strings.HasPrefix(scheme, "redis"):
		from, err = redis.OpenSource(ctx, url, redis.Config{Prefix: f.prefix})
	default:
		return nil, errUnknownBroker
	}
	if errors.Is(err, posthorn.ErrInvalid) {
		return nil, usageError{err, cmp.Or(posthorn.Hint(err), urlHint)}
	}
	return from, err
}
