package torture

import "math"

// logChecker compares the log and the record of the groups' workers with the
// database.
type logChecker struct {
	*checker
	groups  []*group
	handled []handling
	dead    []deadLetter
}

func newLogChecker(r *record, groups []*group, t truth) *logChecker {
	found := newFindings(lost, invented, doubled, misordered, overlapped, overdone)
	return &logChecker{checker: newChecker(r, t.events, found), groups: groups, handled: t.handled, dead: t.dead}
}

func (c *logChecker) check() {
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

// checkHandedOut checks that the events that a group received are in the log of its
// namespace, and ordered by id within a lease.
func (c *logChecker) checkHandedOut(g *group) {
	for _, h := range c.of(g) {
		for i, e := range h.events {
			logged, ok := c.events[e.id]
			if !ok || logged.UID != e.uid || logged.Namespace != g.namespace {
				c.report(invented, "%s got event %d with message %d, which is not in the log of its namespace", g, e.id, e.uid)
			}
			if i > 0 && h.events[i-1].id >= e.id {
				c.report(misordered, "%s got event %d behind %d in one lease", g, e.id, h.events[i-1].id)
			}
		}
	}
}

// of yields the leases of a group in the order of their arrival.
func (c *logChecker) of(g *group) []*handout {
	var handouts []*handout
	for _, h := range c.handouts {
		if h.group == g {
			handouts = append(handouts, h)
		}
	}
	return handouts
}

// checkHandled checks that every event owed to the group was handled once, or is a
// dead letter.
func (c *logChecker) checkHandled(g *group) {
	times := map[int64]int{}
	for _, h := range c.handled {
		if h.Group == g.id && h.Outcome == done {
			times[h.Event]++
			if _, ok := c.events[h.Event]; !ok {
				c.report(invented, "%s handled event %d, which is not in the log", g, h.Event)
			}
		}
	}
	for _, d := range c.dead {
		if d.Group == g.id {
			times[d.Event]++
		}
	}
	for id, e := range c.events {
		if n := times[id]; n > 1 {
			c.report(doubled, "%s finished event %d %d times", g, id, n)
		} else if n == 0 && c.owed(g, e) {
			c.report(lost, "%s never finished event %d (message %d)", g, id, e.UID)
		}
	}
}

// owed reports whether a group must receive an event. Events that were published
// before the group was defined are optional.
func (c *logChecker) owed(g *group, e event) bool {
	if e.Namespace != g.namespace {
		return false
	}
	m := c.messages[e.UID]
	return g.fromStart || (m != nil && m.from > g.defined)
}

// checkFences checks that a lease which was taken over cannot be settled, and that
// settled events are not handed out again, unless a crash of Postgres undid the
// settlement, or the claim that took the lease over.
func (c *logChecker) checkFences(g *group) {
	type key struct {
		lease   int64
		attempt int
	}
	accepted := map[key]bool{}
	for _, h := range c.handled {
		if h.Group == g.id {
			accepted[key{h.Lease, h.Attempt}] = true
		}
	}
	newest := map[int64]*handout{}
	finished := map[int64]moment{} // by event, the time of a permanent settlement that was confirmed
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
		settled := h.settleTo
		if settled == 0 { // its answer was lost, so it may have been settled at any time
			settled = math.MaxInt64
		}
		if accepted[key{h.lease, h.attempt}] && n.attempt > h.attempt && !c.crashedBetween(min(h.from, n.from), max(n.at, settled)) {
			c.report(doubled, "%s: lease %d was settled under attempt %d, though attempt %d had it", g, h.lease, h.attempt, n.attempt)
		}
		for _, e := range h.events {
			at, ok := finished[e.id]
			undone := c.forgets && c.crashedBetween(at, h.from)
			if ok && at < h.from && !undone {
				c.report(doubled, "%s got event %d again after it was settled", g, e.id)
			}
		}
	}
}

// checkAttempts checks that an event is delivered as often as the policy allows, and
// that all deliveries precede its burial.
func (c *logChecker) checkAttempts(g *group) {
	for _, h := range c.of(g) {
		for _, e := range h.events {
			if e.delivery < 1 || e.delivery > g.maxDeliveries() {
				c.report(overdone, "%s got event %d as delivery %d, with a policy of %d", g, e.id, e.delivery, g.attempts)
			}
		}
	}
	for _, d := range c.dead {
		if d.Group != g.id {
			continue
		}
		if d.Attempts > g.maxDeliveries() {
			c.report(overdone, "%s buried event %d after %d deliveries, with a policy of %d", g, d.Event, d.Attempts, g.attempts)
		}
		if d.Attempts < g.attempts && d.Error != permanent {
			c.report(overdone, "%s buried event %d after only %d deliveries: %s", g, d.Event, d.Attempts, d.Reason)
		}
	}
}
