package promise

import (
	"fmt"

	"github.com/posthorn/posthorn/internal/schedule"
)

// Lead is a call that takes or renews the lead of something. Its column is the term, null if
// another process leads.
type Lead struct{ Owner string }

// leader is the process that leads.
type leader struct {
	owner, term string
	until       int64
}

func (l Lead) ended(m *Model, c *schedule.Call) {
	if c.Rows[0][0] == nil {
		delete(c.Vars, "term")
		return
	}
	if m.lead.owner != l.Owner && m.lead.until > c.Now.Clock {
		m.fail(leads, "%s leads while %s does", l.Owner, m.lead.owner)
	}
	m.lead = leader{l.Owner, fmt.Sprint(c.Rows[0][0]), c.Sent.Clock + leaseFor}
}

// Led is a call that only the process that leads may commit: a record, or an import.
type Led struct{}

func (Led) ended(m *Model, c *schedule.Call) { m.leadsUntilCommit(c) }

// leadsUntilCommit checks that no other process takes the lead before the transaction of a call commits.
func (m *Model) leadsUntilCommit(c *schedule.Call) {
	term := c.Vars["term"]
	c.OnEnd(func(schedule.Moment) {
		if m.lead.term != "" && m.lead.term != term {
			m.fail(leads, "%s did the work of term %s, though %s leads since, with term %s", c.Session, term, m.lead.owner, m.lead.term)
		}
	}, nil)
}
