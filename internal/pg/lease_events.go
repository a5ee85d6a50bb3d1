package pg

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Most events have no tags, and null costs a tenth less of an event than an empty array does.
// Empty metadata stay: telling them apart costs more than sending them.
var leaseEventsStatement = statement{"posthorn_lease_events", `
	select event_id, stream_id, type, key, case when cardinality(tags) > 0 then tags end, payload, metadata, published_at, delivery, subscriptions
	from posthorn.lease_events($1::uuid)`}

// leaseEvents is a step that reads the events of the leases which were taken with a token.
// Stream is still empty then, and streamIDs has the ids of the streams.
func (s *session) leaseEvents(token pgtype.UUID, maxEvents int, events *[]Event) step {
	s.streamIDs = s.streamIDs[:0]
	var texts buffer
	return step{statement: leaseEventsStatement, args: []any{token}, decode: func(values [][]byte) bool {
		if *events == nil {
			*events = make([]Event, 0, min(maxEvents, 1000))
		}
		*events = append(*events, Event{})
		return s.decode(values, &(*events)[len(*events)-1], &texts)
	}}
}

// decode reads a row of lease_events in binary format. The next row overwrites the values,
// so they are copied, once.
func (s *session) decode(values [][]byte, e *Event, texts *buffer) bool {
	if len(values) != 10 || len(values[0]) != 8 || len(values[1]) != 8 || len(values[7]) != 8 || len(values[8]) != 4 {
		return false
	}
	b := binary.BigEndian
	e.ID = int64(b.Uint64(values[0]))
	s.streamIDs = append(s.streamIDs, int64(b.Uint64(values[1])))
	e.Type = s.intern(values[2])
	e.Key = string(values[3])
	e.Payload = texts.copy(values[5])
	e.Metadata = texts.copy(values[6])
	e.PublishedAt = timeOf(int64(b.Uint64(values[7])))
	e.Delivery = int(int32(b.Uint32(values[8])))
	var ok bool
	if e.Tags, ok = textArray(values[4]); !ok {
		return false
	}
	e.Subscriptions, ok = textArray(values[9])
	return ok
}

// intern returns the same string for equal texts. It keeps at most 1000, so a program with
// an endless number of types does not fill the memory.
func (s *session) intern(text []byte) string {
	if known, ok := s.types[string(text)]; ok { // does not allocate
		return known
	}
	if len(s.types) == 1000 {
		clear(s.types)
	}
	fresh := string(text)
	s.types[fresh] = fresh
	return fresh
}

// buffer copies byte slices into larger pieces of memory. That saves allocations, but an
// event that stays in memory keeps the bytes of its neighbours too.
type buffer struct{ free []byte }

const bufferSize = 32 << 10

func (b *buffer) copy(value []byte) []byte {
	if len(value) > bufferSize/4 {
		return slices.Clone(value)
	}
	if len(value) > cap(b.free)-len(b.free) {
		b.free = make([]byte, 0, bufferSize)
	}
	start := len(b.free)
	b.free = append(b.free, value...)
	return b.free[start:len(b.free):len(b.free)]
}

// timeOf converts microseconds since the year 2000, the times of Postgres.
func timeOf(microseconds int64) time.Time {
	const epoch = 946684800 * 1000000
	return time.UnixMicro(epoch + microseconds)
}

// textArray decodes a text[] that has no nulls and at most one dimension.
func textArray(value []byte) ([]string, bool) {
	b := binary.BigEndian
	const header = 12 // dimensions, whether there are nulls, element type
	if len(value) == header && b.Uint32(value) == 0 {
		return nil, true
	}
	if len(value) < header+8 || b.Uint32(value) != 1 {
		return nil, value == nil
	}
	n := int(b.Uint32(value[header:]))
	value = value[header+8:] // the number of elements and the lower bound
	if n > len(value)/4 {
		return nil, false
	}
	texts := make([]string, n)
	for i := range texts {
		if len(value) < 4 {
			return nil, false
		}
		size := int(int32(b.Uint32(value)))
		if size < 0 || size > len(value)-4 {
			return nil, false
		}
		texts[i] = string(value[4 : 4+size])
		value = value[4+size:]
	}
	return texts, true
}
