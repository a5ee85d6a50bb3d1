package pg_test

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Workers wake when an event has become visible, and not before.
func TestAwaitEvents(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		var now pg.Progress
		look := func(what string, arrived bool) {
			t.Helper()
			before := now
			now = must(pg.AwaitEvents(t.Context(), pool, before, 0))(t)
			if now.Arrived != arrived {
				t.Errorf("%s: from %s to %s, arrived: %v", what, *before.Seen, *now.Seen, now.Arrived)
			}
		}
		now = must(pg.AwaitEvents(t.Context(), pool, now, 0))(t)
		if !now.Arrived {
			t.Error("who looks first may have missed something")
		}
		look("nothing has happened", false)

		open := must(pool.Begin(t.Context()))(t)
		defer func() { _ = open.Rollback(t.Context()) }()
		id := must(pg.Publish(t.Context(), open, ns, pg.Message{Type: "late"}))(t)
		look("it is not committed", false)
		if now.Drawn != id {
			t.Errorf("%d was drawn last, not %d", id, now.Drawn)
		}
		publish(t, pool, pg.Message{Type: "a"})
		look("published while another is open", true)
		look("that is no news any more", false)

		lease := take(t, pool, group)
		if len(lease.Events) != 1 {
			t.Fatalf("took %v", lease)
		}
		look("taken", false)
		if err := pg.Settle(t.Context(), pool, lease); err != nil {
			t.Fatal(err)
		}
		look("settled", false)

		if err := open.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		look("committed late", true)
		look("that is no news any more either", false)

		undone := must(pool.Begin(t.Context()))(t)
		must(pg.Publish(t.Context(), undone, ns, pg.Message{Type: "undone"}))(t)
		look("it is open", false)
		if err := undone.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		look("rolled back", false)
	})
}

// It waits on the server, and ends when an event arrives.
func TestAwaitEventsWaits(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		now := must(pg.AwaitEvents(t.Context(), pool, pg.Progress{}, 0))(t)
		if then := must(pg.AwaitEvents(t.Context(), pool, now, time.Millisecond))(t); then.Arrived {
			t.Errorf("from %s to %s something arrived", *now.Seen, *then.Seen)
		}
		heard := make(chan error, 1)
		go func() {
			then, err := pg.AwaitEvents(t.Context(), pool, now, time.Hour)
			if err == nil && !then.Arrived {
				t.Error("it ended without an event")
			}
			heard <- err
		}()
		publish(t, pool, pg.Message{Type: "a"})
		if err := <-heard; err != nil {
			t.Fatal(err)
		}
	})
}
