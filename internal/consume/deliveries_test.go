package consume_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

func TestDeliveries(t *testing.T) {
	w := newWorld(t)
	config := testworld.FromBeginning()
	config.BatchSize = 50
	g := w.Group("g", config)
	ids := w.PublishN(300)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var seen []int64
	for d, err := range g.Deliveries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, d.ID)
		w.Ack(d)
		if len(seen) == len(ids) {
			stop()
		}
	}
	testworld.Equal(t, "events", seen, ids)
	w.Nothing(g)
}

// Leaving the loop gives back its event and the events that were fetched ahead.
func TestDeliveriesGiveBack(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *posthorn.Group){
		"break": func(t *testing.T, g *posthorn.Group) {
			for d, err := range g.Deliveries(t.Context()) {
				if err != nil || d.Delivery != 1 {
					t.Error(d, err)
				}
				break
			}
		},
		"panic": func(t *testing.T, g *posthorn.Group) {
			defer func() { _ = recover() }()
			for range g.Deliveries(t.Context()) {
				panic("in the loop")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ids := w.PublishN(100)
			leave(t, w.other().Group("g", testworld.FromBeginning()))
			counts := map[int64]int{}
			for _, d := range w.FetchAll(w.Group("g", testworld.FromBeginning()), len(ids)) {
				counts[d.ID] += d.Delivery
			}
			want := map[int64]int{}
			for _, id := range ids {
				want[id] = 1
			}
			testworld.Equal(t, "deliveries", counts, want)
		})
	}
}

// When its context ends, the current event can still be acknowledged; only the others
// are given back.
func TestDeliveriesEnd(t *testing.T) {
	w := newWorld(t)
	ids := w.PublishN(100)
	leaving := w.other()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var given []*posthorn.Delivery
	for d, err := range leaving.Group("g", testworld.FromBeginning()).Deliveries(ctx) {
		if err != nil {
			t.Error(err)
		}
		if given = append(given, d); len(given) == 15 { // within the second batch
			stop()
		}
	}
	leaving.Ack(given...)
	testworld.Equal(t, "events given", testworld.IDs(given), ids[:15])
	counts := map[int64]int{}
	g := w.Group("g", testworld.FromBeginning())
	for _, d := range w.FetchAll(g, len(ids)-15) {
		counts[d.ID] += d.Delivery
	}
	testworld.Equal(t, "events that went back", len(counts), len(ids)-15)
	for _, id := range ids[15:] {
		testworld.Equal(t, "delivery", counts[id], 1)
	}
	w.Nothing(g)
}

// The leases of waiting events are extended while the loop runs, also during
// acknowledgements.
func TestDeliveriesKeepTheirLease(t *testing.T) {
	w := newWorld(t)
	config := testworld.FromBeginning()
	config.LeaseFor = time.Minute
	g := w.Group("g", config)
	ids := w.PublishN(3)
	left := func() time.Duration {
		return time.Duration(testworld.Ask[float64](w, "select extract(epoch from until - posthorn.now())::float from posthorn.leases") * float64(time.Second))
	}
	w.StopClock()
	var seen []int64
	for d, err := range g.Deliveries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		switch seen = append(seen, d.ID); len(seen) {
		case 1:
			if err := d.Extend(t.Context(), time.Second); err != nil { // less than half of it is left
				t.Fatal(err)
			}
			testworld.Equal(t, "left of the lease", left(), time.Second)
		case 2:
			testworld.Equal(t, "left of the lease when the next was asked for", left(), config.LeaseFor)
		}
		w.Ack(d)
		if len(seen) == len(ids) {
			break
		}
	}
	testworld.Equal(t, "events", seen, ids)
}

// A loop leaves a lease that is lost, also one that need not be extended yet: its events come again.
func TestDeliveriesLeaveALostLease(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	ids := w.PublishN(3)
	var seen []int64
	for d, err := range g.Deliveries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if seen = append(seen, d.ID); len(seen) == 1 {
			w.Exec("select posthorn.release(l.id, l.attempt) from posthorn.leases l")
			testworld.WantErr(t, "extend", d.Extend(t.Context(), time.Minute), posthorn.ErrLeaseLost)
			continue
		}
		w.Ack(d)
		if len(seen) == 1+len(ids) {
			break
		}
	}
	testworld.Equal(t, "events", seen, append(ids[:1:1], ids...))
}

// In an ordered group a nack removes the rest of its lease from the loop.
func TestDeliveriesInOrder(t *testing.T) {
	w := newWorld(t)
	config := testworld.FromBeginning()
	config.Order = posthorn.OrderKey
	g := w.Group("g", config)
	ids := w.PublishN(20)
	ctx := await.Context(t)
	var seen []int64
	for d, err := range g.Deliveries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if d.ID == ids[3] && d.Delivery == 1 {
			if err := d.Nack(ctx, errors.New("once")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		seen = append(seen, d.ID)
		w.Ack(d)
		if len(seen) == len(ids) {
			break
		}
	}
	testworld.Equal(t, "events", seen, ids)
}

// The loop may outlive an error, but not one that stays.
func TestDeliveriesOfNothing(t *testing.T) {
	w := newWorld(t)
	n := 0
	for d, err := range w.Group("g", posthorn.GroupConfig{Order: "upwards"}).Deliveries(t.Context()) {
		testworld.WantErr(t, "a bad group", err, posthorn.ErrInvalid)
		if n++; d != nil {
			t.Error("a delivery came with an error")
		}
	}
	testworld.Equal(t, "errors", n, 1)
}

func TestDeliveriesOfAClosedClient(t *testing.T) {
	w := newWorld(t)
	w.Close()
	n := 0
	for _, err := range w.Group("g", testworld.FromBeginning()).Deliveries(t.Context()) {
		testworld.WantErr(t, "deliveries", err, posthorn.ErrClosed)
		n++
	}
	testworld.Equal(t, "errors", n, 1)
}
