package server

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// Claiming a job reads no whole table, neither to find its tag nor its due time.
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
			where schemaname = 'posthorn' and relname in ('enqueued_jobs', 'ready_jobs', 'waiting_jobs', 'running_jobs')`).Scan(&rows)
	})
	if err != nil {
		t.Fatal(err)
	}
	if rows > 50 {
		t.Errorf("%d rows were read to take one job", rows)
	}
}
