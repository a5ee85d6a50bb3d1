package server

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// Hundreds of open streams use as many connections as one: one for notifications, and those
// of the client, two of which read for streams that catch up.
func TestStreamsShareOneRead(t *testing.T) {
	t.Parallel()
	s := serve(t)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	const streams = 200
	first := s.publish(t, 1)
	cursor := s.read(t, "from=beginning").mustNext().id
	s.publish(t, 3)

	readers := make([]*reader, streams)
	var opening sync.WaitGroup
	for part := range 20 {
		opening.Go(func() {
			for i := part; i < streams; i += 20 {
				query := "type=e"
				switch i % 10 {
				case 1, 3, 5, 7, 9:
					query = fmt.Sprint("key=", i)
				case 2:
					query = "from=" + cursor + "&type=e"
				}
				var err error
				if readers[i], err = openReader(t, client, s.url, query); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	opening.Wait()
	if t.Failed() {
		return
	}
	messages := []posthorn.Message{{Type: "e"}}
	for i := range streams {
		messages = append(messages, posthorn.Message{Type: "other", Key: fmt.Sprint(i)})
	}
	ids := posthorntest.Publish(t, s.ph, messages...)
	for i, r := range readers {
		want := ids[:1]
		switch i % 10 {
		case 1, 3, 5, 7, 9:
			want = ids[i+1 : i+2]
		case 2:
			want = []int64{first[0] + 1, first[0] + 2, first[0] + 3, ids[0]}
		}
		equal(t, r.response.Request.URL.RawQuery, r.ids(len(want)), want)
	}
	if now := s.connections(t); now > 7 {
		t.Errorf("%d connections for %d streams", now, streams)
	}
	for _, r := range readers {
		r.close()
	}
	await.True(t, "all are closed", func() bool { return s.server.openStreams.count.Load() == 1 })
}

// connections returns the number of connections to the database.
func (s *served) connections(t *testing.T) (n int) {
	t.Helper()
	const sql = "select count(*)::int from pg_stat_activity where datname = current_database()"
	if err := s.ph.Pool().QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Streams of other namespaces share one read for each namespace, which ends some time after
// the last stream.
func TestStreamsOfNamespaces(t *testing.T) {
	t.Parallel()
	s := serve(t)
	open := func(n int) *reader {
		t.Helper()
		name := fmt.Sprint("tenant", n)
		s.call(t, "PUT", "/v1/namespaces/"+name, map[string]any{}).want(t, 204)
		return s.read(t, "namespace="+name)
	}
	s.server.openStreams.max = 3
	one, two, same := open(1), open(2), s.read(t, "namespace=tenant1")
	s.publish(t, 1)
	s.call(t, "POST", "/v1/events?namespace=tenant1", map[string]any{"type": "mine"}).want(t, 201)
	s.call(t, "POST", "/v1/events?namespace=tenant2", map[string]any{"type": "yours"}).want(t, 201)
	for r, want := range map[*reader]string{one: "mine", same: "mine", two: "yours"} {
		equal(t, "received", r.mustNext().event(t).Type, want)
	}
	s.call(t, "GET", "/v1/stream?namespace=nobody", nil).wantProblem(t, 404, "nobody")

	open(3)
	s.call(t, "PUT", "/v1/namespaces/onemore", map[string]any{}).want(t, 204)
	s.call(t, "GET", "/v1/stream?namespace=onemore", nil).wantProblem(t, 503, "namespaces")
	two.close()
	await.True(t, "one of them has no stream", func() bool { return s.server.openStreams.count.Load() == 3 })
	s.read(t, "namespace=onemore") // uses the place that is free now
	if now := s.connections(t); now > 10+3*6 {
		t.Errorf("%d connections for 3 namespaces", now)
	}
}
