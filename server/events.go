package server

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/server/internal/in"
)

// eventView is the JSON of an event in all responses. A payload that is sealed is null.
type eventView struct {
	admin.Event
	Delivery      int      `json:"delivery,omitempty" doc:"The number of the group's attempt at the event, from 1"`
	Subscriptions []string `json:"subscriptions,omitempty" doc:"The subscriptions of the group that match the event"`
}

func viewOf(e admin.Event) eventView {
	e.PublishedAt = e.PublishedAt.UTC()
	if e.Sealed {
		e.Payload = nil
	}
	return eventView{Event: e}
}

// viewOfRead is viewOf for events that were claimed or that a stream has read.
func viewOfRead(e pg.Event, sealed bool) eventView {
	view := viewOf(admin.Event{
		ID: e.ID, Stream: e.Stream, Type: e.Type, Key: e.Key, Tags: e.Tags, Payload: e.Payload, Metadata: e.Metadata,
		PublishedAt: e.PublishedAt, Sealed: sealed,
	})
	view.Delivery, view.Subscriptions = e.Delivery, e.Subscriptions
	return view
}

func (s *Server) events() {
	s.publishing()
	s.searching()

	get := routeOf(op.GetEvent)
	get.response = eventContent[eventView](s, cloudEventsJSON)
	register(s, get, s.getEvent)
	serveAll(s, op.GetEventOutcomes)
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

// anyOutput is a response with a choice of content types.
type anyOutput struct {
	ContentType string `header:"Content-Type"`
	Body        any
}

func (s *Server) getEvent(ctx context.Context, c caller, input *eventInput) (*anyOutput, error) {
	found, err := s.admin(c).Event(ctx, input.ID)
	if err != nil {
		return nil, err
	}
	view := viewOf(found)
	if wantsCloudEvents(input.Accept) {
		document, err := cloudEventOf(c.namespace, view)
		return &anyOutput{cloudEventsJSON, document}, err
	}
	return &anyOutput{"application/json", view}, nil
}
