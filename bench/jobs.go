package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

func jobRows(o options) []row {
	return []row{
		jobBacklogRow(o.jobs, "common"),
		jobBacklogRow(o.jobs, "rare"),
		jobHeldRow(o.jobs/5, "common"),
		jobHeldRow(o.jobs/5, "rare"),
	}
}

const (
	claimJobsSQL    = "select id from posthorn.claim_jobs('default', $1::text, $2::text[], $3::int)"
	completeJobsSQL = "select posthorn.complete_jobs($1::text, $2::bigint[])"
)

// enqueue adds n jobs to the waiting ones. One in a thousand has a rare tag.
func (d *database) enqueue(ctx context.Context, n int) error {
	_, err := d.Exec(ctx, `
		select count(*) from generate_series(1, $1::int / 1000) part, posthorn.enqueue_batch('default',
			array(select 'job ' || part from generate_series(1, 1000)),
			array(select $2::text::json from generate_series(1, 1000)),
			array(select case when i = 500 then '{common,rare}' else '{common}' end from generate_series(1, 1000) i))`, n, payload)
	return err
}

func claimJobs(ctx context.Context, conn *pgx.Conn, worker string, tags []string, n int) ([]int64, error) {
	rows, err := conn.Query(ctx, claimJobsSQL, worker, tags, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
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
