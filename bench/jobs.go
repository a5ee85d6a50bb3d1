package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivershared/util/ptrutil"
	"github.com/riverqueue/river/rivertype"
)

func jobRows(o options) []row {
	return []row{
		jobBatchRow(100),
		jobBatchRow(1000),
		jobBacklogRow(o.jobs, "common"),
		jobBacklogRow(o.jobs, "rare"),
		jobHeldRow(o.jobs/5, "common"),
		jobHeldRow(o.jobs/5, "rare"),
	}
}

const (
	claimJobsSQL    = "select id from posthorn.claim_jobs('default', $1::text, $2::text[], $3::int)"
	completeJobsSQL = "select posthorn.complete_jobs($1::text, $2::bigint[])"

	jobWorkers = 2
	// jobFraction keeps rounds short: every system writes a job several times.
	jobFraction = 10
)

func jobBatchRow(size int) row {
	return row{
		work:  fmt.Sprintf("jobs: claim + complete, batches of %s", figure(float64(size))),
		floor: atLeast(1), target: atLeast(2), unit: "/s",
		ours: "claim_jobs + complete_jobs, 2 workers", peer: "River's statements for the same, 2 workers",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			n := max(b.events/jobFraction, 10*size)
			d, err := b.newDatabase(ctx)
			if err != nil {
				return nil, nil, err
			}
			if ours, err = d.workingOff(ctx, n, size); err != nil {
				return nil, nil, err
			}
			q, err := b.newQueue(ctx)
			if err != nil {
				return nil, nil, err
			}
			return ours, q.statements(n, size), nil
		},
	}
}

// enqueue adds n jobs to the waiting ones. One in a thousand has a rare tag.
func (d *database) enqueue(ctx context.Context, n int) error {
	_, err := d.Exec(ctx, `
		select count(*) from generate_series(1, $1::int / 1000) part, posthorn.enqueue_batch('default',
			array(select 'job ' || part from generate_series(1, 1000)),
			array(select $2::text::json from generate_series(1, 1000)),
			array(select case when i = 500 then '{common,rare}' else '{common}' end from generate_series(1, 1000) i))`, n, payload)
	return err
}

// workingOff enqueues n jobs per round, and measures until they are completed.
func (d *database) workingOff(ctx context.Context, n, size int) (side, error) {
	crew, err := d.crew(ctx, jobWorkers, nil)
	if err != nil {
		return nil, err
	}
	d.atEnd(crew.close)
	return func(ctx context.Context) (float64, error) {
		if err := d.enqueue(ctx, n); err != nil {
			return 0, err
		}
		if _, err := d.Exec(ctx, "vacuum analyze posthorn.enqueued_jobs, posthorn.ready_jobs, posthorn.running_jobs"); err != nil {
			return 0, err
		}
		speed, err := crew.run(ctx, n, func(ctx context.Context, i int, conn *pgx.Conn) (done int, err error) {
			worker := fmt.Sprint("bench:", i)
			for {
				ids, err := claimJobs(ctx, conn, worker, []string{"common"}, size)
				if err != nil || len(ids) == 0 {
					return done, err
				}
				if _, err := conn.Exec(ctx, completeJobsSQL, worker, ids); err != nil {
					return done, err
				}
				done += len(ids)
			}
		})
		if err != nil {
			return 0, err
		}
		left, err := d.count(ctx, "(select from posthorn.ready_jobs union all select from posthorn.running_jobs) j")
		if err == nil && left > 0 {
			err = fmt.Errorf("%d jobs are left", left)
		}
		return speed, err
	}, nil
}

