package redis

import (
	"context"

	"github.com/posthorn/posthorn"
)

var Slot = slot

// LimitEntries lets a sink believe that its server takes less than others.
func LimitEntries(s *Sink, bytes int) { s.maxEntry = bytes }

// Late is a call of the script that a sink has prepared and not sent: what an owner
// of a stream that lost it may have on its way.
func Late(ctx context.Context, s *Sink, prev string, batch posthorn.SinkBatch) (any, error) {
	f := s.flows(batch)[0]
	p := pass{ctx: ctx, source: "posthorn:" + batch.Origin + ":" + batch.Namespace}
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
