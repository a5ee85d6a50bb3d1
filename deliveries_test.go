package posthorn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
)

func TestDeliveries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := fromBeginning()
	config.BatchSize = 50
	g := w.Group("g", config)
	ids := w.publish(300)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var seen []int64
	for d, err := range g.Deliveries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, d.ID)
		w.ack(d)
		if len(seen) == len(ids) {
			stop()
		}
	}
	equal(t, "events", seen, ids)
	w.nothing(g)
}

// Leaving the loop gives back what it was given and what was fetched ahead.
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
			t.Parallel()
			w := newWorld(t)
			ids := w.publish(100)
			leave(t, w.other().Group("g", fromBeginning()))
			counts := map[int64]int{}
			for _, d := range w.fetchAll(w.Group("g", fromBeginning()), len(ids)) {
				counts[d.ID] += d.Delivery
			}
			want := map[int64]int{}
			for _, id := range ids {
				want[id] = 1
			}
			equal(t, "deliveries", counts, want)
		})
	}
}

// When its context ends, what the loop was given may still be answered, and only
// the rest goes back.
func TestDeliveriesEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.publish(100)
	leaving := w.other()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var given []*posthorn.Delivery
	for d, err := range leaving.Group("g", fromBeginning()).Deliveries(ctx) {
		if err != nil {
			t.Error(err)
		}
		if given = append(given, d); len(given) == 15 { // within the second batch
			stop()
		}
	}
	leaving.ack(given...)
	equal(t, "events given", idsOf(given), ids[:15])
	counts := map[int64]int{}
	for _, d := range w.fetchAll(w.Group("g", fromBeginning()), len(ids)-15) {
		counts[d.ID] += d.Delivery
	}
	equal(t, "events that went back", len(counts), len(ids)-15)
	for _, id := range ids[15:] {
		equal(t, "delivery", counts[id], 1)
	}
}

// Asking for the next event keeps alive what waits for its turn, also while
// answers are saved.
func TestDeliveriesKeepTheirLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := fromBeginning()
	config.LeaseFor = time.Minute
	g := w.Group("g", config)
	ids := w.publish(3)
	left := func() time.Duration {
		return time.Duration(ask[float64](w, "select extract(epoch from until - posthorn.now())::float from posthorn.leases") * float64(time.Second))
	}
	w.stopClock()
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
			equal(t, "left of the lease", left(), time.Second)
		case 2:
			equal(t, "left of the lease when the next was asked for", left(), config.LeaseFor)
		}
		w.ack(d)
		if len(seen) == len(ids) {
			break
		}
	}
	equal(t, "events", seen, ids)
}

// What is nacked in an ordered group takes the rest of its lease out of the loop.
func TestDeliveriesInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := fromBeginning()
	config.Order = posthorn.OrderKey
	g := w.Group("g", config)
	ids := w.publish(20)
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
		w.ack(d)
		if len(seen) == len(ids) {
			break
		}
	}
	equal(t, "events", seen, ids)
}

// The loop may outlive an error, but not one that stays.
func TestDeliveriesOfNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := 0
	for d, err := range w.Group("g", posthorn.GroupConfig{Order: "upwards"}).Deliveries(t.Context()) {
		wantErr(t, "a bad group", err, posthorn.ErrInvalid)
		if n++; d != nil {
			t.Error("a delivery came with an error")
		}
	}
	equal(t, "errors", n, 1)
}

func TestDeliveriesOfAClosedClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Close()
	n := 0
	for _, err := range w.Group("g", fromBeginning()).Deliveries(t.Context()) {
		wantErr(t, "deliveries", err, posthorn.ErrClosed)
		n++
	}
	equal(t, "errors", n, 1)
}
