package nats

import (
	"errors"
	"strconv"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// The headers of a message: those of CloudEvents in binary mode, and those of JetStream.
const (
	headerPrefix = "ce-"
	contentType  = "content-type"
	msgID        = "Nats-Msg-Id"
	expectedLast = "Nats-Expected-Last-Sequence"
)

// attributes are the headers for the attributes of an entry, in the order of [values].
var attributes = [...]string{
	headerPrefix + relay.SpecVersion, headerPrefix + relay.ID, headerPrefix + relay.SourceName, headerPrefix + relay.Type,
	headerPrefix + relay.Time, headerPrefix + relay.Subject, headerPrefix + relay.Tags, headerPrefix + relay.Metadata,
}

func values(e *relay.Entry) [len(attributes)]string {
	return [...]string{"1.0", e.ID, e.Source, e.Type, e.Time, e.Subject, e.Tags, e.Metadata}
}

// headers builds the headers of successive messages in one map, which costs half as
// much as a new map for each message. The client copies the headers when it publishes.
type headers struct {
	header natsgo.Header
	values [len(attributes) + 2][1]string
}

func newHeaders() *headers {
	h := &headers{header: make(natsgo.Header, len(attributes)+3)}
	h.header[contentType] = []string{"application/json"}
	return h
}

// of returns the headers of an event that must follow the sequence last. They are valid
// until the next call.
func (h *headers) of(e *relay.Entry, last uint64) natsgo.Header {
	for i, value := range values(e) {
		if value == "" {
			delete(h.header, attributes[i])
			continue
		}
		h.set(i, attributes[i], percentEncode(value))
	}
	h.set(len(attributes), msgID, e.ID)
	h.set(len(attributes)+1, expectedLast, strconv.FormatUint(last, 10))
	return h.header
}

func (h *headers) set(i int, name, value string) {
	h.values[i][0] = value
	h.header[name] = h.values[i][:]
}

// entry parses the headers of a message.
func entry(h natsgo.Header, data []byte) (relay.Entry, error) {
	var v [len(attributes)]string
	for i, name := range attributes {
		encoded := get(h, name)
		decoded, err := percentDecode(encoded)
		if err != nil {
			return relay.Entry{}, errors.New("the header " + name + " is not percent-encoded")
		}
		v[i] = decoded
	}
	if v[0] != "1.0" {
		return relay.Entry{}, errors.New("the message is not a CloudEvent in binary mode")
	}
	return relay.Entry{ID: v[1], Source: v[2], Type: v[3], Time: v[4], Subject: v[5], Tags: v[6], Metadata: v[7], Data: data}, nil
}

func get(h natsgo.Header, name string) string {
	if values := h[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// decode decodes a message into an event. The result has an error if another program
// published the message.
func decode(stream, position string, h natsgo.Header, data []byte) posthorn.SourceEntry {
	e, err := entry(h, data)
	if err != nil {
		return posthorn.SourceEntry{Stream: stream, Position: position, Err: err}
	}
	return e.Read(stream, position)
}

// percentEncode encodes the value of a header as the HTTP binding of CloudEvents
// requires: the space, the quote, the percent sign and all bytes that are not printable
// ASCII.
func percentEncode(text string) string { return escapeBytes(text, '%', &headerBytes) }

var headerBytes = byteSet(func(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' })

// percentDecode decodes the value of a header. A plus sign is not a space.
func percentDecode(text string) (string, error) { return unescapeBytes(text, '%') }
