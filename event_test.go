package posthorn_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// fields decodes an envelope, and returns emittedAt separately.
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

// seed 000.27, 000.39: the envelope has the same fields in Go and in SQL, also if the
// metadata of the publisher have unexpected types.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
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
		id := testworld.Ask[int64](w, `select posthorn.publish('default', 'user.created', '{"user" : 7}', metadata => $1::text::json)`, metadata)
		d := w.Fetch(g, 1)[0]
		inGo, err := json.Marshal(w.Envelope(d.Event))
		if err != nil {
			t.Fatal(err)
		}
		got, at := fields(t, inGo)
		want["namespace"], want["eventType"], want["payload"] = "default", "user.created", map[string]any{"user": 7.0}
		want["messageId"], want["redeliveryCount"] = float64(id), 1.0
		testworld.Equal(t, "envelope with "+metadata, got, want)

		inSQL := testworld.Ask[[]byte](w, `select posthorn.event_envelope('default', id, type, payload, metadata, created_at, 1)
			from posthorn.events where id = $1`, id)
		got, atInSQL := fields(t, inSQL)
		testworld.Equal(t, "envelope in SQL with "+metadata, got, want)
		if !at.Equal(atInSQL) {
			t.Errorf("emitted at %v, in SQL %v", at, atInSQL)
		}
		w.Ack(d)
	}
}

func TestOwnCodec(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	w := &world{testworld.Open(t, posthorn.Config{
		DatabaseURL: url,
		Encode: func(payload any) ([]byte, error) {
			switch payload {
			case "wrong":
				return nil, errors.New("wrong")
			case "no JSON":
				return []byte("no JSON"), nil
			}
			return json.Marshal([]any{"wrapped", payload})
		},
		Decode: func(payload []byte, into any) error {
			return json.Unmarshal(payload, &[]any{nil, into})
		},
	})}
	for _, payload := range []any{"wrong", "no JSON", []byte("no JSON")} {
		_, err := w.Publish(t.Context(), w.Pool(), event(payload))
		testworld.WantErr(t, "a payload that cannot be encoded", err, posthorn.ErrInvalid)
	}
	if _, err := w.Publish(t.Context(), w.Pool(), event("x"), event(json.RawMessage(`["raw", "y"]`)), event(nil), event([]byte(`{"bytes":1}`))); err != nil {
		t.Fatal(err)
	}
	testworld.Equal(t, "payloads", w.payloads(), []string{`["wrapped","x"]`, `["raw", "y"]`, "{}", `{"bytes":1}`})
	deliveries := w.Fetch(w.Group("g", testworld.FromBeginning()), 10)
	var got [2]string
	for i := range got {
		if err := deliveries[i].Decode(&got[i]); err != nil {
			t.Error(err)
		}
	}
	testworld.Equal(t, "decoded", got, [2]string{"x", "y"})
	if err := w.Decode(deliveries[2].Event, &got[0]); err == nil {
		t.Error("an object was decoded into a string")
	}
}

// Without a provider, the trace of the caller is published too.
func TestTraceContextWithoutProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	for _, ctx := range []context.Context{t.Context(), trace.ContextWithSpanContext(t.Context(), caller)} {
		if _, err := w.Publish(ctx, w.Pool(), posthorn.Message{Type: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	traces := testworld.Ask[[]string](w, "select array_agg(coalesce(metadata->>'traceparent', '') order by id) from posthorn.events")
	testworld.Equal(t, "traces", traces, []string{"", "00-01000000000000000000000000000000-0200000000000000-01"})
}
