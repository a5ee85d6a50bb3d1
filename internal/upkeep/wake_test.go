package upkeep_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/upkeep"
	"github.com/posthorn/posthorn/posthorntest"
)

// waiting is a database in which a job waits for an event.
type waiting struct {
	t    *testing.T
	pool *pg.Pool
}

func newWaiting(t *testing.T) waiting {
	t.Helper()
	w := waiting{t: t, pool: testworld.OpenPool(t, posthorntest.Database(t))}
	w.exec("select posthorn.enqueue('default', 'a job')")
	w.exec("select posthorn.await_event(c.id, 'w', 'paid', 't', 'k', '1 day') from posthorn.claim_jobs('default', 'w', '{}') c")
	return w
}

func (w waiting) exec(sql string) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql); err != nil {
		w.t.Fatal(err)
	}
}

// follow follows news on db until no job waits, and then closes ended.
func (w waiting) follow(db pg.DB) (news chan struct{}, ended <-chan struct{}) {
	news, end := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(end)
		upkeep.New(db, time.Minute, time.Minute).FollowNews(w.t.Context(), func() (<-chan struct{}, func()) { return news, func() {} })
	}()
	return news, end
}

func (w waiting) awaitReady() {
	w.t.Helper()
	await.True(w.t, "the job is ready", func() bool {
		ready, err := pg.Value[bool](w.t.Context(), w.pool, "look", "select exists (select from posthorn.ready_jobs)")
		return ready && err == nil
	})
}

// News of the log wakes a job that waits for an event, without the rest of upkeep. When no job waits,
// nobody follows the news.
func TestNewsWakesJobs(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	news, ended := w.follow(w.pool)
	w.exec("select posthorn.publish('default', 't', key => 'k')")
	news <- struct{}{}
	w.awaitReady()
	news <- struct{}{}
	await.Closed(t, "the end of following", ended)
}

// While another process is busy with the look, it is made again: the other one may have looked too early.
func TestNewsThatMeetsABusyLookIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it has ended
	if _, err := tx.Exec(t.Context(), "select pg_advisory_xact_lock(posthorn.lock_class('upkeep'), hashtext('wake_jobs'))"); err != nil {
		t.Fatal(err)
	}
	w.exec("select posthorn.publish('default', 't', key => 'k')")
	db := &counted{DB: w.pool}
	news, _ := w.follow(db)
	news <- struct{}{}
	await.True(t, "a second look", func() bool { return db.looks.Load() > 1 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.awaitReady()
}

// counted counts the looks that are made.
type counted struct {
	pg.DB
	looks atomic.Int64
}

func (c *counted) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c.looks.Add(1)
	return c.DB.QueryRow(ctx, sql, args...)
}

// Upkeep follows the news while a job waits for an event.
func TestUpkeepFollowsNewsWhileJobsWait(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	followed := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		upkeep.Run(ctx, w.pool, slog.New(slog.DiscardHandler), func() (<-chan struct{}, func()) {
			followed <- struct{}{}
			return make(chan struct{}), func() {}
		})
	}()
	await.Value(t, "a subscription to news", followed)
	cancel()
	await.Closed(t, "upkeep ends", ended)
}

// After a slow look, nobody looks for a while.
func TestSlowLookPausesWaking(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.exec("select posthorn.publish('default', 't', key => 'k')")
	const look = "select posthorn.tend_part('wake_jobs')->>'wake_jobs'"
	w.exec("select setval('posthorn.wake_jobs_from', (1000 * extract(epoch from clock_timestamp()))::bigint + 9000)")
	if got, err := pg.Value[string](t.Context(), w.pool, "look", look); err != nil || got != "busy" {
		t.Errorf("a look within the pause: %q, %v", got, err)
	}
	w.exec("select setval('posthorn.wake_jobs_from', 1)")
	if got, err := pg.Value[string](t.Context(), w.pool, "look", look); err != nil || got != "1" {
		t.Errorf("a look behind the pause: %q, %v", got, err)
	}
}
