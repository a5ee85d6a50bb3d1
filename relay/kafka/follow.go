package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthorn/posthorn"
)

// followed is a stream that is read: its position, and the records behind it that Kafka has
// returned already.
type followed struct {
	stream  string
	topic   *topic
	given   string            // the position that the caller has
	passed  map[int32]place   // where each partition goes on
	buffers map[int32]*buffer // by partition
}

// buffer has records of a partition that were not taken yet.
type buffer struct {
	records []*kgo.Record
	next    place // behind them
	trimmed bool  // Kafka has removed records before them that were not read
}

// position gives the caller the position.
func (f *followed) position() string {
	f.given = f.topic.idText() + "/" + formatPosition(f.passed)
	return f.given
}

// severalWait is how long each of several nodes may wait for new records: the others wait
// for its reply.
const severalWait = 100 * time.Millisecond

// partBytes is how much of a partition one request of a source reads, since it reads many.
const partBytes = 1 << 20

// Read returns the next events, or waits for them; see [posthorn.Source].
func (s *Source) Read(ctx context.Context, after map[string]string, limit int, wait time.Duration) ([]posthorn.SourceEntry, error) {
	deadline := time.Now().Add(wait)
	if err := s.locate(ctx, after); err != nil {
		return nil, fmt.Errorf("read kafka: %w", explain(err))
	}
	all, err := s.follow(after)
	if err != nil {
		return nil, err
	}
	for {
		entries := collect(all, limit)
		left := time.Until(deadline)
		if len(entries) > 0 || left <= 0 {
			return entries, nil
		}
		if len(all) == 0 {
			return nil, rest(ctx, left)
		}
		if err := s.fill(ctx, all, left); err != nil {
			s.forget(all)
			if entries = collect(all, limit); len(entries) > 0 {
				return entries, nil
			}
			return nil, fmt.Errorf("read kafka: %w", explain(err))
		}
	}
}

func rest(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait):
		return nil
	}
}

// collect takes about the same number of entries from each stream, and fills up with the rest.
func collect(all []*followed, limit int) (entries []posthorn.SourceEntry) {
	for _, share := range []int{max(1, limit/max(1, len(all))), limit} {
		for _, f := range all {
			entries = f.take(entries, min(share, limit-len(entries)))
		}
	}
	return entries
}

// take moves up to n entries to the end of entries.
func (f *followed) take(entries []posthorn.SourceEntry, n int) []posthorn.SourceEntry {
	for _, p := range f.topic.partitions {
		b := f.buffers[p.number]
		if b == nil || n <= 0 {
			continue
		}
		if b.trimmed {
			b.trimmed, f.passed[p.number] = false, b.next
			entries = append(entries, posthorn.SourceEntry{Stream: f.stream, Position: f.position(), Err: posthorn.ErrTrimmed})
			n--
		}
		for ; n > 0 && len(b.records) > 0; n-- {
			r := b.records[0]
			b.records = b.records[1:]
			f.passed[p.number] = place{r.Offset + 1, r.LeaderEpoch}
			if len(b.records) == 0 {
				f.passed[p.number] = b.next // behind the mark of the transaction
			}
			entries = append(entries, decode(f.stream, f.position(), r))
		}
	}
	return entries
}

// follow returns the streams that exist, each at its position.
func (s *Source) follow(after map[string]string) (all []*followed, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream, position := range after {
		t := s.topics[stream]
		f := s.followed[stream]
		switch {
		case t == nil && position != "":
			return nil, refused("the topic of stream "+stream+" is not there", otherTopic)
		case t == nil:
			continue
		case f == nil || f.given != position || f.topic.id != t.id:
			passed, err := t.placesOf(position)
			if err != nil {
				return nil, fmt.Errorf("read stream %q of kafka: %w", stream, err)
			}
			f = &followed{stream: stream, given: position, passed: passed, buffers: map[int32]*buffer{}}
			s.followed[stream] = f
		}
		f.topic = t // may have more partitions, and other leaders
		all = append(all, f)
	}
	return all, nil
}

