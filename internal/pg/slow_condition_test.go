package pg_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

// A claim with a slow condition is canceled, the condition is found and stopped, and the
// claim is repeated.
func TestSlowConditionCancelsOneClaim(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		ctx := t.Context()
		must(pool.Exec(ctx, "update posthorn.config set value = '1 second' where key = 'condition_time_limit'"))(t)
		// It does not sleep when subscribe tries the condition with an event of nulls.
		must(pool.Exec(ctx, "create function public.endless(text) returns boolean language plpgsql stable strict as 'begin perform pg_sleep(3600); return true; end'"))(t)
		must(pool.Exec(ctx, "select posthorn.allow_condition_function('public.endless(text)')"))(t)
		for _, how := range []string{"take", "claim"} {
			t.Run(how, func(t *testing.T) {
				ctx := t.Context()
				group := defineGroup(t, pool, "slow-"+how, pg.GroupConfig{})
				for name, condition := range map[string]string{"endless": "public.endless(e.type)", "quick": "e.type = 'a'"} {
					must(admin.New(pool, ns).Subscribe(ctx, group.Name, name, admin.Subscription{Condition: condition}))(t)
				}
				must(pg.KeepGroup(ctx, pool, group, "node", nil))(t)
				event := publish(t, pool, pg.Message{Type: "a"})
				var lease pg.Lease
				if how == "take" {
					want := takeOf(group)
					want.LeaseFor = 10 * time.Second
					lease = must(pool.Take(ctx, want))(t)
				} else {
					short, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					lease = must(pg.ClaimInTime(short, pool, ns, group.Name, "n", 10, 10*time.Second))(t)
				}
				if len(lease.Events) != 1 || lease.Events[0].ID != event {
					t.Fatalf("events %+v, want %d", lease.Events, event)
				}
				check(t, pg.Settle(ctx, pool, lease))
				for _, s := range must(admin.New(pool, ns).Subscriptions(ctx, group.Name))(t) {
					if (s.Name == "endless") != (s.State == "stopped" && strings.Contains(s.Error, "took longer than 2s")) {
						t.Errorf("%s is %s: %s", s.Name, s.State, s.Error)
					}
				}
			})
		}
	})
}
