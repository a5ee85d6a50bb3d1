package main

import (
	"context"
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
func (d *database) enqueue(ctx context.Context, n int) {
	d.exec(ctx, `
		select count(*) from generate_series(1, $1::int / 1000) part, posthorn.enqueue_batch('default',
			array(select 'job ' || part from generate_series(1, 1000)),
			array(select $2::text::json from generate_series(1, 1000)),
			array(select case when i = 500 then '{common,rare}' else '{common}' end from generate_series(1, 1000) i))`, n, payload)
}

func (d *database) claimJobs(ctx context.Context, tag string, n int) []int64 {
	rows := must(d.Query(ctx, claimJobsSQL, "bench:1", []string{tag}, n))
	return must(pgx.CollectRows(rows, pgx.RowTo[int64]))
}

func (d *database) completeJobs(ctx context.Context, ids []int64) {
	d.exec(ctx, completeJobsSQL, "bench:1", ids)
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
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			return b.backlog(ctx, many).claiming(tag), b.backlog(ctx, someJobs).claiming(tag)
		},
	}
}

// backlog makes a database in which n jobs wait.
func (b *bench) backlog(ctx context.Context, n int) *database {
	d := b.newDatabase(ctx)
	d.enqueue(ctx, n)
	d.exec(ctx, "vacuum analyze")
	return d
}

// claiming measures single claims of a tag and returns the median. The jobs are
// completed and replaced in between.
func (d *database) claiming(tag string) side {
	return func(ctx context.Context) float64 {
		taken := make([]float64, jobClaims)
		for i := range taken {
			start := time.Now()
			ids := d.claimJobs(ctx, tag, 1)
			taken[i] = milliseconds(time.Since(start))
			expect("jobs", len(ids), 1)
			d.completeJobs(ctx, ids)
			d.exec(ctx, "select posthorn.enqueue('default', 'job', $1::json, array['common', $2::text])", payload, tag)
		}
		return percentile(taken, 50)
	}
}

// jobHeldRow makes claims while a transaction is held open, before it measures: so
// the head of the index consists of dead rows.
func jobHeldRow(claims int, tag string) row {
	return row{
		work:  fmt.Sprintf("job claim latency, %s claims under a transaction held open, %s tag, p50", figure(float64(claims)), tag),
		floor: atMost(1.5), target: atMost(1.1), unit: " ms",
		ours: "claim_jobs of one, after the claims", peer: "the same where none is held open and nothing was claimed",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			peer = b.backlog(ctx, 2*claims).claiming(tag)
			d := b.backlog(ctx, 2*claims)
			d.hold(ctx, "select pg_current_xact_id()")
			for claimed := 0; claimed < claims; {
				ids := d.claimJobs(ctx, "common", 100)
				if len(ids) == 0 {
					fail("no more jobs wait")
				}
				d.completeJobs(ctx, ids)
				claimed += len(ids)
			}
			return d.claiming(tag), peer
		},
	}
}
