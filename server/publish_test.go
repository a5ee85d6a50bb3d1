package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestPublishAllFields(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var published struct{ IDs []int64 }
	s.call(t, "POST", "/v1/events", map[string]any{
		"stream": "orders", "type": "order.placed", "key": "7", "tags": []string{"a", "b"},
		"payload": 12345678901234567, "metadata": map[string]any{"n": 1.5}, "dedup_key": "once",
	}).want(t, 201, &published)
	var event eventView
	s.call(t, "GET", fmt.Sprintf("/v1/events/%d", published.IDs[0]), nil).want(t, 200, &event)
	equal(t, "stream, key, tags", fmt.Sprint(event.Stream, event.Key, event.Tags), "orders7[a b]")
	equal(t, "payload", string(event.Payload), "12345678901234567")
	var metadata map[string]any
	if err := json.Unmarshal(event.Metadata, &metadata); err != nil {
		t.Fatal(err)
	}
	equal(t, "metadata", fmt.Sprint(metadata["n"], metadata["producer"]), "1.5"+s.ph.NodeID())

	later := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	s.call(t, "POST", "/v1/events", map[string]any{"type": "later", "deliver_at": later}).want(t, 201, &published)
	s.call(t, "GET", fmt.Sprintf("/v1/events/%d", published.IDs[0]), nil).want(t, 200, &event)
	if event.DeliverAt.IsZero() || !event.DeliverAt.Equal(later) {
		t.Errorf("deliver_at: %v", event.DeliverAt)
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, body := range []string{`{"type":"a"}`, `[{"type":"a"},{"type":"b","dedup_key":"own"},{"type":"c"}]`} {
		key := fmt.Sprintf("Idempotency-Key: key-%d", len(body))
		var first, second struct{ IDs []int64 }
		fresh := s.call(t, "POST", "/v1/events", body, key).want(t, 201, &first)
		equal(t, "replayed at first", fresh.header.Get("Idempotency-Replayed"), "")
		again := s.call(t, "POST", "/v1/events", body, key).want(t, 201, &second)
		equal(t, "ids", second.IDs, first.IDs)
		equal(t, "replayed", again.header.Get("Idempotency-Replayed"), "true")
	}
	s.call(t, "PUT", "/v1/namespaces/other", nil).want(t, 204)
	other := s.call(t, "POST", "/v1/events?namespace=other", `{"type":"a"}`, "Idempotency-Key: key-12").want(t, 201)
	equal(t, "replayed in another namespace", other.header.Get("Idempotency-Replayed"), "")
	s.call(t, "POST", "/v1/events", `{"type":"a"}`, "Idempotency-Key: "+fmt.Sprintf("%0300d", 1)).wantProblem(t, 400, "Idempotency-Key")
}

func TestTraceContextGoesIn(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/namespaces/other", nil).want(t, 204)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, query := range []string{"", "?namespace=other"} {
		var published struct{ IDs []int64 }
		answer := s.call(t, "POST", "/v1/events"+query, `{"type":"a"}`, "Traceparent: "+parent).want(t, 201, &published)
		equal(t, "traceparent", answer.header.Get("Traceparent"), parent)
		var event eventView
		s.call(t, "GET", fmt.Sprintf("/v1/events/%d", published.IDs[0])+query, nil).want(t, 200, &event)
		var metadata map[string]string
		if err := json.Unmarshal(event.Metadata, &metadata); err != nil {
			t.Fatal(err)
		}
		equal(t, "traceparent in metadata", metadata["traceparent"], parent)
	}
	nonsense := s.call(t, "POST", "/v1/events", `{"type":"a"}`, "Traceparent: nonsense").want(t, 201)
	equal(t, "traceparent that is none", nonsense.header.Get("Traceparent"), "")
}

func TestTooManyEventsAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	all := make([]map[string]string, maxMessages+1)
	for i := range all {
		all[i] = map[string]string{"type": "a"}
	}
	s.call(t, "POST", "/v1/events", all).wantProblem(t, 413, "10000")
	s.call(t, "POST", "/v1/events", all[:maxMessages]).want(t, 201)
}

// Events are counted while they are decoded: after one too many, the rest of the body is not read.
func TestTooManyEventsAreNotDecoded(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const event, cloud = `{"type":"a"},`, `{"specversion":"1.0","id":"1","source":"s","type":"a"},`
	s.call(t, "POST", "/v1/events", "["+strings.Repeat(event, maxMessages+1)+"this is no JSON").wantProblem(t, 413, "10000")
	s.call(t, "POST", "/v1/events", `{"events":[`+strings.Repeat(event, maxMessages+1)+`{"type":7}]}`).wantProblem(t, 413, "10000")
	s.call(t, "POST", "/v1/events", "["+strings.Repeat(cloud, maxMessages+1)+"this is no JSON", "Content-Type: application/cloudevents-batch+json").
		wantProblem(t, 413, "10000")
	s.call(t, "POST", "/v1/events", `[{"type":"a"},{"type":7}]`).wantProblem(t, 400, "event 1 cannot be decoded")
	s.call(t, "POST", "/v1/events", `{"events":{"type":"a"}}`).wantProblem(t, 400, "no JSON array")
	s.call(t, "POST", "/v1/events", `[{"type":"a"}`).wantProblem(t, 400, "cannot be decoded")
	s.call(t, "POST", "/v1/events", `[{"type":"a"}] {}`).wantProblem(t, 400, "more than one JSON document")
}
