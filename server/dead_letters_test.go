package server

import (
	"fmt"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// fail publishes n events and fails them, so that they become dead letters.
func (s *served) fail(t *testing.T, group string, n int) {
	t.Helper()
	s.call(t, "PUT", "/v1/groups/"+group, `{"start":"end"}`).want(t, 200)
	for range n {
		posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a", Payload: 1})
		lease := s.claim(t, group, `{"wait":60}`)
		s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", lease.Lease), fmt.Sprintf(
			`{"attempt":%d,"failures":[{"event":%d,"permanent":true,"error":"broken glass","reason":"glass"}]}`,
			lease.Attempt, lease.Events[0].ID)).want(t, 204)
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.fail(t, "g", 3)
	var found list[admin.DeadLetter]
	s.call(t, "GET", "/v1/dead-letters?limit=2&group=g&error=glass&failed_after=2020-01-01T00:00:00Z", nil).want(t, 200, &found)
	equal(t, "first page", len(found.Items), 2)
	s.call(t, "GET", "/v1/dead-letters?limit=2&cursor="+found.Next, nil).want(t, 200, &found)
	equal(t, "second page", len(found.Items), 1)
	equal(t, "next", found.Next, "")
	s.call(t, "GET", "/v1/dead-letters?reason=none", nil).want(t, 200, &found)
	equal(t, "those of another reason", len(found.Items), 0)

	var one admin.DeadLetter
	s.call(t, "GET", "/v1/dead-letters/1", nil).want(t, 200, &one)
	equal(t, "error", one.Error, "broken glass")
	s.call(t, "POST", "/v1/dead-letters/1/redrive", nil).want(t, 204)
	equal(t, "redriven", len(s.claim(t, "g", `{"wait":60}`).Events), 1)
	s.call(t, "GET", "/v1/dead-letters/1", nil).wantProblem(t, 404, "dead letter 1")
	s.call(t, "POST", "/v1/dead-letters/1/redrive", nil).wantProblem(t, 404, "dead letter 1")
	s.call(t, "DELETE", "/v1/dead-letters/2", nil).want(t, 204)
	s.call(t, "DELETE", "/v1/dead-letters/2", nil).wantProblem(t, 404, "dead letter 2")
	var count struct{ Count int64 }
	s.call(t, "POST", "/v1/dead-letters/purge", `{"reason":"none"}`).want(t, 200, &count)
	equal(t, "purged of another reason", count.Count, 0)
	s.call(t, "POST", "/v1/dead-letters/redrive", `{"ids":[]}`).want(t, 200, &count)
	equal(t, "redriven of no ids", count.Count, 0)
	s.call(t, "POST", "/v1/dead-letters/redrive", `{"group":"g"}`).want(t, 200, &count)
	equal(t, "redriven", count.Count, 1)
}

// A discarded dead letter is shown and can be deleted for good. It is not redriven, and the
// answer says why.
func TestDiscardedDeadLetter(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.fail(t, "g", 2)
	var reasons list[admin.DeadLetterReason]
	s.call(t, "GET", "/v1/dead-letters/reasons?group=g", nil).want(t, 200, &reasons)
	if len(reasons.Items) != 1 || reasons.Items[0].DeadLetters != 2 || reasons.Items[0].Reason != "glass" {
		t.Errorf("the reasons are %+v", reasons.Items)
	}
	s.call(t, "GET", "/v1/dead-letters/reasons?group=none", nil).wantProblem(t, 404, "none")
	s.call(t, "POST", "/v1/dead-letters/1/recover", nil).wantProblem(t, 404, "dead letter 1 is not discarded")
	s.call(t, "POST", "/v1/dead-letters/1/discard", nil).want(t, 204)
	var one admin.DeadLetter
	s.call(t, "GET", "/v1/dead-letters/1", nil).want(t, 200, &one)
	if one.DiscardedAt.IsZero() {
		t.Error("the dead letter is not discarded")
	}
	s.call(t, "POST", "/v1/dead-letters/1/discard", nil).wantProblem(t, 404, "Recover it first")
	s.call(t, "POST", "/v1/dead-letters/1/redrive", nil).wantProblem(t, 404, "dead letter 1 is discarded")
	s.call(t, "GET", "/v1/dead-letters/reasons", nil).want(t, 200, &reasons)
	equal(t, "counted", reasons.Items[0].DeadLetters, 1)
	s.call(t, "DELETE", "/v1/dead-letters/1", nil).want(t, 204)
	s.call(t, "GET", "/v1/dead-letters/1", nil).wantProblem(t, 404, "there is no dead letter 1")
	s.call(t, "POST", "/v1/dead-letters/2/redrive-edited", `{"payload":{"fixed":true}}`).want(t, 200)
	s.call(t, "POST", "/v1/dead-letters/2/redrive-edited", `{"payload":{}}`).wantProblem(t, 404, "there is no dead letter 2")
}

// A dead letter whose condition still fails stays, and the answer to a redrive says so.
func TestRedriveOfAFailingCondition(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, `select posthorn.subscribe('default', 'g', 's', '{"conditions_sql": "(e.payload->>''n'')::int > 0"}')`)
	s.exec(t, `select posthorn.publish('default', 'a', '{"n": "none"}')`)
	s.exec(t, `select posthorn.claim('default', 'g', 'w')`)
	var reasons list[admin.DeadLetterReason]
	s.call(t, "GET", "/v1/dead-letters/reasons", nil).want(t, 200, &reasons)
	if len(reasons.Items) != 1 || reasons.Items[0].Reason != "Condition failed" {
		t.Fatalf("the reasons are %+v", reasons.Items)
	}
	s.call(t, "POST", fmt.Sprintf("/v1/dead-letters/%d/redrive", reasons.Items[0].LastID), nil).wantProblem(t, 404, "stays as it is")
}

func TestDeadLetterErrors(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "POST", "/v1/dead-letters/purge", `{}`).wantProblem(t, 400, "all")
	for _, all := range []string{`{"limit":5}`, `{"after":1}`, `{"offset":1}`, `{"discarded":true}`} { // a page of all
		for _, action := range []string{"purge", "redrive", "discard", "recover"} {
			s.call(t, "POST", "/v1/dead-letters/"+action, all).wantProblem(t, 400, "all")
		}
	}
	s.call(t, "POST", "/v1/dead-letters/redrive", `{"group":"none"}`).wantProblem(t, 404, "none")
	s.call(t, "POST", "/v1/dead-letters/redrive", `{"ids":["x"]}`).wantProblem(t, 400, "ids")
	s.call(t, "GET", "/v1/dead-letters?group=none", nil).wantProblem(t, 404, "none")
	s.call(t, "GET", "/v1/dead-letters?event=x", nil).wantProblem(t, 400, "event")
	s.call(t, "GET", "/v1/dead-letters/0", nil).wantProblem(t, 400, "id")
	s.fail(t, "g", 1)
	s.call(t, "PUT", "/v1/namespaces/other", nil).want(t, 204)
	s.call(t, "GET", "/v1/dead-letters/1?namespace=other", nil).wantProblem(t, 404, "dead letter 1")
	s.call(t, "DELETE", "/v1/dead-letters/1?namespace=other", nil).wantProblem(t, 404, "dead letter 1")
	var count struct{ Count int64 }
	s.call(t, "POST", "/v1/dead-letters/purge?namespace=other", `{"all":true}`).want(t, 200, &count)
	equal(t, "purged elsewhere", count.Count, 0)
	s.call(t, "POST", "/v1/dead-letters/purge", `{"all":true}`).want(t, 200, &count)
	equal(t, "purged", count.Count, 1)
}
