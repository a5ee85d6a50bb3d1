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

func publishRows() (all []row) {
	s := &sitting{
		name: "publish",
		open: func(ctx context.Context, b *bench, system string) (measure, error) {
			d, err := b.newDatabase(ctx)
			if err != nil {
				return nil, err
			}
			p := publishing{events: b.events, connections: 2, batch: batchSize}
			table, sql := "posthorn.events", publishBatchSQL
			if system != eventsSystem {
				table = bareTables[system]
				sql = `
					insert into ` + table + ` (namespace_id, stream_id, type, payload)
					select 1, 1, m.type, m.payload
					from unnest($1::text[], $2::json[]) m (type, payload)`
			}
			inserting, err := d.inserting(ctx, p, table, sql)
			return func(ctx context.Context) ([]float64, error) {
				speed, err := inserting(ctx)
				return []float64{speed}, err
			}, err
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
			prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
				d, err := b.newDatabase(ctx)
				if err != nil {
					return nil, nil, err
				}
				p := publishing{events: max(b.events/singlesFraction, 100), connections: 16, batch: 1}
				ours, err = d.inserting(ctx, p, "posthorn.events", "select posthorn.publish('default', $1::text, $2::json)")
				if err != nil {
					return nil, nil, err
				}
				peer, err = d.inserting(ctx, p, "bare.events",
					"insert into bare.events (namespace_id, stream_id, type, payload) values (1, 1, $1::text, $2::json)")
				return ours, peer, err
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

// publishing says how events are inserted. Each statement is a transaction.
type publishing struct{ events, connections, batch int }

func (d *database) inserting(ctx context.Context, p publishing, table, sql string) (side, error) {
	crew, err := d.crew(ctx, p.connections, nil)
	if err != nil {
		return nil, err
	}
	if err := crew.prepare(ctx, "insert", sql); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (float64, error) {
		before, err := d.count(ctx, table)
		if err != nil {
			return 0, err
		}
		speed, err := crew.run(ctx, p.events, func(ctx context.Context, i int, conn *pgx.Conn) (int, error) {
			return insert(ctx, conn, crew.share(p.events, i), p.batch)
		})
		if err != nil {
			return 0, err
		}
		after, err := d.count(ctx, table)
		if err == nil && after-before != p.events {
			err = fmt.Errorf("%d events arrived instead of %d", after-before, p.events)
		}
		return speed, err
	}, nil
}

func (d *database) count(ctx context.Context, table string) (n int, err error) {
	return n, d.QueryRow(ctx, "select count(*) from "+table).Scan(&n)
}

// insert runs the prepared statement until it has inserted n events. The parameters
// are encoded once, since the server's work is compared.
func insert(ctx context.Context, conn *pgx.Conn, n, batch int) (int, error) {
	single := batch == 1
	parameters, err := messages(conn, batch, single)
	if err != nil {
		return 0, err
	}
	done := 0
	for ; done < n; done += batch {
		if batch > n-done {
			batch = n - done
			if parameters, err = messages(conn, batch, single); err != nil {
				return done, err
			}
		}
		if _, err := conn.PgConn().ExecPrepared(ctx, "insert", parameters, binaryFormat, binaryFormat).Close(); err != nil {
			return done, err
		}
	}
	return done, nil
}

var binaryFormat = []int16{pgx.BinaryFormatCode}

// messages are the parameters of a statement: arrays, or single values.
func messages(conn *pgx.Conn, n int, single bool) ([][]byte, error) {
	if single {
		return [][]byte{[]byte(eventType), []byte(payload)}, nil
	}
	types := slices.Repeat([]string{eventType}, n)
	payloads := slices.Repeat([]json.RawMessage{json.RawMessage(payload)}, n)
	return encode(conn, []uint32{pgtype.TextArrayOID, pgtype.JSONArrayOID}, types, payloads)
}

// encode encodes values as parameters in binary format.
func encode(conn *pgx.Conn, types []uint32, values ...any) ([][]byte, error) {
	parameters := make([][]byte, len(values))
	for i, value := range values {
		var err error
		if parameters[i], err = conn.TypeMap().Encode(types[i], pgx.BinaryFormatCode, value, nil); err != nil {
			return nil, err
		}
	}
	return parameters, nil
}
