package op

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

var events = Topic{"events", "event", "4711"}

// SearchEventsInput is a filter, and a page of the events that it selects. A page is small: a program that lists many
// events has the route.
type SearchEventsInput struct {
	Namespace
	admin.EventFilter
	Limit  int    `query:"limit" page:"-" minimum:"1" maximum:"100" default:"20" doc:"The largest number of events on the page"`
	Cursor string `query:"cursor" page:"-" maxLength:"500" doc:"The field next of the previous page, with the same filter"`
}

// FoundEvents is a page of a search.
type FoundEvents struct {
	Items []admin.BriefEvent `json:"items"`
	Next  string             `json:"next,omitempty"` // there may be more events
}

var SearchEvents = Op[SearchEventsInput, FoundEvents]{
	About: About{
		Topic: events, Verb: "search", Scope: Read, Name: "search-events", Go: "BrowseEvents", SQL: "brief_events", Method: "GET", Path: "/v1/events",
		Page: "events",
		Does: "Search events",
		More: "A request looks at a limited number of events, so a page may be short, or empty, if few of them match. " +
			"As long as the response has next, there may be more. A tool shows the beginning of each payload, and get-event the whole. " +
			"Over HTTP payloads are whole, and Accept: application/cloudevents-batch+json returns CloudEvents, and the next page in Link.",
		ByHand:  map[Face]string{HTTP: "its payloads are whole, and it can answer with CloudEvents", Page: "it goes on by links"},
		Without: map[Face]string{Command: "it is posthorn search, without a topic"},
	},
	Call: searchEvents,
}

// A search looks at so many events in one statement, and goes on for so long until it has found one.
const (
	looksAtOnce = 10_000
	searchFor   = 5 * time.Second
)

func searchEvents(ctx context.Context, a *admin.Admin, in *SearchEventsInput) (found FoundEvents, err error) {
	f := in.EventFilter
	f.Limit, f.MaxLooks = in.Limit, looksAtOnce
	if in.Cursor != "" {
		if f.After, err = strconv.ParseInt(in.Cursor, 10, 64); err != nil {
			return found, pg.Invalid("the cursor is not one of this search", "Give the field next of the previous page, with the same filter.")
		}
	}
	items, next, err := Until(searchFor, f.After, func(after int64) ([]admin.BriefEvent, int64, error) {
		f.After = after
		return a.BrowseEvents(ctx, f)
	})
	if err != nil {
		return found, err
	}
	found.Items = items
	if next != 0 {
		found.Next = strconv.FormatInt(next, 10)
	}
	if found.Items == nil {
		found.Items = []admin.BriefEvent{}
	}
	for i := range found.Items {
		if found.Items[i].Sealed {
			found.Items[i].PayloadBeginning = ""
		}
	}
	return found, nil
}

var GetEvent = Op[ByID, admin.Event]{
	About: About{
		Topic: events, Verb: "get", Scope: Read, SQL: "find_event",
		Does:    "Get an event",
		More:    "With its payload and its metadata. Over HTTP, Accept: application/cloudevents+json returns it as a CloudEvent.",
		ByHand:  map[Face]string{HTTP: "it can answer with a CloudEvent", Page: "it shows the outcomes too"},
		Without: map[Face]string{Command: "posthorn search --json prints whole events"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByID) (admin.Event, error) {
		e, err := a.Event(ctx, in.ID)
		if e.Sealed {
			e.Payload = nil
		}
		return e, err
	},
}

var GetEventOutcomes = Op[ByID, []admin.Outcome]{
	About: About{
		Topic: events, Verb: "outcomes", Scope: Read, Name: "get-event-outcomes", Go: "Outcomes", SQL: "outcomes", Method: "GET",
		Path: "/v1/events/{id}/outcomes", Page: "event",
		Does: "Get the outcomes of an event",
		More: "One for each group that receives the event, with the error of its last attempt: PENDING, PROCESSING, RETRYING, COMPLETED, " +
			"COMPLETED_WITH_ERRORS or DEAD; PASSED_OVER: the group started after it, or was moved past it; DELAYED: it enters the log at due_at.",
		ByHand:  map[Face]string{Page: "the page of the event shows them"},
		Without: map[Face]string{Command: "it is posthorn outcome, without a topic"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByID) ([]admin.Outcome, error) {
		return a.Outcomes(ctx, in.ID)
	},
}

// PublishEventInput is one event.
type PublishEventInput struct {
	Namespace
	Body admin.Message
}

var PublishEvent = Op[PublishEventInput, EventID]{
	About: About{
		Topic: events, Verb: "publish", Scope: Publish, SQL: "publish", Wakes: true,
		Does:   "Publish an event",
		More:   "Groups and webhooks that want it get it at once, or from deliver_at on. The database refuses an event of a confidential stream that is not sealed.",
		ByHand: map[Face]string{Page: "the form can be filled in with another event"},
		Without: map[Face]string{
			HTTP:    "publish-events takes one event or many, and CloudEvents",
			Command: "it is posthorn publish, without a topic",
		},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *PublishEventInput) (EventID, error) {
		id, err := a.PublishEvent(ctx, in.Body)
		return EventID{id}, err
	},
	Done: func(_ *PublishEventInput, out EventID) string { return fmt.Sprintf("published event %d", out.ID) },
}
