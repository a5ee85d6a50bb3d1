package upkeep_test

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/upkeep"
	"github.com/posthorn/posthorn/posthorntest"
)

// A part that takes too long does not keep the others from being done.
func TestSlowPartUndoesNoOther(t *testing.T) {
	t.Parallel()
	pool := testworld.OpenPool(t, posthorntest.Database(t))
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("alter function posthorn.sweep() rename to quick_sweep")
	exec("create function posthorn.sweep() returns bigint language sql return (select 0 from pg_sleep(3600))")
	exec(`insert into posthorn.delayed (id, namespace_id, stream_id, type, tags, payload, metadata, deliver_at)
		select nextval('posthorn.event_id'), n.id, 0, 'e', '{}', '{}', '{}', now() from posthorn.namespaces n where n.namespace = 'default'`)
	u := upkeep.New(pool, 100*time.Millisecond, time.Second)
	tend := func() map[string]string {
		t.Helper()
		errors, err := u.Tend(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return errors
	}
	delivered, failed := false, false
	await.True(t, "the event is delivered, and sweep takes too long", func() bool {
		failed = tend()["sweep"] != "" || failed // unless the call before still has its lock
		var err error
		delivered, err = pg.Value[bool](t.Context(), pool, "count", "select exists (select from posthorn.events)")
		return delivered && failed && err == nil
	})
	exec("drop function posthorn.sweep()")
	exec("alter function posthorn.quick_sweep() rename to sweep")
	await.True(t, "all parts are done together again", func() bool { return len(tend()) == 0 && !u.Apart() })
}
