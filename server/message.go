package server

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/posthorn/posthorn"
)

// message is the JSON of a message to publish.
type message struct {
	Stream    string                     `json:"stream,omitempty" doc:"The stream of the event. Default: default" example:"orders"`
	Type      string                     `json:"type" doc:"The type of the event" example:"order.placed"`
	Key       string                     `json:"key,omitempty" doc:"The subject of the event, such as an order. Groups ordered by key hand out the events of a key in order" example:"order-7"`
	Tags      []string                   `json:"tags,omitempty" maxItems:"100" doc:"Labels by which the event can be found"`
	Payload   json.RawMessage            `json:"payload,omitempty" doc:"Any JSON. Default: {}"`
	Metadata  map[string]json.RawMessage `json:"metadata,omitempty" doc:"Further fields of the event; producer and trace context are added"`
	DeliverAt *time.Time                 `json:"deliver_at,omitempty" doc:"The time at which the event enters the log. Default: now"`
	DedupKey  string                     `json:"dedup_key,omitempty" doc:"Messages with the same key within a day are published once"`
}

type messages struct {
	Events []message `json:"events" maxItems:"10000"`
}

func (m message) convert() posthorn.Message {
	converted := posthorn.Message{Stream: m.Stream, Type: m.Type, Key: m.Key, Tags: m.Tags, DedupKey: m.DedupKey}
	if m.Payload != nil {
		converted.Payload = m.Payload
	}
	if len(m.Metadata) > 0 {
		converted.Metadata = map[string]any{}
		for name, value := range m.Metadata {
			converted.Metadata[name] = value
		}
	}
	if m.DeliverAt != nil {
		converted.DeliverAt = *m.DeliverAt
	}
	return converted
}

// decodePublication decodes the body of a publication: messages as JSON, or CloudEvents
// in one of their modes.
func decodePublication(header http.Header, body []byte) ([]posthorn.Message, error) {
	contentType := header.Get("Content-Type")
	mediaType, _, err := mime.ParseMediaType(contentType)
	if contentType != "" && err != nil {
		return nil, newProblem(http.StatusUnsupportedMediaType, "the content type cannot be read", "Send application/json.")
	}
	if mediaType == cloudEventsJSON || mediaType == cloudEventsBatch || header.Get("Ce-Specversion") == "" {
		if err := checkUTF8(body); err != nil {
			return nil, err
		}
	}
	switch {
	case mediaType == cloudEventsJSON:
		return decodeCloudEvents(body, false)
	case mediaType == cloudEventsBatch:
		return decodeCloudEvents(body, true)
	case strings.HasPrefix(mediaType, "application/cloudevents"):
		return nil, newProblem(http.StatusUnsupportedMediaType, "CloudEvents are supported in JSON only", "Send "+cloudEventsJSON+".")
	case header.Get("Ce-Specversion") != "":
		return decodeBinary(header, mediaType, body)
	case mediaType == "" || mediaType == "application/json":
		return decodeMessages(body)
	}
	return nil, newProblem(http.StatusUnsupportedMediaType, "the content type "+mediaType+" is not supported",
		"Send application/json, or CloudEvents: "+cloudEventsJSON+", "+cloudEventsBatch+" or ce- headers.")
}

// decodeMessages decodes one message, an array of messages, or an object with such an
// array.
func decodeMessages(body []byte) ([]posthorn.Message, error) {
	all, err := decodeShapes(bytes.TrimSpace(body))
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, badRequest("the body has no events", "Send at least one.")
	}
	converted := make([]posthorn.Message, len(all))
	for i := range all {
		converted[i] = all[i].convert()
	}
	return converted, nil
}

func decodeShapes(body []byte) ([]message, error) {
	if len(body) == 0 {
		return nil, badRequest("the body is empty", `Send {"type": "order.placed", "payload": {}}.`)
	}
	if body[0] == '[' {
		return decodeEvents[message](body)
	}
	var shape struct {
		Events json.RawMessage `json:"events"`
	}
	_ = json.Unmarshal(body, &shape) // decodeStrict reports the errors
	if shape.Events != nil {
		if err := decodeStrict(body, &shape); err != nil {
			return nil, err
		}
		return decodeEvents[message](shape.Events)
	}
	all := make([]message, 1)
	return all, decodeStrict(body, &all[0])
}
