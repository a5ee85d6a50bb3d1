package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// OwedLooks returns the first id after the first failover, crash or restore after which a relay
// has not compared its broker with the log yet, or 0.
func OwedLooks(ctx context.Context, db DB, lead Lead) (int64, error) {
	return Value[int64](ctx, db, "look for failovers", "select coalesce(posthorn.owed_looks($1::bigint, $2::text, $3::bigint), 0)",
		lead.Group.ID, lead.Owner, lead.Epoch)
}

// NoteLostEvents keeps those of some events that the log has not, and returns their ids.
func NoteLostEvents(ctx context.Context, db DB, lead Lead, events []Event) ([]int64, error) {
	return Collect(ctx, db, "keep lost events", pgx.RowTo[int64], `
		select unnest(posthorn.note_lost_events($9::bigint, $10::text, $11::bigint, $1::text[], $2::bigint[], $3::text[], $4::json[],
			$5::timestamptz[], $6::text[], $7::text[], $8::json[]))`,
		append(eventColumns(events), lead.Group.ID, lead.Owner, lead.Epoch)...)
}

// eventColumns returns events as arguments, a column for each field.
func eventColumns(events []Event) []any {
	ids, published, messages := make([]int64, len(events)), make([]time.Time, len(events)), make([]Message, len(events))
	for i := range events {
		e := &events[i]
		ids[i], published[i] = e.ID, e.PublishedAt
		messages[i] = Message{Stream: e.Stream, Type: e.Type, Key: e.Key, Tags: e.Tags, Payload: e.Payload, Metadata: e.Metadata}
	}
	c := columnsOf(messages)
	return []any{streamsOf(messages), ids, c.types, c.payloads, published, c.keys, c.tags, c.metadata}
}

// NoteLook notes that a relay has compared its broker with the log after all failovers so
// far; text is the error if it could not for some streams.
func NoteLook(ctx context.Context, db DB, lead Lead, entries int64, text string) error {
	return Exec(ctx, db, "note look", "select posthorn.note_look($1::bigint, $2::text, $3::bigint, $4::bigint, $5::text)",
		lead.Group.ID, lead.Owner, lead.Epoch, entries, Optional(Storable(text)))
}

// ArchiveLook is a comparison of an archive with the log that is owed after a failover, crash or
// restore.
type ArchiveLook struct {
	Since  time.Time // segments of earlier days have no lost events
	NextID int64     // later events are of the life of the log after it
}

// OwedArchiveLook returns the comparison that an archive owes, if there is one.
func OwedArchiveLook(ctx context.Context, db DB, archive int) (look ArchiveLook, owed bool, err error) {
	all, err := Collect(ctx, db, "look for failovers", pgx.RowToStructByPos[ArchiveLook], "select since, next_id from posthorn.owed_archive_look($1::int)", archive)
	if err != nil || len(all) == 0 {
		return ArchiveLook{}, false, err
	}
	return all[0], true, nil
}

// ForgottenSegments returns the first ids of those segments that the log has not written.
func ForgottenSegments(ctx context.Context, db DB, archive int, firstIDs, lastIDs []int64) ([]int64, error) {
	return Collect(ctx, db, "look for segments", pgx.RowTo[int64],
		"select * from posthorn.forgotten_segments($1::int, $2::bigint[], $3::bigint[])", archive, firstIDs, lastIDs)
}

// NoteArchivedEvents is [NoteLostEvents] for events of an archive.
func NoteArchivedEvents(ctx context.Context, db DB, archive int, events []Event) ([]int64, error) {
	return Collect(ctx, db, "keep lost events", pgx.RowTo[int64], `
		select unnest(posthorn.note_archived_events($9::int, $1::text[], $2::bigint[], $3::text[], $4::json[],
			$5::timestamptz[], $6::text[], $7::text[], $8::json[]))`,
		append(eventColumns(events), archive)...)
}

// NoteArchiveLook notes that an archive was compared with the log after all failovers so far.
func NoteArchiveLook(ctx context.Context, db DB, archive int, events int64) error {
	return Exec(ctx, db, "note look", "select posthorn.note_archive_look($1::int, $2::bigint)", archive, events)
}
