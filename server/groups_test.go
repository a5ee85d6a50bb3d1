package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/posthorntest"
)

func (s *served) claim(t testing.TB, group, body string, headers ...string) claimed {
	t.Helper()
	var got claimed
	s.call(t, "POST", "/v1/groups/"+group+"/claim", body, headers...).want(t, 200, &got)
	return got
}

// To define a group takes the scope consume. The answer has its policy, and not the
// subscriptions, which take the scope read.
func TestDefinedGroupHasNoSubscriptions(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, `select posthorn.define_group('default', 'g'), posthorn.subscribe('default', 'g', 'large', '{"type": "order.secret"}')`)
	consumer := s.issue(t, "default", []scope{scopeConsume})
	a := s.call(t, "PUT", "/v1/groups/g", nil, consumer)
	a.want(t, 200)
	if strings.Contains(a.body, "large") || strings.Contains(a.body, "order.secret") {
		t.Errorf("the answer to a token without the scope read has subscriptions: %s", a.body)
	}
	s.call(t, "GET", "/v1/groups/g", nil, consumer).wantProblem(t, 403, "the token lacks the scope read")
}

func TestGroups(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var group op.GroupView
	s.call(t, "PUT", "/v1/groups/billing", `{"order":"key","slots":4,"attempts":3,"delays":["10 seconds","1 minute"],"start":"beginning"}`).want(t, 200, &group)
	equal(t, "policy", fmt.Sprint(group.Order, group.Policy.Slots, group.Policy.Attempts, group.Policy.Delays), "key4 3 [00:00:10 00:01:00]")
	s.call(t, "PUT", "/v1/groups/billing", `{"attempts":5,"delays":["00:00:10"]}`).want(t, 200, &group)
	equal(t, "changed policy", fmt.Sprint(group.Order, group.Policy.Attempts), "key5")
	s.call(t, "PUT", "/v1/groups/plain", nil).want(t, 200)
	var all list[admin.GroupStatus]
	s.call(t, "GET", "/v1/groups", nil).want(t, 200, &all)
	equal(t, "groups", len(all.Items), 2)

	s.call(t, "POST", "/v1/groups/billing/pause", nil).want(t, 204)
	s.call(t, "GET", "/v1/groups/billing", nil).want(t, 200, &group)
	equal(t, "paused", group.Paused, true)
	s.call(t, "POST", "/v1/groups/billing/resume", nil).want(t, 204)
	s.call(t, "DELETE", "/v1/groups/billing", nil).want(t, 200)
	s.call(t, "GET", "/v1/groups/billing", nil).wantProblem(t, 404, "billing")

	for _, verb := range []string{"pause", "resume"} {
		s.call(t, "POST", "/v1/groups/none/"+verb, nil).wantProblem(t, 404, "none")
	}
	s.call(t, "DELETE", "/v1/groups/none", nil).wantProblem(t, 404, "none")
	s.call(t, "POST", "/v1/groups/none/claim", nil).wantProblem(t, 404, "none")
	s.call(t, "POST", "/v1/groups/plain/seek", `{"to":"soon"}`).wantProblem(t, 400, "soon")
	s.call(t, "POST", "/v1/groups/none/seek", `{"to":"end"}`).wantProblem(t, 404, "none")
	for _, body := range []string{`{"slots":-1}`, `{"order":"odd"}`, `{"delays":["soon"]}`, `{"colour":1}`, `[]`, `{"start":"x"}`} {
		s.call(t, "PUT", "/v1/groups/other", body).wantProblem(t, 400, "")
	}
}

