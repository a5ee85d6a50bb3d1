package main

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	takeSQL = `
		select lease, attempt
		from posthorn.take($1::bigint, 'bench', $2::int, '30 seconds', $3::uuid, $4::bigint, $5::int)`
	eventsSQL = `
		select event_id, stream_id, type, key, tags, payload, metadata, published_at, delivery, subscriptions
		from posthorn.lease_events($1::uuid)`
	claimSQL = `
		select lease, attempt, event_id, stream, type, key, tags, payload, metadata, published_at, delivery, subscriptions
		from posthorn.claim('default', $1::text, 'bench', $2::int)`
	settleSQL = "select posthorn.settle($1::bigint, $2::int)"
)

func (c crew) prepareClaims(ctx context.Context) error {
	for name, sql := range map[string]string{
		"start": "begin", "take": takeSQL, "end": "commit", "events": eventsSQL, "claim": claimSQL, "settle": settleSQL,
	} {
		if err := c.prepare(ctx, name, sql); err != nil {
			return err
		}
	}
	return nil
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
type claimer func(ctx context.Context, conn *pgx.Conn, g group, size int, last lease) (lease, error)

// take is the fast way, as in the Go client: one round trip of two transactions. The
// first settles and takes; the second streams the events after the group's lock is
// released. Without a Sync in between, the server answers when the events come. Rows
// are counted and not decoded, like those of the plain SELECT.
func take(ctx context.Context, conn *pgx.Conn, g group, size int, last lease) (lease, error) {
	token := make([]byte, 16)
	rand.Read(token)
	pipeline := conn.PgConn().StartPipeline(ctx)
	pipeline.SendQueryPrepared("start", nil, nil, nil)
	pipeline.SendQueryPrepared("take",
		[][]byte{int8Value(g.id), int4Value(int32(size)), token, last.id, last.attempt}, binaryFormat, binaryFormat)
	pipeline.SendQueryPrepared("end", nil, nil, nil)
	pipeline.SendQueryPrepared("events", [][]byte{token}, binaryFormat, binaryFormat)
	l, err := receive(pipeline)
	return l, errors.Join(err, pipeline.Close())
}

func receive(pipeline *pgconn.Pipeline) (lease, error) {
	var l lease
	if err := pipeline.Sync(); err != nil {
		return l, err
	}
	err := eachRow(pipeline, func(values [][]byte) {
		l.id, l.attempt = clone(values[0]), clone(values[1])
	})
	if err != nil {
		return l, err
	}
	return l, eachRow(pipeline, func([][]byte) { l.events++ })
}

// eachRow reads the next result that has rows, and skips those of begin and commit.
func eachRow(pipeline *pgconn.Pipeline, row func(values [][]byte)) error {
	for {
		result, err := pipeline.GetResults()
		if err != nil {
			return err
		}
		rows, ok := result.(*pgconn.ResultReader)
		if !ok {
			continue
		}
		for rows.NextRow() {
			row(rows.Values())
		}
		if _, err := rows.Close(); err != nil || len(rows.FieldDescriptions()) > 0 {
			return err
		}
	}
}

// claim is the way of SQL clients: two statements, each in its own transaction.
func claim(ctx context.Context, conn *pgx.Conn, g group, size int, last lease) (lease, error) {
	if err := settle(ctx, conn, last); err != nil {
		return lease{}, err
	}
	var l lease
	rows := conn.PgConn().ExecPrepared(ctx, "claim", [][]byte{[]byte(g.name), int4Value(int32(size))}, binaryFormat, binaryFormat)
	for rows.NextRow() {
		if l.events++; l.events == 1 {
			values := rows.Values()
			l.id, l.attempt = clone(values[0]), clone(values[1])
		}
	}
	_, err := rows.Close()
	return l, err
}

func settle(ctx context.Context, conn *pgx.Conn, l lease) error {
	if !l.held() {
		return nil
	}
	_, err := conn.PgConn().ExecPrepared(ctx, "settle", [][]byte{l.id, l.attempt}, binaryFormat, binaryFormat).Close()
	return err
}

// The values of a row belong to the connection, which overwrites them with the next
// row.
func clone(value []byte) []byte { return append([]byte(nil), value...) }
