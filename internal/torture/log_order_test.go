package torture

import (
	"cmp"
	"slices"
)

// checkOrder checks that within a unit no event precedes an event that it depends on:
// not when it is first handed out, and in a group where failures block, not when it
// is done.
func (c *logChecker) checkOrder(g *group) {
	handed := sequences(func(add func(unit string, uid int64)) {
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
	finished := sequences(func(add func(unit string, uid int64)) {
		for _, h := range c.handled {
			if h.Group == g.id && h.Outcome == done {
				e := c.events[h.Event]
				add(g.unit(e.Stream, e.Key), e.UID)
			}
		}
	})
	for unit, uids := range finished {
		c.checkSequence(g, unit, "handled", uids)
	}
}

// span is the time in which a worker certainly owned a lease: from its arrival to the
// sending of the accepted settlement.
type span struct {
	from, to moment
	lease    int64
}

// checkOverlaps checks that no two active leases contain events of one unit. Only
// leases with an accepted settlement count; a worker may have lost another lease
// without noticing.
func (c *logChecker) checkOverlaps(g *group) {
	accepted := map[[2]int64]bool{}
	for _, h := range c.handled {
		if h.Group == g.id {
			accepted[[2]int64{h.Lease, int64(h.Attempt)}] = true
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
				c.report(overlapped, "%s, %q: leases %d and %d were in flight at once", g, unit, last.lease, s.lease)
			}
			if s.to > last.to {
				last = s
			}
		}
	}
}

// units returns the units of a lease's events. Events that failed and were set aside
// are not ordered.
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
