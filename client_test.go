package posthorn_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestSmoke(t *testing.T) {
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: posthorntest.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer ph.Close()
	var n, m, k, l atomic.Int64
	g := ph.Group("billing", posthorn.GroupConfig{Start: posthorn.Beginning, Delays: []time.Duration{10 * time.Millisecond}})
	g.Handle("charge", "order.*", func(ctx context.Context, e posthorn.Event) error { n.Add(1); return nil })
	g2 := ph.Group("ledger", posthorn.GroupConfig{Start: posthorn.Beginning, Delays: []time.Duration{10 * time.Millisecond}})
	g2.HandleTx("tx", "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		m.Add(1)
		if e.ID%10 == 0 && e.Delivery == 1 {
			return errors.New("no")
		}
		_, err := tx.Exec(ctx, "select 1")
		return err
	})
	g2.HandleTx("tx2", "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error { k.Add(1); return nil })
	g3 := ph.Group("batch", posthorn.GroupConfig{Start: posthorn.Beginning, Delays: []time.Duration{10 * time.Millisecond}})
	g3.HandleBatchTx("b", "order.*", func(ctx context.Context, tx pgx.Tx, e []posthorn.Event) error {
		l.Add(int64(len(e)))
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- ph.Run(ctx) }()
	for range 100 {
		var ms []posthorn.Message
		for range 10 {
			ms = append(ms, posthorn.Message{Type: "order.placed"})
		}
		if _, err := ph.Publish(t.Context(), ph.Pool(), ms...); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) && (n.Load() < 1000 || m.Load() < 1100 || k.Load() < 1000 || l.Load() < 1000) {
		time.Sleep(10 * time.Millisecond)
	}
	t.Log(n.Load(), m.Load(), k.Load(), l.Load())
	cancel()
	t.Log(<-done)
}
