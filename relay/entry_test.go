package relay_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

const log = "01234567-89ab-cdef-0123-456789abcdef"

func TestReadReturnsTheOriginalEvent(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	for name, e := range map[string]posthorn.Event{
		"full": {
			ID: 42, Stream: "stream:user:events", Type: "user.created", Key: "ü 7", Tags: []string{"a", `"b"`},
			Payload: json.RawMessage(`{"n": 1.0}`), Metadata: json.RawMessage(`{"traceparent": "00-ab-cd-01"}`), PublishedAt: at,
		},
		"bare": {ID: 1, Stream: "default", Type: "e", Payload: json.RawMessage(`null`), Metadata: json.RawMessage(`{}`), PublishedAt: at},
	} {
		back := relay.NewEntry(relay.Source(log, "shop"), &e).Read(e.Stream, "7")
		want := posthorn.SourceEntry{Stream: e.Stream, Position: "7", Log: log, Namespace: "shop", Event: e}
		if diff := cmp.Diff(want, back); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestReadRefusesForeignEntries(t *testing.T) {
	t.Parallel()
	good := relay.Entry{ID: "1", Source: relay.Source(log, "shop"), Type: "e", Time: "2026-03-01T12:00:00Z", Data: []byte("1")}
	if read := good.Read("s", "7"); read.Err != nil {
		t.Fatal(read.Err)
	}
	for name, spoil := range map[string]func(*relay.Entry){
		"source": func(e *relay.Entry) { e.Source = "posthorn:0123:shop" }, "other source": func(e *relay.Entry) { e.Source = "/sensors" },
		"id": func(e *relay.Entry) { e.ID = "1-0" }, "negative id": func(e *relay.Entry) { e.ID = "-1" },
		"type": func(e *relay.Entry) { e.Type = "" }, "time": func(e *relay.Entry) { e.Time = "noon" },
		"data": func(e *relay.Entry) { e.Data = []byte("{") }, "no data": func(e *relay.Entry) { e.Data = nil },
		"text in the type": func(e *relay.Entry) { e.Type = "e\x00" }, "text in the key": func(e *relay.Entry) { e.Subject = "\xff" },
		"text in the tags": func(e *relay.Entry) { e.Tags = `["\u0000"]` }, "text in the data": func(e *relay.Entry) { e.Data = []byte("\"\xff\"") },
		"text in the metadata": func(e *relay.Entry) { e.Metadata = "{\"a\": \"\xc3\"}" },
		"tags":                 func(e *relay.Entry) { e.Tags = "{}" }, "metadata": func(e *relay.Entry) { e.Metadata = "{" },
	} {
		bad := good
		spoil(&bad)
		if read := bad.Read("s", "7"); read.Err == nil || read.Position != "7" {
			t.Errorf("invalid %s: read as %+v", name, read)
		}
	}
}
