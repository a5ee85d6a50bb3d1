package server

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/keeper"
)

const marker = "plaintext-marker-7f3a9"

// serveSealed runs two servers on a database with confidential streams: with the keeper and
// without it.
func serveSealed(t *testing.T) (with, without *served) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seal.key")
	if err := keeper.NewKeyFile(path); err != nil {
		t.Fatal(err)
	}
	key, err := keeper.Open(t.Context(), "file://"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = key.Close() })
	database := posthorntest.Database(t)
	config := posthorn.Config{DatabaseURL: database, Seal: posthorn.SealConfig{Keepers: seal.Keepers{"": key}}}
	with = serveClient(t, posthorntest.Open(t, config), database, Options{Tokens: true})
	without = serveClient(t, posthorntest.Open(t, posthorn.Config{DatabaseURL: database}), database, Options{Tokens: true})
	with.exec(t, "select posthorn.define_namespace('other')")
	with.exec(t, "select posthorn.set_stream_policy('default', 'patients', 'confidential')")
	with.exec(t, "select posthorn.set_stream_policy('other', 'patients', 'confidential')")
	return with, without
}

// Seed 003.29, 003.30: the server seals payloads for a confidential stream, in each form of
// publishing, and opens them for tokens that name the stream.
func TestConfidentialStreamsOverHTTP(t *testing.T) {
	t.Parallel()
	s, _ := serveSealed(t)
	named, others := s.issue(t, "default", allScopes, "patients"), s.issue(t, "default", allScopes)
	elsewhere := s.issue(t, "other", allScopes, "patients")
	const one = `{"type":"diagnosed","stream":"patients","payload":{"of":"` + marker + `"}}`
	reader := s.read(t, "", named)
	s.call(t, "POST", "/v1/events", one, others).wantProblem(t, 403, "patients")
	for _, body := range []string{one, `[` + one + `,{"type":"open"}]`, `{"events":[` + one + `]}`} {
		s.call(t, "POST", "/v1/events", body, named).want(t, 201)
	}
	s.call(t, "POST", "/v1/events", one, named, "Idempotency-Key: k").want(t, 201)
	if again := s.call(t, "POST", "/v1/events", one, named, "Idempotency-Key: k").want(t, 201); again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("again: %v", again)
	}
	s.call(t, "POST", "/v1/events", `{"specversion":"1.0","id":"1","source":"/s","type":"diagnosed","posthornstream":"patients","data":{"of":"`+marker+`"}}`,
		named, "Content-Type: application/cloudevents+json").want(t, 201)
	s.call(t, "POST", "/v1/events", `{"of":"`+marker+`"}`, named,
		"Ce-Specversion: 1.0", "Ce-Id: 2", "Ce-Source: /s", "Ce-Type: diagnosed", "Ce-Posthornstream: patients").want(t, 201)
	s.call(t, "POST", "/v1/events", one, elsewhere).want(t, 201)
	if n := s.number(t, "select count(*) from posthorn.events where payload::text like '%marker%' or posthorn.sealed_with(payload) is null"); n != 1 {
		t.Errorf("%d events are not sealed", n)
	}

	var found list[eventView]
	s.call(t, "GET", "/v1/events?stream=patients", nil, named).want(t, 200, &found)
	equal(t, "found", len(found.Items), 6)
	for _, e := range found.Items {
		if !strings.Contains(string(e.Payload), marker) || e.Sealed {
			t.Errorf("found %s", e.Payload)
		}
	}
	s.call(t, "GET", "/v1/events", nil, others).want(t, 200, &found)
	equal(t, "found without the right", len(found.Items), 1)
	s.call(t, "GET", "/v1/events", nil, elsewhere).want(t, 200, &found)
	equal(t, "in the other namespace", string(found.Items[0].Payload), `{"of":"`+marker+`"}`)
	id := s.number(t, "select min(id) from posthorn.events where namespace_id = 1")
	var e eventView
	s.call(t, "GET", "/v1/events/"+text(id), nil, named).want(t, 200, &e)
	equal(t, "one", string(e.Payload), `{"of":"`+marker+`"}`)
	if cloud := s.call(t, "GET", "/v1/events/"+text(id), nil, named, "Accept: application/cloudevents+json").want(t, 200); !strings.Contains(cloud.body, marker) {
		t.Errorf("as a CloudEvent: %s", cloud.body)
	}
	for range 7 {
		if h := reader.mustNext(); h.name != "heartbeat" && !strings.Contains(h.data, marker) && !strings.Contains(h.data, `"open"`) {
			t.Errorf("received %s", h.data)
		}
	}
	s.exec(t, `select posthorn.define_group('default', 'ward', '{"start": "beginning"}')`)
	var lease claimed
	s.call(t, "POST", "/v1/groups/ward/claim", nil, named).want(t, 200, &lease)
	equal(t, "claimed", string(lease.Events[0].Payload), `{"of":"`+marker+`"}`)
	s.exec(t, "select posthorn.settle($1, $2, $3)", lease.Lease, lease.Attempt, `[{"event": `+text(id)+`, "permanent": true}]`)
	var letters list[map[string]any]
	s.call(t, "GET", "/v1/dead-letters", nil, named).want(t, 200, &letters)
	equal(t, "dead letter", letters.Items[0]["payload"], any(map[string]any{"of": marker}))
}

