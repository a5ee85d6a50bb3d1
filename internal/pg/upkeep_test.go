package pg_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

func TestRebase(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "g", pg.GroupConfig{})
		publish(t, pool, pg.Message{Type: "a"})
		if _, err := admin.New(pool, "").Rebase(t.Context(), false); !errors.Is(err, pg.ErrRefused) {
			t.Errorf("without need: %v", err)
		}
		got := must(admin.New(pool, "").Rebase(t.Context(), true))(t)
		if diff := cmp.Diff([]admin.RebasedGroup{{Namespace: ns, Group: "g", Events: 1}}, got); diff != "" {
			t.Errorf("rebased (-want +got):\n%s", diff)
		}
	})
}

func TestDefineNamespace(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		check(t, admin.New(pool, "shop").DefineNamespace(t.Context(), json.RawMessage(`{"owner":"us"}`)))
		check(t, admin.New(pool, "office").DefineNamespace(t.Context(), nil))
		must(pg.Publish(t.Context(), pool, "shop", pg.Message{Type: "a"}))(t)
		if err := admin.New(pool, "Shop").DefineNamespace(t.Context(), nil); !errors.Is(err, pg.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

func TestReadEvents(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		end := must(pg.CursorAt(t.Context(), pool, pg.End))(t)
		for _, m := range messages {
			publish(t, pool, m)
		}
		want := []string{"order.placed", "order.paid", "order.noted", "order.closed"}
		next, got := read(t, pool, end)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
		if _, got = read(t, pool, next); len(got) != 0 {
			t.Errorf("read again: %v", got)
		}
	})
}

// read reads to the end, in small steps, and returns the types.
func read(t *testing.T, pool *pg.Pool, cursor string) (next string, types []string) {
	t.Helper()
	for {
		events, next, err := pg.ReadEvents(t.Context(), pool, ns, cursor, 3)
		check(t, err)
		if len(events) == 0 {
			return next, types
		}
		for _, e := range events {
			types = append(types, e.Type)
		}
		cursor = next
	}
}
