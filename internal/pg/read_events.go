package pg

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// CursorAt returns a cursor for [ReadEvents] at a moment.
func CursorAt(ctx context.Context, db DB, at Moment) (string, error) {
	return Value[string](ctx, db, "place a cursor", "select posthorn.cursor_at($1::timestamptz)", at)
}

// CursorAfter returns a cursor after an event of which only the id is known. Events that
// were published just before it may be read again.
func CursorAfter(ctx context.Context, db DB, namespace string, event int64) (string, error) {
	return Value[string](ctx, db, "place a cursor", "select posthorn.cursor_after($1::text, $2::bigint)", namespace, event)
}

// ReadEvents reads the next events after a cursor, and returns the cursor after them. At
// the end of the log it returns no events. It writes nothing, and skips no event, even if
// transactions commit in another order than that of the ids.
func ReadEvents(ctx context.Context, db DB, namespace, cursor string, maxEvents int) ([]Event, string, error) {
	b, err := readBatch(ctx, db, `
		select coalesce(event_id, 0), coalesce(stream, ''), coalesce(type, ''), coalesce(key, ''), tags, payload, metadata,
			coalesce(published_at, 'epoch'), '', case when ordinality = 1 then next_cursor end, false
		from posthorn.read_events($1::text, $2::text, $3::int) with ordinality`,
		namespace, cursor, maxEvents)
	return b.Events, b.Next, err
}

// Batch is the result of one scan of the log. A scan reads the events that are visible in
// one snapshot, and may take several calls.
type Batch struct {
	Events []Event
	// Next is the cursor after the events.
	Next string
	// AtEnd: the scan is complete, and Next begins another one.
	AtEnd bool

	// Prefix is the beginning of the cursors of the events: each is the prefix, a dot
	// and the event's id, and continues right after its event.
	Prefix string
}

// ReadLog reads the next events after a cursor, as [ReadEvents] does, but not beyond the
// end of a scan. Without events, AtEnd is the end of the log only if the cursor began a
// scan.
func ReadLog(ctx context.Context, db DB, namespace, cursor string, maxEvents int) (Batch, error) {
	return readBatch(ctx, db, readLog("$2::text"), namespace, cursor, maxEvents)
}

// ReadBetween reads, as [ReadLog] does, the events between two cursors that begin scans.
// AtEnd is the later cursor.
func ReadBetween(ctx context.Context, db DB, namespace, since, upto string, maxEvents int) (Batch, error) {
	return readBatch(ctx, db, readLog("posthorn.cursor_between($2::text, $4::text)"), namespace, since, maxEvents, upto)
}

// Values that all events of a batch share come with the first one.
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
			b.Prefix, _, _ = strings.Cut(*cursor, ".")
			b.Next = *next
		}
		return e, err
	}, sql, args...)
	if err != nil {
		return Batch{}, err
	}
	if len(b.Events) == 1 && b.Events[0].ID == 0 { // an empty batch has one row, with the cursor only
		b.Events = nil
	}
	return b, nil
}
