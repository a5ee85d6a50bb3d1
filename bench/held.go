package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

var heldRows = []row{heldRow(20), heldRow(1000)}

func heldRow(size int) row {
	return row{
		work: fmt.Sprintf("with a transaction held open, windows of %s", figure(float64(size))), unit: "/s",
		floor: atLeast(0.8), target: atLeast(0.95),
		ours: "take + lease_events, 2 workers", peer: "the same in a database where none is",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			p, err := b.holding(ctx)
			if err != nil {
				return nil, nil, err
			}
			n := min(b.events, size*heldWindows)
			if ours, err = p.with.backlog(ctx, n, size); err != nil {
				return nil, nil, err
			}
			peer, err = p.without.backlog(ctx, n, size)
			return ours, peer, err
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
func (b *bench) holding(ctx context.Context) (*heldPair, error) {
	if b.held != nil {
		return b.held, nil
	}
	p := &heldPair{}
	b.held = p
	var err error
	if p.with, err = b.openHeld(ctx); err != nil {
		return nil, err
	}
	if p.without, err = b.openHeld(ctx); err != nil {
		return nil, err
	}
	if err := p.with.hold(ctx); err != nil {
		return nil, err
	}
	b.say("  traffic for %s", b.options.held)
	done := make(chan error, 2)
	for _, d := range []*heldDatabase{p.with, p.without} {
		go func() { done <- d.traffic(ctx, b.options.held) }()
	}
	return p, errors.Join(<-done, <-done)
}

func (b *bench) openHeld(ctx context.Context) (*heldDatabase, error) {
	d, err := b.server.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := d.newGroups(ctx, 1, "")
	if err != nil {
		d.drop()
		return nil, err
	}
	return &heldDatabase{d, groups[0]}, nil
}

func (p *heldPair) drop() {
	for _, d := range []*heldDatabase{p.with, p.without} {
		if d != nil {
			d.database.drop()
		}
	}
}

// hold opens a transaction with a snapshot, on a connection that stays open until the
// database is dropped.
func (d *heldDatabase) hold(ctx context.Context) error {
	conn, err := d.connect(ctx, nil)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "begin isolation level repeatable read; select from posthorn.groups")
	return err
}

// traffic publishes a small batch and takes one, each tick.
func (d *heldDatabase) traffic(ctx context.Context, length time.Duration) error {
	publisher, err := d.crew(ctx, 1, nil)
	if err != nil {
		return err
	}
	defer publisher.close()
	if err := publisher.prepare(ctx, "insert", publishSQL); err != nil {
		return err
	}
	consumer, err := d.claimers(ctx, 1)
	if err != nil {
		return err
	}
	defer consumer.close()
	tick := time.NewTicker(trafficEvery)
	defer tick.Stop()
	var last lease
	for end := time.Now().Add(length); time.Now().Before(end); <-tick.C {
		if _, err := publish(ctx, publisher[0], trafficBatch, trafficBatch); err != nil {
			return err
		}
		if last, err = take(ctx, consumer[0], d.group, trafficBatch, last); err != nil {
			return err
		}
	}
	return d.finish(ctx, consumer[0], last)
}

// finish takes the events that the traffic has left.
func (d *heldDatabase) finish(ctx context.Context, conn *pgx.Conn, last lease) error {
	for last.held() {
		var err error
		if last, err = take(ctx, conn, d.group, trafficBatch, last); err != nil {
			return err
		}
	}
	return nil
}

// backlog publishes n events, which is not measured, and takes them with the group
// that had the traffic.
func (d *heldDatabase) backlog(ctx context.Context, n, size int) (side, error) {
	crew, err := d.claimers(ctx, 2)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (float64, error) {
		if err := d.fill(ctx, n); err != nil {
			return 0, err
		}
		return d.drainAll(ctx, crew, []group{d.group}, n, size, take)
	}, nil
}
