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
func (d *database) selecting(ctx context.Context, n, connections int) side {
	crew := d.crew(ctx, connections, consumerParameters, statements{"select": selectSQL})
	return func(ctx context.Context) float64 {
		var next atomic.Int64
		return crew.run(ctx, n, func(ctx context.Context, _ int, conn *pgx.Conn) (done int) {
			for {
				from := next.Add(batchSize) - batchSize
				if from >= int64(n) {
					return done
				}
				done += countPrepared(ctx, conn, "select", int8Value(from), int8Value(from+batchSize))
			}
		})
	}
}

// countPrepared returns the number of rows of a prepared statement.
func countPrepared(ctx context.Context, conn *pgx.Conn, name string, parameters ...[]byte) (n int) {
	rows := conn.PgConn().ExecPrepared(ctx, name, parameters, binaryFormat, binaryFormat)
	for rows.NextRow() {
		n++
	}
	must(rows.Close())
	return n
}

func int8Value(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func int4Value(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
