package server

import (
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

// fuzzed is a server with one job that w:1 has, and one that nobody has.
func fuzzed(f *testing.F) *Server {
	f.Helper()
	s := New(posthorntest.Open(f, posthorn.Config{}), Options{Logger: slog.New(slog.DiscardHandler)})
	f.Cleanup(s.Drain)
	for _, r := range [][3]string{
		{"POST", "/events", `{"title":"a","tags":"x","retry_delays":[0],"max_retries":1000000}`},
		{"GET", "/events/subscribe?tags=x&worker_id=w:1", ""},
		{"POST", "/events", `{"title":"b","tags":"y"}`},
	} {
		if status := ask(s, r[0], r[1], r[2]); status >= 300 {
			f.Fatalf("%v: status %d", r, status)
		}
	}
	return s
}

func ask(s *Server, method, target, body string) (status int) {
	request := httptest.NewRequest(method, "/", strings.NewReader(body))
	path, query, _ := strings.Cut(target, "?")
	request.URL = &url.URL{Path: path, RawQuery: query}
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	return recorder.Code
}

// Every body is accepted or refused, never an internal error.
func FuzzBodiesOfJobs(f *testing.F) {
	s := fuzzed(f)
	routes := []string{"/events", "/events/1/start", "/events/1/heartbeat", "/events/1/complete", "/events/1/fail", "/events/2/fail"}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `7`, `{"title":`, "\xef\xbb\xbf{}", "{\"title\":\"\xff\",\"tags\":\"x\"}",
		`{"title":"a","tags":"x"}`, `{"title":"a","tags":"x","payload":"\u0000"}`, `{"title":"a","tags":"x","payload":"\\u0000"}`,
		`{"title":"\u0000","tags":"x"}`, `{"title":"a","tags":"\u0000"}`, `{"title":"\ud800","tags":"\udc00","payload":"\ud800"}`,
		`{"title":"a","tags":"x","payload":` + deep + `}`, `{"title":"a","tags":"x","payload":` + deep + deep,
		`{"title":"a","tags":"x","payload":1e999999}`, `{"title":"a","tags":"x","payload":-0.0,"payload":{}}`,
		`{"title":"a","tags":"x","priority":2147483648}`, `{"title":"a","tags":"x","priority":-2147483647,"max_retries":1000001}`,
		`{"title":"a","tags":"x","priority":9223372036854775808,"max_retries":1e3}`,
		`{"title":"a","tags":"x","run_at":"0000-01-01T00:00:00Z"}`, `{"title":"a","tags":"x","run_at":"9999-12-31T23:59:59.999999999Z"}`,
		`{"title":"a","tags":"x","run_at":"2026-01-01T00:00:00+23:59"}`, `{"title":"a","tags":"x","retry_delays":["5m",1e9,0.0000001]}`,
		`{"title":"a","tags":"x","unique_key":"k","unique_for":"10 years"}`, `{"title":"a","tags":"x","fair_key":"k","weight":1e-3}`, `{"title":"a","tags":"{x}\",'\\"}`,
		`{"title":"a","tags":"x","description":"` + strings.Repeat("ä", 50001) + `"}`,
		`{"worker_id":"w:1"}`, `{"worker_id":"w:1","attempt":2147483647}`, `{"worker_id":"w:1","attempt":-1}`, `{"worker_id":"\u0000"}`,
		`{"worker_id":"\ud800"}`, `{"worker_id":"' or 1=1 --"}`, `{"worker_id":"w:1","progress":{"a":1e999}}`, `{"worker_id":"w:1","result":null}`,
		`{"worker_id":"w:1","status_code":-2147483648,"execution_time_ms":9223372036854775807}`,
		`{"worker_id":"w:1","lease_seconds":2147483647}`, `{"worker_id":"w:1","lease_seconds":-5}`, `{"worker_id":"w:1","retry_in":1e300}`,
		`{"worker_id":"w:1","error_message":"` + strings.Repeat("x", 70000) + `","permanent":null,"retry_in":"0s"}`,
	} {
		for i := range routes {
			f.Add(uint8(i), body)
		}
	}
	f.Fuzz(func(t *testing.T, route uint8, body string) {
		path := routes[int(route)%len(routes)]
		if status := ask(s, "POST", path, body); status >= 500 {
			t.Fatalf("POST %s %.200q: status %d", path, body, status)
		}
	})
}

// Every path and query is accepted or refused, never an internal error.
func FuzzQueriesOfJobs(f *testing.F) {
	s := fuzzed(f)
	routes := []struct{ method, path string }{
		{"GET", "/events"},
		{"GET", "/events/subscribe"},
		{"GET", "/events/%"},
		{"POST", "/events/%/reset"},
		{"POST", "/events/%/cancel"},
		{"POST", "/events/%/complete"},
	}
	for _, id := range []string{"2", "0", "-1", "9223372036854775807", "9223372036854775808", "1e3", "0x1", "١", "a/b", "\xff", "\x00", "subscribe"} {
		for i := range routes {
			f.Add(uint8(i), id, "")
		}
	}
	for _, query := range []string{
		"tags=x&worker_id=w", "tags=%00&worker_id=w", "tags=%ff&worker_id=w", "tags=,&worker_id=w", "tags=x&worker_id=%F0%9F%93%AF",
		"tags=x&worker_id=w&lease_seconds=99999999999", "tags=x&worker_id=w&lease_seconds=1.5", "tags=x&worker_id=%27%3B--", "tags=%7Bx%7D%22&worker_id=w",
		"tags=x&tags=y", "a;b", "%zz", "=", "&&&", "limit=1&offset=1", "limit=-1", "limit=1e3", "offset=9223372036854775807", "limit=0x10", "limit=+1",
		"status=PENDING", "status=%00", "stalled=true", "stalled=TRUE", "include_logs=1", "include_logs=yes", "reason=%00", "reason=%ff",
		"reason=" + strings.Repeat("%C3%A4", 600), "namespace=other", "namespace=%00", "namespace=" + strings.Repeat("n", 300),
	} {
		for i := range routes {
			f.Add(uint8(i), "2", query)
		}
	}
	f.Fuzz(func(t *testing.T, route uint8, id, query string) {
		r := routes[int(route)%len(routes)]
		target := strings.Replace(r.path, "%", id, 1) + "?" + query
		_, asked, _ := strings.Cut(target, "?")
		if values, _ := url.ParseQuery(asked); values.Has("wait") {
			return // it would
		}
		if status := ask(s, r.method, target, `{"worker_id":"w:1"}`); status >= 500 {
			t.Fatalf("%s %.200q: status %d", r.method, target, status)
		}
	})
}
