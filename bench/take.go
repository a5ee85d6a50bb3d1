package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

func takeRows() (all []row) {
	for _, one := range []struct {
		work          string
		floor, target float64
		ours          string
		reading
	}{
		{"take + settle, windows of 1,000, two workers", 0.55, 0.8, "take + lease_events", reading{size: 1000, workers: 2, claim: take}},
		{"take + settle, windows of 1,000, tables never vacuumed or analysed", 0.55, 0.8, "take + lease_events", reading{size: 1000, workers: 2, claim: take, fresh: true}},
		{"take + settle, windows of 100, two workers", 0.25, 0.5, "take + lease_events", reading{size: 100, workers: 2, claim: take}},
		{"claim() + settle() from SQL, 1,000, two workers", 0.3, 0.4, "claim, settle", reading{size: 1000, workers: 2, claim: claim}},
		{"order by key, 16 slots, four workers", 0.2, 0.4, "take + lease_events, 1,000", reading{size: 1000, workers: 4, claim: take, config: `{"order": "key", "slots": 16}`}},
	} {
		all = append(all, row{
			work: one.work, floor: atLeast(one.floor), target: atLeast(one.target), unit: "/s",
			ours: one.ours, peer: fmt.Sprintf("SELECT of the same rows, 1,000 at a time, %d connections", one.workers),
			prepare: func(ctx context.Context, b *bench) (ours, peer side) {
				open := b.fullLog
				if one.fresh {
					open = b.freshLog
				}
				d := open(ctx)
				return d.taking(ctx, one.reading, b.events), d.selecting(ctx, b.events, one.workers)
			},
		})
	}
	return append(all, row{
		work: "five groups, beside one with one worker", floor: atLeast(1.2), unit: "/s",
		ours: "take + lease_events, 1,000, one worker each", peer: "one group with one worker",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			d := b.fullLog(ctx)
			ours = d.taking(ctx, reading{size: 1000, workers: 5, groups: 5, claim: take}, b.events)
			peer = d.taking(ctx, reading{size: 1000, workers: 1, claim: take}, b.events)
			return ours, peer
		},
	})
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

// taking reads n events with new groups in each round.
func (d *database) taking(ctx context.Context, r reading, n int) side {
	crew := d.claimers(ctx, r.workers)
	return func(ctx context.Context) float64 {
		groups := d.newGroups(ctx, max(r.groups, 1), r.config)
		if r.filter != "" {
			d.subscribe(ctx, groups, r.filter)
		}
		return d.drainAll(ctx, crew, groups, n, r.size, r.claim)
	}
}

// claimers are connections that are ready to claim.
func (d *database) claimers(ctx context.Context, n int) crew {
	return d.crew(ctx, n, consumerParameters, claimStatements)
}

// drainAll claims and settles the n events of each group, and checks that nothing is left.
func (d *database) drainAll(ctx context.Context, c crew, groups []group, n, size int, claim claimer) (speed float64) {
	left := make([]atomic.Int64, len(groups))
	for i := range left {
		left[i].Store(int64(n))
	}
	speed = c.run(ctx, n*len(groups), func(ctx context.Context, i int, conn *pgx.Conn) int {
		k := i % len(groups)
		return drain(ctx, conn, groups[k], size, claim, &left[k])
	})
	d.checkSettled(ctx, groups)
	return speed
}

// newGroups makes groups that start at the beginning of the log.
func (d *database) newGroups(ctx context.Context, n int, config string) []group {
	if config == "" {
		config = "{}"
	}
	groups := make([]group, n)
	for i := range groups {
		name := fmt.Sprintf("bench-%d", d.names.Add(1))
		id := value[int64](ctx, d, `select posthorn.define_group('default', $1::text, $2::jsonb || '{"start": "beginning"}')`, name, config)
		groups[i] = group{id, name}
	}
	return groups
}

// drain claims and settles until the group has no events left for any worker.
func drain(ctx context.Context, conn *pgx.Conn, g group, size int, claim claimer, left *atomic.Int64) int {
	var last lease
	done := 0
	for left.Load() > 0 {
		if last = claim(ctx, conn, g, size, last); !last.held() {
			sleep(ctx, 100*time.Microsecond) // the other workers have all remaining events
		}
		done += last.events
		left.Add(-int64(last.events))
	}
	settle(ctx, conn, last)
	return done
}

// checkSettled checks that no lease or retry is left.
func (d *database) checkSettled(ctx context.Context, groups []group) {
	for _, g := range groups {
		var leases, retries int
		check(d.QueryRow(ctx, `
			select (select count(*) from posthorn.leases l where l.group_id = $1),
				(select count(*) from posthorn.retries r where r.group_id = $1)`, g.id).Scan(&leases, &retries))
		if leases != 0 || retries != 0 {
			fail("%s has %d leases and %d retries left", g.name, leases, retries)
		}
	}
}
