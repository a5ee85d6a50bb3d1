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

// message is what is published.
type message struct {
	Stream    string                     `json:"stream,omitempty" doc:"The channel it goes to. Default: default" example:"orders"`
	Type      string                     `json:"type" doc:"What happened" example:"order.placed"`
	Key       string                     `json:"key,omitempty" doc:"What it is about: groups ordered by key keep the order of its events" example:"order-7"`
	Tags      []string                   `json:"tags,omitempty" doc:"Labels to find it by"`
	Payload   json.RawMessage            `json:"payload,omitempty" doc:"Any JSON. Default: {}"`
	Metadata  map[string]json.RawMessage `json:"metadata,omitempty" doc:"Goes along; producer and trace context are added"`
	DeliverAt *time.Time                 `json:"deliver_at,omitempty" doc:"Keeps it out of the log until then"`
	DedupKey  string                     `json:"dedup_key,omitempty" doc:"Makes one event of all that are published under it within a day"`
}

type messages struct {
	Events []message `json:"events"`
}

func (m message) published() posthorn.Message {
	published := posthorn.Message{Stream: m.Stream, Type: m.Type, Key: m.Key, Tags: m.Tags, DedupKey: m.DedupKey}
	if m.Payload != nil {
		published.Payload = m.Payload
	}
	if len(m.Metadata) > 0 {
		published.Metadata = map[string]any{}
		for name, value := range m.Metadata {
			published.Metadata[name] = value
		}
	}
	if m.DeliverAt != nil {
		published.DeliverAt = *m.DeliverAt
	}
	return published
}

// decodePublished reads what is to be published, in the form that the headers
// say it has.
func decodePublished(header http.Header, body []byte) ([]posthorn.Message, error) {
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
		return nil, newProblem(http.StatusUnsupportedMediaType, "CloudEvents are understood as JSON only", "Send "+cloudEventsJSON+".")
	case header.Get("Ce-Specversion") != "":
		return decodeBinary(header, mediaType, body)
	case mediaType == "" || mediaType == "application/json":
		return decodeMessages(body)
	}
	return nil, newProblem(http.StatusUnsupportedMediaType, "the content type "+mediaType+" is not one of ours",
		"Send application/json, or CloudEvents: "+cloudEventsJSON+", "+cloudEventsBatch+" or ce- headers.")
}

// decodeMessages reads one message, an array of them, or an object with one.
func decodeMessages(body []byte) ([]posthorn.Message, error) {
	all, err := decodeShapes(bytes.TrimSpace(body))
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, badRequest("there are no events", "Send at least one.")
	}
	published := make([]posthorn.Message, len(all))
	for i := range all {
		published[i] = all[i].published()
	}
	return published, nil
}

func decodeShapes(body []byte) ([]message, error) {
	if len(body) == 0 {
		return nil, badRequest("there is no body", `Send {"type": "order.placed", "payload": {}}.`)
	}
	if body[0] == '[' {
		var all []message
		return all, decodeStrict(body, &all)
	}
	var shape struct {
		Events json.RawMessage `json:"events"`
	}
	_ = json.Unmarshal(body, &shape) // decodeStrict reports the errors
	if shape.Events != nil {
		var wrapped messages
		err := decodeStrict(body, &wrapped)
		return wrapped.Events, err
	}
	all := make([]message, 1)
	return all, decodeStrict(body, &all[0])
}
