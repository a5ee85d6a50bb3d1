package webhook

import (
	"testing"
	"time"

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

// What an endpoint is owed is read from where the last answer ended, a second before, until
// the next look. An event that is not sent after all is read again.
func TestOwedEventsAreReadOnce(t *testing.T) {
	t.Parallel()
	l := newLeadership(Config{}, pg.WebhookLead{}, "")
	e := newEndpoint(l)
	e.ID, e.Batch, e.Concurrency, e.backlog = 1, 1, 100, true
	l.endpoints[1] = e
	l.going = t.Context()
	due := time.Now()
	read := func() {
		asks, before := l.asks()
		l.receive(asks, before, []pg.WebhookDue{
			{Webhook: 1, Event: pg.Event{ID: 7}, DueAt: due, Slot: -1},
			{Webhook: 1, Event: pg.Event{ID: 8}, DueAt: due.Add(-time.Minute), Slot: -1},
			{Webhook: 1, Event: pg.Event{ID: 9}, DueAt: due.Add(time.Minute), Slot: 3}, // in its order, not by time
		})
		e.backlog = true
	}
	from := func() time.Time { // of the next answer
		asks, _ := l.asks()
		return asks[0].DueFrom
	}
	e.Rate, e.next = 1, time.Now().Add(time.Hour) // nothing is sent
	read()
	if got, want := from(), due.Add(-dueMargin); !got.Equal(want) {
		t.Errorf("the next answer begins at %v, want %v", got, want)
	}
	e.shed(func(*delivery) bool { return true })
	if got := from(); !got.IsZero() {
		t.Errorf("after events were given back the next answer begins at %v, want the beginning", got)
	}
	read()
	l.note(pg.WebhookLook{Owing: []int{1}}, nil)
	if got := from(); !got.IsZero() {
		t.Errorf("after a look the next answer begins at %v, want the beginning", got)
	}
}
