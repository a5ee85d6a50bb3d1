package promise

import (
	"fmt"

	"github.com/posthorn/posthorn/internal/schedule"
)

// Read is a call that reads the log after the cursor of the scenario, which it moves. Its
// columns are event_id and next_cursor.
type Read struct{}

func (Read) ended(m *Model, c *schedule.Call) {
	for _, row := range c.Rows {
		c.World["cursor"] = fmt.Sprint(row[1])
		id, is := row[0].(int64)
		if !is {
			continue
		}
		e := m.events[id]
		if e == nil || e.committed == 0 {
			m.fail(existence, "event %d was read, which is not committed", id)
			continue
		}
		for _, r := range m.read {
			if r == e {
				m.fail(delivery, "event %s was read twice", e.label)
			}
			if before(e, r) {
				m.fail(order, "event %s was read before %s", r.label, e.label)
			}
		}
		m.read = append(m.read, e)
	}
	m.reads = true
}

// unread looks for events that a reader has missed.
func (m *Model) unread() {
	for _, e := range m.events {
		found := false
		for _, r := range m.read {
			found = found || r == e
		}
		if m.reads && e.committed > 0 && !found {
			m.fail(delivery, "event %s was committed, and never read", e.label)
		}
	}
}
