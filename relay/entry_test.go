package relay_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

func TestEventsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	for name, e := range map[string]posthorn.Event{
		"full": {
			ID: 42, Stream: "stream:user:events", Type: "user.created", Key: "ü 7", Tags: []string{"a", `"b"`},
			Payload: json.RawMessage(`{"n": 1.0}`), Metadata: json.RawMessage(`{"traceparent": "00-ab-cd-01"}`), PublishedAt: at,
		},
		"bare": {ID: 1, Stream: "default", Type: "e", Payload: json.RawMessage(`null`), Metadata: json.RawMessage(`{}`), PublishedAt: at},
	} {
		back, err := relay.NewEntry(relay.Source("o", "shop"), &e).Event(e.Stream)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestEntriesOfOthersAreNoEvents(t *testing.T) {
	t.Parallel()
	good := relay.Entry{ID: "1", Type: "e", Time: "2026-03-01T12:00:00Z", Data: []byte("1")}
	if _, err := good.Event("s"); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*relay.Entry){
		"id": func(e *relay.Entry) { e.ID = "1-0" }, "negative id": func(e *relay.Entry) { e.ID = "-1" },
		"type": func(e *relay.Entry) { e.Type = "" }, "time": func(e *relay.Entry) { e.Time = "noon" },
		"data": func(e *relay.Entry) { e.Data = []byte("{") }, "no data": func(e *relay.Entry) { e.Data = nil },
		"tags": func(e *relay.Entry) { e.Tags = "{}" }, "metadata": func(e *relay.Entry) { e.Metadata = "{" },
	} {
		bad := good
		spoil(&bad)
		if e, err := bad.Event("s"); err == nil {
			t.Errorf("%s: became %+v", name, e)
		}
	}
}
