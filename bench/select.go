package main

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// consumerParameters are the parameters of consumers' connections, also for the plain
// SELECT: plans are made once, and use an index, whatever the table contained when
// they were made.
var consumerParameters = map[string]string{
	"plan_cache_mode":                 "force_generic_plan",
	"enable_seqscan":                  "off",
	"enable_bitmapscan":               "off",
	"jit":                             "off",
	"max_parallel_workers_per_gather": "0",
}

const selectSQL = `
	select id, stream_id, type, key, tags, payload, metadata, created_at
	from bare.events
	where id > $1::bigint and id <= $2::bigint
	order by id`

// selecting reads all n rows of the bare table by id, a thousand at a time,
// distributed over the connections.
func (d *database) selecting(ctx context.Context, n, connections int) (side, error) {
	crew, err := d.crew(ctx, connections, consumerParameters)
	if err != nil {
		return nil, err
	}
	if err := crew.prepare(ctx, "select", selectSQL); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (float64, error) {
		var next atomic.Int64
		return crew.run(ctx, n, func(ctx context.Context, _ int, conn *pgx.Conn) (int, error) {
			done := 0
			for {
				from := next.Add(batchSize) - batchSize
				if from >= int64(n) {
					return done, nil
				}
				k, err := selectRange(ctx, conn, from, from+batchSize)
				if err != nil {
					return done, err
				}
				done += k
			}
		})
	}, nil
}

func selectRange(ctx context.Context, conn *pgx.Conn, from, to int64) (int, error) {
	parameters := [][]byte{int8Value(from), int8Value(to)}
	rows := conn.PgConn().ExecPrepared(ctx, "select", parameters, binaryFormat, binaryFormat)
	n := 0
	for rows.NextRow() {
		n++
	}
	_, err := rows.Close()
	return n, err
}

func int8Value(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func int4Value(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
