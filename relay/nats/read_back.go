package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
)

// Written lists the streams of a namespace; see [posthorn.SinkReader].
func (s *Sink) Written(ctx context.Context, _, namespace string) ([]string, error) {
	return (&Source{config: s.config, names: names{s.config.Prefix, namespace}, js: s.js}).Streams(ctx)
}

// ReadBack reads messages of a stream, the last one first; see [posthorn.SinkReader].
func (s *Sink) ReadBack(ctx context.Context, _, namespace, stream, before string, limit int) ([]posthorn.SourceEntry, error) {
	name := names{s.config.Prefix, namespace}.stream(stream)
	found, err := s.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read stream %q of nats: %w", stream, err)
	}
	state := found.CachedInfo().State
	at := state.LastSeq
	if before != "" {
		passed, err := parsePosition(before)
		if err != nil {
			return nil, err
		}
		at = passed - 1
	}
	var entries []posthorn.SourceEntry
	for at >= state.FirstSeq && at > 0 && len(entries) < limit {
		n := min(maxRequests, limit-len(entries), int(min(at-state.FirstSeq+1, maxRequests)))
		messages, err := s.getMessages(ctx, name, at, n)
		if err != nil {
			return nil, fmt.Errorf("read stream %q of nats: %w", stream, err)
		}
		for _, m := range messages {
			entries = append(entries, decode(stream, strconv.FormatUint(m.Sequence, 10), m.Header, m.Data))
		}
		at -= uint64(n)
	}
	return entries, nil
}