// locate finds the topics of streams that Streams has not seen.
func (s *Source) locate(ctx context.Context, after map[string]string) error {
	streams := map[string]string{} // by topic
	var unknown []string
	s.mu.Lock()
	for stream := range after {
		if s.topics[stream] == nil {
			name := s.names.topic(stream)
			streams[name], unknown = stream, append(unknown, name)
		}
	}
	s.mu.Unlock()
	if len(unknown) == 0 {
		return nil
	}
	found, errs, err := s.reading.find(ctx, unknown)
	if err != nil {
		return err
	}
	for _, err := range errs {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, t := range found {
		s.topics[streams[name]] = t
	}
	return nil
}

// forget lets the next Read find the topics again, which may have other leaders.
func (s *Source) forget(all []*followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range all {
		delete(s.topics, f.stream)
	}
}

// fill reads the next records of the partitions that have none in their buffers, or waits for
// them.
func (s *Source) fill(ctx context.Context, all []*followed, wait time.Duration) error {
	if err := s.begin(ctx, all); err != nil {
		return err
	}
	type place struct {
		topic  string
		number int32
	}
	byNode, owners := map[int32][]want{}, map[place]*followed{}
	for _, f := range all {
		for _, p := range f.topic.partitions {
			if b := f.buffers[p.number]; len(b.records) == 0 && !b.trimmed {
				byNode[p.leader] = append(byNode[p.leader], want{f.topic, p, b.next})
				owners[place{f.topic.name, p.number}] = f
			}
		}
	}
	if len(byNode) > 1 {
		wait = min(wait, severalWait)
	}
	var (
		mu      sync.Mutex
		failure error
		polls   sync.WaitGroup
	)
	for node, wants := range byNode {
		polls.Go(func() {
			pages, err := s.reading.poll(ctx, node, wants, partBytes, wait)
			mu.Lock()
			defer mu.Unlock()
			failure = cmp.Or(failure, err)
			for _, page := range pages {
				failure = cmp.Or(failure, s.put(ctx, owners[place{page.topic.name, page.partition.number}], page))
			}
		})
	}
	polls.Wait()
	return failure
}

// begin makes the buffers of partitions. One that is not in the position begins with its
// first record. The next position has that place, also if no record is read by then: so
// records that Kafka removes later are told.
func (s *Source) begin(ctx context.Context, all []*followed) error {
	fresh, errs := map[string]*topic{}, map[string]error{}
	for _, f := range all {
		for _, p := range f.topic.partitions {
			if f.buffers[p.number] != nil {
				continue
			}
			if at, known := f.passed[p.number]; known {
				f.buffers[p.number] = &buffer{next: at}
			} else {
				fresh[f.topic.name] = f.topic
			}
		}
	}
	err := s.reading.listOffsets(ctx, fresh, errs, earliest, readUncommitted, func(p *partition, offset int64) { p.begin = offset })
	if err != nil {
		return err
	}
	for _, err := range errs {
		return err
	}
	for _, f := range all {
		for _, p := range f.topic.partitions {
			if f.buffers[p.number] == nil {
				f.passed[p.number] = place{p.begin, noEpoch}
				f.buffers[p.number] = &buffer{next: f.passed[p.number]}
			}
		}
	}
	return nil
}

// put puts the records of a page into their buffer.
func (s *Source) put(ctx context.Context, f *followed, page page) error {
	b := f.buffers[page.partition.number]
	switch {
	case errors.Is(page.err, kerr.OffsetOutOfRange):
		return s.outOfRange(ctx, f, page.partition, b)
	case page.err != nil:
		return page.err
	case page.diverges:
		return lost(f.topic, page.partition, b.next)
	}
	b.records, b.next = page.records, page.next
	return nil
}

// outOfRange goes on with the first record of a partition, if Kafka has removed the next
// ones.
func (s *Source) outOfRange(ctx context.Context, f *followed, p *partition, b *buffer) error {
	if err := s.reading.findCommitted(ctx, f.topic); err != nil {
		return err
	}
	switch {
	case b.next.offset < p.begin:
		b.next, b.trimmed = place{p.begin, noEpoch}, true
		return nil
	case b.next.offset > p.end:
		return refused(fmt.Sprintf("partition %d of topic %s ends at %d, before the position %d of the import: it has lost records",
			p.number, f.topic.name, p.end, b.next.offset), otherTopic)
	}
	if b.next.epoch == noEpoch { // it has changed meanwhile
		return fmt.Errorf("read partition %d of topic %s: %w", p.number, f.topic.name, kerr.OffsetOutOfRange)
	}
	return lost(f.topic, p, b.next) // Kafka has nothing of the epoch
}

func lost(t *topic, p *partition, at place) error {
	return refused(fmt.Sprintf("partition %d of topic %s has lost records: since epoch %d it has others before the position %d of the import",
		p.number, t.name, at.epoch, at.offset), otherTopic)
}
