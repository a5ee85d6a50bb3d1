package torture

import "fmt"

// Kinds of violation, one check or more for each.
const (
	lost       = "lost"
	invented   = "invented"
	doubled    = "double settles"
	misordered = "out of order"
	overlapped = "overlapping leases"
	overdone   = "wrong number of attempts"
)

// checker compares what the clients remember with what the database says.
type checker struct {
	*record
	truth
	groups     []*group
	violations map[string][]string

	messages map[int64]*message // by uid
	eventOf  map[int64]int64    // uid to id, of what is in the log
}

func newChecker(r *record, groups []*group, t truth) *checker {
	c := &checker{
		record: r, truth: t, groups: groups, violations: map[string][]string{},
		messages: map[int64]*message{}, eventOf: map[int64]int64{},
	}
	for _, tx := range r.transactions {
		for _, m := range tx.messages {
			m.tx = tx
			c.messages[m.uid] = m
		}
	}
	for id, e := range t.events {
		if other, ok := c.eventOf[e.uid]; ok {
			c.report(invented, "message %d is in the log twice, as events %d and %d", e.uid, other, id)
		}
		c.eventOf[e.uid] = id
	}
	return c
}

func (c *checker) report(kind, format string, args ...any) {
	c.violations[kind] = append(c.violations[kind], fmt.Sprintf(format, args...))
}

func (c *checker) check() {
	c.checkLog()
	for _, g := range c.groups {
		c.checkHandedOut(g)
		c.checkHandled(g)
		c.checkFences(g)
		c.checkAttempts(g)
		if g.order != "none" {
			c.checkOrder(g)
			c.checkOverlaps(g)
		}
	}
}

// checkLog: an event is in the log if and only if its transaction committed.
func (c *checker) checkLog() {
	for _, tx := range c.transactions {
		switch tx.outcome {
		case committed:
			for _, m := range tx.messages {
				if !c.inLog(m) {
					c.report(lost, "message %d was acknowledged as event %d and is not in the log", m.uid, m.id)
				}
			}
		case inDoubt:
			c.checkWhole(tx)
		}
	}
	for id, e := range c.events {
		if m := c.messages[e.uid]; m == nil || m.tx.outcome == rolledBack {
			c.report(invented, "event %d is in the log, though message %d was rolled back", id, e.uid)
		} else if m.tx.outcome == committed && !m.delayed && m.id != id {
			c.report(invented, "message %d is event %d in the log, and was acknowledged as %d", e.uid, id, m.id)
		}
	}
}

// checkWhole: of a transaction in doubt, all is in the log or nothing.
func (c *checker) checkWhole(tx *transaction) {
	present, absent := 0, 0
	for _, m := range tx.messages {
		if _, ok := c.eventOf[m.uid]; ok {
			present++
		} else if m.dedup == "" { // else another one may have been first
			absent++
		}
	}
	if present > 0 && absent > 0 {
		c.report(lost, "of a transaction in doubt, %d messages are in the log and %d are not", present, absent)
	}
}

// inLog tells whether a message is in the log, itself or as the one that was
// published before it under the same dedup key.
func (c *checker) inLog(m *message) bool {
	if _, ok := c.eventOf[m.uid]; ok {
		return true
	}
	first := c.messages[c.events[m.id].uid]
	return m.dedup != "" && first != nil && first.dedup == m.dedup
}

// checkHandedOut: what a group got is in the log of its namespace, and in order
// of id within a lease.
func (c *checker) checkHandedOut(g *group) {
	for _, h := range c.of(g) {
		for i, e := range h.events {
			logged, ok := c.events[e.id]
			if !ok || logged.uid != e.uid || logged.namespace != g.namespace {
				c.report(invented, "group %s got event %d with message %d, which is not in the log of its namespace", g, e.id, e.uid)
			}
			if i > 0 && h.events[i-1].id >= e.id {
				c.report(misordered, "group %s got event %d behind %d in one lease", g, e.id, h.events[i-1].id)
			}
		}
	}
}

