package promise

import "github.com/posthorn/posthorn/internal/schedule"

// Lead is a call that takes or renews the lead of something. Its column is the term, null if
// another process leads.
type Lead struct{ Owner string }

// leader is the process that leads.
type leader struct {
	owner string
	until int64
}

func (l Lead) ended(m *Model, c *schedule.Call) {
	if c.Rows[0][0] == nil {
		delete(c.Vars, "term")
		return
	}
	if m.lead.owner != l.Owner && m.lead.until > c.Now.Clock {
		m.fail(leads, "%s leads while %s does", l.Owner, m.lead.owner)
	}
	m.lead = leader{l.Owner, c.Sent.Clock + leaseFor}
}
