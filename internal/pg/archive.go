package pg

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// ArchiveConfig says when an archive begins a new segment. A zero value keeps the setting,
// or its default in a new archive.
type ArchiveConfig struct {
	SegmentBytes  int64
	SegmentEvents int
	SegmentAge    time.Duration
}

// DefineArchive makes an archive, or changes its settings, and returns its number and the
// origin that its manifests name. It fails with [ErrConflict] when the archive has another
// location, unless moved.
func DefineArchive(ctx context.Context, db DB, namespace, name, location string, config ArchiveConfig, moved bool) (archive int, origin string, err error) {
	settings := map[string]any{}
	if config.SegmentBytes != 0 {
		settings["segment_bytes"] = config.SegmentBytes
	}
	if config.SegmentEvents != 0 {
		settings["segment_events"] = config.SegmentEvents
	}
	if config.SegmentAge != 0 {
		settings["segment_age"] = Period(config.SegmentAge)
	}
	encoded, _ := json.Marshal(settings) // numbers and texts cannot fail
	err = db.QueryRow(ctx, `
		select archive, origin::text
		from posthorn.define_archive($1::text, $2::text, $3::text, $4::jsonb, $5::boolean)`,
		namespace, name, location, string(encoded), moved).Scan(&archive, &origin)
	return archive, origin, Translate("define archive", err)
}

// PlanArchive reads the next events of an archive's group, and divides them into segments.
// It returns the number of events that it read and of segments to write. It is not ok
// while another session plans.
func PlanArchive(ctx context.Context, db DB, archive, maxEvents int) (events, segments int64, ok bool, err error) {
	err = db.QueryRow(ctx, `
		select coalesce(sum(p.events), 0)::bigint, coalesce(sum(p.segments), 0)::bigint, count(*) > 0
		from posthorn.plan_archive($1::int, $2::int) p`, archive, maxEvents).Scan(&events, &segments, &ok)
	return events, segments, ok, Translate("plan archive", err)
}

// ArchiveStream is the lease of a stream, which one worker may write to an archive until a
// deadline. Owner and Attempt fence: calls with an old pair fail with [ErrLeaseLost].
type ArchiveStream struct {
	Archive int
	ID      int64
	Name    string
	Owner   string
	Attempt int
}

// LeaseArchiveStream takes a stream that has segments or manifests to write. It is not ok
// if there is none.
func LeaseArchiveStream(ctx context.Context, db DB, archive int, worker string, leaseFor time.Duration) (s ArchiveStream, ok bool, err error) {
	s.Archive = archive
	err = db.QueryRow(ctx, `
		select stream_id, stream, owner_id, attempt
		from posthorn.lease_archive_stream($1::int, $2::text, $3::interval)`,
		archive, worker, Period(leaseFor)).Scan(&s.ID, &s.Name, &s.Owner, &s.Attempt)
	if err == pgx.ErrNoRows {
		return s, false, nil
	}
	err = claimError(err)
	return s, err == nil, Translate("lease stream", err)
}

// ExtendArchiveStream moves the deadline, and records the error of a failure. With 0 it
// gives the stream back.
func ExtendArchiveStream(ctx context.Context, db DB, s ArchiveStream, leaseFor time.Duration, failure string) error {
	return Exec(ctx, db, "extend stream",
		"select posthorn.extend_archive_stream($1::int, $2::bigint, $3::text, $4::int, $5::interval, $6::text)",
		s.Archive, s.ID, s.Owner, s.Attempt, Period(leaseFor), Optional(failure))
}

// ArchiveSegment is one object of an archive.
type ArchiveSegment struct {
	FirstID     int64
	LastID      int64
	Day         time.Time // only of a segment that is not written
	Events      int
	Bytes       int64 // of payloads and metadata
	Size        int64 // of the object
	SHA256      string
	FirstAt     time.Time
	LastAt      time.Time
	KeyVersions []int32
}

// UnwrittenSegment returns the next segment of a stream to write. It is not ok if all
// segments are written.
func UnwrittenSegment(ctx context.Context, db DB, s ArchiveStream) (seg ArchiveSegment, ok bool, err error) {
	err = db.QueryRow(ctx, `
		select first_id, last_id, day, events, bytes from posthorn.unwritten_segment($1::int, $2::bigint)`,
		s.Archive, s.ID).Scan(&seg.FirstID, &seg.LastID, &seg.Day, &seg.Events, &seg.Bytes)
	if err == pgx.ErrNoRows {
		return seg, false, nil
	}
	return seg, err == nil, Translate("find segment", err)
}

// StoredEvent is an event with the bytes that are in the log: payloads may be sealed, and
// an empty key differs from a missing one.
type StoredEvent struct {
	ID          int64
	Namespace   string // only of events that are restored
	Stream      string
	Type        string
	Key         *string
	Tags        []string
	Payload     []byte
	Metadata    []byte
	PublishedAt time.Time
}

// SegmentEvents yields the events of a segment that is not written, in order. It holds a
// connection until the loop ends.
func SegmentEvents(ctx context.Context, db DB, s ArchiveStream, firstID int64) iter.Seq2[StoredEvent, error] {
	return stored(ctx, db, "read segment", s.Name, `
		select event_id, null::text, type, key, tags, payload::text, metadata::text, published_at
		from posthorn.segment_events($1::int, $2::bigint, $3::bigint)`, s.Archive, s.ID, firstID)
}

