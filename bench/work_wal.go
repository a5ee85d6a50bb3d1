package main

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// jobWAL measures bytes per job: of the write-ahead log for enqueueing, of the
// write-ahead log for claiming and completing, and of the disk after the job has
// finished.
var jobWAL = &sitting{
	name: "job WAL",
	open: func(ctx context.Context, b *bench, system string) (measure, error) {
		n := max(b.events/jobFraction/2, batchSize)
		w, err := b.openWork(ctx, system, "none", 1)
		if err != nil {
			return nil, err
		}
		w.best = settingsOf(system, "none")[0]
		// The first change of a page after a checkpoint writes the whole page, so
		// pages are changed once before.
		if _, err := w.throughput(ctx, n, w.best); err != nil {
			return nil, err
		}
		return func(ctx context.Context) ([]float64, error) { return w.bytes(ctx, n) }, nil
	},
}

func walRows() (all []row) {
	for i, work := range []string{"enqueue 1,000 at once", "claim + complete"} {
		for _, peer := range []string{"river", "graphile"} {
			all = append(all, jobWAL.row(row{
				work: "job WAL: " + work + ", beside " + systemNames[peer], target: atMost(1), unit: " B",
				ours: "bytes of the write-ahead log for each job", peer: "the same with " + systemNames[peer],
			}, peer, i))
		}
	}
	return append(all, jobWAL.row(row{
		work: "job on disk when it has finished, beside River", target: atMost(1), unit: " B",
		ours: "bytes of all tables and indexes for each job, after VACUUM FULL", peer: "the same with River; graphile-worker deletes its jobs",
	}, "river", 2))
}

func (w *work) bytes(ctx context.Context, n int) ([]float64, error) {
	if err := w.clear(ctx); err != nil {
		return nil, err
	}
	size, err := w.size(ctx)
	if err != nil {
		return nil, err
	}
	enqueued, err := w.wal(ctx, func() error { return w.fillUp(ctx, n) })
	if err != nil {
		return nil, err
	}
	if err := w.analyze(ctx); err != nil {
		return nil, err
	}
	worked, err := w.wal(ctx, func() error { return w.workOff(ctx, n, w.best, func() {}) })
	if err != nil {
		return nil, err
	}
	after, err := w.size(ctx)
	if err != nil {
		return nil, err
	}
	per := float64(n)
	return []float64{enqueued / per, worked / per, max(after-size, 0) / per}, nil
}

// wal returns the bytes of the write-ahead log that work adds.
func (w *work) wal(ctx context.Context, work func() error) (bytes float64, err error) {
	var before string
	if err := w.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&before); err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	return bytes, w.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - $1::pg_lsn)::float8", before).Scan(&bytes)
}

// size returns the bytes of all tables of the system, without free space.
func (w *work) size(ctx context.Context) (bytes float64, err error) {
	rows, err := w.Query(ctx, `
		select format('%I.%I', n.nspname, c.relname)
		from pg_class c
		join pg_namespace n on n.oid = c.relnamespace
		where c.relkind = 'r' and n.nspname = any ($1)`, w.schemas)
	if err != nil {
		return 0, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, err
	}
	if _, err := w.Exec(ctx, "vacuum full "+strings.Join(tables, ", ")); err != nil {
		return 0, err
	}
	return bytes, w.QueryRow(ctx, "select sum(pg_total_relation_size(t::regclass))::float8 from unnest($1::text[]) t", tables).Scan(&bytes)
}
