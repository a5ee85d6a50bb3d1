package server

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
)

type messages struct {
	Events []admin.Message `json:"events" maxItems:"10000"`
}

func convertMessage(m admin.Message) posthorn.Message {
	converted := posthorn.Message{Stream: m.Stream, Type: m.Type, Key: m.Key, Tags: m.Tags, DedupKey: m.DedupKey, DeliverAt: m.DeliverAt}
	if m.Payload != nil {
		converted.Payload = m.Payload
	}
	if len(m.Metadata) > 0 {
		converted.Metadata = map[string]any{}
		for name, value := range m.Metadata {
			converted.Metadata[name] = value
		}
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
		converted[i] = convertMessage(all[i])
	}
	return converted, nil
}

func decodeShapes(body []byte) ([]admin.Message, error) {
	if len(body) == 0 {
		return nil, badRequest("the body is empty", `Send {"type": "order.placed", "payload": {}}.`)
	}
	if body[0] == '[' {
		return decodeEvents[admin.Message](body)
	}
	var shape struct {
		Events json.RawMessage `json:"events"`
	}
	_ = json.Unmarshal(body, &shape) // decodeStrict reports the errors
	if shape.Events != nil {
		if err := decodeStrict(body, &shape); err != nil {
			return nil, err
		}
		return decodeEvents[admin.Message](shape.Events)
	}
	all := make([]admin.Message, 1)
	return all, decodeStrict(body, &all[0])
}
