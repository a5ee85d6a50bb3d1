package posthorn

import (
	"context"
	"fmt"

	"github.com/posthorn/posthorn/internal/pg"
)

// PublishTo publishes messages that are for one subscription alone, in order and
// in one round trip, and returns their ids. Nobody else gets them; they are tried,
// retried and buried like other events. In a transaction they exist if and only if
// it commits. A message of this kind has no DedupKey.
func (c *Client) PublishTo(ctx context.Context, db DB, group, subscription string, messages ...Message) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	ctx, watched := c.telemetry.Publishing(ctx, commonStream(messages), len(messages))
	encoded, err := c.encodeDirect(ctx, messages)
	if err != nil {
		err = fmt.Errorf("publish: %w", err)
		watched.End(nil, false, err)
		return nil, err
	}
	ids, err := c.sendSealed(ctx, db, encoded, func(sealed []pg.Message) ([]int64, error) {
		return pg.PublishTo(ctx, db, c.namespace, group, subscription, sealed)
	})
	watched.End(ids, true, err)
	if err != nil {
		return nil, err
	}
	c.watch.Published()
	return ids, nil
}

func (c *Client) encodeDirect(ctx context.Context, messages []Message) ([]pg.Message, error) {
	for i := range messages {
		if messages[i].DedupKey != "" {
			return nil, invalid(fmt.Sprintf("message %d (%s) is for one subscription and has a DedupKey", i, messages[i].Type),
				"Leave it out: such messages are not compared.")
		}
	}
	return c.encode(ctx, messages)
}
