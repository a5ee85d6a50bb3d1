// Package cloudevent writes events as CloudEvents 1.0, for HTTP clients and webhooks. Package server reads CloudEvents that
// are published; it has the names of attributes from here, so that an event that came in as a CloudEvent goes out as the
// same.
package cloudevent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// The content types of CloudEvents as JSON.
const (
	ContentType      = "application/cloudevents+json"
	BatchContentType = "application/cloudevents-batch+json"
)

// MetadataKey is where the metadata of an event have a [Kept].
const MetadataKey = "cloudevent"

// Kept has the attributes of the CloudEvent that was published, as far as the event has no fields for them. Extensions are
// metadata under their own names.
type Kept struct {
	ID              string `json:"id"`
	Source          string `json:"source"`
	Subject         string `json:"subject,omitempty"`
	Time            string `json:"time,omitempty"`
	DataContentType string `json:"datacontenttype,omitempty"`
	DataSchema      string `json:"dataschema,omitempty"`
	Base64          bool   `json:"base64,omitempty"` // the payload is the data in base64, as a string
}

// OwnAttributes are those of the specification, and ours: they are no extensions.
var OwnAttributes = []string{
	"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", MetadataKey,
	"posthornstream", "posthornid", "posthorndelivery", "posthornsealed",
}

var attributeName = regexp.MustCompile(`^[a-z0-9]+$`)

// CheckName returns an error if an attribute cannot have the name.
func CheckName(name string) error {
	if attributeName.MatchString(name) {
		return nil
	}
	return pg.Invalid(fmt.Sprintf("%.100q is no name of an attribute", name), "Names have lower-case letters and digits only.")
}

// Attribute reads the value of an attribute: a text, a boolean or an integer.
func Attribute(name string, raw json.RawMessage) (any, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, pg.Invalid("the attribute "+name+" cannot be read", "")
	}
	switch value := value.(type) {
	case string, bool:
		return value, nil
	case json.Number:
		if n, err := value.Int64(); err == nil && int64(int32(n)) == n {
			return value, nil
		}
	}
	return nil, pg.Invalid("the attribute "+name+" is no text, boolean or integer", "What is more complex goes into data.")
}

// Encode writes an event as a CloudEvent in structured mode: the one that was published, or one made of the event's fields.
// A sealed event has no data.
func Encode(namespace string, e pg.Event, sealed bool) (json.RawMessage, error) {
	metadata := metadataOf(e)
	out := map[string]any{}
	for name, raw := range metadata {
		if value, err := Attribute(name, raw); err == nil && !slices.Contains(OwnAttributes, name) {
			out[name] = value
		}
	}
	keep := keptOf(namespace, e, metadata)
	for name, value := range keep.attributes(e) {
		out[name] = value
	}
	out["posthornid"] = fmt.Sprint(e.ID)
	if e.Stream != "default" {
		out["posthornstream"] = e.Stream
	}
	if e.Delivery > 0 {
		out["posthorndelivery"] = e.Delivery
	}
	switch {
	case sealed:
		out["posthornsealed"] = true
	case keep.Base64:
		out["data_base64"] = e.Payload
	case string(e.Payload) != "null":
		out["data"] = e.Payload
	}
	return json.Marshal(out)
}

// EncodeBatch writes events as a batch of CloudEvents.
func EncodeBatch(namespace string, events []pg.Event) (json.RawMessage, error) {
	all := make([]json.RawMessage, len(events))
	for i, e := range events {
		var err error
		if all[i], err = Encode(namespace, e, false); err != nil {
			return nil, err
		}
	}
	return json.Marshal(all)
}

// longestHeader is the size from which an attribute is left out of the headers: servers refuse requests whose headers are
// larger than about 8 KiB.
const longestHeader = 1024

// Headers are the attributes of an event as headers, for requests whose body is the payload: a CloudEvent in binary mode.
// Extensions are left out, since metadata may be larger than headers can be.
func Headers(namespace string, e pg.Event) map[string]string {
	attributes := keptOf(namespace, e, metadataOf(e)).attributes(e)
	attributes["posthornid"] = fmt.Sprint(e.ID)
	attributes["posthornstream"] = e.Stream
	delete(attributes, "datacontenttype") // the header Content-Type says it
	headers := map[string]string{}
	for name, value := range attributes {
		if text := escaped(value); len(text) <= longestHeader {
			headers["ce-"+name] = text
		}
	}
	return headers
}

// escaped percent-encodes all characters that the specification does not allow in headers, and a few more.
func escaped(value string) string {
	return strings.ReplaceAll(url.PathEscape(value), "%2F", "/")
}

func metadataOf(e pg.Event) map[string]json.RawMessage {
	var metadata map[string]json.RawMessage
	_ = json.Unmarshal(e.Metadata, &metadata) // programs may put anything there
	return metadata
}

func keptOf(namespace string, e pg.Event, metadata map[string]json.RawMessage) Kept {
	if raw, ok := metadata[MetadataKey]; ok {
		var was Kept
		if json.Unmarshal(raw, &was) == nil && was.ID != "" && was.Source != "" {
			return was
		}
	}
	return Kept{
		ID: fmt.Sprint(e.ID), Source: "/namespaces/" + namespace, Subject: e.Key, Time: e.PublishedAt.UTC().Format(time.RFC3339Nano),
	}
}

func (k Kept) attributes(e pg.Event) map[string]string {
	all := map[string]string{"specversion": "1.0", "type": e.Type}
	for name, value := range map[string]string{
		"id": k.ID, "source": k.Source, "subject": k.Subject, "time": k.Time,
		"datacontenttype": k.DataContentType, "dataschema": k.DataSchema,
	} {
		if value != "" {
			all[name] = value
		}
	}
	return all
}
