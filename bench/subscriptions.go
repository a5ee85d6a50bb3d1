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
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			d, err := b.newDatabase(ctx)
			if err != nil {
				return nil, nil, err
			}
			n := max(b.events/10, 1000)
			if err := d.fillRooms(ctx, n); err != nil {
				return nil, nil, err
			}
			plain, err := d.taking(ctx, reading{size: 1000, workers: 2, claim: c}, n)
			if err != nil {
				return nil, nil, err
			}
			matching, err := d.matching(ctx, c, n)
			if err != nil {
				return nil, nil, err
			}
			claiming, err := d.taking(ctx, reading{size: 1000, workers: 2, claim: claim}, n)
			if err != nil {
				return nil, nil, err
			}
			ours = func(ctx context.Context) (float64, error) {
				with, err := matching(ctx)
				if err != nil {
					return 0, err
				}
				without, err := plain(ctx)
				return (perEvent(with) - perEvent(without)) / float64(len(conditions)), err
			}
			peer = func(ctx context.Context) (float64, error) {
				speed, err := claiming(ctx)
				return perEvent(speed), err
			}
			return ours, peer, nil
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
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			d, n := (*database)(nil), b.events/fraction
			if fraction == 1 {
				d, err = b.fullLog(ctx)
			} else if d, err = b.newDatabase(ctx); err == nil {
				err = d.fill(ctx, n)
			}
			if err != nil {
				return nil, nil, err
			}
			if peer, err = d.taking(ctx, r, n); err != nil {
				return nil, nil, err
			}
			r.filter = `{"type": "` + eventType + `"}`
			ours, err = d.taking(ctx, r, n)
			return ours, peer, err
		},
	}
}

// subscribe gives each group a subscription, unless there is no filter.
func (d *database) subscribe(ctx context.Context, groups []group, filter string) error {
	if filter == "" {
		return nil
	}
	for _, g := range groups {
		if _, err := d.Exec(ctx, "select posthorn.subscribe('default', $1, 'all', $2::jsonb)", g.name, filter); err != nil {
			return err
		}
	}
	return nil
}

// fillRooms publishes n events, each for one room by its type and its payload.
func (d *database) fillRooms(ctx context.Context, n int) error {
	_, err := d.Exec(ctx, `
		insert into posthorn.events (namespace_id, stream_id, type, payload)
		select 1, 1, 'room.' || i % $2, json_build_object('n', i, 'room', 'room.' || i % $2, 'pad', repeat('x', 150))
		from generate_series(1, $1::int) i`, n, rooms)
	if err == nil {
		_, err = d.Exec(ctx, "vacuum analyze posthorn.events")
	}
	return err
}

// matching claims n events that match each condition for one room, and checks that
// they did.
func (d *database) matching(ctx context.Context, c claimer, n int) (side, error) {
	crew, err := d.claimers(ctx, 2)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (float64, error) {
		groups, err := d.newGroups(ctx, 1, "")
		if err != nil {
			return 0, err
		}
		_, err = d.Exec(ctx, `
			insert into posthorn.subscriptions (group_id, conditions_sql, params)
			select $1, c, jsonb_build_object('room', 'room.' || i % $3)
			from unnest($2::text[]) c cross join generate_series(1, $3::int) i`, groups[0].name, conditions, rooms)
		if err != nil {
			return 0, err
		}
		return d.drainAll(ctx, crew, groups, n, 1000, c)
	}, nil
}
