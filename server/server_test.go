package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/admin"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "GET", "/healthz", nil).want(t, 200)
	s.call(t, "GET", "/readyz", nil).want(t, 200)
	s.server.Drain()
	s.call(t, "GET", "/healthz", nil).want(t, 200)
	stopping := s.call(t, "GET", "/readyz", nil)
	stopping.wantProblem(t, 503, "stopping")
	equal(t, "Retry-After", stopping.header.Get("Retry-After"), "1")
}

func TestReadyNeedsTheDatabase(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.ph.Close()
	s.call(t, "GET", "/healthz", nil).want(t, 200)
	s.call(t, "GET", "/readyz", nil).wantProblem(t, 503, "database")
	s.call(t, "GET", "/v1/events/1", nil).wantProblem(t, 503, "database")
}

func TestUnknownRoutesAreProblems(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "GET", "/v1/nonsense", nil).wantProblem(t, 404, "/v1/nonsense")
	wrong := s.call(t, "PATCH", "/v1/namespaces", nil)
	wrong.wantProblem(t, 405, "PATCH")
	if allow := wrong.header.Get("Allow"); !strings.Contains(allow, "GET") {
		t.Errorf("Allow: %s", allow)
	}
}

func TestPublishAndGet(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var published struct{ IDs []int64 }
	s.call(t, "POST", "/v1/events", `{"type":"order.placed","key":"7","tags":["a"],"payload":{"total":12.50}}`).want(t, 201, &published)
	equal(t, "ids", len(published.IDs), 1)
	var event eventView
	s.call(t, "GET", "/v1/events/1", nil).want(t, 200, &event)
	equal(t, "type", event.Type, "order.placed")
	equal(t, "payload", string(event.Payload), `{"total":12.50}`)
	s.call(t, "POST", "/v1/events", `[{"type":"a"},{"type":"b"}]`).want(t, 201, &published)
	equal(t, "ids", len(published.IDs), 2)
	s.call(t, "POST", "/v1/events", `{"events":[{"type":"a"}]}`).want(t, 201, &published)
	equal(t, "ids", len(published.IDs), 1)
	s.call(t, "GET", "/v1/events/99", nil).wantProblem(t, 404, "event 99")
}

func TestPublishErrors(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{MaxBodyBytes: 1 << 20})
	for body, mention := range map[string]string{
		``:                                "the body is empty",
		`{`:                               "body",
		`[]`:                              "no events",
		`{"events":[]}`:                   "no events",
		`{"type":"a","tpye":1}`:           "tpye",
		`{"type":1}`:                      "type",
		`{}`:                              "type",
		`{"type":"a"}{"type":"b"}`:        "more than one",
		`{"type":"a","payload":"\u0000"}`: "u0000",
		"{\"type\":\"\xff\"}":             "UTF-8",
		`{"type":"a\u0001"}`:              "type",
	} {
		s.call(t, "POST", "/v1/events", body).wantProblem(t, 400, mention)
	}
	s.call(t, "POST", "/v1/events", strings.Repeat(" ", 1<<20+1)).wantProblem(t, 413, "larger")
	s.call(t, "POST", "/v1/events", `{"type":"a"}`, "Content-Type: text/plain").wantProblem(t, 415, "application/json")
	s.call(t, "GET", "/v1/events/x", nil).wantProblem(t, 400, "path.id")
	s.call(t, "GET", "/v1/events/1?nonsense=1", nil).wantProblem(t, 400, "nonsense")
	s.call(t, "GET", "/v1/events/1?namespace=nobody", nil).wantProblem(t, 404, "nobody")
	s.call(t, "GET", "/v1/events/1?namespace=%00", nil).wantProblem(t, 400, "NUL")
	s.call(t, "GET", "/v1/events/1?namespace=a&namespace=b", nil).wantProblem(t, 400, "more than once")
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/namespaces/shop", nil).want(t, 204)
	s.call(t, "PUT", "/v1/namespaces/shop", `{"metadata":{"team":"x"}}`).want(t, 204)
	s.call(t, "PUT", "/v1/namespaces/Shop", nil).wantProblem(t, 400, "not a valid name")
	s.call(t, "PUT", "/v1/namespaces/shop", `{"meta":{}}`).wantProblem(t, 400, "unexpected")
	var all list[admin.Namespace]
	s.call(t, "GET", "/v1/namespaces", nil).want(t, 200, &all)
	equal(t, "namespaces", len(all.Items), 2)
	equal(t, "metadata", string(all.Items[1].Metadata), `{"team":"x"}`)
	actions, err := admin.New(s.ph.Pool(), "shop").Actions(t.Context(), 0, 10)
	if err != nil || len(actions) != 2 || actions[0].Name != "define-namespace" || actions[0].Subject != "shop" {
		t.Errorf("the audit log is %+v, %v", actions, err)
	}
	s.call(t, "POST", "/v1/events?namespace=shop", `{"type":"a"}`).want(t, 201)
	s.call(t, "GET", "/v1/events/1?namespace=shop", nil).want(t, 200)
	s.call(t, "GET", "/v1/events/1", nil).wantProblem(t, 404, "event 1")
	s.call(t, "DELETE", "/v1/namespaces/shop", nil).wantProblem(t, 409, "is not closed")
	s.call(t, "POST", "/v1/namespaces/shop/close", `{"moved_to":"db2"}`).want(t, 204)
	s.call(t, "POST", "/v1/namespaces/shop/keep", `{"only":false}`).wantProblem(t, 400, "all other namespaces are deleted")
	s.call(t, "POST", "/v1/namespaces/shop/keep", `{"only":true}`).wantProblem(t, 409, "was closed in this database")
	var deleted admin.DeletedPart
	s.call(t, "DELETE", "/v1/namespaces/shop", nil).want(t, 200, &deleted)
	equal(t, "done", deleted.Done, true)
	s.call(t, "POST", "/v1/events?namespace=shop", `{"type":"a"}`).wantProblem(t, 404, "does not exist")
}

func TestPanicsAreRecovered(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.server.mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic("boo") })
	answer := s.call(t, "GET", "/panic", nil)
	answer.wantProblem(t, 500, "log")
	if strings.Contains(answer.body, "boo") {
		t.Errorf("the client learns of internals: %s", answer.body)
	}
	s.call(t, "GET", "/healthz", nil).want(t, http.StatusOK)
}
