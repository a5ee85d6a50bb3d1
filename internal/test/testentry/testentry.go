// Package testentry has events in the form that the first version of relays gave them in brokers: what a later version
// must still write and read.
package testentry

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
)

// Entry is an event, and how brokers have it.
type Entry struct {
	Log, Namespace string

	Event posthorn.Event
	Redis map[string]any // the fields of the entry
	NATS  Message
}

// Message is a message of JetStream.
type Message struct {
	Stream   string
	Subjects string // of the stream
	Subject  string
	Headers  map[string]string
	Body     string
}

// Batch is the event alone, as a relay gives it to a sink.
func (e Entry) Batch() posthorn.SinkBatch {
	return posthorn.SinkBatch{Log: e.Log, Namespace: e.Namespace, Events: []posthorn.Event{e.Event}}
}

// Read is the event as an import gets it from a source.
func (e Entry) Read(position string) posthorn.SourceEntry {
	return posthorn.SourceEntry{Stream: e.Event.Stream, Position: position, Log: e.Log, Namespace: e.Namespace, Event: e.Event}
}

// Load returns the entries of relay/testdata/entries.json.
func Load(t testing.TB) (all []Entry) {
	t.Helper()
	text, err := os.ReadFile("../testdata/entries.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Log, Namespace string
		Entries        []struct {
			Event struct {
				ID                                   int64
				Stream, Type, Key, Payload, Metadata string
				Tags                                 []string
				PublishedAt                          time.Time `json:"published_at"`
			}
			Redis map[string]any
			NATS  Message
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, entry := range file.Entries {
		e := entry.Event
		all = append(all, Entry{file.Log, file.Namespace, posthorn.Event{
			ID: e.ID, Stream: e.Stream, Type: e.Type, Key: e.Key, Tags: e.Tags, PublishedAt: e.PublishedAt,
			Payload: json.RawMessage(e.Payload), Metadata: json.RawMessage(e.Metadata),
		}, entry.Redis, entry.NATS})
	}
	if len(all) == 0 {
		t.Fatal("there are no entries")
	}
	return all
}
