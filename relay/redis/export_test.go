package redis

import (
	"context"

	"github.com/posthorn/posthorn"
)

var Slot = slot

// LimitEntries sets the largest event, in bytes, that a sink sends to its server.
func LimitEntries(s *Sink, bytes int) { s.maxEntry = bytes }

// Late runs the script as a relay does that prepared the call while prev was the last
// id of the stream, and has lost its lease since.
func Late(ctx context.Context, s *Sink, prev string, batch posthorn.SinkBatch) (any, error) {
	f := s.split(batch)[0]
	p := nodeWriter{ctx: ctx, source: "posthorn:" + batch.Log + ":" + batch.Namespace}
	if err := s.link.open(ctx); err != nil {
		return nil, err
	}
	node, err := s.link.node(ctx, f.key)
	if err != nil {
		return nil, err
	}
	cmd := p.call(f, prev, f.events)
	_ = node.Process(ctx, cmd)
	return cmd.Result()
}
