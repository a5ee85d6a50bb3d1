package pg_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestOpenKnowsAPooler(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	if !openURL(t, database, pgx.QueryExecModeCacheStatement).Direct() {
		t.Error("the server is taken for a pooler")
	}
	if openURL(t, testpg.Pooler(t, database), pgx.QueryExecModeCacheStatement).Direct() {
		t.Error("the pooler is taken for the server")
	}
}

// Many clients share two connections, which go from one to another after each
// transaction.
func TestTakeThroughAPooler(t *testing.T) {
	t.Parallel()
	pool := openURL(t, testpg.Pooler(t, posthorntest.Database(t)), pgx.QueryExecModeCacheStatement)
	group := defineGroup(t, pool, "g", pg.GroupConfig{})
	const publishers, each = 4, 20
	var wait sync.WaitGroup
	for range publishers {
		wait.Go(func() {
			for range each {
				if _, err := pg.Publish(t.Context(), pool, ns, messages[1]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var mu sync.Mutex
	seen := map[int64]int{}
	ctx := await.Context(t)
	for range 4 {
		wait.Go(func() {
			var last pg.Lease
			for ctx.Err() == nil {
				next := takeOf(group)
				next.MaxEvents, next.Settle = 7, last
				lease, err := pool.Take(ctx, next)
				if err != nil {
					t.Error(err)
					return
				}
				last = lease
				mu.Lock()
				for _, e := range lease.Events {
					seen[e.ID]++
				}
				done := len(seen) == publishers*each
				mu.Unlock()
				if done && !lease.Held() {
					return
				}
			}
		})
	}
	wait.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("event %d came %d times", id, n)
		}
	}
	if len(seen) != publishers*each {
		t.Errorf("%d events", len(seen))
	}
}
