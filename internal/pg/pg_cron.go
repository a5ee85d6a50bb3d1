package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// UsePgCron lets pg_cron, which has to be installed in this database, run upkeep
// and schedules. It returns the id of the job that calls tend. Doing it again
// changes nothing.
func UsePgCron(ctx context.Context, db DB) (job int64, err error) {
	return one[int64](ctx, db, "use pg_cron", "select posthorn.use_pg_cron()")
}

// PgCronDatabase returns this database, and the one of the server that pg_cron
// serves the others from.
func PgCronDatabase(ctx context.Context, db DB) (here, serves string, err error) {
	err = db.QueryRow(ctx, "select current_database()::text, coalesce(current_setting('cron.database_name', true), '')").Scan(&here, &serves)
	if err == nil && serves == "" {
		err = &Error{
			Message:  "this server does not run pg_cron",
			sentinel: ErrRefused,
			hint:     "Put pg_cron into shared_preload_libraries and restart Postgres. Without it, posthorn up does upkeep and schedules.",
		}
	}
	return here, serves, translate("look for pg_cron", err)
}

// TendFromPgCron registers, in the database that pg_cron serves others from, the
// job that tends another database. It needs nothing of ours there.
func TendFromPgCron(ctx context.Context, db DB, database, jobName string) (job int64, err error) {
	err = db.QueryRow(ctx, `
		select cron.schedule_in_database($1::text,
			case when string_to_array(substring(extversion from '^[0-9]+[.][0-9]+'), '.')::int[] >= array[1, 5]
				then '10 seconds' else '* * * * *' end,
			'select posthorn.tend()', $2::text)
		from pg_extension
		where extname = 'pg_cron'`, jobName, database).Scan(&job)
	if errors.Is(err, pgx.ErrNoRows) {
		err = &Error{
			Message:  "pg_cron is not installed in the database that cron.database_name names",
			sentinel: ErrRefused,
			hint:     "Run there, as a superuser: create extension pg_cron;",
		}
	}
	return job, translate("use pg_cron", err)
}
