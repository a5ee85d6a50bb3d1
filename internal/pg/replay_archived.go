package pg

import (
	"context"
	"time"
)

// Replay publishes archived events again. Run fences: only the process that began or
// resumed the replay last may go on, and calls of others fail with [ErrLeaseLost].
type Replay struct {
	Namespace string
	Name      string
	Run       string
	Position  int64 // the id of the last event that was replayed
	Events    int64
}

// BeginReplay begins a replay, or resumes the one of that name if it has not ended. Target
// describes its events and its destination. BeginReplay fails with [ErrConflict] when the
// replay that has not ended has another target.
func BeginReplay(ctx context.Context, db DB, namespace, name, target string) (Replay, error) {
	r := Replay{Namespace: namespace, Name: name}
	err := db.QueryRow(ctx, `
		select run::text, position_reached, events_done from posthorn.begin_replay($1::text, $2::text, $3::text)`,
		namespace, name, target).Scan(&r.Run, &r.Position, &r.Events)
	return r, Translate("begin replay", err)
}

// EndReplay records that a replay is complete.
func EndReplay(ctx context.Context, db DB, r Replay) error {
	return Exec(ctx, db, "end replay", "select posthorn.end_replay($1::text, $2::text, $3::uuid)", r.Namespace, r.Name, r.Run)
}

// ReplayToGroup hands archived events out to a group again, and moves the position of the
// replay, in one transaction. Ids must ascend.
func ReplayToGroup(ctx context.Context, db DB, r Replay, group string, events []StoredEvent) error {
	c := storedColumns(events)
	return Exec(ctx, db, "replay", `
		select posthorn.replay_to_group($1::text, $2::text, $3::uuid, $4::text, $5::bigint[], $6::text[], $7::text[], $8::text[],
			$9::text[], $10::text[]::json[], $11::text[]::json[], $12::timestamptz[])`,
		r.Namespace, r.Name, r.Run, group, c.ids, c.streams, c.types, c.keys, c.tags, c.payloads, c.metadata, c.times)
}

// ReplayToStream publishes archived events again, and moves the position of the replay, in
// one transaction. Ids must ascend.
func ReplayToStream(ctx context.Context, db DB, r Replay, stream string, events []StoredEvent) error {
	c := storedColumns(events)
	return Exec(ctx, db, "replay", `
		select posthorn.replay_to_stream($1::text, $2::text, $3::uuid, $4::text, $5::bigint[], $6::text[], $7::text[],
			$8::text[], $9::text[]::json[], $10::text[]::json[])`,
		r.Namespace, r.Name, r.Run, stream, c.ids, c.types, c.keys, c.tags, c.payloads, c.metadata)
}

// archivedColumns are the arrays in which functions take archived events.
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
