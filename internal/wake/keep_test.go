package wake_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/wake"
	"github.com/posthorn/posthorn/posthorntest"
)

// watches counts the connections on which somebody looks for news: those that
// were opened in vain were asked nothing.
func watches(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	err := pool.QueryRow(t.Context(), "select count(*) from pg_stat_activity where application_name = 'watched' and query <> ''").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// For those who wait one connection watches, a little longer than they do.
func TestKeep(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	observer, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer observer.Close()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["application_name"] = "watched"
	pool, err := pg.Open(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	w := wake.New(pool, slog.New(slog.DiscardHandler))
	defer w.Close()
	w.SetLinger(50 * time.Millisecond)

	first, second := w.Keep(), w.Keep()
	await.True(t, "it watches", func() bool { return watches(t, observer) > 0 })
	news, end := w.Subscribe()
	defer end()
	await.True(t, "news comes", func() bool {
		if _, err := observer.Exec(t.Context(), "select posthorn.publish('default', 'e')"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-news:
			return true
		default:
			return false
		}
	})
	first()
	w.Rest() // as after a while
	if n := watches(t, observer); n != 1 {
		t.Errorf("%d connections watch for the one that waits", n)
	}

	// Run takes over where it ends.
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	second()
	await.True(t, "nobody needs it", func() bool { return !w.Kept() })
	await.True(t, "it watches for Run", func() bool { return watches(t, observer) == 1 })
	stop()
	<-ended
	await.True(t, "nobody watches", func() bool { return watches(t, observer) == 0 })
	third := w.Keep()
	await.True(t, "it watches once more", func() bool { return watches(t, observer) == 1 })
	third()
	await.True(t, "it ends by itself", func() bool { return watches(t, observer) == 0 })
}
