package importer_test

import (
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// A log is restored that has relayed events since the backup. The events that it
// publishes next reach the broker and the databases that import from it.
func TestEventsAfterARestoreReachEveryone(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t, kind)
			lost := testworld.New(t)
			lost.Exec("select posthorn.notice_restore()") // the database is a copy, which otherwise learns its identity from the first claim
			stop := relayTo(lost, b)
			lost.PublishN(5)
			await.True(t, "five are relayed", func() bool { return relayed(lost) == 5 })
			stop()
			script := testpg.Dump(t, lost.URL)
			if script == nil {
				t.Skip("there is no pg_dump for this server")
			}
			lost = lost.Other()
			stop = relayTo(lost, b)
			lost.PublishN(5)
			await.True(t, "ten are relayed", func() bool { return relayed(lost) == 10 })
			stop()

			into := posthorntest.EmptyDatabase(t)
			testpg.Load(t, into, script)
			restored := testworld.Open(t, posthorn.Config{DatabaseURL: into})
			relayTo(restored, b)
			restored.PublishN(7)

			reader := testworld.New(t)
			reader.Exec("update posthorn.log_origin set origin = gen_random_uuid()") // databases of tests are copies
			source, err := openSource(t.Context(), kind, b.url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { source.Close() })
			reader.Import("in", posthorn.ImportConfig{}, source)
			reader.Start()
			await.True(t, "all are imported", func() bool {
				return testworld.Ask[int](reader, "select count(distinct metadata::jsonb->'posthorn_origin'->>'id') from posthorn.events") == 17
			})
			testworld.Equal(t, "events", testworld.Ask[int](reader, "select count(*) from posthorn.events"), 17)
		})
	}
}

func relayTo(w *testworld.World, b *broker) (stop func()) {
	w.T.Helper()
	w.Relay("out", posthorn.RelayConfig{}, b.openSink())
	return w.Start()
}

func relayed(w *testworld.World) int {
	return testworld.Ask[int](w, "select count(*) from posthorn.outbox_event where published_at is not null")
}
