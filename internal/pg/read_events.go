package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// CursorAt returns a cursor for [ReadEvents] that stands at a moment.
func CursorAt(ctx context.Context, db DB, at Moment) (string, error) {
	return one[string](ctx, db, "place a cursor", "select posthorn.cursor_at($1::timestamptz)", at)
}

// ReadEvents reads the next events after a cursor, and returns the cursor to go
// on from. No events: the end was reached for now. It writes nothing, and skips
// nothing, in whatever order transactions commit.
func ReadEvents(ctx context.Context, db DB, namespace, cursor string, maxEvents int) ([]Event, string, error) {
	next := cursor
	events, err := list(ctx, db, "read events", func(row pgx.CollectableRow) (Event, error) {
		var e Event
		return e, row.Scan(&e.ID, &e.Stream, &e.Type, &e.Key, &e.Tags, &e.Payload, &e.Metadata, &e.PublishedAt, &next)
	}, `
		select coalesce(event_id, 0), coalesce(stream, ''), coalesce(type, ''), coalesce(key, ''), tags, payload, metadata,
			coalesce(published_at, 'epoch'), next_cursor
		from posthorn.read_events($1::text, $2::text, $3::int)`,
		namespace, cursor, maxEvents)
	if err != nil {
		return nil, "", err
	}
	if len(events) == 1 && events[0].ID == 0 { // a batch that is empty has one row, with the cursor alone
		events = nil
	}
	return events, next, nil
}
