package server

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// publish publishes n events, with their number as the payload.
func (s *served) publish(t testing.TB, n int) []int64 {
	t.Helper()
	messages := make([]posthorn.Message, n)
	for i := range messages {
		messages[i] = posthorn.Message{Type: "e", Payload: i}
	}
	return posthorntest.Publish(t, s.ph, messages...)
}

// A stream sends an event as the same JSON as other responses, on one line.
func TestStreamSendsEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.read(t, "")
	equal(t, "content type", r.response.Header.Get("Content-Type"), "text/event-stream")
	equal(t, "caches", r.response.Header.Get("Cache-Control"), "no-store, no-transform")
	ids := posthorntest.Publish(t, s.ph, posthorn.Message{
		Type: "order.placed", Key: "7", Tags: []string{"vip"}, Payload: json.RawMessage("{\"a\":\n\r\n 1, \"b\": \"<\\n>\"}"),
	})
	h := r.mustNext()
	equal(t, "name", h.name, "")
	e := h.event(t)
	equal(t, "id", e.ID, ids[0])
	equal(t, "payload", string(e.Payload), `{"a":1,"b":"<\n>"}`)
	var direct eventView
	s.call(t, "GET", fmt.Sprint("/v1/events/", ids[0]), nil).want(t, 200, &direct)
	equal(t, "event", e, direct)
}

func TestStreamFilters(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ids := posthorntest.Publish(t, s.ph,
		posthorn.Message{Type: "order.placed", Stream: "shop", Key: "1", Tags: []string{"eu", "vip"}},
		posthorn.Message{Type: "order.item.added", Stream: "shop", Key: "2", Tags: []string{"eu"}},
		posthorn.Message{Type: "user.gone", Stream: "people", Key: "3", Payload: map[string]any{"a": 1}},
		// Events that match all filters:
		posthorn.Message{Type: "order.placed", Stream: "people", Key: "2", Tags: []string{"eu", "vip"}, Payload: map[string]any{"a": 1, "b": 2}},
	)
	for query, want := range map[string][]int64{
		"":                        ids,
		"type=order.*":            {ids[0], ids[3]},
		"type=order.>":            {ids[0], ids[1], ids[3]},
		"type=user.gone,order.*":  {ids[0], ids[2], ids[3]},
		"stream=people":           {ids[2], ids[3]},
		"key=2,3":                 {ids[1], ids[2], ids[3]},
		"tag=eu":                  {ids[0], ids[1], ids[3]},
		"tag=eu,vip":              {ids[0], ids[3]},
		"type=order.>&key=2":      {ids[1], ids[3]},
		`payload={"a":1}`:         {ids[2], ids[3]},
		"type=order.placed&key=2": {ids[3]},
	} {
		r := s.read(t, "from=beginning&"+query)
		equal(t, query, r.ids(len(want)), want)
		r.close()
	}
}

// Events are named message, or after their types if named is given.
func TestStreamNames(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.read(t, "named=true")
	for typ, want := range map[string]string{"order.placed": "order.placed", "error": "message", "bye": "message", "message": "message"} {
		posthorntest.Publish(t, s.ph, posthorn.Message{Type: typ})
		h := r.mustNext()
		equal(t, "type", h.event(t).Type, typ)
		equal(t, "name", h.name, want)
	}
}

func TestStreamOfCloudEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const published = `{"specversion":"1.0","id":"a-1","source":"/shop","type":"order.placed","data":{"total":"<5>"}}`
	byFormat, byAccept := s.read(t, "format=cloudevents"), s.read(t, "", "Accept: application/cloudevents+json")
	s.call(t, "POST", "/v1/events", published, "Content-Type: application/cloudevents+json").want(t, 201)
	for _, r := range []*reader{byFormat, byAccept} {
		var e struct {
			ID, Source, Type string
			Data             struct{ Total string }
		}
		if err := json.Unmarshal([]byte(r.mustNext().data), &e); err != nil {
			t.Fatal(err)
		}
		if e.ID != "a-1" || e.Source != "/shop" || e.Type != "order.placed" || e.Data.Total != "<5>" {
			t.Errorf("received %+v", e)
		}
	}
}

