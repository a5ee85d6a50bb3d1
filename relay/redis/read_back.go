package redis

import (
	"context"
	"fmt"

	"github.com/posthorn/posthorn"
)

// Written lists the streams that sinks with the same prefix have written; see
// [posthorn.SinkReader].
func (s *Sink) Written(ctx context.Context, _, _ string) ([]string, error) {
	return (&Source{link: s.link}).Streams(ctx)
}

// ReadBack reads entries of a stream, the last one first; see [posthorn.SinkReader].
func (s *Sink) ReadBack(ctx context.Context, _, _, stream, before string, limit int) ([]posthorn.SourceEntry, error) {
	if err := s.link.open(ctx); err != nil {
		return nil, fmt.Errorf("read redis: %w", err)
	}
	from := "+"
	if before != "" {
		from = "(" + before
	}
	found, err := s.link.client.XRevRangeN(ctx, s.link.prefix+stream, from, "-", int64(limit)).Result()
	if err := s.link.check(ctx, err); err != nil {
		return nil, fmt.Errorf("read stream %q of redis: %w", stream, err)
	}
	entries := make([]posthorn.SourceEntry, len(found))
	for i, m := range found {
		entries[i] = decode(stream, m.ID, m)
	}
	return entries, nil
}
