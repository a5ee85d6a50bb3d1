package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// UsePgCron lets pg_cron, which has to be installed in this database, run upkeep
// and schedules. It returns the id of the job that calls tend. Doing it again
// changes nothing.
func UsePgCron(ctx context.Context, db DB) (job int64, err error) {
	return one[int64](ctx, db, "use pg_cron", "select posthorn.use_pg_cron()")
}

// PgCron is where pg_cron is, seen from a database.
type PgCron struct {
	Here    string // this database
	Home    string // the one from which it serves all databases of the server
	JobName string // of the job that tends this one
}

// FindPgCron tells where pg_cron is.
func FindPgCron(ctx context.Context, db DB) (PgCron, error) {
	var c PgCron
	err := db.QueryRow(ctx, `
		select current_database()::text, coalesce(current_setting('cron.database_name', true), ''), posthorn.pg_cron_job_name()`).
		Scan(&c.Here, &c.Home, &c.JobName)
	if err == nil && c.Home == "" {
		err = &Error{
			Message:  "this server does not run pg_cron",
			sentinel: ErrRefused,
			hint:     "Put pg_cron into shared_preload_libraries and restart Postgres. Without it, posthorn up does upkeep and fires schedules.",
		}
	}
	return c, translate("look for pg_cron", err)
}

// TendFromHome registers the job that tends a database other than pg_cron's home,
// to which db is. It needs nothing of ours there.
func (c PgCron) TendFromHome(ctx context.Context, db DB) (job int64, err error) {
	err = db.QueryRow(ctx, `
		select cron.schedule_in_database($1::text,
			case when string_to_array(substring(extversion from '^[0-9]+[.][0-9]+'), '.')::int[] >= array[1, 5]
				then '10 seconds' else '* * * * *' end,
			'select posthorn.tend()', $2::text)
		from pg_extension
		where extname = 'pg_cron'`, c.JobName, c.Here).Scan(&job)
	if errors.Is(err, pgx.ErrNoRows) {
		err = &Error{
			Message:  "pg_cron is not installed in database " + c.Home,
			sentinel: ErrRefused,
			hint:     "Run there, as a superuser: create extension pg_cron;",
		}
	}
	return job, translate("use pg_cron", err)
}
