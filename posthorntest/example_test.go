package posthorntest_test

import (
	"context"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// This test of a service publishes an order, waits for the handlers, and checks their
// effects.
func Example() {
	testReminder := func(t *testing.T) {
		ph := posthorntest.Open(t)
		setUp(ph)
		posthorntest.Run(t, ph)

		id := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})[0]
		posthorntest.Drain(t, ph)
		if state := posthorntest.State(t, ph, id, "billing"); state != admin.Completed {
			t.Errorf("the order is %s", state)
		}

		posthorntest.Advance(t, ph, 24*time.Hour)
		posthorntest.Drain(t, ph)
		if n := len(posthorntest.Published(t, ph, "invoice.due")); n != 1 {
			t.Errorf("%d invoices are due", n)
		}
	}
	_ = testReminder // go test calls it
}

// setUp is the service's own function.
func setUp(ph *posthorn.Client) {
	billing := ph.Group("billing", posthorn.GroupConfig{})
	billing.Handle("remind", "order.placed", func(ctx context.Context, e posthorn.Event) error {
		_, err := ph.Publish(ctx, ph.Pool(), posthorn.Message{
			Type: "invoice.due", DeliverAt: e.PublishedAt.Add(24 * time.Hour),
		})
		return err
	})
}

func TestExample(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	setUp(ph)
	posthorntest.Run(t, ph)
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	posthorntest.Drain(t, ph)
	posthorntest.Advance(t, ph, 24*time.Hour)
	posthorntest.Drain(t, ph)
	if n := len(posthorntest.Published(t, ph, "invoice.due")); n != 1 {
		t.Errorf("%d invoices are due", n)
	}
}
