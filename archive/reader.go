package archive

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Range selects events of an archive. A zero field does not restrict the selection.
type Range struct {
	Namespaces []string
	Streams    []string
	FromID     int64     // from this id on
	ToID       int64     // up to this id
	From       time.Time // published from this time on
	To         time.Time // published before this time
}

func (r *Range) upto() int64 {
	if r.ToID == 0 {
		return math.MaxInt64
	}
	return r.ToID
}

func (r *Range) hasEvent(e *pg.StoredEvent) bool {
	return e.ID >= r.FromID && e.ID <= r.upto() &&
		(r.From.IsZero() || !e.PublishedAt.Before(r.From)) && (r.To.IsZero() || e.PublishedAt.Before(r.To))
}

func (r *Range) hasIDs(first, last int64) bool { return last >= r.FromID && first <= r.upto() }

// hasDay reports whether a day, in UTC, may have events of the range.
func (r *Range) hasDay(d *day) bool {
	date, err := time.Parse(time.DateOnly, d.Day)
	return r.hasIDs(d.First, d.Last) && (err != nil ||
		(r.From.IsZero() || date.AddDate(0, 0, 1).After(r.From)) && (r.To.IsZero() || date.Before(r.To)))
}

// segmentRef is a segment and its key in the store.
type segmentRef struct {
	segment
	namespace, stream, key string
}

// streams yields the manifests of all streams in a range, or the error of one.
func (s *Store) streams(ctx context.Context, r Range) iter.Seq2[streamManifest, error] {
	return func(yield func(streamManifest, error) bool) {
		namespaces := r.Namespaces
		if len(namespaces) == 0 {
			var err error
			if namespaces, err = s.directories(ctx, ""); err != nil {
				yield(streamManifest{}, err)
				return
			}
			if len(namespaces) == 0 {
				yield(streamManifest{}, &storeError{notFound("there is no archive in "+s.location, checkURL)})
				return
			}
		}
		for _, namespace := range namespaces {
			directories, err := s.directories(ctx, namespace+"/")
			if err != nil && !yield(streamManifest{}, err) {
				return
			}
			if err == nil && len(directories) == 0 {
				err := notFound(fmt.Sprintf("there is no archive of namespace %s in %s", namespace, s.location), checkURL)
				if !yield(streamManifest{}, &storeError{err}) {
					return
				}
				continue
			}
			for _, stream := range r.Streams {
				if d := directoryOf(stream); !slices.Contains(directories, d) && !yield(streamManifest{}, fmt.Errorf("stream %s of namespace %s: %w", stream, namespace, pg.ErrNotFound)) {
					return
				}
			}
			for _, d := range directories {
				if len(r.Streams) > 0 && !slices.ContainsFunc(r.Streams, func(name string) bool { return directoryOf(name) == d }) {
					continue
				}
				if !yield(s.readStream(ctx, namespace, d)) {
					return
				}
			}
		}
	}
}

// A day that differs from the stream's manifest is read again, since an archiver may
// be writing both at this moment.
const (
	rereads     = 10
	rereadAfter = 250 * time.Millisecond
)

// days yields the days of a stream in a range, or the error of one.
func (s *Store) days(ctx context.Context, stream streamManifest, r Range) iter.Seq2[dayManifest, error] {
	return func(yield func(dayManifest, error) bool) {
		for _, d := range stream.Days {
			if !r.hasDay(&d) {
				continue
			}
			m, err := s.readDay(ctx, &stream, d)
			for attempt := 0; attempt < rereads && errors.Is(err, errAltered) && worker.Pause(ctx, rereadAfter); attempt++ {
				m, err = s.rereadDay(ctx, stream, d, err)
			}
			if !yield(m, err) {
				return
			}
		}
	}
}

