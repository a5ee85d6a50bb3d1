package server

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
)

func TestStreamRefuses(t *testing.T) {
	t.Parallel()
	s := serve(t)
	cursor := s.read(t, "").last
	for query, mention := range map[string]string{
		"typ=order.placed":                       "typ",
		"type=order.":                            "order.",
		"type=a,,b":                              "pattern",
		"type=a&type=b":                          "more than once",
		"stream=a*b":                             "a*b",
		"key=a,":                                 "key or tag",
		"tag=" + strings.Repeat("x", 300):        "key or tag",
		"key=" + strings.Repeat("x,", 100) + "x": "at most 100",
		"type=%ff":                               "UTF-8",
		"type=%00":                               "NUL",
		"type=%zz":                               "query",
		"named=perhaps":                          "named",
		"payload={":                              "payload",
		"format=xml":                             "format",
		"from=yesterday":                         "from",
		"from=2999-01-01T00:00:00Z":              "future",
		"from=" + cursor[1:]:                     "cursor",
		"from=" + cursor + ".x":                  "from",
		"last_event_id=4711":                     "last event id",
		"last_event_id=" + cursor[:40]:           "cursor",
		"last_event_id=" + cursor + ".1":         "cursor", // belongs to no position
	} {
		wantRefused(t, s, query, mention)
	}
	for _, last := range []string{"4711", "ÿ", strings.Repeat("A", 5000), cursor + " " + cursor} {
		wantRefused(t, s, "", "", "Last-Event-ID: "+last)
	}
}

// wantRefused fails the test unless the response is a problem that contains a text.
func wantRefused(t *testing.T, s *served, query, mention string, headers ...string) {
	t.Helper()
	_, err := openReader(t, s.client, s.url, query, headers...)
	if err == nil || !strings.HasPrefix(err.Error(), "400") || !strings.Contains(err.Error(), mention) {
		t.Errorf("%s %s: %v; want a 400 that mentions %q", query, headers, err, mention)
	}
}

// Every request for a stream is accepted or refused, never an internal error.
func FuzzStream(f *testing.F) {
	s := serve(f)
	r, err := openReader(f, s.client, s.url, "")
	if err != nil {
		f.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(r.last)
	if err != nil {
		f.Fatal(err)
	}
	cluster, _, _ := strings.Cut(string(raw[strings.Index(string(raw), `"s": "`)+6:]), `"`)
	for _, query := range []string{
		"", "type=order.>&key=7&tag=a,b&stream=x:*", "from=beginning", "from=2026-01-31T09:00:00+02:00", "from=0000-01-01T00:00:00Z",
		"named=1&format=cloudevents", "lastEventId=" + r.last, "from=" + r.last + ".5", "type=%00", `payload={"a":[1,{}]}`, "payload=1e999999999999", "namespace=%E2%80%A6", "type=,",
	} {
		f.Add(query, "", false)
	}
	for _, last := range []string{"", "garbage", r.last, r.last + ".1", r.last + ".999999999999999999", "\x00", strings.Repeat("A", 100)} {
		f.Add("", last, false)
	}
	for _, fields := range []string{
		`"b": "1:1:", "bs": 0`, `"b": "9:3:", "bs": 0`, `"b": "1:1:", "bs": -9223372036854775808`, `"b": "1:18446744073709551615:", "bs": 1`,
		`"b": "1:1:", "bs": 0, "t": "1:5:2,3", "ts": 3, "te": 9223372036854775807, "p": -5`,
		`"b": "1:1:", "bs": 0, "f": "infinity"`, `"b": "1:1:", "bs": 0, "f": "-infinity"`, `"b": "1:1:", "bs": 0, "f": "4714-11-24 BC"`, `"b": "1:1:", "bs": 0, "x": "abc", "i": {}`,
		`"b": "1:1:", "bs": 0, "x": "99", "i": 1e400`, `"b": "1:1:", "bs": 0, "u": "NaN"`, `"b": "1:1:", "bs": 0, "u": {}`, `"b": [], "bs": 0`,
		`"b": "1:1:", "bs": 0, "t": "1:1:", "ts": 0, "te": -1, "tn": "18446744073709551615", "bn": "0"`,
	} {
		f.Add("", fields, true)
	}
	f.Fuzz(func(t *testing.T, query, last string, fields bool) {
		in := last
		if fields {
			last = base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf(`{"s": "%s", %s}`, cluster, last)))
		}
		request := httptest.NewRequestWithContext(await.Context(t), http.MethodHead, "/v1/stream", nil)
		request.URL.RawQuery = query
		request.Header.Set("Last-Event-ID", last)
		response := httptest.NewRecorder()
		s.server.ServeHTTP(response, request)
		switch response.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusNotFound:
		default:
			t.Errorf("status %d: %s %s", response.Code, response.Body, in)
		}
	})
}
