package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay/kafka"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

const relayLong = `Write the events of the log to a broker, until Ctrl-C or SIGTERM: to Redis Streams,
NATS JetStream or Kafka, by URL.

  redis://user:password@host:6379/0        rediss:// for TLS; a Cluster is detected
  redis-sentinel://host1,host2/mymaster    the master that the sentinels name
  redis-cluster://host1:7000,host2
  nats://user:password@host:4222           tls:// for TLS
  kafka://host1:9092,host2:9092            kafka+ssl:// for TLS; user and password for SASL

Every event is written at least once, and the events of a stream in their order.
Any number of processes may run this: one of them writes, and another takes over
when it ends. Each URL has a relay of its own; several URLs need a --name each.

A new relay begins with the first event of the log; posthorn groups seek moves it.`

const relayExample = `  posthorn relay redis://localhost:6379
  posthorn relay nats://localhost:4222 --name to-nats --stream orders --stream 'user.*'
  posthorn relay 'kafka+ssl://host1:9093,host2:9093?sasl=scram-sha-512' --stream orders --replicas 3
  posthorn relay redis://r1 nats://n1 --name to-redis --name to-nats --keep-for 168h`

type relayFlags struct {
	brokerFlags
	replicas, keep int
	keepFor        time.Duration
	imported       bool
}

func newRelay(a *app) *cobra.Command {
	cmd := about{"relay URL [URL...]", "Write the log to Redis, NATS or Kafka", relayLong, relayExample}.command()
	var f relayFlags
	f.add(cmd, "events in memory at once, of each of two windows (default 2000)")
	flags := cmd.Flags()
	flags.BoolVar(&f.imported, "imported", false, "also write events that posthorn import has published here")
	flags.IntVar(&f.replicas, "replicas", 0, "how many servers must have an event: replicas of Redis, servers of JetStream, or of a new topic of Kafka")
	flags.IntVar(&f.keep, "keep", 0, "trim streams, but leave that many entries")
	flags.DurationVar(&f.keepFor, "keep-for", 0, "trim streams, but leave entries that are younger")
	cmd.RunE = func(cmd *cobra.Command, urls []string) error {
		return ignoreInterrupt(cmd.Context(), a.relay(cmd.Context(), urls, f))
	}
	return cmd
}

func (a *app) relay(ctx context.Context, urls []string, f relayFlags) error {
	return f.run(ctx, a, "relay", urls, func(ph *posthorn.Client, name, url string) (io.Closer, error) {
		sink, err := f.open(ctx, name, url, a.log)
		if err != nil {
			return nil, err
		}
		ph.Relay(name, posthorn.RelayConfig{Streams: f.streams, Imported: f.imported, BatchSize: f.batch, LeaseFor: f.takeOverAfter}, sink)
		a.log.Info("relay", "name", name, "to", withoutSecrets(url), "namespace", a.namespace)
		return sink, nil
	})
}

// sink is a broker that relays write to and read back.
type sink interface {
	posthorn.Sink
	posthorn.SinkReader
	io.Closer
}

// trimmedSink is one whose streams relays trim.
type trimmedSink interface {
	sink
	posthorn.Trimmer
}

// open opens the sink of a URL. If the broker cannot be reached, the sink connects later.
func (f relayFlags) open(ctx context.Context, name, url string, log *slog.Logger) (sink, error) {
	open := func(ctx context.Context) (trimmedSink, error) {
		s, err := redis.Open(ctx, url, redis.Config{
			Prefix: f.prefix, Replicas: f.replicas, Keep: f.keep, KeepFor: f.keepFor,
		})
		if err != nil { // not of the connection, which Open does not make
			return nil, usageError{err, urlHint}
		}
		return s, nil
	}
	switch scheme, _, _ := strings.Cut(url, "://"); {
	case strings.HasPrefix(scheme, "kafka"):
		return f.openKafka(ctx, name, url)
	case isNATS(scheme):
		open = func(ctx context.Context) (trimmedSink, error) {
			return nats.Open(ctx, url, nats.Config{
				Prefix: f.prefix, Replicas: f.replicas, Keep: int64(f.keep), KeepFor: f.keepFor, Logger: log,
			})
		}
	case !strings.HasPrefix(scheme, "redis"):
		return nil, errUnknownBroker
	}
	s, err := open(ctx)
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return nil, err
	case errors.Is(err, posthorn.ErrInvalid):
		return nil, usageError{err, posthorn.Hint(err)}
	case err != nil:
		log.Warn("the broker cannot be reached; the relay waits for it", "broker", withoutSecrets(url), "error", err)
		return &lateSink{open: open}, nil
	}
	return s, nil
}

// openKafka opens the sink of a URL of Kafka, without a connection.
func (f relayFlags) openKafka(ctx context.Context, name, url string) (sink, error) {
	if f.keep != 0 || f.keepFor != 0 {
		return nil, usageError{errors.New("kafka removes old records by itself"), "leave out --keep and --keep-for, and set retention.ms of the topics"}
	}
	s, err := kafka.Open(ctx, url, kafka.Config{Relay: name, Prefix: f.prefix, Replicas: f.replicas})
	if err != nil {
		return nil, usageError{err, posthorn.Hint(err)}
	}
	return s, nil
}

// lateSink is a sink whose broker could not be reached at first. Each use tries again
// until the broker has been reached.
type lateSink struct {
	open func(ctx context.Context) (trimmedSink, error)

	mu   sync.Mutex
	sink trimmedSink
}

func (s *lateSink) get(ctx context.Context) (trimmedSink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sink != nil {
		return s.sink, nil
	}
	opened, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.sink = opened
	return opened, nil
}

func (s *lateSink) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	sink, err := s.get(ctx)
	if err != nil {
		return err
	}
	return sink.Write(ctx, batch)
}

func (s *lateSink) Written(ctx context.Context, log, namespace string) ([]string, error) {
	sink, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	return sink.Written(ctx, log, namespace)
}

func (s *lateSink) ReadBack(ctx context.Context, log, namespace, stream, before string, limit int) ([]posthorn.SourceEntry, error) {
	sink, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	return sink.ReadBack(ctx, log, namespace, stream, before, limit)
}

func (s *lateSink) Trim(ctx context.Context, namespace, stream string, needed func(context.Context, []int64) ([]int64, error)) error {
	sink, err := s.get(ctx)
	if err != nil {
		return err
	}
	return sink.Trim(ctx, namespace, stream, needed)
}

func (s *lateSink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sink == nil {
		return nil
	}
	return s.sink.Close()
}
