package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/tests3"
	"github.com/posthorn/posthorn/relay/kafka"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

// pipelineLease is short, so that another process soon takes over.
const pipelineLease = 2 * time.Second

func beRelay(ctx context.Context, s setup) error {
	printed := slog.New(slog.NewTextHandler(os.Stdout, nil)) // a failed test shows it
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: s.Database, Logger: printed})
	if err != nil {
		return err
	}
	defer ph.Close()
	sinks, err := brokers(ctx, s, printed)
	if err != nil {
		return err
	}
	for name, sink := range sinks {
		defer sink.Close()
		ph.Relay(name, posthorn.RelayConfig{LeaseFor: pipelineLease, BatchSize: 200}, sink)
	}
	return ph.Run(ctx)
}

type sink interface {
	posthorn.Sink
	io.Closer
}

// brokers opens the brokers of a setup: servers alone, or Redis with sentinels and clusters of the others.
func brokers(ctx context.Context, s setup, printed *slog.Logger) (map[string]sink, error) {
	// Replicas is 2 because, on a busy machine, sentinels may replace a living
	// master. The next kill could then promote a replica without the entries.
	toRedis, toNATS := redis.Config{Replicas: 2}, nats.Config{Replicas: 3, Logger: printed}
	if s.Alone {
		toRedis.Replicas, toNATS.Replicas = 0, 1
	}
	sinks := map[string]sink{}
	for _, b := range []struct {
		name, url string
		open      func() (sink, error)
	}{
		{"to redis", s.Redis, func() (sink, error) { return redis.Open(ctx, s.Redis, toRedis) }},
		{"to nats", s.NATS, func() (sink, error) { return nats.Open(ctx, s.NATS, toNATS) }},
		{"to kafka", s.Kafka, func() (sink, error) { return kafka.Open(ctx, s.Kafka, kafka.Config{}) }},
	} {
		if b.url == "" {
			continue
		}
		opened, err := b.open()
		if err != nil {
			return nil, err
		}
		sinks[b.name] = opened
	}
	return sinks, nil
}

func beArchiver(ctx context.Context, s setup) error {
	tests3.Setenv()
	printed := slog.New(slog.NewTextHandler(os.Stdout, nil))
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: s.Database, Logger: quiet()}) // its pool leaves a server that hangs
	if err != nil {
		return err
	}
	defer ph.Close()
	to, err := archive.Open(ctx, s.Archive)
	if err != nil {
		return err
	}
	defer to.Close()
	return archive.New(ph.Pool(), to, archive.Config{SegmentAge: time.Second, LeaseFor: pipelineLease, Logger: printed}).Run(ctx)
}

// beReader imports the events of a broker, and handles them with an effect in the
// handler's transaction. Every tenth handling fails. It prints a line for each event.
func beReader(ctx context.Context, s setup) error {
	ph, err := posthorn.Open(ctx, posthorn.Config{
		DatabaseURL: s.Database, Namespace: strings.ReplaceAll(s.Role, " ", "-"), Migrate: true, Logger: quiet(),
	})
	if err != nil {
		return err
	}
	defer ph.Close()
	source, err := openReaderSource(ctx, s)
	if err != nil {
		return err
	}
	defer source.Close()
	ph.Import("in", posthorn.ImportConfig{BatchSize: 50, LeaseFor: pipelineLease}, source)
	g := ph.Group("effects", posthorn.GroupConfig{
		Start: posthorn.Beginning, Attempts: 100,
		Delays: []time.Duration{100 * time.Millisecond}, LeaseFor: pipelineLease,
	})
	g.HandleTx("effect", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		origin, imported := e.Origin()
		if !imported {
			return posthorn.Permanent(errors.New("it was not imported"))
		}
		if _, err := tx.Exec(ctx, "insert into effects (reader, event) values ($1, $2)", s.Role, origin.ID); err != nil {
			return err
		}
		if rand.IntN(10) == 0 {
			return errors.New("not this time")
		}
		fmt.Println("handled", origin.ID)
		return nil
	})
	return ph.Run(ctx)
}

func openReaderSource(ctx context.Context, s setup) (interface {
	posthorn.Source
	io.Closer
}, error,
) {
	switch s.Role {
	case "nats reader":
		return nats.OpenSource(ctx, s.NATS, "default", nats.Config{Logger: quiet()})
	case "kafka reader":
		return kafka.OpenSource(ctx, s.Kafka, "default", kafka.Config{})
	}
	return redis.OpenSource(ctx, s.Redis, redis.Config{})
}
