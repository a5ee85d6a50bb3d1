package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// The headers of a record are those of the Kafka protocol binding of CloudEvents, in
// binary mode. The stream is an extension, since the name of a topic may be shortened.
const (
	headerPrefix = "ce_"
	contentType  = "content-type"
	streamHeader = headerPrefix + "stream"
)

// newRecord returns the record of an event.
func newRecord(topic, source string, e *posthorn.Event) *kgo.Record {
	entry := relay.NewEntry(source, e)
	r := &kgo.Record{Topic: topic, Value: entry.Data, Headers: make([]kgo.RecordHeader, 0, 10)}
	if e.Key != "" {
		r.Key = []byte(e.Key)
	}
	for _, a := range [...]struct{ name, value string }{
		{relay.SpecVersion, "1.0"},
		{relay.ID, entry.ID},
		{relay.SourceName, entry.Source},
		{relay.Type, entry.Type},
		{relay.Time, entry.Time},
		{relay.Subject, entry.Subject},
		{relay.Tags, entry.Tags},
		{relay.Metadata, entry.Metadata},
	} {
		if a.value != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: headerPrefix + a.name, Value: []byte(a.value)})
		}
	}
	r.Headers = append(r.Headers,
		kgo.RecordHeader{Key: streamHeader, Value: []byte(e.Stream)},
		kgo.RecordHeader{Key: contentType, Value: []byte("application/json")})
	return r
}

// overhead is more than Kafka needs in a batch beside the keys, values and headers of a
// record: the head of the batch, and the lengths.
const overhead = 256

// size is at least the size that a record has in a batch of its own.
func size(r *kgo.Record) int {
	n := overhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 10
	}
	return n
}

// entry returns the CloudEvent of a record.
func entry(r *kgo.Record) (relay.Entry, error) {
	e := relay.Entry{Data: r.Value}
	version := ""
	for _, h := range r.Headers {
		value := string(h.Value)
		switch h.Key {
		case headerPrefix + relay.SpecVersion:
			version = value
		case headerPrefix + relay.ID:
			e.ID = value
		case headerPrefix + relay.SourceName:
			e.Source = value
		case headerPrefix + relay.Type:
			e.Type = value
		case headerPrefix + relay.Time:
			e.Time = value
		case headerPrefix + relay.Subject:
			e.Subject = value
		case headerPrefix + relay.Tags:
			e.Tags = value
		case headerPrefix + relay.Metadata:
			e.Metadata = value
		}
	}
	if version != "1.0" {
		return relay.Entry{}, errors.New("the record is not a CloudEvent in binary mode")
	}
	return e, nil
}

// streamOf returns the stream that a record names.
func streamOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == streamHeader {
			return string(h.Value)
		}
	}
	return ""
}

// decode decodes a record into an event. The result has an error if another program
// wrote the record.
func decode(stream, position string, r *kgo.Record) posthorn.SourceEntry {
	e, err := entry(r)
	if err != nil {
		return posthorn.SourceEntry{Stream: stream, Position: position, Err: err}
	}
	return e.Read(stream, position)
}
