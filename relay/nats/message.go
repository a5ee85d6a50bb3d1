package nats

import (
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// The headers of a message: those of CloudEvents in binary mode, and JetStream's.
const (
	headerPrefix = "ce-"
	contentType  = "content-type"
	msgID        = "Nats-Msg-Id"
	expectedLast = "Nats-Expected-Last-Sequence"
)

// attributes are those that become headers, in the order of [values].
var attributes = [...]string{
	headerPrefix + relay.SpecVersion, headerPrefix + relay.ID, headerPrefix + relay.SourceName, headerPrefix + relay.Type,
	headerPrefix + relay.Time, headerPrefix + relay.Subject, headerPrefix + relay.Tags, headerPrefix + relay.Metadata,
}

func values(e *relay.Entry) [len(attributes)]string {
	return [...]string{"1.0", e.ID, e.Source, e.Type, e.Time, e.Subject, e.Tags, e.Metadata}
}

// headers makes the headers of one message after another in one map, which costs
// half as much as a map each. The client copies them when it publishes.
type headers struct {
	header natsgo.Header
	values [len(attributes) + 2][1]string
}

func newHeaders() *headers {
	h := &headers{header: make(natsgo.Header, len(attributes)+3)}
	h.header[contentType] = []string{"application/json"}
	return h
}

// of returns the headers of an event that is expected behind a sequence. They are
// good until the next call.
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

// entry is the event of a message, as brokers have it.
func entry(h natsgo.Header, data []byte) (relay.Entry, error) {
	var v [len(attributes)]string
	for i, name := range attributes {
		encoded := get(h, name)
		decoded, err := percentDecode(encoded)
		if err != nil {
			return relay.Entry{}, errors.New("its header " + name + " is not percent-encoded as CloudEvents has it")
		}
		v[i] = decoded
	}
	if v[0] != "1.0" {
		return relay.Entry{}, errors.New("it is no CloudEvent in binary mode")
	}
	return relay.Entry{ID: v[1], Source: v[2], Type: v[3], Time: v[4], Subject: v[5], Tags: v[6], Metadata: v[7], Data: data}, nil
}

func get(h natsgo.Header, name string) string {
	if values := h[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// decode is the event of a message at a position of a stream.
func decode(stream, position string, h natsgo.Header, data []byte) posthorn.SourceEntry {
	e, err := entry(h, data)
	if err != nil {
		return posthorn.SourceEntry{Stream: stream, Position: position, Err: err}
	}
	return e.Read(stream, position)
}

// percentEncode writes a value as the HTTP binding of CloudEvents says: what is
// not printable ASCII, the space, the quote and the percent sign are encoded.
func percentEncode(text string) string {
	plain := func(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' }
	i := 0
	for i < len(text) && plain(text[i]) {
		i++
	}
	if i == len(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 2*(len(text)-i)/3)
	b.WriteString(text[:i])
	for ; i < len(text); i++ {
		if c := text[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

// percentDecode is the value. A plus is a plus here.
func percentDecode(text string) (string, error) {
	i := strings.IndexByte(text, '%')
	if i < 0 {
		return text, nil
	}
	b := make([]byte, 0, len(text))
	for ; i >= 0; i = strings.IndexByte(text, '%') {
		b = append(b, text[:i]...)
		if len(text) < i+3 {
			return "", errors.New("an escape is cut off")
		}
		c, err := hex.DecodeString(text[i+1 : i+3])
		if err != nil {
			return "", err
		}
		b = append(b, c...)
		text = text[i+3:]
	}
	return string(append(b, text...)), nil
}
