package posthorn

import "context"

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
