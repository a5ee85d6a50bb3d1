package server

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestDeepDocuments(t *testing.T) {
	t.Parallel()
	s := serve(t)
	nested := func(n int) string {
		return `{"type":"a","payload":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	}
	s.call(t, "POST", "/v1/events", nested(500)).want(t, 201)
	s.call(t, "POST", "/v1/events", nested(501)).wantProblem(t, 400, "nested more than 500 deep")
	s.call(t, "POST", "/v1/events", nested(20_000)).wantProblem(t, 400, "depth")
	s.call(t, "PUT", "/v1/groups/g", strings.Repeat(`{"backoff":`, 20_000)).wantProblem(t, 400, "")
}

func TestHugeBodies(t *testing.T) {
	t.Parallel()
	s := serve(t)
	big := strings.Repeat("x", 5<<20)
	s.call(t, "POST", "/v1/events", big).wantProblem(t, 413, "4194304")
	s.call(t, "PUT", "/v1/groups/g", big).wantProblem(t, 413, "4194304")
	large := `{"type":"a","payload":"` + strings.Repeat("x", 2<<20) + `"}`
	s.call(t, "POST", "/v1/events", large).wantProblem(t, 413, "payload of")
}

func TestDuplicateHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, name := range []string{"Content-Type", "Idempotency-Key", "Traceparent", "Authorization"} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/events", strings.NewReader(`{"type":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header[name] = []string{"application/json", "application/json"}
		response, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		equal(t, name, response.StatusCode, 400)
	}
}

func TestWrongTypesAreNamed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for body, location := range map[string]string{
		`{"slots":"many"}`: "body.slots", `{"delays":[1]}`: "body.delays[0]", `{"backoff":{"jitter":"x"}}`: "body.backoff.jitter", `1`: "body",
	} {
		p := s.call(t, "PUT", "/v1/groups/g", body).wantProblem(t, 400, "")
		if len(p.Errors) == 0 || p.Errors[0].Location != location {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	secret := s.call(t, "PUT", "/v1/groups/g", `{"slots":"hunter2"}`)
	if strings.Contains(secret.body, "hunter2") {
		t.Errorf("what was sent comes back: %s", secret.body)
	}
}

// A client that sends a body too slowly is disconnected. It holds no connection to the
// database meanwhile.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.server.bodyTimeout = 20 * time.Millisecond
	for path, want := range map[string]int{"/v1/events": http.StatusRequestTimeout, "/v1/nothing": http.StatusNotFound} {
		equal(t, path, s.trickle(t, path), want)
	}
}

// trickle sends the beginning of a body, and returns the status of the response after the
// server has closed the connection.
func (s *served) trickle(t *testing.T, path string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(await.Limit))
	if _, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("the connection was kept: %v", err)
	}
	return response.StatusCode
}

// The deadline for the body does not end a request that waits after its body was read.
func TestLongPollsOutlastTheDeadlineOfBodies(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.server.bodyTimeout = 50 * time.Millisecond
	s.call(t, "PUT", "/v1/groups/g", nil).want(t, 200)
	got := make(chan claimed, 1)
	go func() { got <- s.claim(t, "g", `{"wait":60}`) }()
	s.waiting(t, 1)
	s.trickle(t, "/v1/events") // began later, and its deadline has the same length
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"})
	equal(t, "events", len(await.Value(t, "the lease", got).Events), 1)
}

var reference = regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`)

// Every reference in the document can be resolved, and every path parameter is declared.
func TestDocumentIsWhole(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string
			Summary     string
			Parameters  []struct{ Name, In string }
			Responses   map[string]json.RawMessage
		}
		Components struct{ Schemas map[string]json.RawMessage }
	}
	answer := s.call(t, "GET", "/openapi.json", nil).want(t, 200, &document)
	for _, match := range reference.FindAllStringSubmatch(answer.body, -1) {
		if document.Components.Schemas[match[1]] == nil {
			t.Errorf("there is no schema %s", match[1])
		}
	}
	for path, item := range document.Paths {
		for method, operation := range item {
			if operation.OperationID == "" || operation.Summary == "" || len(operation.Responses) < 2 {
				t.Errorf("%s %s is not described", method, path)
			}
			for _, match := range placeholder.FindAllString(path, -1) {
				found := false
				for _, p := range operation.Parameters {
					found = found || p.In == "path" && "{"+p.Name+"}" == match
				}
				if !found {
					t.Errorf("%s %s does not describe %s", method, path, match)
				}
			}
		}
	}
}
