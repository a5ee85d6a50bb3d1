package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

var takeRows = []row{
	{
		work: "take + settle, windows of 1,000, two workers", floor: atLeast(0.55), target: atLeast(0.8), unit: "/s",
		ours: "take + lease_events", peer: "SELECT of the same rows, 1,000 at a time, 2 connections",
		prepare: besideSelect(reading{size: 1000, workers: 2, claim: take}),
	},
	{
		work: "take + settle, windows of 1,000, tables never vacuumed or analysed", floor: atLeast(0.55), target: atLeast(0.8), unit: "/s",
		ours: "take + lease_events", peer: "SELECT of the same rows, 1,000 at a time, 2 connections",
		prepare: besideSelect(reading{size: 1000, workers: 2, claim: take, fresh: true}),
	},
	{
		work: "take + settle, windows of 100, two workers", floor: atLeast(0.25), target: atLeast(0.5), unit: "/s",
		ours: "take + lease_events", peer: "SELECT of the same rows, 1,000 at a time, 2 connections",
		prepare: besideSelect(reading{size: 100, workers: 2, claim: take}),
	},
	{
		work: "claim() + settle() from SQL, 1,000, two workers", floor: atLeast(0.3), target: atLeast(0.4), unit: "/s",
		ours: "claim, settle", peer: "SELECT of the same rows, 1,000 at a time, 2 connections",
		prepare: besideSelect(reading{size: 1000, workers: 2, claim: claim}),
	},
	{
		work: "order by key, 16 slots, four workers", floor: atLeast(0.2), target: atLeast(0.4), unit: "/s",
		ours: "take + lease_events, 1,000", peer: "SELECT of the same rows, 1,000 at a time, 4 connections",
		prepare: besideSelect(reading{size: 1000, workers: 4, claim: take, config: `{"order": "key", "slots": 16}`}),
	},
	{
		work: "five groups, beside one with one worker", floor: atLeast(1.2), unit: "/s",
		ours: "take + lease_events, 1,000, one worker each", peer: "one group with one worker",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			d, err := b.fullLog(ctx)
			if err != nil {
				return nil, nil, err
			}
			ours, err = d.taking(ctx, reading{size: 1000, workers: 5, groups: 5, claim: take}, b.events)
			if err != nil {
				return nil, nil, err
			}
			peer, err = d.taking(ctx, reading{size: 1000, workers: 1, claim: take}, b.events)
			return ours, peer, err
		},
	},
}

// reading describes how a log is read from its beginning to its end.
type reading struct {
	size    int
	workers int
	groups  int // number of groups, to which the workers are distributed; 0 is one
	claim   claimer
	config  string // of the groups; the default if empty
	filter  string // of the only subscription of each group; none if empty
	fresh   bool   // from tables that were never vacuumed or analysed
}

func besideSelect(r reading) func(ctx context.Context, b *bench) (ours, peer side, err error) {
	return func(ctx context.Context, b *bench) (ours, peer side, err error) {
		open := b.fullLog
		if r.fresh {
			open = b.freshLog
		}
		d, err := open(ctx)
		if err != nil {
			return nil, nil, err
		}
		if ours, err = d.taking(ctx, r, b.events); err != nil {
			return nil, nil, err
		}
		peer, err = d.selecting(ctx, b.events, r.workers)
		return ours, peer, err
	}
}

// taking reads n events with new groups in each round.
func (d *database) taking(ctx context.Context, r reading, n int) (side, error) {
	crew, err := d.claimers(ctx, r.workers)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (float64, error) {
		groups, err := d.newGroups(ctx, max(r.groups, 1), r.config)
		if err != nil {
			return 0, err
		}
		if err := d.subscribe(ctx, groups, r.filter); err != nil {
			return 0, err
		}
		return d.drainAll(ctx, crew, groups, n, r.size, r.claim)
	}, nil
}

// claimers are connections that are ready to claim.
func (d *database) claimers(ctx context.Context, n int) (crew, error) {
	c, err := d.crew(ctx, n, consumerParameters)
	if err != nil {
		return nil, err
	}
	return c, c.prepareClaims(ctx)
}

// drainAll claims and settles the n events of each group, and checks that nothing is left.
func (d *database) drainAll(ctx context.Context, c crew, groups []group, n, size int, claim claimer) (speed float64, err error) {
	left := make([]atomic.Int64, len(groups))
	for i := range left {
		left[i].Store(int64(n))
	}
	speed, err = c.run(ctx, n*len(groups), func(ctx context.Context, i int, conn *pgx.Conn) (int, error) {
		k := i % len(groups)
		return drain(ctx, conn, groups[k], size, claim, &left[k])
	})
	if err != nil {
		return 0, err
	}
	return speed, d.checkSettled(ctx, groups)
}

// newGroups makes groups that start at the beginning of the log.
func (d *database) newGroups(ctx context.Context, n int, config string) ([]group, error) {
	if config == "" {
		config = "{}"
	}
	groups := make([]group, n)
	for i := range groups {
		g := &groups[i]
		g.name = fmt.Sprintf("bench-%d", d.names.Add(1))
		err := d.QueryRow(ctx, `select posthorn.define_group('default', $1::text, $2::jsonb || '{"start": "beginning"}')`,
			g.name, config).Scan(&g.id)
		if err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// drain claims and settles until the group has no events left for any worker.
func drain(ctx context.Context, conn *pgx.Conn, g group, size int, claim claimer, left *atomic.Int64) (int, error) {
	var last lease
	done := 0
	for left.Load() > 0 {
		l, err := claim(ctx, conn, g, size, last)
		if err != nil {
			return done, err
		}
		if last = l; !l.held() {
			if err := pause(ctx); err != nil {
				return done, err
			}
		}
		done += l.events
		left.Add(-int64(l.events))
	}
	return done, settle(ctx, conn, last)
}

// pause is for a worker that finds that the other workers have all remaining events.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(100 * time.Microsecond):
		return nil
	}
}

// checkSettled checks that no lease or retry is left.
func (d *database) checkSettled(ctx context.Context, groups []group) error {
	for _, g := range groups {
		var leases, retries int
		err := d.QueryRow(ctx, `
			select (select count(*) from posthorn.leases l where l.group_id = $1),
				(select count(*) from posthorn.retries r where r.group_id = $1)`, g.id).Scan(&leases, &retries)
		if err != nil {
			return err
		}
		if leases != 0 || retries != 0 {
			return fmt.Errorf("%s has %d leases and %d retries left", g.name, leases, retries)
		}
	}
	return nil
}
