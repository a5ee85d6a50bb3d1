package pg_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

// seed 000.8–10
func TestNode(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		ctx := t.Context()
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		node := must(pg.RegisterNode(ctx, pool, ns, "host/7", pg.NodeInfo{
			DisplayName: "API server", Description: "takes orders", Metadata: json.RawMessage(`{"role":"producer"}`),
		}))(t)
		if node != "host_7" {
			t.Errorf("registered as %q", node)
		}
		must(pg.RegisterNode(ctx, pool, ns, "plain", pg.NodeInfo{}))(t)
		handlers := []pg.Handler{{Name: "charge", Patterns: []string{"order.placed", "order.>"}}, {Name: "mail", Patterns: []string{">"}}}
		check(t, pg.SetNodeHandlers(ctx, pool, ns, node, "g", handlers))
		publish(t, pool, pg.Message{Type: "a"})
		must(pg.Claim(ctx, pool, ns, "g", node, 1, time.Minute))(t)

		want := []admin.NodeStatus{
			{
				ID: node, Namespace: ns, DisplayName: "API server", Description: "takes orders",
				Metadata: json.RawMessage(`{"role": "producer"}`), State: "alive", Leases: 1,
				Handlers: []admin.NodeHandler{{Group: "g", Name: "charge", Patterns: handlers[0].Patterns}, {Group: "g", Name: "mail", Patterns: handlers[1].Patterns}},
			},
			{ID: "plain", Namespace: ns, Metadata: json.RawMessage("{}"), State: "alive", Handlers: []admin.NodeHandler{}},
		}
		times := cmpopts.IgnoreFields(admin.NodeStatus{}, "RegisteredAt", "LastHeartbeat")
		if diff := cmp.Diff(want, must(admin.New(pool, ns).Nodes(ctx))(t), times); diff != "" {
			t.Errorf("nodes (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(pg.Kept{HasOrder: true, Unreachable: []string{}, Others: handlers, Names: map[string]string{}}, must(pg.KeepGroup(ctx, pool, group, "plain", nil))(t)); diff != "" {
			t.Errorf("the group as another node sees it (-want +got):\n%s", diff)
		}

		if !must(pg.TouchHeartbeat(ctx, pool, node))(t) {
			t.Error("the node is not registered")
		}
		if n := must(pg.RemoveNode(ctx, pool, ns, node))(t); n != 1 {
			t.Errorf("%d leases were given back, want 1", n)
		}
		if must(pg.TouchHeartbeat(ctx, pool, node))(t) {
			t.Error("the node is still registered")
		}
		check(t, pg.SetNodeHandlers(ctx, pool, ns, "plain", "g", nil))
		if err := pg.SetNodeHandlers(ctx, pool, ns, node, "g", handlers); !errors.Is(err, pg.ErrNotFound) {
			t.Errorf("handlers of a node that is gone: %v", err)
		}
	})
}

func TestOutcomes(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		ctx := t.Context()
		for _, name := range []string{"busy", "done", "failed", "late"} {
			defineGroup(t, pool, name, pg.GroupConfig{})
		}
		event := publish(t, pool, pg.Message{Type: "a"})
		claim(t, pool, "busy")
		check(t, pg.Settle(ctx, pool, claim(t, pool, "done")))
		soon := time.Hour
		check(t, pg.Settle(ctx, pool, claim(t, pool, "failed"),
			pg.Failure{Event: event, Subscription: "charge", Error: "declined", Permanent: true},
			pg.Failure{Event: event, Subscription: "mail", Error: "timeout", RetryIn: &soon}))

		want := []admin.Outcome{
			{Group: "busy", State: admin.Processing, Attempts: 1, Node: "node"},
			{Group: "done", State: admin.Completed},
			{Group: "failed", State: admin.Retrying, Subscription: "charge", Attempts: 1, Error: "declined", Reason: "Handler error", Node: "node"},
			{Group: "failed", State: admin.Retrying, Subscription: "mail", Attempts: 1, Error: "timeout"},
			{Group: "late", State: admin.Pending},
		}
		got := must(admin.New(pool, ns).Outcomes(ctx, event))(t)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(admin.Outcome{}, "At", "DueAt")); diff != "" {
			t.Fatalf("outcomes (-want +got):\n%s", diff)
		}
		if got[0].At.IsZero() || !got[1].At.IsZero() || !got[2].DueAt.IsZero() || got[3].DueAt.IsZero() {
			t.Errorf("times: %+v", got)
		}
		if _, err := admin.New(pool, ns).Outcomes(ctx, 4711); !errors.Is(err, pg.ErrNotFound) {
			t.Errorf("unknown event: %v", err)
		}
	})
}
