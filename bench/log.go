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
func (b *bench) fullLog(ctx context.Context) (*database, error) {
	if b.log != nil {
		return b.log, nil
	}
	b.say("  filling the log")
	d, err := b.server.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	b.log = d
	if err := d.fill(ctx, b.events); err != nil {
		return nil, err
	}
	return d, d.fillBare(ctx)
}

// freshLog is a log whose tables are never vacuumed or analysed.
func (b *bench) freshLog(ctx context.Context) (*database, error) {
	d, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.disableAutovacuum(ctx); err != nil {
		return nil, err
	}
	if err := d.fill(ctx, b.events); err != nil {
		return nil, err
	}
	return d, d.copyToBare(ctx)
}

func (d *database) disableAutovacuum(ctx context.Context) error {
	_, err := d.Exec(ctx, `
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
	return err
}

const publishSQL = "select posthorn.publish_batch('default', $1::text[], $2::json[], keys => $3::text[])"

// fill publishes n events over two connections, as fast as possible.
func (d *database) fill(ctx context.Context, n int) error {
	crew, err := d.crew(ctx, 2, nil)
	if err != nil {
		return err
	}
	defer crew.close()
	if err := crew.prepare(ctx, "insert", publishSQL); err != nil {
		return err
	}
	_, err = crew.run(ctx, n, func(ctx context.Context, i int, conn *pgx.Conn) (int, error) {
		return publish(ctx, conn, crew.share(n, i), batchSize)
	})
	return err
}

// publish sends n events with keys by publishSQL, prepared as insert.
func publish(ctx context.Context, conn *pgx.Conn, n, batch int) (int, error) {
	names := make([]string, batch)
	for i := range names {
		names[i] = fmt.Sprintf("user-%d", i%keys)
	}
	for done := 0; done < n; done += batch {
		batch = min(batch, n-done)
		parameters, err := messages(conn, batch, false)
		if err != nil {
			return done, err
		}
		named, err := encode(conn, []uint32{pgtype.TextArrayOID}, names[:batch])
		if err != nil {
			return done, err
		}
		_, err = conn.PgConn().ExecPrepared(ctx, "insert", append(parameters, named...), binaryFormat, binaryFormat).Close()
		if err != nil {
			return done, err
		}
	}
	return n, nil
}

// fillBare copies the rows into the bare table, and vacuums and analyses both tables.
func (d *database) fillBare(ctx context.Context) error {
	if err := d.copyToBare(ctx); err != nil {
		return err
	}
	for _, table := range []string{"posthorn.events", "bare.events"} {
		if _, err := d.Exec(ctx, "vacuum analyze "+table); err != nil {
			return err
		}
	}
	return nil
}

// copyToBare numbers the rows without gaps, so that a thousand ids are a thousand
// rows.
func (d *database) copyToBare(ctx context.Context) error {
	_, err := d.Exec(ctx, `
		insert into bare.events
		select xid, row_number() over (order by id), created_at, namespace_id, stream_id, type, key, tags, payload, metadata
		from posthorn.events order by id`)
	return err
}
