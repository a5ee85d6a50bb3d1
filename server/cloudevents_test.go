package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestCloudEventStructured(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sent := `{"specversion":"1.0","id":"a-1","source":"/shop","type":"order.placed","subject":"order-7","time":"2026-01-31T12:00:00Z",
		"dataschema":"https://shop.example/order","datacontenttype":"application/json","region":"eu","retries":3,"live":true,
		"posthornstream":"orders","data":{"total":12}}`
	var first, again struct{ IDs []int64 }
	s.call(t, "POST", "/v1/events", sent, "Content-Type: application/cloudevents+json; charset=utf-8").want(t, 201, &first)
	repeated := s.call(t, "POST", "/v1/events", sent, "Content-Type: application/cloudevents+json").want(t, 201, &again)
	equal(t, "ids when sent again", again.IDs, first.IDs)
	equal(t, "replayed", repeated.header.Get("Idempotency-Replayed"), "true")

	var plain eventView
	path := fmt.Sprintf("/v1/events/%d", first.IDs[0])
	s.call(t, "GET", path, nil).want(t, 200, &plain)
	equal(t, "key", plain.Key, "order-7")
	equal(t, "stream", plain.Stream, "orders")

	answer := s.call(t, "GET", path, nil, "Accept: application/cloudevents+json")
	equal(t, "content type", answer.header.Get("Content-Type"), "application/cloudevents+json")
	var got, want map[string]any
	answer.want(t, 200, &got)
	if err := json.Unmarshal([]byte(sent), &want); err != nil {
		t.Fatal(err)
	}
	want["posthornid"] = fmt.Sprint(first.IDs[0])
	delete(got, "producer") // metadata that the server adds are extensions
	equal(t, "event", got, want)
}

func TestCloudEventBinary(t *testing.T) {
	t.Parallel()
	s := serve(t)
	attributes := []string{"Ce-Specversion: 1.0", "Ce-Id: 1", "Ce-Source: /a", "Ce-Type: a.b", "Ce-Partitionkey: p", "Ce-Subject: s", "Ce-Note: Euro%20%E2%82%AC"}
	for i, test := range []struct{ contentType, body, field, want string }{
		{"application/json", `{"a":1.50}`, "data", `{"a":1.50}`},
		{"application/vnd.x+json", `[1]`, "data", `[1]`},
		{"text/plain", "hello", "data", `"hello"`},
		{"application/octet-stream", "\xff\x00\x01", "data_base64", `"/wAB"`},
		{"text/plain", "", "data", ""},
	} {
		var published struct{ IDs []int64 }
		s.call(t, "POST", "/v1/events", test.body, append(attributes, "Content-Type: "+test.contentType, fmt.Sprintf("Ce-Id: %d", i))...).want(t, 201, &published)
		var got map[string]json.RawMessage
		s.call(t, "GET", fmt.Sprintf("/v1/events/%d", published.IDs[0]), nil, "Accept: application/cloudevents+json").want(t, 200, &got)
		equal(t, "data of "+test.contentType, strings.ReplaceAll(string(got[test.field]), " ", ""), test.want)
		equal(t, "content type", string(got["datacontenttype"]), `"`+test.contentType+`"`)
		equal(t, "extension", string(got["note"]), `"Euro €"`)
		equal(t, "subject", string(got["subject"]), `"s"`)
		var plain eventView
		s.call(t, "GET", fmt.Sprintf("/v1/events/%d", published.IDs[0]), nil).want(t, 200, &plain)
		equal(t, "key", plain.Key, "p")
	}
}

