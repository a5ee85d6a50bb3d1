package server

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

// A heartbeat without a length extends the lease by the length of the claim, not by a
// default or by the length of the previous heartbeat.
func TestHeartbeatsKeepTheLengthOfTheClaim(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, http.MethodPost, "/events", `{"title":"t","tags":"a","payload":1}`).want(t, http.StatusCreated)
	s.call(t, http.MethodGet, "/events/subscribe?worker_id=w&tags=a&lease_seconds=3600", nil).want(t, http.StatusOK)
	s.call(t, http.MethodPost, "/events/1/start", `{"worker_id":"w"}`).want(t, http.StatusOK)
	for _, call := range []func(){
		func() { s.call(t, http.MethodPost, "/events/1/heartbeat", `{"worker_id":"w"}`).want(t, http.StatusOK) },
		func() { s.exec(t, `select posthorn.heartbeat_jobs('w', '{1}')`) },
	} {
		s.call(t, http.MethodPost, "/events/1/heartbeat", `{"worker_id":"w","lease_seconds":60}`).want(t, http.StatusOK)
		wantLength(t, s, "select lease_until - seen_at from posthorn.running_jobs", time.Minute)
		call()
		wantLength(t, s, "select lease_until - seen_at from posthorn.running_jobs", time.Hour)
	}
}

// The same holds for extending a lease on events, and for settling its first events.
func TestExtendKeepsTheLengthOfTheClaim(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, http.MethodPut, "/v1/groups/g", `{"start":"beginning"}`).want(t, http.StatusOK)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"}, posthorn.Message{Type: "b"})
	s.exec(t, `create or replace function posthorn.now() returns timestamptz language sql stable return '2030-01-01'::timestamptz`)
	lease := s.claim(t, "g", `{"max_events":10,"lease_seconds":3600}`)
	extend := func(rest string) {
		t.Helper()
		s.call(t, http.MethodPost, fmt.Sprintf("/v1/leases/%d/extend", lease.Lease), fmt.Sprintf(`{"attempt":%d%s}`, lease.Attempt, rest)).want(t, http.StatusOK)
	}
	const left = "select until - posthorn.now() from posthorn.leases"
	extend(`,"lease_seconds":60`)
	wantLength(t, s, left, time.Minute)
	extend("")
	wantLength(t, s, left, time.Hour)
	extend(`,"lease_seconds":60`)
	s.exec(t, fmt.Sprintf(`select posthorn.settle_until(%d, %d, %d)`, lease.Lease, lease.Attempt, lease.Events[0].ID))
	wantLength(t, s, left, time.Hour)
}

func wantLength(t *testing.T, s *served, query string, want time.Duration) {
	t.Helper()
	var got time.Duration
	if err := s.ph.Pool().QueryRow(t.Context(), query).Scan(&got); err != nil {
		t.Fatal(err)
	}
	equal(t, "length of the lease", got, want)
}
