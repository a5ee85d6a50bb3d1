package main

import (
	"context"
	"crypto/rand"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var claimStatements = statements{
	"start": "begin",
	"take": `
		select lease, attempt
		from posthorn.take($1::bigint, 'bench', $2::int, '30 seconds', $3::uuid, $4::bigint, $5::int)`,
	"end": "commit",
	"events": `
		select event_id, stream_id, type, key, tags, payload, metadata, published_at, delivery, subscriptions
		from posthorn.lease_events($1::uuid)`,
	"claim": `
		select lease, attempt, event_id, stream, type, key, tags, payload, metadata, published_at, delivery, subscriptions
		from posthorn.claim('default', $1::text, 'bench', $2::int)`,
	"settle": "select posthorn.settle($1::bigint, $2::int)",
}

// lease is the result of the last claim: its id and attempt in wire format, nil for
// none, and the number of its events.
type lease struct {
	id, attempt []byte
	events      int
}

func (l lease) held() bool { return l.id != nil }

// group is a group that is being read.
type group struct {
	id   int64
	name string
}

// claimer takes the next lease and settles the last one, on a connection.
type claimer func(ctx context.Context, conn *pgx.Conn, g group, size int, last lease) lease

// take is the fast way, as in the Go client: one round trip of two transactions. The
// first settles and takes; the second streams the events after the group's lock is
// released. Without a Sync in between, the server answers when the events come. Rows
// are counted and not decoded, like those of the plain SELECT.
func take(ctx context.Context, conn *pgx.Conn, g group, size int, last lease) (l lease) {
	token := make([]byte, 16)
	rand.Read(token)
	pipeline := conn.PgConn().StartPipeline(ctx)
	pipeline.SendQueryPrepared("start", nil, nil, nil)
	pipeline.SendQueryPrepared("take",
		[][]byte{int8Value(g.id), int4Value(int32(size)), token, last.id, last.attempt}, binaryFormat, binaryFormat)
	pipeline.SendQueryPrepared("end", nil, nil, nil)
	pipeline.SendQueryPrepared("events", [][]byte{token}, binaryFormat, binaryFormat)
	check(pipeline.Sync())
	eachRow(pipeline, func(values [][]byte) { l.id, l.attempt = clone(values[0]), clone(values[1]) })
	eachRow(pipeline, func([][]byte) { l.events++ })
	check(pipeline.Close())
	return l
}

// eachRow reads the next result that has rows, and skips those of begin and commit.
func eachRow(pipeline *pgconn.Pipeline, row func(values [][]byte)) {
	for {
		rows, ok := must(pipeline.GetResults()).(*pgconn.ResultReader)
		if !ok {
			continue
		}
		for rows.NextRow() {
			row(rows.Values())
		}
		must(rows.Close())
		if len(rows.FieldDescriptions()) > 0 {
			return
		}
	}
}

// claim is the way of SQL clients: two statements, each in its own transaction.
func claim(ctx context.Context, conn *pgx.Conn, g group, size int, last lease) (l lease) {
	settle(ctx, conn, last)
	rows := conn.PgConn().ExecPrepared(ctx, "claim", [][]byte{[]byte(g.name), int4Value(int32(size))}, binaryFormat, binaryFormat)
	for rows.NextRow() {
		if l.events++; l.events == 1 {
			values := rows.Values()
			l.id, l.attempt = clone(values[0]), clone(values[1])
		}
	}
	must(rows.Close())
	return l
}

func settle(ctx context.Context, conn *pgx.Conn, l lease) {
	if l.held() {
		execPrepared(ctx, conn, "settle", l.id, l.attempt)
	}
}

// The values of a row belong to the connection, which overwrites them with the next
// row.
func clone(value []byte) []byte { return append([]byte(nil), value...) }
