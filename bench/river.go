package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// River is a job queue for Go. It writes each job several times, so its rounds are
// shorter.
const riverFraction = 20

// riverSetting determines River's speed. The best setting depends on the machine, so
// several are tried, and the rounds are measured with the fastest one.
type riverSetting struct{ clients, workers int }

var riverSettings = []riverSetting{{1, 100}, {1, 500}, {1, 1000}, {1, 2000}, {1, 5000}, {2, 500}, {2, 1000}, {2, 2000}}

// noJob has the smallest arguments.
type noJob struct{}

func (noJob) Kind() string { return "none" }

// queue is River in a database of its own.
type queue struct {
	*database
	pool *pgxpool.Pool
}

// newQueue makes River's tables, and closes the pool at the end of the row.
func (b *bench) newQueue(ctx context.Context) (*queue, error) {
	d, err := b.newPlainDatabase(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := d.openPool(ctx)
	if err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return &queue{d, pool}, err
}

// openPool opens connections that are closed at the end of the row.
func (d *database) openPool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(d.url())
	if err != nil {
		return nil, err
	}
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	d.atEnd(pool.Close)
	return pool, nil
}

var quiet = slog.New(slog.DiscardHandler)

// working completes n jobs per round, with the fastest setting.
func (q *queue) working(ctx context.Context, n int, say func(format string, args ...any)) (side, error) {
	var best riverSetting
	fastest := 0.0
	for _, setting := range riverSettings {
		speed, err := q.work(ctx, n/2, setting)
		if err != nil {
			return nil, err
		}
		say("  River with %d clients of %d workers: %s/s", setting.clients, setting.workers, figure(speed))
		if speed > fastest {
			best, fastest = setting, speed
		}
	}
	return func(ctx context.Context) (float64, error) { return q.work(ctx, n, best) }, nil
}

// work inserts n jobs, and measures from the start of the clients until they have
// stopped. They are stopped when the last job has run, and then write completed jobs
// at once, not at their next tick.
func (q *queue) work(ctx context.Context, n int, setting riverSetting) (speed float64, err error) {
	if err := q.refill(ctx, n); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	worked := newCounter(n)
	clients := make([]*river.Client[pgx.Tx], setting.clients)
	for i := range clients {
		if clients[i], err = q.client(setting.workers, worked, fmt.Sprint("bench-", i)); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	for _, client := range clients {
		if err := client.Start(ctx); err != nil {
			return 0, err
		}
	}
	err = worked.wait(ctx)
	for _, client := range clients {
		err = errors.Join(err, client.Stop(ctx))
	}
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	return float64(n) / took.Seconds(), q.checkCompleted(ctx, n)
}

// client makes a River client with the settings that poll most often.
func (q *queue) client(workers int, worked *counter, id string) (*river.Client[pgx.Tx], error) {
	bundle := river.NewWorkers()
	river.AddWorker(bundle, river.WorkFunc(func(context.Context, *river.Job[noJob]) error {
		worked.add()
		return nil
	}))
	return river.NewClient(riverpgxv5.New(q.pool), riverConfig(bundle, workers, id))
}

// riverConfig returns River's best settings. A client fetches as many jobs as it has
// free workers, so many workers make large batches; and at most once in FetchCooldown,
// so the shortest cooldown lets it fetch as often as it can.
func riverConfig(bundle *river.Workers, workers int, id string) *river.Config {
	return &river.Config{
		ID:                id,
		Logger:            quiet,
		FetchCooldown:     river.FetchCooldownMin,
		FetchPollInterval: 20 * time.Millisecond,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers:           bundle,
	}
}

// refill puts n jobs into an empty table, then vacuums and analyses it.
func (q *queue) refill(ctx context.Context, n int) error {
	if _, err := q.Exec(ctx, "truncate river_job"); err != nil {
		return err
	}
	inserter, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{Logger: quiet})
	if err != nil {
		return err
	}
	for done := 0; done < n; done += batchSize {
		jobs := make([]river.InsertManyParams, min(batchSize, n-done))
		for i := range jobs {
			jobs[i].Args = noJob{}
		}
		if _, err := inserter.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	_, err = q.Exec(ctx, "vacuum analyze river_job")
	return err
}

func (q *queue) checkCompleted(ctx context.Context, n int) error {
	completed, err := q.count(ctx, "river_job where state = 'completed'")
	if err == nil && completed != n {
		err = fmt.Errorf("%d jobs completed instead of %d", completed, n)
	}
	return err
}

// counter reports when the last of n jobs is done.
type counter struct {
	left atomic.Int64
	all  chan struct{}
}

func newCounter(n int) *counter {
	c := &counter{all: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *counter) add() {
	if c.left.Add(-1) == 0 {
		close(c.all)
	}
}

func (c *counter) wait(ctx context.Context) error {
	select {
	case <-c.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
