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
		chart: bars("enqueue", "events, 1,000 at once"), systems: []string{eventsSystem, pgqSystem},
		ours: "publish_batch", peer: "pgq.insert_event, 1,000 per statement; 2 connections each",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			d, err := b.newDatabase(ctx)
			if err != nil {
				return nil, nil, err
			}
			if err := d.createQueue(ctx); err != nil {
				return nil, nil, err
			}
			p := publishing{events: b.events, connections: 2, batch: batchSize}
			if ours, err = d.inserting(ctx, p, "posthorn.events", publishBatchSQL); err != nil {
				return nil, nil, err
			}
			peer, err = d.inserting(ctx, p, "pgq.event_template", queueSQL)
			return ours, peer, err
		},
	},
	besideQueue("one group, beside PgQ", "one consumer", 1),
	besideQueue("five groups, beside PgQ", "five consumers", 5),
	besideQueue("fifty groups, beside PgQ", "fifty consumers", 50),
}

const (
	publishBatchSQL = "select posthorn.publish_batch('default', $1::text[], $2::json[])"
	queueSQL        = "select pgq.insert_event('bench', m.type, m.payload::text) from unnest($1::text[], $2::json[]) m (type, payload)"

	finishSQL     = "select pgq.finish_batch($1::bigint)"
	nextBatchSQL  = "select pgq.next_batch('bench', $1::text)"
	batchEventSQL = "select * from pgq.get_batch_events($1::bigint)"
)

// fewReaders read all events of a round each.
const fewReaders = 5

func besideQueue(work, peer string, readers int) row {
	return row{
		work: "fan-out: " + work, target: atLeast(1), unit: "/s",
		chart: bars("fan-out", strings.TrimSuffix(work, ", beside PgQ")), systems: []string{eventsSystem, pgqSystem},
		ours: "take + lease_events, 1,000, one worker each", peer: peer + ", batches of 1,000",
		prepare: func(ctx context.Context, b *bench) (ours, other side, err error) {
			d, err := b.newDatabase(ctx)
			if err != nil {
				return nil, nil, err
			}
			if err := d.createQueue(ctx); err != nil {
				return nil, nil, err
			}
			n := b.events / max(readers/fewReaders, 1) // each of many reads less
			if err := d.fillBoth(ctx, n); err != nil {
				return nil, nil, err
			}
			ours, err = d.taking(ctx, reading{size: batchSize, workers: readers, groups: readers, claim: take}, n)
			if err != nil {
				return nil, nil, err
			}
			other, err = d.consuming(ctx, readers, n)
			return ours, other, err
		},
	}
}

// createQueue makes a queue with one tick per window. It returns a skip if that is
// impossible.
func (d *database) createQueue(ctx context.Context) error {
	var available bool
	err := d.QueryRow(ctx, "select exists (select from pg_available_extensions where name = 'pgq')").Scan(&available)
	if err != nil {
		return err
	}
	if !available {
		return skip("the server has no extension pgq (Debian: postgresql-15-pgq3)")
	}
	if _, err := d.Exec(ctx, "create extension pgq"); err != nil {
		return skip("no extension pgq: " + err.Error())
	}
	_, err = d.Exec(ctx, fmt.Sprintf(`
		select pgq.create_queue('bench');
		select pgq.set_queue_config('bench', 'ticker_max_count', '%d')`, batchSize))
	return err
}

// fillBoth puts n events into the log, and as many into the queue: a batch, then a
// tick.
func (d *database) fillBoth(ctx context.Context, n int) error {
	if err := d.fill(ctx, n); err != nil {
		return err
	}
	if err := (crew{d.Conn}).prepare(ctx, "insert", queueSQL); err != nil {
		return err
	}
	if err := d.fillQueue(ctx, n); err != nil {
		return err
	}
	_, err := d.Exec(ctx, "vacuum analyze")
	return err
}

// fillQueue puts n events into the queue by queueSQL, prepared as insert.
func (d *database) fillQueue(ctx context.Context, n int) error {
	for done := 0; done < n; done += batchSize {
		if _, err := insert(ctx, d.Conn, min(batchSize, n-done), batchSize); err != nil {
			return err
		}
		if _, err := d.Exec(ctx, "select pgq.force_tick('bench'), pgq.ticker('bench')"); err != nil {
			return err
		}
	}
	return nil
}

func (c crew) prepareQueue(ctx context.Context) error {
	for name, sql := range map[string]string{"finish": finishSQL, "next": nextBatchSQL, "batch": batchEventSQL} {
		if err := c.prepare(ctx, name, sql); err != nil {
			return err
		}
	}
	return nil
}

// consuming reads the queue with new consumers in each round.
func (d *database) consuming(ctx context.Context, consumers, n int) (side, error) {
	// As in Posthorn, an event may be delivered twice after a crash, so commits do
	// not wait for the disk.
	crew, err := d.crew(ctx, consumers, map[string]string{"synchronous_commit": "off"})
	if err != nil {
		return nil, err
	}
	if err := crew.prepareQueue(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (float64, error) {
		names := make([]string, consumers)
		for i := range names {
			names[i] = fmt.Sprintf("bench-%d", d.names.Add(1))
			_, err := d.Exec(ctx, `
				select pgq.register_consumer_at('bench', $1::text, (select min(tick_id) from pgq.tick))`, names[i])
			if err != nil {
				return 0, err
			}
		}
		return crew.run(ctx, n*consumers, func(ctx context.Context, i int, conn *pgx.Conn) (int, error) {
			return consume(ctx, conn, names[i])
		})
	}, nil
}

// consume reads until there is no batch. As in Posthorn, one round trip finishes a
// batch and takes the next.
func consume(ctx context.Context, conn *pgx.Conn, name string) (int, error) {
	total := 0
	var batch []byte
	for {
		next, err := nextBatch(ctx, conn, name, batch)
		if err != nil || next == nil {
			return total, err
		}
		rows := conn.PgConn().ExecPrepared(ctx, "batch", [][]byte{next}, binaryFormat, binaryFormat)
		for rows.NextRow() {
			total++
		}
		if _, err := rows.Close(); err != nil {
			return total, err
		}
		batch = next
	}
}

func nextBatch(ctx context.Context, conn *pgx.Conn, name string, finished []byte) (next []byte, err error) {
	pipeline := conn.PgConn().StartPipeline(ctx)
	defer func() {
		if closeErr := pipeline.Close(); err == nil {
			err = closeErr
		}
	}()
	if finished != nil {
		pipeline.SendQueryPrepared("finish", [][]byte{finished}, binaryFormat, binaryFormat)
	}
	pipeline.SendQueryPrepared("next", [][]byte{[]byte(name)}, binaryFormat, binaryFormat)
	if err := pipeline.Sync(); err != nil {
		return nil, err
	}
	if finished != nil {
		if err := eachRow(pipeline, func([][]byte) {}); err != nil {
			return nil, err
		}
	}
	err = eachRow(pipeline, func(values [][]byte) {
		if values[0] != nil {
			next = clone(values[0])
		}
	})
	return next, err
}
