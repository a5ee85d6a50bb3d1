package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// A line is an event: a JSON object with id, stream, type, key, tags,
// published_at, payload and metadata, those that are empty left out. Payload and
// metadata stand in it byte for byte as they are in the log. JSON may have line
// ends and white space around it, which would not survive that: then the member is
// payload_text, the same as a JSON string.
type line struct {
	ID           int64           `json:"id"`
	Stream       string          `json:"stream"`
	Type         string          `json:"type"`
	Key          *string         `json:"key"`
	Tags         []string        `json:"tags"`
	PublishedAt  time.Time       `json:"published_at"`
	Payload      json.RawMessage `json:"payload"`
	PayloadText  *string         `json:"payload_text"`
	Metadata     json.RawMessage `json:"metadata"`
	MetadataText *string         `json:"metadata_text"`
}

func appendLine(b []byte, e *pg.StoredEvent) []byte {
	b = append(b, `{"id":`...)
	b = strconv.AppendInt(b, e.ID, 10)
	b = append(b, `,"stream":`...)
	b = appendText(b, e.Stream)
	b = append(b, `,"type":`...)
	b = appendText(b, e.Type)
	if e.Key != nil {
		b = append(b, `,"key":`...)
		b = appendText(b, *e.Key)
	}
	for i, tag := range e.Tags {
		if i == 0 {
			b = append(b, `,"tags":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendText(b, tag)
	}
	if len(e.Tags) > 0 {
		b = append(b, ']')
	}
	b = append(b, `,"published_at":"`...)
	b = e.PublishedAt.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	b = appendDocument(b, "payload", e.Payload)
	if string(e.Metadata) != "{}" {
		b = appendDocument(b, "metadata", e.Metadata)
	}
	return append(b, "}\n"...)
}

func appendDocument(b []byte, name string, document []byte) []byte {
	verbatim := !bytes.ContainsAny(document, "\r\n") && len(bytes.Trim(document, " \t")) == len(document)
	b = append(b, `,"`...)
	b = append(b, name...)
	if verbatim {
		b = append(b, `":`...)
		return append(b, document...)
	}
	b = append(b, `_text":`...)
	return appendText(b, string(document))
}

// appendText writes a JSON string with the fewest possible escapes. It uses no library,
// so that the same text gives the same bytes in every version of Posthorn.
func appendText(b []byte, text string) []byte {
	b = append(b, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			const digits = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// parseLine reads a line of appendLine.
func parseLine(text []byte) (pg.StoredEvent, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return pg.StoredEvent{}, errors.New("a line is no JSON object of an event")
	}
	e := pg.StoredEvent{ID: l.ID, Stream: l.Stream, Type: l.Type, Key: l.Key, Tags: l.Tags, PublishedAt: l.PublishedAt}
	e.Payload = documentOf(l.Payload, l.PayloadText)
	if e.Metadata = documentOf(l.Metadata, l.MetadataText); e.Metadata == nil {
		e.Metadata = []byte("{}")
	}
	if e.ID < 1 || e.Stream == "" || e.Type == "" || e.Payload == nil || e.PublishedAt.IsZero() {
		return e, errors.New("a line lacks a field of an event")
	}
	return e, nil
}

func documentOf(verbatim json.RawMessage, text *string) []byte {
	if text != nil {
		return []byte(*text)
	}
	return verbatim
}

// sameEvent compares the archived fields of events. It returns the name of the first
// one that differs, or an empty string.
func sameEvent(a, b *pg.StoredEvent) (differs string) {
	switch {
	case a.Stream != b.Stream:
		return "stream"
	case a.Type != b.Type:
		return "type"
	case (a.Key == nil) != (b.Key == nil), a.Key != nil && *a.Key != *b.Key:
		return "key"
	case strings.Join(a.Tags, "\x00") != strings.Join(b.Tags, "\x00"):
		return "tags"
	case !a.PublishedAt.Equal(b.PublishedAt):
		return "published_at"
	case !bytes.Equal(a.Payload, b.Payload):
		return "payload"
	case !bytes.Equal(a.Metadata, b.Metadata):
		return "metadata"
	}
	return ""
}
