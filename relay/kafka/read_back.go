package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	offsets, err := parsePosition(before)
	if err != nil {
		return nil, err
	}
	l, err := s.begin(ctx, log, namespace, 0)
	if err != nil {
		return nil, err
	}
	entries, err := l.readBack(ctx, stream, offsets, limit)
	if err != nil {
		s.end()
		return nil, fmt.Errorf("read stream %q of kafka: %w", stream, explain(err))
	}
	return entries, nil
}

func (l *life) readBack(ctx context.Context, stream string, offsets map[int32]int64, limit int) ([]posthorn.SourceEntry, error) {
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
		at, known := offsets[p.number]
		if !known {
			at = p.end
		}
		left := min(each, limit-len(records))
		if left == 0 {
			offsets[p.number] = at
			continue
		}
		offsets[p.number] = p.begin
		err := l.back(ctx, t, p, at, func(r *kgo.Record) bool {
			records = append(records, r)
			offsets[p.number] = r.Offset
			left--
			return left > 0
		})
		if err != nil {
			return nil, err
		}
	}
	position := formatPosition(offsets)
	entries := make([]posthorn.SourceEntry, len(records))
	for i, r := range records {
		entries[i] = decode(stream, position, r)
	}
	return entries, nil
}

// A position is the offsets before which partitions are read, like 0:120,1:99.
func formatPosition(offsets map[int32]int64) string {
	var parts []string
	for _, number := range slices.Sorted(maps.Keys(offsets)) {
		parts = append(parts, fmt.Sprintf("%d:%d", number, offsets[number]))
	}
	return strings.Join(parts, ",")
}

func parsePosition(text string) (map[int32]int64, error) {
	offsets := map[int32]int64{}
	if text == "" {
		return offsets, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, second, _ := strings.Cut(part, ":")
		number, err := strconv.ParseInt(first, 10, 32)
		offset, err2 := strconv.ParseInt(second, 10, 64)
		if err != nil || err2 != nil || offset < 0 {
			return nil, invalid("the position "+strconv.Quote(text)+" is not one of Kafka", "Positions come from ReadBack.")
		}
		offsets[int32(number)] = offset
	}
	return offsets, nil
}
