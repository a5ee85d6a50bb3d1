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
		}, nobody)
	}()
	await.Value(t, "a subscription to news", followed)
	cancel()
	await.Closed(t, "upkeep ends", ended)
}

const look = "select posthorn.tend_part('wake_jobs')->>'wake_jobs'"

func (w waiting) look(db pg.DB) string {
	w.t.Helper()
	got, err := pg.Value[string](w.t.Context(), db, "look", look)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// In a pause nobody looks.
func TestPauseOfWaking(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.exec("select posthorn.publish('default', 't', key => 'k')")
	w.exec("select setval('posthorn.wake_jobs_from', (1000 * extract(epoch from clock_timestamp()))::bigint + 9000)")
	testworld.Equal(t, "a look within the pause", w.look(w.pool), "busy")
	w.exec("select setval('posthorn.wake_jobs_from', 1)")
	testworld.Equal(t, "a look behind the pause", w.look(w.pool), "1")
}

// A slow look makes a pause for all processes.
func TestSlowLookPausesWaking(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.look(w.pool) // later ones find no news, so they are not left out because of the time since the last one
	w.exec("update posthorn.await_places set at = at - interval '1 hour'")
	await.True(t, "a look that follows a slow one is left out", func() bool {
		w.lookSlowly()
		return w.look(w.pool) == "busy"
	})
}

// lookSlowly makes a look that takes a fifth of a second and longer, because of a lock. On a busy
// machine an earlier look may have been slow, too: its pause ends first.
func (w waiting) lookSlowly() {
	w.t.Helper()
	w.exec("select setval('posthorn.wake_jobs_from', 1)")
	tx, err := w.pool.Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(w.t.Context())) //nolint:errcheck // it has ended
	if _, err := tx.Exec(w.t.Context(), "lock table posthorn.job_awaits in access exclusive mode"); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := w.pool.Exec(w.t.Context(), look)
		ended <- err
	}()
	await.True(w.t, "the look waits for the lock", func() bool {
		slow, err := pg.Value[bool](w.t.Context(), w.pool, "activity", `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and clock_timestamp() - query_start > interval '0.2 seconds')`)
		return slow && err == nil
	})
	if err := tx.Rollback(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := await.Value(w.t, "the end of the look", ended); err != nil {
		w.t.Fatal(err)
	}
}

// A look that follows another at once is left out; but not where the clock was set back.
func TestLooksForAwaitedEventsAreApart(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.look(w.pool)
	after := func(last string) string {
		t.Helper()
		tx, err := w.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // only looks
		for _, sql := range []string{"select setval('posthorn.wake_jobs_from', 1)", "update posthorn.await_places set at = clock_timestamp() + interval '" + last + "'"} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		return w.look(tx)
	}
	await.True(t, "a look at once is left out", func() bool { return after("0") == "busy" })
	testworld.Equal(t, "a look 15 ms later", after("-15.001 milliseconds"), "0")
	testworld.Equal(t, "a look before the last one", after("1 hour"), "0")
}
