package importer_test

import (
	"encoding/json"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

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

// Another event under the id of one that was imported is no repeat: its log was restored,
// and did not notice. It is kept as a dead letter, once, however often the broker repeats it.
func TestAnotherEventUnderAKnownIDIsADeadLetter(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newBroker(t, "redis")
	b.write("orders", 1, 300) // the first two hundred are not beside the position any more
	w.imports(b)
	w.has("orders", upTo(300)...)
	later := func(e *posthorn.Event) { e.PublishedAt = e.PublishedAt.Add(time.Hour) }
	other := func(e *posthorn.Event) { e.Payload = json.RawMessage(`{"n": "other"}`) }
	b.write("orders", 5, 6, later)
	b.write("orders", 299, 300, other)
	again, err := b.redis.XRevRangeN(t.Context(), "orders", "+", "-", 2).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range again {
		if err := b.redis.XAdd(t.Context(), &goredis.XAddArgs{Stream: "orders", Values: entry.Values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	b.write("orders", 7, 7) // a repeat
	b.write("orders", 301, 301)
	w.has("orders", upTo(301)...)
	testworld.Equal(t, "dead letters", testworld.Column[string](w, `
		select concat_ws(' ', event_id, key, payload->>'n', reason) from posthorn.list_import_dead_letters('default') order by event_id`), []string{
		"5 k 5 another event was imported under id 5 of the log", "6 k 6 another event was imported under id 6 of the log",
		"299 k other another event was imported under id 299 of the log", "300 k other another event was imported under id 300 of the log",
	})
	dead, err := w.Admin().Hiding([]string{"orders"}).ImportDeadLetters(t.Context(), "import")
	if err == nil && len(dead) > 0 {
		t.Errorf("%d dead letters of a stream that the caller may not read", len(dead))
	}
	testworld.Equal(t, "findings", testworld.Ask[int](w, `select count(*) from posthorn.doctor() where "check" = 'imports' and found like '%has 4 dead letters%'`), 1)
}
