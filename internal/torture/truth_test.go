package torture

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// truth is the state of the database at the end of the run.
type truth struct {
	events  map[int64]event // by id
	handled []handling      // in the order of handling, within each slot
	dead    []deadLetter
}

type event struct {
	ID, UID   int64
	Namespace string
	Stream    string
	Key       *string
}

// handling is a row of torture.handled.
type handling struct {
	Group, Event, Lease int64
	Attempt             int
	Outcome             string
}

type deadLetter struct {
	Group, Event  int64
	Attempts      int
	Reason, Error string
}

// readEvents reads the log.
func readEvents(ctx context.Context, conn *pgx.Conn) (map[int64]event, error) {
	list, err := read[event](ctx, conn, `
		select e.id, (e.payload->>'uid')::bigint, n.namespace, s.name, e.key
		from posthorn.events e
		join posthorn.namespaces n on n.id = e.namespace_id
		join posthorn.streams s on s.id = e.stream_id`)
	events := map[int64]event{}
	for _, e := range list {
		events[e.ID] = e
	}
	return events, err
}

// read reads the log, and the outcomes of the events in all groups.
func (t *truth) read(ctx context.Context, conn *pgx.Conn) (err error) {
	if t.events, err = readEvents(ctx, conn); err != nil {
		return err
	}
	t.handled, err = read[handling](ctx, conn, "select group_id, event_id, lease, attempt, outcome from torture.handled order by n")
	if err != nil {
		return err
	}
	t.dead, err = read[deadLetter](ctx, conn, "select group_id, event_id, attempts, reason, coalesce(error, '') from posthorn.dead_letters")
	return err
}

func read[T any](ctx context.Context, conn *pgx.Conn, sql string) ([]T, error) {
	rows, _ := conn.Query(ctx, sql) // Query returns its error with the rows
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}
