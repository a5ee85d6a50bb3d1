package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/cloudevent"
	"github.com/posthorn/posthorn/internal/pg"
)

// The content types of CloudEvents as JSON.
const (
	cloudEventsJSON  = cloudevent.ContentType
	cloudEventsBatch = cloudevent.BatchContentType
)

// cloudEvent documents CloudEvents. The decoders accept extension attributes too.
type cloudEvent struct {
	_               struct{}        `additionalProperties:"true"`
	SpecVersion     string          `json:"specversion" enum:"1.0"`
	ID              string          `json:"id" doc:"Together with source it identifies the event: if it is sent again, it is not published again"`
	Source          string          `json:"source"`
	Type            string          `json:"type" example:"order.placed"`
	Subject         string          `json:"subject,omitempty" doc:"The key of the event, unless there is a partitionkey"`
	Time            string          `json:"time,omitempty" format:"date-time"`
	DataContentType string          `json:"datacontenttype,omitempty"`
	DataSchema      string          `json:"dataschema,omitempty"`
	PartitionKey    string          `json:"partitionkey,omitempty" doc:"The key of the event"`
	PosthornStream  string          `json:"posthornstream,omitempty" doc:"The stream of the event. Default: default"`
	Data            json.RawMessage `json:"data,omitempty"`
	DataBase64      string          `json:"data_base64,omitempty"`
}

// attributes are the attributes of a CloudEvent: texts, or values of JSON.
type attributes map[string]any

// decodeCloudEvents decodes a CloudEvent in structured mode, or a batch.
func decodeCloudEvents(body []byte, batch bool) ([]posthorn.Message, error) {
	documents := []json.RawMessage{body}
	if batch {
		var err error
		if documents, err = decodeEvents[json.RawMessage](body); err != nil {
			return nil, err
		}
	}
	all := make([]posthorn.Message, len(documents))
	for i, document := range documents {
		var err error
		if all[i], err = decodeStructured(document); err != nil {
			if p, ok := err.(*problem); ok && batch {
				p.Detail = fmt.Sprintf("event %d: %s", i, p.Detail)
			}
			return nil, err
		}
	}
	return all, nil
}

func decodeStructured(document json.RawMessage) (posthorn.Message, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(document, &fields); err != nil || fields == nil {
		return posthorn.Message{}, badRequest("the CloudEvent is not a JSON object", "Send {\"specversion\": \"1.0\", ...}.")
	}
	found := attributes{}
	var data json.RawMessage
	encoded := ""
	hasEncoded := false
	for name, raw := range fields {
		switch {
		case name == "data":
			data = raw
		case string(raw) == "null":
		case name == "data_base64":
			if json.Unmarshal(raw, &encoded) != nil {
				return posthorn.Message{}, badRequest("data_base64 is not a string", "")
			}
			hasEncoded = true
		default:
			value, err := cloudevent.Attribute(name, raw)
			if err != nil {
				return posthorn.Message{}, badRequest(err.Error(), posthorn.Hint(err))
			}
			found[name] = value
		}
	}
	if hasEncoded {
		if data != nil && string(data) != "null" {
			return posthorn.Message{}, badRequest("the CloudEvent has both data and data_base64", "Send one of them.")
		}
		if _, err := base64.StdEncoding.DecodeString(encoded); err != nil {
			return posthorn.Message{}, badRequest("data_base64 is not base64", "")
		}
		data, _ = json.Marshal(encoded)
	}
	return found.message(data, hasEncoded)
}

// decodeBinary decodes a CloudEvent in binary mode: its attributes are headers, its data
// is the body.
func decodeBinary(header http.Header, mediaType string, body []byte) ([]posthorn.Message, error) {
	found := attributes{}
	for name, values := range header {
		name, ok := strings.CutPrefix(strings.ToLower(name), "ce-")
		if !ok {
			continue
		}
		if err := cloudevent.CheckName(name); err != nil {
			return nil, badRequest(err.Error(), posthorn.Hint(err))
		}
		value, err := url.PathUnescape(values[0])
		if err != nil || len(values) > 1 || !isText(value) {
			return nil, badRequest("the header ce-"+name+" cannot be read", "Send it once, and percent-encode characters that are not ASCII.")
		}
		found[name] = value
	}
	if contentType := header.Get("Content-Type"); contentType != "" {
		found["datacontenttype"] = contentType
	}
	data, encoded, err := dataOf(mediaType, body)
	if err != nil {
		return nil, err
	}
	m, err := found.message(data, encoded)
	return []posthorn.Message{m}, err
}

