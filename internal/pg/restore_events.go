package pg

import (
	"context"
	"time"
)

// CheckConfidential fails with [ErrRefused] when one of some streams with sealed events is
// not confidential in this database.
func CheckConfidential(ctx context.Context, db DB, namespaces, streams []string) error {
	return Exec(ctx, db, "restore", "select posthorn.check_confidential($1::text[], $2::text[])", namespaces, streams)
}

// BeginRestore begins or resumes restoring the log, and returns the id of the last event
// that was restored. It fails with [ErrRefused] if events were published to the log.
func BeginRestore(ctx context.Context, db DB, location string, upto int64, since time.Time) (int64, error) {
	return Value[int64](ctx, db, "restore",
		"select posthorn.begin_restore($1::text, $2::bigint, $3::timestamptz)", location, upto, since)
}

// RestoreEvents restores a batch of events with their ids and times. Ids must ascend from
// batch to batch, over all namespaces.
func RestoreEvents(ctx context.Context, db DB, events []StoredEvent) error {
	type key struct{ namespace, stream string }
	var namespaces, streams []string
	known := map[key]int32{}
	numbers := make([]int32, len(events))
	for i := range events {
		k := key{events[i].Namespace, events[i].Stream}
		if known[k] == 0 {
			namespaces = append(namespaces, k.namespace)
			streams = append(streams, k.stream)
			known[k] = int32(len(streams))
		}
		numbers[i] = known[k]
	}
	c := storedColumns(events)
	if err := Exec(ctx, db, "restore", "select posthorn.cover_times($1::timestamptz[])", c.times); err != nil {
		return err
	}
	return Exec(ctx, db, "restore", `
		select posthorn.restore_events($1::text[], $2::text[], $3::bigint[], $4::int[], $5::text[], $6::text[], $7::text[],
			$8::text[]::json[], $9::text[]::json[], $10::timestamptz[])`,
		namespaces, streams, c.ids, numbers, c.types, c.keys, c.tags, c.payloads, c.metadata, c.times)
}

// EndRestore records that a restore is complete.
func EndRestore(ctx context.Context, db DB) error {
	return Exec(ctx, db, "restore", "select posthorn.end_restore()")
}
