package server

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

func (s *served) search(t *testing.T, query string) (ids []int64, next string) {
	t.Helper()
	var found list[eventView]
	s.call(t, "GET", "/v1/events?"+query, nil).want(t, 200, &found)
	ids = []int64{}
	for _, e := range found.Items {
		ids = append(ids, e.ID)
	}
	return ids, found.Next
}

func TestSearch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	posthorntest.Publish(
		t, s.ph,
		posthorn.Message{Type: "order.placed", Stream: "orders", Key: "1", Tags: []string{"a", "b"}, Payload: map[string]any{"a": 1, "b": map[string]any{"c": true}}},
		posthorn.Message{Type: "order.paid", Key: "1", Tags: []string{"a"}},
		posthorn.Message{Type: "user.created", Key: "2", Payload: map[string]any{"a": 2}},
	)
	for query, want := range map[string][]int64{
		"":                             {3, 2, 1},
		"order=oldest":                 {1, 2, 3},
		"type=order.*":                 {2, 1},
		"type=order.paid,user.>":       {3, 2},
		"stream=orders":                {1},
		"stream=ord*":                  nil, // not a pattern
		"stream=none":                  {},
		"key=1":                        {2, 1},
		"tag=a":                        {2, 1},
		"tag=a,b":                      {1},
		`payload={"a":1}`:              {1},
		`payload={"b":{"c":true}}`:     {1},
		"from=2020-01-01T00:00:00Z":    {3, 2, 1},
		"before=2020-01-01T00:00:00Z":  {},
		"type=order.*&key=1&tag=b":     {1},
		`type=order.*&payload={"a":2}`: {},
		"from=2999-01-01T00:00:00Z":    {},
		"namespace=default&limit=1":    {3},
	} {
		if want == nil {
			s.call(t, "GET", "/v1/events?"+query, nil).wantProblem(t, 400, "")
			continue
		}
		query = escape(query)
		ids, _ := s.search(t, query)
		equal(t, query, ids, want)
	}
	for query, mention := range map[string]string{
		"payload=%7B": "JSON", "order=up": "order", "limit=0": "limit", "limit=1001": "limit", "cursor=x": "cursor",
		"typ=a": "typ", "from=yesterday": "from", "type=order*": "order*", "limit=1e3": "limit", "key=%01": "key",
	} {
		s.call(t, "GET", "/v1/events?"+query, nil).wantProblem(t, 400, mention)
	}
}

func escape(query string) string {
	values, _ := url.ParseQuery(query)
	return values.Encode()
}

func TestSearchPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for range 7 {
		posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"})
	}
	for _, order := range []string{"newest", "oldest"} {
		var all []int64
		query := "limit=3&order=" + order
		for cursor := ""; ; {
			ids, next := s.search(t, query+cursor)
			all = append(all, ids...)
			if next == "" {
				break
			}
			cursor = "&cursor=" + next
		}
		equal(t, order, len(all), 7)
		if sorted := all[0] < all[6]; sorted != (order == "oldest") {
			t.Errorf("%s: %v", order, all)
		}
	}
	_, next := s.search(t, "limit=3&order=newest")
	s.call(t, "GET", "/v1/events?order=oldest&cursor="+next, nil).wantProblem(t, 400, "cursor")
}

// A search for a rare event looks at a limited number of events, and returns a cursor.
func TestSearchContinuesAfterItsLimit(t *testing.T) {
	t.Parallel()
	s := serve(t)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "rare"})
	_, err := s.ph.Pool().Exec(t.Context(),
		"insert into posthorn.events (namespace_id, stream_id, type, payload) select 1, 1, 'common', '{}' from generate_series(1, $1::int)", maxScanned)
	if err != nil {
		t.Fatal(err)
	}
	ids, next := s.search(t, "type=rare&limit=1")
	equal(t, "found", ids, []int64{1})
	ids, next = s.search(t, "type=rare&limit=1&cursor="+next)
	equal(t, "found after it", len(ids), 0)
	equal(t, "next at the end", next, "")
	ids, next = s.search(t, "type=rare&order=oldest")
	equal(t, "found from the oldest on", ids, []int64{1})
	if next == "" {
		t.Error("there is no next, though not all was looked at")
	}
}

// Payloads that jsonb cannot hold do not make searches fail.
func TestSearchAcceptsAnyPayload(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "POST", "/v1/events", `[{"type":"a","payload":{"a":1e999999}},{"type":"a","payload":"\ud800"},{"type":"a","payload":{"a":1}}]`).want(t, 201)
	ids, _ := s.search(t, escape(`payload={"a":1}`))
	equal(t, "found", ids, []int64{3})
}

func TestSearchWithinATime(t *testing.T) {
	t.Parallel()
	s := serve(t)
	_, err := s.ph.Pool().Exec(t.Context(), `
		insert into posthorn.events (namespace_id, stream_id, type, payload, created_at)
		select 1, 1, 'a', '{}', now() - i * interval '1 hour' from generate_series(10, 1, -1) i`)
	if err != nil {
		t.Fatal(err)
	}
	at := func(hours float64) string {
		return url.QueryEscape(time.Now().Add(-time.Duration(hours * float64(time.Hour))).Format(time.RFC3339Nano))
	}
	ids, _ := s.search(t, fmt.Sprintf("from=%s&before=%s&order=oldest", at(5.5), at(2.5)))
	equal(t, "found", ids, []int64{6, 7, 8})
}