func TestStreamStarts(t *testing.T) {
	t.Parallel()
	s := serve(t)
	early := s.publish(t, 3)
	var between time.Time
	if err := s.ph.Pool().QueryRow(t.Context(), "select posthorn.now()").Scan(&between); err != nil {
		t.Fatal(err)
	}
	late := s.publish(t, 2)
	all := slices.Concat(early, late)
	first := s.read(t, "from=beginning").mustNext().id
	at := url.QueryEscape(between.Format(time.RFC3339Nano))
	offset := between.In(time.FixedZone("", 7200)).Format(time.RFC3339Nano) // its plus sign is not percent-encoded
	for _, test := range []struct {
		query, header string
		want          []int64
	}{
		{"from=beginning", "", all},
		{"from=" + at, "", late},
		{"from=" + offset, "", late},
		{"from=" + first, "", all[1:]},
		{"last_event_id=" + first, "", all[1:]},
		{"lastEventId=" + first + "&from=now", "", all[1:]},
		{"from=beginning", first, all[1:]},
		{"last_event_id=garbage", first, all[1:]}, // the header wins
		{"from=beginning", "", all},
	} {
		var headers []string
		if test.header != "" {
			headers = []string{"Last-Event-ID: " + test.header}
		}
		equal(t, test.query, s.read(t, test.query, headers...).ids(len(test.want)), test.want)
	}
	now, byDefault := s.read(t, "from=now"), s.read(t, "")
	more := s.publish(t, 1)
	equal(t, "from now", now.ids(1), more)
	equal(t, "by default", byDefault.ids(1), more)
}

// A stream whose filter matches rarely follows the log: its heartbeats have new cursors.
func TestStreamHeartbeats(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Heartbeat: 20 * time.Millisecond})
	r := s.read(t, "type=rare")
	began := r.last
	passed := s.publish(t, 5)
	var h sentEvent
	for h.id == "" || len(afterCursor(t, s, h.id)) > 0 {
		h = r.mustNext()
		equal(t, "name", h.name, "heartbeat")
		var data struct{ Cursor string }
		if err := json.Unmarshal([]byte(h.data), &data); err != nil || data.Cursor != h.id {
			t.Errorf("data %s, %v; want the cursor %s", h.data, err, h.id)
		}
	}
	equal(t, "where it began", afterCursor(t, s, began), passed)
	rare := posthorntest.Publish(t, s.ph, posthorn.Message{Type: "rare"})
	for h.name != "" {
		h = r.mustNext()
	}
	equal(t, "received", h.event(t).ID, rare[0])
	equal(t, "resumed before", s.read(t, "type=rare", "Last-Event-ID: "+began).ids(1), rare)
	await.True(t, "a comment, when there is nothing new", func() bool {
		_, err := r.lines.Peek(1)
		if err != nil {
			t.Fatal(err)
		}
		line, err := r.lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line == ": heartbeat\n"
	})
}

// afterCursor returns the events that a reader without a filter gets after a cursor.
func afterCursor(t *testing.T, s *served, cursor string) []int64 {
	t.Helper()
	var ids []int64
	for e, err := range s.ph.Read(posthorn.ReadConfig{Cursor: cursor}).Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// An event with JSON that Go cannot decode, published before such events were refused, does
// not stop a stream.
func TestStreamOfDeepPayload(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Logger: slog.New(slog.DiscardHandler)})
	live := s.read(t, "")
	const deep = `insert into posthorn.events (namespace_id, stream_id, type, payload)
		values (1, 1, 'deep', (repeat('[', 11000) || repeat(']', 11000))::json)`
	if _, err := s.ph.Pool().Exec(t.Context(), deep); err != nil {
		t.Fatal(err)
	}
	next := s.publish(t, 1)
	for _, r := range []*reader{live, s.read(t, "from=beginning")} {
		equal(t, "payload", string(r.mustNext().event(t).Payload), "null")
		equal(t, "next", r.ids(1), next)
	}
}

