package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/posthorntest"
)

// The log of jobs is append-only, even to who owns it.
//
// seed 004.34
func TestJobLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	s.take(t, "x", "w:1")
	for _, statement := range []string{
		"update posthorn.job_log set worker_id = 'other'", "delete from posthorn.job_log", "truncate posthorn.job_log",
	} {
		if _, err := s.ph.Pool().Exec(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	equal(t, "log", actions(s.job(t, 1)), "PICKED")
}

// Taking a job reads no table from end to end, whatever waits: neither by tag nor
// by due time.
//
// seed 004.36
func TestJobsAreFoundByIndex(t *testing.T) {
	t.Parallel()
	s := serve(t)
	_, err := s.ph.Pool().Exec(t.Context(), `
		select posthorn.enqueue('default', 'other', '{}', array['other'], run_at => posthorn.now() + (n % 2) * interval '1 hour')
		from generate_series(1, 3000) n`)
	if err != nil {
		t.Fatal(err)
	}
	s.enqueue(t, `{"title":"a","tags":"rare"}`)
	var rows int64
	err = pgx.BeginFunc(t.Context(), s.ph.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "select posthorn.claim_jobs('default', 'w:1', array['rare', 'none'])"); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), `
			select sum(seq_tup_read + idx_tup_fetch)
			from pg_stat_xact_user_tables
			where schemaname = 'posthorn' and relname in ('open_jobs', 'ready_jobs', 'waiting_jobs', 'running_jobs')`).Scan(&rows)
	})
	if err != nil {
		t.Fatal(err)
	}
	if rows > 50 {
		t.Errorf("%d rows were read to take one job", rows)
	}
}

// The log does not grow for ever: months past job_retention_period are dropped,
// with the jobs that ended in them.
//
// seed 004.37
func TestOldJobsAreDropped(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.enqueue(t, `{"title":"a","tags":"x"}`)
	s.take(t, "x", "w:1")
	s.call(t, "POST", fmt.Sprintf("/events/%d/complete", id), `{"worker_id":"w:1"}`).want(t, 200)
	posthorntest.Advance(t, s.ph, 3*366*24*time.Hour)
	if _, err := s.ph.Pool().Exec(t.Context(), "select posthorn.maintain_job_tables()"); err != nil {
		t.Fatal(err)
	}
	s.call(t, "GET", fmt.Sprintf("/events/%d", id), nil).wantProblem(t, 404, "job_retention_period")
	var entries int
	if err := s.ph.Pool().QueryRow(t.Context(), "select count(*) from posthorn.job_log").Scan(&entries); err != nil {
		t.Fatal(err)
	}
	equal(t, "entries", entries, 0)
}
