package torture

import (
	"cmp"
	"math"
	"slices"
)

// checkOrder: within a unit, nothing comes before what it depends on, neither
// when it is first handed out nor, where failures block, when it is done.
func (c *checker) checkOrder(g *group) {
	handed := c.sequences(g, func(add func(unit string, uid int64)) {
		for _, h := range c.of(g) {
			for _, e := range h.events {
				add(e.unit, e.uid)
			}
		}
	})
	for unit, uids := range handed {
		c.checkSequence(g, unit, "handed out", uids)
	}
	if !g.blocks {
		return
	}
	finished := c.sequences(g, func(add func(unit string, uid int64)) {
		for _, h := range c.handled {
			if h.group == g.id && h.outcome == done {
				e := c.events[h.event]
				add(g.unit(e.stream, e.key), e.uid)
			}
		}
	})
	for unit, uids := range finished {
		c.checkSequence(g, unit, "handled", uids)
	}
}

// sequences are the uids of each unit in the order in which they first appear.
func (c *checker) sequences(g *group, visit func(add func(unit string, uid int64))) map[string][]int64 {
	byUnit := map[string][]int64{}
	seen := map[int64]bool{}
	visit(func(unit string, uid int64) {
		if unit != "" && !seen[uid] {
			seen[uid] = true
			byUnit[unit] = append(byUnit[unit], uid)
		}
	})
	return byUnit
}

// checkSequence goes through a unit from its end. A message depends on another
// if it was published after the other's commit was known, or after it in the
// same transaction.
func (c *checker) checkSequence(g *group, unit, what string, uids []int64) {
	firstAck, acked := moment(math.MaxInt64), int64(0)
	lowest := map[*transaction]int64{}
	for _, uid := range slices.Backward(uids) {
		m := c.messages[uid]
		if m == nil || m.delayed {
			continue // it entered the log when it was due
		}
		if m.from > firstAck {
			c.report(misordered, "group %s, %q: message %d was %s before %d, which had been committed before it was published",
				g, unit, uid, what, acked)
		}
		if later, ok := lowest[m.tx]; ok && later < uid {
			c.report(misordered, "group %s, %q: message %d was %s before %d of the same transaction", g, unit, uid, what, later)
		}
		if m.tx.outcome == committed && m.tx.ack < firstAck {
			firstAck, acked = m.tx.ack, uid
		}
		if low, ok := lowest[m.tx]; !ok || uid < low {
			lowest[m.tx] = uid
		}
	}
}

// span is the time in which a worker surely held a lease: from its arrival to
// the settlement that was accepted.
type span struct {
	from, to moment
	lease    int64
}

// checkOverlaps: no two leases that hold events of one unit are in flight at
// once. Only leases whose settlement was accepted count; others may have been
// lost without their workers knowing.
func (c *checker) checkOverlaps(g *group) {
	accepted := map[[2]int64]bool{}
	for _, h := range c.handled {
		if h.group == g.id {
			accepted[[2]int64{h.lease, int64(h.attempt)}] = true
		}
	}
	byUnit := map[string][]span{}
	for _, h := range c.of(g) {
		if h.settleTo == 0 || !accepted[[2]int64{h.lease, int64(h.attempt)}] {
			continue
		}
		for _, unit := range h.units() {
			byUnit[unit] = append(byUnit[unit], span{h.at, h.settleFrom, h.lease})
		}
	}
	for unit, spans := range byUnit {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		last := spans[0]
		for _, s := range spans[1:] {
			if s.from < last.to {
				c.report(overlapped, "group %s, %q: leases %d and %d were in flight at once", g, unit, last.lease, s.lease)
			}
			if s.to > last.to {
				last = s
			}
		}
	}
}

// units are those that a lease holds events of. Events that failed and were set
// aside come again at any time.
func (h *handout) units() []string {
	var units []string
	for _, e := range h.events {
		aside := !h.group.blocks && e.delivery > 1
		if e.unit != "" && !aside && !slices.Contains(units, e.unit) {
			units = append(units, e.unit)
		}
	}
	return units
}
