package promise

import (
	"maps"
	"slices"

	"github.com/posthorn/posthorn/internal/schedule"
)

// event is an event of the log.
type event struct {
	id         int64
	label, key string
	published  int // the step in which it was published
	committed  int // the step in which it was committed, or 0
	tx         int // the step in which its transaction began, 0 without one
	hands      []*hand
	settled    []int // the steps of settlements that were committed
	direct     bool
}

// hand is one time that an event was handed out.
type hand struct {
	step, place int
	lease       *lease
}

// Publish is a call of publish, which returns the id of the event.
type Publish struct {
	Label, Key string
	Plain      bool // to the stream of Policy, and not sealed
	Direct     bool // to a subscription: handed out beside the log
}

func (p Publish) ended(m *Model, c *schedule.Call) {
	if p.Plain && m.confidential > 0 && c.Sent.Step > m.confidential {
		m.fail(secrets, "%s published %s in plain text, after the stream was made confidential in step %d", c.Session, p.Label, m.confidential)
	}
	m.begun(c, "published "+p.Label)
	id, _ := c.Rows[0][0].(int64)
	if e := m.events[id]; e != nil {
		m.published(c, e)
		return
	}
	e := &event{id: id, label: p.Label, key: p.Key, published: c.Sent.Step, tx: c.Tx.Began, direct: p.Direct}
	m.events[id] = e
	c.OnEnd(func(now schedule.Moment) { e.committed = now.Step }, nil)
}

// Policy is a call that makes the stream of a scenario confidential, or not.
type Policy struct{ Confidential bool }

func (p Policy) ended(m *Model, c *schedule.Call) {
	c.OnEnd(func(now schedule.Moment) {
		m.confidential = 0
		if p.Confidential {
			m.confidential = now.Step
		}
	}, nil)
}

// published records a call that was told of an event which is there, under a dedup key: once the
// call is committed, that event is, too, and must be handed out. It may be the call's own: two
// calls that one commit has released are recorded in any order.
func (m *Model) published(c *schedule.Call, e *event) {
	c.OnEnd(func(now schedule.Moment) {
		if e.committed == 0 {
			e.committed = now.Step
		}
	}, nil)
}

// before reports whether a must come before b: it was committed before b was published, or
// one transaction has published both.
func before(a, b *event) bool {
	if a == b || a.committed == 0 || b.committed == 0 {
		return false
	}
	return a.committed < b.published || a.tx != 0 && a.tx == b.tx && a.id < b.id
}

// eventsLeft looks at the events when all was handed out.
func (m *Model) eventsLeft() {
	if len(m.leases) == 0 {
		return // no scenario of groups
	}
	for _, id := range slices.Sorted(maps.Keys(m.events)) {
		e := m.events[id]
		if e.committed > 0 && !m.Redrives {
			m.settledOnce(e)
		}
		if !m.Ordered && !m.seeks && !m.Redrives && m.crashed == 0 {
			m.handedInOrder(e)
		}
	}
}

func (m *Model) settledOnce(e *event) {
	switch n := len(e.settled); {
	case n == 0 && (!m.Lossy || m.sought > 0 && e.committed > m.sought):
		m.fail(delivery, "event %s is lost: it was committed, and never settled", e.label)
	case n > 1 && !m.seeks && m.crashed == 0:
		m.fail(fence, "event %s was settled %d times", e.label, n)
	}
}

// handedInOrder looks at the first times that events were handed out.
func (m *Model) handedInOrder(e *event) {
	for _, cause := range m.events {
		if len(cause.hands) == 0 || len(e.hands) == 0 || cause.direct || e.direct || !before(cause, e) {
			continue
		}
		a, b := cause.hands[0], e.hands[0]
		if a.step > b.step || a.step == b.step && a.place > b.place {
			m.fail(order, "event %s was handed out before %s", e.label, cause.label)
		}
	}
}