// of yields the leases that a group handed out, in the order of their arrival.
func (c *checker) of(g *group) []*handout {
	var handouts []*handout
	for _, h := range c.handouts {
		if h.group == g {
			handouts = append(handouts, h)
		}
	}
	return handouts
}

// checkHandled: every event that the group is owed was handled once, or is a
// dead letter.
func (c *checker) checkHandled(g *group) {
	times := map[int64]int{}
	for _, h := range c.handled {
		if h.group == g.id && h.outcome == done {
			times[h.event]++
			if _, ok := c.events[h.event]; !ok {
				c.report(invented, "group %s handled event %d, which is not in the log", g, h.event)
			}
		}
	}
	for _, d := range c.dead {
		if d.group == g.id {
			times[d.event]++
		}
	}
	for id, e := range c.events {
		if n := times[id]; n > 1 {
			c.report(doubled, "group %s finished event %d %d times", g, id, n)
		} else if n == 0 && c.owed(g, e) {
			c.report(lost, "group %s never finished event %d (message %d)", g, id, e.uid)
		}
	}
}

// owed tells whether a group must be handed an event: what was published before
// it was defined it may have, or not.
func (c *checker) owed(g *group, e event) bool {
	if e.namespace != g.namespace {
		return false
	}
	m := c.messages[e.uid]
	return g.fromStart || (m != nil && m.from > g.defined)
}

// checkFences: a lease that was taken over cannot be settled, and what was
// settled is not handed out again, unless Postgres crashed in between and forgot.
func (c *checker) checkFences(g *group) {
	type key struct {
		lease   int64
		attempt int
	}
	accepted := map[key]bool{}
	for _, h := range c.handled {
		if h.group == g.id {
			accepted[key{h.lease, h.attempt}] = true
		}
	}
	newest := map[int64]*handout{}
	finished := map[int64]moment{} // when a worker knew that it had settled the event for good
	for _, h := range c.of(g) {
		if n := newest[h.lease]; n == nil || n.attempt < h.attempt {
			newest[h.lease] = h
		}
		if h.settleTo == 0 || !accepted[key{h.lease, h.attempt}] {
			continue
		}
		for i, e := range h.events {
			if h.outcomes[i] == done || h.outcomes[i] == permanent {
				finished[e.id] = h.settleTo
			}
		}
	}
	for _, h := range c.of(g) {
		n := newest[h.lease]
		if accepted[key{h.lease, h.attempt}] && n.attempt > h.attempt && !c.crashedBetween(h.from, n.at) {
			c.report(doubled, "group %s: lease %d was settled under attempt %d, though attempt %d had it", g, h.lease, h.attempt, n.attempt)
		}
		for _, e := range h.events {
			if at, ok := finished[e.id]; ok && at < h.from {
				c.report(doubled, "group %s got event %d again after it was settled", g, e.id)
			}
		}
	}
}

// checkAttempts: an event gets the deliveries that the policy allows, and all of
// them before it is buried.
func (c *checker) checkAttempts(g *group) {
	for _, h := range c.of(g) {
		for _, e := range h.events {
			if e.delivery < 1 || e.delivery > g.maxDeliveries() {
				c.report(overdone, "group %s got event %d as delivery %d, with a policy of %d", g, e.id, e.delivery, g.attempts)
			}
		}
	}
	for _, d := range c.dead {
		if d.group != g.id {
			continue
		}
		if d.attempts > g.maxDeliveries() {
			c.report(overdone, "group %s buried event %d after %d deliveries, with a policy of %d", g, d.event, d.attempts, g.attempts)
		}
		if d.attempts < g.attempts && d.error != permanent {
			c.report(overdone, "group %s buried event %d after only %d deliveries: %s", g, d.event, d.attempts, d.reason)
		}
	}
}

func (g *group) String() string { return g.namespace + "/" + g.name }
