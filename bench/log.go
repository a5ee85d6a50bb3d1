package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// keys is the number of different keys in a log.
const keys = 1000

// fullLog is a database with the same events in the log and in the bare table, shared
// by the rows that read.
func (b *bench) fullLog(ctx context.Context) *database {
	if b.log == nil {
		b.say("  filling the log")
		d := b.server.newDatabase(ctx)
		d.fill(ctx, b.events)
		d.copyToBare(ctx)
		d.exec(ctx, "vacuum analyze posthorn.events, bare.events")
		b.log = d
	}
	return b.log
}

// freshLog is a log whose tables are never vacuumed or analysed.
func (b *bench) freshLog(ctx context.Context) *database {
	d := b.newDatabase(ctx)
	d.disableAutovacuum(ctx)
	d.fill(ctx, b.events)
	d.copyToBare(ctx)
	return d
}

func (d *database) disableAutovacuum(ctx context.Context) {
	d.exec(ctx, `
		do $$
		declare
			name regclass;
		begin
			for name in
				select c.oid from pg_class c
				where c.relkind = 'r' and c.relnamespace in ('posthorn'::regnamespace, 'bare'::regnamespace)
			loop
				execute format('alter table %s set (autovacuum_enabled = off)', name);
			end loop;
		end $$`)
}

const publishSQL = "select posthorn.publish_batch('default', $1::text[], $2::json[], keys => $3::text[])"

// fill publishes n events over two connections, as fast as possible.
func (d *database) fill(ctx context.Context, n int) {
	crew := d.crew(ctx, 2, nil, statements{"insert": publishSQL})
	defer crew.close()
	crew.run(ctx, n, func(ctx context.Context, i int, conn *pgx.Conn) int {
		return publish(ctx, conn, crew.share(n, i), batchSize)
	})
}

// publish sends n events with keys by publishSQL, prepared as insert.
func publish(ctx context.Context, conn *pgx.Conn, n, batch int) int {
	names := make([]string, batch)
	for i := range names {
		names[i] = fmt.Sprintf("user-%d", i%keys)
	}
	for done := 0; done < n; done += batch {
		batch = min(batch, n-done)
		parameters := append(messages(conn, batch, false), encode(conn, pgtype.TextArrayOID, names[:batch]))
		execPrepared(ctx, conn, "insert", parameters...)
	}
	return n
}

// copyToBare copies the events into the bare table. It numbers the rows without gaps, so
// that a thousand ids are a thousand rows.
func (d *database) copyToBare(ctx context.Context) {
	d.exec(ctx, `
		insert into bare.events
		select xid, row_number() over (order by id), created_at, namespace_id, stream_id, type, key, tags, payload, metadata
		from posthorn.events order by id`)
}
