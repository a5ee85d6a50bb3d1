package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// waiting waits until n requests wait.
func (s *served) waiting(t *testing.T, n int) {
	t.Helper()
	await.True(t, fmt.Sprint(n, " requests wait"), func() bool { return s.server.groupWaits.Load() == int64(n) })
}

func TestLongPollReturnsNewEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", nil).want(t, 200)
	for how, publish := range map[string]func(){
		"over HTTP": func() { s.call(t, "POST", "/v1/events", `{"type":"a"}`).want(t, 201) },
		"in Go":     func() { posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"}) },
		"in SQL": func() {
			if _, err := s.ph.Pool().Exec(t.Context(), "select posthorn.publish('default', 'a')"); err != nil {
				t.Error(err)
			}
		},
	} {
		got := make(chan claimed, 1)
		go func() { got <- s.claim(t, "g", `{"wait":60}`) }()
		s.waiting(t, 1)
		publish()
		if lease := await.Value(t, "the lease", got); len(lease.Events) != 1 {
			t.Errorf("%s: %d events", how, len(lease.Events))
		}
	}
}

func TestLongPollWithoutEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", nil).want(t, 200)
	equal(t, "events", len(s.claim(t, "g", `{"wait":0.05}`).Events), 0)
	s.call(t, "POST", "/v1/groups/g/claim", `{"wait":61}`).wantProblem(t, 400, "wait")
	s.call(t, "POST", "/v1/groups/g/claim", `{"max_events":1001}`).wantProblem(t, 400, "max_events")
	s.call(t, "POST", "/v1/groups/none/claim", `{"wait":60}`).wantProblem(t, 404, "none")
}

// Each event goes to one of many requests that wait.
func TestManyWait(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", nil).want(t, 200)
	const n = 50
	var mu sync.Mutex
	seen := map[int64]int{}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			lease := s.claim(t, "g", `{"wait":60,"max_events":1}`)
			mu.Lock()
			defer mu.Unlock()
			for _, e := range lease.Events {
				seen[e.ID]++
			}
		})
	}
	s.waiting(t, n)
	if held := s.ph.Pool().Stat().AcquiredConns(); held > 1 {
		t.Errorf("%d connections are held while %d wait", held, n)
	}
	messages := make([]posthorn.Message, n)
	for i := range messages {
		messages[i].Type = "a"
	}
	posthorntest.Publish(t, s.ph, messages...)
	all.Wait()
	equal(t, "events", len(seen), n)
	s.waiting(t, 0)
}

func TestDrainEndsLongPolls(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", nil).want(t, 200)
	got := make(chan claimed, 1)
	go func() { got <- s.claim(t, "g", `{"wait":60}`) }()
	s.waiting(t, 1)
	s.server.Drain()
	equal(t, "events", len(await.Value(t, "the answer", got).Events), 0)
	s.call(t, "POST", "/v1/groups/g/claim", `{"wait":60}`).wantProblem(t, 503, "stopping")
	s.call(t, "POST", "/v1/groups/g/claim", nil).want(t, 200)
}

func TestTooManyWait(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{MaxWaits: 1})
	s.call(t, "PUT", "/v1/groups/g", nil).want(t, 200)
	ended := make(chan struct{})
	go func() { defer close(ended); s.claim(t, "g", `{"wait":60}`) }()
	s.waiting(t, 1)
	refused := s.call(t, "POST", "/v1/groups/g/claim", `{"wait":60}`)
	refused.wantProblem(t, 503, "wait")
	equal(t, "Retry-After", refused.header.Get("Retry-After"), "1")
	s.server.Drain()
	await.Closed(t, "the request has ended", ended)
}

func TestWaitEndsWithTheClient(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", nil).want(t, 200)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/groups/g/claim", strings.NewReader(`{"wait":60}`))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if response, err := s.client.Do(r); err == nil {
			response.Body.Close()
		}
	}()
	s.waiting(t, 1)
	cancel()
	await.Closed(t, "the request has ended", ended)
	s.waiting(t, 0)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"})
	equal(t, "events for others", len(s.claim(t, "g", `{"wait":60}`).Events), 1)
}

// In a group ordered by key, settling wakes a request that waits for the same key.
func TestSettlingWakesTheNextRequest(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", `{"order":"key","start":"beginning"}`).want(t, 200)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a", Key: "k"}, posthorn.Message{Type: "b", Key: "k"})
	first := s.claim(t, "g", `{"max_events":1,"wait":60}`)
	got := make(chan claimed, 1)
	go func() { got <- s.claim(t, "g", `{"wait":60}`) }()
	s.waiting(t, 1)
	s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", first.Lease), fmt.Sprintf(`{"attempt":%d}`, first.Attempt)).want(t, 204)
	second := await.Value(t, "the second event", got)
	equal(t, "events", len(second.Events), 1)
	equal(t, "type", second.Events[0].Type, "b")
}
