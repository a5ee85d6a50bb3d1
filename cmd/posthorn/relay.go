package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

const relayLong = `Write what is published to a broker, until Ctrl-C or SIGTERM: Redis Streams or NATS
JetStream, by URL.

  redis://user:password@host:6379/0        rediss:// by TLS; a Cluster is found out
  redis-sentinel://host1,host2/mymaster    what sentinels name
  redis-cluster://host1:7000,host2
  nats://user:password@host:4222           tls:// by TLS

Every event is written at least once, those of each stream in their order. As many
processes as you like may run this: one of them writes, and another goes on when
it ends. With several URLs there is a relay for each, and each needs a --name.

A new relay begins with the first event of the log; posthorn groups seek moves it.`

const relayExample = `  posthorn relay redis://localhost:6379
  posthorn relay nats://localhost:4222 --name to-nats --stream orders --stream 'user.*'
  posthorn relay redis://r1 nats://n1 --name to-redis --name to-nats --keep-for 168h`

type relayFlags struct {
	names, streams     []string
	batch, replicas    int
	keep               int
	keepFor, takeAfter time.Duration
	prefix             string
	imported           bool
}

func newRelay(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "relay URL [URL...]",
		Short:   "Write what is published to Redis or NATS",
		Long:    relayLong,
		Example: relayExample,
		Args:    cobra.MinimumNArgs(1),
	}
	var f relayFlags
	flags := cmd.Flags()
	flags.StringArrayVar(&f.names, "name", nil, `the relay's name, one for each URL (default "relay")`)
	flags.StringArrayVar(&f.streams, "stream", nil, "only streams that match this pattern; may be repeated")
	flags.BoolVar(&f.imported, "imported", false, "write events too that posthorn import has brought here")
	flags.IntVar(&f.batch, "batch-size", 0, "events in memory at once, of each of two windows (default 2000)")
	flags.DurationVar(&f.takeAfter, "take-over-after", 0, "how long after this process has died another goes on (default 10s)")
	flags.StringVar(&f.prefix, "prefix", "", "what keys, or names of streams, begin with at the broker")
	flags.IntVar(&f.replicas, "replicas", 0, "how many servers must have an event: replicas of Redis, or servers of JetStream")
	flags.IntVar(&f.keep, "keep", 0, "trim streams, but leave that many entries")
	flags.DurationVar(&f.keepFor, "keep-for", 0, "trim streams, but leave entries that are younger")
	cmd.RunE = func(cmd *cobra.Command, urls []string) error {
		return untilTold(cmd.Context(), a.relay(cmd.Context(), urls, f))
	}
	return cmd
}

func (a *app) relay(ctx context.Context, urls []string, f relayFlags) error {
	ph, names, err := a.brokerClient(ctx, "relay", f.names, urls)
	if err != nil {
		return err
	}
	defer ph.Close()
	for i, text := range urls {
		sink, err := f.open(ctx, text, a.log)
		if err != nil {
			return err
		}
		defer func() { _ = sink.Close() }() // all it was given is answered for
		ph.Relay(names[i], posthorn.RelayConfig{Streams: f.streams, Imported: f.imported, BatchSize: f.batch, LeaseFor: f.takeAfter}, sink)
		a.log.Info("relay", "name", names[i], "to", brokerOf(text), "namespace", a.namespace)
	}
	return ph.Run(ctx)
}

// broker is a sink that can be trimmed and closed.
type broker interface {
	posthorn.Sink
	posthorn.Trimmer
	io.Closer
}

// open opens the sink of a URL. A broker that is not there is waited for.
func (f relayFlags) open(ctx context.Context, text string, log *slog.Logger) (broker, error) {
	open := func(ctx context.Context) (broker, error) {
		sink, err := redis.Open(ctx, text, redis.Config{
			Prefix: f.prefix, Replicas: f.replicas, Keep: f.keep, KeepFor: f.keepFor,
		})
		if err != nil { // it does not connect
			return nil, usageError{err, "posthorn relay --help shows what URLs look like"}
		}
		return sink, nil
	}
	switch scheme, _, _ := strings.Cut(text, "://"); {
	case scheme == "nats" || scheme == "tls":
		open = func(ctx context.Context) (broker, error) {
			return nats.Open(ctx, text, nats.Config{
				Prefix: f.prefix, Replicas: f.replicas, Keep: int64(f.keep), KeepFor: f.keepFor, Logger: log,
			})
		}
	case !strings.HasPrefix(scheme, "redis"):
		return nil, errUnknownBroker
	}
	sink, err := open(ctx)
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return nil, err
	case errors.Is(err, posthorn.ErrInvalid):
		return nil, usageError{err, posthorn.Hint(err)}
	case err != nil:
		log.Warn("the broker is not there; the relay waits for it", "broker", brokerOf(text), "error", err)
		return &awaited{open: open}, nil
	}
	return sink, nil
}

// brokerOf is a URL without what is secret in it.
func brokerOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		scheme, _, _ := strings.Cut(text, "://")
		return scheme + "://…"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// awaited is a broker that was not there when it was opened first.
type awaited struct {
	open func(ctx context.Context) (broker, error)

	mu   sync.Mutex
	sink broker
}

func (s *awaited) get(ctx context.Context) (broker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sink != nil {
		return s.sink, nil
	}
	sink, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.sink = sink
	return sink, nil
}

func (s *awaited) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	sink, err := s.get(ctx)
	if err != nil {
		return err
	}
	return sink.Write(ctx, batch)
}

func (s *awaited) Trim(ctx context.Context, namespace, stream string, needed func(context.Context, []int64) ([]int64, error)) error {
	sink, err := s.get(ctx)
	if err != nil {
		return err
	}
	return sink.Trim(ctx, namespace, stream, needed)
}

func (s *awaited) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sink == nil {
		return nil
	}
	return s.sink.Close()
}
