package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

var caughtUpRows = []row{{
	work: "claim on a caught-up group, large log and many groups", floor: atMost(1.5), unit: " ns",
	ours: "latency of take", peer: "with 10 groups and 10,000 events",
	prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
		if ours, err = b.idle(ctx, b.logEvents, b.logGroups); err != nil {
			return nil, nil, err
		}
		peer, err = b.idle(ctx, min(b.logEvents, 10_000), min(b.logGroups, 10))
		return ours, peer, err
	},
}}

// idleClaims is the number of claims that a round measures.
const idleClaims = 2000

// idle measures claims that find nothing. Each claim is of another group than the one
// before.
func (b *bench) idle(ctx context.Context, events, groups int) (side, error) {
	b.say("  filling a log with %s events", figure(float64(events)))
	d, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.fillFast(ctx, events); err != nil {
		return nil, err
	}
	all, err := d.newGroups(ctx, groups, "")
	if err != nil {
		return nil, err
	}
	crew, err := d.claimers(ctx, 1)
	if err != nil {
		return nil, err
	}
	if err := d.catchUp(ctx, crew[0], all); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (float64, error) { return timeClaims(ctx, crew[0], all) }, nil
}

// fillFast writes the log in one statement. The rows are the same as those of
// publish.
func (d *database) fillFast(ctx context.Context, n int) error {
	_, err := d.Exec(ctx, `
		insert into posthorn.events (namespace_id, stream_id, type, payload)
		select 1, 1, $2::text, $3::json
		from generate_series(1, $1::int)`, n, eventType, payload)
	if err == nil {
		_, err = d.Exec(ctx, "vacuum analyze posthorn.events")
	}
	return err
}

// catchUp lets the first group read the log, and starts the others at its end, with
// the cursor of a group that has read everything.
func (d *database) catchUp(ctx context.Context, conn *pgx.Conn, groups []group) error {
	for _, g := range groups[1:] {
		if _, err := d.Exec(ctx, "select posthorn.seek('default', $1::text, 'infinity')", g.name); err != nil {
			return err
		}
	}
	for _, g := range groups {
		var last lease
		for first := true; first || last.held(); first = false {
			var err error
			if last, err = take(ctx, conn, g, 10_000, last); err != nil {
				return err
			}
		}
	}
	return nil
}

// timeClaims returns the median latency in nanoseconds.
func timeClaims(ctx context.Context, conn *pgx.Conn, groups []group) (float64, error) {
	latencies := make([]float64, idleClaims)
	for i := range latencies {
		start := time.Now()
		l, err := take(ctx, conn, groups[i%len(groups)], batchSize, lease{})
		if err != nil {
			return 0, err
		}
		if l.held() {
			return 0, fmt.Errorf("%s was not caught up", groups[i%len(groups)].name)
		}
		latencies[i] = float64(time.Since(start).Nanoseconds())
	}
	return median(latencies), nil
}
