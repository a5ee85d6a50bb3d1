// Package relay defines the form of an event in a broker. It is a CloudEvent: its
// attributes are the fields of a Redis entry, or the headers of a NATS message or of a
// Kafka record. Packages relay/redis, relay/nats and relay/kafka write and read entries.
package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthorn/posthorn"
)

// Entry is an event as it is stored in a broker. Source and ID together identify
// the event. Empty attributes are not stored.
type Entry struct {
	ID       string // the event's id in the log of Source, in decimal
	Source   string // see [Source]
	Type     string
	Time     string // when the event was published, in RFC 3339 with nanoseconds
	Subject  string // the key
	Tags     string // a JSON array
	Metadata string // a JSON object
	Data     []byte // the payload
}

// The names of the attributes. NATS headers add the prefix "ce-", and those of
// Kafka "ce_". Data is a field in Redis only; in NATS the payload is the body of the
// message, and in Kafka the value of the record.
const (
	SpecVersion = "specversion"
	ID          = "id"
	SourceName  = "source"
	Type        = "type"
	Time        = "time"
	Subject     = "subject"
	Tags        = "tags"
	Metadata    = "metadata"
	Data        = "data"
)

// Source returns the CloudEvents source of the events of a namespace. The origin is
// unique to a log, so source and id together are unique.
func Source(origin, namespace string) string { return "posthorn:" + origin + ":" + namespace }

var sourcePattern = regexp.MustCompile(`^posthorn:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([a-z][a-z0-9_-]{0,30})$`)

// NewEntry returns the entry for an event.
func NewEntry(source string, e *posthorn.Event) Entry {
	entry := Entry{
		ID: strconv.FormatInt(e.ID, 10), Source: source, Type: e.Type, Subject: e.Key,
		Time: e.PublishedAt.UTC().Format(time.RFC3339Nano), Data: e.Payload,
	}
	if len(e.Tags) > 0 {
		tags, _ := json.Marshal(e.Tags) // encoding strings never fails
		entry.Tags = string(tags)
	}
	if string(e.Metadata) != "{}" {
		entry.Metadata = string(e.Metadata)
	}
	return entry
}

// Read decodes the entry at a position of a stream into the event and the log that
// published the event. If another program wrote the entry, the result has an error.
func (entry Entry) Read(stream, position string) posthorn.SourceEntry {
	read := posthorn.SourceEntry{Stream: stream, Position: position}
	log := sourcePattern.FindStringSubmatch(entry.Source)
	if log == nil {
		read.Err = errors.New("the source of the entry is not a Posthorn log")
		return read
	}
	read.Log, read.Namespace = log[1], log[2]
	read.Event, read.Err = entry.event(stream)
	return read
}

func (entry Entry) event(stream string) (posthorn.Event, error) {
	id, err := strconv.ParseInt(entry.ID, 10, 64)
	if err != nil || id < 1 {
		return posthorn.Event{}, errors.New("the id of the entry is not the id of an event")
	}
	if entry.Type == "" || len(entry.Data) == 0 {
		return posthorn.Event{}, errors.New("the entry has no type or no data")
	}
	at, err := time.Parse(time.RFC3339Nano, entry.Time)
	if err != nil {
		return posthorn.Event{}, errors.New("the time of the entry is not in RFC 3339")
	}
	e := posthorn.Event{
		ID: id, Stream: stream, Type: entry.Type, Key: entry.Subject,
		Payload: entry.Data, Metadata: json.RawMessage("{}"), PublishedAt: at,
	}
	if entry.Metadata != "" {
		e.Metadata = json.RawMessage(entry.Metadata)
	}
	if entry.Tags != "" {
		if err := json.Unmarshal([]byte(entry.Tags), &e.Tags); err != nil {
			return posthorn.Event{}, fmt.Errorf("the tags of the entry are not a JSON array of strings: %w", err)
		}
	}
	if !json.Valid(e.Payload) || !json.Valid(e.Metadata) {
		return posthorn.Event{}, errors.New("the data or the metadata of the entry is not JSON")
	}
	for _, text := range append([]string{e.Stream, e.Type, e.Key, string(e.Payload), string(e.Metadata)}, e.Tags...) {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return posthorn.Event{}, errors.New("the entry has text that is not UTF-8, or a zero character, which Postgres cannot hold")
		}
	}
	return e, nil
}
