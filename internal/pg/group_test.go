package pg_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

func TestDefineGroup(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		attempts, jitter := 7, 0.0
		group := defineGroup(t, pool, "g", pg.GroupConfig{
			Order: "key", Slots: 3, Attempts: &attempts, OnFailure: "set_aside", ReadAhead: 99,
			Backoff: &pg.Backoff{From: 1500 * time.Millisecond, To: time.Hour, Factor: 3, Jitter: &jitter},
		})
		if found := must(pg.FindGroup(t.Context(), pool, ns, "g"))(t); found != group {
			t.Errorf("found %v, want %v", found, group)
		}
		want := admin.GroupPolicy{
			Slots: 3, Attempts: 7, BackoffFrom: "00:00:01.5", BackoffTo: "01:00:00", BackoffFactor: 3,
			OnFailure: "set_aside", ReadAhead: 99,
		}
		got := must(admin.New(pool, ns).GroupPolicy(t.Context(), "g"))(t)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(admin.GroupPolicy{}, "CreatedAt")); diff != "" {
			t.Errorf("policy (-want +got):\n%s", diff)
		}
		defineGroup(t, pool, "g", pg.GroupConfig{Delays: pg.Delays{time.Second, time.Minute}})
		got = must(admin.New(pool, ns).GroupPolicy(t.Context(), "g"))(t)
		if diff := cmp.Diff([]string{"00:00:01", "00:01:00"}, got.Delays); diff != "" || got.Attempts != 3 {
			t.Errorf("policy %+v", got)
		}
	})
}

// A program that begins sets the whole policy of its group but the slots and how far it reads ahead. An order that cannot
// change yet changes later, alone.
func TestPolicyOfAProgram(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		ctx := t.Context()
		attempts, jitter := 7, 0.0
		group := defineGroup(t, pool, "g", pg.GroupConfig{
			Order: "key", Slots: 3, Attempts: &attempts, OnFailure: "set_aside", ReadAhead: 99,
			Backoff: &pg.Backoff{From: 1500 * time.Millisecond, To: time.Hour, Factor: 3, Jitter: &jitter},
		})
		policy := func(want string) {
			t.Helper()
			got := must(pg.Value[string](ctx, pool, "policy", `
				select concat_ws(' ', ordering, slots, attempts, on_failure, read_ahead, backoff_from, backoff_to, backoff_factor, backoff_jitter, delays)
				from posthorn.groups where name = 'g'`))(t)
			if got != want {
				t.Errorf("policy %s, want %s", got, want)
			}
		}
		policy("key 3 7 set_aside 99 00:00:01.5 01:00:00 3 0")
		defineGroup(t, pool, "g", pg.GroupConfig{})
		policy("none 3 5 block 99 00:00:01 00:05:00 2 0.1")
		defineGroup(t, pool, "g", pg.GroupConfig{Backoff: &pg.Backoff{To: time.Hour}})
		policy("none 3 5 block 99 00:00:01 01:00:00 2 0.1")
		defineGroup(t, pool, "g", pg.GroupConfig{Delays: pg.Delays{time.Second}})
		policy("none 3 2 block 99 00:00:01 01:00:00 2 0.1 {00:00:01}")

		publish(t, pool, pg.Message{Type: "a"})
		lease := take(t, pool, group)
		wanted := pg.GroupConfig{Order: "key", Slots: 5}
		begun := must(pg.BeginGroup(ctx, pool, ns, "g", wanted))(t)
		if begun.Group != group || begun.HasOrder || begun.Hint == "" {
			t.Errorf("while there is work in flight: %+v", begun)
		}
		policy("none 3 5 block 99 00:00:01 00:05:00 2 0.1")
		if must(pg.KeepGroup(ctx, pool, group, "node", &wanted))(t).HasOrder {
			t.Error("the order has changed while there is work in flight")
		}
		check(t, pg.Settle(ctx, pool, lease))
		wanted.OnFailure = "set_aside"
		if !must(pg.KeepGroup(ctx, pool, group, "node", &wanted))(t).HasOrder {
			t.Error("the order has not changed")
		}
		policy("key 5 5 block 99 00:00:01 00:05:00 2 0.1")

		publish(t, pool, pg.Message{Type: "a"})
		lease = take(t, pool, group)
		if must(pg.BeginGroup(ctx, pool, ns, "g", pg.GroupConfig{}))(t).HasOrder {
			t.Error("the order has changed while there is work in flight")
		}
		check(t, pg.Settle(ctx, pool, lease))
		must(pg.KeepGroup(ctx, pool, group, "node", &pg.GroupConfig{}))(t)
		policy("none 5 5 block 99 00:00:01 00:05:00 2 0.1")

		must(admin.New(pool, ns).DeleteGroup(ctx, "g"))(t)
		if _, err := pg.KeepGroup(ctx, pool, group, "node", &wanted); !errors.Is(err, pg.ErrNotFound) {
			t.Errorf("a group that was deleted: %v", err)
		}
	})
}

