package inflow

import (
	"github.com/posthorn/posthorn/internal/pg"
)

// stream is one that this process holds. When it is taken anew, it is another.
// All but fence and name is guarded by the feed's lock, or belongs to whoever has
// it out.
type stream struct {
	name, fence string

	read   string  // where to read on
	done   string  // where it stands, for the database
	kept   *string // where it stands, for the broker
	buffer []Entry // what was read and not handed out
	taken  []Entry // what is out
	seen   *memory

	isOut, queued bool
	stale         bool // it is to be taken anew: we have lost track
	blocked       bool // an event that failed holds it back, or may
	keys          map[string]struct{}
	careful       int // so many events go out one by one, because a reader died
}

func newStream(taken pg.SourceStream, careful int) *stream {
	s := &stream{name: taken.Stream, fence: taken.Fence, read: taken.Position, done: taken.Position, seen: newMemory(taken.Seen)}
	if taken.Deaths > 0 {
		s.careful = careful
	}
	return s
}

// goes reports whether something can be handed out.
func (s *stream) goes() bool { return !s.isOut && !s.stale && !s.blocked && len(s.buffer) > 0 }

// block notes what holds it back.
func (s *stream) block(b pg.SourceBlock) {
	s.blocked = b.Blocked
	s.keys = map[string]struct{}{}
	for _, key := range b.Keys {
		s.keys[key] = struct{}{}
	}
}

// fate is what is to become of an entry. Here are the events of its lease.
func (s *stream) fate(e *Entry, here map[int64]struct{}, from pg.Moment) pg.Fate {
	if e.Err != nil || e.Trimmed || s.seen.has(e.Event.ID) {
		return pg.Skip
	}
	if _, twice := here[e.Event.ID]; twice {
		return pg.Skip
	}
	if from.Valid && from.InfinityModifier == 0 && e.Event.PublishedAt.Before(from.Time) {
		return pg.Skip
	}
	if _, held := s.keys[e.Event.Key]; held && e.Event.Key != "" {
		return pg.Defer
	}
	return pg.Handle
}

// memory knows the ids that were added last.
type memory struct {
	ids  map[int64]struct{}
	ring []int64 // in the order in which they were added
	next int     // the oldest, when the ring is full
}

// remembered is as much as the database keeps of a stream.
const remembered = 200_000

func newMemory(ids []int64) *memory {
	m := &memory{ids: make(map[int64]struct{}, len(ids))}
	for _, id := range ids {
		m.add(id)
	}
	return m
}

func (m *memory) has(id int64) bool {
	_, ok := m.ids[id]
	return ok
}

func (m *memory) add(id int64) {
	if m.has(id) {
		return
	}
	m.ids[id] = struct{}{}
	if len(m.ring) < remembered {
		m.ring = append(m.ring, id)
		return
	}
	delete(m.ids, m.ring[m.next])
	m.ring[m.next] = id
	m.next = (m.next + 1) % remembered
}
