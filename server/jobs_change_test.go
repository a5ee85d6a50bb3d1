package server

import (
	"testing"
	"time"
)

func TestSnoozeJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	s.take(t, "x", "w:1")
	var snoozed struct {
		Action      string
		NextRetryAt time.Time `json:"next_retry_at"`
	}
	s.call(t, "POST", "/events/1/snooze", map[string]any{"worker_id": "w:1", "attempt": 1, "snooze_for": "1h", "reason": "later"}).want(t, 200, &snoozed)
	equal(t, "action", snoozed.Action, "SNOOZED")
	if d := time.Until(snoozed.NextRetryAt); d < 50*time.Minute {
		t.Errorf("the job is due again in %v", d)
	}
	equal(t, "status", s.job(t, 1).Status, "PENDING")
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:2", nil).want(t, 204)
	for _, bad := range []map[string]any{
		{"worker_id": "w:1"}, {"worker_id": "w:1", "snooze_for": "soon"}, {"worker_id": "w:1", "snooze_for": "-1h"}, {"snooze_for": "1h"},
	} {
		s.call(t, "POST", "/events/1/snooze", bad).want(t, 400)
	}
	s.call(t, "POST", "/events/1/snooze", map[string]any{"worker_id": "w:2", "snooze_for": "1h"}).want(t, 409)
}

func TestChangeAndDeleteJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"first","tags":"x"}`)
	s.enqueue(t, `{"title":"second","tags":"x"}`)
	s.enqueue(t, `{"title":"third","tags":"x"}`)
	var changed jobView
	s.call(t, "PATCH", "/events/2", map[string]any{"priority": 5, "payload": map[string]int{"n": 2}}).want(t, 200, &changed)
	equal(t, "priority", changed.Priority, 5)
	equal(t, "payload", string(changed.Payload), `{"n":2}`)
	s.call(t, "DELETE", "/events/1", nil).want(t, 204)
	s.call(t, "GET", "/events/1", nil).want(t, 404)
	equal(t, "taken", s.take(t, "x", "w:1").Title, "second")
	s.call(t, "PATCH", "/events/2", map[string]any{"priority": 1}).want(t, 409)
	s.call(t, "DELETE", "/events/2", nil).want(t, 409)
	s.call(t, "DELETE", "/events/1", nil).want(t, 404)
	s.call(t, "PATCH", "/events/3", map[string]any{}).want(t, 400)
	s.call(t, "PATCH", "/events/3", map[string]any{"run_at": "soon"}).want(t, 400)
}
