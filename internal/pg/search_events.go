package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Found is an event of the log, or one that enters it later.
type Found struct {
	Event
	DeliverAt *time.Time // nil once it is in the log
}

// FindEvent returns the event of a namespace that has that id, or [ErrNotFound].
func FindEvent(ctx context.Context, db DB, namespace string, id int64) (Found, error) {
	found, err := Collect(ctx, db, "find event", scanFound, `
		select id, stream, type, coalesce(key, ''), tags, payload, metadata, published_at, deliver_at
		from posthorn.find_event($1::text, $2::bigint)`, namespace, id)
	if err != nil {
		return Found{}, err
	}
	if len(found) == 0 {
		return Found{}, NoEvent(namespace, id)
	}
	return found[0], nil
}

// NoEvent is what FindEvent says of an event that there is not.
func NoEvent(namespace string, id int64) error {
	return &Error{
		Message: fmt.Sprintf("event %d does not exist in namespace %s", id, namespace), sentinel: ErrNotFound,
		hint: "It may have been removed with its partition; a delayed event gets another id when it enters the log.",
	}
}

func scanFound(row pgx.CollectableRow) (Found, error) {
	var f Found
	err := row.Scan(&f.ID, &f.Stream, &f.Type, &f.Key, &f.Tags, (*[]byte)(&f.Payload), (*[]byte)(&f.Metadata), &f.PublishedAt, &f.DeliverAt)
	return f, err
}

// Search says which events are meant; what is left out restricts nothing.
type Search struct {
	Filter      json.RawMessage // of the form that subscriptions have
	From        *time.Time
	Before      *time.Time
	OldestFirst bool
	Hidden      []string // streams whose events the one who asks may not see

	After     int64 // the event to go on after; 0 to begin
	MaxEvents int
	MaxLooks  int // how many events are looked at
}

// SearchEvents returns the next events of a namespace that a search means, and
// after which event to go on: 0 at the end. A page may be short, or empty, where
// few events match.
func SearchEvents(ctx context.Context, db DB, namespace string, s Search) ([]Event, int64, error) {
	var next int64
	var after *int64
	if s.After != 0 {
		after = &s.After
	}
	found, err := Collect(ctx, db, "search events", func(row pgx.CollectableRow) (Event, error) {
		var e Event
		var goOn *int64
		err := row.Scan(&e.ID, &e.Stream, &e.Type, &e.Key, &e.Tags, (*[]byte)(&e.Payload), (*[]byte)(&e.Metadata), &e.PublishedAt, &goOn)
		if goOn != nil {
			next = *goOn
		}
		return e, err
	}, `
		select coalesce(event_id, 0), coalesce(stream, ''), coalesce(type, ''), coalesce(key, ''), tags, payload, metadata,
			coalesce(published_at, 'epoch'), next_id
		from posthorn.search_events($1::text, $2::jsonb, $3::timestamptz, $4::timestamptz, $5::boolean, $6::bigint, $7::int, $8::int,
			$9::text[])`,
		namespace, object(s.Filter), s.From, s.Before, !s.OldestFirst, after, s.MaxEvents, s.MaxLooks,
		append([]string{}, s.Hidden...))
	if err != nil {
		return nil, 0, err
	}
	switch n := len(found); {
	case next != 0:
		found = found[:n-1]
	case n == s.MaxEvents:
		next = found[n-1].ID
	}
	return found, next, nil
}

// FirstUsed returns how many of some dedup keys were first used by the
// transaction of db.
func FirstUsed(ctx context.Context, db DB, namespace string, keys []string) (int64, error) {
	return Value[int64](ctx, db, "look at dedup keys", "select posthorn.first_used($1::text, $2::text[])", namespace, keys)
}
