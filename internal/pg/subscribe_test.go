package pg_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

func TestSubscribe(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		ctx := t.Context()
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		if must(pg.KeepGroup(ctx, pool, group, "node", nil))(t).Filtered {
			t.Error("a group without subscriptions has some")
		}
		filter := json.RawMessage(`{"type": ["a.*"], "payload": {"n": 12345678901234567890}}`)
		id := must(admin.New(pool, ns).Subscribe(ctx, "g", "some", admin.Subscription{Filter: filter, ExpireAfter: 90 * time.Second}))(t)
		if again := must(admin.New(pool, ns).Subscribe(ctx, "g", "some", admin.Subscription{Filter: filter}))(t); again != id {
			t.Errorf("made again it is %d, was %d", again, id)
		}
		must(admin.New(pool, ns).Subscribe(ctx, "g", "few", admin.Subscription{
			Condition: "e.key = s.params->>'key'", Params: json.RawMessage(`{"key": "k"}`), ExpireAfter: 90 * time.Second,
		}))(t)
		if !must(pg.KeepGroup(ctx, pool, group, "node", nil))(t).Filtered {
			t.Error("a group with subscriptions has none")
		}
		both := publish(t, pool, pg.Message{Type: "a.b", Key: "k", Payload: json.RawMessage(`{"n": 12345678901234567890}`)})
		publish(t, pool, pg.Message{Type: "a.b", Payload: json.RawMessage(`{"n": 12345678901234567168}`)})
		lease := take(t, pool, group)
		if len(lease.Events) != 1 || lease.Events[0].ID != both {
			t.Fatalf("events %+v, want %d", lease.Events, both)
		}
		if diff := cmp.Diff([]string{"some", "few"}, lease.Events[0].Subscriptions); diff != "" {
			t.Errorf("subscriptions (-want +got):\n%s", diff)
		}
		check(t, pg.Settle(ctx, pool, lease, pg.Failure{Event: both, Subscription: "few", Error: "no"}))
		var got []string
		for _, s := range must(admin.New(pool, ns).Subscriptions(ctx, "g"))(t) {
			got = append(got, fmt.Sprint(s.Name, " ", s.State, " ", s.Owed, " ", s.ExpireAfterSeconds, " ", !s.ExpiresAt.IsZero(), " ", s.Condition, string(s.Params)))
		}
		if diff := cmp.Diff([]string{`few active 1 90 true e.key = s.params->>'key'{"key": "k"}`, "some active 0 0 false "}, got); diff != "" {
			t.Errorf("subscriptions (-want +got):\n%s", diff)
		}
		if owed := must(admin.New(pool, ns).Unsubscribe(ctx, "g", "few"))(t); owed != 1 {
			t.Errorf("%d were owed", owed)
		}
		if _, err := admin.New(pool, ns).Subscriptions(ctx, "nowhere"); !errors.Is(err, pg.ErrNotFound) {
			t.Errorf("of no group: %v", err)
		}
	})
}

func TestPublishTo(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		ctx := t.Context()
		must(admin.New(pool, ns).Subscribe(ctx, "g", "a", admin.Subscription{}))(t)
		group := must(pg.FindGroup(ctx, pool, ns, "g"))(t)
		later := time.Now().Add(time.Hour)
		messages := []pg.Message{
			{Type: "x", Payload: json.RawMessage(`{"a": 1, "a": 2}`)},
			{Type: "y", Stream: "s", Key: "k", Tags: []string{`"`, `a,b\`}, Metadata: json.RawMessage(`{"m": 1}`)},
			{Type: "z", DeliverAt: &later},
		}
		ids := must(pg.PublishTo(ctx, pool, ns, "g", "a", messages))(t)
		if len(ids) != 3 {
			t.Fatalf("ids %v", ids)
		}
		want := []pg.Event{delivered(messages[0], ids[0]), delivered(messages[1], ids[1])}
		for i := range want {
			want[i].Subscriptions = []string{"a"}
		}
		lease := take(t, pool, group)
		diffEvents(t, want, lease.Events)
		check(t, pg.Settle(ctx, pool, lease))
		if none := must(pg.PublishTo(ctx, pool, ns, "g", "a", nil))(t); none != nil {
			t.Errorf("ids %v of nothing", none)
		}
	})
}

// Events beyond the requested number go back as they were, also when they are retries.
func TestTakeFewOfMany(t *testing.T) {
	later := time.Hour
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		ctx := t.Context()
		must(admin.New(pool, ns).Subscribe(ctx, "g", "a", admin.Subscription{Filter: json.RawMessage(`{"type": "wanted"}`)}))(t)
		group := must(pg.FindGroup(ctx, pool, ns, "g"))(t)
		messages := make([]pg.Message, 600)
		for i := range messages {
			messages[i].Type = "other"
			if i >= 500 && i < 520 {
				messages[i].Type = "wanted"
			}
		}
		ids := must(pg.PublishMany(ctx, pool, ns, messages))(t)[500:520]
		for round := 1; round <= 2; round++ {
			seen := map[int64]int{}
			for len(seen) < len(ids) {
				few := takeOf(group)
				few.MaxEvents = 3
				lease := must(pool.Take(ctx, few))(t)
				n, unread := len(lease.Events), false
				check(t, pool.QueryRow(ctx, "select posthorn.has_unread($1, 'g')", ns).Scan(&unread))
				if n == 0 && unread {
					continue // it has passed over unwanted events for a second
				}
				if n == 0 || n > 3 {
					t.Fatalf("took %d events after %d", n, len(seen))
				}
				var failures []pg.Failure
				for _, e := range lease.Events {
					seen[e.ID]++
					if e.Delivery != round {
						t.Errorf("event %d: delivery %d, want %d", e.ID, e.Delivery, round)
					}
					if round == 1 {
						failures = append(failures, pg.Failure{Event: e.ID, Subscription: "a", Error: "no", RetryIn: &later})
					}
				}
				check(t, pg.Settle(ctx, pool, lease, failures...))
			}
			for _, id := range ids {
				if seen[id] != 1 {
					t.Errorf("round %d: event %d came %d times", round, id, seen[id])
				}
			}
			_, err := pool.Exec(ctx, "update posthorn.retries set due_at = posthorn.now()")
			check(t, err)
			must(pg.PublishMany(ctx, pool, ns, messages[:500]))(t) // to look through in between
		}
	})
}
