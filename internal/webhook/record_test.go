package webhook

import (
	"slices"
	"testing"

	"github.com/posthorn/posthorn/internal/pg"
)

// An event that is redelivered while its first request is out has two deliveries. A call
// records one result of an event, so theirs are recorded in two calls, in their order.
func TestEventWithTwoDeliveries(t *testing.T) {
	t.Parallel()
	l := newLeadership(Config{}, pg.WebhookLead{}, "")
	e := newEndpoint(l)
	deliver := func(event int64) *delivery {
		d := &delivery{endpoint: e, event: newEvent("default", pg.Event{ID: event})}
		e.result(d, pg.WebhookResult{Outcome: pg.WebhookFailed, Attempts: 1}, "no")
		return d
	}
	first, other, again, last := deliver(7), deliver(8), deliver(7), deliver(9)
	for n, want := range [][]*delivery{{first, other}, {again, last}, nil} {
		var got []*delivery
		for _, i := range l.record.next() {
			got = append(got, i.delivery)
		}
		if !slices.Equal(got, want) {
			t.Errorf("call %d has results of %d deliveries, and not of the %d that it should have", n+1, len(got), len(want))
		}
	}
}
