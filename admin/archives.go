package admin

import (
	"context"
	"time"
)

// ArchiveStatus counts the events that an archive has written and those that it has yet to
// write.
type ArchiveStatus struct {
	Archive           string    `json:"archive" db:"name"`
	Location          string    `json:"location"`
	Paused            bool      `json:"paused"`
	LagEvents         int64     `json:"lag_events"`  // events that are not in the store yet; an estimate beyond 10,000
	LagSeconds        float64   `json:"lag_seconds"` // age of the oldest of them
	Streams           int64     `json:"streams"`
	PendingEvents     int64     `json:"pending_events"` // events that were read and are in no segment yet
	PendingBytes      int64     `json:"pending_bytes"`
	OldestPart        time.Time `json:"oldest_part,omitzero"` // when the oldest of them was read
	UnwrittenSegments int64     `json:"unwritten_segments"`
	Segments          int64     `json:"segments"`
	Events            int64     `json:"events"`
	Bytes             int64     `json:"bytes"` // of payloads and metadata
	Size              int64     `json:"size"`  // of the objects
	LastWrittenAt     time.Time `json:"last_written_at,omitzero"`
	FailingStreams    int64     `json:"failing_streams" db:"failing"`
	Error             string    `json:"error,omitempty" db:"seen_error"`
	CreatedAt         time.Time `json:"created_at"`
}

var archives = kind[ArchiveStatus]{"archive", `
	select *, coalesce(extract(epoch from posthorn.now() - lag_since), 0) as lag_seconds, ` + seenError("group", "archive_status.name") + `
	from posthorn.archive_status
	where namespace = $1::text and name = coalesce($2::text, name)
	order by name`, "See: posthorn archive list"}

// Archives returns the archives of the namespace, by name.
func (a *Admin) Archives(ctx context.Context) ([]ArchiveStatus, error) { return archives.all(ctx, a) }

// Archive returns one archive.
func (a *Admin) Archive(ctx context.Context, name string) (ArchiveStatus, error) {
	return archives.named(ctx, a, name)
}

// ArchivedStream is the part of an archive that belongs to one stream.
type ArchivedStream struct {
	Stream            string    `json:"stream"`
	Segments          int64     `json:"segments"`
	Events            int64     `json:"events"`
	FirstID           int64     `json:"first_id,omitempty"`
	LastID            int64     `json:"last_id,omitempty"`
	FirstDay          string    `json:"first_day,omitempty"`
	LastDay           string    `json:"last_day,omitempty"`
	PendingEvents     int64     `json:"pending_events"` // events that were read and are in no segment yet
	PendingBytes      int64     `json:"pending_bytes"`
	UnwrittenSegments int64     `json:"unwritten_segments"`
	OwnerID           string    `json:"owner_id,omitempty"` // the process that writes it
	LeaseUntil        time.Time `json:"lease_until,omitzero"`
	Checkpoint        int64     `json:"checkpoint,omitempty"` // the id of the last event that is written
	Error             string    `json:"error,omitempty"`
}

// ArchivedStreams returns the streams of an archive, by name.
func (a *Admin) ArchivedStreams(ctx context.Context, archive string) ([]ArchivedStream, error) {
	if err := a.see(ctx, a.db, aGroup(archive)); err != nil {
		return nil, err
	}
	return rows[ArchivedStream](ctx, a.db, "list archived streams", `
		select stream, segments, events, first_id, last_id, first_day::text, last_day::text, pending_events, pending_bytes,
			unwritten_segments, owner_id, lease_until, checkpoint, error
		from posthorn.archive_stream_status
		where namespace = $1::text and name = $2::text and stream <> all ($3::text[])
		order by stream`, a.namespace, archive, list(a.hidden))
}

// RelistArchive requests that all manifests of an archive are written again, and returns
// the number of their streams. The process that runs the archive writes them.
func (a *Admin) RelistArchive(ctx context.Context, archive string) (int64, error) {
	return changed[int64](ctx, a, aGroup(archive), entry{"relist-archive", archive, nil}, "select posthorn.relist_archive($1::text, $2::text)", a.namespace, archive)
}
