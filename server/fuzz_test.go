package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/cloudevent"
	"github.com/posthorn/posthorn/posthorntest"
)

// Every publication is accepted or refused, and a CloudEvent is returned as it was
// published.
func FuzzDecodePublication(f *testing.F) {
	for _, contentType := range []string{"application/json", cloudEventsJSON, cloudEventsBatch, "text/plain", ";", "application/json; charset=x"} {
		for _, body := range []string{
			``, `{}`, `[]`, `null`, `[null]`, `{"type":"a"}`, `{"events":[{"type":"a"}]}`, `{"events":{}}`,
			`{"specversion":"1.0","id":"1","source":"/a","type":"a","data":{"a":1},"x":1}`,
			`[{"specversion":"1.0","id":"1","source":"/a","type":"a","data_base64":"AA==","time":"2026-01-31T12:00:00Z"}]`,
			`{"specversion":"1.0","id":"\u0000","source":"\ud800","type":"a","datacontenttype":"text/plain","data":"x"}`,
			strings.Repeat("[", 20000), "\xff", `{"type":"a","payload":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + "}",
		} {
			f.Add(contentType, "1.0", "1", body)
			f.Add(contentType, "", "", body)
		}
	}
	f.Fuzz(func(t *testing.T, contentType, version, id, body string) {
		header := http.Header{"Content-Type": {contentType}}
		if version != "" {
			header["Ce-Specversion"], header["Ce-Id"], header["Ce-Source"], header["Ce-Type"] = []string{version}, []string{id}, []string{"/a"}, []string{"a"}
		}
		all, err := decodePublication(header, []byte(body))
		if err != nil {
			var p *problem
			if !errors.As(err, &p) || p.Status < 400 || p.Status >= 500 {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, m := range all {
			if raw, ok := m.Payload.(json.RawMessage); ok && !json.Valid(raw) {
				t.Fatalf("the payload is no JSON: %s", raw)
			}
			if _, ok := m.Metadata[cloudevent.MetadataKey].(cloudevent.Kept); ok {
				sameAgain(t, m)
			}
		}
	})
}

// sameAgain sends an event out as a CloudEvent and takes it in again.
func sameAgain(t *testing.T, m posthorn.Message) {
	t.Helper()
	metadata, err := json.Marshal(m.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	view := viewOf(admin.Event{ID: 1, Stream: m.Stream, Type: m.Type, Key: m.Key, Payload: m.Payload.(json.RawMessage), Metadata: metadata})
	if view.Stream == "" {
		view.Stream = "default"
	}
	out, err := cloudEventOf("default", view)
	if err != nil {
		t.Fatal(err)
	}
	again, err := decodeStructured(out)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	once, _ := json.Marshal(m.Metadata)
	twice, _ := json.Marshal(again.Metadata)
	if string(once) != string(twice) || again.DedupKey != m.DedupKey || again.Key != m.Key {
		t.Fatalf("%s is not %s", twice, once)
	}
}

var placeholder = regexp.MustCompile(`\{[^}]*\}`)

// Nothing that a client sends makes an answer of 500 or more, or a panic.
func FuzzRequest(f *testing.F) {
	s := New(posthorntest.Open(f), Options{Logger: slog.New(slog.DiscardHandler)})
	var routes []string
	for path, item := range s.api.OpenAPI().Paths {
		for method, there := range map[string]bool{"GET": item.Get != nil, "POST": item.Post != nil, "PUT": item.Put != nil, "PATCH": item.Patch != nil, "DELETE": item.Delete != nil} {
			if there && path != "/v1/stream" { // which goes on until the client has enough
				routes = append(routes, method+" "+path)
			}
		}
	}
	slices.Sort(routes)
	parts := []string{"1", "g", "%00", "%ff", "99999999999999999999", "-1", "a%2Fb", "..", "%F0%9F%93%AF", strings.Repeat("x", 300)}
	queries := []string{
		"", "limit=1", "limit=0x1", "cursor=bmV3ZXN0IDE", "cursor=%00", "namespace=other", "payload=%5B%5D", "payload=1e999999", "type=%3E", "type=,",
		"from=0000-01-01T00:00:00Z&before=9999-12-31T23:59:59Z", "%zz", "a=b;c", "tag=a,a,,", "key=%F0%9F", "order=oldest&cursor=b2xkZXN0IDkyMjMzNzIwMzY4NTQ3NzU4MDc",
		"event=9223372036854775807", "failed_after=x", "group=g", "stream=*",
	}
	bodies := []string{
		"", "{}", "[]", "null", "1", `"`, `{"type":"a"}`, `{"type":"a","payload":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`,
		`{"attempt":1}`, `{"attempt":99999999999}`, `{"attempt":1,"failures":[{"event":1,"error":"\u0000"}],"released":[1]}`, `{"to":"beginning"}`,
		`{"all":true}`, `{"ids":[-1]}`, `{"ids":[9223372036854775807],"limit":9223372036854775807}`, `{"cron_expression":"@every 1s","event_type":"a","payload":"\u0000"}`,
		`{"cron_expression":"* * * * *","event_type":"a","metadata":{"a":"\u0000"}}`, `{"filter":{"payload":{"a":1e400}}}`, `{"filter":{"type":["\u0000"]}}`,
		`{"expire_after_seconds":1e300}`, `{"metadata":{"\u0000":1}}`, `{"order":"key","slots":2147483648}`, `{"attempts":9999999999}`, `{"delays":["-1 day","infinity"]}`,
		`{"backoff":{"factor":1e308,"from":"\u0000"}}`, `{"start":"\u0000"}`, `{"wait":0,"node":"\u0000"}`, `{"lease_seconds":1e-9}`, `{"filter":{"key":"\ud800"}}`,
		`{"params":{},"conditions_sql":"1/0 = 1"}`, `{"conditions_sql":"; drop table x"}`, `{"conditions_sql":"\u0000"}`, `{"type":"a","deliver_at":"0000-01-01T00:00:00Z"}`,
	}
	for i := range routes {
		for j, part := range parts {
			f.Add(i, part, queries[(i+j)%len(queries)], "application/json", bodies[(i*7+j)%len(bodies)])
		}
	}
	for i := range routes {
		for j := i % 4; j < len(bodies); j += 4 {
			f.Add(i, "g", queries[j%len(queries)], "application/json", bodies[j])
		}
	}
	f.Fuzz(func(t *testing.T, route int, part, query, contentType, body string) {
		method, path, _ := strings.Cut(routes[uint(route)%uint(len(routes))], " ")
		path = placeholder.ReplaceAllLiteralString(path, part)
		address, err := url.ParseRequestURI(path)
		if err != nil {
			return // net/http refuses it
		}
		address.RawQuery = query
		r := &http.Request{
			Method: method, URL: address, Host: "127.0.0.1", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {contentType}}, Body: http.NoBody, RemoteAddr: "127.0.0.1:1",
		}
		if body != "" {
			r = httptest.NewRequest(method, "/", strings.NewReader(body))
			r.URL, r.Header = address, http.Header{"Content-Type": {contentType}}
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Second) // a request that waits ends with its client
		defer leave()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r.WithContext(ctx))
		if w.Code >= 500 {
			t.Errorf("%s %s?%s: %d: %s\n%s", method, path, query, w.Code, w.Body, fmt.Sprintf("%.300s", body))
		}
	})
}
