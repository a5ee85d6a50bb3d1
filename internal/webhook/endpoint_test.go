package webhook

import (
	"testing"

	"github.com/posthorn/posthorn/internal/pg"
)

// A window that has waited for a second leaves its events to the database. Those of later
// windows that wait in memory do not overtake them.
func TestLaterWindowsDoNotOvertake(t *testing.T) {
	t.Parallel()
	l := newLeadership(Config{}, pg.WebhookLead{}, "")
	e := newEndpoint(l)
	e.Ordered, e.Batch, e.Concurrency = true, 1, 1
	for id, slot := range []int{3, 4, 3} {
		e.queue = append(e.queue, &delivery{endpoint: e, event: newEvent("default", pg.Event{ID: int64(id)}), window: &window{}, slot: slot})
	}
	e.part(e.queue[0])
	if len(e.queue) != 1 || e.queue[0].slot != 4 {
		t.Errorf("%d events wait in memory, of slot %d and others", len(e.queue), e.queue[0].slot)
	}
	if !e.backlog || l.record.size() != 2 {
		t.Errorf("%d events are set aside", l.record.size())
	}
}
