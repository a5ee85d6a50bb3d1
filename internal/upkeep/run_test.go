package upkeep_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/upkeep"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestRunDeliversUntilTheEnd(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		upkeep.Run(ctx, pool, slog.New(slog.DiscardHandler))
		close(ended)
	}()
	inAnHour := time.Now().Add(time.Hour)
	if _, err := pg.Publish(ctx, pool, "default", pg.Message{Type: "a", DeliverAt: &inAnHour}); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `create or replace function posthorn.now() returns timestamptz
		language sql volatile parallel safe return clock_timestamp() + interval '2 hours'`); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the event is delivered", func() (delivered bool) {
		if err := pool.QueryRow(ctx, "select exists (select from posthorn.events)").Scan(&delivered); err != nil {
			t.Fatal(err)
		}
		return delivered
	})
	cancel()
	await.Closed(t, "upkeep ends", ended)
}
