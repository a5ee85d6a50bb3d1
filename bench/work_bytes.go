package main

import (
	"context"
	"fmt"
	"strings"
)

// stored measures bytes per job or event: of the write-ahead log for adding, of the
// write-ahead log for working on it, and of the disk afterwards. The first change of a
// page after a checkpoint writes the whole page, which the rounds that only warm do.
func stored(name string) *sitting {
	return &sitting{
		name: name,
		open: func(ctx context.Context, b *bench, system string) (measure, error) {
			n := max(b.itemsOf(system, "none")/2, batchSize)
			if system == pgqSystem {
				return b.queueBytes(ctx, n)
			}
			w, err := b.openWork(ctx, system, "none", 1)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) ([]float64, error) {
				return w.bytes(ctx, n, w.schemas, w.clear,
					func(ctx context.Context) error { return w.fillUp(ctx, n) },
					func(ctx context.Context) error { return w.workOff(ctx, n, w.best, func() {}) })
			}, nil
		},
	}
}

func byteRows() (all []row) {
	s := stored("job bytes")
	for i, work := range []string{"WAL of a job: enqueue 1,000 at once", "WAL of a job: claim + complete", "job on disk when it has finished"} {
		for _, peer := range []string{riverSystem, graphileSystem} {
			if i == 2 && peer == graphileSystem {
				continue // it deletes its jobs
			}
			all = append(all, s.row(row{
				work: work + ", beside " + systemNames[peer], target: atMost(1), unit: " B", chart: bars("bytes", work),
				ours: byteWays[i], peer: "the same with " + systemNames[peer],
			}, i, jobsSystem, peer))
		}
	}
	s = stored("event bytes")
	for i, work := range []string{"WAL of an event: publish 1,000 at once", "WAL of an event: handle and settle", "event on disk"} {
		all = append(all, s.row(row{
			work: work + ", beside PgQ", target: atMost(1), unit: " B", chart: bars("bytes", work),
			ours: byteWays[i], peer: "the same with PgQ, ticks included",
		}, i, eventsSystem, pgqSystem))
	}
	return all
}

var byteWays = []string{
	"bytes of the write-ahead log", "bytes of the write-ahead log", "bytes of all tables and indexes, after VACUUM FULL",
}

// bytes measures adding n items, and working on them.
func (d *database) bytes(ctx context.Context, n int, schemas []string, steps ...func(context.Context) error) ([]float64, error) {
	clear, add, work := steps[0], steps[1], steps[2]
	if err := clear(ctx); err != nil {
		return nil, err
	}
	size, err := d.size(ctx, schemas)
	if err != nil {
		return nil, err
	}
	added, err := d.wal(ctx, add)
	if err != nil {
		return nil, err
	}
	if _, err := d.Exec(ctx, "vacuum analyze"); err != nil {
		return nil, err
	}
	worked, err := d.wal(ctx, work)
	if err != nil {
		return nil, err
	}
	after, err := d.size(ctx, schemas)
	if err != nil {
		return nil, err
	}
	per := float64(n)
	return []float64{added / per, worked / per, max(after-size, 0) / per}, nil
}

// wal returns the bytes of the write-ahead log that work adds.
func (d *database) wal(ctx context.Context, work func(context.Context) error) (bytes float64, err error) {
	var before string
	if err := d.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&before); err != nil {
		return 0, err
	}
	if err := work(ctx); err != nil {
		return 0, err
	}
	return bytes, d.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - $1::pg_lsn)::float8", before).Scan(&bytes)
}

// size returns the bytes of all tables of the schemas, without free space.
func (d *database) size(ctx context.Context, schemas []string) (float64, error) {
	tables, err := d.tables(ctx, schemas...)
	if err != nil {
		return 0, err
	}
	if _, err := d.Exec(ctx, "vacuum full "+strings.Join(tables, ", ")); err != nil {
		return 0, err
	}
	size, _, err := d.occupied(ctx, schemas)
	return size, err
}

// occupied returns the bytes of all tables of the schemas and their indexes, and the
// number of their dead rows.
func (d *database) occupied(ctx context.Context, schemas []string) (bytes, dead float64, err error) {
	err = d.QueryRow(ctx, `
		select coalesce(sum(pg_total_relation_size(relid)), 0)::float8, coalesce(sum(n_dead_tup), 0)::float8
		from pg_stat_user_tables
		where schemaname = any ($1)`, schemas).Scan(&bytes, &dead)
	return bytes, dead, err
}

// queueBytes measures PgQ, with one consumer.
func (b *bench) queueBytes(ctx context.Context, n int) (measure, error) {
	d, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.createQueue(ctx); err != nil {
		return nil, err
	}
	consumer, err := d.crew(ctx, 1, map[string]string{"synchronous_commit": "off"})
	if err != nil {
		return nil, err
	}
	if err := consumer.prepareQueue(ctx); err != nil {
		return nil, err
	}
	if _, err := d.Exec(ctx, "select pgq.register_consumer('bench', 'bytes')"); err != nil {
		return nil, err
	}
	if err := (crew{d.Conn}).prepare(ctx, "insert", queueSQL); err != nil {
		return nil, err
	}
	add := func(ctx context.Context) error { return d.fillQueue(ctx, n) }
	work := func(ctx context.Context) error {
		read, err := consume(ctx, consumer[0], "bytes")
		if err == nil && read != n {
			err = fmt.Errorf("%d events instead of %d", read, n)
		}
		return err
	}
	return func(ctx context.Context) ([]float64, error) {
		return d.bytes(ctx, n, []string{"pgq"}, func(context.Context) error { return nil }, add, work)
	}, nil
}
