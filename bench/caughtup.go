package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

var caughtUpRows = []row{{
	work: "claim on a caught-up group, large log and many groups", floor: atMost(1.5), unit: " ns",
	ours: "latency of take", peer: "with 10 groups and 10,000 events",
	prepare: func(ctx context.Context, b *bench) (ours, peer side) {
		return b.caughtUp(ctx, b.logEvents, b.logGroups), b.caughtUp(ctx, min(b.logEvents, 10_000), min(b.logGroups, 10))
	},
}}

// idleClaims is the number of claims that a round measures.
const idleClaims = 2000

// caughtUp measures claims that find nothing. Each claim is of another group than the one
// before.
func (b *bench) caughtUp(ctx context.Context, events, groups int) side {
	b.say("  filling a log with %s events", figure(float64(events)))
	d := b.newDatabase(ctx)
	d.fillFast(ctx, events)
	all := d.newGroups(ctx, groups, "")
	conn := d.claimers(ctx, 1)[0]
	d.catchUp(ctx, conn, all)
	return func(ctx context.Context) float64 { return timeClaims(ctx, conn, all) }
}

// fillFast writes the log in one statement. The rows are the same as those of
// publish.
func (d *database) fillFast(ctx context.Context, n int) {
	d.exec(ctx, `
		insert into posthorn.events (namespace_id, stream_id, type, payload)
		select 1, 1, $2::text, $3::json
		from generate_series(1, $1::int)`, n, eventType, payload)
	d.exec(ctx, "vacuum analyze posthorn.events")
}

// catchUp lets the first group read the log, and starts the others at its end, with
// the cursor of a group that has read everything.
func (d *database) catchUp(ctx context.Context, conn *pgx.Conn, groups []group) {
	for _, g := range groups[1:] {
		d.exec(ctx, "select posthorn.seek('default', $1::text, 'infinity')", g.name)
	}
	for _, g := range groups {
		readAll(ctx, conn, g, 10_000, lease{})
	}
}

// readAll settles a lease, and takes and settles until the group has no events left.
func readAll(ctx context.Context, conn *pgx.Conn, g group, size int, last lease) {
	for last = take(ctx, conn, g, size, last); last.held(); {
		last = take(ctx, conn, g, size, last)
	}
}

// timeClaims returns the median latency in nanoseconds.
func timeClaims(ctx context.Context, conn *pgx.Conn, groups []group) float64 {
	latencies := make([]float64, idleClaims)
	for i := range latencies {
		g := groups[i%len(groups)]
		start := time.Now()
		l := take(ctx, conn, g, batchSize, lease{})
		if l.held() {
			fail("%s was not caught up", g.name)
		}
		latencies[i] = float64(time.Since(start).Nanoseconds())
	}
	return median(latencies)
}
