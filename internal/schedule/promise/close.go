package promise

import (
	"cmp"

	"github.com/posthorn/posthorn/internal/schedule"
)

// Close is a call that closes the namespace of a scenario.
type Close struct{}

func (Close) ended(m *Model, c *schedule.Call) {
	c.OnEnd(func(now schedule.Moment) { m.closed = cmp.Or(m.closed, now.Step) }, nil)
}

// Quiet is a call that ends when no transaction from before the close can still write.
type Quiet struct{}

func (Quiet) ended(m *Model, c *schedule.Call) {
	c.OnEnd(func(now schedule.Moment) { m.quiet = now.Step }, nil)
}

// Open is a call that opens the namespace again.
type Open struct{}

func (Open) ended(m *Model, c *schedule.Call) {
	c.OnEnd(func(schedule.Moment) { m.closed, m.quiet = 0, 0 }, nil)
}

// begun checks a call that has published, enqueued or claimed something. A transaction that
// began before the close may not see it, but must not commit once the namespace is quiet.
func (m *Model) begun(c *schedule.Call, what string) {
	if began := cmp.Or(c.Tx.Began, c.Sent.Step); m.closed > 0 && began > m.closed {
		m.fail(closure, "%s %s, in a transaction that began after the namespace was closed in step %d", c.Session, what, m.closed)
	}
	c.OnEnd(func(schedule.Moment) {
		if m.quiet > 0 {
			m.fail(closure, "%s %s, and committed after the namespace was quiet in step %d", c.Session, what, m.quiet)
		}
	}, nil)
}
