package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthorn/posthorn"
)

// Written lists the streams of a namespace; see [posthorn.SinkReader].
func (s *Sink) Written(ctx context.Context, log, namespace string) ([]string, error) {
	ctx, give, err := s.take(ctx)
	if err != nil {
		return nil, fmt.Errorf("read kafka: %w", err)
	}
	defer give()
	// Only a relay with the lead reads back. Its epoch ends transactions of the leader before
	// it, which would hide the records after their first one.
	l, err := s.begin(ctx, log, namespace, 0)
	if err != nil {
		return nil, err
	}
	topics, errs, err := l.find(ctx, nil)
	for name, unread := range errs {
		if _, ours := l.names.stream(name); ours && err == nil {
			err = unread // a comparison without the topic would not find what the log has lost of it
		}
	}
	if err != nil {
		s.end()
		return nil, fmt.Errorf("read kafka: %w", explain(err))
	}
	var streams []string
	for name, t := range topics {
		stream, ours := l.names.stream(name)
		if !ours {
			continue
		}
		if stream == "" {
			if stream, err = l.nameOf(ctx, t); err != nil {
				s.end()
				return nil, fmt.Errorf("read kafka: %w", explain(err))
			}
		}
		if stream != "" {
			streams = append(streams, stream)
		}
	}
	slices.Sort(streams)
	return streams, nil
}

// nameOf returns the stream of a topic whose name was shortened: that of its last record.
func (l *life) nameOf(ctx context.Context, t *topic) (string, error) {
	errs, err := l.findEnds(ctx, map[string]*topic{t.name: t})
	if err == nil {
		err = errs[t.name]
	}
	if err != nil {
		return "", err
	}
	return l.lastName(ctx, l.names, t)
}

// lastName returns the stream that the last event of a topic names. The ends of the
// partitions are known.
func (b broker) lastName(ctx context.Context, n names, t *topic) (stream string, err error) {
	for _, p := range t.partitions {
		if err != nil || stream != "" {
			break
		}
		err = b.back(ctx, t, p, p.end, func(r *kgo.Record) bool {
			if name := streamOf(r); n.topic(name) == t.name {
				stream = name
			}
			return stream == ""
		})
	}
	return stream, err
}

// ReadBack reads records of a stream, the last one of each partition first; see
// [posthorn.SinkReader]. A position has an offset for each partition.
func (s *Sink) ReadBack(ctx context.Context, log, namespace, stream, before string, limit int) ([]posthorn.SourceEntry, error) {
	ctx, give, err := s.take(ctx)
	if err != nil {
		return nil, fmt.Errorf("read kafka: %w", err)
	}
	defer give()
	places, err := parsePosition(before)
	if err != nil {
		return nil, err
	}
	l, err := s.begin(ctx, log, namespace, 0)
	if err != nil {
		return nil, err
	}
	entries, err := l.readBack(ctx, stream, places, limit)
	if err != nil {
		s.end()
		return nil, fmt.Errorf("read stream %q of kafka: %w", stream, explain(err))
	}
	return entries, nil
}

func (l *life) readBack(ctx context.Context, stream string, places map[int32]place, limit int) ([]posthorn.SourceEntry, error) {
	name := l.names.topic(stream)
	topics, errs, err := l.find(ctx, []string{name})
	if err == nil {
		err = errs[name]
	}
	t := topics[name]
	if err != nil || t == nil {
		return nil, err
	}
	if errs, err = l.findEnds(ctx, topics); err == nil {
		err = errs[name]
	}
	if err != nil {
		return nil, err
	}
	var records []*kgo.Record
	each := max(1, limit/len(t.partitions))
	for _, p := range t.partitions {
		at, known := places[p.number]
		if !known {
			at = place{p.end, noEpoch}
		}
		left := min(each, limit-len(records))
		if left == 0 {
			places[p.number] = at
			continue
		}
		places[p.number] = place{p.begin, noEpoch}
		err := l.back(ctx, t, p, at.offset, func(r *kgo.Record) bool {
			records = append(records, r)
			places[p.number] = place{r.Offset, noEpoch}
			left--
			return left > 0
		})
		if err != nil {
			return nil, err
		}
	}
	position := formatPosition(places)
	entries := make([]posthorn.SourceEntry, len(records))
	for i, r := range records {
		entries[i] = decode(stream, position, r)
	}
	return entries, nil
}
