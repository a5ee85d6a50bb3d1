package consume_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

// BenchmarkHandlers reports events per second, for comparing two states of the
// code side by side.
func BenchmarkHandlers(b *testing.B) {
	for name, register := range map[string]func(g *posthorn.Group, done func()){
		"plain": func(g *posthorn.Group, done func()) {
			g.Handle("noop", "order.*", func(context.Context, posthorn.Event) error { done(); return nil })
		},
		"tx": func(g *posthorn.Group, done func()) {
			g.HandleTx("noop", "order.*", func(ctx context.Context, tx pgx.Tx, _ posthorn.Event) error {
				_, err := tx.Exec(ctx, "insert into effects values (1)")
				done()
				return err
			})
		},
		"batch": func(g *posthorn.Group, done func()) {
			g.HandleBatch("noop", "order.*", func(_ context.Context, events []posthorn.Event) error {
				for range events {
					done()
				}
				return nil
			})
		},
	} {
		b.Run(name, func(b *testing.B) {
			url := posthorntest.Database(b)
			pool, err := pgxpool.New(b.Context(), url)
			if err != nil {
				b.Fatal(err)
			}
			defer pool.Close()
			if _, err := pool.Exec(b.Context(), "create table effects (n int)"); err != nil {
				b.Fatal(err)
			}
			ph, err := posthorn.Open(b.Context(), posthorn.Config{DatabaseURL: url})
			if err != nil {
				b.Fatal(err)
			}
			defer ph.Close()
			total := 200_000
			if name == "tx" {
				total = 5_000
			}
			for range total / 1000 {
				if _, err := ph.Publish(b.Context(), pool, slices.Repeat([]posthorn.Message{{Type: "order.placed", Payload: map[string]int{"order": 7}}}, 1000)...); err != nil {
					b.Fatal(err)
				}
			}
			var n atomic.Int64
			all := make(chan struct{})
			g := ph.Group("g", posthorn.GroupConfig{Start: posthorn.Beginning})
			register(g, func() {
				if n.Add(1) == int64(total) {
					close(all)
				}
			})
			ctx, cancel := context.WithCancel(b.Context())
			started := time.Now()
			done := make(chan error)
			go func() { done <- ph.Run(ctx) }()
			<-all
			b.ReportMetric(float64(total)/time.Since(started).Seconds(), "events/s")
			cancel()
			<-done
		})
	}
}
