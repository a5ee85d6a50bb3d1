package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Stream is a channel of events.
type Stream struct {
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

// ListStreams returns the streams of a namespace whose names come after one, by
// name, up to a limit.
func ListStreams(ctx context.Context, db DB, namespace, after string, limit int) ([]Stream, error) {
	if err := CheckNamespace(ctx, db, namespace); err != nil {
		return nil, err
	}
	return list(ctx, db, "list streams", pgx.RowToStructByPos[Stream], `
		select s.name, s.created_at from posthorn.streams s
		where s.namespace = $1::text and s.name > $2::text
		order by s.name limit $3::int`, namespace, after, limit)
}
