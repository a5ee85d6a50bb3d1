package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Event is an event of the log, or a delayed one.
type Event struct {
	ID          int64           `json:"id" example:"42"`
	Stream      string          `json:"stream" example:"default"`
	Type        string          `json:"type" example:"order.placed"`
	Key         string          `json:"key,omitempty" example:"order-7"`
	Tags        []string        `json:"tags,omitempty"`
	Payload     json.RawMessage `json:"payload"`
	Metadata    json.RawMessage `json:"metadata"`
	PublishedAt time.Time       `json:"published_at"`
	DeliverAt   time.Time       `json:"deliver_at,omitzero" doc:"When a delayed event enters the log, under another id; absent for events of the log"`

	// Sealed: the payload is confidential, does not open here, and stays as it is in
	// the log.
	Sealed bool `json:"sealed,omitempty" db:"-" doc:"The payload is confidential and cannot be opened here"`
}

// Event returns one event of the namespace.
func (a *Admin) Event(ctx context.Context, id int64) (Event, error) {
	found, err := rows[Event](ctx, a.db, "find event", "select * from posthorn.find_event($1::text, $2::bigint)", a.namespace, id)
	if err == nil && (len(found) == 0 || !a.Reads(found[0].Stream)) {
		err = fmt.Errorf("find event: %w", pg.NotFound(fmt.Sprintf("event %d does not exist in namespace %s", id, a.namespace),
			"It may have been removed with its partition; a delayed event gets another id when it enters the log."))
	}
	if err != nil {
		return Event{}, err
	}
	e := found[0]
	e.Payload, e.Sealed = a.open(ctx, e.Stream, e.Metadata, e.Payload)
	return e, nil
}

// EventFilter says which events a search finds: those that match all of its fields.
// The zero value matches every event of the namespace. Its tags are those of package op:
// the HTTP API, the command line and the page search by the same fields.
type EventFilter struct {
	Types   []string  `query:"type" flag:"type" maxItems:"100" doc:"Patterns, any of which must match: order.* or order.>"`
	Streams []string  `query:"stream" flag:"stream" maxItems:"100" doc:"Names or patterns of streams, any of which must match"`
	Key     string    `query:"key" flag:"key" doc:"The key of the event"`
	Tags    []string  `query:"tag" flag:"tag" maxItems:"1000" doc:"Tags, all of which the event must have"`
	TagsAny []string  `query:"tag_any" flag:"tag-any" maxItems:"1000" doc:"Tags, any of which the event must have"`
	Payload string    `query:"payload" flag:"payload" doc:"JSON that the payload must contain. Events of confidential streams do not match" example:"{\"a\":1}"`
	From    time.Time `query:"from" flag:"from" doc:"Events that were published at this time or later"`
	Before  time.Time `query:"before" flag:"before" doc:"Events that were published before this time"`
	Order   string    `query:"order" flag:"order" page:"-" enum:"newest,oldest" default:"newest" doc:"The events that come first"`

	After    int64 // events behind this id, in the order of the search; 0: from the beginning
	Limit    int   // from 1 to 1000
	MaxLooks int   // how many events the search looks at, from Limit to 100,000
}

// document is the filter as SQL functions read it.
func (f EventFilter) document() (string, error) {
	if f.Payload != "" && !json.Valid([]byte(f.Payload)) {
		return "", pg.Translate("search events", pg.Invalid("payload is not valid JSON", `It is a part of the payload, such as {"a":1}.`))
	}
	document, err := json.Marshal(struct {
		Type    []string        `json:"type,omitempty"`
		Stream  []string        `json:"stream,omitempty"`
		Key     string          `json:"key,omitempty"`
		TagsAll []string        `json:"tags_all,omitempty"`
		TagsAny []string        `json:"tags_any,omitempty"`
		Payload json.RawMessage `json:"payload,omitempty"`
	}{f.Types, f.Streams, f.Key, f.Tags, f.TagsAny, json.RawMessage(f.Payload)})
	return string(document), err
}