// rereadDay reads the stream's manifest and the day again. If the manifest has not
// changed, the day was altered.
func (s *Store) rereadDay(ctx context.Context, stream streamManifest, d day, altered error) (dayManifest, error) {
	now, err := s.readStream(ctx, stream.Namespace, directoryOf(stream.Stream))
	if err != nil {
		return dayManifest{}, err
	}
	i := slices.IndexFunc(now.Days, func(x day) bool { return x.Day == d.Day })
	if i < 0 {
		return dayManifest{}, altered
	}
	return s.readDay(ctx, &now, now.Days[i])
}

// chained compares a day with its entry in the stream's manifest.
func chained(d day, m dayManifest) error {
	sum := day{Day: d.Day, SHA256: d.SHA256, First: math.MaxInt64}
	for _, seg := range m.Segments {
		sum.Segments++
		sum.Events += int64(seg.Events)
		sum.First = min(sum.First, seg.First)
		sum.Last = max(sum.Last, seg.Last)
	}
	if sum != d {
		return fmt.Errorf("day %s of stream %s has %d events in %d segments, not %d in %d",
			d.Day, m.Stream, sum.Events, sum.Segments, d.Events, d.Segments)
	}
	return nil
}

func (m *dayManifest) segments(r Range) []segmentRef {
	var refs []segmentRef
	date, _ := time.Parse(time.DateOnly, m.Day) // it was read by that
	for _, seg := range m.Segments {
		if r.hasIDs(seg.First, seg.Last) {
			refs = append(refs, segmentRef{seg, m.Namespace, m.Stream, dayPrefix(m.Namespace, m.Stream, date) + seg.Name})
		}
	}
	return refs
}

// segments lists the segments in a range by their first ids. The first error ends it.
func (s *Store) segments(ctx context.Context, r Range) ([]segmentRef, error) {
	var refs []segmentRef
	for stream, err := range s.streams(ctx, r) {
		if err != nil {
			return nil, err
		}
		for d, err := range s.days(ctx, stream, r) {
			if err != nil {
				return nil, err
			}
			refs = append(refs, d.segments(r)...)
		}
	}
	slices.SortFunc(refs, func(a, b segmentRef) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	return refs, nil
}

// merge yields the events of segments, sorted by their first ids, in the order of
// ids. A segment is open only while its range is being read.
func (s *Store) merge(ctx context.Context, refs []segmentRef, r Range) iter.Seq2[pg.StoredEvent, error] {
	return func(yield func(pg.StoredEvent, error) bool) {
		var open heads
		defer func() {
			for _, h := range open {
				h.stop()
			}
		}()
		last := int64(0)
		for len(refs) > 0 || len(open) > 0 {
			if len(open) == 0 || len(refs) > 0 && refs[0].First <= open[0].event.ID {
				next, stop := iter.Pull2(s.readSegment(ctx, refs[0]))
				refs = refs[1:]
				h := &head{next: next, stop: stop}
				if more, err := h.advance(); err != nil {
					stop()
					yield(pg.StoredEvent{}, err)
					return
				} else if more {
					heap.Push(&open, h)
				}
				continue
			}
			e := open[0].event
			if e.ID == last {
				yield(e, fmt.Errorf("event %d is in two segments", e.ID))
				return
			}
			last = e.ID
			if r.hasEvent(&e) && !yield(e, nil) {
				return
			}
			if more, err := open[0].advance(); err != nil {
				yield(pg.StoredEvent{}, err)
				return
			} else if more {
				heap.Fix(&open, 0)
			} else {
				heap.Pop(&open).(*head).stop()
			}
		}
	}
}

// head is the next event of an open segment.
type head struct {
	event pg.StoredEvent
	next  func() (pg.StoredEvent, error, bool)
	stop  func()
}

func (h *head) advance() (more bool, err error) {
	h.event, err, more = h.next()
	return more && err == nil, err
}

type heads []*head

func (h heads) Len() int           { return len(h) }
func (h heads) Less(i, j int) bool { return h[i].event.ID < h[j].event.ID }
func (h heads) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)        { *h = append(*h, x.(*head)) }
func (h *heads) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