// LogEvents yields the events of a namespace that have ids after one and up to another
// and were published in a period, by id.
func LogEvents(ctx context.Context, db DB, namespace string, after, upto int64, since, until time.Time, max int) iter.Seq2[StoredEvent, error] {
	return stored(ctx, db, "read log", "", `
		select e.id, (select s.name from posthorn.streams s where s.id = e.stream_id), e.type, e.key, e.tags,
			e.payload::text, e.metadata::text, e.created_at
		from posthorn.events e
		where e.namespace_id = posthorn.namespace_id($1::text) and e.id > $2::bigint and e.id <= $3::bigint
			and e.created_at >= $4::timestamptz and e.created_at < $5::timestamptz
		order by e.id limit $6::int`, namespace, after, upto, bound(since, pgtype.NegativeInfinity), bound(until, pgtype.Infinity), max)
}

// bound returns a time, or end if the time is zero.
func bound(t time.Time, end pgtype.InfinityModifier) pgtype.Timestamptz {
	if t.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: end, Valid: true}
	}
	return pgtype.Timestamptz{Time: t, Valid: true}
}

func stored(ctx context.Context, db DB, verb, stream, sql string, args ...any) iter.Seq2[StoredEvent, error] {
	return func(yield func(StoredEvent, error) bool) {
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			yield(StoredEvent{}, Translate(verb, err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			e := StoredEvent{}
			var name *string
			if err := rows.Scan(&e.ID, &name, &e.Type, &e.Key, &e.Tags, &e.Payload, &e.Metadata, &e.PublishedAt); err != nil {
				yield(e, Translate(verb, err))
				return
			}
			if e.Stream = stream; name != nil {
				e.Stream = *name
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(StoredEvent{}, Translate(verb, err))
		}
	}
}

// FinishSegment records that a segment is in the store, and moves the checkpoint.
func FinishSegment(ctx context.Context, db DB, s ArchiveStream, seg ArchiveSegment, leaseFor time.Duration) error {
	return Exec(ctx, db, "finish segment", `
		select posthorn.finish_segment($1::int, $2::bigint, $3::text, $4::int, $5::bigint, $6::bigint, $7::text, $8::int,
			$9::timestamptz, $10::timestamptz, $11::int[], $12::interval)`,
		s.Archive, s.ID, s.Owner, s.Attempt, seg.FirstID, seg.Size, seg.SHA256, seg.Events,
		seg.FirstAt, seg.LastAt, seg.KeyVersions, Period(leaseFor))
}

// ArchiveDay is the part of an archived stream that belongs to one day.
type ArchiveDay struct {
	Day      time.Time
	Segments int64
	Events   int64
	FirstID  int64
	LastID   int64
	SHA256   string // of the manifest
}

// UnlistedDays returns the days whose manifests do not list all segments.
func UnlistedDays(ctx context.Context, db DB, s ArchiveStream) ([]ArchiveDay, error) {
	return Collect(ctx, db, "list unlisted days", pgx.RowToStructByNameLax[ArchiveDay],
		"select day, segments from posthorn.unlisted_days($1::int, $2::bigint)", s.Archive, s.ID)
}

// ListSegments returns the written segments of a day, by their first ids.
func ListSegments(ctx context.Context, db DB, s ArchiveStream, day time.Time) ([]ArchiveSegment, error) {
	return Collect(ctx, db, "list segments", pgx.RowToStructByNameLax[ArchiveSegment], `
		select first_id, last_id, events, bytes, size, sha256, first_at, last_at, key_versions
		from posthorn.list_segments($1::int, $2::bigint, $3::date)`, s.Archive, s.ID, pgtype.Date{Time: day, Valid: true})
}

// ListDays returns the days of a stream in an archive.
func ListDays(ctx context.Context, db DB, s ArchiveStream) ([]ArchiveDay, error) {
	return Collect(ctx, db, "list days", pgx.RowToStructByName[ArchiveDay], `
		select day, segments, events, first_id, last_id, coalesce(sha256, '') as sha256
		from posthorn.list_days($1::int, $2::bigint)`, s.Archive, s.ID)
}

// FinishDay records that the manifest of a day is in the store.
func FinishDay(ctx context.Context, db DB, s ArchiveStream, day time.Time, segments int, sha256 string, leaseFor time.Duration) error {
	return Exec(ctx, db, "finish day",
		"select posthorn.finish_day($1::int, $2::bigint, $3::text, $4::int, $5::date, $6::bigint, $7::text, $8::interval)",
		s.Archive, s.ID, s.Owner, s.Attempt, pgtype.Date{Time: day, Valid: true}, segments, sha256, Period(leaseFor))
}

// FinishArchiveStream records that the manifest of the stream is in the store, and gives
// the stream back.
func FinishArchiveStream(ctx context.Context, db DB, s ArchiveStream) error {
	return Exec(ctx, db, "finish stream",
		"select posthorn.finish_archive_stream($1::int, $2::bigint, $3::text, $4::int)", s.Archive, s.ID, s.Owner, s.Attempt)
}

// Unarchived returns those of some event ids of a stream that an archive has yet to
// write.
func Unarchived(ctx context.Context, db DB, namespace, stream string, ids []int64) ([]int64, error) {
	return Collect(ctx, db, "look up unarchived events", pgx.RowTo[int64],
		"select i from posthorn.unarchived($1::text, $2::text, $3::bigint[]) i", namespace, stream, ids)
}
