package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/tests3"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

// pipelineLease is short, so that another process soon takes over.
const pipelineLease = 2 * time.Second

func beRelay(ctx context.Context, s setup) error {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: s.Database, Logger: quiet()})
	if err != nil {
		return err
	}
	defer ph.Close()
	// Both replicas: on a busy machine the sentinels replace a master that lives, and the
	// next kill makes the other replica a master.
	toRedis, err := redis.Open(ctx, s.Redis, redis.Config{Replicas: 2, Logger: quiet()})
	if err != nil {
		return err
	}
	defer toRedis.Close()
	toNATS, err := nats.Open(ctx, s.NATS, nats.Config{Replicas: 3, Logger: quiet()})
	if err != nil {
		return err
	}
	defer toNATS.Close()
	config := posthorn.RelayConfig{LeaseFor: pipelineLease, BatchSize: 200}
	ph.Relay("to redis", config, toRedis)
	ph.Relay("to nats", config, toNATS)
	return ph.Run(ctx)
}

func beArchiver(ctx context.Context, s setup) error {
	tests3.Setenv()
	pool, err := pgxpool.New(ctx, s.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	to, err := archive.Open(ctx, s.Archive)
	if err != nil {
		return err
	}
	defer to.Close()
	return archive.New(pool, to, archive.Config{SegmentAge: time.Second, LeaseFor: pipelineLease, Logger: quiet()}).Run(ctx)
}

// beReader handles the events of a broker, with an effect in the transaction. Every
// tenth time it fails. It prints a line for each event.
func beReader(ctx context.Context, s setup) error {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: s.Database, Logger: quiet()})
	if err != nil {
		return err
	}
	defer ph.Close()
	source := s.Redis
	if s.Role == "nats reader" {
		source = s.NATS
	}
	g := ph.Group(s.Role, posthorn.GroupConfig{
		Source: posthorn.From(source), Start: posthorn.Beginning, Attempts: 100,
		Delays: []time.Duration{100 * time.Millisecond}, LeaseFor: pipelineLease,
	})
	g.HandleTx("effect", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if _, err := tx.Exec(ctx, "insert into effects (reader, event) values ($1, $2)", s.Role, e.ID); err != nil {
			return err
		}
		if rand.IntN(10) == 0 {
			return errors.New("not this time")
		}
		fmt.Println("handled", e.ID)
		return nil
	})
	return ph.Run(ctx)
}
