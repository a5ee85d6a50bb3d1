package main

import (
	"context"
	"time"
)

var subscriptionRows = []row{
	// 2 µs for a match on a machine that claims 250,000 events a second: half of the
	// cost of a claim.
	matchingRow("take + settle, two workers", take, atMost(0.5)),
	matchingRow("claim() + settle(), two workers", claim, limit{}),
	subscribed("one group with one subscription, two workers", reading{size: 1000, workers: 2, claim: take}, 1),
	subscribed("fifty groups with a subscription each", reading{size: 1000, workers: 50, groups: 50, claim: take}, 20),
}

// matchingRow compares the cost of a match with the cost of claim() for an event
// without subscriptions.
func matchingRow(how string, c claimer, floor limit) row {
	return row{
		work: "matching, 4 conditions × 1,000 subscriptions, per match, " + how, floor: floor, unit: " ns",
		ours: "1,000 at a time with 4 matches an event, less the same without, by 4",
		peer: "claim() without subscriptions, two workers, per event",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			d := b.newDatabase(ctx)
			n := max(b.events/10, 1000)
			d.fillRooms(ctx, n)
			plain := d.taking(ctx, reading{size: 1000, workers: 2, claim: c}, n)
			matching := d.matching(ctx, c, n)
			claiming := d.taking(ctx, reading{size: 1000, workers: 2, claim: claim}, n)
			ours = func(ctx context.Context) float64 {
				with, without := perEvent(matching(ctx)), perEvent(plain(ctx))
				return (with - without) / float64(len(conditions))
			}
			peer = func(ctx context.Context) float64 { return perEvent(claiming(ctx)) }
			return ours, peer
		},
	}
}

// perEvent converts a speed to nanoseconds per event.
func perEvent(speed float64) float64 { return float64(time.Second.Nanoseconds()) / speed }

// conditions are looked up by the contents of params, or joined by an equation. One
// of them reads payloads.
var conditions = []string{
	"s.params @> jsonb_build_object('room', e.type)",
	"s.params @> jsonb_build_object('room', e.type) and e.key is null",
	"s.params @> jsonb_build_object('room', e.payload->>'room')",
	"s.params->>'room' = e.type",
}

// rooms is the number of subscriptions of each condition.
const rooms = 1000

// subscribed compares groups whose subscriptions want every event with groups without
// subscriptions.
func subscribed(work string, r reading, fraction int) row {
	return row{
		work: work, unit: "/s",
		ours: "take + lease_events, 1,000", peer: "the same without subscriptions",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			d, n := (*database)(nil), b.events/fraction
			if fraction == 1 {
				d = b.fullLog(ctx)
			} else {
				d = b.newDatabase(ctx)
				d.fill(ctx, n)
			}
			peer = d.taking(ctx, r, n)
			r.filter = `{"type": "` + eventType + `"}`
			return d.taking(ctx, r, n), peer
		},
	}
}

// subscribe gives each group a subscription.
func (d *database) subscribe(ctx context.Context, groups []group, filter string) {
	for _, g := range groups {
		d.exec(ctx, "select posthorn.subscribe('default', $1, 'all', $2::jsonb)", g.name, filter)
	}
}

// fillRooms publishes n events, each for one room by its type and its payload.
func (d *database) fillRooms(ctx context.Context, n int) {
	d.exec(ctx, `
		insert into posthorn.events (namespace_id, stream_id, type, payload)
		select 1, 1, 'room.' || i % $2, json_build_object('n', i, 'room', 'room.' || i % $2, 'pad', repeat('x', 150))
		from generate_series(1, $1::int) i`, n, rooms)
	d.exec(ctx, "vacuum analyze posthorn.events")
}

// matching claims n events that match each condition for one room, and checks that
// they did.
func (d *database) matching(ctx context.Context, c claimer, n int) side {
	crew := d.claimers(ctx, 2)
	return func(ctx context.Context) float64 {
		groups := d.newGroups(ctx, 1, "")
		d.exec(ctx, `
			insert into posthorn.subscriptions (group_id, conditions_sql, params)
			select $1, c, jsonb_build_object('room', 'room.' || i % $3)
			from unnest($2::text[]) c cross join generate_series(1, $3::int) i`, groups[0].name, conditions, rooms)
		return d.drainAll(ctx, crew, groups, n, 1000, c)
	}
}
