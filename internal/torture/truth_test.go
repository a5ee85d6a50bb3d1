package torture

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// truth is the state of the database at the end.
type truth struct {
	events  map[int64]event // by id
	handled []handling      // in the order in which it happened, per slot
	dead    []deadLetter
}

type event struct {
	id, uid   int64
	namespace string
	stream    string
	key       *string
}

// handling is a row of torture.handled.
type handling struct {
	group   int64
	event   int64
	lease   int64
	attempt int
	outcome string
}

type deadLetter struct {
	group    int64
	event    int64
	attempts int
	reason   string
	error    string
}

// readEvents reads the log.
func readEvents(ctx context.Context, conn *pgx.Conn) (map[int64]event, error) {
	events := map[int64]event{}
	return events, each(ctx, conn, `
		select e.id, (e.payload->>'uid')::bigint, n.namespace, s.name, e.key
		from posthorn.events e
		join posthorn.namespaces n on n.id = e.namespace_id
		join posthorn.streams s on s.id = e.stream_id`,
		func(e event) { events[e.id] = e },
		func(e *event) []any { return []any{&e.id, &e.uid, &e.namespace, &e.stream, &e.key} })
}

// read reads the log, and what became of the events in all groups.
func (t *truth) read(ctx context.Context, conn *pgx.Conn) (err error) {
	if t.events, err = readEvents(ctx, conn); err != nil {
		return err
	}
	err = each(ctx, conn, `select group_id, event_id, lease, attempt, outcome from torture.handled order by n`,
		func(h handling) { t.handled = append(t.handled, h) },
		func(h *handling) []any { return []any{&h.group, &h.event, &h.lease, &h.attempt, &h.outcome} })
	if err != nil {
		return err
	}
	return each(ctx, conn, `select group_id, event_id, attempts, reason, coalesce(error, '') from posthorn.dead_letters`,
		func(d deadLetter) { t.dead = append(t.dead, d) },
		func(d *deadLetter) []any { return []any{&d.group, &d.event, &d.attempts, &d.reason, &d.error} })
}

// each scans every row of a query into a fresh T.
func each[T any](ctx context.Context, conn *pgx.Conn, sql string, got func(T), fields func(*T) []any) error {
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var row T
		if err := rows.Scan(fields(&row)...); err != nil {
			return err
		}
		got(row)
	}
	return rows.Err()
}
