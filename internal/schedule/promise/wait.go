package promise

import (
	"fmt"

	"github.com/posthorn/posthorn/internal/schedule"
)

// Await is a call of await_event. Its columns are waits_until, event_id and timed_out.
type Await struct{ Type, Key string }

func (w Await) ended(m *Model, c *schedule.Call) {
	row := c.Rows[0]
	if row[0] != nil { // the job waits
		m.endsAttempt(c, "a wait", func(*job, schedule.Moment) {})
		return
	}
	if out, _ := row[2].(bool); out {
		m.timedOut(c, w)
	}
	if id, is := row[1].(int64); is {
		m.came(c, w, id)
	}
}

func (Await) refused(c *schedule.Call) { delete(c.Vars, "job") }

func (m *Model) timedOut(c *schedule.Call, w Await) {
	for _, e := range m.events {
		if e.label == w.Type && e.key == w.Key && e.committed > 0 {
			m.fail(waits, "the wait of job %s timed out, though its event was committed in step %d", m.jobs[number(c.Vars["job"])].label, e.committed)
		}
	}
}

// came checks the event that a job was given.
func (m *Model) came(c *schedule.Call, w Await, id int64) {
	e := m.events[id]
	if e == nil || e.committed == 0 {
		m.fail(existence, "a job was given event %d, which is not committed", id)
		return
	}
	if e.label != w.Type || e.key != w.Key {
		m.fail(waits, "a job was given event %s, for which it did not wait", e.label)
	}
	for _, other := range m.events {
		if other.label == w.Type && other.key == w.Key && before(other, e) {
			m.fail(waits, "a job was given event %d, though event %d came before", id, other.id)
		}
	}
	c.Vars["came"] = fmt.Sprint(id)
}
