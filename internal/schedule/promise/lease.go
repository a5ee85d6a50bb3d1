package promise

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posthorn/posthorn/internal/schedule"
)

// leaseFor is the time of every lease of scenarios, in milliseconds.
const leaseFor = 30_000

// lease is a batch of events that a worker has.
type lease struct {
	name   string // id and attempt
	worker string
	until  int64
	step   int
	ended  bool // in a transaction that has committed
	undone bool // the claim was rolled back
	tx     *schedule.Tx
	events []*event
}

func (l *lease) live(now schedule.Moment) bool { return !l.ended && !l.undone && l.until > now.Clock }

// Claim is a call that hands out a lease. Its rows are lease, attempt and event.
type Claim struct {
	Most int // events, if the call says that
}

func (k Claim) ended(m *Model, c *schedule.Call) {
	delete(c.Vars, "lease")
	if k.Most > 0 && len(c.Rows) > k.Most {
		m.fail(expected, "%s was handed %d events, and had asked for %d", c.Session, len(c.Rows), k.Most)
	}
	if len(c.Rows) == 0 {
		return
	}
	m.begun(c, "claimed events")
	c.Vars["lease"], c.Vars["attempt"] = fmt.Sprint(c.Rows[0][0]), fmt.Sprint(c.Rows[0][1])
	l := &lease{name: held(c), worker: c.Session, until: c.Sent.Clock + leaseFor, step: c.Now.Step, tx: c.Tx}
	var failures []string
	for place, row := range c.Rows {
		id, is := row[2].(int64)
		if !is {
			continue
		}
		failures = append(failures, fmt.Sprintf(`{"event": %d, "error": "no", "retry_in": "1 second"}`, id))
		m.handed(c, l, id, place)
	}
	c.Vars["first"] = fmt.Sprint(c.Rows[0][2])
	c.Vars["failures"] = "[" + strings.Join(failures, ", ") + "]"
	m.leases[l.name] = l
	c.OnEnd(func(schedule.Moment) { l.tx = nil }, func() { l.undone = true })
}

func held(c *schedule.Call) string { return c.Vars["lease"] + " " + c.Vars["attempt"] }

// handed checks one event of a claim.
func (m *Model) handed(c *schedule.Call, l *lease, id int64, place int) {
	e := m.events[id]
	if e == nil {
		m.fail(existence, "%s was handed event %d, which nobody published", c.Session, id)
		return
	}
	if e.committed == 0 {
		m.fail(existence, "%s was handed event %s, which is not committed", c.Session, e.label)
	}
	m.notWithAnother(c, l, e)
	l.events = append(l.events, e)
	e.hands = append(e.hands, &hand{c.Now.Step, place, l})
	if m.Ordered && !m.Lossy {
		m.afterItsCauses(c, l, e)
	}
}

func (m *Model) notWithAnother(c *schedule.Call, l *lease, e *event) {
	for _, other := range m.leases {
		if m.Leads || other == l || !other.live(c.Now) {
			continue
		}
		for _, x := range other.events {
			if x == e || m.Ordered && x.key == e.key {
				m.fail(order, "%s was handed event %s while %s has %s in lease %s", c.Session, e.label, other.worker, x.label, other.name)
			}
		}
	}
}

func (m *Model) afterItsCauses(c *schedule.Call, l *lease, e *event) {
	for _, cause := range m.events {
		done := len(cause.settled) > 0 || slices.Contains(l.events, cause) || m.seeks
		if cause.key == e.key && before(cause, e) && !done {
			m.fail(order, "%s was handed event %s before %s was done", c.Session, e.label, cause.label)
		}
	}
}

// Settle is a call that settles the lease of its session.
type Settle struct {
	Failed bool // all its events
}

func (s Settle) ended(m *Model, c *schedule.Call) {
	l := m.leases[held(c)]
	delete(c.Vars, "lease")
	if l == nil {
		return
	}
	if m.Leads {
		m.leadsUntilCommit(c)
	}
	c.OnEnd(func(now schedule.Moment) { m.settled(l, now, !s.Failed) }, nil)
}

func (Settle) refused(c *schedule.Call) { delete(c.Vars, "lease") }

func (m *Model) settled(l *lease, now schedule.Moment, done bool) {
	if l.ended && l.step > m.crashed {
		m.fail(fence, "%s settled lease %s, which had ended", l.worker, l.name)
	}
	l.ended = true
	m.inTime(l, "settled")
	for _, e := range l.events {
		if done {
			e.settled = append(e.settled, now.Step)
		}
	}
}

// inTime checks that the events of a lease are in no later one.
func (m *Model) inTime(l *lease, did string) {
	for _, e := range l.events {
		for _, h := range e.hands {
			if h.lease.name != l.name && h.lease.step > l.step && !h.lease.undone && !m.Redrives && m.crashed == 0 {
				m.fail(fence, "%s %s lease %s late: %s was handed %s in lease %s", l.worker, did, l.name, h.lease.worker, e.label, h.lease.name)
			}
		}
	}
}

// SettleFirst is a call of settle_until, up to the first event of the lease. The lease stays.
type SettleFirst struct {
	Failed bool // that event
}

func (s SettleFirst) ended(m *Model, c *schedule.Call) {
	l := m.leases[held(c)]
	if l == nil || len(l.events) == 0 {
		return
	}
	c.OnEnd(func(now schedule.Moment) {
		first := &lease{name: l.name, worker: l.worker, step: l.step, ended: l.ended, events: l.events[:1]}
		l.events = l.events[1:]
		m.settled(first, now, !s.Failed)
	}, nil)
}

func (SettleFirst) refused(c *schedule.Call) { delete(c.Vars, "lease") }

// Release is a call that gives the lease of its session back.
type Release struct{}

func (Release) ended(m *Model, c *schedule.Call) {
	l := m.leases[held(c)]
	delete(c.Vars, "lease")
	if l != nil {
		c.OnEnd(func(schedule.Moment) { l.ended = true }, nil)
	}
}

func (Release) refused(c *schedule.Call) { delete(c.Vars, "lease") }

// Seek is a call that moves the cursor of the group: all leases of others end.
type Seek struct{}

func (Seek) ended(m *Model, c *schedule.Call) {
	m.seeks = true
	c.OnEnd(func(now schedule.Moment) {
		m.sought = now.Step
		for _, l := range m.leases {
			if l.tx == nil || !l.tx.Open() {
				l.ended = true
			}
		}
	}, nil)
}

// GiveBack is a call that ends all leases: their events are handed out again, or their group is gone.
type GiveBack struct{}

func (GiveBack) ended(m *Model, c *schedule.Call) {
	c.OnEnd(func(schedule.Moment) {
		for _, l := range m.leases {
			l.ended = true
		}
	}, nil)
}

// Extend is a call that extends the lease of its session.
type Extend struct{}

func (Extend) ended(m *Model, c *schedule.Call) {
	if l := m.leases[held(c)]; l != nil {
		c.OnEnd(func(schedule.Moment) {
			m.inTime(l, "extended")
			l.until = c.Sent.Clock + leaseFor
		}, nil)
	}
}

func (Extend) refused(c *schedule.Call) { delete(c.Vars, "lease") }