// SearchEvents returns the next events that match a filter, and the id after which the
// search goes on: 0 at its end. A page may be short, or empty, where few events match.
func (a *Admin) SearchEvents(ctx context.Context, f EventFilter) (events []Event, next int64, err error) {
	found, next, err := search[eventRow](ctx, a, f, "select *, event_id as id, null::timestamptz as deliver_at from posthorn.search_events")
	for _, r := range found {
		e := r.Event
		e.Payload, e.Sealed = a.open(ctx, e.Stream, e.Metadata, e.Payload)
		events = append(events, e)
	}
	return events, next, err
}

type eventRow struct {
	Event
	NextID int64 `db:"next_id"` // in the last row of a page that ended early, which has no event
}

func (r eventRow) place() (id, next int64) { return r.ID, r.NextID }

// search returns a page of rows, and the id after which the search goes on.
func search[R interface{ place() (id, next int64) }](ctx context.Context, a *Admin, f EventFilter, from string) (found []R, next int64, err error) {
	filter, err := f.document()
	if err != nil {
		return nil, 0, err
	}
	found, err = rows[R](ctx, a.db, "search events", from+`($1::text, $2::jsonb, $3::timestamptz, $4::timestamptz, $5::boolean, $6::bigint,
			$7::int, $8::int, $9::text[])`,
		a.namespace, filter, pg.Optional(f.From), pg.Optional(f.Before), f.Order != "oldest", pg.Optional(f.After), f.Limit, f.MaxLooks,
		list(a.hidden))
	if err != nil || len(found) == 0 {
		return nil, 0, err
	}
	id, next := found[len(found)-1].place()
	if next != 0 {
		return found[:len(found)-1], next, nil
	}
	if len(found) == f.Limit {
		next = id
	}
	return found, next, nil
}

// CursorAt returns a cursor for [Admin.ReadEvents] that stands at a place in the log.
func (a *Admin) CursorAt(ctx context.Context, at Moment) (string, error) {
	return pg.CursorAt(ctx, a.db, at)
}

// ReadEvents returns the next events after a cursor, and the cursor to go on from. No
// events: the end of the log was reached for now. Payloads of confidential streams stay
// sealed, since a caller may want few of the events.
func (a *Admin) ReadEvents(ctx context.Context, cursor string, limit int) (events []Event, next string, err error) {
	for {
		found, next, err := pg.ReadEvents(ctx, a.db, a.namespace, cursor, limit)
		if err != nil {
			return nil, "", err
		}
		for _, e := range found {
			if !a.Reads(e.Stream) {
				continue
			}
			events = append(events, Event{
				ID: e.ID, Stream: e.Stream, Type: e.Type, Key: e.Key, Tags: e.Tags, Payload: e.Payload, Metadata: e.Metadata,
				PublishedAt: e.PublishedAt,
			})
		}
		if len(events) > 0 || len(found) == 0 {
			return events, next, nil
		}
		cursor = next // none of them exists for the caller
	}
}

// BriefEvent is an event with no more than the beginning of its payload.
type BriefEvent struct {
	ID               int64     `json:"id" db:"event_id"`
	Stream           string    `json:"stream"`
	Type             string    `json:"type"`
	Key              string    `json:"key,omitempty"`
	Tags             []string  `json:"tags,omitempty"`
	PayloadBeginning string    `json:"payload_beginning"`
	Sealed           bool      `json:"sealed,omitempty"` // the payload is confidential
	PublishedAt      time.Time `json:"published_at"`
}

// BrowseEvents is [Admin.SearchEvents] for lists: without whole payloads.
func (a *Admin) BrowseEvents(ctx context.Context, f EventFilter) (events []BriefEvent, next int64, err error) {
	found, next, err := search[briefRow](ctx, a, f, "select * from posthorn.brief_events")
	for _, r := range found {
		events = append(events, r.BriefEvent)
	}
	return events, next, err
}

type briefRow struct {
	BriefEvent
	NextID int64 `db:"next_id"`
}

func (r briefRow) place() (id, next int64) { return r.ID, r.NextID }
