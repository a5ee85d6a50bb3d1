package pg

import (
	"context"
	"time"
)

// Replay is archived events on their way back. Run fences: who began last may go
// on, and others fail with [ErrLeaseLost].
type Replay struct {
	Namespace string
	Name      string
	Run       string
	Position  int64 // the last id that was replayed
	Events    int64
}

// BeginReplay begins a replay, or goes on with one that has not ended. Target says
// what is replayed and where to; it fails with [ErrConflict] when the one that has
// not ended is another.
func BeginReplay(ctx context.Context, db DB, namespace, name, target string) (Replay, error) {
	r := Replay{Namespace: namespace, Name: name}
	err := db.QueryRow(ctx, `
		select run::text, position_reached, events_done from posthorn.begin_replay($1::text, $2::text, $3::text)`,
		namespace, name, target).Scan(&r.Run, &r.Position, &r.Events)
	return r, Translate("begin replay", err)
}

// EndReplay notes that a replay is complete.
func EndReplay(ctx context.Context, db DB, r Replay) error {
	return Exec(ctx, db, "end replay", "select posthorn.end_replay($1::text, $2::text, $3::uuid)", r.Namespace, r.Name, r.Run)
}

// ReplayToGroup gives a group archived events again, and moves the position, in
// one transaction. Ids ascend.
func ReplayToGroup(ctx context.Context, db DB, r Replay, group string, events []StoredEvent) error {
	c := storedColumns(events)
	return Exec(ctx, db, "replay", `
		select posthorn.replay_to_group($1::text, $2::text, $3::uuid, $4::text, $5::bigint[], $6::text[], $7::text[], $8::text[],
			$9::text[], $10::text[]::json[], $11::text[]::json[], $12::timestamptz[])`,
		r.Namespace, r.Name, r.Run, group, c.ids, c.streams, c.types, c.keys, c.tags, c.payloads, c.metadata, c.times)
}

// ReplayToStream publishes archived events anew, and moves the position, in one
// transaction. Ids ascend.
func ReplayToStream(ctx context.Context, db DB, r Replay, stream string, events []StoredEvent) error {
	c := storedColumns(events)
	return Exec(ctx, db, "replay", `
		select posthorn.replay_to_stream($1::text, $2::text, $3::uuid, $4::text, $5::bigint[], $6::text[], $7::text[],
			$8::text[], $9::text[]::json[], $10::text[]::json[])`,
		r.Namespace, r.Name, r.Run, stream, c.ids, c.types, c.keys, c.tags, c.payloads, c.metadata)
}

// BeginRestore begins to restore the log, or goes on, and returns the last id that
// was restored. It fails with [ErrRefused] where something was published.
func BeginRestore(ctx context.Context, db DB, location string, upto int64, since time.Time) (int64, error) {
	return Value[int64](ctx, db, "restore",
		"select posthorn.begin_restore($1::text, $2::bigint, $3::timestamptz)", location, upto, since)
}

// RestoreEvents restores a batch of events, with their ids and times. Ids ascend
// from batch to batch, over all namespaces.
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

// EndRestore notes that a restore is complete.
func EndRestore(ctx context.Context, db DB) error {
	return Exec(ctx, db, "restore", "select posthorn.end_restore()")
}

// archivedColumns are events as the functions take them.
type archivedColumns struct {
	ids                                      []int64
	streams, types, tags, payloads, metadata []string
	keys                                     []*string
	times                                    []time.Time
}

func storedColumns(events []StoredEvent) (c archivedColumns) {
	for i := range events {
		e := &events[i]
		c.ids = append(c.ids, e.ID)
		c.streams = append(c.streams, e.Stream)
		c.types = append(c.types, e.Type)
		c.keys = append(c.keys, e.Key)
		c.tags = append(c.tags, arrayLiteral(e.Tags))
		c.payloads = append(c.payloads, string(e.Payload))
		c.metadata = append(c.metadata, string(e.Metadata))
		c.times = append(c.times, e.PublishedAt)
	}
	return c
}

// CheckConfidential fails with [ErrRefused] when one of some streams, whose events
// are sealed, is not confidential in this database.
func CheckConfidential(ctx context.Context, db DB, namespaces, streams []string) error {
	return Exec(ctx, db, "restore", "select posthorn.check_confidential($1::text[], $2::text[])", namespaces, streams)
}
