package posthorn_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// fields is an envelope as a JSON document, with its time taken out.
func fields(t *testing.T, envelope []byte) (all map[string]any, emittedAt time.Time) {
	t.Helper()
	if err := json.Unmarshal(envelope, &all); err != nil {
		t.Fatal(err)
	}
	text, _ := all["emittedAt"].(string)
	emittedAt, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || text[len(text)-1] != 'Z' {
		t.Errorf("emittedAt is %q, %v; want RFC 3339 in UTC", text, err)
	}
	delete(all, "emittedAt")
	return all, emittedAt
}

// seed 000.27, 000.39: the envelope has what is known of an event, in Go as in SQL,
// whatever others have put into the metadata.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.Group("g", fromBeginning())
	const task = "6f2d3c1e-0000-4000-8000-000000000001"
	for metadata, want := range map[string]map[string]any{
		`{}`:                           {"producerNodeId": ""},
		`{"producer": "api-1"}`:        {"producerNodeId": "api-1"},
		`{"Producer": "not this one"}`: {"producerNodeId": ""},
		`{"producer": "scheduler", "scheduledTaskId": "` + task + `"}`: {"producerNodeId": "scheduler", "scheduledTaskId": task},
		`{"producer": 7, "other": {"a": []}}`:                          {"producerNodeId": "7"},
		`{"producer": null, "scheduledTaskId": null}`:                  {"producerNodeId": ""},
		`[]`: {"producerNodeId": ""},
	} {
		id := ask[int64](w, `select posthorn.publish('default', 'user.created', '{"user" : 7}', metadata => $1::text::json)`, metadata)
		d := w.fetch(g, 1)[0]
		inGo, err := json.Marshal(w.Envelope(d.Event))
		if err != nil {
			t.Fatal(err)
		}
		got, at := fields(t, inGo)
		want["namespace"], want["eventType"], want["payload"] = "default", "user.created", map[string]any{"user": 7.0}
		want["messageId"], want["redeliveryCount"] = float64(id), 1.0
		equal(t, "envelope with "+metadata, got, want)

		inSQL := ask[[]byte](w, `select posthorn.event_envelope('default', id, type, payload, metadata, created_at, 1)
			from posthorn.events where id = $1`, id)
		got, atInSQL := fields(t, inSQL)
		equal(t, "envelope in SQL with "+metadata, got, want)
		if !at.Equal(atInSQL) {
			t.Errorf("emitted at %v, in SQL %v", at, atInSQL)
		}
		w.ack(d)
	}
}

// seed 000.3, 000.28–31: publishing says where an event comes from, returns its id,
// and writes queue and log at once: they have it both, or neither.
func TestPublishedIsQueuedAndLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.Group("g", fromBeginning())
	publish := func(db posthorn.DB) int64 {
		t.Helper()
		ids, err := w.Publish(t.Context(), db, posthorn.Message{
			Type: "user.created", Payload: map[string]string{"user": "123"}, Metadata: map[string]any{"trace": "x"},
		})
		if err != nil || len(ids) != 1 {
			t.Fatalf("ids %v, %v", ids, err)
		}
		return ids[0]
	}
	logged := func() int { return ask[int](w, "select count(*) from posthorn.event_log") }

	tx := w.begin()
	publish(tx)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "log after a rollback", logged(), 0)
	w.create(g, 0)
	w.nothing(g)

	var id int64
	if err := pgx.BeginFunc(t.Context(), w.Pool(), func(tx pgx.Tx) error { id = publish(tx); return nil }); err != nil {
		t.Fatal(err)
	}
	d := w.fetch(g, 10)
	equal(t, "events", idsOf(d), []int64{id})
	w.ack(d...)
	equal(t, "log", ask[string](w, `select concat_ws(' ', event_id = $1, namespace, event_type, payload, metadata->>'trace', producer_node_id = $2,
		emitted_at > now() - interval '1 hour') from posthorn.event_log`, id, w.NodeID()), `t default user.created {"user": "123"} x t t`)
	w.nothing(g)
	equal(t, "log after it was handled", logged(), 1) // what is done stays in the log
}