// A server without the keeper refuses events that it cannot seal, and does not hand out
// events that it cannot open.
func TestServerWithoutKeeper(t *testing.T) {
	t.Parallel()
	s, without := serveSealed(t)
	named := s.issue(t, "default", allScopes, "patients")
	const one = `{"type":"diagnosed","stream":"patients","payload":{"of":"` + marker + `"}}`
	if p := without.call(t, "POST", "/v1/events", one, named).wantProblem(t, 403, "confidential"); !strings.Contains(p.Hint, "--seal-key") {
		t.Errorf("the hint is %q", p.Hint)
	}
	s.call(t, "POST", "/v1/events", one, named).want(t, 201)
	var found list[eventView]
	without.call(t, "GET", "/v1/events", nil, named).want(t, 200, &found)
	if e := found.Items[0]; !e.Sealed || string(e.Payload) != "null" {
		t.Errorf("found %s", e.Payload)
	}
	if got := without.call(t, "GET", "/v1/events", nil, named, "Accept: application/cloudevents-batch+json").want(t, 200); !strings.Contains(got.body, `"posthornsealed":true`) {
		t.Errorf("as CloudEvents: %s", got.body)
	}
	s.exec(t, `select posthorn.define_group('default', 'ward', '{"start": "beginning"}')`)
	without.call(t, "POST", "/v1/groups/ward/claim", nil, named).wantProblem(t, 503, "confidential")
	var lease claimed
	s.call(t, "POST", "/v1/groups/ward/claim", nil, named).want(t, 200, &lease) // the lease was released
	if e := lease.Events[0]; e.Delivery != 1 || !strings.Contains(string(e.Payload), marker) {
		t.Errorf("claimed %s, delivery %d", e.Payload, e.Delivery)
	}
	s.exec(t, "select posthorn.settle($1, $2, $3)", lease.Lease, lease.Attempt, `[{"event": `+text(lease.Events[0].ID)+`, "retry_in": "1 hour"}]`)

	// When the key is destroyed, events are marked as sealed, and their payload is null.
	s.exec(t, "select posthorn.shred_stream_keys('default', 'patients')")
	s.call(t, "POST", "/v1/events", one, named).want(t, 201) // with a new key; the old one is not cached any more
	s.exec(t, "select posthorn.seek('default', 'ward', '-infinity')")
	s.call(t, "POST", "/v1/groups/ward/claim", nil, named).want(t, 200, &lease)
	if e := lease.Events[0]; !e.Sealed || string(e.Payload) != "null" {
		t.Errorf("claimed %s", e.Payload)
	}
	if e := lease.Events[1]; e.Sealed || !strings.Contains(string(e.Payload), marker) {
		t.Errorf("claimed %s", e.Payload)
	}
}

// A sealed event for which a job waits is opened by a server with the keeper. Without the keeper the worker
// asks again later; when the key is destroyed, the event comes as sealed.
func TestAwaitedEventIsOpened(t *testing.T) {
	t.Parallel()
	s, without := serveSealed(t)
	named := s.issue(t, "default", allScopes, "patients")
	s.call(t, "POST", "/events", `{"title":"treat","tags":"x"}`, named).want(t, 201)
	s.call(t, "POST", "/v1/events", `{"type":"diagnosed","key":"7","stream":"patients","payload":"`+marker+`"}`, named).want(t, 201)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1", nil, named).want(t, 200)
	const await = `{"worker_id":"w:1","name":"diagnosis","type":"diagnosed","key":"7","timeout":"1h"}`
	without.call(t, "POST", "/events/1/await", await, named).wantProblem(t, 503, "confidential")
	var got awaitedView
	s.call(t, "POST", "/events/1/await", await, named).want(t, 200, &got)
	if got.Event == nil || got.Event.Sealed || string(got.Event.Payload) != `"`+marker+`"` {
		t.Errorf("it got %+v", got.Event)
	}
	if steps := s.call(t, "GET", "/events/1/steps", nil, named).want(t, 200); strings.Contains(steps.body, "posthorn_sealed") {
		t.Errorf("steps: %s", steps.body)
	}

	s.exec(t, "select posthorn.shred_stream_keys('default', 'patients')")
	s.call(t, "POST", "/v1/events", `{"type":"diagnosed","stream":"patients"}`, named).want(t, 201) // the old key is not cached any more
	got = awaitedView{}
	s.call(t, "POST", "/events/1/await", await, named).want(t, 200, &got)
	if got.Event == nil || !got.Event.Sealed || string(got.Event.Payload) != "null" {
		t.Errorf("without its key it got %+v", got.Event)
	}
}

func text(id int64) string {
	raw, _ := json.Marshal(id)
	return string(raw)
}

func (s *served) number(t testing.TB, sql string) (n int64) {
	t.Helper()
	if err := s.ph.Pool().QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
