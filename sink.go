package posthorn

import (
	"context"
	"errors"
	"time"
)

// Sink writes events to a broker, for a relay. Packages relay/redis and
// relay/nats have one each.
type Sink interface {
	// Write writes events, those of each stream in their order, and returns nil when
	// the broker has all of them for good. Calls that run at the same time are for
	// different streams.
	//
	// Where the broker has some of them, it returns [EventErrors] with the others.
	// Once an event of a stream is not written, none after it may be, unless its
	// error is [Permanent]: such an event the broker will never take, and the stream
	// goes on without it. After any other error all of them come again, as they do
	// after a crash: what was written already should be recognised.
	Write(ctx context.Context, batch SinkBatch) error
}

// SinkBatch is what a [Sink] writes.
type SinkBatch struct {
	// Origin names the log that the events are from, for good: ids are unique in it.
	Origin    string
	Namespace string
	Events    []Event
}

// Trimmer is a [Sink] that can remove from the broker what nobody needs any more.
// A relay that has one calls it now and then for each stream that it has written
// to, see [RelayConfig].TrimEvery, and never for one stream twice at once. Writes
// go on meanwhile, also of that stream.
type Trimmer interface {
	// Trim removes the oldest entries of a stream, as its own settings allow, but
	// none that is needed, and none after one that is: needed returns those of some
	// ids of events that an archive has yet to write. It may be asked as often as is
	// necessary, and costs a query of the database each time.
	Trim(ctx context.Context, namespace, stream string, needed func(ctx context.Context, ids []int64) ([]int64, error)) error
}

// Source reads events from a broker, for an import: what a [Sink] wrote there.
// Packages relay/redis and relay/nats have one each.
type Source interface {
	// Kind names the kind of broker: a position means nothing to one of another kind.
	Kind() string
	// String is where the broker is, without secrets.
	String() string
	// Streams lists the streams that there are.
	Streams(ctx context.Context) ([]string, error)
	// Read returns what comes after a position in each of some streams, by their
	// names, in the order of each stream and up to max altogether. The position of
	// the beginning is "". If there is nothing it waits for that long. A position
	// behind which something was trimmed yields an entry with [ErrTrimmed] first,
	// so that nothing is lost silently.
	Read(ctx context.Context, after map[string]string, max int, wait time.Duration) ([]SourceEntry, error)
	// Behind returns how many entries come after a position in a stream, and when the
	// broker got the first of them.
	Behind(ctx context.Context, stream, position string) (events int64, oldest time.Time, err error)
	// Keep registers a reader with the broker: a relay does not trim what the reader
	// has not passed.
	Keep(ctx context.Context, reader, stream, passed string) error
}

// SourceEntry is an entry that a [Source] read.
type SourceEntry struct {
	Stream   string
	Position string
	// Log and Namespace are where the event was published. Its ID, Metadata and
	// PublishedAt are those of there.
	Log       string
	Namespace string
	Event     Event
	// Err says why the entry is no event: no relay wrote it; or it is [ErrTrimmed], and
	// there is no entry.
	Err error
}

// ErrTrimmed, as the error of an entry, says that the broker has removed entries
// after the position that was asked for. Reading goes on after the entry's own
// position, with what is there.
var ErrTrimmed = errors.New("the broker has removed entries that were not read")
