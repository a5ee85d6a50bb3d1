package pg_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
)

// A claim with a slow condition is canceled, the condition is found and stopped, and the
// claim is repeated.
func TestSlowConditionCancelsOneClaim(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} { // each waits 15 seconds
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			claimWithSlowCondition(t, openPool(t, mode))
		})
	}
}

func claimWithSlowCondition(t *testing.T, pool *pg.Pool) {
	t.Helper()
	ctx := t.Context()
	must(pool.Exec(ctx, "update posthorn.config set value = '1 second' where key = 'condition_time_limit'"))(t)
	// It does not sleep when subscribe tries the condition with an event of nulls.
	must(pool.Exec(ctx, "create function public.endless(text) returns boolean language plpgsql stable strict as 'begin perform pg_sleep(3600); return true; end'"))(t)
	must(pool.Exec(ctx, "select posthorn.allow_condition_function('public.endless(text)')"))(t)
	for _, how := range []string{"take", "claim"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			group := defineGroup(t, pool, "slow-"+how, pg.GroupConfig{})
			for name, condition := range map[string]string{"endless": "public.endless(e.type)", "quick": "e.type = '" + how + "'"} {
				must(admin.New(pool, ns).Subscribe(ctx, group.Name, name, admin.Subscription{Condition: condition}))(t)
			}
			must(pg.KeepGroup(ctx, pool, group, "node", nil))(t)
			event := publish(t, pool, pg.Message{Type: how})
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
				if (s.Name == "endless") != (s.State == "stopped" && strings.Contains(s.Error, "took longer than ")) {
					t.Errorf("%s is %s: %s", s.Name, s.State, s.Error)
				}
			}
		})
	}
}

// slowGroup makes a group with an event, a quick condition, and one behind it that takes some seconds.
func slowGroup(t *testing.T, pool *pg.Pool, seconds string) {
	t.Helper()
	ctx := t.Context()
	must(pool.Exec(ctx, "create function public.slow(text) returns boolean language plpgsql stable strict as 'begin perform pg_sleep("+seconds+"); return true; end'"))(t)
	must(pool.Exec(ctx, "select posthorn.allow_condition_function('public.slow(text)')"))(t)
	defineGroup(t, pool, "g", pg.GroupConfig{})
	must(admin.New(pool, ns).Subscribe(ctx, "g", "quick", admin.Subscription{Condition: "e.type = 'a'"}))(t)
	must(admin.New(pool, ns).Subscribe(ctx, "g", "slow", admin.Subscription{Condition: "public.slow(e.type)"}))(t)
	publish(t, pool, pg.Message{Type: "a"})
}

const stopSQL = "select posthorn.stop_slow_conditions($1, 'g', 10, $2::text::interval)"

// wantStopped checks which subscriptions are stopped, and returns the error of the last one.
func wantStopped(t *testing.T, pool *pg.Pool, want string) (reason string) {
	t.Helper()
	var stopped []string
	for _, s := range must(admin.New(pool, ns).Subscriptions(t.Context(), "g"))(t) {
		if s.State == "stopped" {
			stopped, reason = append(stopped, s.Name), s.Error
		}
	}
	if got := strings.Join(stopped, " "); got != want {
		t.Errorf("stopped are %q, want %q", got, want)
	}
	return reason
}

// If no condition takes too long, but all of them together do, the slowest is stopped.
func TestSlowestOfManyConditions(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	slowGroup(t, pool, "0.5")
	stop := func(limit string) bool { return must(pg.Value[bool](t.Context(), pool, "stop", stopSQL, ns, limit))(t) }
	if stop("1 hour") {
		t.Error("a condition is stopped although there is time")
	}
	wantStopped(t, pool, "")
	if !stop("900 milliseconds") {
		t.Error("no condition is stopped")
	}
	if reason := wantStopped(t, pool, "slow"); !strings.Contains(reason, "the longest of 2 conditions") {
		t.Errorf("stopped because it %s", reason)
	}
}

// A call that somebody ends tells nothing about a condition.
func TestCallThatIsEndedStopsNoCondition(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	slowGroup(t, pool, "3600")
	ended := make(chan error, 1)
	go func() {
		_, err := pool.Exec(t.Context(), stopSQL, ns, "1 hour")
		ended <- err
	}()
	await.True(t, "the call is ended while it tries the condition", func() bool {
		n, err := pg.Value[int](t.Context(), pool, "cancel", `select count(pg_cancel_backend(pid)) from pg_stat_activity
			where datname = current_database() and wait_event = 'PgSleep'`)
		return err == nil && n > 0
	})
	var cause *pgconn.PgError
	if err := await.Value(t, "the error of the call", ended); !errors.As(err, &cause) || cause.Code != "57014" {
		t.Errorf("the call ends with %v", err)
	}
	wantStopped(t, pool, "")
}
