package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Found is an event of the log, or one that enters it later.
type Found struct {
	Event
	DeliverAt *time.Time // nil once it is in the log
}

// FindEvent returns the event of a namespace that has that id, or [ErrNotFound].
func FindEvent(ctx context.Context, db DB, namespace string, id int64) (Found, error) {
	found, err := list(ctx, db, "find event", scanFound, `
		select id, stream, type, coalesce(key, ''), tags, payload, metadata, published_at, deliver_at
		from posthorn.find_event($1::text, $2::bigint)`, namespace, id)
	if err != nil {
		return Found{}, err
	}
	if len(found) == 0 {
		return Found{}, &Error{
			Message: fmt.Sprintf("event %d does not exist in namespace %s", id, namespace), sentinel: ErrNotFound,
			hint: "It may have been removed with its partition; a delayed event gets another id when it enters the log.",
		}
	}
	return found[0], nil
}

func scanFound(row pgx.CollectableRow) (Found, error) {
	var f Found
	err := row.Scan(&f.ID, &f.Stream, &f.Type, &f.Key, &f.Tags, &f.Payload, &f.Metadata, &f.PublishedAt, &f.DeliverAt)
	return f, err
}
