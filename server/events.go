package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

// eventView is an event, as all that return one show it.
type eventView struct {
	ID            int64           `json:"id" example:"42"`
	Stream        string          `json:"stream" example:"default"`
	Type          string          `json:"type" example:"order.placed"`
	Key           string          `json:"key,omitempty" example:"order-7"`
	Tags          []string        `json:"tags,omitempty"`
	Payload       json.RawMessage `json:"payload"`
	Metadata      json.RawMessage `json:"metadata"`
	PublishedAt   time.Time       `json:"published_at"`
	DeliverAt     *time.Time      `json:"deliver_at,omitempty" doc:"When it enters the log, under another id; absent once it is there"`
	Delivery      int             `json:"delivery,omitempty" doc:"How often the group was handed it, from 1"`
	Subscriptions []string        `json:"subscriptions,omitempty" doc:"Those that want it, in a group that has any"`
	Sealed        bool            `json:"sealed,omitempty" doc:"It is of a confidential stream and does not open here: its payload is null"`
}

func viewOf(e pg.Event) eventView {
	return eventView{
		ID: e.ID, Stream: e.Stream, Type: e.Type, Key: e.Key, Tags: e.Tags, Payload: e.Payload, Metadata: e.Metadata,
		PublishedAt: e.PublishedAt.UTC(), Delivery: e.Delivery, Subscriptions: e.Subscriptions,
	}
}

// viewOfFound shows an event that was looked up: without its payload, if that does not
// open.
func viewOfFound(e admin.Event) eventView {
	view := eventView{
		ID: e.ID, Stream: e.Stream, Type: e.Type, Key: e.Key, Tags: e.Tags, Payload: e.Payload, Metadata: e.Metadata,
		PublishedAt: e.PublishedAt.UTC(), Sealed: e.Sealed,
	}
	if !e.DeliverAt.IsZero() {
		view.DeliverAt = &e.DeliverAt
	}
	if e.Sealed {
		view.Payload = nil
	}
	return view
}

func (s *Server) events() {
	s.publishing()
	s.searching()

	register(s, operation{
		method: http.MethodGet, path: "/v1/events/{id}", id: "get-event", tag: "events",
		summary:     "One event",
		description: "Accept: application/cloudevents+json returns it as a CloudEvent.",
		scope:       scopeRead,
		response:    eventContent[eventView](s, cloudEventsJSON),
	}, s.getEvent)

	register(s, operation{
		method: http.MethodGet, path: "/v1/events/{id}/outcomes", id: "get-event-outcomes", tag: "events",
		summary:     "What has become of an event, in each group",
		description: "A row for each group that the event concerns: pending, processing, retrying, completed or dead.",
		scope:       scopeRead,
	}, s.eventOutcomes)
}

// eventContent documents a response that is T as JSON, or CloudEvents.
func eventContent[T any](s *Server, cloudEvents string) map[string]*huma.MediaType {
	schema := schemaOf[cloudEvent](s)
	if cloudEvents == cloudEventsBatch {
		schema = &huma.Schema{Type: huma.TypeArray, Items: schema}
	}
	content := jsonContent[T](s)
	content[cloudEvents] = &huma.MediaType{Schema: schema}
	return content
}

type eventInput struct {
	in.ByID
	Accept string `header:"Accept" hidden:"true"`
}

// anyOutput is an answer of one content type or another.
type anyOutput struct {
	ContentType string `header:"Content-Type"`
	Body        any
}

func (s *Server) getEvent(ctx context.Context, c caller, input *eventInput) (*anyOutput, error) {
	found, err := s.admin(c).Event(ctx, input.ID, c.hidden...)
	if err != nil {
		return nil, err
	}
	view := viewOfFound(found)
	if wantsCloudEvents(input.Accept) {
		document, err := cloudEventOf(c.namespace, view)
		return &anyOutput{cloudEventsJSON, document}, err
	}
	return &anyOutput{"application/json", view}, nil
}

func (s *Server) eventOutcomes(ctx context.Context, c caller, input *eventInput) (*listOf[admin.Outcome], error) {
	if len(c.hidden) > 0 { // the errors in there may tell of what is in the event
		if _, err := s.admin(c).Event(ctx, input.ID, c.hidden...); err != nil {
			return nil, err
		}
	}
	outcomes, err := s.admin(c).Outcomes(ctx, input.ID)
	return page(outcomes, ""), err
}
