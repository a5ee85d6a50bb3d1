package upkeep_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
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
		upkeep.Run(ctx, pool, slog.New(slog.DiscardHandler), noNews)
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

// lines are the lines of a log.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

// If a part of upkeep fails, its error is logged.
func TestRunLogsErrors(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), "alter table posthorn.delayed rename to hidden"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	logged, ended := make(lines, 100), make(chan struct{})
	go func() {
		upkeep.Run(ctx, pool, slog.New(slog.NewTextHandler(logged, nil)), noNews)
		close(ended)
	}()
	await.True(t, "the error is logged", func() bool {
		select {
		case line := <-logged:
			return strings.Contains(line, "part=deliver_delayed") && strings.Contains(line, "does not exist")
		default:
			return false
		}
	})
	cancel()
	await.Closed(t, "upkeep ends", ended)
}

// noNews is the news of a log for which nobody watches.
func noNews() (news <-chan struct{}, end func()) { return nil, func() {} }
