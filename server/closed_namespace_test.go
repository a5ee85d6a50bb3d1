package server

import "testing"

// A closed namespace answers 409, with the place where it goes on. Only an admin may close it.
func TestClosedNamespaceOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/namespaces/shop", nil).want(t, 204)
	s.call(t, "PUT", "/v1/groups/g?namespace=shop", nil).want(t, 200)
	s.call(t, "POST", "/v1/namespaces/shop/close", `{"moved_to":"db2","wait_seconds":20}`).want(t, 204)
	for path, body := range map[string]any{
		"/v1/events?namespace=shop":         `{"type":"a"}`,
		"/v1/jobs?namespace=shop":           `{"title":"a","tags":"t"}`,
		"/v1/groups/g/claim?namespace=shop": `{"wait":60}`, // it is told at once

		"/v1/jobs/claim?namespace=shop&worker_id=w&tags=t": nil,
	} {
		p := s.call(t, "POST", path, body).wantProblem(t, 409, "namespace 'shop' is closed: it has moved to db2")
		equal(t, "answer of "+path, p.Type+" "+p.Moved, "/problems/moved db2")
	}
	s.call(t, "GET", "/v1/events?namespace=shop", nil).want(t, 200)
	s.call(t, "POST", "/v1/namespaces/default/close", nil).wantProblem(t, 403, "default cannot be closed")
	s.call(t, "POST", "/v1/namespaces/shop/open", nil).want(t, 204)
	s.call(t, "POST", "/v1/events?namespace=shop", `{"type":"a"}`).want(t, 201)
}
