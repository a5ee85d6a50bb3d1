package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

// message is what is published.
type message struct {
	Stream    string          `json:"stream,omitempty" doc:"The channel it goes to. Default: default" example:"orders"`
	Type      string          `json:"type" doc:"What happened" example:"order.placed"`
	Key       string          `json:"key,omitempty" doc:"What it is about: groups ordered by key keep the order of its events" example:"order-7"`
	Tags      []string        `json:"tags,omitempty" doc:"Labels to find it by"`
	Payload   json.RawMessage `json:"payload,omitempty" doc:"Any JSON. Default: {}"`
	Metadata  map[string]any  `json:"metadata,omitempty" doc:"Goes along; producer and trace context are added"`
	DeliverAt *time.Time      `json:"deliver_at,omitempty" doc:"Keeps it out of the log until then"`
	DedupKey  string          `json:"dedup_key,omitempty" doc:"Makes one event of all that are published under it within a day"`
}

type messages struct {
	Events []message `json:"events"`
}

// publishBody documents the shapes that a body may have.
func publishBody(s *Server) *huma.RequestBody {
	schemas := s.api.OpenAPI().Components.Schemas
	one := schemas.Schema(reflect.TypeFor[message](), true, "Message")
	many := schemas.Schema(reflect.TypeFor[messages](), true, "Messages")
	return &huma.RequestBody{
		Required: true,
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: &huma.Schema{OneOf: []*huma.Schema{one, {Type: huma.TypeArray, Items: one}, many}}},
		},
	}
}

type publishInput struct {
	in.Namespace
	ContentType string `header:"Content-Type"`
	RawBody     []byte
}

type publishOutput struct {
	Body struct {
		IDs []int64 `json:"ids" doc:"Of the events, in the order of the messages"`
	}
}

func (s *Server) publishEvents(ctx context.Context, c caller, input *publishInput) (*publishOutput, error) {
	mediaType, _, err := mime.ParseMediaType(input.ContentType)
	if input.ContentType != "" && (err != nil || mediaType != "application/json") {
		return nil, newProblem(http.StatusUnsupportedMediaType, "the content type is not one of ours", "Send application/json.")
	}
	all, err := decodeMessages(input.RawBody)
	if err != nil {
		return nil, err
	}
	converted := make([]pg.Message, len(all))
	for i := range all {
		if converted[i], err = s.convert(all[i]); err != nil {
			return nil, err
		}
	}
	var output publishOutput
	output.Body.IDs, err = pg.PublishMany(ctx, s.client.Pool(), c.namespace, converted)
	return &output, err
}

func (s *Server) convert(m message) (pg.Message, error) {
	metadata := map[string]any{"producer": s.client.NodeID()}
	for name, value := range m.Metadata {
		metadata[name] = value
	}
	raw, err := json.Marshal(metadata)
	return pg.Message{
		Type: m.Type, Stream: m.Stream, Key: m.Key, Tags: m.Tags, Payload: m.Payload, Metadata: raw,
		DeliverAt: m.DeliverAt, DedupKey: m.DedupKey,
	}, err
}

// decodeMessages reads one message, an array of them, or an object with one.
func decodeMessages(body []byte) ([]message, error) {
	var all []message
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0:
		return nil, badRequest("there is no body", `Send {"type": "order.placed", "payload": {}}.`)
	case body[0] == '[':
		if err := strict(body, &all); err != nil {
			return nil, err
		}
	default:
		var shape struct {
			Events json.RawMessage `json:"events"`
		}
		_ = json.Unmarshal(body, &shape) // strict says below what is wrong with it
		if shape.Events != nil {
			var wrapped messages
			if err := strict(body, &wrapped); err != nil {
				return nil, err
			}
			all = wrapped.Events
			break
		}
		all = make([]message, 1)
		if err := strict(body, &all[0]); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, badRequest("there are no events", "Send at least one.")
	}
	return all, nil
}

// strict decodes what has no fields that we do not know.
func strict(body []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return badRequest(fmt.Sprintf("the body is not what it should be: %v", err), "/docs shows what is understood.")
	}
	if decoder.More() {
		return badRequest("there is more than one document in the body", "Put several events into an array.")
	}
	return nil
}
