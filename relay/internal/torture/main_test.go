package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/tests3"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

// role, in the environment, makes the test binary one of the processes that are
// killed.
const (
	role     = "POSTHORN_TORTURE_ROLE"
	database = "POSTHORN_TORTURE_DATABASE"
	redisURL = "POSTHORN_TORTURE_REDIS"
	natsURL  = "POSTHORN_TORTURE_NATS"
	store    = "POSTHORN_TORTURE_STORE"
)

func TestMain(m *testing.M) {
	be := map[string]func(context.Context) error{
		"relay":        beRelay,
		"archiver":     beArchiver,
		"redis reader": func(ctx context.Context) error { return beReader(ctx, "redis reader", os.Getenv(redisURL)) },
		"nats reader":  func(ctx context.Context) error { return beReader(ctx, "nats reader", os.Getenv(natsURL)) },
	}[os.Getenv(role)]
	if be == nil {
		goredis.SetLogger(&logging.VoidLogger{})
		posthorntest.Main(m)
		return
	}
	go endWithParent()
	goredis.SetLogger(&logging.VoidLogger{}) // it would tell of every server that is killed
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := be(ctx); err != nil {
		fmt.Println(os.Getenv(role)+":", err) // it is started again
		os.Exit(1)
	}
}

// endWithParent: its end of the pipe closes when it has gone, however.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func beRelay(ctx context.Context) error {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: os.Getenv(database), Logger: quiet()})
	if err != nil {
		return err
	}
	defer ph.Close()
	toRedis, err := redis.Open(ctx, os.Getenv(redisURL), redis.Config{Logger: quiet()})
	if err != nil {
		return err
	}
	defer toRedis.Close()
	toNATS, err := nats.Open(ctx, os.Getenv(natsURL), nats.Config{Replicas: 3, Logger: quiet()})
	if err != nil {
		return err
	}
	defer toNATS.Close()
	config := posthorn.RelayConfig{LeaseFor: 3 * time.Second, BatchSize: 200}
	ph.Relay("to redis", config, toRedis)
	ph.Relay("to nats", config, toNATS)
	return ph.Run(ctx)
}

func beArchiver(ctx context.Context) error {
	tests3.Setenv()
	pool, err := pgxpool.New(ctx, os.Getenv(database))
	if err != nil {
		return err
	}
	defer pool.Close()
	to, err := archive.Open(ctx, os.Getenv(store))
	if err != nil {
		return err
	}
	defer to.Close()
	return archive.New(pool, to, archive.Config{SegmentAge: time.Second, LeaseFor: 3 * time.Second, Logger: quiet()}).Run(ctx)
}

// beReader handles what a broker has, with an effect in the transaction. Every
// tenth event fails at first.
func beReader(ctx context.Context, name, url string) error {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: os.Getenv(database), Logger: quiet()})
	if err != nil {
		return err
	}
	defer ph.Close()
	g := ph.Group(name, posthorn.GroupConfig{
		Source: posthorn.From(url), Start: posthorn.Beginning, Attempts: 100,
		Delays: []time.Duration{100 * time.Millisecond}, LeaseFor: 3 * time.Second,
	})
	g.HandleTx("effect", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if _, err := tx.Exec(ctx, "insert into effects (reader, event) values ($1, $2)", name, e.ID); err != nil {
			return err
		}
		if rand.IntN(10) == 0 {
			return errors.New("not this time")
		}
		return nil
	})
	return ph.Run(ctx)
}