func TestClaimAndSettle(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", `{"start":"beginning","attempts":2,"delays":["0 seconds"]}`).want(t, 200)
	equal(t, "events before any", len(s.claim(t, "g", "").Events), 0)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"}, posthorn.Message{Type: "b"}, posthorn.Message{Type: "c"})

	first := s.claim(t, "g", `{"max_events":10,"lease_seconds":60,"node":"me"}`)
	equal(t, "events", len(first.Events), 3)
	lease := fmt.Sprintf("/v1/leases/%d/", first.Lease)
	var extended struct{ ExpiresAt string }
	s.call(t, "POST", lease+"extend", fmt.Sprintf(`{"attempt":%d,"lease_seconds":120}`, first.Attempt)).want(t, 200, &extended)
	s.call(t, "POST", lease+"settle", fmt.Sprintf(
		`{"attempt":%d,"failures":[{"event":2,"error":"no","retry_in_seconds":0}],"released":[3]}`, first.Attempt)).want(t, 204)
	deliveries := map[int64]int{}
	for len(deliveries) < 2 {
		again := s.claim(t, "g", `{"wait":60}`)
		for _, e := range again.Events {
			deliveries[e.ID] = e.Delivery
		}
		s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", again.Lease),
			fmt.Sprintf(`{"attempt":%d,"failures":[{"event":%d,"permanent":true,"reason":"broken"}]}`, again.Attempt, again.Events[0].ID)).want(t, 204)
	}
	equal(t, "deliveries", deliveries, map[int64]int{2: 2, 3: 1})

	late := s.call(t, "POST", lease+"settle", fmt.Sprintf(`{"attempt":%d}`, first.Attempt))
	equal(t, "type", late.wantProblem(t, 409, "lease").Type, "/problems/lease-lost")
	s.call(t, "POST", lease+"extend", fmt.Sprintf(`{"attempt":%d}`, first.Attempt)).wantProblem(t, 409, "lease")
	s.call(t, "POST", lease+"release", fmt.Sprintf(`{"attempt":%d}`, first.Attempt)).wantProblem(t, 409, "lease")
	s.call(t, "POST", "/v1/leases/x/settle", `{"attempt":1}`).wantProblem(t, 400, "lease")
	s.call(t, "POST", lease+"settle", `{}`).wantProblem(t, 400, "attempt")
	s.call(t, "POST", lease+"settle", nil).wantProblem(t, 400, "body")
}

func TestReleasedEventsAreHandedOutAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", `{"start":"beginning"}`).want(t, 200)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"})
	first := s.claim(t, "g", "")
	s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/release", first.Lease), fmt.Sprintf(`{"attempt":%d}`, first.Attempt)).want(t, 204)
	again := s.claim(t, "g", "")
	equal(t, "deliveries", again.Events[0].Delivery, 1)
}

// A lease of another namespace is refused in the same way as one that never existed.
func TestLeasesOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/namespaces/other", nil).want(t, 204)
	s.call(t, "PUT", "/v1/groups/g", `{"start":"beginning"}`).want(t, 200)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"})
	mine := s.claim(t, "g", "")
	attempt := fmt.Sprintf(`{"attempt":%d}`, mine.Attempt)
	for _, verb := range []string{"settle", "extend", "release"} {
		theirs := s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/%s?namespace=other", mine.Lease, verb), attempt).wantProblem(t, 409, "lease")
		never := s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/%s?namespace=other", mine.Lease+1000, verb), attempt).wantProblem(t, 409, "lease")
		equal(t, "hint", theirs.Hint, never.Hint)
	}
	s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", mine.Lease), attempt).want(t, 204)
}

func TestClaimAsCloudEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", `{"start":"beginning"}`).want(t, 200)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a", Payload: 1})
	answer := s.call(t, "POST", "/v1/groups/g/claim", nil, "Accept: application/cloudevents-batch+json")
	var events []map[string]any
	answer.want(t, 200, &events)
	equal(t, "type", events[0]["type"], any("a"))
	equal(t, "delivery", events[0]["posthorndelivery"], any(1.0))
	s.call(t, "POST", "/v1/leases/"+answer.header.Get("Posthorn-Lease")+"/settle", `{"attempt":`+answer.header.Get("Posthorn-Attempt")+`}`).want(t, 204)
}

func TestSeek(t *testing.T) {
	t.Parallel()
	s := serve(t)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"})
	s.call(t, "PUT", "/v1/groups/g", nil).want(t, 200)
	equal(t, "events from the end on", len(s.claim(t, "g", "").Events), 0)
	s.call(t, "POST", "/v1/groups/g/seek", `{"to":"beginning"}`).want(t, 204)
	equal(t, "events from the beginning on", len(s.claim(t, "g", "").Events), 1)
	s.call(t, "POST", "/v1/groups/g/seek", `{"to":"2020-01-31T12:00:00Z"}`).want(t, 204)
	equal(t, "events from a time on", len(s.claim(t, "g", "").Events), 1)
	s.call(t, "POST", "/v1/groups/g/seek", `{"to":"end"}`).want(t, 204)
	equal(t, "events from the end on", len(s.claim(t, "g", "").Events), 0)
}
