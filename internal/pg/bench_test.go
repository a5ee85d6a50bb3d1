package pg_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

const benchEvents = 400_000

var benchPayload = json.RawMessage(`{"userId":"0123456789","email":"user@example.com","template":"welcome","variables":{"name":"Alice","signup_date":"2025-12-24","plan":"enterprise","region":"eu-west-1"},"note":"abcdefghijklmnopqrst"}`)

// BenchmarkTake takes and settles a whole log with two workers, beside a plain SELECT of
// the same rows, without scanning them and with scanning them into the same struct.
func BenchmarkTake(b *testing.B) {
	pool := openPool(b, pgx.QueryExecModeCacheStatement)
	fill(b, pool)
	for name, read := range map[string]func(pgx.Rows) (int, error){"count": countRows, "scan": scanRows} {
		b.Run("select="+name, func(b *testing.B) {
			for b.Loop() {
				selectAll(b, pool, read)
			}
			b.ReportMetric(float64(b.N)*benchEvents/b.Elapsed().Seconds(), "events/s")
		})
	}
	for _, size := range []int{1000, 100, 20} {
		b.Run(fmt.Sprintf("take=%d", size), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				group := fmt.Sprint("bench", time.Now().UnixNano())
				begun, err := pg.BeginGroup(b.Context(), pool, "default", group, pg.GroupConfig{Start: pg.Beginning})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				takeAll(b, pool, begun.Group, size)
			}
			b.ReportMetric(float64(b.N)*benchEvents/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func fill(b *testing.B, pool *pg.Pool) {
	b.Helper()
	batch := make([]pg.Message, 1000)
	for i := range batch {
		batch[i] = pg.Message{Type: "user.created", Payload: benchPayload}
	}
	for range benchEvents / len(batch) {
		if _, err := pg.PublishBatch(b.Context(), pool, "default", batch); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := pool.Exec(b.Context(), "vacuum analyze posthorn.events"); err != nil {
		b.Fatal(err)
	}
}

func selectAll(b *testing.B, pool *pg.Pool, read func(pgx.Rows) (int, error)) {
	b.Helper()
	const size = 1000
	var n, next atomic.Int64
	workers(2, func() {
		for {
			to := next.Add(size)
			if to > benchEvents+10*size { // some ids may have gone unused
				return
			}
			rows, err := pool.Query(b.Context(), `
				select id, stream_id, type, key, tags, payload, metadata, created_at
				from posthorn.events where namespace_id = 1 and id > $1 and id <= $2 order by id`, to-size, to)
			if err != nil {
				b.Error(err)
				return
			}
			got, err := read(rows)
			if err != nil {
				b.Error(err)
				return
			}
			n.Add(int64(got))
		}
	})
	if n.Load() != benchEvents {
		b.Fatalf("%d events", n.Load())
	}
}

func countRows(rows pgx.Rows) (int, error) {
	n := 0
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}

func scanRows(rows pgx.Rows) (int, error) {
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (pg.Event, error) {
		var e pg.Event
		var stream int64
		var key *string
		return e, row.Scan(&e.ID, &stream, &e.Type, &key, &e.Tags, &e.Payload, &e.Metadata, &e.PublishedAt)
	})
	return len(events), err
}

func takeAll(b *testing.B, pool *pg.Pool, group pg.Group, size int) {
	b.Helper()
	var n atomic.Int64
	workers(2, func() {
		var last pg.Lease
		for {
			lease, err := pool.Take(b.Context(), pg.Take{
				Group: group, Node: "bench", MaxEvents: size, LeaseFor: 30 * time.Second, Settle: last,
			})
			if err != nil {
				b.Error(err)
				return
			}
			if !lease.Held() {
				return
			}
			n.Add(int64(len(lease.Events)))
			last = lease
		}
	})
	if n.Load() != benchEvents {
		b.Fatalf("%d events", n.Load())
	}
}

func workers(n int, work func()) {
	var wait sync.WaitGroup
	for range n {
		wait.Go(work)
	}
	wait.Wait()
}
