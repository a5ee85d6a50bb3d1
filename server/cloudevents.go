package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthorn/posthorn"
)

// The content types of CloudEvents as JSON.
const (
	cloudEventsJSON  = "application/cloudevents+json"
	cloudEventsBatch = "application/cloudevents-batch+json"
)

// cloudEvent documents CloudEvents; what reads them knows extensions too.
type cloudEvent struct {
	_               struct{}        `additionalProperties:"true"`
	SpecVersion     string          `json:"specversion" enum:"1.0"`
	ID              string          `json:"id" doc:"Together with source it makes the event unique: sent again, it is not published again"`
	Source          string          `json:"source"`
	Type            string          `json:"type" example:"order.placed"`
	Subject         string          `json:"subject,omitempty" doc:"Becomes the key, unless there is a partitionkey"`
	Time            string          `json:"time,omitempty" format:"date-time"`
	DataContentType string          `json:"datacontenttype,omitempty"`
	DataSchema      string          `json:"dataschema,omitempty"`
	PartitionKey    string          `json:"partitionkey,omitempty" doc:"Becomes the key"`
	PosthornStream  string          `json:"posthornstream,omitempty" doc:"The stream it goes to. Default: default"`
	Data            json.RawMessage `json:"data,omitempty"`
	DataBase64      string          `json:"data_base64,omitempty"`
}

// kept is what an event's metadata keep of the CloudEvent that it was, under
// cloudevent. Extensions are beside it, under their own names.
type kept struct {
	ID              string `json:"id"`
	Source          string `json:"source"`
	Subject         string `json:"subject,omitempty"`
	Time            string `json:"time,omitempty"`
	DataContentType string `json:"datacontenttype,omitempty"`
	DataSchema      string `json:"dataschema,omitempty"`
	Base64          bool   `json:"base64,omitempty"` // the payload is the data in base64, as a string
}

const keptAs = "cloudevent"

// attributes are those of a CloudEvent, as text or as JSON has them.
type attributes map[string]any

var attributeName = regexp.MustCompile(`^[a-z0-9]+$`)

// decodeCloudEvents reads one in structured mode, or a batch of them.
func decodeCloudEvents(body []byte, batch bool) ([]posthorn.Message, error) {
	documents := []json.RawMessage{body}
	if batch {
		documents = nil
		if err := json.Unmarshal(body, &documents); err != nil {
			return nil, badRequest(fmt.Sprintf("the body is no batch of CloudEvents: %v", err), "Send a JSON array of them.")
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
		return posthorn.Message{}, badRequest("this is no CloudEvent: it is no JSON object", "It looks like {\"specversion\": \"1.0\", ...}.")
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
				return posthorn.Message{}, badRequest("data_base64 is no string", "")
			}
			hasEncoded = true
		default:
			value, err := attribute(name, raw)
			if err != nil {
				return posthorn.Message{}, err
			}
			found[name] = value
		}
	}
	if hasEncoded {
		if data != nil && string(data) != "null" {
			return posthorn.Message{}, badRequest("there are both data and data_base64", "Send one of them.")
		}
		if _, err := base64.StdEncoding.DecodeString(encoded); err != nil {
			return posthorn.Message{}, badRequest("data_base64 is not base64", "")
		}
		data, _ = json.Marshal(encoded)
	}
	return found.message(data, hasEncoded)
}

// attribute reads an attribute: a text, a boolean or an integer.
func attribute(name string, raw json.RawMessage) (any, error) {
	if !attributeName.MatchString(name) {
		return nil, badRequest(fmt.Sprintf("%.100q is no name of an attribute", name), "Names have lower-case letters and digits only.")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, badRequest("the attribute "+name+" cannot be read", "")
	}
	switch value := value.(type) {
	case string, bool:
		return value, nil
	case json.Number:
		if n, err := value.Int64(); err == nil && int64(int32(n)) == n {
			return value, nil
		}
	}
	return nil, badRequest("the attribute "+name+" is no text, boolean or integer", "What is more complex goes into data.")
}

