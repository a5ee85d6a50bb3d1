package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var heldRows = []row{heldRow(20), heldRow(1000)}

func heldRow(size int) row {
	return row{
		work: fmt.Sprintf("with a transaction held open, windows of %s", figure(float64(size))), unit: "/s",
		floor: atLeast(0.8), target: atLeast(0.95),
		ours: "take + lease_events, 2 workers", peer: "the same in a database where none is",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			p := b.holding(ctx)
			n := min(b.events, size*heldWindows)
			return p.with.backlog(ctx, n, size), p.without.backlog(ctx, n, size)
		},
	}
}

// heldWindows limits a round: the cost is that of the windows, not of the events.
const heldWindows = 2000

// Steady traffic, the same in both databases: each claim leaves dead versions, which
// a held snapshot keeps from being removed.
const (
	trafficBatch = 20
	trafficEvery = 2 * time.Millisecond
)

// heldPair is two databases that had the same traffic. A transaction has been open in
// the first one since before the traffic. A snapshot holds back vacuum only in its
// own database.
type heldPair struct{ with, without *heldDatabase }

type heldDatabase struct {
	*database
	group group
}

// holding makes the pair once for all rows.
func (b *bench) holding(ctx context.Context) *heldPair {
	if b.held != nil {
		return b.held
	}
	p := &heldPair{b.openHeld(ctx), b.openHeld(ctx)}
	p.with.hold(ctx, "select from posthorn.groups")
	length := b.options.held
	b.say("  traffic for %s", length)
	done := make(chan error, 2)
	for _, d := range []*heldDatabase{p.with, p.without} {
		go func() { done <- caught(func() { d.traffic(ctx, length) }) }()
	}
	check(errors.Join(<-done, <-done))
	b.held = p
	return p
}

func (b *bench) openHeld(ctx context.Context) *heldDatabase {
	d := b.server.newDatabase(ctx)
	return &heldDatabase{d, d.newGroups(ctx, 1, "")[0]}
}

// hold opens a transaction with a snapshot by a query, on a connection that stays open
// until the database is dropped.
func (d *database) hold(ctx context.Context, query string) {
	holder := d.connect(ctx, nil)
	d.atEnd(func() { holder.Close(context.Background()) })
	must(holder.Exec(ctx, "begin isolation level repeatable read; "+query))
}

// traffic publishes a small batch and takes one, each tick.
func (d *heldDatabase) traffic(ctx context.Context, length time.Duration) {
	publisher := d.crew(ctx, 1, nil, statements{"insert": publishSQL})
	defer publisher.close()
	consumer := d.claimers(ctx, 1)
	defer consumer.close()
	tick := time.NewTicker(trafficEvery)
	defer tick.Stop()
	var last lease
	for end := time.Now().Add(length); time.Now().Before(end); <-tick.C {
		publish(ctx, publisher[0], trafficBatch, trafficBatch)
		last = take(ctx, consumer[0], d.group, trafficBatch, last)
	}
	readAll(ctx, consumer[0], d.group, trafficBatch, last)
}

// backlog publishes n events, which is not measured, and takes them with the group
// that had the traffic.
func (d *heldDatabase) backlog(ctx context.Context, n, size int) side {
	crew := d.claimers(ctx, 2)
	return func(ctx context.Context) float64 {
		d.fill(ctx, n)
		return d.drainAll(ctx, crew, []group{d.group}, n, size, take)
	}
}
