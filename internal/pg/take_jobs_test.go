package pg_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// takeNext has a worker complete a job, and claim another one.
func takeNext(t *testing.T, pool *pg.Pool, done pg.ClaimedJob) pg.TakenJobs {
	t.Helper()
	return pool.TakeJobs(t.Context(), pg.JobTake{
		Namespace: ns, Worker: "w", MaxJobs: 1, LeaseFor: jobLease,
		Done: pg.DoneJobs{IDs: []int64{done.ID}, Attempts: []int32{int32(done.Attempt)}, ExecutionTimesMS: []int64{5}},
	})
}

func TestTakeJobs(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		first := must(pg.Enqueue(t.Context(), pool, ns, pg.NewJob{Title: "first"}))(t)
		second := must(pg.Enqueue(t.Context(), pool, ns, pg.NewJob{Title: "second"}))(t)
		taken := takeNext(t, pool, claimOne(t, pool, "w"))
		check(t, taken.CompleteError)
		check(t, taken.ClaimError)
		if len(taken.Completed) != 1 || taken.Completed[0] != first || len(taken.Jobs) != 1 || taken.Jobs[0].ID != second {
			t.Errorf("took %+v", taken)
		}
	})
}

// Jobs whose completion is refused when it commits are not completed, although their ids have
// arrived before. The claim succeeds nevertheless.
func TestTakeJobsWhoseCompletionDoesNotCommit(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	first := must(pg.Enqueue(t.Context(), pool, ns, pg.NewJob{Title: "first"}))(t)
	second := must(pg.Enqueue(t.Context(), pool, ns, pg.NewJob{Title: "second"}))(t)
	must(pool.Exec(t.Context(), `
		create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
		create constraint trigger refuse after delete on posthorn.running_jobs
		deferrable initially deferred for each row execute function public.refuse()`))(t)
	taken := takeNext(t, pool, claimOne(t, pool, "w"))
	if taken.CompleteError == nil || len(taken.Completed) != 0 {
		t.Errorf("completed %v, with error %v", taken.Completed, taken.CompleteError)
	}
	check(t, taken.ClaimError)
	if len(taken.Jobs) != 1 || taken.Jobs[0].ID != second {
		t.Errorf("claimed %+v", taken.Jobs)
	}
	if held := must(pg.HeldJobs(t.Context(), pool, "w", []int64{first}, []int32{1}))(t); len(held) != 1 {
		t.Errorf("holds %v", held)
	}
}