// A handler without a subscription of its name gets no events if the group has subscriptions, or if it has no patterns.
func TestHandlersThatGetNoEvents(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		ctx := t.Context()
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		must(pg.RegisterNode(ctx, pool, ns, "node", pg.NodeInfo{}))(t)
		check(t, pg.SetNodeHandlers(ctx, pool, ns, "node", "g", []pg.Handler{
			{Name: "now", Patterns: []string{}, Formerly: []string{"before"}}, {Name: "by pattern", Patterns: []string{"a"}},
		}))
		unreachable := func(want ...string) {
			t.Helper()
			got := must(pg.KeepGroup(ctx, pool, group, "node", nil))(t)
			if diff := cmp.Diff(pg.Kept{
				Filtered: len(want) == 0 || want[0] == "by pattern", HasOrder: true, Unreachable: want, Others: []pg.Handler{},
				Names: map[string]string{"before": "now"},
			}, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("group (-want +got):\n%s", diff)
			}
		}
		unreachable("now")
		must(admin.New(pool, ns).Subscribe(ctx, "g", "before", admin.Subscription{}))(t)
		unreachable("by pattern")
		must(admin.New(pool, ns).Subscribe(ctx, "g", "by pattern", admin.Subscription{}))(t)
		unreachable()
	})
}

func TestGroupThatDoesNotExist(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		_, find := pg.FindGroup(t.Context(), pool, ns, "none")
		_, status := admin.New(pool, ns).Group(t.Context(), "none")
		_, policy := admin.New(pool, ns).GroupPolicy(t.Context(), "none")
		_, claim := pg.Claim(t.Context(), pool, ns, "none", "node", 1, time.Second)
		_, take := pool.Take(t.Context(), takeOf(pg.Group{ID: 4711, Namespace: ns, Name: "none"}))
		for _, err := range []error{find, status, policy, claim, take} {
			if !errors.Is(err, pg.ErrNotFound) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// seed 000.69
func TestGroupStatus(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "ahead", pg.GroupConfig{})
		defineGroup(t, pool, "behind", pg.GroupConfig{Order: "stream"})
		publish(t, pool, pg.Message{Type: "a"})
		lease := claim(t, pool, "ahead")
		check(t, admin.New(pool, ns).PauseGroup(t.Context(), "behind"))
		got := must(admin.New(pool, ns).Groups(t.Context()))(t)
		want := []admin.GroupStatus{
			{Namespace: ns, Group: "ahead", Order: "none", Position: lease.Events[0].ID, Leases: 1},
			{Namespace: ns, Group: "behind", Order: "stream", Paused: true, LagEvents: 1},
		}
		volatile := cmpopts.IgnoreFields(admin.GroupStatus{}, "LagSeconds", "OldestPending", "HeldByPID", "HeldForSeconds", "HeldByApplication")
		if diff := cmp.Diff(want, got, volatile); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
}

func TestPausedGroup(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		publish(t, pool, pg.Message{Type: "a"})
		check(t, admin.New(pool, ns).PauseGroup(t.Context(), "g"))
		if take(t, pool, group).Held() {
			t.Error("there is work")
		}
		check(t, admin.New(pool, ns).ResumeGroup(t.Context(), "g"))
		if !take(t, pool, group).Held() {
			t.Error("there is no work")
		}
		if d := must(admin.New(pool, ns).DeleteGroup(t.Context(), "g"))(t); d.Leases != 1 {
			t.Errorf("deleted %+v", d)
		}
	})
}

func TestSeek(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		publish(t, pool, pg.Message{Type: "a"})
		between := must(admin.New(pool, "").Now(t.Context()))(t)
		publish(t, pool, pg.Message{Type: "b"})
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		for _, test := range []struct {
			to   pg.Moment
			want int
		}{{pg.Beginning, 2}, {pg.At(between), 1}, {pg.End, 0}} {
			check(t, admin.New(pool, ns).Seek(t.Context(), "g", test.to))
			if got := take(t, pool, group); len(got.Events) != test.want {
				t.Errorf("%d events from %v, want %d", len(got.Events), test.to, test.want)
			}
		}
	})
}

func TestGroupStarts(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		publish(t, pool, pg.Message{Type: "a"})
		between := pg.At(must(admin.New(pool, "").Now(t.Context()))(t))
		publish(t, pool, pg.Message{Type: "b"})
		for name, start := range map[string]pg.Moment{"beginning": pg.Beginning, "between": between, "end": pg.End, "now": {}} {
			group := defineGroup(t, pool, name, pg.GroupConfig{Start: start})
			want := map[string]int{"beginning": 2, "between": 1}[name]
			if got := take(t, pool, group); len(got.Events) != want {
				t.Errorf("%s: %d events, want %d", name, len(got.Events), want)
			}
		}
	})
}
