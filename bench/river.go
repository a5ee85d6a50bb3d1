package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func (b *bench) newRiver(ctx context.Context) (*jobSystem, error) {
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
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	// A client that inserts notifies workers at most once in FetchCooldown.
	inserter, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet, FetchCooldown: river.FetchCooldownMin})
	if err != nil {
		return nil, err
	}
	return &jobSystem{
		name: riverSystem, database: d, schemas: []string{"public"}, jobs: "river_job",
		left: "river_job where state <> 'completed'", finished: "truncate river_job",
		enqueue: func(ctx context.Context, payloads []string) error {
			jobs := make([]river.InsertManyParams, len(payloads))
			for i, payload := range payloads {
				jobs[i].Args = benchJob{json.RawMessage(payload)}
			}
			// It uses COPY, and returns no jobs.
			_, err := inserter.InsertManyFast(ctx, jobs)
			return err
		},
		one: func(ctx context.Context, payload string) error {
			_, err := inserter.Insert(ctx, benchJob{json.RawMessage(payload)}, nil)
			return err
		},
	}, nil
}

// riverConfig returns River's best settings. A client fetches as many jobs as it has
// free workers, so many workers make large batches; and at most once in FetchCooldown,
// so the shortest cooldown lets it fetch as often as it can.
func riverConfig(bundle *river.Workers, workers int) *river.Config {
	return &river.Config{
		Logger:            quiet,
		FetchCooldown:     river.FetchCooldownMin,
		FetchPollInterval: 20 * time.Millisecond,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers:           bundle,
	}
}

// riverWorker works with River's client.
type riverWorker struct {
	config workerConfig
	*reporter
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// benchJob is a job of River with any JSON object as arguments.
type benchJob struct{ payload json.RawMessage }

func (benchJob) Kind() string { return "bench" }

func (j benchJob) MarshalJSON() ([]byte, error) { return j.payload, nil }

func (j *benchJob) UnmarshalJSON(payload []byte) error {
	j.payload = clone(payload)
	return nil
}

func newRiverWorker(ctx context.Context, c workerConfig, r *reporter) (*riverWorker, error) {
	config, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(c.Connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &riverWorker{config: c, reporter: r, pool: pool}, pool.Ping(ctx)
}

func (w *riverWorker) start(ctx context.Context, s setting) (err error) {
	bundle := river.NewWorkers()
	river.AddWorker(bundle, river.WorkFunc(w.work))
	config := riverConfig(bundle, s.Concurrency)
	if s.Idle {
		config.FetchCooldown, config.FetchPollInterval = 0, 0
	}
	w.client, err = river.NewClient(riverpgxv5.New(w.pool), config)
	if err != nil {
		return err
	}
	return w.client.Start(ctx)
}

func (w *riverWorker) work(ctx context.Context, job *river.Job[benchJob]) error {
	if w.config.Task != "insert" {
		return w.do(w.config.Task, job.Args.payload)
	}
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, effectSQL, job.ID, []byte(job.Args.payload)); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		w.done.Add(1)
	}
	return err
}

func (w *riverWorker) stop(ctx context.Context) error { return w.client.Stop(ctx) }
