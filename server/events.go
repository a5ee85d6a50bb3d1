package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

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
}

func viewOf(e pg.Event) eventView {
	return eventView{
		ID: e.ID, Stream: e.Stream, Type: e.Type, Key: e.Key, Tags: e.Tags, Payload: e.Payload, Metadata: e.Metadata,
		PublishedAt: e.PublishedAt.UTC(), Delivery: e.Delivery, Subscriptions: e.Subscriptions,
	}
}

func (s *Server) events() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/events", id: "publish-events", group: "events",
		summary:     "Publish one event or many",
		description: "A JSON object is one event, an array or {\"events\": [...]} are many: all of them are published, or none.",
		scope:       scopePublish, status: http.StatusCreated,
		body: publishBody(s),
	}, s.publishEvents)

	register(s, operation{
		method: http.MethodGet, path: "/v1/events/{id}", id: "get-event", group: "events",
		summary: "One event",
		scope:   scopeRead,
	}, s.getEvent)
}

type eventInput struct {
	in.Namespace
	ID int64 `path:"id" minimum:"1"`
}

type eventOutput struct{ Body eventView }

func (s *Server) getEvent(ctx context.Context, c caller, input *eventInput) (*eventOutput, error) {
	found, err := pg.FindEvent(ctx, s.client.Pool(), c.namespace, input.ID)
	if err != nil {
		return nil, err
	}
	view := viewOf(found.Event)
	view.DeliverAt = found.DeliverAt
	return &eventOutput{view}, nil
}
