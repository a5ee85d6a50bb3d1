package pg

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// CursorAt returns a cursor for [ReadEvents] that stands at a moment.
func CursorAt(ctx context.Context, db DB, at Moment) (string, error) {
	return Value[string](ctx, db, "place a cursor", "select posthorn.cursor_at($1::timestamptz)", at)
}

// CursorAfter returns a cursor that stands after an event of which only the id is
// known. Some of what was published just before it may come again.
func CursorAfter(ctx context.Context, db DB, namespace string, event int64) (string, error) {
	return Value[string](ctx, db, "place a cursor", "select posthorn.cursor_after($1::text, $2::bigint)", namespace, event)
}

// ReadEvents reads the next events after a cursor, and returns the cursor to go
// on from. No events: the end was reached for now. It writes nothing, and skips
// nothing, in whatever order transactions commit.
func ReadEvents(ctx context.Context, db DB, namespace, cursor string, maxEvents int) ([]Event, string, error) {
	b, err := readBatch(ctx, db, `
		select coalesce(event_id, 0), coalesce(stream, ''), coalesce(type, ''), coalesce(key, ''), tags, payload, metadata,
			coalesce(published_at, 'epoch'), '', case when ordinality = 1 then next_cursor end, false
		from posthorn.read_events($1::text, $2::text, $3::int) with ordinality`,
		namespace, cursor, maxEvents)
	return b.Events, b.Next, err
}

// Batch is what one look at the log yields.
type Batch struct {
	Events []Event
	// Next is the cursor to go on from.
	Next string
	// AtEnd: Next stands between two looks, since all was read that was visible
	// at the last one.
	AtEnd bool

	// Way is what the cursors of the events have in common: each is the way, a
	// dot and the event's id. Such a cursor goes on right after its event.
	Way string
}

// ReadLog reads the next events after a cursor, as [ReadEvents] does, but ends
// where one look at the log does. So no events and AtEnd are the end of the log
// only if the cursor stood between two looks.
func ReadLog(ctx context.Context, db DB, namespace, cursor string, maxEvents int) (Batch, error) {
	return readBatch(ctx, db, readLog("$2::text"), namespace, cursor, maxEvents)
}

// ReadBetween reads, as [ReadLog] does, what lies between two cursors that stand
// between two looks. With AtEnd it stands at the later one.
func ReadBetween(ctx context.Context, db DB, namespace, since, upto string, maxEvents int) (Batch, error) {
	return readBatch(ctx, db, readLog("posthorn.cursor_between($2::text, $4::text)"), namespace, since, maxEvents, upto)
}

// What all events of a batch share is sent with the first.
func readLog(cursor string) string {
	return `
		select coalesce(event_id, 0), coalesce(stream, ''), coalesce(type, ''), coalesce(key, ''), tags, payload, metadata,
			coalesce(published_at, 'epoch'), case when ordinality = 1 then coalesce(event_cursor, '') end,
			case when ordinality = 1 then next_cursor end, at_end
		from posthorn.read_log($1::text, ` + cursor + `, $3::int) with ordinality`
}

func readBatch(ctx context.Context, db DB, sql string, args ...any) (Batch, error) {
	var b Batch
	var err error
	b.Events, err = Collect(ctx, db, "read events", func(row pgx.CollectableRow) (Event, error) {
		var e Event
		var cursor, next *string
		err := row.Scan(&e.ID, &e.Stream, &e.Type, &e.Key, &e.Tags, (*[]byte)(&e.Payload), (*[]byte)(&e.Metadata), &e.PublishedAt, &cursor, &next, &b.AtEnd)
		if next != nil {
			b.Way, _, _ = strings.Cut(*cursor, ".")
			b.Next = *next
		}
		return e, err
	}, sql, args...)
	if err != nil {
		return Batch{}, err
	}
	if len(b.Events) == 1 && b.Events[0].ID == 0 { // a batch that is empty has one row, with the cursor alone
		b.Events = nil
	}
	return b, nil
}
