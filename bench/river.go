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

func (b *bench) newRiver(ctx context.Context) *jobSystem {
	d := b.newPlainDatabase(ctx)
	driver := riverpgxv5.New(d.openPool(ctx))
	migrator := must(rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet}))
	must(migrator.Migrate(ctx, rivermigrate.DirectionUp, nil))
	// A client that inserts notifies workers at most once in FetchCooldown.
	inserter := must(river.NewClient(driver, &river.Config{Logger: quiet, FetchCooldown: river.FetchCooldownMin}))
	return &jobSystem{
		name: riverSystem, database: d, schemas: []string{"public"}, jobs: "river_job",
		left: "river_job where state <> 'completed'", finished: "truncate river_job",
		enqueue: func(ctx context.Context, payloads []string) {
			jobs := make([]river.InsertManyParams, len(payloads))
			for i, payload := range payloads {
				jobs[i].Args = benchJob{json.RawMessage(payload)}
			}
			must(inserter.InsertManyFast(ctx, jobs)) // it uses COPY, and returns no jobs
		},
		one: func(ctx context.Context, payload string) {
			must(inserter.Insert(ctx, benchJob{json.RawMessage(payload)}, nil))
		},
	}
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

func newRiverWorker(ctx context.Context, c workerConfig, r *reporter) *riverWorker {
	pool := openPool(ctx, c.URL, 0, int32(c.Connections))
	check(pool.Ping(ctx))
	return &riverWorker{config: c, reporter: r, pool: pool}
}

func (w *riverWorker) start(ctx context.Context, s setting) {
	bundle := river.NewWorkers()
	river.AddWorker(bundle, river.WorkFunc(w.work))
	config := riverConfig(bundle, s.Concurrency)
	if s.Idle {
		config.FetchCooldown, config.FetchPollInterval = 0, 0
	}
	w.client = must(river.NewClient(riverpgxv5.New(w.pool), config))
	check(w.client.Start(ctx))
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
		w.did(1)
	}
	return err
}

func (w *riverWorker) stop(ctx context.Context) { check(w.client.Stop(ctx)) }
