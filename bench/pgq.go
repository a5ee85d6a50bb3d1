package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// PgQ is the nearest peer: it also writes nothing per event, but serves one reader
// per consumer. So it is compared with one worker per group.
var pgqRows = []row{
	{
		work: "publish, batches of 1,000, beside PgQ", target: atLeast(1), unit: "/s",
		chart: chartBar{"enqueue", "events, 1,000 at once"}, systems: []string{eventsSystem, pgqSystem},
		ours: "publish_batch", peer: "pgq.insert_event, 1,000 per statement; 2 connections each",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			d := b.newQueue(ctx)
			p := publishing{events: b.events, connections: 2, batch: batchSize}
			return d.inserting(ctx, p, "posthorn.events", publishBatchSQL), d.inserting(ctx, p, "pgq.event_template", queueSQL)
		},
	},
	besideQueue("one group, beside PgQ", "one consumer", 1),
	besideQueue("five groups, beside PgQ", "five consumers", 5),
	besideQueue("fifty groups, beside PgQ", "fifty consumers", 50),
}

const (
	publishBatchSQL = "select posthorn.publish_batch('default', $1::text[], $2::json[])"
	queueSQL        = "select pgq.insert_event('bench', m.type, m.payload::text) from unnest($1::text[], $2::json[]) m (type, payload)"
)

// fewReaders read all events of a round each.
const fewReaders = 5

func besideQueue(work, peer string, readers int) row {
	return row{
		work: "fan-out: " + work, target: atLeast(1), unit: "/s",
		chart: chartBar{"fan-out", strings.TrimSuffix(work, ", beside PgQ")}, systems: []string{eventsSystem, pgqSystem},
		ours: "take + lease_events, 1,000, one worker each", peer: peer + ", batches of 1,000",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			d := b.newQueue(ctx)
			n := b.events / max(readers/fewReaders, 1) // each of many reads less
			d.fill(ctx, n)
			d.fillQueue(ctx, n)
			d.exec(ctx, "vacuum analyze")
			return d.taking(ctx, reading{size: batchSize, workers: readers, groups: readers, claim: take}, n), d.consuming(ctx, readers, n)
		},
	}
}

// newQueue makes a database in which PgQ has a queue with one tick per window. It fails
// with a skip if that is impossible.
func (b *bench) newQueue(ctx context.Context) *database {
	d := b.newDatabase(ctx)
	if !value[bool](ctx, d, "select exists (select from pg_available_extensions where name = 'pgq')") {
		check(skip("the server has no extension pgq (Debian: postgresql-15-pgq3)"))
	}
	if _, err := d.Exec(ctx, "create extension pgq"); err != nil {
		check(skip("no extension pgq: " + err.Error()))
	}
	d.exec(ctx, fmt.Sprintf(`
		select pgq.create_queue('bench');
		select pgq.set_queue_config('bench', 'ticker_max_count', '%d')`, batchSize))
	crew{d.Conn}.prepare(ctx, statements{"insert": queueSQL})
	return d
}

// fillQueue puts n events into the queue: a batch, then a tick.
func (d *database) fillQueue(ctx context.Context, n int) {
	for done := 0; done < n; done += batchSize {
		insert(ctx, d.Conn, min(batchSize, n-done), batchSize)
		d.exec(ctx, "select pgq.force_tick('bench'), pgq.ticker('bench')")
	}
}

// consumers are connections that are ready to read the queue. As in Posthorn, an event
// may be delivered twice after a crash, so commits do not wait for the disk.
func (d *database) consumers(ctx context.Context, n int) crew {
	return d.crew(ctx, n, map[string]string{"synchronous_commit": "off"}, statements{
		"finish": "select pgq.finish_batch($1::bigint)",
		"next":   "select pgq.next_batch('bench', $1::text)",
		"batch":  "select * from pgq.get_batch_events($1::bigint)",
	})
}

// consuming reads the queue with new consumers in each round.
func (d *database) consuming(ctx context.Context, consumers, n int) side {
	crew := d.consumers(ctx, consumers)
	return func(ctx context.Context) float64 {
		names := make([]string, consumers)
		for i := range names {
			names[i] = fmt.Sprintf("bench-%d", d.names.Add(1))
			d.exec(ctx, "select pgq.register_consumer_at('bench', $1::text, (select min(tick_id) from pgq.tick))", names[i])
		}
		return crew.run(ctx, n*consumers, func(ctx context.Context, i int, conn *pgx.Conn) int { return consume(ctx, conn, names[i]) })
	}
}

// consume reads until there is no batch. As in Posthorn, one round trip finishes a
// batch and takes the next.
func consume(ctx context.Context, conn *pgx.Conn, name string) (total int) {
	var batch []byte
	for {
		if batch = nextBatch(ctx, conn, name, batch); batch == nil {
			return total
		}
		total += countPrepared(ctx, conn, "batch", batch)
	}
}

func nextBatch(ctx context.Context, conn *pgx.Conn, name string, finished []byte) (next []byte) {
	pipeline := conn.PgConn().StartPipeline(ctx)
	if finished != nil {
		pipeline.SendQueryPrepared("finish", [][]byte{finished}, binaryFormat, binaryFormat)
	}
	pipeline.SendQueryPrepared("next", [][]byte{[]byte(name)}, binaryFormat, binaryFormat)
	check(pipeline.Sync())
	if finished != nil {
		eachRow(pipeline, func([][]byte) {})
	}
	eachRow(pipeline, func(values [][]byte) {
		if values[0] != nil {
			next = clone(values[0])
		}
	})
	check(pipeline.Close())
	return next
}
