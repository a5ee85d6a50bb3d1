package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// payload is 200 bytes of JSON.
const payload = `{"userId":"0123456789","email":"user@example.com","template":"welcome","variables":{"name":"Alice","signup_date":"2025-12-24","plan":"enterprise","region":"eu-west-1"},"note":"abcdefghijklmnopqrst"}`

const (
	eventType = "user.created"
	batchSize = 1000
)

// singlesFraction makes a round of single commits shorter, since each commit waits
// for the disk.
const singlesFraction = 20

func publishRows() []row {
	s := &sitting{
		name: "publish",
		open: func(ctx context.Context, b *bench, system string) measure {
			table, sql := "posthorn.events", publishBatchSQL
			if system != eventsSystem {
				table = bareTables[system]
				sql = `
					insert into ` + table + ` (namespace_id, stream_id, type, payload)
					select 1, 1, m.type, m.payload
					from unnest($1::text[], $2::json[]) m (type, payload)`
			}
			p := publishing{events: b.events, connections: 2, batch: batchSize}
			return b.newDatabase(ctx).inserting(ctx, p, table, sql).alone()
		},
	}
	measured := "multi-row INSERT into a bare table, %s; 2 connections each"
	return []row{
		// The log needs a second index, so this floor is the speed that a table with two
		// of them allows.
		s.row(row{
			work: "publish, batches of 1,000, beside an INSERT with two indexes", floor: atLeast(0.9), target: atLeast(1), unit: "/s",
			ours: "publish_batch", peer: fmt.Sprintf(measured, "two indexes"),
		}, 0, eventsSystem, twoIndexes),
		s.row(row{
			work: "publish, batches of 1,000, beside an INSERT with one index", floor: atLeast(0.7), target: atLeast(0.9), unit: "/s",
			ours: "publish_batch", peer: fmt.Sprintf(measured, "one index"),
		}, 0, eventsSystem, oneIndex),
		{
			work: "publish, one per commit, 16 connections", floor: atLeast(0.85), target: atLeast(0.95), unit: "/s",
			ours: "publish", peer: "single-row INSERT into a bare table, one index",
			prepare: func(ctx context.Context, b *bench) (ours, peer side) {
				d := b.newDatabase(ctx)
				p := publishing{events: max(b.events/singlesFraction, 100), connections: 16, batch: 1}
				ours = d.inserting(ctx, p, "posthorn.events", publishOneSQL)
				peer = d.inserting(ctx, p, "bare.events",
					"insert into bare.events (namespace_id, stream_id, type, payload) values (1, 1, $1::text, $2::json)")
				return ours, peer
			},
		},
	}
}

// The bare tables are limits and no systems, so they have no names for readers.
const (
	oneIndex   = "one index"
	twoIndexes = "two indexes"
)

var bareTables = map[string]string{oneIndex: "bare.events", twoIndexes: "bare.indexed"}

const publishOneSQL = "select posthorn.publish('default', $1::text, $2::json)"

// publishing says how events are inserted. Each statement is a transaction.
type publishing struct{ events, connections, batch int }

func (d *database) inserting(ctx context.Context, p publishing, table, sql string) side {
	crew := d.crew(ctx, p.connections, nil, statements{"insert": sql})
	return func(ctx context.Context) float64 {
		before := d.count(ctx, table)
		speed := crew.run(ctx, p.events, func(ctx context.Context, i int, conn *pgx.Conn) int {
			return insert(ctx, conn, crew.share(p.events, i), p.batch)
		})
		expect("new events", d.count(ctx, table)-before, p.events)
		return speed
	}
}

// insert runs the prepared statement until it has inserted n events. The parameters
// are encoded once, since the server's work is compared.
func insert(ctx context.Context, conn *pgx.Conn, n, batch int) int {
	single := batch == 1
	parameters := messages(conn, batch, single)
	for done := 0; done < n; done += batch {
		if batch > n-done {
			batch = n - done
			parameters = messages(conn, batch, single)
		}
		execPrepared(ctx, conn, "insert", parameters...)
	}
	return n
}

var binaryFormat = []int16{pgx.BinaryFormatCode}

// execPrepared runs a prepared statement.
func execPrepared(ctx context.Context, conn *pgx.Conn, name string, parameters ...[]byte) {
	must(conn.PgConn().ExecPrepared(ctx, name, parameters, binaryFormat, binaryFormat).Close())
}

// messages are the parameters of a statement: arrays, or single values.
func messages(conn *pgx.Conn, n int, single bool) [][]byte {
	if single {
		return [][]byte{[]byte(eventType), []byte(payload)}
	}
	types := slices.Repeat([]string{eventType}, n)
	payloads := slices.Repeat([]json.RawMessage{json.RawMessage(payload)}, n)
	return [][]byte{encode(conn, pgtype.TextArrayOID, types), encode(conn, pgtype.JSONArrayOID, payloads)}
}

// encode encodes a value as a parameter in binary format.
func encode(conn *pgx.Conn, oid uint32, value any) []byte {
	return must(conn.TypeMap().Encode(oid, pgx.BinaryFormatCode, value, nil))
}
