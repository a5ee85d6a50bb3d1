package torture

import (
	"fmt"
	"math"
	"slices"
)

// Kinds of violation. At least one check finds each kind.
const (
	lost       = "lost"
	invented   = "invented"
	doubled    = "settled twice"
	misordered = "out of order"
	overlapped = "overlapping leases"
	overdone   = "wrong number of attempts"
	unfenced   = "not fenced"
	stuck      = "stuck"
)

// checker compares the publishers' record with the log.
type checker struct {
	*record
	*findings
	events map[int64]event // by id

	messages map[int64]*message // by uid
	eventOf  map[int64]int64    // uid to id, of the events in the log
}

func newChecker(r *record, events map[int64]event, f *findings) *checker {
	c := &checker{record: r, findings: f, events: events, messages: map[int64]*message{}, eventOf: map[int64]int64{}}
	for _, tx := range r.transactions {
		for _, m := range tx.messages {
			m.tx = tx
			c.messages[m.uid] = m
		}
	}
	for id, e := range events {
		if other, ok := c.eventOf[e.UID]; ok {
			c.report(invented, "message %d is in the log twice, as events %d and %d", e.UID, other, id)
		}
		c.eventOf[e.UID] = id
	}
	return c
}

// checkLog checks that an event is in the log if and only if its transaction
// committed.
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
		if m := c.messages[e.UID]; m == nil || m.tx.outcome == rolledBack {
			c.report(invented, "event %d is in the log, though message %d was rolled back", id, e.UID)
		} else if m.tx.outcome == committed && !m.delayed && m.id != id {
			c.report(invented, "message %d is event %d in the log, and was acknowledged as %d", e.UID, id, m.id)
		}
	}
}

// checkWhole checks that all of a transaction in doubt is in the log, or nothing.
func (c *checker) checkWhole(tx *transaction) {
	present, absent := 0, 0
	for _, m := range tx.messages {
		if _, ok := c.eventOf[m.uid]; ok {
			present++
		} else if m.dedup == "" { // otherwise another message with the dedup key may have been first
			absent++
		}
	}
	if present > 0 && absent > 0 {
		c.report(lost, "of a transaction in doubt, %d messages are in the log and %d are not", present, absent)
	}
}

// inLog reports whether a message is in the log, or the message that was published
// before it with the same dedup key.
func (c *checker) inLog(m *message) bool {
	if _, ok := c.eventOf[m.uid]; ok {
		return true
	}
	first := c.messages[c.events[m.id].UID]
	return m.dedup != "" && first != nil && first.dedup == m.dedup
}

// sequences returns the uids of each unit in the order of their first appearance.
func sequences(visit func(add func(unit string, uid int64))) map[string][]int64 {
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

// checkSequence checks the order of the messages of a unit in a group or a place,
// from the last message to the first. A message depends on another if it was
// published after the other's commit was known, or after it in the same transaction.
func (c *checker) checkSequence(where fmt.Stringer, unit, verb string, uids []int64) {
	firstAck, acked := moment(math.MaxInt64), int64(0)
	lowest := map[*transaction]int64{}
	for _, uid := range slices.Backward(uids) {
		m := c.messages[uid]
		if m == nil || m.delayed {
			continue // a delayed message enters the log when it is due
		}
		if m.from > firstAck {
			c.report(misordered, "%s, %q: message %d was %s before %d, which had been committed before it was published",
				where, unit, uid, verb, acked)
		}
		if later, ok := lowest[m.tx]; ok && later < uid {
			c.report(misordered, "%s, %q: message %d was %s before %d of the same transaction", where, unit, uid, verb, later)
		}
		if m.tx.outcome == committed && m.tx.ack < firstAck {
			firstAck, acked = m.tx.ack, uid
		}
		if low, ok := lowest[m.tx]; !ok || uid < low {
			lowest[m.tx] = uid
		}
	}
}
