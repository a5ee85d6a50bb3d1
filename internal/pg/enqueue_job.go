package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Enqueued is the result of [EnqueueJob].
type Enqueued struct {
	ID        int64
	New       bool      // false: the job with this id has the unique key already
	Tags      []string  // only of a new job, as they are stored
	CreatedAt time.Time // only of a new job
}

// EnqueueJob is [Enqueue] with more results than the id.
func EnqueueJob(ctx context.Context, db DB, namespace string, j NewJob) (Enqueued, error) {
	rows, err := Collect(ctx, db, "enqueue", pgx.RowToStructByPos[Enqueued], `
		select id, is_new, coalesce(labels, '{}'), coalesce(created_at, 'epoch')
		from posthorn.enqueue_job($1::text, $2::text, $3::json, $4::text[], $5::text, $6::int, $7::timestamptz, $8::int, $9::text,
			$10::text::interval, $11::text::interval[], $12::json, $13::text, $14::float8, $15::bigint[])`,
		j.arguments(namespace)...)
	if err != nil {
		return Enqueued{}, err
	}
	return rows[0], nil
}
