package archive_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

const sealed = `{"posthorn_sealed":"AQAAAAdhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"}`

// Replayed into a group, archived events come again with their ids and times, to
// that group alone, though the log has dropped them; filtered as asked.
//
// seed 003, the archive
func TestAGroupGetsArchivedEventsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 100)
	w.publish("payments", 100)
	w.Exec("select posthorn.publish('default', 'order.sealed', $1::json, stream => 'orders')", sealed)
	want := events(t, w.db)
	w.archive(quick)
	w.Exec("alter table posthorn.events disable trigger append_only")
	w.Exec("delete from posthorn.events")

	ph := posthorntest.Open(t, posthorn.Config{DatabaseURL: w.URL})
	got := make(chan posthorn.Event, 1000)
	take := func(_ context.Context, e posthorn.Event) error { got <- e; return nil }
	ph.Group("billing", posthorn.GroupConfig{}).Handle("take", ">", take)
	ph.Group("other", posthorn.GroupConfig{}).Handle("take", ">", func(context.Context, posthorn.Event) error {
		return errors.New("this is not mine")
	})
	posthorntest.Run(t, ph)
	config := archive.ReplayConfig{
		Range:   archive.Range{Namespaces: []string{"default"}, Streams: []string{"orders"}, FromID: 51},
		ToGroup: "billing",
	}
	for range 2 { // a replay that is complete may be had again
		if n, err := w.store.Replay(t.Context(), w.db, config); err != nil || n != 51 {
			t.Fatalf("replayed %d: %v", n, err)
		}
		ids := map[int64]bool{}
		for range 51 {
			e := await.Value(t, "an event", got)
			x := want[e.ID]
			if ids[e.ID] || x.Stream != "orders" || e.ID < 51 || e.Type != x.Type || "="+e.Key != x.Key && e.Key+x.Key != "" ||
				string(e.Payload) != x.Payload || !e.PublishedAt.Equal(x.At) {
				t.Errorf("got %+v, want %+v", e, x)
			}
			ids[e.ID] = true
		}
		w.Await("select not exists (select from posthorn.retries)")
	}
	if n := testworld.Ask[int](w, "select count(*)::int from posthorn.dead_letters"); n > 0 {
		t.Error("another group got them")
	}
	for _, group := range []string{"archive", "nobody"} {
		config.ToGroup = group
		if _, err := w.store.Replay(t.Context(), w.db, config); err == nil {
			t.Errorf("replayed to %s", group)
		}
	}
}

// Replayed into a stream they are published anew, and say where they are from. A
// sealed payload goes nowhere but to its own stream.
//
// seed 003, the archive
func TestArchivedEventsArePublishedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`select posthorn.publish('default', 'a', '{"n": 1}', stream => 'orders', key => 'k', tags => '{x,y}', metadata => ' {"trace": 1}')`)
	w.Exec(`select posthorn.publish('default', 'a', '{"n": 2}', stream => 'orders')`)
	w.archive(quick)
	config := archive.ReplayConfig{Range: archive.Range{Namespaces: []string{"default"}, Streams: []string{"orders"}}, ToStream: "again"}
	if n, err := w.store.Replay(t.Context(), w.db, config); err != nil || n != 2 {
		t.Fatalf("replayed %d: %v", n, err)
	}
	want := fmt.Sprintf(`{"archived_id":1,"archived_stream":"orders","archived_at":"%s","trace": 1}`,
		testworld.Ask[time.Time](w, "select created_at from posthorn.events where id = 1").UTC().Format(time.RFC3339Nano))
	all := events(t, w.db)
	if e := all[3]; e.Metadata != want || e.Stream != "again" || e.Key != "=k" || fmt.Sprint(e.Tags) != "[x y]" || e.Payload != `{"n": 1}` {
		t.Errorf("%+v, want metadata %s", e, want)
	}
	if len(all) != 4 {
		t.Errorf("%d events", len(all))
	}

	w.Exec("select posthorn.publish('default', 'a', $1::json, stream => 'patients')", sealed)
	w.archive(quick)
	config.Streams, config.ToStream = []string{"patients"}, "again"
	if _, err := w.store.Replay(t.Context(), w.db, config); err == nil || !strings.Contains(err.Error(), "is sealed") {
		t.Errorf("a sealed payload was replayed into another stream: %v", err)
	}
	config.ToStream = "patients"
	if n, err := w.store.Replay(t.Context(), w.db, config); err != nil || n != 1 {
		t.Errorf("replayed %d: %v", n, err)
	}
	if n := testworld.Ask[int](w, "select count(*)::int from posthorn.events where payload::text = $1", sealed); n != 2 {
		t.Errorf("%d sealed payloads", n)
	}
}
