package logwatch_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// watchingConnections counts the connections that listen or ask for news. Those that stay in the pool do not: a Run that
// ends while its connection is opened leaves it there.
func watchingConnections(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	err := pool.QueryRow(t.Context(), "select count(*) from pg_stat_activity where application_name = 'watched' and datname = current_database() and query ~ '^listen |await_news'").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// watcher returns a watcher whose connections are called watched.
func watcher(t *testing.T, url string) *logwatch.Watcher {
	t.Helper()
	pool := testworld.OpenPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "watched" })
	w := logwatch.New(pool, slog.New(slog.DiscardHandler))
	t.Cleanup(w.Close)
	return w
}

// While no subscriber has read the last news, the watcher does not ask for more.
func TestWatcherRestsWhileNewsIsUnread(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	observer, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer observer.Close()
	asked := func() (at time.Time) {
		err := observer.QueryRow(t.Context(), "select max(query_start) from pg_stat_activity where application_name = 'watched' and datname = current_database()").Scan(&at)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	w := watcher(t, url)
	w.SetFollowPause(time.Hour) // then it would look whether others follow
	news, unsubscribe := w.Subscribe(logwatch.Events)
	defer unsubscribe()
	defer w.KeepRunning()()
	await.True(t, "there is news", func() bool { return len(news) == 1 })
	last := asked()
	for range 20 {
		await.Pause()
		if again := asked(); !again.Equal(last) {
			t.Fatalf("asked at %v, and again at %v", last, again)
		}
	}
	<-news
	await.True(t, "it asks again", func() bool { return asked().After(last) })
}

// However many callers wait, the watcher uses one connection, and closes it after the
// idle timeout.
func TestKeepRunning(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	observer, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer observer.Close()
	w := watcher(t, url)
	w.SetIdleTimeout(50 * time.Millisecond)

	first, second := w.KeepRunning(), w.KeepRunning()
	await.True(t, "a connection watches", func() bool { return watchingConnections(t, observer) > 0 })
	published, unsubscribe := w.Subscribe(logwatch.Events)
	defer unsubscribe()
	await.True(t, "the subscriber is woken", func() bool {
		if _, err := observer.Exec(t.Context(), "select posthorn.publish('default', 'e')"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-published:
			return true
		default:
			return false
		}
	})
	first()
	w.StopIdle() // with one caller that still waits
	if n := watchingConnections(t, observer); n != 1 {
		t.Errorf("%d connections watch for one waiting caller, want 1", n)
	}

	// Run takes over when KeepRunning ends.
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	second()
	await.True(t, "KeepRunning stops its Run", func() bool { return !w.KeptRunning() })
	await.True(t, "Run watches", func() bool { return watchingConnections(t, observer) == 1 })
	stop()
	<-ended
	await.True(t, "no connection watches", func() bool { return watchingConnections(t, observer) == 0 })
	third := w.KeepRunning()
	await.True(t, "a connection watches after another KeepRunning", func() bool { return watchingConnections(t, observer) == 1 })
	third()
	await.True(t, "it ends after the idle timeout", func() bool { return watchingConnections(t, observer) == 0 })
}

// The longer there was no news, the longer is the pause between two questions.
func TestPauseOfTheWatch(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	for _, test := range []struct{ last, quiet, want time.Duration }{
		{50 * ms, 0, 2 * ms},
		{2 * ms, 2 * time.Second, 4 * ms},
		{50 * ms, 30 * time.Second, 50 * ms},
		{50 * ms, 2 * time.Minute, 200 * ms},
		{200 * ms, 2 * time.Second, 50 * ms},
	} {
		if got := logwatch.PauseAfter(test.last, test.quiet); got != test.want {
			t.Errorf("after a pause of %v, and %v without news: %v, want %v", test.last, test.quiet, got, test.want)
		}
	}
}
