// Package relay says what an event looks like in a broker: a CloudEvent, whose
// attributes are the fields of a Redis entry or the headers of a NATS message.
// Packages redis and nats below it write and read them.
package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/posthorn/posthorn"
)

// Entry is an event as brokers have it. ID is the event's id in the log of
// Source; what is empty is left out.
type Entry struct {
	ID       string // in decimal
	Source   string // see [Source]
	Type     string
	Time     string // when it was published, as RFC 3339 with nanoseconds
	Subject  string // the key
	Tags     string // a JSON array
	Metadata string // a JSON object
	Data     []byte // the payload
}

// The names of attributes, which Redis has as they are and NATS after "ce-".
// Data is a field in Redis only.
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

// Source is the CloudEvents source of what a log publishes: no two logs have the
// same, so source and id together are unique.
func Source(origin, namespace string) string { return "posthorn:" + origin + ":" + namespace }

// sources are the CloudEvents sources of logs.
var sources = regexp.MustCompile(`^posthorn:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([a-z][a-z0-9_-]{0,30})$`)

// NewEntry is an event as brokers have it.
func NewEntry(source string, e *posthorn.Event) Entry {
	entry := Entry{
		ID: strconv.FormatInt(e.ID, 10), Source: source, Type: e.Type, Subject: e.Key,
		Time: e.PublishedAt.UTC().Format(time.RFC3339Nano), Data: e.Payload,
	}
	if len(e.Tags) > 0 {
		tags, _ := json.Marshal(e.Tags) // texts cannot fail
		entry.Tags = string(tags)
	}
	if string(e.Metadata) != "{}" {
		entry.Metadata = string(e.Metadata)
	}
	return entry
}

// Read is the event that the entry was made of, with the log that published it, as
// an entry at a position of a stream. Where it is no event of a log, it has an error.
func (entry Entry) Read(stream, position string) posthorn.SourceEntry {
	read := posthorn.SourceEntry{Stream: stream, Position: position}
	log := sources.FindStringSubmatch(entry.Source)
	if log == nil {
		read.Err = errors.New("its source is no log")
		return read
	}
	read.Log, read.Namespace = log[1], log[2]
	read.Event, read.Err = entry.event(stream)
	return read
}

func (entry Entry) event(stream string) (posthorn.Event, error) {
	id, err := strconv.ParseInt(entry.ID, 10, 64)
	if err != nil || id < 1 {
		return posthorn.Event{}, errors.New("its id is none of a log")
	}
	if entry.Type == "" || len(entry.Data) == 0 {
		return posthorn.Event{}, errors.New("it has no type or no data")
	}
	at, err := time.Parse(time.RFC3339Nano, entry.Time)
	if err != nil {
		return posthorn.Event{}, errors.New("its time is none")
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
			return posthorn.Event{}, fmt.Errorf("its tags are no JSON array of texts: %w", err)
		}
	}
	if !json.Valid(e.Payload) || !json.Valid(e.Metadata) {
		return posthorn.Event{}, errors.New("its data or metadata is no JSON")
	}
	return e, nil
}
