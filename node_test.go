package posthorn_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// Heartbeats keep a node alive. A node that upkeep has removed registers again, with its
// handlers.
//
// seed 000.17, 000.47–49
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"quiet", "swept"} {
		ph, err := posthorn.Open(t.Context(), posthorn.Config{
			DatabaseURL: w.URL, NodeID: id, DisplayName: "the " + id, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ph.Close)
		posthorn.SetHeartbeat(ph, 20*time.Millisecond)
		ph.Group("billing", testworld.FromBeginning()).Handle("charge", "order.*", func(context.Context, posthorn.Event) error { return nil })
		(&world{&testworld.World{Client: ph, T: t, URL: w.URL}}).Start()
	}
	holds := func(sql string) {
		t.Helper()
		await.True(t, sql, func() bool { return testworld.Ask[bool](w, "select exists (select from "+sql+")") })
	}
	holds("posthorn.node_handlers having count(*) = 2")
	w.Exec("delete from posthorn.nodes where node_id = 'swept'")
	w.TurnClock(5 * time.Minute)
	holds("posthorn.node_status where node_id = 'quiet' and state = 'alive'")
	holds("posthorn.node_handlers where node_id = 'swept' and patterns = '{order.*}'")
	holds("posthorn.nodes where node_id = 'swept' and display_name = 'the swept'")
}
