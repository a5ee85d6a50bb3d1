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

// NotedEntries are the ids of entries of a broker that the log has not.
type NotedEntries struct {
	Missing []int64 // they are kept
	Refused []int64 // they are left out: they could not have been published
}

// NoteEntries keeps those of the events in some entries of a broker that the log has not.
func NoteEntries(ctx context.Context, db DB, lead Lead, events []Event) (NotedEntries, error) {
	all, err := Collect(ctx, db, "keep lost events", pgx.RowToStructByPos[NotedEntries], `
		select missing, refused from posthorn.note_entries($9::bigint, $10::text, $11::bigint, $1::text[], $2::bigint[], $3::text[], $4::json[],
			$5::timestamptz[], $6::text[], $7::text[], $8::json[])`,
		append(eventColumns(events), lead.Group.ID, lead.Owner, lead.Epoch)...)
	if err != nil || len(all) == 0 {
		return NotedEntries{}, err
	}
	return all[0], nil
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

// IsArchiveCompared reports whether a failover, crash or restore has ended the life of the log that an id is of, and
// the archive was compared with the log since, after each of them.
func IsArchiveCompared(ctx context.Context, db DB, namespace, archive string, id int64) (compared bool, err error) {
	err = db.QueryRow(ctx, "select coalesce(bool_and($2::text = any (f.looked)), false) from posthorn.list_failovers($1::text) f where f.next_id > $3::bigint",
		namespace, "archive "+archive, id).Scan(&compared)
	return compared, Translate("look for failovers", err)
}

// ForgottenSegments returns the first ids of those segments that the log has not written.
func ForgottenSegments(ctx context.Context, db DB, archive int, firstIDs, lastIDs []int64) ([]int64, error) {
	return Collect(ctx, db, "look for segments", pgx.RowTo[int64],
		"select * from posthorn.forgotten_segments($1::int, $2::bigint[], $3::bigint[])", archive, firstIDs, lastIDs)
}

// NoteArchivedEvents keeps those of some events of an archive that the log has not, and returns their ids.
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

// FailoverSpan says where to look for the events that a failover, crash or restore has lost.
type FailoverSpan struct {
	Log             string
	FirstID, NextID int64      // the ids of the life of the log that it has ended
	Since           *time.Time // when the first of them may have been published; nil: not known
}

// FailoverSpanOf returns the span of a failover.
func FailoverSpanOf(ctx context.Context, db DB, namespace string, failover int64) (FailoverSpan, error) {
	all, err := Collect(ctx, db, "look for the failover", pgx.RowToStructByPos[FailoverSpan],
		"select log::text, first_id, next_id, since from posthorn.failover_span($1::text, $2::bigint)", namespace, failover)
	if err != nil || len(all) == 0 {
		return FailoverSpan{}, err
	}
	return all[0], nil
}

// ImportedEvent is an event of another log, as it was there, and its id here.
type ImportedEvent struct {
	LocalID int64
	Event
}

// ImportedSince returns a page of the events that a namespace has imported of a span of a namespace
// of another log: those after an id of this one.
func ImportedSince(ctx context.Context, db DB, namespace string, span FailoverSpan, theirs string, after int64, limit int) ([]ImportedEvent, error) {
	scan := func(row pgx.CollectableRow) (e ImportedEvent, err error) {
		err = row.Scan(&e.LocalID, &e.ID, &e.Stream, &e.Type, &e.Key, &e.Tags, &e.Payload, &e.Metadata, &e.PublishedAt)
		return e, err
	}
	return Collect(ctx, db, "list imported events", scan, `
		select local_id, id, stream, type, coalesce(key, ''), tags, payload, metadata, published_at
		from posthorn.imported_since($1::text, $2::uuid, $3::text, $4::bigint, $5::bigint, $6::timestamptz, $7::bigint, $8::int)`,
		namespace, span.Log, theirs, span.FirstID, span.NextID, span.Since, after, limit)
}

// NoteImportedEvents keeps those of some events that another database has imported and the log has
// not. It returns how many these are, and how many of them were not known before.
func NoteImportedEvents(ctx context.Context, db DB, namespace, place string, events []Event) (lost, fresh int64, err error) {
	counts, err := Collect(ctx, db, "keep lost events", pgx.RowTo[[]int64], `
		select array[n.lost, n.fresh] from posthorn.note_imported_events($9::text, $10::text, $1::text[], $2::bigint[], $3::text[], $4::json[],
			$5::timestamptz[], $6::text[], $7::text[], $8::json[]) n`,
		append(eventColumns(events), namespace, place)...)
	if err != nil || len(counts) == 0 {
		return 0, 0, err
	}
	return counts[0][0], counts[0][1], nil
}