// A stream is not compressed or buffered, even for a reader that accepts gzip.
func TestStreamIsNotCompressed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.read(t, "", "Accept-Encoding: gzip")
	if got := r.response.Header.Get("Content-Encoding"); got != "" {
		t.Errorf("content encoding %s", got)
	}
	for range 3 { // each event arrives before the next one is published
		ids := s.publish(t, 1)
		equal(t, "received", r.ids(1), ids)
	}
}

func TestStreamHead(t *testing.T) {
	t.Parallel()
	s := serve(t)
	head := s.call(t, "HEAD", "/v1/stream", nil).want(t, 200)
	equal(t, "content type", head.header.Get("Content-Type"), "text/event-stream")
	equal(t, "body", head.body, "")
}

// A stream that has reached its age ends with bye.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.server.openStreams.maxAge = time.Millisecond
	r := s.read(t, "")
	h := r.mustNext()
	equal(t, "name", h.name, "bye")
	equal(t, "retries", r.retries, 2)
	ids := s.publish(t, 2)
	s.server.openStreams.maxAge = time.Hour
	equal(t, "resumed", s.read(t, "", "Last-Event-ID: "+h.id).ids(2), ids)
}

// When the server stops, each reader gets bye, and can continue on another server.
func TestStreamDrains(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var readers []*reader
	for range 10 {
		readers = append(readers, s.read(t, ""))
	}
	s.server.Drain()
	ids := s.publish(t, 2)
	next := serveClient(t, s.ph, s.database)
	for _, r := range readers {
		var got []int64
		h := r.mustNext()
		for h.isEvent() {
			got = append(got, h.event(t).ID)
			h = r.mustNext()
		}
		equal(t, "last", h.name, "bye")
		equal(t, "retries", r.retries, 2)
		if _, err := r.next(); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
		equal(t, "received", append(got, next.read(t, "", "Last-Event-ID: "+r.last).ids(2-len(got))...), ids)
	}
	equal(t, "streams", s.server.openStreams.count.Load(), 0)
	gone := s.call(t, "GET", "/v1/stream", nil)
	gone.wantProblem(t, 503, "stopping")
	equal(t, "Retry-After", gone.header.Get("Retry-After"), "1")
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{MaxStreams: 2})
	s.read(t, "")
	r := s.read(t, "")
	if metrics := s.call(t, "GET", "/metrics", nil).body; !strings.Contains(metrics, "\nposthorn_http_streams 2\n") {
		t.Error(metrics)
	}
	full := s.call(t, "GET", "/v1/stream", nil)
	full.wantProblem(t, 503, "too many readers")
	equal(t, "Retry-After", full.header.Get("Retry-After"), "1")
	r.close()
	await.True(t, "its place is free", func() bool { return s.server.openStreams.count.Load() == 1 })
	s.read(t, "")
}

// Only readers with access get events of restricted streams, also when a stream is
// restricted, or a token revoked, while the stream is open.
func TestStreamChecksAccess(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Tokens: true, Heartbeat: 20 * time.Millisecond})
	s.server.openStreams.recheckAfter = 0
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	named, other := s.issue(t, "default", []scope{scopeRead}, "payroll"), s.issue(t, "default", []scope{scopeRead})
	s.call(t, "GET", "/v1/stream", nil).wantProblem(t, 401, "token")
	s.call(t, "GET", "/v1/stream", nil, s.issue(t, "default", []scope{scopePublish})).wantProblem(t, 403, "read")
	insider, outsider := s.read(t, "", named), s.read(t, "", other)
	secret := posthorntest.Publish(t, s.ph, posthorn.Message{Type: "e", Stream: "payroll"})
	public := s.publish(t, 1)
	equal(t, "with the stream", insider.ids(2), append(secret, public...))
	equal(t, "without", outsider.ids(1), public)
	s.exec(t, "update posthorn.api_tokens set revoked_at = posthorn.now()")
	s.forget()
	for _, r := range []*reader{insider, outsider} {
		h := r.mustNext()
		for h.name == "heartbeat" {
			h = r.mustNext()
		}
		equal(t, "last", h.name, "bye")
	}
	await.True(t, "nobody is left", func() bool { return s.server.openStreams.count.Load() == 0 })
}
