package posthorn

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Moment is a place in the log: a time, or one of its ends.
type Moment = pg.Moment

// The ends of the log.
var (
	Beginning = pg.Beginning
	End       = pg.End
)

// At is the moment of a time.
func At(t time.Time) Moment { return pg.At(t) }

// Seek moves a group: it is handed every event published from then on. Whoever
// works on something of the group loses the lease; what has failed stays owed.
func (c *Client) Seek(ctx context.Context, group string, to Moment) error {
	return pg.Seek(ctx, c.control, c.namespace, group, to)
}

// PauseGroup lets a group rest, for all nodes, until [Client.ResumeGroup]. What
// is being handled goes on.
func (c *Client) PauseGroup(ctx context.Context, group string) error {
	return pg.PauseGroup(ctx, c.control, c.namespace, group)
}

// ResumeGroup lets a group go on from where it stood.
func (c *Client) ResumeGroup(ctx context.Context, group string) error {
	return pg.ResumeGroup(ctx, c.control, c.namespace, group)
}
