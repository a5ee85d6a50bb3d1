package upkeep_test

import (
	"context"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/upkeep"
)

// News of the log wakes a job that waits for an event, without the rest of upkeep. When no job waits,
// nobody follows the news.
func TestNewsWakesJobs(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("select posthorn.enqueue('default', 'a job')")
	exec("select posthorn.await_event(c.id, 'w', 'paid', 't', 'k', '1 day') from posthorn.claim_jobs('default', 'w', '{}') c")
	news, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	go func() {
		upkeep.New(pool, time.Minute, time.Minute).FollowNews(t.Context(), func() (<-chan struct{}, func()) { return news, func() {} })
		ended <- struct{}{}
	}()
	exec("select posthorn.publish('default', 't', key => 'k')")
	news <- struct{}{}
	await.True(t, "the job is ready", func() bool {
		ready, err := pg.Value[bool](context.WithoutCancel(t.Context()), pool, "look", "select exists (select from posthorn.ready_jobs)")
		return ready && err == nil
	})
	news <- struct{}{}
	await.Value(t, "the end of following", ended)
}