func TestCloudEventBatch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	one := func(id string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/a","type":"a"}`, id)
	}
	batch := "Content-Type: application/cloudevents-batch+json"
	var published struct{ IDs []int64 }
	s.call(t, "POST", "/v1/events", "["+one("1")+","+one("2")+"]", batch).want(t, 201, &published)
	equal(t, "ids", len(published.IDs), 2)
	half := s.call(t, "POST", "/v1/events", "["+one("2")+","+one("3")+"]", batch).want(t, 201, &published)
	equal(t, "replayed, though one is new", half.header.Get("Idempotency-Replayed"), "")
	s.call(t, "POST", "/v1/events", "[]", batch).want(t, 201, &published)
	equal(t, "ids of none", len(published.IDs), 0)

	page := s.call(t, "GET", "/v1/events?order=oldest&limit=2", nil, "Accept: application/cloudevents-batch+json")
	var events []map[string]any
	page.want(t, 200, &events)
	equal(t, "events", len(events), 2)
	next := strings.TrimSuffix(strings.TrimPrefix(page.header.Get("Link"), "<"), `>; rel="next"`)
	s.call(t, "GET", "/v1/events"+next, nil, "Accept: application/cloudevents-batch+json").want(t, 200, &events)
	equal(t, "events of the next page", len(events), 1)
	equal(t, "id", events[0]["id"], any("3"))
}

func TestAnyEventIsACloudEvent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "POST", "/v1/events", `{"type":"a","key":"k","metadata":{"cloudevent":"nonsense","UPPER":1,"deep":{},"id":"no"}}`).want(t, 201)
	var got map[string]any
	s.call(t, "GET", "/v1/events/1", nil, "Accept: application/cloudevents+json").want(t, 200, &got)
	for name, want := range map[string]any{"specversion": "1.0", "id": "1", "source": "/namespaces/default", "type": "a", "subject": "k"} {
		equal(t, name, got[name], want)
	}
	for _, name := range []string{"UPPER", "deep", "cloudevent"} {
		if got[name] != nil {
			t.Errorf("%s is an attribute", name)
		}
	}
}

func TestCloudEventErrors(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for body, mention := range map[string]string{
		`{"specversion":"1.0","id":"1","source":"/a"}`:                                               "type is missing",
		`{"specversion":"0.3","id":"1","source":"/a","type":"a"}`:                                    "version",
		`{"specversion":"1.0","id":1,"source":"/a","type":"a"}`:                                      "id is missing",
		`{"specversion":"1.0","id":"1","source":"/a","type":"a","Upper":"x"}`:                        "Upper",
		`{"specversion":"1.0","id":"1","source":"/a","type":"a","deep":{}}`:                          "deep",
		`{"specversion":"1.0","id":"1","source":"/a","type":"a","time":"yesterday"}`:                 "time",
		`{"specversion":"1.0","id":"1","source":"/a","type":"a","data":1,"data_base64":"AA=="}`:      "both",
		`{"specversion":"1.0","id":"1","source":"/a","type":"a","data_base64":"?"}`:                  "base64",
		`{"specversion":"1.0","id":"1","source":"/a","type":"a","partitionkey":"` + "\\u0000" + `"}`: "the zero character",
		`[]`:   "not a JSON object",
		`null`: "not a JSON object",
		`{`:    "not a JSON object",
	} {
		s.call(t, "POST", "/v1/events", body, "Content-Type: application/cloudevents+json").wantProblem(t, 400, mention)
	}
	s.call(t, "POST", "/v1/events", `[{}]`, "Content-Type: application/cloudevents-batch+json").wantProblem(t, 400, "event 0")
	s.call(t, "POST", "/v1/events", `<a/>`, "Content-Type: application/cloudevents+xml").wantProblem(t, 415, "JSON")
	s.call(t, "POST", "/v1/events", `{`, "Ce-Specversion: 1.0", "Ce-Id: 1", "Ce-Source: a", "Ce-Type: a").wantProblem(t, 400, "JSON")
	s.call(t, "POST", "/v1/events", `{}`, "Ce-Specversion: 1.0", "Ce-Id: %zz", "Ce-Source: a", "Ce-Type: a").wantProblem(t, 400, "ce-id")
}