// dataOf returns a body as JSON: unchanged, as a string, or as a string in base64.
func dataOf(mediaType string, body []byte) (data json.RawMessage, encoded bool, err error) {
	switch {
	case len(body) == 0:
		return nil, false, nil
	case isJSON(mediaType):
		if !utf8.Valid(body) || !json.Valid(body) {
			return nil, false, badRequest("the body is not valid JSON", "Send JSON, or the content type of the body.")
		}
		return body, false, nil
	case isTextual(mediaType) && isText(string(body)):
		data, err = json.Marshal(string(body))
	default:
		encoded = true
		data, err = json.Marshal(base64.StdEncoding.EncodeToString(body))
	}
	return data, encoded, err
}

func isJSON(mediaType string) bool {
	return mediaType == "" || mediaType == "application/json" || mediaType == "text/json" || strings.HasSuffix(mediaType, "+json")
}

func isTextual(mediaType string) bool {
	return strings.HasPrefix(mediaType, "text/") || mediaType == "application/xml" || strings.HasSuffix(mediaType, "+xml")
}

// message converts a CloudEvent to a message.
func (a attributes) message(data json.RawMessage, encoded bool) (posthorn.Message, error) {
	var m posthorn.Message
	for _, name := range []string{"specversion", "id", "source", "type"} {
		if text, _ := a[name].(string); text == "" {
			return m, badRequest("the attribute "+name+" is missing", "A CloudEvent has specversion, id, source and type.")
		}
	}
	if a["specversion"] != "1.0" {
		return m, badRequest("the specversion is not 1.0", "Send specversion 1.0.")
	}
	keep := cloudevent.Kept{
		ID: a.text("id"), Source: a.text("source"), Subject: a.text("subject"), Time: a.text("time"),
		DataContentType: a.text("datacontenttype"), DataSchema: a.text("dataschema"), Base64: encoded,
	}
	if _, err := time.Parse(time.RFC3339, keep.Time); keep.Time != "" && err != nil {
		return m, badRequest("the attribute time is not a time", "Write it like 2026-01-31T12:00:00Z.")
	}
	m = posthorn.Message{
		Type: a.text("type"), Stream: a.text("posthornstream"), Key: keep.Subject,
		DedupKey: dedupKeyOf(keep.Source, keep.ID), Payload: json.RawMessage("null"),
		Metadata: map[string]any{cloudevent.MetadataKey: keep},
	}
	if key := a.text("partitionkey"); key != "" {
		m.Key = key
	}
	if data != nil {
		m.Payload = data
	}
	for name, value := range a {
		if !slices.Contains(cloudevent.OwnAttributes, name) {
			m.Metadata[name] = value
		}
	}
	return m, nil
}

func (a attributes) text(name string) string {
	switch value := a[name].(type) {
	case string:
		return value
	case nil:
		return ""
	default:
		return fmt.Sprint(value)
	}
}

// dedupKeyOf returns the dedup key of a CloudEvent. It is a hash, because source and id
// may be long.
func dedupKeyOf(source, id string) string {
	sum := sha256.Sum256([]byte(source + "\x00" + id))
	return "cloudevent:" + hex.EncodeToString(sum[:])
}

func cloudEventOf(namespace string, e eventView) (json.RawMessage, error) {
	return cloudevent.Encode(namespace, pg.Event{
		ID: e.ID, Stream: e.Stream, Type: e.Type, Key: e.Key, Payload: e.Payload, Metadata: e.Metadata,
		PublishedAt: e.PublishedAt, Delivery: e.Delivery,
	}, e.Sealed)
}

// wantsCloudEvents tells whether a client prefers CloudEvents to plain JSON.
func wantsCloudEvents(accept string) bool {
	for _, part := range strings.Split(accept, ",") {
		mediaType, _, _ := mime.ParseMediaType(strings.TrimSpace(part))
		if mediaType == cloudEventsJSON || mediaType == cloudEventsBatch {
			return true
		}
		if mediaType == "application/json" {
			return false
		}
	}
	return false
}

func batchOf(namespace string, events []eventView) ([]json.RawMessage, error) {
	batch := make([]json.RawMessage, len(events))
	for i := range events {
		var err error
		if batch[i], err = cloudEventOf(namespace, events[i]); err != nil {
			return nil, err
		}
	}
	return batch, nil
}
