package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// SourceState is what the reader of a group's source has to know of the group.
type SourceState struct {
	Paused  bool
	Readers int    // that live, this one among them
	Begun   bool   // otherwise [BeginSource] is to be called
	From    Moment // what was published before is passed over
	KnownAs string // the group's name among those of all databases
}

// JoinSource says that a reader lives and is to be taken for alive that long. It
// fails with [ErrConflict] when the group does not read a broker any more.
func JoinSource(ctx context.Context, db DB, group int64, reader, node string, leaseFor time.Duration) (SourceState, error) {
	var s SourceState
	err := db.QueryRow(ctx, `select paused, readers, begun, start_from, known_as
		from posthorn.join_source($1::bigint, $2::uuid, $3::text, $4::text::interval)`, group, reader, node, period(leaseFor)).
		Scan(&s.Paused, &s.Readers, &s.Begun, &s.From, &s.KnownAs)
	return s, translate("join source", err)
}

// BeginSource notes where streams ended when a group began. Only its first call
// for a group changes something.
func BeginSource(ctx context.Context, db DB, group int64, streams, positions []string) error {
	return run(ctx, db, "begin source", "select posthorn.begin_source($1::bigint, $2::text[], $3::text[])", group, streams, positions)
}

// SourceStream is a stream that a reader holds.
type SourceStream struct {
	Stream   string
	Position string  // to read from
	Fence    string  // what is settled under another one is refused
	Deaths   int     // of readers that held it, since it last moved
	Seen     []int64 // events that were handled lately, oldest first
}

// TakeSourceStreams takes streams that nobody reads, most of them at most; those
// that the reader has already it gets anew, with all that is known of them.
func TakeSourceStreams(ctx context.Context, db DB, group int64, reader string, streams []string, most int) ([]SourceStream, error) {
	return list(ctx, db, "take streams", pgx.RowToStructByPos[SourceStream], `
		select stream, position, fence::text, deaths, seen
		from posthorn.take_source_streams($1::bigint, $2::uuid, $3::text[], $4::int)`, group, reader, streams, most)
}

// SourceBlock is what holds a stream of an ordered group back.
type SourceBlock struct {
	Stream  string
	Blocked bool     // all of it
	Keys    []string // these keys
}

// SourceBlocks returns which of some streams are held back.
func SourceBlocks(ctx context.Context, db DB, group int64, streams []string) ([]SourceBlock, error) {
	return list(ctx, db, "read what is blocked", pgx.RowToStructByPos[SourceBlock],
		"select stream, blocked, keys from posthorn.source_blocks($1::bigint, $2::text[])", group, streams)
}

// ReleaseSourceStreams gives streams back, for others to read.
func ReleaseSourceStreams(ctx context.Context, db DB, group int64, streams, fences []string) error {
	return run(ctx, db, "release streams", "select posthorn.release_source_streams($1::bigint, $2::text[], $3::text[]::uuid[])", group, streams, fences)
}

// LeaveSource ends a reader. What it holds is free at once.
func LeaveSource(ctx context.Context, db DB, group int64, reader string) error {
	return run(ctx, db, "leave source", "select posthorn.leave_source($1::bigint, $2::uuid)", group, reader)
}

// TryInSource notes that an event is handed out by itself, because its reader
// died, and returns how often that was.
func TryInSource(ctx context.Context, db DB, lease *SourceLease, event int64) (int, error) {
	return one[int](ctx, db, "try event", "select posthorn.try_in_source($1::bigint, $2::text, $3::uuid, $4::bigint)",
		lease.Group, lease.Stream, lease.Fence, event)
}

// NoteTrimmed notes that a broker threw away what a group had not read.
func NoteTrimmed(ctx context.Context, db DB, lease *SourceLease) error {
	return run(ctx, db, "note what was trimmed", "select posthorn.note_trimmed($1::bigint, $2::text, $3::uuid)",
		lease.Group, lease.Stream, lease.Fence)
}

// Origins returns the ids that failed events have in the log they are from,
// where that is another one.
func Origins(ctx context.Context, db DB, group int64, events []int64) (map[int64]int64, error) {
	type origin struct{ Event, Origin int64 }
	found, err := list(ctx, db, "read origins", pgx.RowToStructByPos[origin],
		"select event_id, origin_id from posthorn.origins($1::bigint, $2::bigint[])", group, events)
	origins := map[int64]int64{}
	for _, o := range found {
		origins[o.Event] = o.Origin
	}
	return origins, err
}