// decodeBinary reads one whose attributes are headers, and whose data is the
// body.
func decodeBinary(header http.Header, mediaType string, body []byte) ([]posthorn.Message, error) {
	found := attributes{}
	for name, values := range header {
		name, ok := strings.CutPrefix(strings.ToLower(name), "ce-")
		if !ok {
			continue
		}
		if !attributeName.MatchString(name) {
			return nil, badRequest(fmt.Sprintf("%.100q is no name of an attribute", name), "Names have lower-case letters and digits only.")
		}
		value, err := url.PathUnescape(values[0])
		if err != nil || len(values) > 1 || !isText(value) {
			return nil, badRequest("the header ce-"+name+" cannot be read", "Send it once, with what is not ASCII percent-encoded as UTF-8.")
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

// dataOf makes JSON of a body: as it is, as a string, or as a string in base64.
func dataOf(mediaType string, body []byte) (data json.RawMessage, encoded bool, err error) {
	switch {
	case len(body) == 0:
		return nil, false, nil
	case isJSON(mediaType):
		if !utf8.Valid(body) || !json.Valid(body) {
			return nil, false, badRequest("the body is not valid JSON", "Send it as JSON, or say with the content type what it is.")
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

// message is the event that a CloudEvent becomes.
func (a attributes) message(data json.RawMessage, encoded bool) (posthorn.Message, error) {
	var m posthorn.Message
	for _, name := range []string{"specversion", "id", "source", "type"} {
		if text, _ := a[name].(string); text == "" {
			return m, badRequest("the attribute "+name+" is missing", "A CloudEvent has specversion, id, source and type.")
		}
	}
	if a["specversion"] != "1.0" {
		return m, badRequest("this is no CloudEvent of version 1.0", "Send specversion 1.0.")
	}
	keep := kept{
		ID: a.text("id"), Source: a.text("source"), Subject: a.text("subject"), Time: a.text("time"),
		DataContentType: a.text("datacontenttype"), DataSchema: a.text("dataschema"), Base64: encoded,
	}
	if _, err := time.Parse(time.RFC3339, keep.Time); keep.Time != "" && err != nil {
		return m, badRequest("the attribute time is no time", "Write it like 2026-01-31T12:00:00Z.")
	}
	m = posthorn.Message{
		Type: a.text("type"), Stream: a.text("posthornstream"), Key: keep.Subject,
		DedupKey: uniqueName(keep.Source, keep.ID), Payload: json.RawMessage("null"),
		Metadata: map[string]any{keptAs: keep},
	}
	if key := a.text("partitionkey"); key != "" {
		m.Key = key
	}
	if data != nil {
		m.Payload = data
	}
	for name, value := range a {
		if !slices.Contains(ownAttributes, name) {
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

// ownAttributes are no extensions, or ours: those that say what became of an
// event are left out when it comes back in.
var ownAttributes = []string{
	"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", "cloudevent",
	"posthornstream", "posthornid", "posthorndelivery", "posthornsealed",
}

// uniqueName is the dedup key of a CloudEvent, of bounded length.
func uniqueName(source, id string) string {
	sum := sha256.Sum256([]byte(source + "\x00" + id))
	return "cloudevent:" + hex.EncodeToString(sum[:])
}

// cloudEventOf is an event as a CloudEvent in structured mode: the one that it
// was, or one made of what it is.
func cloudEventOf(namespace string, e eventView) (json.RawMessage, error) {
	out := map[string]any{}
	var metadata map[string]json.RawMessage
	_ = json.Unmarshal(e.Metadata, &metadata) // metadata of others may hold anything
	for name, raw := range metadata {
		if value, err := attribute(name, raw); err == nil && !slices.Contains(ownAttributes, name) {
			out[name] = value
		}
	}
	keep := kept{ID: fmt.Sprint(e.ID), Source: "/namespaces/" + namespace, Subject: e.Key, Time: e.PublishedAt.UTC().Format(time.RFC3339Nano)}
	if raw, ok := metadata[keptAs]; ok {
		var was kept
		if json.Unmarshal(raw, &was) == nil && was.ID != "" && was.Source != "" {
			keep = was
		}
	}
	maps.Copy(out, map[string]any{"specversion": "1.0", "type": e.Type, "posthornid": fmt.Sprint(e.ID)})
	for name, value := range map[string]string{
		"id": keep.ID, "source": keep.Source, "subject": keep.Subject, "time": keep.Time,
		"datacontenttype": keep.DataContentType, "dataschema": keep.DataSchema,
	} {
		if value != "" {
			out[name] = value
		}
	}
	if e.Stream != "default" {
		out["posthornstream"] = e.Stream
	}
	if e.Delivery > 0 {
		out["posthorndelivery"] = e.Delivery
	}
	switch {
	case e.Sealed:
		out["posthornsealed"] = true
	case keep.Base64:
		out["data_base64"] = e.Payload
	case string(e.Payload) != "null":
		out["data"] = e.Payload
	}
	return json.Marshal(out)
}

// wantsCloudEvents reports whether a client would rather have CloudEvents.
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
