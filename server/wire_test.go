package server

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", nil).want(t, 200)
	s.call(t, "GET", "/nonsense", nil).wantProblem(t, 404, "")
	metrics := s.call(t, "GET", "/metrics", nil).want(t, 200)
	for _, line := range []string{
		`posthorn_http_requests_total{route="PUT /v1/groups/{name}",status="200"} 1`,
		`posthorn_http_requests_total{route="none",status="404"} 1`,
		"posthorn_http_waiting 0", "posthorn_up", `group="g"`,
	} {
		if !strings.Contains(metrics.body, line) {
			t.Errorf("%s is missing: %s", line, metrics.body)
		}
	}
}

func packed(t *testing.T, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{MaxBodyBytes: 100_000})
	const gz = "Content-Encoding: gzip"
	s.call(t, "POST", "/v1/events", packed(t, []byte(`{"type":"a"}`)), gz).want(t, 201)
	s.call(t, "POST", "/v1/events", packed(t, bytes.Repeat([]byte(" "), 1<<20)), gz).wantProblem(t, 413, "100000")
	s.call(t, "POST", "/v1/events", `{"type":"a"}`, gz).wantProblem(t, 400, "read")
	s.call(t, "POST", "/v1/events", packed(t, []byte(`{"type":"a"}`))[:20], gz).wantProblem(t, 400, "read")
	s.call(t, "POST", "/v1/events", `{"type":"a"}`, "Content-Encoding: br").wantProblem(t, 415, "gzip")
}

func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "POST", "/v1/events", fmt.Sprintf(`{"type":"a","payload":%q}`, strings.Repeat("long ", 1000))).want(t, 201)
	answer := s.call(t, "GET", "/v1/events/1", nil, "Accept-Encoding: gzip").want(t, 200)
	equal(t, "encoding", answer.header.Get("Content-Encoding"), "gzip")
	r, err := gzip.NewReader(strings.NewReader(answer.body))
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(r)
	if err != nil || !bytes.Contains(unpacked, []byte("long long")) {
		t.Errorf("%v: %s", err, unpacked)
	}
	for _, accept := range []string{"identity", "gzip;q=0", "br"} {
		plain := s.call(t, "GET", "/v1/events/1", nil, "Accept-Encoding: "+accept).want(t, 200, new(eventView))
		equal(t, "encoding for "+accept, plain.header.Get("Content-Encoding"), "")
	}
	short := s.call(t, "GET", "/healthz", nil, "Accept-Encoding: gzip").want(t, 200)
	equal(t, "encoding of what is short", short.header.Get("Content-Encoding"), "")
}

func TestPagesOfOtherOrigins(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{CORSOrigins: []string{"https://good.example"}})
	publish := func(origin string) answered {
		return s.call(t, "POST", "/v1/events", `{"type":"a"}`, "Origin: "+origin, "Sec-Fetch-Site: cross-site")
	}
	publish("https://bad.example").wantProblem(t, 403, "other origins")
	good := publish("https://good.example").want(t, 201)
	equal(t, "allowed origin", good.header.Get("Access-Control-Allow-Origin"), "https://good.example")
	preflight := s.call(t, "OPTIONS", "/v1/events", nil, "Origin: https://good.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization").want(t, 204)
	equal(t, "allowed headers", preflight.header.Get("Access-Control-Allow-Headers"), "authorization")
	bad := s.call(t, "OPTIONS", "/v1/events", nil, "Origin: https://bad.example", "Access-Control-Request-Method: POST")
	equal(t, "allowed origin", bad.header.Get("Access-Control-Allow-Origin"), "")
}