func claimJobs(ctx context.Context, conn *pgx.Conn, worker string, tags []string, n int) ([]int64, error) {
	rows, err := conn.Query(ctx, claimJobsSQL, worker, tags, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// statements runs the statements of River's client that claim and complete jobs,
// without the client.
func (q *queue) statements(n, size int) side {
	return func(ctx context.Context) (float64, error) {
		if err := q.refill(ctx, n); err != nil {
			return 0, err
		}
		pools, err := q.pools(ctx, jobWorkers)
		if err != nil {
			return 0, err
		}
		start := time.Now()
		results := make(chan error, len(pools))
		for _, pool := range pools {
			go func() { results <- workOffRiver(ctx, pool, size) }()
		}
		for range pools {
			if one := <-results; one != nil {
				err = one
			}
		}
		took := time.Since(start)
		for _, pool := range pools {
			pool.Close()
		}
		if err != nil {
			return 0, err
		}
		return float64(n) / took.Seconds(), q.checkCompleted(ctx, n)
	}
}

// pools returns connections for River's driver: pools of one connection.
func (q *queue) pools(ctx context.Context, n int) (pools []*pgxpool.Pool, err error) {
	for range n {
		config := q.pool.Config()
		config.MaxConns = 1
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err == nil {
			err = pool.Ping(ctx)
		}
		if err != nil {
			return nil, err
		}
		pools = append(pools, pool)
	}
	return pools, nil
}

func workOffRiver(ctx context.Context, pool *pgxpool.Pool, size int) error {
	river := riverpgxv5.New(pool).GetExecutor()
	for {
		available, err := river.JobGetAvailable(ctx, &riverdriver.JobGetAvailableParams{
			ClientID: "bench", MaxAttemptedBy: 100, MaxToLock: size, Queue: "default",
		})
		if err != nil || len(available.Jobs) == 0 {
			return err
		}
		now := time.Now()
		done := &riverdriver.JobSetStateIfRunningManyParams{}
		for _, job := range available.Jobs {
			done.ID = append(done.ID, job.ID)
			done.Attempt = append(done.Attempt, nil)
			done.ErrData = append(done.ErrData, nil)
			done.FinalizedAt = append(done.FinalizedAt, ptrutil.Ptr(now))
			done.MetadataDoMerge = append(done.MetadataDoMerge, false)
			done.MetadataUpdates = append(done.MetadataUpdates, nil)
			done.ScheduledAt = append(done.ScheduledAt, nil)
			done.State = append(done.State, rivertype.JobStateCompleted)
		}
		if _, err := river.JobSetStateIfRunningMany(ctx, done); err != nil {
			return err
		}
	}
}

const (
	someJobs  = 1_000 // number of waiting jobs in the other database
	jobClaims = 500
)

// jobBacklogRow compares the duration of a claim with many waiting jobs and with few.
// Each taken job is replaced.
func jobBacklogRow(many int, tag string) row {
	return row{
		work:  fmt.Sprintf("job claim latency, %s waiting, %s tag, p50", figure(float64(many)), tag),
		floor: atMost(1.5), target: atMost(1.1), unit: " ms",
		ours: "claim_jobs of one, " + figure(float64(many)) + " waiting", peer: "the same, 1,000 waiting",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			if ours, err = b.claimingAmong(ctx, many, tag); err != nil {
				return nil, nil, err
			}
			peer, err = b.claimingAmong(ctx, someJobs, tag)
			return ours, peer, err
		},
	}
}

func (b *bench) claimingAmong(ctx context.Context, n int, tag string) (side, error) {
	d, err := b.backlog(ctx, n)
	if err != nil {
		return nil, err
	}
	return d.claiming(tag), nil
}

// backlog makes a database in which n jobs wait.
func (b *bench) backlog(ctx context.Context, n int) (*database, error) {
	d, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.enqueue(ctx, n); err != nil {
		return nil, err
	}
	_, err = d.Exec(ctx, "vacuum analyze")
	return d, err
}

// claiming measures single claims of a tag and returns the median. The jobs are
// completed and replaced in between.
func (d *database) claiming(tag string) side {
	return func(ctx context.Context) (float64, error) {
		taken := make([]float64, 0, jobClaims)
		for range jobClaims {
			start := time.Now()
			ids, err := claimJobs(ctx, d.Conn, "bench:1", []string{tag}, 1)
			took := time.Since(start)
			if err == nil && len(ids) != 1 {
				err = fmt.Errorf("%d jobs instead of 1", len(ids))
			}
			if err != nil {
				return 0, err
			}
			taken = append(taken, float64(took.Microseconds())/1000)
			if _, err := d.Exec(ctx, completeJobsSQL, "bench:1", ids); err != nil {
				return 0, err
			}
			if _, err := d.Exec(ctx, "select posthorn.enqueue('default', 'job', $1::json, array['common', $2::text])", payload, tag); err != nil {
				return 0, err
			}
		}
		return percentile(taken, 50), nil
	}
}

// jobHeldRow makes claims while a transaction is held open, before it measures: so
// the head of the index consists of dead rows.
func jobHeldRow(claims int, tag string) row {
	return row{
		work:  fmt.Sprintf("job claim latency, %s claims under a transaction held open, %s tag, p50", figure(float64(claims)), tag),
		floor: atMost(1.5), target: atMost(1.1), unit: " ms",
		ours: "claim_jobs of one, after the claims", peer: "the same where none is held open and nothing was claimed",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			if peer, err = b.claimingAmong(ctx, 2*claims, tag); err != nil {
				return nil, nil, err
			}
			d, err := b.backlog(ctx, 2*claims)
			if err != nil {
				return nil, nil, err
			}
			holder, err := d.connect(ctx, nil)
			if err != nil {
				return nil, nil, err
			}
			d.atEnd(func() { holder.Close(context.Background()) })
			if _, err := holder.Exec(ctx, "begin isolation level repeatable read; select pg_current_xact_id()"); err != nil {
				return nil, nil, err
			}
			for claimed := 0; claimed < claims; {
				ids, err := claimJobs(ctx, d.Conn, "bench:1", []string{"common"}, 100)
				if err == nil && len(ids) == 0 {
					err = errors.New("no more jobs wait")
				}
				if err != nil {
					return nil, nil, err
				}
				if _, err := d.Exec(ctx, completeJobsSQL, "bench:1", ids); err != nil {
					return nil, nil, err
				}
				claimed += len(ids)
			}
			return d.claiming(tag), peer, nil
		},
	}
}
