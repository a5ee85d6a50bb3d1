package main

import (
	"context"
)

// stored measures bytes per job or event: of the write-ahead log for adding, of the
// write-ahead log for working on it, and of the disk afterwards. The first change of a
// page after a checkpoint writes the whole page, which the rounds that only warm do.
func stored(name string) *sitting {
	return &sitting{
		name: name,
		open: func(ctx context.Context, b *bench, system string) measure {
			n := max(b.itemsOf(system, "none")/2, batchSize)
			if system == pgqSystem {
				return b.queueBytes(ctx, n)
			}
			w := b.openWork(ctx, system, "none", 1)
			return func(ctx context.Context) []float64 {
				w.clear(ctx)
				return w.bytes(ctx, n, w.schemas, w.fillUp, func(ctx context.Context, n int) { w.workOff(ctx, n) })
			}
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
				work: work + ", beside " + labelOf(peer), target: atMost(1), unit: " B", chart: chartBar{"bytes", work},
				ours: byteWays[i], peer: "the same with " + labelOf(peer),
			}, i, jobsSystem, peer))
		}
	}
	s = stored("event bytes")
	for i, work := range []string{"WAL of an event: publish 1,000 at once", "WAL of an event: handle and settle", "event on disk"} {
		all = append(all, s.row(row{
			work: work + ", beside PgQ", target: atMost(1), unit: " B", chart: chartBar{"bytes", work},
			ours: byteWays[i], peer: "the same with PgQ, ticks included",
		}, i, eventsSystem, pgqSystem))
	}
	return all
}

var byteWays = []string{
	"bytes of the write-ahead log", "bytes of the write-ahead log", "bytes of all tables and indexes, after VACUUM FULL",
}

// bytes measures adding n items, and working on them.
func (d *database) bytes(ctx context.Context, n int, schemas []string, add, work func(ctx context.Context, n int)) []float64 {
	size := d.size(ctx, schemas)
	added := d.wal(ctx, func() { add(ctx, n) })
	d.exec(ctx, "vacuum analyze")
	worked := d.wal(ctx, func() { work(ctx, n) })
	per := float64(n)
	return []float64{added / per, worked / per, max(d.size(ctx, schemas)-size, 0) / per}
}

// wal returns the bytes of the write-ahead log that work adds.
func (d *database) wal(ctx context.Context, work func()) float64 {
	before := value[string](ctx, d, "select pg_current_wal_insert_lsn()::text")
	work()
	return value[float64](ctx, d, "select (pg_current_wal_insert_lsn() - $1::pg_lsn)::float8", before)
}

// size returns the bytes of all tables of the schemas, without free space.
func (d *database) size(ctx context.Context, schemas []string) float64 {
	d.exec(ctx, "vacuum full "+value[string](ctx, d, `
		select string_agg(format('%I.%I', n.nspname, c.relname), ', ')
		from pg_class c
		join pg_namespace n on n.oid = c.relnamespace
		where c.relkind = 'r' and n.nspname = any ($1)`, schemas))
	size, _ := d.occupied(ctx, schemas)
	return size
}

// occupied returns the bytes of all tables of the schemas and their indexes, and the
// number of their dead rows.
func (d *database) occupied(ctx context.Context, schemas []string) (bytes, dead float64) {
	check(d.QueryRow(ctx, `
		select coalesce(sum(pg_total_relation_size(relid)), 0)::float8, coalesce(sum(n_dead_tup), 0)::float8
		from pg_stat_user_tables
		where schemaname = any ($1)`, schemas).Scan(&bytes, &dead))
	return bytes, dead
}

// queueBytes measures PgQ, with one consumer.
func (b *bench) queueBytes(ctx context.Context, n int) measure {
	d := b.newQueue(ctx)
	consumer := d.consumers(ctx, 1)[0]
	d.exec(ctx, "select pgq.register_consumer('bench', 'bytes')")
	return func(ctx context.Context) []float64 {
		return d.bytes(ctx, n, []string{"pgq"}, d.fillQueue, func(ctx context.Context, n int) {
			expect("events", consume(ctx, consumer, "bytes"), n)
		})
	}
}
